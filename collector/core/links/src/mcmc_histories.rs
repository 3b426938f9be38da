//! Resolves calls in doubt by the histories of requests, with Markov chain Monte Carlo.
//!
//! A history is what a request did: it arrived, made calls, received their answers, was answered. A second call follows
//! the answer to the first, two calls leave at once, the response follows the last answer. So each action (a call, or
//! the response) is scored by the time since the event before it in the history and by what that event was, and each
//! history by how many calls of each kind it has. These distributions are counted in the histories themselves.
//!
//! 1. Several chains start from the links given.
//! 2. A step proposes that a call changes places with one of its kind (or moves where there is room), or that two
//!    requests exchange all calls from a moment on; Metropolis and Hastings accept or reject it.
//! 3. Every few sweeps the distributions are counted anew.
//! 4. After a burn-in, the share of sweeps in which a request had a call is its probability. What only one chain says
//!    is not sure.
//!
//! Cost: for each call in doubt `Tuning::chains` × `Tuning::sweeps` × two steps, about a millisecond of CPU time.
//! Limits: chains are short, so probabilities are rough; hosts with more than `MAX_DOUBTS` calls in doubt, or
//! `MAX_KINDS` kinds, are left as they are.
//!
//! Source: Hastings, "Monte Carlo Sampling Methods Using Markov Chains and Their Applications", Biometrika 57, 1970.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::dialogues::Call;
use crate::evidence::{log_bin, log_width};
use crate::tuning::TUNING;

/// Kinds of calls of a host. Structural: the length of arrays; a host with more kinds is left as it is.
const MAX_KINDS: usize = 32;
/// Calls in doubt at one host. Structural: bounds the time to seconds.
const MAX_DOUBTS: usize = 4_000;
/// Calls of a kind in one history; a larger number counts as this one. Structural: the length of arrays.
const MAX_CALLS: usize = 7;
const BINS: usize = 200;
/// The event before an action: the request's arrival; or, for each kind, the start or the answer of a call.
const ARRIVAL: usize = 0;

/// A request that may have made a call, and the nats that byte counts and words give for it.
pub type Candidate = (u32, f32);

/// A call, its parent so far, and if that is in doubt all candidates. Numbers of calls.
pub struct Doubt {
    pub child: u32,
    pub parent: u32,
    pub candidates: Vec<Candidate>,
}

/// The likeliest parent of a call with its probability, and the next likeliest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResolvedParent {
    pub parent: u32,
    pub share: f64,
    pub alternative: Option<(u32, f64)>,
}

/// For each doubt its likeliest parent; nothing for calls that were not in doubt.
pub fn parents(calls: &[Call], class: &[u16], kind: &[u16], doubts: &[Doubt]) -> Vec<Option<ResolvedParent>> {
    let in_doubt = doubts.iter().filter(|doubt| doubt.candidates.len() > 1).count();
    let kinds: HashSet<u16> = doubts.iter().map(|doubt| kind[doubt.child as usize]).collect();
    if in_doubt == 0 || in_doubt > MAX_DOUBTS || kinds.len() > MAX_KINDS {
        return vec![None; doubts.len()];
    }
    let seen: Vec<Vec<Vec<u32>>> = (0..TUNING.chains as u64)
        .into_par_iter()
        .map(|seed| Chain::new(calls, class, kind, doubts, seed).run())
        .collect();
    let found = |(place, doubt): (usize, &Doubt)| {
        let seen: Vec<&[u32]> = seen.iter().map(|chain| chain[place].as_slice()).collect();
        let (at, share) = consensus(&seen)?;
        let next = next_after(at, &seen).map(|(next, share)| (doubt.candidates[next].0, share));
        Some(ResolvedParent {
            parent: doubt.candidates[at].0,
            share,
            alternative: next,
        })
    };
    doubts.iter().enumerate().map(found).collect()
}

