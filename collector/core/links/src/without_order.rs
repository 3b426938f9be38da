//! Links without an order, and the test whether an order is real.
//!
//! Input: a `Problem` in the order of arrival, and the links in order. Output: for each call the probability of each
//! request to be its parent (`Parents`), and the probability that each link in order is right (`OrderConfidence`).
//!
//! 1. Keep the possible pairs of each call: all, or if there are too many those near the link in order and a sample of
//!    the others.
//! 2. Compute marginals ([`crate::marginals`]) from the assumption that calls lie inside their requests; learn delays
//!    and byte counts from them; repeat with what was learned. The last marginals are exact where that is cheap
//!    ([`crate::exact_marginals`]).
//! 3. Compare the likelihood of the links in order with that of all links without one, separately for the delays
//!    between causes and actions (the *cause side*: of arrival and calls, or of answers and responses) and for
//!    everything else (the *other side*).
//! 4. Lower the confidence of links around which the order explains less than elsewhere: it may have slipped there.
//!
//! A pair is no evidence for itself: of few links each is learned without it.

use std::collections::HashMap;

use crate::evidence::{Evidence, Pair, Sample, gap_densities};
use crate::exact_marginals;
use crate::marginals::{Marginals, Pairs, propagate};
use crate::problem::{Child, Guess, NO_SLOT, Order, Problem, Slot};
use crate::tuning::TUNING;

/// The whole entropy, as a part of itself: a mathematical constant. After a server stalled, all overdue work continues
/// at once; any order explains a part of that entropy, but not all.
const ALL_OPEN: f64 = 1.0;

/// The requests that may have made a call, without an order.
pub struct Parents {
    pub child: u32,
    /// The probability that any of them did.
    pub any_probability: f64,
    /// The entropy of the parent by belief propagation, in nats, with which the gain of an order is compared.
    pub entropy: f64,
    /// Each request and its probability; if there are very many, a sample of them.
    pub shares: Vec<(u32, f64)>,
    /// Nats that byte counts and words give for each of these; empty if `shares` is a sample.
    pub contents: Vec<f32>,
}

impl Parents {
    /// The entropy of the shares, in nats.
    fn doubt(&self) -> f64 {
        let of = |share: f64| -share * share.max(f64::MIN_POSITIVE).ln();
        self.shares.iter().map(|share| of(share.1)).sum::<f64>() + of((1.0 - self.any_probability).max(0.0))
    }
}

/// The probability of a link in order, given log-odds.
pub fn order_confidence(log_odds: f64) -> f64 {
    TUNING.max_confidence / (1.0 + (-log_odds).exp())
}

/// The confidence in links in order.
pub struct OrderConfidence {
    /// Probability that each call's link in order is right.
    pub by_call: Vec<f64>,
    /// Log-odds that the order is kept at all.
    pub log_odds: f64,
}

/// Marginals of calls, in order of start, over slots in order of arrival of their requests.
pub struct UnorderedLinks<'a> {
    problem: &'a Problem,
    /// The slot of each call in the links in order.
    in_order: &'a [u32],
    pairs: Pairs,
    /// How many possible pairs each kept one stands for.
    multiplicity: Vec<f64>,
    possible: Sample,
    scales_ns: [f64; 2],
    found: Marginals,
    /// The probability of each pair, exact where few slots are open at a time.
    probability: Vec<f64>,
    evidence: SelfExcludingEvidence,
}

/// Evidence learned from marginals, without what the pair that is scored contributed itself. Of many links one makes no
/// difference, and all pairs share one table.
#[derive(Clone, Default)]
struct SelfExcludingEvidence {
    /// Tables for pairs with a probability from 0 to 1, in equal steps.
    by_share: Vec<Evidence>,
}

impl SelfExcludingEvidence {
    fn of(&self, share: f64) -> &Evidence {
        let last = self.by_share.len() - 1;
        &self.by_share[((share * last as f64).round() as usize).min(last)]
    }
}

