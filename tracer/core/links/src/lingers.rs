//! Work that goes on after the answer: how long after a request was answered its calls may still be made.
//!
//! A service may answer at once and work later; one that joins the calls of several does so with the last of them, which no
//! call by itself shows. Then calls are made while no request is open, and each seems to be nobody's. Whether they have to
//! do with requests shows in time: how long before each call requests had come, held against the same at other times, a
//! little earlier and later. What is more than there are the requests that made the calls, and where that ends is how long
//! they go on. Calls of a rhythm of their own (a daemon's) come at any distance from requests, and none is found.
//!
//! Cost: for a bounded sample of calls, a bounded number of the requests before each.

use crate::calls::Call;
use crate::evidence::{log_bin, log_lower_ns};

/// Calls that are looked at, requests before each, and how far back they may be.
const SOME_CALLS: usize = 1000;
const SOME_REQUESTS: usize = 128;
const LONGEST_NS: i64 = 10_000_000_000;
/// Of the calls of a kind at least this share is made while no request is open, or requests are held to make all of them.
const MANY_ALONE: f64 = 0.2;
const LEAST_ALONE: usize = 10;
/// Steps of time.
const BINS: usize = 160;
/// The other times, in parts of the mean time between calls, before and after.
const SHIFTS: [f64; 6] = [-7.3, -5.1, -3.7, 3.3, 5.7, 7.9];
/// So many requests more than at other times there must be for each call, so many standard deviations.
const LEAST_MORE: f64 = 0.5;
const DEVIATIONS: f64 = 5.0;
/// The share of those after which no more are looked for, and how much longer requests then go on.
const NEARLY_ALL: f64 = 0.97;
const SPARE: f64 = 1.5;

/// How long after their answers requests go on to make such calls; nothing if they do not.
///
/// `parents` in order of opening, `children` in order of start.
pub fn linger_ns(calls: &[Call], parents: &[u32], children: &[u32]) -> Option<i64> {
    let alone = alone(calls, parents, children);
    if alone.len() < LEAST_ALONE || (alone.len() as f64) < MANY_ALONE * children.len() as f64 {
        return None;
    }
    let opened: Vec<i64> = parents.iter().map(|&parent| calls[parent as usize].open_ns).collect();
    let step = alone.len().div_ceil(SOME_CALLS);
    let some: Vec<i64> = alone.iter().copied().step_by(step).collect();
    let between = (alone[alone.len() - 1] - alone[0]) as f64 / alone.len() as f64;
    let here = lags(&opened, some.iter().copied());
    let mut elsewhere = vec![0.0; BINS];
    for shift in SHIFTS {
        let by = (shift * between) as i64;
        for (sum, count) in elsewhere.iter_mut().zip(lags(&opened, some.iter().map(|at| at + by))) {
            *sum += count / SHIFTS.len() as f64;
        }
    }
    let mut more = vec![0.0; BINS];
    let (mut sum, mut chance, mut is_sure) = (0.0, 0.0, false);
    for bin in 0..BINS {
        sum += here[bin] - elsewhere[bin];
        chance += elsewhere[bin];
        more[bin] = sum;
        is_sure |= sum > LEAST_MORE * some.len() as f64 && sum > DEVIATIONS * (chance + here[bin] + 1.0).sqrt();
    }
    let most = more.iter().copied().fold(0.0, f64::max);
    let end = more.iter().position(|&more| more >= NEARLY_ALL * most)?;
    is_sure.then(|| (SPARE * log_lower_ns(end + 1)) as i64)
}

/// When calls were made while no request was open.
fn alone(calls: &[Call], parents: &[u32], children: &[u32]) -> Vec<i64> {
    let (mut next, mut until_ns) = (0, i64::MIN);
    let mut found = vec![];
    for &child in children {
        let start_ns = calls[child as usize].start_ns;
        while next < parents.len() && calls[parents[next] as usize].open_ns <= start_ns {
            until_ns = until_ns.max(calls[parents[next] as usize].close_ns);
            next += 1;
        }
        if until_ns < start_ns && next > 0 {
            found.push(start_ns);
        }
    }
    found
}

/// How many requests came so long before the given times, by bins of time.
fn lags(opened: &[i64], times: impl Iterator<Item = i64>) -> Vec<f64> {
    let mut counts = vec![0.0; BINS];
    for at in times {
        let until = opened.partition_point(|&open| open <= at);
        for &open in opened[until.saturating_sub(SOME_REQUESTS)..until].iter().rev() {
            if at - open > LONGEST_NS {
                break;
            }
            counts[log_bin(at - open, BINS)] += 1.0;
        }
    }
    counts
}
