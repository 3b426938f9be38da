//! The processes of this host, as /proc shows them: who holds a socket, and what it is called.
//!
//! Source: proc(5). Read are `fd`, `comm`, `exe`, `stat`, `status` and `cgroup`; never `cmdline` or `environ`, which may
//! hold secrets. Other users' `fd` and `exe` need `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH` (root has both).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Holder;
use super::cgroups::{path_of, place_of};

/// `/proc/PID/stat` counts so many a second (USER_HZ, the same on every architecture).
const TICK_NS: u64 = 10_000_000;
/// Field of `/proc/PID/stat` behind the name, from 0: the start, in ticks since the system was started.
const STAT_START: usize = 19;
/// Processes whose descriptors were asked for last are asked first.
const MOST_RECENT: usize = 32;

/// Who holds sockets.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Holders {
    pub pids: Vec<u32>,
    /// A process's descriptors may not be read.
    pub is_unreadable: bool,
}

/// The processes as far as they are known; asked for again and again.
pub struct Processes {
    root: PathBuf,
    users: HashMap<u32, String>,
    users_mtime: i64,
    boot_ns: u64,
    /// At the last look.
    known: HashSet<u32>,
    recent: Vec<u32>,
    facts: HashMap<u32, (u64, Arc<Holder>)>,
    own_uts: Option<PathBuf>,
}

impl Processes {
    /// Arguments: `root`, `/proc`.
    pub fn new(root: &Path) -> Self {
        let boot_s = fs::read_to_string(root.join("stat")).ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("btime "))?;
            line.trim().parse::<u64>().ok()
        });
        Processes {
            root: root.to_owned(),
            users: HashMap::new(),
            users_mtime: i64::MIN,
            boot_ns: boot_s.unwrap_or(0) * 1_000_000_000,
            known: HashSet::new(),
            recent: Vec::new(),
            facts: HashMap::new(),
            own_uts: fs::read_link(root.join("self/ns/uts")).ok(),
        }
    }

    /// Who holds these sockets, among processes that are new or were asked lately; with `all`, among all.
    pub fn holders(&mut self, inodes: &HashSet<u64>, all: bool) -> HashMap<u64, Holders> {
        let pids = self.pids();
        let now: HashSet<u32> = pids.iter().copied().collect();
        self.recent.retain(|pid| now.contains(pid));
        self.facts.retain(|pid, _| now.contains(pid));
        let is_asked = |pid: &u32| all || !self.known.contains(pid) || self.recent.contains(pid);
        let asked: Vec<u32> = pids.into_iter().filter(is_asked).collect();
        let mut found: HashMap<u64, Holders> = inodes.iter().map(|inode| (*inode, Holders::default())).collect();
        let mut is_unreadable = false;
        for pid in asked {
            match self.sockets(pid) {
                Ok(own) => {
                    let mut holds = false;
                    for inode in own {
                        if let Some(holders) = found.get_mut(&inode) {
                            holders.pids.push(pid);
                            holds = true;
                        }
                    }
                    if holds {
                        self.note_recent(pid);
                    }
                }
                Err(error) => is_unreadable |= error.kind() == io::ErrorKind::PermissionDenied,
            }
        }
        self.known = now;
        for holders in found.values_mut() {
            holders.is_unreadable = is_unreadable && holders.pids.is_empty();
        }
        found
    }

    /// What is known of a process; `None` if it is gone.
    pub fn holder(&mut self, pid: u32) -> Option<Arc<Holder>> {
        let folder = self.root.join(pid.to_string());
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let ticks: u64 = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(STAT_START)?
            .parse()
            .ok()?;
        let comm = fs::read_to_string(folder.join("comm"))
            .ok()?
            .trim_end_matches('\n')
            .to_owned();
        if let Some((known_ticks, facts)) = self.facts.get(&pid)
            && *known_ticks == ticks
            && facts.process.as_ref() == Some(&comm)
        {
            return Some(Arc::clone(facts));
        }
        let uid = effective_uid(&fs::read_to_string(folder.join("status")).ok()?);
        let cgroup = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        let place = path_of(&cgroup).map(place_of).unwrap_or_default();
        let is_inside = place.container.is_some();
        let holder = Arc::new(Holder {
            process: Some(comm),
            exe: fs::read_link(folder.join("exe")).ok().map(|path| {
                let text = path.to_string_lossy();
                text.strip_suffix(" (deleted)").unwrap_or(&text).to_owned()
            }),
            pid: Some(pid),
            start_ns: (self.boot_ns > 0).then(|| self.boot_ns + ticks * TICK_NS),
            uid,
            // A container has users of its own, whose names this host's file does not know.
            user: uid.filter(|_| !is_inside).and_then(|uid| self.user(uid)),
            unit: place.unit,
            container: place.container,
            pod: place.pod_uid.as_ref().and_then(|_| self.host_name_of(&folder)),
            pod_uid: place.pod_uid,
        });
        self.facts.insert(pid, (ticks, Arc::clone(&holder)));
        Some(holder)
    }

    /// A user's name, by `/etc/passwd`.
    pub fn user(&mut self, uid: u32) -> Option<String> {
        let mtime = fs::metadata("/etc/passwd").map_or(0, |file| file.mtime());
        if mtime != self.users_mtime {
            self.users_mtime = mtime;
            self.users = fs::read_to_string("/etc/passwd")
                .map(|text| users(&text))
                .unwrap_or_default();
        }
        self.users.get(&uid).cloned()
    }

    fn note_recent(&mut self, pid: u32) {
        self.recent.retain(|known| *known != pid);
        self.recent.push(pid);
        if self.recent.len() > MOST_RECENT {
            self.recent.remove(0);
        }
    }

    fn pids(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }

    /// Inodes of a process's sockets.
    fn sockets(&self, pid: u32) -> io::Result<HashSet<u64>> {
        let mut found = HashSet::new();
        for entry in fs::read_dir(self.root.join(pid.to_string()).join("fd"))? {
            let target = match fs::read_link(entry?.path()) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
                Err(_) => continue, // closed meanwhile
            };
            let inode: Option<u64> = target
                .to_str()
                .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            found.extend(inode);
        }
        Ok(found)
    }

    /// The host name of a process that has one of its own: of a pod its name.
    fn host_name_of(&self, folder: &Path) -> Option<String> {
        let uts = fs::read_link(folder.join("ns/uts")).ok()?;
        if self.own_uts.as_ref() == Some(&uts) {
            return None;
        }
        let text = fs::read_to_string(folder.join("root/etc/hostname")).ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty())
    }
}

