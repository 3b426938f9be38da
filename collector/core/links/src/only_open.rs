//! Links a call to the request that alone was open when it was made.
//!
//! Links fill as many slots of each request as requests of its class have in the mean. A request that makes more calls
//! than that leaves some without a parent, even if no other request was open; and the confidence of the others is that
//! of a slot that is seldom filled. But if calls of a kind are made within requests, one that was made while a single
//! request was open is of that one, however many it has.
//!
//! Calls of a kind may also be the host's own, made at any time. How many shows in the time when no request is open:
//! a host that serves requests for 60 % of the time makes 40 % of its own calls while it serves none. So if 2 of 1,000
//! calls are made while none is open, 5 are its own, of whom 3 are made within requests. Which part of the time that is,
//! is counted around the calls: shortly before and after each, at the same distances for all.
//!
//! Input: links of a host's calls. Output: the same, where those made while one request alone was open have that parent
//! with at least the probability that they are not the host's own. Nothing changes for kinds of which many may be, or of
//! which nothing shows it, since some request is always open.
//!
//! Cost: for each call the requests that are open then; other times are looked at for a bounded sample.

use std::collections::BTreeMap;

use crate::dialogues::Call;
use crate::host_links::InferredLink;
use crate::tuning::TUNING;
use crate::work_after_response::SHIFTS;

/// Calls of a kind that are sampled. Structural: bounds the cost.
const SAMPLED_CALLS: usize = 1000;

/// What was open from one time to another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Open {
    Nothing,
    Only(u32),
    Several,
}

/// Links calls to requests that were open alone. `parents` by arrival.
pub fn link(calls: &[Call], kind: &[u16], parents: &[u32], found: &mut [InferredLink]) {
    let mut by_kind: BTreeMap<u16, Vec<&mut InferredLink>> = BTreeMap::new();
    for found in found {
        by_kind.entry(kind[found.child as usize]).or_default().push(found);
    }
    for mut found in by_kind.into_values() {
        found.sort_by_key(|found| calls[found.child as usize].start_ns);
        link_kind(calls, parents, &mut found);
    }
}

/// `found`: of one kind, by start.
fn link_kind(calls: &[Call], parents: &[u32], found: &mut [&mut InferredLink]) {
    let times_of = |found: &&mut InferredLink| {
        let call = &calls[found.child as usize];
        (call.start_ns, call.sent_ns)
    };
    let times: Vec<(i64, i64)> = found.iter().map(times_of).collect();
    let open = open_at(calls, parents, &times);
    let others = open_at(calls, parents, &other_times(&times));
    let Some(own_share) = own_share(&open, &others) else {
        return;
    };
    for (found, open) in found.iter_mut().zip(open) {
        if let Open::Only(request) = open {
            found.confidence = found.confidence.max((1.0 - own_share).min(TUNING.max_confidence));
            found.parent = Some(request);
            found.alternative = None;
        }
    }
}

/// The share of those calls that are made while one request is open alone that are the host's own; nothing if there may
/// be many. Of few calls it is not known that none was made while nothing was open: one more counts as such.
fn own_share(at_calls: &[Open], at_other_times: &[Open]) -> Option<f64> {
    let (calls, others) = (at_calls.len() as f64, at_other_times.len() as f64);
    let own = (1.0 + count(at_calls, is_nothing)) / (1.0 + calls) / (count(at_other_times, is_nothing) / others);
    let share = own * (count(at_other_times, is_only) / others) / (count(at_calls, is_only) / calls);
    (own <= TUNING.only_open_max_own_share && share <= TUNING.only_open_max_own_share).then_some(share)
}

fn count(open: &[Open], is_it: impl Fn(Open) -> bool) -> f64 {
    open.iter().filter(|&&open| is_it(open)).count() as f64
}

fn is_nothing(open: Open) -> bool {
    open == Open::Nothing
}

fn is_only(open: Open) -> bool {
    matches!(open, Open::Only(_))
}

