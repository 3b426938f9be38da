//! The thread that looks for owners, and what the capture's thread has of it.
//!
//! An end is looked for several times: at its SYN (a client's socket exists then), just after (a server's is accepted),
//! and later, since a server may give an accepted socket to another process. Work is bounded by [`Budget`]: with more
//! connections than that allows, ends are looked for later, and some sockets are closed by then.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use nix::poll::{PollFd, PollFlags, poll};
use nix::time::{ClockId, clock_gettime};

use super::board::{Board, Question};
use super::budget::{Budget, PARTS};
use super::key::{Ends, Key};
use super::look::Looker;
use super::statement::comments;
use super::syn_tap::SynTap;
use crate::pcapng::{Direction, LinkType};
use crate::segments::Now;

/// When an end is looked for, since the look before.
const DELAYS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(2),
    Duration::from_millis(30),
    Duration::from_millis(300),
    Duration::from_millis(1_700),
];
/// Looks after which a connection's socket is there, if this host has it.
const SURELY_THERE: usize = 2;
/// The longest sleep while nothing comes.
const IDLE_MS: u16 = 500;
/// The sleep while the budget is spent, or an interface is down.
const PAUSE_MS: u16 = 20;
/// Ends in one batch.
const BATCH_LEN: usize = 256;
/// Statements that wait for an end's owner.
const LONGEST_CARRY: u8 = 10;
/// Ends of one segment, ends carried to the next ones, and ends that wait for one of their looks: 5 MiB each. More are
/// counted.
const MOST_ENDS: usize = 1 << 16;
/// Directions of connections that are recognised without a look into a table.
const SLOTS: usize = 1 << 14;

/// The owners of a capture's connections, for its thread.
pub struct Owners {
    board: Arc<Board>,
    /// Connections of less depth are not kept, so their owners are not looked for.
    least_depth: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
    hasher: RandomState,
    /// Of packets of this segment.
    slots: Box<[u32]>,
    generation: u32,
    ends: HashSet<Key, RandomState>,
    /// Ends of earlier segments that are not settled, and for how many statements.
    carried: HashMap<Key, u8, RandomState>,
    questions: Vec<Question>,
    unreadable_count: u64,
    /// Ends for which there was no room, since the last statement.
    left_out_count: u64,
}

impl Owners {
    /// Starts the thread; `None` if this kernel answers no questions about sockets. It takes one part of a processor in
    /// `parts`, or in 50 if that is less.
    pub fn start(interfaces: &[String], parts: u32) -> Option<Self> {
        let board = Arc::new(Board::open()?);
        let looker = Looker::open()?;
        let least_depth = Arc::new(AtomicU8::new(0));
        let taps = interfaces.iter().filter_map(|name| SynTap::open(name).ok()).collect();
        let mut run = Run {
            board: Arc::clone(&board),
            taps,
            least_depth: Arc::clone(&least_depth),
            looker,
            budget: Budget::new(Instant::now(), parts.max(PARTS)),
            due: Default::default(),
        };
        let thread = thread::Builder::new()
            .name("owners".into())
            .spawn(move || run.drive())
            .ok()?;
        Some(Owners {
            board,
            least_depth,
            thread: Some(thread),
            hasher: RandomState::default(),
            slots: vec![0; SLOTS].into_boxed_slice(),
            generation: 1,
            ends: HashSet::default(),
            carried: HashMap::default(),
            questions: Vec::new(),
            unreadable_count: 0,
            left_out_count: 0,
        })
    }

    /// Looks from now on for no owners of connections of less depth ([`crate::sampling`]).
    pub fn keep(&self, depth: u8) {
        self.least_depth.store(depth, Ordering::Relaxed);
    }

    /// Notes a packet that is written.
    #[inline]
    pub fn note(&mut self, link_type: LinkType, frame: &[u8], direction: Direction, is_loopback: bool, host_ns: u64) {
        let Some(ends) = Ends::of(link_type, frame) else {
            return;
        };
        let hash = self.hasher.hash_one(ends.bytes());
        let slot = &mut self.slots[hash as usize % SLOTS];
        let tag = (hash >> 32) as u32 ^ self.generation;
        if *slot != tag || ends.is_syn {
            *slot = tag;
            self.note_ends(&ends, direction, is_loopback, host_ns);
        }
    }

