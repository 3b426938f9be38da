//! Marginal probabilities of links without an order, by belief propagation.
//!
//! Input: the possible pairs of calls and slots, each with a weight. Output: the probability of each pair under a
//! random matching, in which a slot takes at most one call and a call at most one slot, and in which a matching is as
//! likely as the product of its weights.
//!
//! Messages alternate: a call sends each slot how much it wants it, against its other slots; a slot sends each call how
//! much the others want it.
//!
//! Cost: for each round the possible pairs, at most `Tuning::max_pairs_per_call` for a call. Limits: the graph of pairs
//! has loops, so marginals are approximate: a little too sure, and where few requests are open at a time much too sure;
//! there [`crate::exact_marginals`] replaces them.
//!
//! Source: Huang and Jebara, "Approximating the Permanent with Belief Propagation", 2009.

use crate::tuning::TUNING;

/// Possible pairs, by call.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Where each call's pairs begin, and where the last one's end.
    pub from: Vec<u32>,
    pub slot: Vec<u32>,
}

impl Pairs {
    pub fn of(&self, child: usize) -> std::ops::Range<usize> {
        self.from[child] as usize..self.from[child + 1] as usize
    }
}

/// Sums over all matchings.
#[derive(Clone, Debug, Default)]
pub struct Marginals {
    /// The probability of each pair.
    pub probability: Vec<f64>,
    /// Logarithm of the sum over all matchings of the product of their weights (Bethe's approximation, a lower bound):
    /// the part of each call.
    pub log_sums: Vec<f64>,
}

/// `weight`: odds of each pair against a call without parent and an empty slot; `slots`: their number.
pub fn propagate(pairs: &Pairs, weight: &[f64], slots: usize) -> Marginals {
    let mut free = vec![1.0; pairs.slot.len()];
    let mut wish = vec![0.0; pairs.slot.len()];
    let mut wanted = vec![0.0; slots];
    for turn in 0..TUNING.propagation_rounds {
        wanted.fill(0.0);
        let mut is_settled = true;
        for child in 0..pairs.from.len() - 1 {
            let range = pairs.of(child);
            let (weight, free, slots) = (&weight[range.clone()], &free[range.clone()], &pairs.slot[range.clone()]);
            let wish = &mut wish[range];
            let total: f64 = 1.0 + weight.iter().zip(free).map(|(weight, free)| weight * free).sum::<f64>();
            let least = 1e-9 * total;
            for ((wish, weight), free) in wish.iter_mut().zip(weight).zip(free) {
                let new = weight / (total - weight * free).max(least);
                // the geometric mean with the previous round keeps messages from oscillating
                let next = if turn == 0 { new } else { (*wish * new).sqrt() };
                is_settled &= (next - *wish).abs() < TUNING.propagation_tolerance * (1.0 + next);
                *wish = next;
            }
            for (slot, wish) in slots.iter().zip(wish.iter()) {
                wanted[*slot as usize] += wish;
            }
        }
        for (at, &slot) in pairs.slot.iter().enumerate() {
            let total = 1.0 + wanted[slot as usize];
            free[at] = 1.0 / (total - wish[at]).max(1e-9 * total);
        }
        if is_settled {
            break;
        }
    }
    let mut found = Marginals {
        probability: vec![0.0; pairs.slot.len()],
        log_sums: vec![0.0; pairs.from.len() - 1],
    };
    for (child, log_sum) in found.log_sums.iter_mut().enumerate() {
        let total: f64 = 1.0 + pairs.of(child).map(|at| weight[at] * free[at]).sum::<f64>();
        *log_sum = total.ln();
        for at in pairs.of(child) {
            found.probability[at] = weight[at] * free[at] / total;
            let wanted = wanted[pairs.slot[at] as usize];
            *log_sum += wish[at] / wanted * wanted.ln_1p() - (wish[at] * free[at]).ln_1p();
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Every child may have every slot.
    pub(crate) fn every_pair(weights: &[&[f64]]) -> Pairs {
        let slots = weights[0].len() as u32;
        Pairs {
            from: (0..=weights.len() as u32).map(|child| child * slots).collect(),
            slot: weights.iter().flat_map(|_| 0..slots).collect(),
        }
    }

    /// Sums over all matchings: of all, and of those with the given pair.
    pub(crate) fn sums_over_matchings(weights: &[&[f64]], child: usize, used: u32, pair: (usize, usize)) -> (f64, f64) {
        if child == weights.len() {
            return (1.0, 1.0);
        }
        let (mut total, mut with) = (0.0, 0.0);
        let ways = std::iter::once((usize::MAX, 1.0)).chain(weights[child].iter().copied().enumerate());
        for (slot, weight) in ways {
            if slot != usize::MAX && used >> slot & 1 == 1 {
                continue;
            }
            let taken = if slot == usize::MAX { used } else { used | 1 << slot };
            let rest = sums_over_matchings(weights, child + 1, taken, pair);
            total += weight * rest.0;
            with += if child == pair.0 && slot != pair.1 {
                0.0
            } else {
                weight * rest.1
            };
        }
        (total, with)
    }

    #[test]
    fn shares_are_near_those_of_all_matchings() {
        let cases: [&[&[f64]]; 4] = [
            &[&[5.0, 5.0], &[5.0, 5.0]],
            &[&[50.0, 50.0, 0.0], &[50.0, 0.0, 50.0], &[0.0, 50.0, 0.0]],
            &[&[9.0, 3.0, 1.0], &[2.0, 8.0, 0.5], &[1.0, 1.0, 20.0]],
            &[&[1e6, 1e6], &[1e6, 0.0]],
        ];
        for weights in cases {
            let found = propagate(&every_pair(weights), &weights.concat(), weights[0].len());
            for (at, share) in found.probability.iter().enumerate() {
                let pair = (at / weights[0].len(), at % weights[0].len());
                let (total, with) = sums_over_matchings(weights, 0, 0, pair);
                let wanted = with / total;
                assert!(
                    (share - wanted).abs() < 0.06,
                    "{weights:?} {pair:?}: {share} is not {wanted}"
                );
            }
        }
    }
}
