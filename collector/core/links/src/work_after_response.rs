//! Calls after the response: for how long after its response a request may still make calls.
//!
//! A service may answer at once and work afterwards; one that joins several calls does so with the last of them. Then
//! calls leave while no request is open. Whether they belong to requests shows in their timing: for each call, count
//! the requests that arrived up to each time before it, and subtract the same count at other times, shortly before and
//! after. The excess are the requests that made the calls; where it stops growing is how long requests linger. Periodic
//! calls of a daemon have no such excess.
//!
//! Input: requests and calls of one kind. Output: the time, or nothing if there is no significant excess.
//!
//! Cost: a bounded sample of calls, and for each a bounded number of earlier requests.

use crate::dialogues::Call;
use crate::evidence::{log_bin, log_lower_ns};
use crate::tuning::TUNING;

/// Calls that are sampled, requests before each, and how far back they may lie. Structural: they bound the cost.
const SAMPLED_CALLS: usize = 1000;
const SAMPLED_REQUESTS: usize = 128;
const MAX_LOOKBACK_NS: i64 = 10_000_000_000;
/// Bins of time, four to the octave: up to days. Structural: the length of arrays.
const BINS: usize = 160;
/// The other times, in units of the mean time between calls. Structural: on both sides, and in no simple ratio, so that
/// periodic calls do not fall on each other.
pub const SHIFTS: [f64; 6] = [-7.3, -5.1, -3.7, 3.3, 5.7, 7.9];

/// For how long after their responses requests make such calls; nothing if they do not. `parents` by arrival,
/// `children` by start.
pub fn linger_ns(calls: &[Call], parents: &[u32], children: &[u32]) -> Option<i64> {
    let orphans = orphan_starts(calls, parents, children);
    if orphans.is_empty() || (orphans.len() as f64) < TUNING.linger_min_orphan_share * children.len() as f64 {
        return None;
    }
    let opened: Vec<i64> = parents
        .iter()
        .map(|&parent| calls[parent as usize].arrival_ns)
        .collect();
    let step = orphans.len().div_ceil(SAMPLED_CALLS);
    let some: Vec<i64> = orphans.iter().copied().step_by(step).collect();
    let between = (orphans[orphans.len() - 1] - orphans[0]) as f64 / orphans.len() as f64;
    let more: Vec<[f64; BINS]> = some.iter().map(|&at| more_at(&opened, at, between)).collect();
    let sums: Vec<f64> = (0..BINS).map(|bin| more.iter().map(|call| call[bin]).sum()).collect();
    let is_more = |bin: usize| {
        sums[bin] > TUNING.linger_min_excess_requests * some.len() as f64
            && sums[bin] > TUNING.linger_sigmas * deviation(&some, &more, bin)
    };
    // a call has one parent: an excess above 1 are requests that arrive in bursts with it
    let most = sums.iter().copied().fold(0.0, f64::max).min(some.len() as f64);
    let end = sums
        .iter()
        .position(|&more| more >= TUNING.linger_covered_share * most)?;
    (0..BINS)
        .any(is_more)
        .then(|| (TUNING.linger_margin_ratio * log_lower_ns(end + 1)) as i64)
}

/// Requests before a call minus those before other times, cumulated over bins of time.
fn more_at(opened: &[i64], at: i64, between: f64) -> [f64; BINS] {
    let mut more = lags(opened, at);
    for shift in SHIFTS {
        for (more, count) in more.iter_mut().zip(lags(opened, at + (shift * between) as i64)) {
            *more -= count / SHIFTS.len() as f64;
        }
    }
    let mut sum = 0.0;
    more.map(|more| {
        sum += more;
        sum
    })
}