    #[cold]
    fn note_ends(&mut self, ends: &Ends<'_>, direction: Direction, is_loopback: bool, host_ns: u64) {
        let Some(sender) = ends.sender() else {
            return;
        };
        let receiver = sender.other_end();
        let inside = |key: &Key| self.board.is_inside(key.local.ip());
        let of_sender = (is_loopback || direction == Direction::Send || inside(&sender)).then_some(sender);
        let of_receiver = (direction == Direction::Receive || inside(&receiver)).then_some(receiver);
        for key in of_sender.into_iter().chain(of_receiver) {
            if self.ends.len() >= MOST_ENDS && !self.ends.contains(&key) {
                self.left_out_count += 1;
            } else if self.ends.insert(key) || ends.is_syn {
                self.questions.push(Question {
                    key,
                    seen_ns: host_ns,
                    is_syn: ends.is_syn,
                });
            }
        }
    }

    /// From now on these interfaces are captured.
    pub fn set_interfaces(&mut self, names: Vec<String>) {
        self.board.set_interfaces(names);
    }

    /// Has the ends of packets noted so far looked for.
    pub fn ask(&mut self) {
        if !self.questions.is_empty() {
            self.board.ask(&mut self.questions);
            self.questions.clear();
        }
    }

    /// The comments for the segment that is closed now: the owners of the connections that have packets in it, and those
    /// that became known too late for the segments before.
    pub fn statement(&mut self, stamp: impl Fn(u64) -> u64) -> Vec<String> {
        let ends = std::mem::take(&mut self.ends);
        self.generation = self.generation.wrapping_mul(0x9E37_79B9) | 1;
        let waiting = std::mem::take(&mut self.carried);
        let mut state = self.board.state();
        state.statement += 1;
        let number = state.statement;
        let mut found = Vec::new();
        let mut unreadable_count = 0;
        let fresh = ends.iter().map(|key| (*key, 0));
        let later = waiting.into_iter().filter(|(key, _)| !ends.contains(key));
        for (key, waited) in fresh.chain(later) {
            let known = state.known.get_mut(&key);
            let is_settled = known.as_ref().is_some_and(|known| known.is_settled);
            if let Some(known) = known {
                known.needed_at = number;
                if is_settled {
                    unreadable_count += u64::from(std::mem::take(&mut known.is_unreadable));
                }
                found.extend(known.owner.clone().map(|owner| (key, owner)));
            }
            if !is_settled && waited < LONGEST_CARRY && self.carried.len() < MOST_ENDS {
                self.carried.insert(key, waited + 1);
            }
        }
        state.trim();
        let left_out_count = std::mem::take(&mut self.left_out_count) + std::mem::take(&mut state.left_out_count);
        drop(state);
        found.sort_unstable_by_key(|(key, _)| (key.local, key.remote));
        self.unreadable_count += unreadable_count;
        comments(&found, unreadable_count, left_out_count, stamp)
    }

    /// Ends so far whose process was not found for want of a right.
    pub fn unreadable_count(&self) -> u64 {
        self.unreadable_count
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.board.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was already printed
        }
    }
}

/// What the thread owns.
struct Run {
    board: Arc<Board>,
    taps: Vec<SynTap>,
    least_depth: Arc<AtomicU8>,
    looker: Looker,
    budget: Budget,
    /// Ends by the number of looks so far, in the order of time.
    due: [VecDeque<(Instant, Key)>; DELAYS.len()],
}

impl Run {
    fn drive(&mut self) {
        loop {
            let allowed = self.budget.allows(Instant::now());
            self.sleep(allowed);
            if self.board.state().ends {
                return;
            }
            if !allowed {
                continue;
            }
            let begin = processor_time();
            self.follow_interfaces();
            if let Some(addresses) = self.looker.refresh(Instant::now()) {
                self.board.note_inside(addresses);
            }
            self.take_questions();
            let batch = self.next_batch(Instant::now());
            if !batch.is_empty() {
                self.look(&batch);
            }
            self.budget.spend(processor_time().saturating_sub(begin));
        }
    }