/// The candidate that all chains together had most often, and its probability, from counts of each chain.
///
/// Its share over all chains is biased upward, since it was chosen for it; its share in each chain, if the others
/// choose, is biased downward, since these are fewer. The mean of both is taken.
fn consensus(seen: &[&[u32]]) -> Option<(usize, f64)> {
    let best = |without: usize| {
        let chains = || seen.iter().enumerate().filter(move |(chain, _)| *chain != without);
        let sum = |at: usize| chains().map(|(_, seen)| seen[at]).sum::<u32>();
        (0..seen[0].len()).map(|at| (sum(at), Reverse(at))).max()
    };
    let all = (seen.len() * (TUNING.sweeps - TUNING.burn_in_sweeps)) as f64;
    let (sum, Reverse(chosen)) = best(usize::MAX).filter(|(sum, _)| *sum > 0)?;
    let of_others = |(chain, seen): (usize, &&[u32])| best(chain).map_or(0, |(_, Reverse(at))| seen[at]);
    let by_others: u32 = seen.iter().enumerate().map(of_others).sum();
    Some((chosen, f64::from(sum + by_others) / (2.0 * all)))
}

/// The candidate that was most frequent but for one, and its share.
fn next_after(best: usize, seen: &[&[u32]]) -> Option<(usize, f64)> {
    let all = (seen.len() * (TUNING.sweeps - TUNING.burn_in_sweeps)) as f64;
    let sum = |at: usize| seen.iter().map(|seen| seen[at]).sum::<u32>();
    let others = (0..seen[0].len()).filter(|&at| at != best);
    let (sum, Reverse(next)) = others.map(|at| (sum(at), Reverse(at))).max()?;
    Some((next, f64::from(sum) / all)).filter(|next| next.1 > 0.0)
}

#[derive(Clone, Copy)]
struct Child {
    start_ns: i64,
    answered_ns: i64,
    kind: usize,
    request: u32,
    /// Place of that request among the candidates.
    place: u32,
}

struct Request {
    arrival_ns: i64,
    response_ns: i64,
    class: usize,
    /// In order of start.
    children: Vec<u32>,
    score: f64,
}

struct Chain {
    children: Vec<Child>,
    requests: Vec<Request>,
    /// For each call its candidates, as requests, with their nats of bytes and words.
    candidates: Vec<Vec<(u32, f32)>>,
    /// Calls in doubt.
    open: Vec<u32>,
    kinds: usize,
    classes: usize,
    tables: Tables,
    random: Random,
    /// Weight of scores: 0 in the first sweeps, so that chains begin apart.
    weight: f64,
    /// Proposed histories.
    mine: Vec<u32>,
    other: Vec<u32>,
}

/// Dense numbers, in order of first occurrence.
fn dense_number(known: &mut HashMap<u32, u32>, key: u32) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

