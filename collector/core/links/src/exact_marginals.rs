//! Exact marginal probabilities of links where few slots are possible at a time.
//!
//! Belief propagation ([`crate::marginals`]) takes the likelier of two ways to link two calls with two requests for the
//! only one (Bethe's approximation of a 2 × 2 permanent is the larger of its two products; Vontobel, "The Bethe
//! Permanent of a Nonnegative Matrix", 2013). Here all ways are summed up by dynamic programming over calls in order of
//! start. The state is the set of slots, among those that a later call may also take, that are already taken (a forward
//! and a backward pass, as for a hidden Markov model).
//!
//! 1. Calls connected through slots form a *component*; each is summed up by itself.
//! 2. A slot is part of the state from the first call that may take it to the last. A component is done here if its
//!    state has few slots at once.
//!
//! Invariants: the probabilities of a call sum up to at most 1, those of a slot too.
//!
//! Cost: for each call 2^(slots of the state) times its possible slots, three times; bounded by `MAX_STEPS` beyond
//! components of at most `MAX_SLOTS_ALWAYS_EXACT`: about 0.3 s of CPU time and 32 MB for a thousand calls.

use crate::marginals::Pairs;

/// Slots of a state, in components that are always done, and in any. Structural: they bound time and memory.
const MAX_SLOTS_ALWAYS_EXACT: usize = 4;
const MAX_SLOTS: usize = 12;
/// Steps for wider components, at most. Structural: bounds the time.
const MAX_STEPS: usize = 20_000_000;

/// The calls between which a slot is part of the state.
#[derive(Clone, Copy)]
struct Life {
    first: u32,
    last: u32,
    /// The component of its calls, by the number of its first call.
    of: u32,
}

const NO_LIFE: Life = Life {
    first: u32::MAX,
    last: 0,
    of: u32::MAX,
};

/// Replaces the probabilities `found`, computed by belief propagation, by exact ones where that is cheap; `weight` as
/// there.
pub fn refine(pairs: &Pairs, weight: &[f64], slots: usize, found: &mut [f64]) {
    let mut lives = vec![NO_LIFE; slots];
    let component = components(pairs, &mut lives);
    let mut children: Vec<u32> = (0..component.len() as u32).collect();
    children.sort_by_key(|&child| component[child as usize]);
    let mut left = MAX_STEPS;
    let mut sum = MatchingSums::default();
    for children in children.chunk_by(|&a, &b| component[a as usize] == component[b as usize]) {
        let width = width(pairs, children, &lives);
        if width > MAX_SLOTS {
            continue;
        }
        if width > MAX_SLOTS_ALWAYS_EXACT {
            let several: usize = children.iter().map(|&child| pairs.of(child as usize).len()).sum();
            let steps = several << width;
            if steps > left {
                continue;
            }
            left -= steps;
        }
        sum.marginals_of(pairs, weight, children, &mut lives, width, found);
    }
}

/// The component of each call, by the number of one of its calls; also sets the first and last call of each slot.
fn components(pairs: &Pairs, lives: &mut [Life]) -> Vec<u32> {
    let children = pairs.from.len() - 1;
    let mut leader: Vec<u32> = (0..children as u32).collect();
    for child in 0..children {
        for at in pairs.of(child) {
            let life = &mut lives[pairs.slot[at] as usize];
            if life.first == u32::MAX {
                (life.first, life.of) = (child as u32, child as u32);
            } else {
                let (a, b) = (leader_of(&mut leader, life.of), leader_of(&mut leader, child as u32));
                leader[a.max(b) as usize] = a.min(b);
            }
            life.last = child as u32;
        }
    }
    (0..children as u32)
        .map(|child| leader_of(&mut leader, child))
        .collect()
}

fn leader_of(leader: &mut [u32], child: u32) -> u32 {
    let mut at = child;
    while leader[at as usize] != at {
        leader[at as usize] = leader[leader[at as usize] as usize];
        at = leader[at as usize];
    }
    at
}

/// The largest number of slots of a state.
fn width(pairs: &Pairs, children: &[u32], lives: &[Life]) -> usize {
    let (mut now, mut most) = (0, 0);
    for &child in children {
        let life = |at: usize| lives[pairs.slot[at] as usize];
        now += pairs.of(child as usize).filter(|&at| life(at).first == child).count();
        most = most.max(now);
        now -= pairs.of(child as usize).filter(|&at| life(at).last == child).count();
    }
    most
}

/// Sums over all matchings by state; buffers are reused.
#[derive(Default)]
struct MatchingSums {
    /// Before each call, one state vector after another.
    before: Vec<f64>,
    after: Vec<f64>,
    /// The bit of the slot of each pair of the component.
    bits: Vec<u32>,
}