impl<'a> UnorderedLinks<'a> {
    /// `problem` must be in the order of `ByArrival`. `rounds`: of learning; with fewer than `Tuning::sharing_rounds`
    /// the marginals are flatter.
    pub fn new(problem: &'a Problem, in_order: &'a [u32], rounds: usize) -> Self {
        let mut without_order = UnorderedLinks {
            problem,
            in_order,
            pairs: Pairs::default(),
            multiplicity: vec![],
            possible: Sample::new(problem.classes),
            scales_ns: scales_ns(problem),
            found: Marginals::default(),
            probability: vec![],
            evidence: SelfExcludingEvidence::default(),
        };
        without_order.keep_pairs();
        let mut possible = Sample::new(problem.classes);
        without_order.each(|at, slot, child| {
            possible.add(slot.class, Pair::new(slot, child), without_order.multiplicity[at]);
            possible.add_words(slot.class, Pair::new(slot, child), without_order.multiplicity[at]);
        });
        without_order.possible = possible;
        let inside = |_, slot: &Slot, child: &Child| {
            let words = f64::from(problem.initial_score(slot, child)).exp();
            let late = (child.start_ns - slot.arrival_ns) as f64 / (slot.response_ns - slot.arrival_ns).max(1) as f64;
            let inside = if problem.linger_ns > 0 || child.answered_ns <= slot.response_ns {
                1.0
            } else {
                TUNING.ends_outside_probability
            };
            words
                * inside
                * if slot.is_repeat {
                    late.clamp(TUNING.ends_outside_probability, 1.0)
                } else {
                    1.0
                }
        };
        without_order.found = without_order.marginals(inside);
        for round in 1..=rounds {
            let evidence = without_order.learn_from(&without_order.found);
            let likely = |at: usize, slot: &Slot, child: &Child| {
                let evidence = evidence.of(without_order.found.probability[at]);
                f64::from(evidence.score(slot.class, Pair::new(slot, child))).exp()
            };
            let weight = without_order.weights(likely);
            without_order.found = propagate(&without_order.pairs, &weight, problem.slots.len());
            without_order.probability.clone_from(&without_order.found.probability);
            if round == rounds {
                exact_marginals::refine(
                    &without_order.pairs,
                    &weight,
                    problem.slots.len(),
                    &mut without_order.probability,
                );
            }
            without_order.evidence = evidence;
        }
        without_order
    }

    /// Keeps the possible pairs; of very many for a call those near the link in order, and others at equal distances.
    fn keep_pairs(&mut self) {
        self.pairs.from.push(0);
        for (place, child) in self.problem.children.iter().enumerate() {
            let range = self.problem.band.range(place);
            let all: Vec<u32> = range
                .filter(|&slot| self.problem.slots[slot].was_open(child))
                .map(|slot| slot as u32)
                .collect();
            let middle = match self.in_order[place] {
                NO_SLOT => all.len() / 2,
                slot => all.partition_point(|&other| other < slot),
            };
            let near = middle.saturating_sub(TUNING.near_pairs_per_call / 2)
                ..(middle + TUNING.near_pairs_per_call / 2).min(all.len());
            let step = if all.len() <= TUNING.max_pairs_per_call {
                1
            } else {
                all.len()
                    .div_ceil(TUNING.max_pairs_per_call - TUNING.near_pairs_per_call)
            };
            for (at, slot) in all.into_iter().enumerate() {
                let is_near = near.contains(&at) || self.problem.shares_rare_word(slot, child);
                if is_near || (at + place) % step == 0 {
                    self.pairs.slot.push(slot);
                    self.multiplicity.push(if is_near { 1.0 } else { step as f64 });
                }
            }
            self.pairs.from.push(self.pairs.slot.len() as u32);
        }
    }

    fn marginals(&self, likely: impl Fn(usize, &Slot, &Child) -> f64) -> Marginals {
        propagate(&self.pairs, &self.weights(likely), self.problem.slots.len())
    }

    fn weights(&self, likely: impl Fn(usize, &Slot, &Child) -> f64) -> Vec<f64> {
        let mut weight = vec![0.0; self.pairs.slot.len()];
        self.each(|at, slot, child| weight[at] = self.multiplicity[at] * self.odds(slot) * likely(at, slot, child));
        weight
    }

