//! Evidence of byte counts before any link is made.
//!
//! A body that is passed on identifies its request. That is learned from links; but where delays carry no information
//! (random waits, many requests at once) the first links are wrong and teach nothing. So requests that were open at a
//! call's start are compared with requests of the same classes shortly before or after. One of the open ones is the
//! parent, so differences of byte counts that are more frequent among the open ones than chance allows are those of
//! links. If there are none, byte counts are left out until links show some.
//!
//! Cost: for each kind of call a bounded sample of pairs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dialogues::{Call, by_class};
use crate::evidence::{Differences, Tally};

/// Calls of a kind that are sampled, and pairs of each. Structural: they bound the cost.
const SAMPLED_CALLS: usize = 1000;
const SAMPLED_PAIRS: usize = 32;

/// Scores of the differences of requests and of responses; shared by all problems of a kind.
pub type Sizes = Arc<[Differences; 2]>;

/// The scores; nothing if open requests do not differ from others. `parents` by arrival, `children` by start.
pub fn sizes(calls: &[Call], class: &[u16], parents: &[u32], children: &[u32]) -> Option<Sizes> {
    let (of_class, place) = by_class(class, parents);
    let mut near: [Tally; 2] = Default::default();
    let mut far: [Tally; 2] = Default::default();
    let (mut open, mut next, mut links): (Vec<usize>, usize, f64) = (vec![], 0, 0.0);
    let step = children.len().div_ceil(SAMPLED_CALLS).max(1);
    for child in children.iter().step_by(step).map(|&child| &calls[child as usize]) {
        while next < parents.len() && calls[parents[next] as usize].arrival_ns <= child.start_ns {
            open.push(next);
            next += 1;
        }
        open.retain(|&at| calls[parents[at] as usize].close_ns >= child.start_ns);
        if child.is_cut {
            continue;
        }
        let mut ends: HashMap<u16, (usize, usize)> = HashMap::new();
        for &at in &open {
            let of_class = ends
                .entry(class[parents[at] as usize])
                .or_insert((place[at], place[at]));
            of_class.1 = place[at];
        }
        let step = open.len().div_ceil(SAMPLED_PAIRS).max(1);
        for &at in open.iter().step_by(step) {
            let number = class[parents[at] as usize];
            let Some(other) = not_open(&of_class[&number], place[at], ends[&number]) else {
                continue;
            };
            links += 1.0 / open.len() as f64;
            for (parent, tallies) in [(parents[at], &mut near), (other, &mut far)] {
                let parent = &calls[parent as usize];
                *tallies[0]
                    .entry(parent.request_bytes - child.request_bytes)
                    .or_default() += 1.0;
                *tallies[1]
                    .entry(parent.response_bytes - child.response_bytes)
                    .or_default() += 1.0;
            }
        }
    }
    let found = [0, 1].map(|side| Differences::before_links(&near[side], &far[side], links));
    found.iter().any(Differences::distinguishes).then(|| Arc::new(found))
}

/// The request nearest in time of the same class that was not open: so what changes in the course of a trace is no
/// difference. `ends`: places of the first and the last that were open.
fn not_open(same: &[u32], place: usize, ends: (usize, usize)) -> Option<u32> {
    let span = ends.1 - ends.0 + 1;
    let later = same.get(place + span);
    later.or_else(|| same.get(place.checked_sub(span)?)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NONE;
    use crate::target_words::Words;

    const SEEDS: i64 = 20;

    /// A request, or a call, open for 10 ms from a time on.
    fn exchange(at_ms: i64, response_bytes: i64) -> Call {
        let (from, until) = (at_ms * 1_000_000, (at_ms + 10) * 1_000_000);
        Call {
            client_host: 0,
            server_host: 0,
            service: 0,
            connection_id: 0,
            start_ns: from,
            sent_ns: from,
            answered_ns: until,
            arrival_ns: from,
            response_ns: until,
            close_ns: until,
            request_bytes: 100,
            response_bytes,
            is_cut: false,
            method: NONE,
            call_words: Words::default(),
            served_words: Words::default(),
        }
    }

    /// Requests of 600 sizes, ten open at a time, and a call of each, whose answer is shorter by what `passed` says.
    fn sizes_of(passed: impl Fn(i64, i64) -> i64) -> Option<Sizes> {
        let size = |n: i64| 200 + n.pow(3) * 7919 % 19_997;
        let mut calls: Vec<Call> = (0..600).map(|n| exchange(n, size(n))).collect();
        calls.extend((0..600).map(|n| exchange(n + 5, passed(n, size(n)))));
        sizes(
            &calls,
            &[0; 1200],
            &(0..600).collect::<Vec<u32>>(),
            &(600..1200).collect::<Vec<u32>>(),
        )
    }

    fn score(found: &Sizes, difference: i64) -> f32 {
        found[1].score(difference)
    }

    #[test]
    fn what_passes_through_shows_before_anything_is_linked() {
        let found = sizes_of(|_, size| size - 57).expect("the same difference of all");
        assert!(score(&found, 57) > 3.0 && score(&found, 58) < -1.0);
    }

    #[test]
    fn so_does_what_passes_through_in_an_envelope_of_any_length() {
        let found = sizes_of(|n, size| size - n * 31 % 200).expect("about the same of all");
        assert!(score(&found, 120) > 1.0 && score(&found, 9_000) < -1.0 && score(&found, -120) < -1.0);
    }

    /// A number by chance, always the same of the same.
    fn draw(of: i64) -> i64 {
        let value = (of as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let value = (value ^ (value >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((value ^ (value >> 32)) >> 1) as i64
    }

    #[test]
    fn what_changes_in_the_course_of_a_trace_says_nothing() {
        for seed in 1..=SEEDS {
            let size = |n: i64, of: i64| 1000 * (n / 500) + draw(of + seed * 10_000) % 7;
            let mut calls: Vec<Call> = (0..2000).map(|n| exchange(n, size(n, n))).collect();
            calls.extend((0..2000).map(|n| exchange(n + 5, size(n, n + 5_000))));
            let (parents, children): (Vec<u32>, Vec<u32>) = ((0..2000).collect(), (2000..4000).collect());
            assert!(sizes(&calls, &[0; 4000], &parents, &children).is_none(), "{seed}");
        }
    }

    #[test]
    fn answers_of_other_lengths_say_nothing() {
        for seed in 1..=SEEDS {
            assert!(
                sizes_of(|n, _| 200 + draw(n + seed * 1_000) % 19_991).is_none(),
                "{seed}"
            );
        }
    }
}