impl Chain {
    fn new(calls: &[Call], class: &[u16], kind: &[u16], doubts: &[Doubt], seed: u64) -> Self {
        let (mut requests, mut kinds, mut classes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut candidates = vec![];
        let mut children = vec![];
        for doubt in doubts {
            let call = &calls[doubt.child as usize];
            let mine: Vec<(u32, f32)> = doubt
                .candidates
                .iter()
                .map(|c| (dense_number(&mut requests, c.0), c.1))
                .collect();
            let request = dense_number(&mut requests, doubt.parent);
            let place = mine.iter().position(|c| c.0 == request).unwrap_or(0) as u32;
            candidates.push(mine);
            children.push(Child {
                start_ns: call.start_ns,
                answered_ns: call.answered_ns,
                kind: dense_number(&mut kinds, kind[doubt.child as usize].into()) as usize,
                request,
                place,
            });
        }
        let mut parents = vec![0; requests.len()];
        requests
            .iter()
            .for_each(|(&call, &number)| parents[number as usize] = call);
        let mut requests: Vec<Request> = parents
            .into_iter()
            .map(|parent| {
                let call = &calls[parent as usize];
                Request {
                    arrival_ns: call.arrival_ns,
                    response_ns: call.response_ns,
                    class: dense_number(&mut classes, class[parent as usize].into()) as usize,
                    children: vec![],
                    score: 0.0,
                }
            })
            .collect();
        let mut order: Vec<u32> = (0..children.len() as u32).collect();
        order.sort_by_key(|&child| children[child as usize].start_ns);
        for child in order {
            requests[children[child as usize].request as usize].children.push(child);
        }
        let open = (0..children.len() as u32)
            .filter(|&child| candidates[child as usize].len() > 1)
            .collect();
        Chain {
            children,
            requests,
            candidates,
            open,
            kinds: kinds.len(),
            classes: classes.len(),
            tables: Tables::default(),
            random: Random(seed),
            weight: 0.0,
            mine: vec![],
            other: vec![],
        }
    }

    /// For each call, in how many sweeps each candidate was its parent.
    fn run(mut self) -> Vec<Vec<u32>> {
        let mut seen: Vec<Vec<u32>> = self.candidates.iter().map(|all| vec![0; all.len()]).collect();
        for sweep in 0..TUNING.sweeps {
            self.weight = if sweep < TUNING.hot_sweeps { 0.0 } else { 1.0 };
            if sweep % TUNING.recount_sweeps == 0 {
                self.learn();
            }
            self.sweep();
            if sweep >= TUNING.burn_in_sweeps {
                for &child in &self.open {
                    seen[child as usize][self.children[child as usize].place as usize] += 1;
                }
            }
        }
        seen
    }

    /// Counts the distributions in the current histories.
    fn learn(&mut self) {
        let mut counts = Counts::new(self.classes, self.kinds);
        for request in &self.requests {
            self.each_action(request, &request.children, |action, before, gap_ns| {
                counts.add(request.class, action, before, gap_ns);
            });
            counts.add_numbers(request.class, self.numbers(&request.children));
        }
        self.tables = counts.tables();
        for at in 0..self.requests.len() {
            self.requests[at].score = self.score(at, &self.requests[at].children, Inclusion::Counted);
        }
    }

    fn numbers(&self, children: &[u32]) -> [u8; MAX_KINDS] {
        let mut numbers = [0; MAX_KINDS];
        for &child in children {
            let number: &mut u8 = &mut numbers[self.children[child as usize].kind];
            *number = (*number + 1).min(MAX_CALLS as u8);
        }
        numbers
    }

    /// Reports each action of a history (a call's kind, or `kinds` for the response), the event before it, and the time
    /// between.
    fn each_action(&self, request: &Request, children: &[u32], mut report: impl FnMut(usize, usize, i64)) {
        let mut act = |action: usize, at_ns: i64, earlier: &[u32]| {
            let (mut before, mut last_ns) = (ARRIVAL, request.arrival_ns);
            for &child in earlier {
                let child = &self.children[child as usize];
                if child.start_ns >= last_ns {
                    (before, last_ns) = (1 + 2 * child.kind, child.start_ns);
                }
                if (last_ns..=at_ns).contains(&child.answered_ns) {
                    (before, last_ns) = (2 + 2 * child.kind, child.answered_ns);
                }
            }
            report(action, before, at_ns - last_ns);
        };
        for (place, &child) in children.iter().enumerate() {
            let child = &self.children[child as usize];
            act(child.kind, child.start_ns, &children[..place]);
        }
        let answered = children.partition_point(|&child| self.children[child as usize].start_ns <= request.response_ns);
        act(self.kinds, request.response_ns, &children[..answered]);
    }

    fn score(&self, request: usize, children: &[u32], inclusion: Inclusion) -> f64 {
        let request = &self.requests[request];
        let mut sum = self.tables.numbers(request.class, &self.numbers(children), inclusion);
        self.each_action(request, children, |action, before, gap_ns| {
            sum += self.tables.action(request.class, action, before, gap_ns, inclusion);
        });
        sum
    }

    fn sweep(&mut self) {
        for _ in 0..2 * self.open.len() {
            let child = self.open[self.random.below(self.open.len())];
            let candidates = &self.candidates[child as usize];
            let other = candidates[self.random.below(candidates.len())].0;
            let own = self.children[child as usize].request;
            if other == own {
                continue;
            }
            if self.random.below(2) == 0 {
                self.propose_swap(child, own as usize, other as usize);
            } else {
                self.propose_crossover(child, own as usize, other as usize);
            }
        }
    }

    /// Proposes that a call changes places with one of its kind, or moves where there is room.
    fn propose_swap(&mut self, child: u32, own: usize, other: usize) {
        let kind = self.children[child as usize].kind;
        let same = |at: usize| {
            self.requests[at]
                .children
                .iter()
                .filter(|&&c| self.children[c as usize].kind == kind)
        };
        let (mine, theirs) = (same(own).count(), same(other).count());
        let back = same(other).nth(self.random.below(theirs + 1)).copied();
        let odds = match back {
            Some(_) => (theirs + 1) as f64 / (mine + 1) as f64,
            None => (theirs + 1) as f64 / mine as f64,
        };
        self.mine = self.requests[own]
            .children
            .iter()
            .copied()
            .filter(|&c| c != child)
            .collect();
        self.other = self.requests[other]
            .children
            .iter()
            .copied()
            .filter(|&c| Some(c) != back)
            .collect();
        self.mine.extend(back);
        self.other.push(child);
        self.accept_or_reject(own, other, odds);
    }

    /// Proposes that two requests exchange all calls from the start of this one on.
    fn propose_crossover(&mut self, child: u32, own: usize, other: usize) {
        let from_ns = self.children[child as usize].start_ns;
        let split = |at: usize| {
            let children = &self.requests[at].children;
            children.split_at(children.partition_point(|&c| self.children[c as usize].start_ns < from_ns))
        };
        let ((mine, my_rest), (theirs, their_rest)) = (split(own), split(other));
        let (mine, theirs) = ([mine, their_rest].concat(), [theirs, my_rest].concat());
        (self.mine, self.other) = (mine, theirs);
        self.accept_or_reject(own, other, 1.0);
    }

    /// Accepts or rejects the proposed histories.
    fn accept_or_reject(&mut self, own: usize, other: usize, odds: f64) {
        for list in [&mut self.mine, &mut self.other] {
            list.sort_unstable_by_key(|&child| (self.children[child as usize].start_ns, child));
        }
        let (Some(own_bytes), Some(other_bytes)) = (self.bytes(own, &self.mine), self.bytes(other, &self.other)) else {
            return;
        };
        let new = |at, list: &[u32]| self.score(at, list, Inclusion::Proposed);
        let (own_score, other_score) = (new(own, &self.mine), new(other, &self.other));
        let before = self.requests[own].score + self.requests[other].score;
        let better = own_score + other_score - before + f64::from(own_bytes + other_bytes);
        let gain = self.weight * better + odds.ln();
        if gain < 0.0 && self.random.unit() >= gain.exp() {
            return;
        }
        for (at, list, score) in [(own, &self.mine, own_score), (other, &self.other, other_score)] {
            for &child in list {
                let candidates = &self.candidates[child as usize];
                if let Some(place) = candidates.iter().position(|c| c.0 == at as u32) {
                    self.children[child as usize].place = place as u32;
                }
                self.children[child as usize].request = at as u32;
            }
            self.requests[at].children.clone_from(list);
            self.requests[at].score = score;
        }
    }

    /// The change of nats of bytes and words for calls that are new to a request; nothing if it is no candidate of one.
    fn bytes(&self, request: usize, children: &[u32]) -> Option<f32> {
        let mut sum = 0.0;
        for &child in children {
            let now = self.children[child as usize];
            if now.request as usize != request {
                let candidates = &self.candidates[child as usize];
                let new = candidates.iter().find(|c| c.0 as usize == request)?;
                sum += new.1 - candidates[now.place as usize].1;
            }
        }
        Some(sum)
    }
}

/// Whether a history is part of the counts: then its own contribution is taken out of its score.
#[derive(Clone, Copy)]
enum Inclusion {
    Counted,
    Proposed,
}

impl Inclusion {
    /// Index into arrays of [`Tables`].
    fn place(self) -> usize {
        match self {
            Inclusion::Proposed => 0,
            Inclusion::Counted => 1,
        }
    }
}

/// Pseudo-random numbers, the same in each run (Knuth, TAOCP 2, section 3.3.4, line 26).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) as usize * end) >> 32
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 30) as f64 / (1u64 << 30) as f64
    }
}