    /// Whether there are so many links that one of them makes no difference to what is learned.
    fn has_many(&self) -> bool {
        self.problem.children.len() >= TUNING.self_evidence_calls
    }

    fn odds(&self, slot: &Slot) -> f64 {
        f64::from(slot.log_filled - slot.log_empty - self.problem.orphan_log).exp()
    }

    fn learn_from(&self, found: &Marginals) -> SelfExcludingEvidence {
        let mut linked = Sample::new(self.problem.classes);
        self.each(|at, slot, child| {
            if found.probability[at] > TUNING.min_learned_share {
                linked.add(slot.class, Pair::new(slot, child), found.probability[at]);
                linked.add_words(slot.class, Pair::new(slot, child), found.probability[at]);
            }
        });
        let steps = if self.has_many() { 0 } else { TUNING.self_evidence_steps };
        let own = |step: usize| step as f64 / steps.max(1) as f64;
        let learn = |step| Evidence::learn_densities(&linked, &self.possible, self.scales_ns, own(step));
        SelfExcludingEvidence {
            by_share: (0..=steps).map(learn).collect(),
        }
    }

    fn each(&self, mut report: impl FnMut(usize, &Slot, &Child)) {
        for (place, child) in self.problem.children.iter().enumerate() {
            for at in self.pairs.of(place) {
                report(at, &self.problem.slots[self.pairs.slot[at] as usize], child);
            }
        }
    }

    /// Log-likelihood of these calls, over all ways to link them.
    pub fn likelihood(&self) -> f64 {
        let empty: f64 = self.problem.slots.iter().map(|slot| f64::from(slot.log_empty)).sum();
        let (calls, alone) = (self.problem.children.len() as f64, f64::from(self.problem.orphan_log));
        empty + calls * (alone - TUNING.shared_orphan_nats * alone.exp()) + self.found.log_sums.iter().sum::<f64>()
    }

    /// Rates of the classes by these marginals.
    pub fn rates_by_shares(&self, guess: &Guess) -> Guess {
        let classes = guess.rates.len();
        let (mut filled, mut requests) = (vec![0.0; classes], vec![0.0; classes]);
        for slots in self.problem.slots.chunk_by(|a, b| a.parent == b.parent) {
            requests[slots[0].class as usize % classes] += 1.0;
        }
        for (&slot, share) in self.pairs.slot.iter().zip(&self.found.probability) {
            filled[self.problem.slots[slot as usize].class as usize % classes] += share;
        }
        let linked: f64 = filled.iter().sum();
        let rate = |(at, &(class, _)): (usize, &(u16, f64))| (class, filled[at] / f64::max(requests[at], 1.0));
        Guess {
            rates: guess.rates.iter().enumerate().map(rate).collect(),
            orphan_share: (1.0 - linked / self.problem.children.len() as f64).max(TUNING.min_orphan_share),
        }
    }

    /// For each call the requests that may have made it.
    pub fn parents(&self) -> Vec<Parents> {
        let parents = |(place, child): (usize, &Child)| {
            let mut found = Parents {
                child: child.call,
                any_probability: 0.0,
                entropy: 0.0,
                shares: vec![],
                contents: vec![],
            };
            // request; probability, exact and by belief propagation; multiplicity; nats of bytes and words
            let mut sums: Vec<(u32, [f64; 2], f64, f32)> = vec![];
            for at in self.pairs.of(place) {
                let slot = &self.problem.slots[self.pairs.slot[at] as usize];
                let parent = slot.parent;
                match sums.iter_mut().rev().find(|sum| sum.0 == parent) {
                    Some(sum) => {
                        sum.1[0] += self.probability[at];
                        sum.1[1] += self.found.probability[at];
                    }
                    None => {
                        let evidence = self.evidence.of(self.found.probability[at]);
                        let contents = evidence.contents(slot.class, Pair::new(slot, child));
                        sums.push((
                            parent,
                            [self.probability[at], self.found.probability[at]],
                            self.multiplicity[at],
                            contents,
                        ));
                    }
                }
            }
            let mut some = 0.0;
            for (parent, [all, by_propagation], times, contents) in sums {
                if times == 1.0 {
                    found.contents.push(contents);
                }
                found.any_probability += all;
                some += by_propagation;
                found.entropy -= by_propagation * (by_propagation / times).max(f64::MIN_POSITIVE).ln();
                found.shares.push((parent, all / times));
            }
            let none = (1.0 - some).max(f64::MIN_POSITIVE);
            found.entropy -= none * none.ln();
            found
        };
        self.problem.children.iter().enumerate().map(parents).collect()
    }

