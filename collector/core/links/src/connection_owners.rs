//! Which service of a host owns which connection.
//!
//! Several services of one host may call the same service (processes with a port each, a service and its sidecar), each
//! over its own connections. Their calls together do not show the order that each service keeps. But at each call over
//! a connection a request of its owner was open, so the marginals of its calls, added up by service, show the owner.
//!
//! Input: for each call the probability of each service to have made it. Output: the owner of each connection and its
//! probability; nothing if owned connections do not explain the calls better than shared ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialogues::Call;
use crate::tuning::TUNING;

/// Calls of a connection, in the mean. Structural: bounds the cost, since connections of fewer calls show no owner.
const MIN_CALLS_PER_CONNECTION: usize = 4;

/// The probability of each service of a host to have made a call.
pub struct ServiceShares {
    pub call: u32,
    /// In the order of the list of services.
    pub by_service: Vec<f64>,
}

/// The services that may have made `children`, calls that reuse connections; nothing if there is only one.
pub fn services(calls: &[Call], parents: &[u32], children: &[u32]) -> Vec<i64> {
    let connections: BTreeSet<i64> = children.iter().map(|&c| calls[c as usize].connection_id).collect();
    if connections.len() * MIN_CALLS_PER_CONNECTION > children.len() {
        return vec![];
    }
    let services: BTreeSet<i64> = parents.iter().map(|&p| calls[p as usize].service).collect();
    if services.len() > 1 {
        services.into_iter().collect()
    } else {
        vec![]
    }
}

/// The owner of each connection, and its probability.
pub type ConnectionOwners = BTreeMap<i64, (i64, f64)>;

/// The owners of connections, if connections are owned.
pub fn connection_owners(calls: &[Call], services: &[i64], shared: &[ServiceShares]) -> ConnectionOwners {
    let mut usual = vec![TUNING.owner_min_share; services.len()];
    for one in shared {
        usual
            .iter_mut()
            .zip(&one.by_service)
            .for_each(|(sum, share)| *sum += share);
    }
    let all: f64 = usual.iter().sum();
    usual.iter_mut().for_each(|share| *share /= all);
    // for each connection: log-likelihood of its calls for each owner, against a shared connection; number of calls
    let mut likely: BTreeMap<i64, (Vec<f64>, f64)> = BTreeMap::new();
    for one in shared {
        let some = one.by_service.iter().sum::<f64>() + TUNING.owner_min_share;
        let (sums, count) = likely
            .entry(calls[one.call as usize].connection_id)
            .or_insert_with(|| (usual.iter().map(|share| share.ln()).collect(), 0.0));
        *count += 1.0;
        for ((sum, share), usual) in sums.iter_mut().zip(&one.by_service).zip(&usual) {
            *sum += ((share + TUNING.owner_min_share * usual) / some / usual).ln();
        }
    }
    let gain: f64 = likely.values().map(|(sums, _)| log_sum(sums)).sum();
    let best = |sums: &[f64]| {
        let place = (0..services.len())
            .max_by(|&a, &b| sums[a].total_cmp(&sums[b]))
            .unwrap_or_default();
        (place, (sums[place] - log_sum(sums)).exp())
    };
    let sure: f64 = likely.values().map(|(sums, count)| best(sums).1 * count).sum();
    if gain < TUNING.owner_min_gain_nats * likely.len() as f64
        || sure < TUNING.owner_min_probability * shared.len() as f64
    {
        return ConnectionOwners::new();
    }
    let owner = |sums: &[f64]| {
        let (place, likely) = best(sums);
        (services[place], likely)
    };
    likely
        .into_iter()
        .map(|(connection, (sums, _))| (connection, owner(&sums)))
        .collect()
}

fn log_sum(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + values.iter().map(|value| (value - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(connection_id: i64) -> Call {
        Call {
            client_host: 1,
            server_host: 2,
            service: 9,
            connection_id,
            start_ns: 0,
            sent_ns: 0,
            answered_ns: 0,
            arrival_ns: 0,
            response_ns: 0,
            close_ns: 0,
            request_bytes: 0,
            response_bytes: 0,
            is_cut: false,
            method: crate::NONE,
            call_words: crate::target_words::Words::default(),
            served_words: crate::target_words::Words::default(),
        }
    }

    /// Four connections with eight calls each; `share` is how likely the first of two services made a call.
    fn owners_of(share: impl Fn(i64, u32) -> f64) -> ConnectionOwners {
        let calls: Vec<Call> = (0..32).map(|number| call(number % 4)).collect();
        let shared = |number: u32| {
            let first = share(i64::from(number % 4), number / 4);
            ServiceShares {
                call: number,
                by_service: vec![first, 1.0 - first],
            }
        };
        connection_owners(&calls, &[5, 6], &(0..32).map(shared).collect::<Vec<ServiceShares>>())
    }

    #[test]
    fn connections_belong_to_the_services_that_each_of_their_calls_may_be_of() {
        let found = owners_of(|connection, turn| match (connection % 2, turn % 2) {
            (0, 0) => 1.0,
            (1, 0) => 0.0,
            _ => 0.5,
        });
        let of: Vec<i64> = found.values().map(|of| of.0).collect();
        assert_eq!(of, [5, 6, 5, 6]);
        assert!(found.values().all(|of| of.1 > 0.99), "{found:?}");
    }

    #[test]
    fn connections_that_all_services_use_belong_to_none() {
        let found = owners_of(|_, turn| f64::from(turn % 2));
        assert!(found.is_empty(), "{found:?}");
        let mostly_one = owners_of(|connection, turn| f64::from((turn < 5) == (connection % 2 == 0)));
        assert!(mostly_one.is_empty(), "{mostly_one:?}");
        let nothing_shows = owners_of(|_, _| 0.5);
        assert!(nothing_shows.is_empty(), "{nothing_shows:?}");
    }
}
