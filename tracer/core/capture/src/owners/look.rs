//! One look for the owners of a batch of ends: what the kernel says of their sockets, and who holds these.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::board::KnownEnd;
use super::cgroup_tree::CgroupTree;
use super::cgroups::place_of;
use super::key::Key;
use super::namespaces::{AGE, AGE_OF_STRANGERS, Namespaces, SocketTables};
use super::processes::{Holders, Processes};
use super::sock_diag::{SockDiag, SocketFacts};
use super::{Evidence, Holder};
use crate::capture::interface_addresses;

/// How long the list of listening sockets, and that of own addresses, is used.
const LISTENERS_AGE: Duration = Duration::from_secs(1);
const ADDRESSES_AGE: Duration = Duration::from_secs(2);
/// Connections that the kernel's translation of addresses follows, in this network namespace.
const TRANSLATED: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

const SETTINGS: &str = "/proc/sys/net/core";

/// What a look found of an end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub found: Option<(Arc<Holder>, Evidence)>,
    pub inode: u64,
    /// There is no such socket any more.
    pub is_gone: bool,
    /// Its server has not accepted it yet.
    pub is_waiting: bool,
    pub is_unreadable: bool,
}

/// A list that is made anew when it is too old.
struct TimedList<T> {
    value: T,
    made: Option<Instant>,
}

impl<T> TimedList<T> {
    fn new(value: T) -> Self {
        TimedList { value, made: None }
    }

    fn fresh(&mut self, now: Instant, age: Duration, make: impl FnOnce() -> T) -> &T {
        if self.made.is_none_or(|made| now.saturating_duration_since(made) >= age) {
            self.value = make();
            self.made = Some(now);
        }
        &self.value
    }
}

/// Asks the kernel.
pub struct Looker {
    diag: SockDiag,
    processes: Processes,
    cgroups: CgroupTree,
    listeners: TimedList<Vec<SocketFacts>>,
    addresses: TimedList<HashSet<IpAddr>>,
    namespaces: Namespaces,
}

/// Where an end's owner is to be looked for.
struct Place {
    /// Its own socket, if a process has it.
    socket: Option<SocketFacts>,
    /// The sockets that listen at its port.
    listeners: Vec<SocketFacts>,
    is_waiting: bool,
    /// It is in another network namespace, whose users may have other names.
    is_inside: bool,
}