    /// The confidence that each call's link in order is right, and that the order is kept at all.
    ///
    /// If an order is kept, an action follows the later of its cause and the previous action after a usual time; if
    /// none is, it follows its cause. What the order explains better than all links without one is compared with the
    /// entropy that is left without it. A server that is never idle, and works on what waits at random, explains its
    /// actions as well as one that keeps an order; then the other side of the calls must not be explained better by
    /// links that are merely near the order.
    pub fn order(&self, order: Order, parents: &[Parents]) -> OrderConfidence {
        let gains = self.gains(order);
        let entropy: Vec<f64> = parents.iter().map(|parents| parents.entropy).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let whole = OrderGain {
            gain: mean(&gains.cause_side) + mean(&gains.other_side),
            entropy: mean(&entropy),
        };
        let part = OrderGain {
            gain: mean(&gains.cause_side),
            ..whole
        }
        .part();
        let mut better = mean(&gains.other_side);
        if part < TUNING.clear_part {
            for distance in [TUNING.near_order_requests, TUNING.far_order_requests] {
                let near = mean(&self.other_side_near_order(order, distance)) - mean(&gains.free);
                better = better.min(mean(&gains.other_side) - near);
            }
        }
        let by_cause = if part > 0.0 {
            (TUNING.cause_side_log_odds_per_part * (part - TUNING.cause_side_part))
                .clamp(0.0, TUNING.cause_side_max_log_odds)
        } else {
            (TUNING.worse_side_log_odds_per_part * part)
                .max(-TUNING.other_side_max_worse_log_odds - TUNING.other_side_max_log_odds)
        };
        let again = self.problem.slots.iter().any(|slot| slot.is_repeat);
        let least = if (!again || part > ALL_OPEN) && self.leave_at_once(order) {
            TUNING.other_side_min_nats
        } else {
            TUNING.repeated_min_nats
        } * mean(&entropy).clamp(0.0, 1.0);
        let odds = by_cause
            + (TUNING.other_side_log_odds_per_nat * (better - least))
                .clamp(-TUNING.other_side_max_worse_log_odds, TUNING.other_side_max_log_odds);
        let odds = odds.min(self.agreement(parents));
        let gain: Vec<f64> = gains
            .cause_side
            .iter()
            .zip(&gains.other_side)
            .map(|(a, b)| a + b)
            .collect();
        let sequence = self.sequence(order);
        let along = |values: &[f64]| moving_means(&sequence.iter().map(|&child| values[child]).collect::<Vec<f64>>());
        let (gain, entropy) = (along(&gain), along(&entropy));
        let mut right = vec![0.0; sequence.len()];
        for (at, child) in sequence.into_iter().enumerate() {
            let here = OrderGain {
                gain: gain[at],
                entropy: entropy[at],
            };
            right[child] = self.adjust_by_words(
                child,
                order_confidence(
                    odds.min(TUNING.cause_side_max_log_odds) - TUNING.cause_side_log_odds_per_part * here.slip(whole),
                ),
            );
        }
        OrderConfidence {
            by_call: right,
            log_odds: odds,
        }
    }

    /// Log-odds at most where the entropy of all calls is small: how much likelier delays and bytes alone make the
    /// links in order than a random choice, for calls with several possible parents. Where the entropy is large, the
    /// order explains more than delays can, and there is no such bound.
    fn agreement(&self, parents: &[Parents]) -> f64 {
        if parents.iter().map(Parents::doubt).sum::<f64>() > TUNING.little_doubt_nats {
            return f64::INFINITY;
        }
        let of_link = |(parents, &slot): (&Parents, &u32)| {
            if slot == NO_SLOT || parents.shares.len() < 2 {
                return 0.0;
            }
            let own = self.problem.slots[slot as usize].parent;
            let share = parents
                .shares
                .iter()
                .find(|share| share.0 == own)
                .map_or(0.0, |share| share.1);
            let likelier = (share.max(TUNING.min_learned_share) * parents.shares.len() as f64).ln();
            // a call that is clear without an order says nothing about the order
            if parents.doubt() < TUNING.doubtful_call_nats {
                likelier.min(0.0)
            } else {
                likelier
            }
        };
        parents.iter().zip(self.in_order).map(of_link).sum()
    }

