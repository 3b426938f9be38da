//! Which exchange caused which, where no transaction id shows it: inferred from the trace itself.
//!
//! # Input and output
//! Exchanges (a request and its response on one connection), as columns of times, sizes, hosts and words of targets.
//! For each exchange: the exchange that it was made for (its *parent*), with a probability (the link's confidence), and
//! the next likeliest parent.
//!
//! # Method
//! A host sends requests to other hosts (its *calls*) while it serves requests itself. Whose call each is, is inferred
//! for each host alone, so that all times compared are of one clock, and for each kind of call alone ([`classes`]).
//!
//! 1. *Rates.* Estimate how many calls of the kind each class of requests makes ([`rates`]). A request that makes n
//!    calls has n *slots* ([`problem`]).
//! 2. *Order.* Assign calls to slots so that no two links cross ([`alignment`]): either calls leave in the order in
//!    which their requests arrived, or responses leave in the order in which the answers of their calls arrived.
//! 3. *Evidence.* Learn from these links which delays before and after a call are usual, and which differences of byte
//!    counts ([`evidence`]; whether a side is a queue: [`directional`]), and which words of targets are shared
//!    ([`target_words`]). Repeat 2 with this evidence. Of all rates and both orders, the best explanation is chosen
//!    ([`host_links`]).
//! 4. *Marginals.* Without assuming an order, compute for each call and each open request the probability over all ways
//!    to assign calls to slots, by belief propagation ([`marginals`]), and exactly where few slots are open at a time
//!    ([`exact_marginals`]).
//! 5. *Is the order real?* Compare how well 3 and 4 explain the observations ([`without_order`]). The links in order
//!    get the probability of the order as their weight, the marginals the rest.
//! 6. *Histories.* Calls still in doubt are sampled together with all other calls of their requests, by Markov chain
//!    Monte Carlo ([`mcmc_histories`]).
//! 7. *Only one.* Calls made while one request alone was open are of that one, if the host makes few of its own
//!    ([`only_open`]).
//! 8. Special cases: connections that a request opens for several calls, which are linked as one
//!    ([`short_connections`]), requests whose calls follow their response ([`work_after_response`]), hosts with few
//!    calls that do the same work ([`pools`]), services of one host that keep their own connections
//!    ([`connection_owners`]), byte counts before any link is made ([`initial_sizes`]).
//!
//! The numbers that weigh these steps are in [`tuning`].
//!
//! # Example
//! A server receives three requests. For each it calls an index, and after the index answered a disk. All times in ms,
//! of the server's clock; no id shows which call is whose.
//!
//! ```text
//!      request            index call            disk call
//!      arrives  response  leaves  answered     leaves  answered
//! r1         0        10       2         4  i1       5         9  d1
//! r2         1        13       3         6  i2       7        12  d2
//! r3         5        15       6         8  i3       9        14  d3
//! ```
//!
//! *Rates*: three index calls beside three requests are one for each. Each request has one slot, filled with
//! probability 0.995; a call has no parent with probability 0.002. (In a real trace, fewer than 20 calls of a kind are
//! not judged.)
//!
//! *Order*: a call may be assigned to a request that was open when it left, so `i1` and `i2` cannot be of `r3`. Before
//! anything is learned a link loses 0.02 nats for each square of its delays, in units of the typical duration. The
//! losses of the index calls, one column for each request:
//!
//! ```text
//! i1   0.07  0.15     -
//! i2   0.05  0.10     -
//! i3   0.07  0.09  0.09
//! ```
//!
//! Only one assignment does not cross and leaves no slot empty, which would cost 5.3 nats: `i1` to `r1`, `i2` to `r2`,
//! `i3` to `r3`.
//!
//! *Evidence*: in these links calls leave 1 or 2 ms after their request arrived, and are answered 6 or 7 ms before the
//! response. Nats for each possible link, against what is usual among all possible ones:
//!
//! ```text
//! i1   1.90  1.41     -
//! i2   1.00  1.96     -
//! i3  -1.39 -0.01  1.69
//! ```
//!
//! Assigned with this evidence, the links stay as they are.
//!
//! *Marginals*: without the order, `i1` and `i2` may also be the other way round:
//!
//! ```text
//! i1   0.93  0.07     -
//! i2   0.07  0.93     -
//! i3   0.00  0.00  1.00
//! ```
//!
//! and for the disk calls, of which each request was open:
//!
//! ```text
//! d1   1.00  0.00  0.00
//! d2   0.00  1.00  0.00
//! d3   0.00  0.00  1.00
//! ```
//!
//! *Is the order real?* Three calls say neither yes nor no: the log-odds of the order of index calls are 0, so links in
//! order and marginals count half each.
//!
//! *Histories*: `i1` and `i2` are less than 0.95 sure, so they are sampled with the disk calls of their requests. A
//! disk call follows the answer of its request's index call: `d1` leaves 1 ms after `i1` was answered and before `i2`
//! was, so `i1` is of `r1` in all samples, and `i2` of `r2`.
//!
//! # Limits
//! A kind with fewer calls than `min_calls_per_kind` is not judged, unless words of its targets are rare. Requests that
//! were not captured cannot be parents. Servers that keep no order and take random times leave little evidence at high
//! concurrency; the confidence says so.
//!
//! Invariants: a parent was open when its call left, or closed no longer before than `linger_ns`; the confidences of a
//! call's parent and its alternative add up to at most 1.
//!
//! Cost: for each call, the slots that are open at once; learning looks at bounded samples. Linear in the number of
//! exchanges at fixed concurrency. Hosts, kinds, guesses and stretches run in parallel.
//!
//! Sources: Needleman and Wunsch 1970 (alignment); Huang and Jebara 2009 (belief propagation for permanents); Hastings
//! 1970 (sampling); Ashok et al., "TraceWeaver", SIGCOMM 2024 (assignment with delays learned from the trace).
#![forbid(unsafe_code)]