/// Times shortly before and after those of calls, of a bounded sample; by start.
fn other_times(times: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let step = times.len().div_ceil(SAMPLED_CALLS);
    let between_ns = (times[times.len() - 1].0 - times[0].0) as f64 / times.len() as f64;
    let others = |&(start_ns, sent_ns): &(i64, i64)| {
        SHIFTS.map(|shift| {
            let by_ns = (shift * between_ns) as i64;
            (start_ns + by_ns, sent_ns + by_ns)
        })
    };
    let mut found: Vec<(i64, i64)> = times.iter().step_by(step).flat_map(others).collect();
    found.sort_unstable();
    found
}

/// For each of `times`, from a start to when something was sent, by start: which requests were open all the time.
fn open_at(calls: &[Call], parents: &[u32], times: &[(i64, i64)]) -> Vec<Open> {
    let (mut open, mut next): (Vec<u32>, usize) = (vec![], 0);
    let at = |&(start_ns, sent_ns): &(i64, i64)| {
        while next < parents.len() && calls[parents[next] as usize].arrival_ns <= start_ns {
            open.push(parents[next]);
            next += 1;
        }
        open.retain(|&parent| calls[parent as usize].close_ns >= start_ns);
        let mut still = open
            .iter()
            .filter(|&&parent| calls[parent as usize].close_ns >= sent_ns);
        match (still.next(), still.next()) {
            (None, _) => Open::Nothing,
            (Some(&parent), None) => Open::Only(parent),
            (Some(_), Some(_)) => Open::Several,
        }
    };
    times.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const REQUESTS: i64 = 100;

    /// When a request arrives that is open for 12 ms: between 0 and 15 ms after the one before was answered, but every
    /// fifth 3 ms before that.
    fn arrival_ns(number: i64) -> i64 {
        (number * 20 + number * number % 15 - if number % 5 == 4 { 24 } else { 0 }) * MS
    }

    /// Links of calls at these times, which had no parent, or a wrong one.
    fn link_all(starts: impl Iterator<Item = i64>) -> Vec<InferredLink> {
        let mut calls: Vec<Call> = (0..REQUESTS)
            .map(|n| Call::between(arrival_ns(n), arrival_ns(n) + 12 * MS))
            .collect();
        calls.extend(starts.map(|at_ns| Call::between(at_ns, at_ns + MS)));
        let mut parents: Vec<u32> = (0..REQUESTS as u32).collect();
        parents.sort_by_key(|&parent| calls[parent as usize].arrival_ns);
        let children = REQUESTS as u32..calls.len() as u32;
        let mut found: Vec<InferredLink> = children.map(|child| InferredLink::plain(child, None, 0.0)).collect();
        link(&calls, &vec![0; calls.len()], &parents, &mut found);
        found
    }

    #[test]
    fn all_calls_of_a_request_that_is_open_alone_are_its_own() {
        let of = |number: i64| (0..1 + number % 4).map(move |call| arrival_ns(number) + (1 + 2 * call) * MS);
        let found = link_all((0..REQUESTS).flat_map(of));
        let true_parents = (0..REQUESTS).flat_map(|number| (0..1 + number % 4).map(move |_| number as u32));
        let mut alone = 0;
        for (found, parent) in found.iter().zip(true_parents) {
            assert!(found.parent.is_none_or(|given| given == parent), "{found:?}");
            alone += usize::from(found.parent.is_some());
            assert!(found.parent.is_none() || found.confidence > 0.95, "{found:?}");
        }
        assert!(alone > found.len() / 2, "{alone} of {}", found.len());
    }

    #[test]
    fn calls_that_a_host_makes_at_any_time_are_of_no_request() {
        let found = link_all((0..300).map(|call| call * 7 * MS));
        assert!(found.iter().all(|found| found.parent.is_none()));
    }

    #[test]
    fn where_some_request_is_always_open_nothing_shows_who_makes_the_calls() {
        let mut calls = vec![Call::between(0, 10_000 * MS)];
        calls.extend((0..300).map(|call| Call::between((5 + call * 7) * MS, (6 + call * 7) * MS)));
        let mut found: Vec<InferredLink> = (1..301).map(|child| InferredLink::plain(child, None, 0.0)).collect();
        link(&calls, &[0; 301], &[0], &mut found);
        assert!(found.iter().all(|found| found.parent.is_none()));
    }
}