    /// The probability of each call's link in order, given that of the order.
    pub fn order_confidences(&self, right: f64) -> Vec<f64> {
        (0..self.problem.children.len())
            .map(|child| self.adjust_by_words(child, right))
            .collect()
    }

    /// The probability of a link in order, updated by the words that it shares.
    fn adjust_by_words(&self, child: usize, right: f64) -> f64 {
        let slot = self.in_order[child];
        if slot == NO_SLOT || self.problem.children[child].words.is_empty() {
            return right;
        }
        let (slot, child) = (&self.problem.slots[slot as usize], &self.problem.children[child]);
        let score = self.evidence.of(0.0).words(slot.class, Pair::new(slot, child));
        let likely = f64::from(score).exp() * right;
        (likely / (likely + 1.0 - right)).min(TUNING.max_confidence)
    }

    /// Whether the calls of one request leave at once, before those of the next request. Calls of different steps of
    /// the work alternate with those of other requests, so that dealing them out request by request is no order.
    fn leave_at_once(&self, order: Order) -> bool {
        let (mut same, mut other): (Vec<i64>, Vec<i64>) = (vec![], vec![]);
        let mut last: Option<(&Slot, i64)> = None;
        for place in self.sequence(order) {
            if self.in_order[place] == NO_SLOT {
                continue;
            }
            let slot = &self.problem.slots[self.in_order[place] as usize];
            let start_ns = self.problem.children[place].start_ns;
            if let Some((before, previous_ns)) = last.filter(|_| !slot.is_repeat) {
                let apart = if before.parent == slot.parent {
                    &mut same
                } else {
                    &mut other
                };
                apart.push((start_ns - previous_ns).abs());
            }
            last = Some((slot, start_ns));
        }
        same.len() * TUNING.few_repeated_ratio < other.len()
            || TUNING.made_at_once_ratio * median(&mut same) <= median(&mut other)
    }