/// Counts of actions by the event before and the time since, and of numbers of calls; by class of request.
struct Counts {
    kinds: usize,
    /// By class, action and event before.
    gaps: HashMap<usize, Vec<f64>>,
    /// By class and kind.
    numbers: Vec<[f64; MAX_CALLS + 1]>,
}

impl Counts {
    fn new(classes: usize, kinds: usize) -> Self {
        let numbers = vec![[TUNING.prior_requests; MAX_CALLS + 1]; classes * kinds];
        Counts {
            kinds,
            gaps: HashMap::new(),
            numbers,
        }
    }

    fn add(&mut self, class: usize, action: usize, before: usize, gap_ns: i64) {
        let key = key(self.kinds, class, action, before);
        self.gaps.entry(key).or_insert_with(|| vec![0.0; BINS])[log_bin(gap_ns, BINS)] += 1.0;
    }

    fn add_numbers(&mut self, class: usize, numbers: [u8; MAX_KINDS]) {
        for (kind, &number) in numbers[..self.kinds].iter().enumerate() {
            self.numbers[class * self.kinds + kind][usize::from(number)] += 1.0;
        }
    }

    fn tables(self) -> Tables {
        let events = 1 + 2 * self.kinds;
        let classes = self.numbers.len() / self.kinds;
        let mut all = vec![0.0; classes * (self.kinds + 1)];
        for (key, counts) in &self.gaps {
            all[key / events] += counts.iter().sum::<f64>();
        }
        let widths: Vec<f64> = (0..BINS).map(log_width).collect();
        let log = |count: f64, all: f64, bin: usize| {
            ((count + TUNING.prior_actions / (events * BINS) as f64) / (all + TUNING.prior_actions)).ln() - widths[bin]
        };
        let logs = |counts: &[f64; MAX_CALLS + 1], own: f64| {
            let without = |count: f64| (count - own).max(TUNING.prior_requests);
            counts.map(|count| (without(count) / counts[0]).ln())
        };
        let mut tables = Tables {
            kinds: self.kinds,
            place: vec![u32::MAX; classes * (self.kinds + 1) * events],
            gaps: [vec![], vec![]],
            unknown: all
                .iter()
                .flat_map(|&all| (0..BINS).map(move |bin| (all, bin)))
                .map(|(all, bin)| log(0.0, all, bin))
                .collect(),
            numbers: [0.0, 1.0].map(|own| self.numbers.iter().map(|counts| logs(counts, own)).collect()),
        };
        for (key, counts) in self.gaps {
            tables.place[key] = (tables.gaps[0].len() / BINS) as u32;
            let smooth = crate::evidence::smooth(&counts);
            for (gaps, own) in tables.gaps.iter_mut().zip([0.0, 1.0]) {
                let without = |count: f64| (count - own * crate::evidence::PEAK_WEIGHT).max(0.0);
                let of_bin = |(bin, &count): (usize, &f64)| log(without(count), all[key / events] - own, bin);
                gaps.extend(smooth.iter().enumerate().map(of_bin));
            }
        }
        tables
    }
}

