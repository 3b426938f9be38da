//! What the capture's thread and the one that looks for owners share: ends to look for, and those that are known.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::key::Key;
use super::look::Answer;
use super::{Evidence, Owner};

/// Ends that wait to be looked for; more are looked for when their packets come again.
const MOST_ASKED: usize = 16_384;
/// Ends that are known; the ones that were not needed for longest make room.
const MOST_KNOWN: usize = 65_536;
/// Ends that are known until the next statement makes room: about 20 MiB.
const MOST_BEGUN: usize = 2 * MOST_KNOWN;

/// An end to look for.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    pub key: Key,
    /// When it was seen.
    pub seen_ns: u64,
    /// The packet opened the connection: what is known of these ports from before is of another one.
    pub is_syn: bool,
}

/// An end that was looked for.
#[derive(Debug, Clone)]
pub struct KnownEnd {
    /// `None` while nothing was found.
    pub owner: Option<Owner>,
    pub seen_ns: u64,
    /// Of the socket whose holder was found, else 0.
    pub inode: u64,
    /// Its process was not found for want of a right, which no statement has counted yet.
    pub is_unreadable: bool,
    /// No more looks come.
    pub is_settled: bool,
    /// The statement in which it was last needed.
    pub needed_at: u64,
}

impl KnownEnd {
    pub fn new(seen_ns: u64) -> Self {
        KnownEnd {
            owner: None,
            seen_ns,
            inode: 0,
            is_unreadable: false,
            is_settled: false,
            needed_at: 0,
        }
    }

    /// Whether the holder of this socket was found.
    pub fn has_process_of(&self, inode: u64) -> bool {
        inode > 0 && self.inode == inode
    }
}

#[derive(Debug)]
pub struct Board {
    state: Mutex<State>,
    has_inside: AtomicBool,
    /// Readable while there is something new for the thread that looks.
    news: EventFd,
}

#[derive(Debug, Default)]
pub struct State {
    pub questions: Vec<Question>,
    pub known: HashMap<Key, KnownEnd>,
    pub statement: u64,
    /// Ends that were not looked for, for want of room, which no statement has counted yet.
    pub left_out_count: u64,
    pub ends: bool,
    /// The captured interfaces, if they have changed.
    pub interfaces: Option<Vec<String>>,
    /// Addresses of this host's other network namespaces.
    inside: HashSet<IpAddr>,
}

impl Board {
    /// `None` if the kernel has no descriptor for it.
    pub fn open() -> Option<Self> {
        let news = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).ok()?;
        Some(Board {
            state: Mutex::default(),
            has_inside: AtomicBool::default(),
            news,
        })
    }

    /// A descriptor that is readable while there is something new.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Nothing is new from now on, until something comes.
    pub fn note_read(&self) {
        let _ = self.news.read(); // it fails if there was nothing
    }

    fn announce(&self) {
        let _ = self.news.write(1); // it fails at 2^64 - 1 unread ones, and is readable then
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the addresses of other network namespaces.
    pub fn note_inside(&self, addresses: HashSet<IpAddr>) {
        self.has_inside.store(!addresses.is_empty(), Ordering::Relaxed);
        self.state().inside = addresses;
    }

    /// Whether an address is one of another network namespace of this host.
    pub fn is_inside(&self, address: IpAddr) -> bool {
        self.has_inside.load(Ordering::Relaxed) && self.state().inside.contains(&address)
    }

    /// Adds questions.
    pub fn ask(&self, questions: &mut Vec<Question>) {
        let mut state = self.state();
        let room = MOST_ASKED.saturating_sub(state.questions.len());
        state.left_out_count += questions.len().saturating_sub(room) as u64;
        questions.truncate(room);
        state.questions.append(questions);
        drop(state);
        self.announce();
    }

    /// From now on these interfaces are captured.
    pub fn set_interfaces(&self, names: Vec<String>) {
        self.state().interfaces = Some(names);
        self.announce();
    }

    /// Has the thread that looks end.
    pub fn end(&self) {
        self.state().ends = true;
        self.announce();
    }
}

impl State {
    /// Takes a question; whether it is a new one for which there is room.
    pub fn begin(&mut self, question: &Question) -> bool {
        let (statement, is_full) = (self.statement, self.known.len() >= MOST_BEGUN);
        let is_later = |known: &KnownEnd| question.is_syn && known.seen_ns < question.seen_ns;
        match self.known.get_mut(&question.key) {
            Some(known) if !is_later(known) => return false,
            Some(known) => *known = KnownEnd::new(question.seen_ns),
            None if is_full => {
                self.left_out_count += 1;
                return false;
            }
            None => drop(self.known.insert(question.key, KnownEnd::new(question.seen_ns))),
        }
        if let Some(known) = self.known.get_mut(&question.key) {
            known.needed_at = statement;
        }
        true
    }

    /// Notes what a look found; whether the end is still of interest.
    ///
    /// What the connection's own socket showed is not replaced by what the listening one shows.
    pub fn note(&mut self, key: &Key, answer: &Answer, is_settled: bool) -> bool {
        let Some(known) = self.known.get_mut(key) else {
            return false;
        };
        known.is_settled |= is_settled;
        known.is_unreadable |= answer.is_unreadable;
        known.inode = if answer.inode > 0 { answer.inode } else { known.inode };
        let before = known.owner.as_ref();
        let had_socket = before.is_some_and(|owner| owner.evidence == Evidence::Socket);
        let had_process = before.is_some_and(|owner| owner.holder.process.is_some());
        if let Some((holder, evidence)) = &answer.found {
            let is_better = match evidence {
                Evidence::Socket => holder.process.is_some() || !had_process,
                Evidence::Listener => !had_socket,
            };
            if is_better {
                known.owner = Some(Owner {
                    holder: holder.clone(),
                    evidence: *evidence,
                    seen_ns: known.seen_ns,
                });
                known.is_unreadable &= holder.process.is_none();
            }
        }
        true
    }

    /// Makes room for ends that are needed.
    pub fn trim(&mut self) {
        if self.known.len() <= MOST_KNOWN {
            return;
        }
        let mut needed: Vec<u64> = self.known.values().map(|known| known.needed_at).collect();
        let (_, middle, _) = needed.select_nth_unstable(MOST_KNOWN / 2);
        let oldest = *middle;
        self.known.retain(|_, known| known.needed_at > oldest);
    }
}