    /// Calls in the order of their actions.
    fn sequence(&self, order: Order) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.problem.children.len()).collect();
        if order == Order::ByAnswer {
            places.sort_by_key(|&place| self.problem.children[place].answered_ns);
        }
        places
    }

    /// What the links in order explain better than links without an order, for each call.
    fn gains(&self, order: Order) -> Gains {
        let cause = cause_side(order);
        let mut linked = Sample::new(self.problem.classes);
        let linked_slot = |place: usize| {
            let slot = self.in_order[place];
            (slot != NO_SLOT).then(|| (&self.problem.slots[slot as usize], &self.problem.children[place]))
        };
        let sequence = self.sequence(order);
        let in_place = || sequence.iter().filter_map(|&place| Some((place, linked_slot(place)?)));
        in_place().for_each(|(_, (slot, child))| {
            linked.add(slot.class, Pair::new(slot, child), 1.0);
            linked.add_words(slot.class, Pair::new(slot, child), 1.0);
        });
        let own = if self.has_many() { 0.0 } else { 1.0 };
        let evidence = Evidence::learn_densities(&linked, &self.possible, self.scales_ns, own);
        let gaps = gaps(in_place().map(|(_, pair)| pair), order);
        let density = gap_densities(&gaps, &self.possible, cause, self.scales_ns[cause], own);
        let weight = |at: usize, slot: &Slot, child: &Child| {
            let evidence = self.evidence.of(self.found.probability[at]);
            f64::from(evidence.delay(slot.class, Pair::new(slot, child), cause)).exp()
        };
        let by_cause = self.marginals(weight).log_sums;
        let by_both = &self.found.log_sums;
        let mut gains = Gains {
            cause_side: by_cause.iter().map(|sum| -sum).collect(),
            other_side: by_cause.iter().zip(by_both).map(|(cause, both)| cause - both).collect(),
            free: by_cause.iter().zip(by_both).map(|(cause, both)| both - cause).collect(),
        };
        let sides = self.problem.directional_delays(self.in_order);
        let in_one_step = self.problem.slots.iter().all(|slot| !slot.is_repeat) && self.leave_at_once(order);
        for ((place, (slot, child)), gap) in in_place().zip(gaps) {
            let pair = Pair::new(slot, child);
            if in_one_step {
                gains.other_side[place] += sides.queue_gain(slot.class, 1 - cause);
            }
            gains.cause_side[place] += self.odds(slot).ln() + f64::from(density.of(gap));
            gains.other_side[place] +=
                f64::from(evidence.score(slot.class, pair) - evidence.delay(slot.class, pair, cause));
        }
        gains
    }

    /// What the other side adds for each call if its parent lies about `distance` requests from the link in order.
    fn other_side_near_order(&self, order: Order, distance: f64) -> Vec<f64> {
        let (problem, cause) = (self.problem, cause_side(order));
        let rank = ranks(&problem.slots, order);
        let requests = problem.slots.chunk_by(|a, b| a.parent == b.parent).count();
        let unit = distance * problem.slots.len() as f64 / requests as f64;
        let mut nearness = vec![0.0; self.pairs.slot.len()];
        let mut middle = 0.0;
        for place in self.sequence(order) {
            if self.in_order[place] != NO_SLOT {
                middle = rank[self.in_order[place] as usize];
            }
            for at in self.pairs.of(place) {
                nearness[at] = (-(rank[self.pairs.slot[at] as usize] - middle).abs() / unit).exp() / (2.0 * distance);
            }
        }
        let plain = self.marginals(|at, _, _| nearness[at]);
        let (mut evidence, mut found) = (self.evidence.clone(), self.found.clone());
        for round in 0..TUNING.near_order_rounds {
            if round > 0 {
                evidence = self.learn_from(&found);
            }
            found = self.marginals(|at, slot, child| {
                let (evidence, pair) = (evidence.of(found.probability[at]), Pair::new(slot, child));
                let other = evidence.score(slot.class, pair) - evidence.delay(slot.class, pair, cause);
                nearness[at] * f64::from(other).exp()
            });
        }
        found
            .log_sums
            .iter()
            .zip(&plain.log_sums)
            .map(|(with, without)| with - without)
            .collect()
    }
}

/// What links in order explain better than all links without one, in nats, for each call.
struct Gains {
    /// Delays of the cause side.
    cause_side: Vec<f64>,
    /// Delays of the other side, and byte counts.
    other_side: Vec<f64>,
    /// What the other side adds to all links without an order.
    free: Vec<f64>,
}

/// What an order explains, and the entropy of the parent without it; means over calls, in nats.
#[derive(Clone, Copy, Debug)]
struct OrderGain {
    gain: f64,
    entropy: f64,
}

impl OrderGain {
    /// The part of the entropy that is explained; above 1 where delays and bytes leave less open than the order
    /// explains.
    fn part(self) -> f64 {
        (self.gain + TUNING.min_open_nats) / (self.entropy.max(0.0) + TUNING.min_open_nats)
    }

    /// How much smaller this part is around a link than it should be. It should be as large as on the `whole`. But
    /// where the entropy is larger than usual, the order need not explain more nats than usual, nor more than all of
    /// the entropy: an order that explains all of it has not slipped.
    fn slip(self, whole: OrderGain) -> f64 {
        let as_many_nats = OrderGain {
            gain: whole.gain,
            entropy: self.entropy,
        };
        let due = whole.part().min(as_many_nats.part().max(ALL_OPEN));
        (TUNING.slip_part * due - self.part()).max(0.0)
    }
}

/// The delay of a pair that lies between cause and action: 0 before the call, 1 after it.
fn cause_side(order: Order) -> usize {
    match order {
        Order::ByArrival => 0,
        Order::ByAnswer => 1,
    }
}

