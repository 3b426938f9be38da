//! The other network namespaces of this host, those of containers: their addresses, and the sockets at these.
//!
//! Source: network_namespaces(7), proc(5): `/proc/PID/ns/net` says in which one a process is, `/proc/PID/net` shows that
//! one's addresses and sockets. So a namespace is seen while a process is in it that this one may look at, and no right
//! beyond that is needed: none is entered. Namespaces come and go with their processes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::key::Key;
use super::look::listening_at;
use super::sock_diag::{SocketFacts, is_closing};

/// How long a list of namespaces is used; for a connection of which no end is known here, a younger one is made.
pub const AGE: Duration = Duration::from_secs(2);
pub const AGE_OF_STRANGERS: Duration = Duration::from_millis(500);
/// Namespaces that are looked into, and sockets of one, at most.
const MOST_NAMESPACES: usize = 1_024;
const MOST_SOCKETS: usize = 65_536;
/// States of sockets in `net/tcp`.
const TIME_WAIT: u8 = 6;
const LISTEN: u8 = 10;

/// The other namespaces, as they are now and then.
pub struct Namespaces {
    root: PathBuf,
    own: Option<PathBuf>,
    /// A process in each.
    pids: BTreeMap<IpAddr, Vec<OsString>>,
    made: Option<Instant>,
    is_changed: bool,
}

/// The sockets of the namespaces with an address; read once for a batch of ends.
#[derive(Default)]
pub struct SocketTables {
    by_pid: HashMap<OsString, Vec<(SocketAddr, SocketFacts)>>,
}

impl Namespaces {
    /// Arguments: `root`, `/proc`.
    pub fn new(root: &Path) -> Self {
        Namespaces {
            root: root.to_owned(),
            own: fs::read_link(root.join("self/ns/net")).ok(),
            pids: BTreeMap::new(),
            made: None,
            is_changed: false,
        }
    }

    /// Makes the list anew if it is older than that; whether it was.
    pub fn refresh(&mut self, now: Instant, age: Duration) -> bool {
        let is_young = self.made.is_some_and(|made| now.saturating_duration_since(made) < age);
        if !is_young {
            let pids = self.by_address();
            self.is_changed |= pids.keys().ne(self.pids.keys());
            self.pids = pids;
            self.made = Some(now);
        }
        !is_young
    }

    /// Whether the addresses are others than when this was last asked.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Whether an address is one of another namespace.
    pub fn have(&self, address: IpAddr) -> bool {
        self.pids.contains_key(&address)
    }

    /// All of their addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.pids.keys().copied()
    }

    /// The socket of a connection's end there, with all that listen for it. A socket that listens proves nothing alone:
    /// another host's container may have the same address.
    pub fn find(&self, key: &Key, tables: &mut SocketTables) -> Option<(SocketFacts, Vec<SocketFacts>)> {
        self.pids.get(&key.local.ip())?.iter().find_map(|pid| {
            let all = tables
                .by_pid
                .entry(pid.clone())
                .or_insert_with(|| sockets(&self.root.join(pid).join("net")));
            let is_it = |(remote, facts): &&(SocketAddr, SocketFacts)| {
                !facts.listens && facts.local == key.local && *remote == key.remote
            };
            let (_, own) = all.iter().find(is_it)?;
            let listening: Vec<SocketFacts> = all
                .iter()
                .filter(|(_, facts)| facts.listens)
                .map(|(_, facts)| facts.clone())
                .collect();
            Some((own.clone(), listening_at(&listening, key.local)))
        })
    }

    /// For each address the namespaces that have it: addresses of containers are given again on other bridges.
    fn by_address(&self) -> BTreeMap<IpAddr, Vec<OsString>> {
        let mut found: BTreeMap<IpAddr, Vec<OsString>> = BTreeMap::new();
        for pid in self.one_of_each() {
            for address in addresses(&self.root.join(&pid).join("net")) {
                found.entry(address).or_default().push(pid.clone());
            }
        }
        found
    }

    /// A process of each namespace but our own.
    fn one_of_each(&self) -> Vec<OsString> {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return Vec::new();
        };
        let mut by_namespace: HashMap<PathBuf, OsString> = HashMap::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
            if !is_process || by_namespace.len() >= MOST_NAMESPACES {
                continue;
            }
            let Ok(namespace) = fs::read_link(entry.path().join("ns/net")) else {
                continue; // it ended, or may not be looked at
            };
            if self.own.as_ref().is_some_and(|own| *own != namespace) {
                by_namespace.entry(namespace).or_insert(name);
            }
        }
        by_namespace.into_values().collect()
    }
}

