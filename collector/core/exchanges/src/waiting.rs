//! Which answer answers which request where messages follow each other without a gap (`Order::is_seamless`), however
//! many requests are under way: the oldest one that waits.
//!
//! By the server's clock, each request joins the queue of those that wait, and each answer takes the first one from it.
//! That is exact from a connection's beginning on, as long as no message is missing; and every missing one is noticed,
//! since each message says where the next one begins.
//!
//! # After a hole
//! Where messages are missing, it is unknown how many requests wait. They are counted again from where none waits:
//! ```text
//! requests          c₇           c₈  c₉           c₁₀
//! answers      a  a      a₇  │          a₈  a₉          a₁₀
//! waiting     -1 -2  -1  -2  │   -1  0  -1  -2    -1  -2     counted from 0: so two waited at the beginning,
//!              2  1   2   1  │    2  3   2   1     ...       or more
//! ```
//! 1. The number that waited at the beginning of the stretch, up to the next hole, is at least the one with which no
//!    answer comes before its request.
//! 2. With that number, a request that comes after a silence of [`IDLE_NS`] while none waits begins anew. So does the
//!    stretch, if its client never has two requests under way, [`TURNS`] times or more. Messages may be missing until the
//!    next one of their side, so one of each side on which some are missing must precede that request.
//! 3. Before that, requests of the stretch have no known answers. If only requests are missing, those that waited before
//!    the hole are answered first.
//!
//! If most messages find no partner, too much is missing, and the connection counts as not read.
//!
//! Limits: a slow command in a hole, answered after a longer silence, shifts the answers behind it up to the next silence,
//! if no answer too many shows it. So does a client that always keeps the same number of requests under way. Pairs from a
//! connection's beginning to its first hole are exact.

use std::collections::VecDeque;

use twintap_protocols::exchanges::flag;

use crate::UNSEEN;
use crate::heads::Head;
use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range};

/// While no request waits, nothing is sent for this long only if all are answered: clients that keep several requests
/// under way send the next one sooner.
const IDLE_NS: i64 = 1_000_000;
/// So often a client must have waited for each answer before its next request.
const TURNS: usize = 32;
/// Share (1/2) of requests, and of answers, that must have partners: behind a hole, one batch of requests and two of
/// answers may be without.
const LEAST_PAIRED: (usize, usize) = (1, 2);

/// The pairs of one connection, in buffers that are reused for the next.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    /// For each head the ordinal of its exchange, 0 if it belongs to none, or [`MORE`].
    pub ordinals: Vec<usize>,
    events: Vec<Event>,
    queue: VecDeque<usize>,
    /// Answers with a request, and answers to requests that are not known.
    paired_count: usize,
    strangers_count: usize,
    /// Ordinals of requests whose answers are not known, since messages are missing.
    pub unknown: Vec<usize>,
    /// An answer of the first request was seen, and others follow.
    is_batch_begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Their places among the heads.
    Request(usize),
    Answer(usize),
    /// Requests or answers are missing here.
    Hole {
        of_client: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Event {
    at_ns: i64,
    what: What,
}

/// What is missing before a stretch.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    requests: bool,
    answers: bool,
}

impl Missing {
    fn any(self) -> bool {
        self.requests || self.answers
    }
}

/// The ordinal of an answer that continues the one before it.
pub const MORE: usize = usize::MAX;
/// A place in a queue for a request that is not known.
const STRANGER: usize = usize::MAX;

impl Waiting {
    /// Pair the messages of a connection; false if too much is missing.
    ///
    /// Arguments: `heads` by direction and place, the server's first, with their times; `handshake`, whether the
    /// connection's beginning was captured.
    pub fn pair(&mut self, heads: &[Head], ranges: &ByDirection<Vec<Range>>, handshake: bool) -> bool {
        self.ordinals.clear();
        self.ordinals.resize(heads.len(), 0);
        self.queue.clear();
        self.unknown.clear();
        (self.paired_count, self.strangers_count) = (0, 0);
        self.collect_events(heads, ranges, handshake);
        let events = std::mem::take(&mut self.events);
        let (mut missing, mut from) = (Missing::all(!handshake), 0);
        while from < events.len() {
            if let What::Hole { of_client } = events[from].what {
                missing.requests |= of_client;
                missing.answers |= !of_client;
                from += 1;
                continue;
            }
            let is_hole = |event: &Event| matches!(event.what, What::Hole { .. });
            let len = events[from..].iter().position(is_hole).unwrap_or(events.len() - from);
            let is_certain = self.pair_stretch(&events[from..from + len], missing, heads);
            (missing, from) = (Missing::all(!is_certain), from + len);
        }
        self.events = events;
        self.is_enough(!ranges.server.is_empty())
    }