impl Looker {
    /// `None` if this kernel answers no such questions.
    pub fn open() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Some(Looker {
            diag: SockDiag::open().ok()?,
            processes: Processes::new(Path::new("/proc")),
            cgroups: CgroupTree::new(&mounts),
            listeners: TimedList::new(Vec::new()),
            addresses: TimedList::new(HashSet::new()),
            namespaces: Namespaces::new(Path::new("/proc")),
        })
    }

    /// Looks for other network namespaces, if that is due; their addresses if these are others than before.
    pub fn refresh(&mut self, now: Instant) -> Option<HashSet<IpAddr>> {
        self.namespaces.refresh(now, AGE);
        let is_changed = self.namespaces.take_change();
        is_changed.then(|| self.namespaces.addresses().collect())
    }

    /// Which of a connection's two ends are on this host, in whatever network namespace.
    pub fn ends_here(&mut self, sender: Key, now: Instant) -> Vec<Key> {
        let both = [sender, sender.other_end()];
        let found: Vec<Key> = both.into_iter().filter(|key| self.is_here(key, now)).collect();
        if found.is_empty() && self.namespaces.refresh(now, AGE_OF_STRANGERS) {
            return both.into_iter().filter(|key| self.is_here(key, now)).collect();
        }
        found
    }

    fn is_here(&mut self, key: &Key, now: Instant) -> bool {
        self.is_own(key, now) || self.namespaces.have(key.local.ip())
    }

    /// Whether the local address is this host's.
    pub fn is_own(&mut self, key: &Key, now: Instant) -> bool {
        let make = || interface_addresses().into_iter().map(|(_, address)| address).collect();
        key.local.ip().is_loopback() || self.addresses.fresh(now, ADDRESSES_AGE, make).contains(&key.local.ip())
    }

    /// Looks for the owners of these ends, each with what is known of it, and whether this is its last look.
    pub fn look(&mut self, ends: &[(Key, KnownEnd, bool)]) -> HashMap<Key, Answer> {
        let mut asks_all = false;
        let mut places = Vec::new();
        let mut answers = HashMap::new();
        let mut tables = SocketTables::default();
        for (key, known, is_last) in ends {
            match self.place(key, &mut tables) {
                Some(place) if known.has_process_of(place.inode()) && (!is_last || place.is_closing()) => {
                    answers.insert(*key, Answer::default());
                }
                Some(place) => {
                    asks_all |= *is_last && place.socket.is_some();
                    places.push((*key, place));
                }
                None => {
                    let answer = Answer {
                        is_gone: true,
                        ..Answer::default()
                    };
                    answers.insert(*key, answer);
                }
            }
        }
        let holders = self.holders(&places, asks_all);
        for (key, place) in places {
            let answer = self.answer(&place, &holders);
            answers.insert(key, answer);
        }
        answers
    }

    fn place(&mut self, key: &Key, tables: &mut SocketTables) -> Option<Place> {
        let now = Instant::now();
        if self.namespaces.have(key.local.ip()) && !self.is_own(key, now) {
            let (facts, listeners) = self.namespaces.find(key, tables)?;
            return Some(Place::new(facts, listeners, true));
        }
        let facts = self.diag.find(key)?;
        // A socket that listens proves nothing where addresses are translated: the connection may go on elsewhere.
        if facts.listens && (is_translating() || !self.is_own(key, now)) {
            return None;
        }
        let diag = &mut self.diag;
        let all = self.listeners.fresh(now, LISTENERS_AGE, || diag.listeners());
        Some(Place::new(facts, listening_at(all, key.local), false))
    }

    /// Who holds the sockets of these places; all processes are asked if some socket's is not found.
    fn holders(&mut self, places: &[(Key, Place)], asks_all: bool) -> HashMap<u64, Holders> {
        let wanted: HashSet<u64> = places.iter().flat_map(|(_, place)| place.inodes()).collect();
        if wanted.is_empty() {
            return HashMap::new();
        }
        let mut found = self.processes.holders(&wanted, asks_all);
        let missing: HashSet<u64> = wanted
            .into_iter()
            .filter(|inode| found[inode].pids.is_empty())
            .collect();
        if !asks_all && !missing.is_empty() {
            found.extend(self.processes.holders(&missing, true));
        }
        found
    }

    fn answer(&mut self, place: &Place, holders: &HashMap<u64, Holders>) -> Answer {
        let (own, own_unreadable) = self.common_holder(place.socket.as_slice(), holders);
        if let Some(holder) = own {
            return Answer {
                found: Some((holder, Evidence::Socket)),
                inode: place.inode(),
                ..Answer::default()
            };
        }
        let (listening, unreadable) = self.common_holder(&place.listeners, holders);
        // Where one socket's holder is not known, the connection may be its.
        let by_listener = listening
            .filter(|_| !unreadable)
            .map(|holder| (holder, Evidence::Listener));
        let by_socket = || {
            place
                .socket
                .as_ref()
                .map(|facts| (self.by_socket(facts, place.is_inside), Evidence::Socket))
        };
        Answer {
            found: by_listener.or_else(by_socket),
            is_unreadable: own_unreadable || unreadable,
            is_waiting: place.is_waiting,
            ..Answer::default()
        }
    }

    /// What the holders of these sockets have in common, and whether some may not be seen.
    fn common_holder(
        &mut self,
        sockets: &[SocketFacts],
        holders: &HashMap<u64, Holders>,
    ) -> (Option<Arc<Holder>>, bool) {
        let of_sockets: Vec<&Holders> = sockets.iter().filter_map(|facts| holders.get(&facts.inode)).collect();
        let pids = of_sockets.iter().flat_map(|each| &each.pids);
        let facts = pids.filter_map(|pid| self.processes.holder(*pid));
        let common = facts.reduce(|one, other| Arc::new(Arc::unwrap_or_clone(one).common(&other)));
        (common, of_sockets.iter().any(|each| each.is_unreadable))
    }

    /// What the kernel itself knows of a socket whose process was not found.
    fn by_socket(&mut self, facts: &SocketFacts, is_inside: bool) -> Arc<Holder> {
        let path = facts.cgroup_id.and_then(|id| self.cgroups.path(id, Instant::now()));
        let place = path.map(place_of).unwrap_or_default();
        let is_inside = is_inside || place.container.is_some();
        Arc::new(Holder {
            uid: Some(facts.uid),
            user: if is_inside {
                None
            } else {
                self.processes.user(facts.uid)
            },
            unit: place.unit,
            container: place.container,
            pod_uid: place.pod_uid,
            ..Holder::default()
        })
    }
}