/// The second number of the line `Uid:`.
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn users(passwd: &str) -> HashMap<u32, String> {
    let mut found = HashMap::new();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(uid)) = (fields.next(), fields.next(), fields.next())
            && let Ok(uid) = uid.parse()
        {
            found.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn this_process_holds_its_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let path = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let inode = fs::metadata(path).expect("open").ino();
        let mut processes = Processes::new(Path::new("/proc"));
        let wanted = HashSet::from([inode]);
        let own = std::process::id();
        for all in [true, false] {
            assert!(
                processes.holders(&wanted, all)[&inode].pids.contains(&own),
                "all: {all}"
            );
        }
        let holder = processes.holder(own).expect("this process");
        let exe = std::env::current_exe().expect("known");
        assert_eq!(holder.exe.as_deref(), exe.to_str());
        assert!(holder.start_ns.is_some_and(|ns| ns > 1_500_000_000_000_000_000));
        assert!(processes.holder(u32::MAX).is_none());
    }

    #[test]
    fn files_are_read_by_their_fields() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t0\t33\t0\t0\n"), Some(33));
        assert_eq!(effective_uid("Uid:"), None);
        let found = users("root:x:0:0::/root:/bin/sh\ntoor:x:0:0\nbroken\nwww-data:x:33:33\n");
        assert_eq!(
            (found[&0].as_str(), found[&33].as_str(), found.len()),
            ("root", "www-data", 2)
        );
    }
}