/// Ranks of slots by arrival (`ByArrival`) or by response (`ByAnswer`).
fn ranks(slots: &[Slot], order: Order) -> Vec<f64> {
    let mut places: Vec<usize> = (0..slots.len()).collect();
    if order == Order::ByAnswer {
        places.sort_by_key(|&place| slots[place].response_ns);
    }
    let mut ranks = vec![0.0; slots.len()];
    for (rank, place) in places.into_iter().enumerate() {
        ranks[place] = rank as f64;
    }
    ranks
}

/// Means over up to `Tuning::slip_window_calls` values to either side.
fn moving_means(values: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    let mean = |at: usize| {
        let (from, to) = (
            at.saturating_sub(TUNING.slip_window_calls),
            (at + TUNING.slip_window_calls + 1).min(values.len()),
        );
        (sums[to] - sums[from]) / (to - from) as f64
    };
    (0..values.len()).map(mean).collect()
}

/// Times from the later of an action's cause and the previous action to the action.
fn gaps<'a>(links: impl Iterator<Item = (&'a Slot, &'a Child)>, order: Order) -> Vec<i64> {
    let mut before = i64::MIN;
    let gap = |(slot, child): (&Slot, &Child)| {
        let (cause, action) = match order {
            Order::ByArrival => (slot.arrival_ns, child.start_ns),
            Order::ByAnswer => (child.answered_ns, slot.response_ns),
        };
        let gap = action - cause.max(before);
        before = action;
        gap
    };
    links.map(gap).collect()
}

fn median(values: &mut [i64]) -> i64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        0
    } else {
        *values.select_nth_unstable(middle).1
    }
}

/// The mean time between calls, and the mean duration of requests.
fn scales_ns(problem: &Problem) -> [f64; 2] {
    let (children, slots) = (&problem.children, &problem.slots);
    let span = children.last().map_or(0, |last| last.start_ns - children[0].start_ns);
    let durations = slots
        .iter()
        .map(|slot| (slot.close_ns - slot.arrival_ns).min(600_000_000_000) as f64);
    [
        span as f64 / children.len().max(1) as f64,
        durations.sum::<f64>() / slots.len().max(1) as f64,
    ]
    .map(|s| s.max(1000.0))
}

/// The slot of each call of `problem` (in the order of `ByArrival`), given its parent: the slots of a request are
/// filled in turn.
pub fn slots_of(problem: &Problem, parent_of: &HashMap<u32, Option<u32>>) -> Vec<u32> {
    let mut next: HashMap<u32, u32> = HashMap::new();
    for (place, slot) in problem.slots.iter().enumerate().rev() {
        next.insert(slot.parent, place as u32);
    }
    let slot = |child: &Child| {
        let Some(parent) = parent_of[&child.call] else {
            return NO_SLOT;
        };
        let Some(slot) = next.get_mut(&parent) else {
            return NO_SLOT;
        };
        let found = *slot;
        match problem.slots.get(found as usize) {
            Some(slot) if slot.parent == parent => {}
            _ => return NO_SLOT,
        }
        *slot += 1;
        found
    };
    problem.children.iter().map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slip(here: [f64; 2], whole: [f64; 2]) -> f64 {
        let explained = |[gain, entropy]: [f64; 2]| OrderGain { gain, entropy };
        explained(here).slip(explained(whole))
    }

    #[test]
    fn an_order_that_explains_all_that_is_open_has_not_slipped_where_more_is_open_than_elsewhere() {
        let sizes_decide = [6.1, 0.6];
        assert_eq!(slip([6.4, 1.5], sizes_decide), 0.0);
        assert_eq!(slip([4.7, 4.7], sizes_decide), 0.0);
    }

    #[test]
    fn an_order_that_explains_less_than_usual_may_have_slipped() {
        assert!(slip([0.5, 1.5], [6.1, 0.6]) > 0.1);
        assert!(slip([1.0, 0.6], [6.1, 0.6]) > 0.1);
        assert!(slip([2.9, 3.0], [6.0, 3.0]) > 0.1, "as much is open as usual");
        assert!(slip([0.5, 3.0], [2.4, 3.0]) > 0.1);
        assert_eq!(slip([1.5, 3.0], [2.4, 3.0]), 0.0);
    }
}