    /// Append parts for what belongs to no exchange, so that it lengthens no message: messages without an ordinal, and
    /// what follows a message without being one. They have the ordinal of the message before.
    pub fn mark_asides(&self, heads: &[Head], parts: &mut ByDirection<Vec<Part>>) {
        let mut ordinal = 0;
        for (place, head) in heads.iter().enumerate() {
            if place > 0 && heads[place - 1].from_client != head.from_client {
                ordinal = 0;
            }
            let parts = parts.of_mut(head.from_client);
            match self.ordinals[place] {
                MORE => {}
                0 if ordinal > 0 => parts.push(Part::new(head.offset, ordinal, Role::Aside)),
                own => ordinal = own,
            }
            let next = heads.get(place + 1).filter(|next| next.from_client == head.from_client);
            let is_followed = next.is_some_and(|next| next.offset <= head.end());
            if ordinal > 0 && head.end() != UNSEEN && !is_followed {
                parts.push(Part::new(head.end(), ordinal, Role::Aside));
            }
        }
    }

    /// All messages in the order of the server's clock, and the holes behind them.
    fn collect_events(&mut self, heads: &[Head], ranges: &ByDirection<Vec<Range>>, handshake: bool) {
        self.events.clear();
        let mut ordinal = 0;
        for (place, head) in heads.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &heads[before]);
            let before = before.filter(|before| before.from_client == head.from_client);
            let is_next = match before {
                Some(before) => before.end() == head.offset,
                None => !handshake || head.offset == 0,
            };
            let (at_ns, of_client) = (head.server_ns, head.from_client);
            let hole = What::Hole { of_client };
            if !is_next {
                let at_ns = before.map_or(UNSEEN, |before| before.server_ns);
                self.events.push(Event { at_ns, what: hole });
            }
            let what = match head.role() {
                Some(Role::Request) => {
                    ordinal += 1;
                    self.ordinals[place] = ordinal;
                    What::Request(place)
                }
                Some(Role::Response) => What::Answer(place),
                _ => continue,
            };
            let is_paired = head.flags() & (flag::NO_ANSWER | flag::UNASKED) == 0;
            self.events.extend(is_paired.then_some(Event { at_ns, what }));
            let is_last = heads.get(place + 1).is_none_or(|next| next.from_client != of_client);
            if is_last && reach(ranges.of(of_client)) > head.end() {
                self.events.push(Event { at_ns, what: hole });
            }
        }
        // Stable, so a hole stays behind the message before it. A request precedes an answer of the same time.
        let is_servers = |what| matches!(what, What::Answer(_) | What::Hole { of_client: false });
        self.events.sort_by_key(|event| (event.at_ns, is_servers(event.what)));
    }

    /// Pair the messages of a stretch, before which some may be missing; false if at its end it is not certain which
    /// requests wait.
    fn pair_stretch(&mut self, events: &[Event], missing: Missing, heads: &[Head]) -> bool {
        let is_batch = |place: usize| heads[place].flags() & flag::BATCH != 0;
        let begin = if missing.any() {
            Simulation::begin(events, missing, is_batch)
        } else {
            Some(0)
        };
        if missing.answers {
            self.forget_queue();
        }
        for (place, event) in events.iter().enumerate() {
            if missing.any() && Some(place) == begin {
                self.forget_queue();
            }
            let is_certain = begin.is_some_and(|begin| place >= begin);
            match event.what {
                What::Request(place) if is_certain => self.queue.push_back(place),
                What::Request(place) => {
                    self.unknown.push(self.ordinals[place]);
                    self.queue.push_back(STRANGER);
                }
                What::Answer(_) if self.queue.is_empty() && !is_certain => self.strangers_count += 1,
                What::Answer(place) => self.answer(place, is_batch),
                What::Hole { .. } => {}
            }
        }
        begin.is_some()
    }

    /// Those that wait have no known answers.
    fn forget_queue(&mut self) {
        let known = self.queue.drain(..).filter(|place| *place != STRANGER);
        self.unknown.extend(known.map(|place| self.ordinals[place]));
        self.is_batch_begun = false;
    }

    /// Give an answer to the request that waits longest.
    fn answer(&mut self, place: usize, is_batch: impl Fn(usize) -> bool) {
        match self.queue.front() {
            None => return, // nobody asked for it
            Some(&STRANGER) => self.strangers_count += 1,
            Some(&request) => {
                self.ordinals[place] = if self.is_batch_begun {
                    MORE
                } else {
                    self.ordinals[request]
                };
                self.is_batch_begun = is_batch(request) && !is_batch(place);
                if self.is_batch_begun {
                    return;
                }
                self.paired_count += 1;
            }
        }
        self.queue.pop_front();
    }

    /// Whether most messages have partners.
    fn is_enough(&self, has_answers: bool) -> bool {
        let (partners, all) = LEAST_PAIRED;
        let is_most = |others: usize| self.paired_count * all >= (self.paired_count + others) * partners;
        let is_silent = self.paired_count > 0 || !has_answers || self.queue.is_empty();
        is_silent && is_most(self.strangers_count) && is_most(self.unknown.len())
    }
}

