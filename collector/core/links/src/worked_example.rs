//! The numbers of the example in the header of the crate, computed.

use crate::dialogues::Call;
use crate::mcmc_histories::{self, Doubt};
use crate::problem::{Order, Problem};
use crate::rates::guesses;
use crate::tuning::TUNING;
use crate::without_order::{Parents, UnorderedLinks, order_confidence};

const MS: i64 = 1_000_000;
/// When each request arrives at the server, and when its response leaves, in ms.
const REQUESTS: [(i64, i64); 3] = [(0, 10), (1, 13), (5, 15)];
/// When each call leaves, and when its answer arrives.
const INDEX: [(i64, i64); 3] = [(2, 4), (3, 6), (6, 8)];
const DISK: [(i64, i64); 3] = [(5, 9), (7, 12), (9, 14)];
/// Requests, index calls, disk calls.
const CLASS: [u16; 9] = [0, 0, 0, 1, 1, 1, 2, 2, 2];
const ALL: std::ops::Range<i64> = i64::MIN..i64::MAX;

fn exchange(service: i64, (from_ms, until_ms): (i64, i64)) -> Call {
    Call {
        server_host: 1,
        service,
        request_bytes: 100,
        response_bytes: 100,
        ..Call::between(from_ms * MS, until_ms * MS)
    }
}

/// Requests, index calls and disk calls, numbered in this order.
fn calls() -> Vec<Call> {
    let kinds = [(7, REQUESTS), (8, INDEX), (9, DISK)];
    kinds
        .into_iter()
        .flat_map(|(service, times)| times.map(|time| exchange(service, time)))
        .collect()
}

/// The example's tables for a kind of calls: a row for each call and a cell for each request.
struct Tables {
    losses: String,
    evidence: String,
    marginals: String,
    /// Log-odds that the order of arrival is kept.
    log_odds: f64,
    doubts: Vec<Doubt>,
}

/// One row for each call; `-` where the request was not open when the call left.
fn rows(name: char, problem: &Problem, value: impl Fn(usize, usize) -> f64) -> String {
    let cell = |call: usize, slot: usize| {
        if problem.slots[slot].was_open(&problem.children[call]) {
            format!("{:6.2}", value(call, slot))
        } else {
            "     -".to_owned()
        }
    };
    let row = |call: usize| {
        let cells: String = (0..3).map(|slot| cell(call, slot)).collect();
        format!("//! {name}{} {cells}\n", call + 1)
    };
    (0..3).map(row).collect()
}

fn tables(calls: &[Call], name: char, kind: [u32; 3]) -> Tables {
    let mut all = guesses(calls, &CLASS, &[0, 1, 2], &kind);
    let guess = all.pop().expect("three calls of three requests have a guess");
    assert_eq!(
        (guess.rates.as_slice(), guess.orphan_share),
        ([(0, 0.995)].as_slice(), 0.002)
    );
    let problem = Problem::new(calls, &CLASS, &[0, 1, 2], &kind, &guess, Order::ByArrival, &ALL);
    let (slots, children) = (&problem.slots, &problem.children);
    let typical_ns = problem.typical_delay_ns();
    let loss = |call: usize, slot: usize| problem.length_penalty(&slots[slot], &children[call], typical_ns).into();
    let first = problem.first_links();
    let evidence = problem.learn(&first, problem.directional_delays(&first).queue_directions());
    let score = |call: usize, slot: usize| {
        let pair = evidence.pair(&slots[slot], &children[call]);
        evidence.score(slots[slot].class, pair).into()
    };
    assert_eq!((&first, problem.links(&evidence)), (&vec![0, 1, 2], vec![0, 1, 2]));
    let without_order = UnorderedLinks::new(&problem, &first, TUNING.sharing_rounds);
    let parents = without_order.parents();
    let share = |call: usize, slot: usize| {
        let found = parents[call].shares.iter().find(|share| share.0 as usize == slot);
        found.map_or(0.0, |share| share.1)
    };
    Tables {
        losses: rows(name, &problem, loss),
        evidence: rows(name, &problem, score),
        marginals: rows(name, &problem, share),
        log_odds: without_order.order(Order::ByArrival, &parents).log_odds,
        doubts: parents.iter().map(doubt).collect(),
    }
}

/// With candidates if no request is sure to be the parent.
fn doubt(parents: &Parents) -> Doubt {
    let best = |a: (u32, f64), b: (u32, f64)| if b.1 > a.1 { b } else { a };
    let (parent, share) = parents.shares.iter().copied().fold((0, 0.0), best);
    let is_sure = share >= TUNING.doubt_max_confidence;
    let candidates = parents.shares.iter().filter(|_| !is_sure).map(|share| (share.0, 0.0));
    Doubt {
        child: parents.child,
        parent,
        candidates: candidates.collect(),
    }
}

#[test]
fn the_header_s_example_has_the_numbers_that_are_computed() {
    let calls = calls();
    let (index, disk) = (tables(&calls, 'i', [3, 4, 5]), tables(&calls, 'd', [6, 7, 8]));
    let header = include_str!("lib.rs");
    for table in [&index.losses, &index.evidence, &index.marginals, &disk.marginals] {
        assert!(header.contains(table.as_str()), "the header lacks\n{table}");
    }
    assert!(index.log_odds.abs() < 0.01 && (order_confidence(index.log_odds) - 0.5).abs() < 0.01);
    let rows = (0..3)
        .zip(REQUESTS.into_iter().zip(INDEX).zip(DISK))
        .map(|(n, ((r, i), d))| {
            let (n, [a, b, c, d, e, f]) = (n + 1, [r.0, r.1, i.0, i.1, d.0, d.1]);
            format!("//! r{n}{a:10}{b:10}{c:8}{d:10}  i{n}{e:8}{f:10}  d{n}\n")
        });
    let times: String = rows.collect();
    assert!(header.contains(&times), "the header lacks\n{times}");
    let doubts: Vec<Doubt> = index.doubts.into_iter().chain(disk.doubts).collect();
    let resolved = mcmc_histories::parents(&calls, &CLASS, &CLASS, &doubts);
    let parents: Vec<Option<(u32, f64)>> = resolved
        .iter()
        .map(|one| one.map(|one| (one.parent, one.share)))
        .collect();
    assert_eq!(parents, [Some((0, 1.0)), Some((1, 1.0)), None, None, None, None]);
}