fn key(kinds: usize, class: usize, action: usize, before: usize) -> usize {
    (class * (kinds + 1) + action) * (1 + 2 * kinds) + before
}

/// Log densities, and log ratios of numbers of calls to none.
#[derive(Default)]
struct Tables {
    kinds: usize,
    place: Vec<u32>,
    /// For proposed histories, and for those that are part of the counts.
    gaps: [Vec<f64>; 2],
    unknown: Vec<f64>,
    numbers: [Vec<[f64; MAX_CALLS + 1]>; 2],
}

impl Tables {
    fn action(&self, class: usize, action: usize, before: usize, gap_ns: i64, inclusion: Inclusion) -> f64 {
        let bin = log_bin(gap_ns, BINS);
        match self.place[key(self.kinds, class, action, before)] {
            u32::MAX => self.unknown[(class * (self.kinds + 1) + action) * BINS + bin],
            table => self.gaps[inclusion.place()][table as usize * BINS + bin],
        }
    }

    fn numbers(&self, class: usize, numbers: &[u8; MAX_KINDS], inclusion: Inclusion) -> f64 {
        let logs = &self.numbers[inclusion.place()];
        let of = |(kind, &number): (usize, &u8)| logs[class * self.kinds + kind][usize::from(number)];
        numbers[..self.kinds].iter().enumerate().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_chains_say_is_sure_and_what_one_says_is_not() {
        let all = (TUNING.sweeps - TUNING.burn_in_sweeps) as u32;
        assert_eq!(consensus(&[&[0, all], &[0, all]]), Some((1, 1.0)));
        let (_, apart) = consensus(&[&[all, 0], &[0, all]]).unwrap_or_default();
        assert!(apart <= 0.5, "chains that contradict each other say {apart}");
        assert_eq!(consensus(&[&[0, 0], &[0, 0]]), None);
    }
}