impl Missing {
    fn all(is_all: bool) -> Self {
        Self {
            requests: is_all,
            answers: is_all,
        }
    }
}

/// How many requests wait in the course of a stretch.
#[derive(Clone, Debug, Default)]
struct Simulation {
    /// Of each request that waits, whether it is a batch.
    waiting: VecDeque<bool>,
    /// Answers that came while none waited.
    lack: usize,
    answers_count: usize,
    most: usize,
    /// The first request after a long silence while none waited.
    idle: Option<usize>,
}

impl Simulation {
    /// The event of a stretch from which on it is known which requests wait; none if it shows none.
    fn begin(events: &[Event], missing: Missing, is_batch: impl Fn(usize) -> bool + Copy) -> Option<usize> {
        let is_of = |what: What, of_client: bool| match what {
            What::Request(_) => of_client,
            What::Answer(_) => !of_client,
            What::Hole { .. } => false,
        };
        let first = |of_client: bool| events.iter().position(|event| is_of(event.what, of_client));
        let asked = if missing.requests { first(true)? + 1 } else { 0 };
        let answered = if missing.answers { first(false)? + 1 } else { 0 };
        let earliest = asked.max(answered);
        let lack = Self::default().run(events, 0, is_batch).lack;
        let from = Self {
            waiting: std::iter::repeat_n(false, lack).collect(),
            most: lack,
            ..Self::default()
        };
        let found = from.run(events, earliest, is_batch);
        let takes_turns = found.most <= 1 && found.answers_count >= TURNS;
        let is_request = |place: &usize| matches!(events[*place].what, What::Request(_));
        if takes_turns {
            (earliest..events.len()).find(is_request)
        } else {
            found.idle
        }
    }

    /// Arguments: `earliest`, the first event that may be the end of a silence that counts.
    fn run(mut self, events: &[Event], earliest: usize, is_batch: impl Fn(usize) -> bool) -> Self {
        let mut last_ns = UNSEEN;
        for (number, event) in events.iter().enumerate() {
            let is_silent = last_ns != UNSEEN && event.at_ns.saturating_sub(last_ns) >= IDLE_NS;
            let is_request = matches!(event.what, What::Request(_));
            if is_silent && is_request && number >= earliest && self.waiting.is_empty() {
                self.idle.get_or_insert(number);
            }
            last_ns = event.at_ns;
            match event.what {
                What::Request(place) => self.waiting.push_back(is_batch(place)),
                What::Answer(place) => match self.waiting.front() {
                    None => self.lack += 1,
                    Some(true) if !is_batch(place) => {}
                    Some(_) => {
                        self.waiting.pop_front();
                        self.answers_count += 1;
                    }
                },
                What::Hole { .. } => {}
            }
            self.most = self.most.max(self.waiting.len());
        }
        self
    }
}

/// Where the bytes of a direction end, as far as captured.
fn reach(ranges: &[Range]) -> i64 {
    ranges.iter().map(|range| range.end).max().unwrap_or(0)
}
