//! Which exchange made which, where no id says so: learned from the trace itself.
//!
//! # The idea
//! A host makes calls while it serves requests. Which request a call was made for is asked for each host alone, and kind
//! by kind of its calls ([`classes`]: a service, and sizes that hang together):
//!
//! 1. *How many.* Guesses of how many calls of the kind each class of requests makes ([`rates`]): one read for a read,
//!    three writes for a write. Every request gets so many slots ([`problem`]).
//! 2. *In order.* Slots are filled so that links do not cross ([`alignment`]): calls leave in the order in which requests
//!    came, or responses leave in the order in which the calls' answers came. Servers with one loop, or one queue, keep
//!    such orders nearly strictly even when they are overloaded, where delays themselves show nothing.
//! 3. *Evidence.* From these links it is learned what delays before and after a call look like, and which differences of
//!    byte counts are usual ([`evidence`]); what passes through unchanged identifies. Then links are made anew with it.
//!
//!    So is what calls and requests share in their targets, where these are visible ([`target_words`]).
//!
//! 4. *Without order.* Calls are shared among all requests that were open ([`marginals`]). How much better links in order
//!    explain what was seen than those shares do says how sure the order is; the rest goes to the shares ([`unordered`]).
//!    Where there is no order, these shares also show how many calls there are of each class.
//! 5. *Histories.* What is still in doubt is asked what it makes of all that a request did, call by call ([`mcmc_histories`]).
//!
//! Calls that are made while no request is open may be made for one that was answered before ([`work_after_response`]).
//!
//! Kinds of which no host makes many are learned from at all hosts of one service together ([`pools`]).
//!
//! Calls over connections that turn out to be one service's are looked at by themselves ([`connection_owners`]).
//!
//! Of all guesses and both orders, the one that explains a stretch from a quiet moment on best is taken for all.
//!
//! # Limits
//! A kind with very few calls is not judged. Requests that were not captured cannot be parents.
//!
//! Cost: for each call, the slots that are open at once; learning looks at a bounded sample. Linear in the number of
//! exchanges at fixed concurrency. Hosts, kinds, guesses and stretches are worked on at once, on all cores.
//!
//! Source: docs/linking.md.
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
mod pools;
mod problem;
mod rates;
mod target_words;
#[cfg(feature = "tunable")]
pub mod tuning;
#[cfg(not(feature = "tunable"))]
mod tuning;
mod unordered;
mod work_after_response;

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use crate::host_links::{Context, InferredLink};
use crate::pools::Pool;
use crate::target_words::WordModel;
pub use crate::target_words::{MOST_WORDS, words_of};

/// A time that was not seen, or another value that is not known. Less than every time.
pub const UNSEEN: i64 = i64::MIN;
/// In place of a row, or of a host, where there is none.
pub const NONE: i64 = -1;

/// Columns of the exchanges: hosts and services as numbers, `NONE` where not known; times in ns, `UNSEEN` where not.
#[derive(Clone, Copy, Debug)]
pub struct Exchanges<'a> {
    pub client_host: &'a [i64],
    pub server_host: &'a [i64],
    pub service: &'a [i64],
    pub connection_id: &'a [i64],
    pub connect_start_ns: &'a [i64],
    pub request_first_sent_ns: &'a [i64],
    pub request_first_received_ns: &'a [i64],
    pub response_first_sent_ns: &'a [i64],
    pub response_first_received_ns: &'a [i64],
    pub response_last_sent_ns: &'a [i64],
    pub response_last_received_ns: &'a [i64],
    pub given_up_ns: &'a [i64],
    pub request_bytes: &'a [i64],
    pub response_bytes: &'a [i64],
    /// What was asked (GET, PUT) as a number, `NONE` where not known.
    pub method: &'a [i64],
    /// Words of the target and of its byte range ([`words_of`]), 0 where there are none.
    pub words: &'a [[u32; MOST_WORDS]],
}

impl Exchanges<'_> {
    /// All columns have the same length.
    pub fn is_consistent(&self) -> bool {
        let hosts = [self.client_host, self.server_host, self.service, self.connection_id];
        let asked = [
            self.connect_start_ns,
            self.request_first_sent_ns,
            self.request_first_received_ns,
        ];
        let answered = [
            self.response_first_sent_ns,
            self.response_first_received_ns,
            self.response_last_sent_ns,
        ];
        let ended = [
            self.response_last_received_ns,
            self.given_up_ns,
            self.request_bytes,
            self.response_bytes,
            self.method,
        ];
        let all = hosts.iter().chain(&asked).chain(&answered).chain(&ended);
        all.into_iter().all(|column| column.len() == self.service.len()) && self.words.len() == self.service.len()
    }
}

/// For each exchange the row of its parent, or `NONE`; how sure that is (0 where there is none); the same of the next
/// likeliest parent, where another was possible; and whether there were enough like it to learn from, so that `NONE` means
/// something.
#[derive(Clone, Debug, Default)]
pub struct Links {
    pub parent: Vec<i64>,
    pub confidence: Vec<f64>,
    pub alternative: Vec<i64>,
    pub alternative_confidence: Vec<f64>,
    pub judged: Vec<bool>,
}

/// The parent of each exchange for which one is found.
pub fn link(exchanges: &Exchanges) -> Links {
    let mut made = dialogues::group_into_calls(exchanges);
    let class = classes::classes(&made.calls);
    let kind = made.kinds(&class);
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
        hosts.entry(call.server_host).or_default().0.push(number as u32);
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

/// What is found of the calls of all hosts; those of small kinds that hosts of one service make are learned from together.
fn link_hosts(known: &Context, hosts: Vec<target_words::Host>) -> Vec<Vec<InferredLink>> {
    let alike = pools::alike(known.calls, &hosts);
    let pools: Vec<Pool> = alike
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
