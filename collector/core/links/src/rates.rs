//! Guesses of how many calls of a kind each class of requests makes.
//!
//! 1. By expectation and maximisation over a sample of calls, each shared among the requests that were open at its
//!    start: once by concurrency alone, once with delays and byte counts; each with all classes, and with the main ones
//!    only.
//! 2. By counting: where there are as many calls as requests of a class (or twice, three times as many), that class may
//!    make all of them.
//!
//! Input: calls of one kind and the requests of their host. Output: guesses, of which links then show the best.

use std::collections::BTreeMap;

use crate::dialogues::Call;
use crate::evidence::{Evidence, Pair, Sample};
use crate::problem::{Child, Guess, Slot, child, slot};
use crate::tuning::TUNING;

/// Pairs that are sampled. Structural: bounds the cost, whatever the size of the trace.
const SAMPLED_PAIRS: usize = 20_000;
/// Optional calls for each request. Structural: bounds the number of slots.
const OPTIONAL_MAX_CALLS: f64 = 8.0;

/// Whether a rate is one of calls that some requests make and others do not.
fn is_optional(calls_per_request: f64) -> bool {
    (TUNING.optional_min_calls..OPTIONAL_MAX_CALLS).contains(&calls_per_request)
}

struct Open {
    class: usize,
    duration_ns: f64,
    pair: Pair,
}

struct Shares {
    of: Vec<f64>,
    alone: f64,
}

/// Guesses for `children`, calls of one kind by start; `parents` by arrival.
pub fn guesses(calls: &[Call], class: &[u16], parents: &[u32], children: &[u32]) -> Vec<Guess> {
    let mut requests: BTreeMap<u16, f64> = BTreeMap::new();
    for &parent in parents {
        *requests.entry(class[parent as usize]).or_default() += 1.0;
    }
    let classes: Vec<u16> = requests.keys().copied().collect();
    let place = |parent: u32| classes.partition_point(|&c| c < class[parent as usize]);
    let sample = sample(calls, &place, parents, children);
    let count = children.len() as f64;
    let mut guesses: Vec<Guess> = vec![];
    for shares in [
        shares_by_concurrency(&sample, classes.len()),
        shares_with_delays(&sample, classes.len()),
    ] {
        for least in [0.0, TUNING.main_class_share] {
            let rate = |(at, class): (usize, &u16)| (*class, shares.of[at] * count / requests[class], shares.of[at]);
            let rates = classes
                .iter()
                .enumerate()
                .map(rate)
                .filter(|(_, rate, share)| *rate > TUNING.min_calls_per_request && *share > least);
            guesses.push(Guess {
                rates: rates.map(|(class, rate, _)| (class, rate)).collect(),
                orphan_share: shares.alone,
            });
        }
    }
    let service: BTreeMap<u16, i64> = parents
        .iter()
        .map(|&p| (class[p as usize], calls[p as usize].service))
        .collect();
    guesses.extend(
        classes
            .iter()
            .filter_map(|&class| whole_number_guess(&service, &requests, class, count)),
    );
    guesses.extend(guesses_by_service(&service, &requests, count));
    guesses.extend(
        classes
            .iter()
            .filter_map(|&class| guess_with_repeats(class, requests[&class], count)),
    );
    guesses.retain(|guess| !guess.rates.is_empty());
    guesses.dedup();
    guesses
}

/// The guess that requests of `class` make all calls: a whole number each, or a rate that optional or repeated calls
/// may have. Rare classes of the same service (requests of an unusual size) may make some too.
fn whole_number_guess(
    service: &BTreeMap<u16, i64>,
    requests: &BTreeMap<u16, f64>,
    class: u16,
    calls: f64,
) -> Option<Guess> {
    let many = requests[&class];
    let rare = |other: &u16| {
        *other != class && service[other] == service[&class] && requests[other] < TUNING.rare_class_share * many
    };
    let rare: Vec<u16> = requests.keys().copied().filter(rare).collect();
    let whole = (calls / many).round();
    let most = whole * (many + rare.iter().map(|other| requests[other]).sum::<f64>());
    let slack = (TUNING.whole_number_tolerance_share * calls).max(1.0);
    if whole < 1.0 || calls < whole * many - slack || calls > most + slack {
        let some = is_optional(calls / many);
        return some.then(|| Guess {
            rates: vec![(class, calls / many)],
            orphan_share: TUNING.min_orphan_share,
        });
    }
    let mut rates = vec![(class, whole * TUNING.max_slot_probability)];
    rates.extend(rare.into_iter().map(|other| (other, whole * TUNING.rare_class_fill)));
    Some(Guess {
        rates,
        orphan_share: TUNING.min_orphan_share,
    })
}

/// For each service with several classes the guess that all of its requests make the calls at one rate.
fn guesses_by_service(service: &BTreeMap<u16, i64>, requests: &BTreeMap<u16, f64>, calls: f64) -> Vec<Guess> {
    let mut classes: BTreeMap<i64, Vec<u16>> = BTreeMap::new();
    for (&class, &service) in service {
        classes.entry(service).or_default().push(class);
    }
    let guess = |classes: &Vec<u16>| {
        let each = calls / classes.iter().map(|class| requests[class]).sum::<f64>();
        let whole = each.round().max(1.0);
        let each = if (each - whole).abs() <= TUNING.whole_number_tolerance_share * whole {
            whole * TUNING.max_slot_probability
        } else {
            each
        };
        let rates = classes.iter().map(|&class| (class, each)).collect();
        (classes.len() > 1 && is_optional(each)).then_some(Guess {
            rates,
            orphan_share: TUNING.min_orphan_share,
        })
    };
    classes.values().filter_map(guess).collect()
}

