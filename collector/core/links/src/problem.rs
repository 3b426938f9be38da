//! The assignment problem: calls of one kind, slots of the requests that may have made them, and which pairs are
//! possible.
//!
//! A request that makes n such calls in the mean has ceil(n) *slots*; links fill slots with calls. In the order of
//! arrival slots are sorted by arrival and calls by start; in the order of answers both by the times of answers,
//! backward, so that one alignment solves both.
//!
//! Invariants: a slot takes one call; a call and a slot are a possible pair if the request was open from the call's
//! start until it was sent.

use std::ops::Range;

use crate::UNSEEN;
use crate::alignment::{Band, align};
use crate::dialogues::Call;
use crate::directional::DirectionalDelays;
use crate::evidence::{Evidence, Pair, QueuedSides, Sample};
use crate::initial_sizes::Sizes;
use crate::target_words::{Table, Words, is_rare_word, shared_pattern};
use crate::tuning::TUNING;

/// Calls of a kind for each request of each class, in the mean, and the share of calls that have no parent.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    pub rates: Vec<(u16, f64)>,
    pub orphan_share: f64,
}

impl Guess {
    /// The same classes, scaled so that they make nearly all calls.
    pub fn with_all_linked(&self) -> Guess {
        let more = (1.0 - TUNING.assumed_orphan_share) / (1.0 - self.orphan_share).max(TUNING.assumed_orphan_share);
        Guess {
            rates: self.rates.iter().map(|&(class, rate)| (class, rate * more)).collect(),
            orphan_share: TUNING.assumed_orphan_share,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Slot {
    pub parent: u32,
    /// Place of the request's class in `Guess::rates`. Repeated calls, which only some of its requests make, are
    /// classes of their own behind all others.
    pub class: u32,
    /// A slot for such a repeated call.
    pub is_repeat: bool,
    pub arrival_ns: i64,
    pub response_ns: i64,
    pub close_ns: i64,
    /// When the previous response to another request left.
    pub previous_ns: i64,
    pub request_bytes: i64,
    pub response_bytes: i64,
    pub words: Words,
    /// Logarithms of the probabilities that it is filled, and empty.
    pub log_filled: f32,
    pub log_empty: f32,
}

#[derive(Clone, Debug)]
pub struct Child {
    pub call: u32,
    pub start_ns: i64,
    pub sent_ns: i64,
    pub answered_ns: i64,
    /// When the previous call of another request left.
    pub previous_ns: i64,
    pub request_bytes: i64,
    pub response_bytes: i64,
    pub words: Words,
    pub is_cut: bool,
}

impl Slot {
    /// Whether the request was open from the call's start until its first byte was sent.
    #[inline]
    pub fn was_open(&self, child: &Child) -> bool {
        self.arrival_ns <= child.start_ns && child.sent_ns <= self.close_ns
    }
}

/// The order that links keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Calls leave in the order in which their requests arrived.
    ByArrival,
    /// Responses leave in the order in which the answers to their calls arrived. Solved like `ByArrival`, with time
    /// reversed.
    ByAnswer,
}

/// Slots in the order of causes, calls in the order of actions, and the range of slots that are possible for each call.
pub struct Problem {
    pub slots: Vec<Slot>,
    pub children: Vec<Child>,
    pub band: Band,
    empty: Vec<f32>,
    pub orphan_log: f32,
    pub classes: usize,
    /// Scores of shared words before any link is made.
    word_scores: Option<Table>,
    /// Scores of byte counts before any link is made.
    size_scores: Option<Sizes>,
    /// For how long requests make calls after their responses; 0 if they make none.
    pub linger_ns: i64,
}

/// The slot of each call of the problem, or `NO_SLOT`.
pub type SlotByCall = Vec<u32>;
pub use crate::alignment::NO_SLOT;

impl Problem {
    /// `parents` by arrival, `children` by start; numbers of `calls`. Calls that started outside of `seen` are not
    /// among them.
    pub fn new(
        calls: &[Call],
        class: &[u16],
        parents: &[u32],
        children: &[u32],
        guess: &Guess,
        order: Order,
        seen: &Range<i64>,
    ) -> Self {
        let mut slots = slots(calls, class, parents, guess, seen);
        let mut children: Vec<Child> = children.iter().map(|&c| child(calls, c)).collect();
        start_when_sent(&slots, &mut children);
        let ranges = open_ranges(&slots, &children, order);
        note_previous(&mut slots, &mut children);
        if order == Order::ByAnswer {
            slots.sort_by_key(|s| -s.response_ns);
        }
        let mut both: Vec<(Child, (u32, u32))> = children.drain(..).zip(ranges).collect();
        if order == Order::ByAnswer {
            both.sort_by_key(|(child, _)| -child.answered_ns);
        }
        let (children, ranges): (Vec<Child>, Vec<(u32, u32)>) = both.into_iter().unzip();
        let empty = slots.iter().map(|s| s.log_empty).collect();
        let band = Band::new(ranges, slots.len());
        let orphan_log = guess
            .orphan_share
            .clamp(TUNING.min_slot_probability, TUNING.max_orphan_probability)
            .ln() as f32;
        Problem {
            slots,
            children,
            band,
            empty,
            orphan_log,
            classes: 2 * guess.rates.len(),
            word_scores: None,
            size_scores: None,
            linger_ns: 0,
        }
    }

    /// The same with the evidence of words and byte counts that exists before any link, and of requests that linger.
    pub fn with_initial_evidence(self, word_scores: Option<Table>, size_scores: Option<Sizes>, linger_ns: i64) -> Self {
        Problem {
            word_scores,
            size_scores,
            linger_ns,
            ..self
        }
    }

    /// Links that keep the order, before anything is known of delays: short ones are better.
    pub fn first_links(&self) -> SlotByCall {
        let typical_ns = self.typical_delay_ns();
        self.align(|slot, child| {
            slot.log_filled - self.length_penalty(slot, child, typical_ns) + self.initial_score(slot, child)
        })
    }

    /// A millisecond, and the mean duration of the calls.
    pub fn typical_delay_ns(&self) -> f64 {
        let length = |c: &Child| (c.answered_ns - c.start_ns).min(1_000_000_000) as f64;
        1e6 + self.children.iter().map(length).sum::<f64>() / self.children.len().max(1) as f64
    }

    /// What a first link loses for the delays before and after its call, by their squares, in nats.
    pub fn length_penalty(&self, slot: &Slot, child: &Child, typical_ns: f64) -> f32 {
        let before = (child.start_ns - slot.arrival_ns) as f64 / typical_ns;
        let after = if self.linger_ns > 0 {
            0.0
        } else {
            (slot.response_ns - child.answered_ns) as f64 / typical_ns
        };
        let squares = (before * before + after * after).min(TUNING.first_link_max_squares);
        (TUNING.first_link_nats * squares) as f32
    }

    /// Nats that shared words and byte counts give before any link is made.
    pub fn initial_score(&self, slot: &Slot, child: &Child) -> f32 {
        let words = |table: &Table| table[shared_pattern(&child.words, &slot.words) as usize];
        let bytes = |sizes: &Sizes| Pair::new(slot, child).size_score(sizes);
        self.word_scores.as_ref().map_or(0.0, words) + self.size_scores.as_ref().map_or(0.0, bytes)
    }

    /// Whether the call shares a rare word with the request of a slot.
    pub fn shares_rare_word(&self, slot: u32, child: &Child) -> bool {
        !child.words.is_empty() && is_rare_word(shared_pattern(&child.words, &self.slots[slot as usize].words))
    }

    pub fn links(&self, evidence: &Evidence) -> SlotByCall {
        self.align(|slot, child| slot.log_filled + evidence.score(slot.class, evidence.pair(slot, child)))
    }

    fn align(&self, score: impl Fn(&Slot, &Child) -> f32) -> SlotByCall {
        align(&self.band, &self.empty, self.orphan_log, |slot, child| {
            let (slot, child) = (&self.slots[slot], &self.children[child]);
            if slot.was_open(child) {
                score(slot, child)
            } else {
                f32::NEG_INFINITY
            }
        })
    }

    /// The delays of these links, by direction.
    pub fn directional_delays(&self, chosen: &[u32]) -> DirectionalDelays {
        let linked = self.children.iter().zip(chosen).filter(|(_, slot)| **slot != NO_SLOT);
        let pairs = linked.map(|(child, &slot)| (&self.slots[slot as usize], child));
        DirectionalDelays::new(pairs, self.classes)
    }

    /// Evidence of these links. `queued`: on which sides delays are those of a queue.
    pub fn learn(&self, chosen: &SlotByCall, queued: QueuedSides) -> Evidence {
        let (mut linked, mut possible) = (Sample::new(self.classes), Sample::new(self.classes));
        for (place, (child, &slot)) in self.children.iter().zip(chosen).enumerate() {
            if slot != NO_SLOT {
                let slot = &self.slots[slot as usize];
                let pair = Pair::after_queue(slot, child, queued[slot.class as usize]);
                linked.add(slot.class, pair, 1.0);
                linked.add_words(slot.class, pair, 1.0);
                possible.add_words(slot.class, pair, 1.0);
            }
            let range = self.band.range(place);
            let step = 1 + range.len() / TUNING.possible_pairs_per_call;
            for at in range.skip(place % step).step_by(step) {
                let other = &self.slots[at];
                if other.was_open(child) {
                    let pair = Pair::after_queue(other, child, queued[other.class as usize]);
                    possible.add(other.class, pair, 1.0);
                    if slot == NO_SLOT || self.slots[slot as usize].parent != other.parent {
                        possible.add_words(other.class, pair, 1.0);
                    }
                }
            }
        }
        Evidence::learn_queued(&linked, &possible, queued)
    }

    /// Log-likelihood of the links, against no link at all.
    pub fn score(&self, chosen: &SlotByCall, evidence: &Evidence) -> f64 {
        let nothing: f64 = self.empty.iter().map(|&e| f64::from(e)).sum();
        let gain = |(child, &slot): (&Child, &u32)| {
            if slot == NO_SLOT {
                return f64::from(self.orphan_log) - TUNING.ordered_orphan_nats;
            }
            let slot = &self.slots[slot as usize];
            f64::from(slot.log_filled - slot.log_empty + evidence.score(slot.class, evidence.pair(slot, child)))
        };
        nothing + self.children.iter().zip(chosen).map(gain).sum::<f64>()
    }

    /// Each call and its parent, as numbers of calls.
    pub fn pairs<'a>(&'a self, chosen: &'a SlotByCall) -> impl Iterator<Item = (u32, Option<u32>)> + 'a {
        let parent = |slot: u32| (slot != NO_SLOT).then(|| self.slots[slot as usize].parent);
        self.children
            .iter()
            .zip(chosen)
            .map(move |(child, &slot)| (child.call, parent(slot)))
    }
}

pub fn child(calls: &[Call], number: u32) -> Child {
    let call = &calls[number as usize];
    Child {
        call: number,
        start_ns: call.start_ns,
        sent_ns: call.sent_ns,
        answered_ns: call.answered_ns,
        previous_ns: UNSEEN,
        request_bytes: call.request_bytes,
        response_bytes: call.response_bytes,
        words: call.call_words,
        is_cut: call.is_cut,
    }
}

pub fn slot(calls: &[Call], parent: u32, class: u32, odds: f64) -> Slot {
    let call = &calls[parent as usize];
    Slot {
        parent,
        class,
        is_repeat: false,
        arrival_ns: call.arrival_ns,
        response_ns: call.response_ns,
        close_ns: call.close_ns,
        previous_ns: UNSEEN,
        request_bytes: call.request_bytes,
        response_bytes: call.response_bytes,
        words: call.served_words,
        log_filled: odds.ln() as f32,
        log_empty: (1.0 - odds).ln() as f32,
    }
}

fn slots(calls: &[Call], class: &[u16], parents: &[u32], guess: &Guess, seen: &Range<i64>) -> Vec<Slot> {
    let mut slots = vec![];
    for &parent in parents {
        if let Some(place) = guess.rates.iter().position(|rate| rate.0 == class[parent as usize]) {
            let rate = guess.rates[place].1;
            let many = (rate - TUNING.rate_noise_calls).ceil().max(1.0);
            let call = &calls[parent as usize];
            let whole = seen.start <= call.arrival_ns && call.close_ns < seen.end;
            let most = if whole {
                TUNING.max_slot_probability
            } else {
                TUNING.edge_slot_probability
            };
            // a rate of 1.3 is one certain call and one of every third request, not two of two thirds each
            slots.extend((0..many as usize).map(|before| {
                let odds = (rate - before as f64).clamp(TUNING.min_slot_probability, TUNING.max_slot_probability);
                let is_repeat = before > 0 && odds < TUNING.repeat_slot_probability;
                let class = place + if is_repeat { guess.rates.len() } else { 0 };
                let slot = slot(calls, parent, class as u32, odds.min(most));
                Slot { is_repeat, ..slot }
            }));
        }
    }
    slots
}

/// Lets calls start at their first byte if no request was open from their SYN to it: the connection had been opened for
/// another request, which then did not use it.
fn start_when_sent(slots: &[Slot], children: &mut [Child]) {
    let (mut open, mut next): (Vec<&Slot>, usize) = (vec![], 0);
    let mut is_any = false;
    for child in children.iter_mut() {
        while next < slots.len() && slots[next].arrival_ns <= child.start_ns {
            open.push(&slots[next]);
            next += 1;
        }
        open.retain(|slot| slot.close_ns >= child.start_ns);
        if child.start_ns < child.sent_ns && !open.iter().any(|slot| slot.was_open(child)) {
            child.start_ns = child.sent_ns;
            is_any = true;
        }
    }
    if is_any {
        children.sort_by_key(|child| child.start_ns);
    }
}

/// Sets `previous_ns`: of slots, the response before it to another request; of calls, the call as many before it as a
/// request has slots.
fn note_previous(slots: &mut [Slot], children: &mut [Child]) {
    let requests = slots.chunk_by(|a, b| a.parent == b.parent).count().max(1);
    let each = (slots.len() as f64 / requests as f64).round() as usize;
    for place in (each..children.len()).rev() {
        children[place].previous_ns = children[place - each].start_ns;
    }
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|&place| (slots[place].response_ns, slots[place].parent));
    let (mut previous_ns, mut last) = (UNSEEN, None::<(u32, i64)>);
    for place in order {
        let slot = &mut slots[place];
        if let Some((_, response_ns)) = last.filter(|last| last.0 != slot.parent) {
            previous_ns = response_ns;
        }
        slot.previous_ns = previous_ns;
        last = Some((slot.parent, slot.response_ns));
    }
}

/// For each call, by start, the range of slots, in the order of causes, that were open at its start.
fn open_ranges(slots: &[Slot], children: &[Child], order: Order) -> Vec<(u32, u32)> {
    let mut place: Vec<u32> = (0..slots.len() as u32).collect();
    if order == Order::ByAnswer {
        let mut sorted = place.clone();
        sorted.sort_by_key(|&s| -slots[s as usize].response_ns);
        for (at, slot) in sorted.into_iter().enumerate() {
            place[slot as usize] = at as u32;
        }
    }
    let (mut open, mut next): (Vec<u32>, usize) = (vec![], 0);
    children
        .iter()
        .map(|child| {
            while next < slots.len() && slots[next].arrival_ns <= child.start_ns {
                open.push(next as u32);
                next += 1;
            }
            open.retain(|&s| slots[s as usize].close_ns >= child.start_ns);
            let places = open.iter().map(|&s| place[s as usize]);
            let (least, most) = (places.clone().min(), places.max());
            (least.unwrap_or(u32::MAX), most.map_or(0, |m| m + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request open from one time to another, or a call that connects and sends then.
    fn exchange(arrival_ns: i64, until_ns: i64, sent_ns: i64) -> Call {
        Call {
            sent_ns,
            ..Call::between(arrival_ns, until_ns)
        }
    }

    #[test]
    fn a_connection_that_another_request_had_opened_was_used_by_one_that_was_open_then() {
        let calls = [
            exchange(0, 40, 0),
            exchange(50, 100, 50),
            exchange(30, 90, 60),
            exchange(70, 95, 72),
        ];
        let guess = Guess {
            rates: vec![(0, 1.0)],
            orphan_share: TUNING.assumed_orphan_share,
        };
        let problem = Problem::new(
            &calls,
            &[0; 4],
            &[0, 1],
            &[2, 3],
            &guess,
            Order::ByArrival,
            &(i64::MIN..i64::MAX),
        );
        let starts: Vec<i64> = problem.children.iter().map(|child| child.start_ns).collect();
        assert_eq!(starts, [60, 70]);
        let open = |slot: usize| problem.slots[slot].was_open(&problem.children[0]);
        assert!(!open(0) && open(1));
    }
}