impl MatchingSums {
    fn marginals_of(
        &mut self,
        pairs: &Pairs,
        weight: &[f64],
        children: &[u32],
        lives: &mut [Life],
        width: usize,
        found: &mut [f64],
    ) {
        self.assign_bits(pairs, children, lives);
        self.forward(pairs, weight, children, lives, width);
        self.backward(pairs, weight, children, lives, width, found);
    }

    /// Gives each slot a bit for as long as it is part of the state.
    fn assign_bits(&mut self, pairs: &Pairs, children: &[u32], lives: &mut [Life]) {
        self.bits.clear();
        let mut free = u32::MAX;
        for &child in children {
            for at in pairs.of(child as usize) {
                let life = &mut lives[pairs.slot[at] as usize];
                if life.first == child {
                    life.of = 1 << free.trailing_zeros();
                    free &= !life.of;
                }
                self.bits.push(life.of);
            }
            for at in pairs.of(child as usize) {
                let life = &lives[pairs.slot[at] as usize];
                if life.last == child {
                    free |= life.of;
                }
            }
        }
    }

    fn forward(&mut self, pairs: &Pairs, weight: &[f64], children: &[u32], lives: &[Life], width: usize) {
        let states = 1 << width;
        self.before.clear();
        self.before.resize(states * (children.len() + 1), 0.0);
        self.before[0] = 1.0;
        let mut bit = self.bits.iter();
        for (place, &child) in children.iter().enumerate() {
            let (now, next) = self.before[place * states..].split_at_mut(states);
            let next = &mut next[..states];
            next.copy_from_slice(now);
            let mut over = 0;
            for (at, &bit) in pairs.of(child as usize).zip(bit.by_ref()) {
                let bit = bit as usize;
                for state in (0..states).filter(|state| state & bit == 0) {
                    next[state | bit] += weight[at] * now[state];
                }
                if lives[pairs.slot[at] as usize].last == child {
                    over |= bit;
                }
            }
            forget(next, over);
            let total: f64 = next.iter().sum();
            next.iter_mut().for_each(|value| *value /= total);
        }
    }

    fn backward(
        &mut self,
        pairs: &Pairs,
        weight: &[f64],
        children: &[u32],
        lives: &[Life],
        width: usize,
        found: &mut [f64],
    ) {
        let states = 1 << width;
        let mut later = vec![1.0; states];
        self.after.resize(states, 0.0);
        let mut end = self.bits.len();
        for (place, &child) in children.iter().enumerate().rev() {
            let now = &self.before[place * states..(place + 1) * states];
            let range = pairs.of(child as usize);
            let bits = &self.bits[end - range.len()..end];
            end -= range.len();
            let over = range.clone().zip(bits).fold(0, |over, (at, &bit)| {
                let is_over = lives[pairs.slot[at] as usize].last == child;
                over | if is_over { bit as usize } else { 0 }
            });
            for state in (0..states).filter(|state| state & over != 0) {
                later[state] = later[state & !over];
            }
            let earlier = &mut self.after[..states];
            earlier.copy_from_slice(&later);
            let mut all: f64 = now.iter().zip(&later).map(|(now, later)| now * later).sum();
            for (at, &bit) in range.clone().zip(bits) {
                let bit = bit as usize;
                let mut taken = 0.0;
                for state in (0..states).filter(|state| state & bit == 0) {
                    let with = weight[at] * later[state | bit];
                    taken += now[state] * with;
                    earlier[state] += with;
                }
                found[at] = taken;
                all += taken;
            }
            let most = earlier.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            for at in range {
                found[at] /= all;
            }
            later
                .iter_mut()
                .zip(earlier)
                .for_each(|(later, value)| *later = *value / most);
        }
    }
}