/// A namespace's own addresses that others can reach.
fn addresses(net: &Path) -> Vec<IpAddr> {
    let v4 = fs::read_to_string(net.join("fib_trie")).unwrap_or_default();
    let v6 = fs::read_to_string(net.join("if_inet6")).unwrap_or_default();
    let mut found: Vec<IpAddr> = local_v4(&v4).map(IpAddr::from).collect();
    found.extend(
        v6.lines()
            .filter_map(|line| address_v6(line.get(..32)?))
            .map(IpAddr::from),
    );
    found.retain(|address| !address.is_loopback());
    found.sort_unstable();
    found.dedup();
    found
}

/// The addresses behind which `fib_trie` says `host LOCAL`.
fn local_v4(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            last = leaf.parse().ok();
        }
        last.filter(|_| line.ends_with("host LOCAL"))
    })
}

/// Its TCP sockets, each with the remote end.
fn sockets(net: &Path) -> Vec<(SocketAddr, SocketFacts)> {
    let mut found = Vec::new();
    for name in ["tcp", "tcp6"] {
        let text = fs::read_to_string(net.join(name)).unwrap_or_default();
        let room = MOST_SOCKETS - found.len();
        found.extend(text.lines().skip(1).filter_map(socket).take(room));
    }
    found
}

/// A line of `net/tcp` or `net/tcp6`.
fn socket(line: &str) -> Option<(SocketAddr, SocketFacts)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (end(words.next()?)?, end(words.next()?)?);
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let mut rest = words.skip(3); // queues, timer, retransmissions
    let uid = rest.next()?.parse().ok()?;
    let facts = SocketFacts {
        listens: state == LISTEN,
        is_over: state == TIME_WAIT,
        is_closing: is_closing(state),
        local,
        inode: rest.nth(1)?.parse().ok()?,
        uid,
        cgroup_id: None,
    };
    Some((remote, facts))
}

