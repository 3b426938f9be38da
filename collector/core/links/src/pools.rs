//! Pools: kinds of calls that are rare at each host, but that several hosts make which do the same work.
//!
//! The nodes of a store, or the instances of a service, serve the same service. If each makes few calls of a kind, the
//! kind is learned from all of them together: hosts are laid out one after another in time, as if one host had done the
//! work of all. The servers that a host calls are numbered by rank, so that calls that go once to each peer do so in
//! the pool too.
//!
//! Invariants: times of one host keep their distances; no request of one host is open when another's begin.
//!
//! Cost: a copy of the calls of rare kinds, and of the requests at their hosts.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialogues::{Call, NEVER_NS};
use crate::target_words::Host;
use crate::tuning::TUNING;

/// Calls of a pool. Structural: bounds the cost; hosts of a larger pool have nearly enough of their own.
const MAX_POOL_CALLS: usize = 3_000;
/// Requests for each call. Structural: bounds the cost of copies.
const MAX_REQUESTS_PER_CALL: usize = 50;

/// Calls of one kind and the requests that may have made them, of several hosts one after another.
pub struct Pool {
    pub calls: Vec<Call>,
    pub class: Vec<u16>,
    pub kind: Vec<u16>,
    /// For each of its calls the number outside of the pool.
    pub number: Vec<u32>,
    pub parents: Vec<u32>,
    pub children: Vec<u32>,
}

/// For each service, the places of the hosts that serve it alone.
pub fn hosts_by_service(calls: &[Call], hosts: &[Host]) -> Vec<Vec<usize>> {
    let mut of: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, (_, parents, children)) in hosts.iter().enumerate() {
        let services: BTreeSet<i64> = parents.iter().map(|&p| calls[p as usize].service).collect();
        if let (1, Some(&service), false) = (services.len(), services.first(), children.is_empty()) {
            of.entry(service).or_default().push(place);
        }
    }
    of.into_values().filter(|places| places.len() > 1).collect()
}

/// Pools of the hosts at these places.
pub fn pools(calls: &[Call], class: &[u16], kind: &[u16], hosts: &[Host], places: &[usize]) -> Vec<Pool> {
    let mut of_kind: BTreeMap<u16, Vec<(usize, Vec<u32>)>> = BTreeMap::new();
    for &place in places {
        let mut mine: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
        for &child in &hosts[place].2 {
            mine.entry(kind[child as usize]).or_default().push(child);
        }
        for (kind, children) in mine
            .into_iter()
            .filter(|(_, children)| children.len() < TUNING.pool_max_calls_per_host)
        {
            of_kind.entry(kind).or_default().push((place, children));
        }
    }
    let is_worth = |parts: &Vec<(usize, Vec<u32>)>| {
        let children: usize = parts.iter().map(|part| part.1.len()).sum();
        let requests: usize = parts.iter().map(|part| hosts[part.0].1.len()).sum();
        parts.len() > 1
            && (TUNING.min_calls_per_kind..MAX_POOL_CALLS).contains(&children)
            && requests <= MAX_REQUESTS_PER_CALL * children
    };
    let parts = of_kind.into_values().filter(is_worth);
    parts
        .map(|parts| Pool::new(calls, class, kind, hosts, &parts))
        .collect()
}

impl Pool {
    fn new(calls: &[Call], class: &[u16], kind: &[u16], hosts: &[Host], parts: &[(usize, Vec<u32>)]) -> Self {
        let mut pool = Pool {
            calls: vec![],
            class: vec![],
            kind: vec![],
            number: vec![],
            parents: vec![],
            children: vec![],
        };
        let mut from_ns = None;
        for (place, children) in parts {
            let parents = &hosts[*place].1;
            let all = || parents.iter().chain(children).map(|&call| &calls[call as usize]);
            let times = |call: &Call| {
                [
                    call.start_ns,
                    call.sent_ns,
                    call.answered_ns,
                    call.arrival_ns,
                    call.close_ns,
                ]
            };
            let seen = || all().flat_map(times).filter(|&at_ns| at_ns < NEVER_NS);
            let (first, last) = (seen().min().unwrap_or(0), seen().max().unwrap_or(0));
            let begin = from_ns.unwrap_or(first);
            let shift = |at_ns: i64| at_ns.min(last) - first + begin;
            from_ns = Some(shift(last) + 1 + (last - first) / (children.len() as i64 + 1));
            let servers: BTreeSet<i64> = children.iter().map(|&call| calls[call as usize].server_host).collect();
            let mut take = |number: u32| {
                let call = calls[number as usize];
                let peer = servers.range(..call.server_host).count() as i64;
                pool.calls.push(Call {
                    server_host: peer,
                    start_ns: shift(call.start_ns),
                    sent_ns: shift(call.sent_ns),
                    answered_ns: shift(call.answered_ns),
                    arrival_ns: shift(call.arrival_ns),
                    response_ns: shift(call.response_ns),
                    close_ns: shift(call.close_ns),
                    ..call
                });
                pool.class.push(class[number as usize]);
                pool.kind.push(kind[number as usize]);
                pool.number.push(number);
                pool.calls.len() as u32 - 1
            };
            let mine: Vec<u32> = parents.iter().map(|&parent| take(parent)).collect();
            let made: Vec<u32> = children.iter().map(|&child| take(child)).collect();
            pool.parents.extend(mine);
            pool.children.extend(made);
        }
        pool
    }
}
