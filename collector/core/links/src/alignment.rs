//! Computes the links that keep an order: the alignment of two sequences with the largest sum of scores, by dynamic
//! programming.
//!
//! Slots are in the order of causes, calls in the order of actions. If the server keeps an order (first come, first
//! served), true links do not cross. An empty slot and a call without parent have a price, so one odd request does not
//! shift all later links, and the result is the best as a whole.
//!
//! Input: for each call the range of slots that are possible; scores. Output: the slot of each call, increasing, or
//! `NO_SLOT`.
//!
//! Cost: time, and a byte of memory, for each cell between a call's first and last possible slot.
//!
//! Source: Needleman and Wunsch, 1970; banded.

use std::ops::Range;

pub const NO_SLOT: u32 = u32::MAX;

/// The range of slots considered for each call; neither end ever decreases.
#[derive(Clone, Debug)]
pub struct Band {
    from: Vec<u32>,
    to: Vec<u32>,
}

impl Band {
    /// `ranges` of possible slots, for calls in order; `(u32::MAX, 0)` where there is none.
    pub fn new(ranges: Vec<(u32, u32)>, slots: usize) -> Self {
        let (mut from, mut to): (Vec<u32>, Vec<u32>) = ranges.into_iter().unzip();
        let mut least = slots as u32;
        for value in from.iter_mut().rev() {
            least = least.min(*value);
            *value = least;
        }
        let mut most = 0;
        for (value, from) in to.iter_mut().zip(&from) {
            most = most.max(*value).max(*from);
            *value = most;
        }
        Band { from, to }
    }

    pub fn range(&self, child: usize) -> Range<usize> {
        self.from[child] as usize..self.to[child] as usize
    }
}

const ALONE: u8 = 0;
const LINKED: u8 = 1;
const CARRIED: u8 = 2;

/// The slot of each call, or `NO_SLOT`. `score(slot, call)`: the gain of a link, minus infinity if impossible;
/// `empty[slot]`: that of an empty slot; `alone`: that of a call without parent.
pub fn align(band: &Band, empty: &[f32], alone: f32, score: impl Fn(usize, usize) -> f32) -> Vec<u32> {
    let mut choices: Vec<u8> = vec![];
    let mut rows = Vec::with_capacity(band.from.len());
    // best[i - base]: over the calls so far, using slots below i only, minus the price of empty slots below i
    let (mut best, mut next, mut base): (Vec<f32>, Vec<f32>, usize) = (vec![0.0], vec![], 0);
    for child in 0..band.from.len() {
        let range = band.range(child);
        rows.push(choices.len());
        next.clear();
        // sums grow with the trace, so each row is stored relative to its first value
        let first = best[(range.start - base).min(best.len() - 1)];
        let at = |slot: usize| best[(slot - base).min(best.len() - 1)] - first;
        next.push(at(range.start) + alone);
        choices.push(ALONE);
        for slot in range.clone() {
            let linked = at(slot) + score(slot, child) - empty[slot];
            let stay = at(slot + 1) + alone;
            let carried = next[slot - range.start];
            let (value, choice) = if linked > stay && linked > carried {
                (linked, LINKED)
            } else if carried >= stay {
                (carried, CARRIED)
            } else {
                (stay, ALONE)
            };
            next.push(value);
            choices.push(choice);
        }
        base = range.start;
        std::mem::swap(&mut best, &mut next);
    }
    trace_back(band, &rows, &choices)
}

fn trace_back(band: &Band, rows: &[usize], choices: &[u8]) -> Vec<u32> {
    let mut found = vec![NO_SLOT; rows.len()];
    let mut used = usize::MAX;
    for child in (0..rows.len()).rev() {
        let range = band.range(child);
        used = used.min(range.end);
        while used > range.start && choices[rows[child] + used - range.start] == CARRIED {
            used -= 1;
        }
        if used > range.start && choices[rows[child] + used - range.start] == LINKED {
            used -= 1;
            found[child] = used as u32;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE_COST: f32 = -5.0;

    /// The best sum over all ways that do not cross, by trying each.
    fn best(slots: &[f32], scores: &[Vec<f32>], child: usize) -> f32 {
        if child == scores.len() {
            return slots.iter().sum();
        }
        let mut most = ALONE_COST + best(slots, scores, child + 1);
        for (place, _) in slots.iter().enumerate() {
            let score = scores[child][scores[child].len() - slots.len() + place];
            let skipped: f32 = slots[..place].iter().sum();
            most = most.max(skipped + score + best(&slots[place + 1..], scores, child + 1));
        }
        most
    }

    fn value(found: &[u32], empty: &[f32], scores: &[Vec<f32>]) -> f32 {
        let linked = |(child, &slot): (usize, &u32)| match slot {
            NO_SLOT => ALONE_COST,
            slot => scores[child][slot as usize] - empty[slot as usize],
        };
        empty.iter().sum::<f32>() + found.iter().enumerate().map(linked).sum::<f32>()
    }

    /// Numbers from 0 to 1 that look random (Knuth, TAOCP 2, section 3.3.4, line 26).
    fn numbers(mut state: u64) -> impl FnMut() -> f32 {
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        }
    }

    #[test]
    fn the_sum_is_the_largest_without_crossing() {
        let mut next = numbers(1);
        for case in 0..300 {
            let (children, slots) = (case % 5, 1 + case % 6);
            let empty: Vec<f32> = (0..slots).map(|_| -3.0 * next()).collect();
            let scores: Vec<Vec<f32>> = (0..children)
                .map(|_| (0..slots).map(|_| 12.0 * next() - 8.0).collect())
                .collect();
            let band = Band::new(vec![(0, slots as u32); children], slots);
            let found = align(&band, &empty, ALONE_COST, |slot, child| scores[child][slot]);
            let used: Vec<u32> = found.iter().copied().filter(|&slot| slot != NO_SLOT).collect();
            assert!(used.is_sorted_by(|a, b| a < b), "crossing: {found:?}");
            let (sum, most) = (value(&found, &empty, &scores), best(&empty, &scores, 0));
            assert!((sum - most).abs() < 1e-3, "case {case}: {sum} is not {most}");
        }
    }

    #[test]
    fn slots_outside_the_band_are_never_used() {
        let band = Band::new(vec![(0, 1), (u32::MAX, 0), (2, 4)], 4);
        let found = align(&band, &[-1.0; 4], -9.0, |slot, _| slot as f32);
        assert_eq!(found, [0, NO_SLOT, 3]);
    }
}