    /// Sleeps until a SYN or a question comes, or a look is due; while the budget is spent, whatever comes.
    fn sleep(&self, allowed: bool) {
        if !allowed {
            thread::sleep(Duration::from_millis(u64::from(PAUSE_MS)));
            return;
        }
        let mut polled: Vec<PollFd> = self
            .taps
            .iter()
            .map(|tap| tap.fd())
            .chain([self.board.news()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let failing = poll(&mut polled, self.longest_sleep_ms(Instant::now())).is_err()
            || polled
                .iter()
                .any(|fd| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLERR)));
        if failing {
            thread::sleep(Duration::from_millis(u64::from(PAUSE_MS))); // an interface that is down
        }
        self.board.note_read();
    }

    /// Until the next look is due.
    fn longest_sleep_ms(&self, now: Instant) -> u16 {
        let next = self.due.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due);
        next.min().map_or(IDLE_MS, |due| {
            let wait_ms = due.saturating_duration_since(now).as_millis() as u16;
            (wait_ms + u16::from(due > now)).min(IDLE_MS)
        })
    }

    fn follow_interfaces(&mut self) {
        let Some(names) = self.board.state().interfaces.take() else {
            return;
        };
        self.taps.retain(|tap| tap.is_one_of(&names));
        for name in names {
            if !self.taps.iter().any(|tap| tap.name() == name) {
                self.taps.extend(SynTap::open(&name).ok());
            }
        }
    }

    fn take_questions(&mut self) {
        let now = Now::read();
        let depth = self.least_depth.load(Ordering::Relaxed);
        let mut questions = Vec::new();
        for tap in &self.taps {
            for _ in 0..BATCH_LEN {
                let Some(sender) = tap.next(depth) else {
                    break;
                };
                let of_this_host = self.looker.ends_here(sender, now.instant);
                questions.extend(of_this_host.into_iter().map(|key| Question {
                    key,
                    seen_ns: now.host_ns,
                    is_syn: true,
                }));
            }
        }
        let mut state = self.board.state();
        questions.append(&mut state.questions);
        for question in questions {
            if self.due[0].len() >= MOST_ENDS {
                state.left_out_count += 1;
            } else if state.begin(&question) {
                self.due[0].push_back((now.instant, question.key));
            }
        }
    }

    /// Ends that are due, with the number of looks so far.
    fn next_batch(&mut self, now: Instant) -> Vec<(Key, usize)> {
        let mut batch = Vec::new();
        for (looks_count, queue) in self.due.iter_mut().enumerate() {
            while batch.len() < BATCH_LEN && queue.front().is_some_and(|(due, _)| *due <= now) {
                batch.extend(queue.pop_front().map(|(_, key)| (key, looks_count)));
            }
        }
        batch
    }

    fn look(&mut self, batch: &[(Key, usize)]) {
        let last = DELAYS.len() - 1;
        let known: Vec<_> = {
            let state = self.board.state();
            let of = |(key, looks_count): &(Key, usize)| {
                state
                    .known
                    .get(key)
                    .map(|known| (*key, known.clone(), *looks_count == last))
            };
            batch.iter().map(of).collect()
        };
        let answers = self.looker.look(&known.into_iter().flatten().collect::<Vec<_>>());
        let now = Instant::now();
        let mut state = self.board.state();
        for (key, looks_count) in batch {
            let Some(answer) = answers.get(key) else {
                continue;
            };
            // One that its server has not accepted yet is looked for until it is.
            let next = if answer.is_waiting {
                (looks_count + 1).min(last)
            } else {
                looks_count + 1
            };
            // The kernel may see a SYN after its tap does, so a server's socket is there a moment later.
            let is_settled = answer.is_gone && next > SURELY_THERE || next > last;
            if state.note(key, answer, is_settled) && !is_settled && self.due[next].len() < MOST_ENDS {
                self.due[next].push_back((now + DELAYS[next], *key));
            }
        }
    }
}

/// What this thread has used of processors.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