/// The standard deviation of a sum of `more`. Calls that are nearer to each other than the bin's time have the same
/// requests before them, and count as one.
fn deviation(times: &[i64], more: &[[f64; BINS]], bin: usize) -> f64 {
    let apart_ns = log_lower_ns(bin + 1) as i64;
    let (mut first, mut group, mut squares) = (times[0], 0.0, 0.0);
    for (&at, more) in times.iter().zip(more) {
        if at - first > apart_ns {
            squares += group * group;
            (first, group) = (at, 0.0);
        }
        group += more[bin];
    }
    f64::sqrt(squares + group * group)
}

/// Starts of calls that left while no request was open.
fn orphan_starts(calls: &[Call], parents: &[u32], children: &[u32]) -> Vec<i64> {
    let (mut next, mut until_ns) = (0, i64::MIN);
    let mut found = vec![];
    for &child in children {
        let start_ns = calls[child as usize].start_ns;
        while next < parents.len() && calls[parents[next] as usize].arrival_ns <= start_ns {
            until_ns = until_ns.max(calls[parents[next] as usize].close_ns);
            next += 1;
        }
        if until_ns < start_ns && next > 0 {
            found.push(start_ns);
        }
    }
    found
}

/// Requests by the time from their arrival to `at`, in bins.
fn lags(opened: &[i64], at: i64) -> [f64; BINS] {
    let mut counts = [0.0; BINS];
    let until = opened.partition_point(|&open| open <= at);
    for &open in opened[until.saturating_sub(SAMPLED_REQUESTS)..until].iter().rev() {
        if at - open > MAX_LOOKBACK_NS {
            break;
        }
        counts[log_bin(at - open, BINS)] += 1.0;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    /// Eight times a hundred requests within two seconds, and eight seconds of nothing.
    const BURSTS: i64 = 8;
    const REQUESTS: i64 = 100;

    /// A request that is answered after 2 ms.
    fn request(at_ns: i64) -> Call {
        Call {
            arrival_ns: at_ns,
            response_ns: at_ns + 2 * MS,
            close_ns: at_ns + 2 * MS,
            ..call(at_ns)
        }
    }

    fn call(at_ns: i64) -> Call {
        Call {
            client_host: 0,
            server_host: 1,
            service: 0,
            connection_id: 0,
            start_ns: at_ns,
            sent_ns: at_ns,
            answered_ns: at_ns,
            arrival_ns: at_ns,
            response_ns: at_ns,
            close_ns: at_ns,
            request_bytes: 100,
            response_bytes: 100,
            is_cut: false,
            method: -1,
            call_words: crate::target_words::Words::default(),
            served_words: crate::target_words::Words::default(),
        }
    }

    /// At any time within its burst, as many clients make them.
    fn opening_times() -> Vec<i64> {
        let at = |number: i64| (number / REQUESTS * 10_000 + number * number * 7919 % 2003) * MS;
        let mut opened: Vec<i64> = (0..BURSTS * REQUESTS).map(at).collect();
        opened.sort_unstable();
        opened
    }

    fn lingers_ns(started: impl Iterator<Item = i64>) -> Option<i64> {
        let mut calls: Vec<Call> = opening_times().into_iter().map(request).collect();
        let requests = calls.len() as u32;
        calls.extend(started.map(call));
        let all = calls.len() as u32;
        linger_ns(
            &calls,
            &(0..requests).collect::<Vec<_>>(),
            &(requests..all).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn calls_soon_after_each_request_are_work_that_goes_on() {
        let after = |(place, at): (usize, i64)| at + (5 + place as i64 % 7) * MS;
        let lingers = lingers_ns(opening_times().into_iter().enumerate().map(after));
        assert!(lingers.is_some_and(|ns| (9 * MS..20 * MS).contains(&ns)), "{lingers:?}");
    }

    #[test]
    fn rounds_of_a_daemon_that_happen_to_follow_bursts_of_requests_are_not() {
        let rounds = (0..BURSTS).flat_map(|round| (0..20).map(move |call| (round * 10_000 + 4_000 + call * 40) * MS));
        assert_eq!(lingers_ns(rounds), None);
    }
}
