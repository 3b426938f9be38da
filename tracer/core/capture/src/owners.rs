//! Who owns the two ends of a connection: the process, user, cgroup and container of this host's socket.
//!
//! ```text
//! SYNs (sockets of their own) ──▶ ┌───────┐  sock_diag: the one socket of a 4-tuple ─▶ inode, uid, cgroup
//! 4-tuples of captured packets ─▶ │ watch │  /proc/PID/fd: who holds that inode     ─▶ pid, comm, exe, start
//!                                 └───────┘  /proc/PID/cgroup                        ─▶ unit, container, pod
//!                                     └──▶ a comment in each segment, of the connections that have packets in it
//! ```
//!
//! How an owner is known is part of it ([`Evidence`]): the connection's own socket, or the socket that listens at its
//! port, once the kernel has shown that the connection is its own. What several holders do not have in common is left
//! out, so nothing is a guess. A client whose socket is closed before it was asked for stays unknown.
//!
//! Ends in other network namespaces of this host, those of containers, are looked for in `/proc/PID/net` of a process there.
//!
//! Limits: arguments and environments of processes are never read.

pub mod cgroups;
pub mod key;
pub mod statement;

#[cfg(target_os = "linux")]
mod board;
#[cfg(target_os = "linux")]
mod budget;
#[cfg(target_os = "linux")]
mod cgroup_tree;
#[cfg(target_os = "linux")]
mod look;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod sock_diag;
#[cfg(target_os = "linux")]
mod syn_tap;
#[cfg(target_os = "linux")]
pub mod watch;

use std::sync::Arc;

/// How an owner is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It listens at the connection's port, and the connection was accepted, or is about to be, by this kernel.
    Listener,
    /// It holds the connection's socket.
    Socket,
}

/// What is known of who holds a socket; of several holders, what they have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The name of its main thread (`comm`).
    pub process: Option<String>,
    /// The program's file.
    pub exe: Option<String>,
    pub pid: Option<u32>,
    /// When the process was started: ns since the epoch by the host's clock, in steps of 10 ms. A pid is used again.
    pub start_ns: Option<u64>,
    pub uid: Option<u32>,
    pub user: Option<String>,
    pub unit: Option<String>,
    pub container: Option<String>,
    pub pod_uid: Option<String>,
    pub pod: Option<String>,
}

impl Holder {
    /// What two holders have in common.
    pub fn common(self, other: &Holder) -> Holder {
        fn same<T: PartialEq>(one: Option<T>, other: &Option<T>) -> Option<T> {
            one.filter(|value| other.as_ref() == Some(value))
        }
        Holder {
            process: same(self.process, &other.process),
            exe: same(self.exe, &other.exe),
            pid: same(self.pid, &other.pid),
            start_ns: same(self.start_ns, &other.start_ns),
            uid: same(self.uid, &other.uid),
            user: same(self.user, &other.user),
            unit: same(self.unit, &other.unit),
            container: same(self.container, &other.container),
            pod_uid: same(self.pod_uid, &other.pod_uid),
            pod: same(self.pod, &other.pod),
        }
    }
}

/// Who owns one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub holder: Arc<Holder>,
    pub evidence: Evidence,
    /// When the connection was first seen, by the host's clock.
    pub seen_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_holders_what_they_share_is_kept() {
        let master = Holder {
            process: Some("nginx".into()),
            pid: Some(1),
            uid: Some(0),
            unit: Some("nginx.service".into()),
            ..Holder::default()
        };
        let worker = Holder {
            pid: Some(2),
            uid: Some(33),
            ..master.clone()
        };
        let expected = Holder {
            pid: None,
            uid: None,
            ..master.clone()
        };
        assert_eq!(master.clone().common(&worker), expected);
        assert_eq!(master.clone().common(&master), master);
    }
}