mod alignment;
mod classes;
mod connection_owners;
mod dialogues;
mod directional;
mod evidence;
mod exact_marginals;
mod host_links;
mod initial_sizes;
mod marginals;
mod mcmc_histories;
mod only_open;
mod pools;
mod problem;
mod rates;
mod short_connections;
mod target_words;
#[cfg(feature = "tunable")]
pub mod tuning;
#[cfg(not(feature = "tunable"))]
mod tuning;
mod without_order;
mod work_after_response;
#[cfg(test)]
mod worked_example;

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use twintap_columns::{input_table, output_table};

use crate::host_links::{Context, InferredLink};
use crate::pools::Pool;
use crate::target_words::WordModel;
pub use crate::target_words::{MAX_WORDS, words_of};

/// Stands for a time, or another value, that is not known. Less than every time.
pub const UNSEEN: i64 = i64::MIN;
/// Stands for a row, or a host, where there is none.
pub const NONE: i64 = -1;

input_table! {
    /// Columns of the exchanges: hosts and services as numbers, `NONE` where not known; times in ns, `UNSEEN` where
    /// unknown.
    pub struct Exchanges {
        client_host: i64,
        server_host: i64,
        service: i64,
        connection_id: i64,
        connect_start_ns: i64,
        request_first_sent_ns: i64,
        request_first_received_ns: i64,
        response_first_sent_ns: i64,
        response_first_received_ns: i64,
        response_last_sent_ns: i64,
        response_last_received_ns: i64,
        given_up_ns: i64,
        request_bytes: i64,
        response_bytes: i64,
        /// Number of the method (GET, PUT), `NONE` where not known.
        method: i64,
    } beside {
        /// Words of the target and of its byte range ([`words_of`]), 0 where there are none.
        words: &'a [[u32; MAX_WORDS]] = &[],
    }
}

output_table! {
    /// For each exchange: the row of its parent, or `NONE`; the confidence, 0 where there is no parent; the same of the
    /// next likeliest parent, if another was possible; and whether its kind was common enough to be judged, so that
    /// `NONE` means no parent.
    pub struct Links {
        parent: i64,
        confidence: f64,
        alternative: i64,
        alternative_confidence: f64,
        judged: bool,
    }
}

/// The parent of each exchange for which one is found.
pub fn link(exchanges: &Exchanges) -> Links {
    let mut made = dialogues::group_into_calls(exchanges);
    let mut class = classes::classes(&made.calls);
    let mut kind = made.kinds(&class);
    let served = made.calls.len();
    short_connections::join(&mut made, &mut class, &mut kind);
    let count = exchanges.service.len();
    let mut links = Links {
        parent: vec![NONE; count],
        confidence: vec![0.0; count],
        alternative: vec![NONE; count],
        alternative_confidence: vec![0.0; count],
        judged: vec![false; count],
    };
    let mut hosts: BTreeMap<i64, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    for (number, call) in made.calls.iter().enumerate() {
        if number < served {
            hosts.entry(call.server_host).or_default().0.push(number as u32);
        }
        hosts.entry(call.client_host).or_default().1.push(number as u32);
    }
    hosts.remove(&NONE);
    let hosts: Vec<target_words::Host> = hosts
        .into_iter()
        .map(|(host, (mut parents, mut children))| {
            host_links::keep_timed_in_order(&made.calls, &mut parents, &mut children);
            (host, parents, children)
        })
        .collect();
    let word_model = WordModel::new(&mut made, exchanges.words, &class, &kind, &hosts);
    let known = host_links::Context {
        calls: &made.calls,
        class: &class,
        kind: &kind,
        words: &word_model,
    };
    let found = link_hosts(&known, hosts);
    for found in found.into_iter().flatten() {
        let start_ns = made.calls[found.child as usize].start_ns;
        for row in made.rows(found.child as usize).iter().map(|&row| row as usize) {
            links.judged[row] = true;
            if let Some(parent) = found.parent {
                links.parent[row] = made.row_at(exchanges, parent as usize, start_ns);
                links.confidence[row] = found.confidence;
                if let Some((other, confidence)) = found.alternative {
                    links.alternative[row] = made.row_at(exchanges, other as usize, start_ns);
                    links.alternative_confidence[row] = confidence;
                }
            }
        }
    }
    links
}

/// Links of the calls of all hosts, and of pools: rare kinds that several hosts of one service make.
fn link_hosts(known: &Context, hosts: Vec<target_words::Host>) -> Vec<Vec<InferredLink>> {
    let hosts_by_service = pools::hosts_by_service(known.calls, &hosts);
    let pools: Vec<Pool> = hosts_by_service
        .iter()
        .flat_map(|places| pools::pools(known.calls, known.class, known.kind, &hosts, places))
        .collect();
    let mut of_host: HashMap<i64, Vec<InferredLink>> = HashMap::new();
    let mut is_done = vec![false; if pools.is_empty() { 0 } else { known.calls.len() }];
    let pooled: Vec<Vec<InferredLink>> = pools
        .par_iter()
        .map(|pool| host_links::link_pool(known, pool))
        .collect();
    for found in pooled.into_iter().flatten() {
        is_done[found.child as usize] = true;
        of_host
            .entry(known.calls[found.child as usize].client_host)
            .or_default()
            .push(found);
    }
    let with = |(host, parents, mut children): target_words::Host| {
        let done = of_host.get(&host).cloned().unwrap_or_default();
        if !done.is_empty() {
            children.retain(|&child| !is_done[child as usize]);
        }
        host_links::link_host(known, host, &parents, children, done)
    };
    hosts.into_par_iter().map(with).collect()
}