impl Place {
    fn new(facts: SocketFacts, listeners: Vec<SocketFacts>, is_inside: bool) -> Self {
        Place {
            listeners,
            is_waiting: !facts.listens && !facts.is_over && facts.inode == 0,
            socket: Some(facts).filter(|facts| !facts.listens && facts.inode > 0),
            is_inside,
        }
    }

    /// Whether its own socket is one of a connection that an end has closed.
    fn is_closing(&self) -> bool {
        self.socket.as_ref().is_some_and(|facts| facts.is_closing)
    }

    /// Of its own socket; 0 if there is none.
    fn inode(&self) -> u64 {
        self.socket.as_ref().map_or(0, |facts| facts.inode)
    }

    fn inodes(&self) -> impl Iterator<Item = u64> {
        self.socket.iter().chain(&self.listeners).map(|facts| facts.inode)
    }
}

/// Whether the kernel translates addresses here, or may.
fn is_translating() -> bool {
    match fs::read_to_string(TRANSLATED) {
        Ok(count) => count.trim() != "0",
        // A service may not see /proc/sys at all, and then nothing is known.
        Err(_) => !Path::new(SETTINGS).exists(),
    }
}

/// The sockets that take connections to an address and port: those of this address, else those of any.
pub fn listening_at(all: &[SocketFacts], local: SocketAddr) -> Vec<SocketFacts> {
    let at = |address: IpAddr| -> Vec<SocketFacts> {
        let is_there = |facts: &&SocketFacts| facts.local.port() == local.port() && facts.local.ip() == address;
        all.iter().filter(is_there).cloned().collect()
    };
    let any_v6 = IpAddr::from([0_u16; 8]);
    let places = match local.ip() {
        IpAddr::V4(v4) => vec![v4.into(), v4.to_ipv6_mapped().into(), IpAddr::from([0_u8; 4]), any_v6],
        IpAddr::V6(v6) => vec![v6.into(), any_v6],
    };
    places
        .into_iter()
        .map(at)
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn listener(local: &str, inode: u64) -> SocketFacts {
        SocketFacts {
            listens: true,
            local: local.parse().expect("an address"),
            is_over: false,
            is_closing: false,
            inode,
            uid: 0,
            cgroup_id: None,
        }
    }

    #[test]
    fn the_most_special_address_that_listens_counts() {
        let all = [
            listener("0.0.0.0:80", 1),
            listener("10.0.0.1:80", 2),
            listener("[::]:80", 3),
            listener("[::]:81", 4),
            listener("0.0.0.0:82", 5),
            listener("0.0.0.0:82", 6),
        ];
        let cases: [(&str, &[u64]); 6] = [
            ("10.0.0.1:80", &[2]),
            ("10.0.0.2:80", &[1]),
            ("[2001:db8::1]:80", &[3]),
            ("10.0.0.1:81", &[4]),
            ("10.0.0.1:82", &[5, 6]),
            ("[2001:db8::1]:82", &[]),
        ];
        for (local, expected) in cases {
            let found = listening_at(&all, local.parse().expect("an address"));
            assert_eq!(
                found.iter().map(|facts| facts.inode).collect::<Vec<_>>(),
                expected,
                "{local}"
            );
        }
    }

    #[test]
    fn both_ends_of_a_connection_of_this_process_are_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let key = Key {
            local: client.local_addr().expect("connected"),
            remote: client.peer_addr().expect("connected"),
        };
        let known = KnownEnd::new(0);
        let mut looker = Looker::open().expect("sock_diag");
        let ends = [(key, known.clone(), false), (key.other_end(), known.clone(), false)];
        let answers = looker.look(&ends);
        let of = |key: &Key| {
            answers[key]
                .found
                .as_ref()
                .map(|(holder, evidence)| (holder.pid, *evidence))
        };
        let own = Some(std::process::id());
        assert_eq!(of(&key), Some((own, Evidence::Socket)));
        assert_eq!(
            of(&key.other_end()),
            Some((own, Evidence::Listener)),
            "not accepted yet"
        );
        let (server, _) = listener.accept().expect("connected");
        let answers = looker.look(&[(key.other_end(), known.clone(), true)]);
        let found = answers[&key.other_end()].found.as_ref();
        assert_eq!(
            found.map(|(holder, evidence)| (holder.pid, *evidence)),
            Some((own, Evidence::Socket))
        );
        drop((client, server, listener));
        let answers = looker.look(&[(key, known, true)]);
        assert_eq!(answers[&key].found, None);
    }
}