/// An address and port in hexadecimal: 32-bit words of the address in the order of this machine.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|at| {
            Some(
                u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16)
                    .ok()?
                    .to_ne_bytes(),
            )
        })
        .collect::<Option<_>>()?;
    let ip = match words.as_slice() {
        [v4] => IpAddr::from(*v4),
        [_, _, _, _] => Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// 32 hexadecimal digits, in the order of the network.
fn address_v6(digits: &str) -> Option<Ipv6Addr> {
    u128::from_str_radix(digits, 16).ok().map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::symlink;

    use super::*;

    const TRIE: &str = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.9.0.0\n        /24 link UNICAST\n     |-- 10.9.0.7\n        \
                        /32 host LOCAL\n     |-- 10.9.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        \
                        /32 host LOCAL\n";
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                       0: 0700090A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 501 1 0\n   \
                       1: 0700090A:1F90 0800090A:9C40 01 00000000:00000000 02:00000A00 00000000    33        0 502 2 0\n   \
                       2: 0700090A:1F90 0800090A:9C41 03 00000000:00000000 01:00000064 00000000     0        0 0 1 0\n";

    /// A stand-in for /proc: this process is in one namespace, processes 7 and 8 in another.
    fn proc_with(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("namespaces-{name}-{}", std::process::id()));
        for (name, namespace) in [
            ("self", "net:[1]"),
            ("1", "net:[1]"),
            ("7", "net:[2]"),
            ("8", "net:[2]"),
        ] {
            fs::create_dir_all(root.join(name).join("ns")).expect("a folder");
            symlink(namespace, root.join(name).join("ns/net")).expect("a link");
            let net = root.join(name).join("net");
            fs::create_dir(&net).expect("a folder");
            fs::write(net.join("fib_trie"), TRIE).expect("written");
            fs::write(
                net.join("if_inet6"),
                "fe800000000000000000000000000001 02 40 20 80 eth0\n",
            )
            .expect("written");
            fs::write(net.join("tcp"), TCP).expect("written");
        }
        root
    }

    fn key(local: &str, remote: &str) -> Key {
        Key {
            local: local.parse().expect("an address"),
            remote: remote.parse().expect("an address"),
        }
    }

    #[test]
    fn a_connections_end_is_found_in_the_namespace_that_has_its_address() {
        let root = proc_with("found");
        let mut namespaces = Namespaces::new(&root);
        assert!(namespaces.refresh(Instant::now(), AGE));
        for (address, expected) in [
            ("10.9.0.7", true),
            ("fe80::1", true),
            ("10.9.0.8", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(
                namespaces.have(address.parse().expect("an address")),
                expected,
                "{address}"
            );
        }
        assert_eq!(namespaces.one_of_each().len(), 1, "two processes, one namespace");
        let mut tables = SocketTables::default();
        let mut inode_of = |local, remote| {
            let found = namespaces.find(&key(local, remote), &mut tables);
            found.map(|(facts, listeners)| (facts.inode, facts.listens, facts.uid, listeners.len()))
        };
        assert_eq!(inode_of("10.9.0.7:8080", "10.9.0.8:40000"), Some((502, false, 33, 1)));
        let not_accepted = inode_of("10.9.0.7:8080", "10.9.0.8:40001");
        assert_eq!(not_accepted, Some((0, false, 0, 1)), "with what listens for it");
        let of_another_host = inode_of("10.9.0.7:8080", "10.9.0.8:40002");
        assert_eq!(of_another_host, None, "though that port is listened at");
        assert_eq!(inode_of("10.9.0.7:8081", "10.9.0.8:40000"), None);
        assert_eq!(inode_of("10.9.0.8:8080", "10.9.0.8:40000"), None);
        fs::remove_dir_all(root).expect("made above");
    }

    #[test]
    fn namespaces_come_and_go() {
        let root = proc_with("gone");
        let mut namespaces = Namespaces::new(&root);
        let address = "10.9.0.7".parse().expect("an address");
        let now = Instant::now();
        assert!(namespaces.refresh(now, AGE) && namespaces.have(address));
        for pid in ["7", "8"] {
            fs::remove_dir_all(root.join(pid)).expect("removed");
        }
        assert!(!namespaces.refresh(now + AGE / 2, AGE), "the list is still young");
        assert!(namespaces.refresh(now + AGE, AGE) && !namespaces.have(address));
        assert!(namespaces.take_change() && !namespaces.take_change());
        fs::remove_dir_all(root).expect("made above");
    }

    #[test]
    fn the_kernels_own_lists_are_read() {
        for place in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(place).expect("loopback");
            let port = listener.local_addr().expect("bound").port();
            let host = if place.starts_with("[::1") {
                "[::1]"
            } else {
                "127.0.0.1"
            };
            let client = TcpStream::connect(format!("{host}:{port}")).expect("listening");
            let (local, remote) = (
                client.local_addr().expect("connected"),
                client.peer_addr().expect("connected"),
            );
            let all = sockets(Path::new("/proc/self/net"));
            assert!(
                all.iter().any(|(_, facts)| facts.listens && facts.local.port() == port),
                "{place}"
            );
            assert!(
                all.iter()
                    .any(|(other, facts)| *other == remote && facts.local == local),
                "{place}"
            );
        }
        assert!(
            addresses(Path::new("/proc/self/net"))
                .iter()
                .all(|address| !address.is_loopback())
        );
    }

    #[test]
    fn what_is_no_line_is_passed_by() {
        for line in [
            "",
            "0: x",
            "0: 0700090A:1F90 0800090A:9C40 01",
            "0: 07:1F90 0800090A:9C40 01 0 0 0 0 0 0",
        ] {
            assert!(socket(line).is_none(), "{line:?}");
        }
    }
}