/// The guess that requests of `class` make a whole number of calls each, and that some repeat them at another time, as
/// when an answer did not come.
fn guess_with_repeats(class: u16, many: f64, calls: f64) -> Option<Guess> {
    let whole = (calls / many).floor();
    let more = 1.0 - whole * many / calls;
    (whole >= 1.0 && more >= TUNING.whole_number_tolerance_share).then(|| Guess {
        rates: vec![(class, whole * TUNING.max_slot_probability)],
        orphan_share: more,
    })
}

/// For a sample of calls the requests that were open at their start.
fn sample(calls: &[Call], place: &impl Fn(u32) -> usize, parents: &[u32], children: &[u32]) -> Vec<Vec<Open>> {
    let mut step = 1 + children.len() / SAMPLED_PAIRS;
    let widths = || children.iter().step_by(1 + children.len() / 500);
    let wide: usize = each_open(calls, parents, widths()).iter().map(Vec::len).sum();
    let mean = wide / widths().count().max(1);
    step = step.max(children.len() * mean / SAMPLED_PAIRS);
    let some = each_open(calls, parents, children.iter().step_by(step));
    let with = |(at, open): (usize, Vec<u32>)| -> Vec<Open> {
        let child: Child = child(calls, children[at * step]);
        let pair = |parent: u32| {
            let slot: Slot = slot(calls, parent, 0, 1.0);
            let call = &calls[parent as usize];
            let duration_ns = (call.close_ns - call.arrival_ns).clamp(1, 600_000_000_000) as f64;
            Open {
                class: place(parent),
                duration_ns,
                pair: Pair::new(&slot, &child),
            }
        };
        open.into_iter().map(pair).collect()
    };
    some.into_iter().enumerate().map(with).collect()
}

fn each_open<'a>(calls: &[Call], parents: &[u32], children: impl Iterator<Item = &'a u32>) -> Vec<Vec<u32>> {
    let (mut open, mut next): (Vec<u32>, usize) = (vec![], 0);
    children
        .map(|&child| {
            let start_ns = calls[child as usize].start_ns;
            while next < parents.len() && calls[parents[next] as usize].arrival_ns <= start_ns {
                open.push(parents[next]);
                next += 1;
            }
            open.retain(|&p| calls[p as usize].close_ns >= start_ns);
            open.clone()
        })
        .collect()
}

fn shares_by_concurrency(sample: &[Vec<Open>], classes: usize) -> Shares {
    let count = sample.len().max(1) as f64;
    let mut mean = vec![1e-30; classes];
    for open in sample.iter().flatten() {
        mean[open.class] += 1.0 / open.duration_ns / count;
    }
    let weights: Vec<Vec<(usize, f64)>> = sample
        .iter()
        .map(|list| {
            list.iter()
                .map(|o| (o.class, 1.0 / o.duration_ns / mean[o.class]))
                .collect()
        })
        .collect();
    let mut shares = Shares {
        of: vec![(1.0 - TUNING.initial_orphan_share) / classes.max(1) as f64; classes],
        alone: TUNING.initial_orphan_share,
    };
    for _ in 0..4 * TUNING.em_rounds {
        shares = next_shares(&weights, &shares, |_, _, _| ());
    }
    shares
}

fn shares_with_delays(sample: &[Vec<Open>], classes: usize) -> Shares {
    let count = sample.len().max(1) as f64;
    let mut mean = vec![1e-30; classes];
    let mut possible = Sample::new(classes);
    for open in sample.iter().flatten() {
        mean[open.class] += 1.0 / count;
        possible.add(open.class as u32, open.pair, 1.0);
        possible.add_words(open.class as u32, open.pair, 1.0);
    }
    let mut evidence = Evidence::learn(&Sample::new(classes), &possible);
    let mut shares = Shares {
        of: vec![(1.0 - TUNING.initial_learned_orphan_share) / classes.max(1) as f64; classes],
        alone: TUNING.initial_learned_orphan_share,
    };
    for _ in 0..TUNING.em_rounds {
        let weight = |open: &Open| {
            (
                open.class,
                f64::from(evidence.score(open.class as u32, open.pair)).exp() / mean[open.class],
            )
        };
        let weights: Vec<Vec<(usize, f64)>> = sample.iter().map(|list| list.iter().map(weight).collect()).collect();
        let mut linked = Sample::new(classes);
        shares = next_shares(&weights, &shares, |child, at, share| {
            let open = &sample[child][at];
            linked.add(open.class as u32, open.pair, share);
            linked.add_words(open.class as u32, open.pair, share);
        });
        evidence = Evidence::learn(&linked, &possible);
    }
    shares
}

/// One round: each call is shared among its open requests. `report(call, place, share)` receives each share that
/// matters.
fn next_shares(weights: &[Vec<(usize, f64)>], shares: &Shares, mut report: impl FnMut(usize, usize, f64)) -> Shares {
    let count = weights.len().max(1) as f64;
    let mut next = Shares {
        of: vec![0.0; shares.of.len()],
        alone: 0.0,
    };
    for (child, list) in weights.iter().enumerate() {
        let total = shares.alone
            + list
                .iter()
                .map(|&(class, weight)| shares.of[class] * weight)
                .sum::<f64>();
        next.alone += shares.alone / total / count;
        for (at, &(class, weight)) in list.iter().enumerate() {
            let share = shares.of[class] * weight / total;
            next.of[class] += share / count;
            if share > 1e-4 {
                report(child, at, share);
            }
        }
    }
    next.alone = next.alone.max(1e-6);
    next
}