/// Sums out slots that no later call may take.
fn forget(sums: &mut [f64], over: usize) {
    if over == 0 {
        return;
    }
    for state in (0..sums.len()).filter(|state| state & over != 0) {
        sums[state & !over] += sums[state];
        sums[state] = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marginals::tests::{every_pair, sums_over_matchings};

    fn shares(pairs: &Pairs, weight: &[f64], slots: usize) -> Vec<f64> {
        let mut found = crate::marginals::propagate(pairs, weight, slots).probability;
        refine(pairs, weight, slots, &mut found);
        found
    }

    #[test]
    fn shares_are_those_of_all_matchings() {
        let cases: [&[&[f64]]; 4] = [
            &[&[5.0, 5.0], &[5.0, 5.0]],
            &[&[50.0, 50.0, 0.0], &[50.0, 0.0, 50.0], &[0.0, 50.0, 0.0]],
            &[&[9.0, 3.0, 1.0], &[2.0, 8.0, 0.5], &[1.0, 1.0, 20.0]],
            &[&[1e6, 1e6], &[1e6, 0.0]],
        ];
        for weights in cases {
            let found = shares(&every_pair(weights), &weights.concat(), weights[0].len());
            for (at, share) in found.iter().enumerate() {
                let pair = (at / weights[0].len(), at % weights[0].len());
                let (total, with) = sums_over_matchings(weights, 0, 0, pair);
                let wanted = with / total;
                assert!(
                    (share - wanted).abs() < 1e-6,
                    "{weights:?} {pair:?}: {share} is not {wanted}"
                );
            }
        }
    }

    #[test]
    fn two_calls_of_two_requests_are_as_open_as_chance_leaves_them() {
        let weights: [&[f64]; 2] = [&[5500.0, 4500.0], &[5000.0, 5000.0]];
        let found = shares(&every_pair(&weights), &weights.concat(), 2);
        assert!((found[0] - 0.55).abs() < 0.01, "{:?}", found);
    }

    #[test]
    fn calls_one_after_another_are_summed_up_by_what_is_open_between_them() {
        let weights: [&[f64]; 6] = [
            &[9.0, 3.0, 0.0, 0.0, 0.0, 0.0],
            &[2.0, 8.0, 0.5, 0.0, 0.0, 0.0],
            &[0.0, 1.0, 20.0, 4.0, 0.0, 0.0],
            &[0.0, 0.0, 7.0, 6.0, 0.0, 0.0],
            &[0.0, 0.0, 0.0, 0.0, 3.0, 2.0],
            &[0.0, 0.0, 0.0, 1.0, 1.0, 4.0],
        ];
        let sparse = sparse(&weights);
        let weight: Vec<f64> = weights.concat().into_iter().filter(|&weight| weight > 0.0).collect();
        let found = shares(&sparse, &weight, 6);
        for child in 0..6 {
            for at in sparse.of(child) {
                let (total, with) = sums_over_matchings(&weights, 0, 0, (child, sparse.slot[at] as usize));
                assert!((found[at] - with / total).abs() < 1e-9, "{child} {at}");
            }
        }
    }

    /// Only pairs that are possible.
    fn sparse(weights: &[&[f64]]) -> Pairs {
        let mut pairs = Pairs {
            from: vec![0],
            slot: vec![],
        };
        for row in weights {
            pairs
                .slot
                .extend((0..row.len() as u32).filter(|&slot| row[slot as usize] > 0.0));
            pairs.from.push(pairs.slot.len() as u32);
        }
        pairs
    }

    /// Six times two calls of two requests, and any other pair is possible, too.
    #[test]
    fn where_twelve_requests_are_open_calls_are_as_open_as_chance_leaves_them() {
        let row = |child: usize| {
            let mut row = vec![1e-3; 12];
            let (two, weights) = (child / 2 * 2, [[5500.0, 4500.0], [5000.0, 5000.0]][child % 2]);
            row[two..two + 2].copy_from_slice(&weights);
            row
        };
        let rows: Vec<Vec<f64>> = (0..12).map(row).collect();
        let weights: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let (pairs, weight) = (every_pair(&weights), weights.concat());
        let by_propagation = crate::marginals::propagate(&pairs, &weight, 12).probability[0];
        let found = shares(&pairs, &weight, 12)[0];
        assert!(
            (found - 0.55).abs() < 0.01 && by_propagation > 0.6,
            "{found}, {by_propagation} by turns"
        );
    }

    #[test]
    fn more_slots_than_a_machine_word_has_bits_are_left_as_they_are() {
        let rows: Vec<Vec<f64>> = vec![vec![1.0; 70]; 70];
        let weights: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let (pairs, weight) = (every_pair(&weights), weights.concat());
        assert_eq!(
            shares(&pairs, &weight, 70),
            crate::marginals::propagate(&pairs, &weight, 70).probability
        );
    }

    #[test]
    fn shares_of_many_slots_at_a_time_are_nearly_those_of_all_matchings() {
        let rows: Vec<Vec<f64>> = (0..11u32)
            .map(|child| {
                (0..11u32)
                    .map(|slot| f64::from((child * 7 + slot * 3) % 11 + 1))
                    .collect()
            })
            .collect();
        let weights: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let found = shares(&every_pair(&weights), &weights.concat(), 11);
        let of_first: f64 = found[..11].iter().sum();
        assert!(of_first > 0.7 && of_first < 1.0, "{of_first}");
    }
}
