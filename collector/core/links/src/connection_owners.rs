//! Which of a host's services uses which connection.
//!
//! Several services of one host may ask the same one (processes with a port each, a service and its sidecar), each over
//! connections that it keeps. What order each of them keeps does not show in their calls together. But whose a connection is
//! shows by and by: at each of its calls a request of that service was open, and at such times as it makes calls. So shares
//! of its calls are added up by service ([`crate::unordered`]), and where connections so distinguished explain the calls better
//! than connections that all services use, each service's calls are linked by themselves.

use std::collections::{BTreeMap, BTreeSet};

use crate::dialogues::Call;
use crate::tuning::TUNING;

/// How likely each service of a host made a call.
pub struct Shared {
    pub call: u32,
    /// By place in the list of services.
    pub by_service: Vec<f64>,
}

/// The services that may have been asked for `children`, calls that reuse connections; nothing if there is one only.
pub fn services(calls: &[Call], parents: &[u32], children: &[u32]) -> Vec<i64> {
    let connections: BTreeSet<i64> = children.iter().map(|&c| calls[c as usize].connection_id).collect();
    if connections.len() * TUNING.owner_min_calls_per_connection > children.len() {
        return vec![];
    }
    let services: BTreeSet<i64> = parents.iter().map(|&p| calls[p as usize].service).collect();
    if services.len() > 1 {
        services.into_iter().collect()
    } else {
        vec![]
    }
}

/// For each connection the service to which it belongs, and how likely that is.
pub type ConnectionOwners = BTreeMap<i64, (i64, f64)>;

/// The owners of connections, if connections belong to services.
pub fn owners(calls: &[Call], services: &[i64], shared: &[Shared]) -> ConnectionOwners {
    let mut usual = vec![TUNING.owner_min_share; services.len()];
    for one in shared {
        usual
            .iter_mut()
            .zip(&one.by_service)
            .for_each(|(sum, share)| *sum += share);
    }
    let all: f64 = usual.iter().sum();
    usual.iter_mut().for_each(|share| *share /= all);
    // of each connection, by service: how likely its calls are beside those of a connection that all use, as logarithms
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
            Shared {
                call: number,
                by_service: vec![first, 1.0 - first],
            }
        };
        owners(&calls, &[5, 6], &(0..32).map(shared).collect::<Vec<Shared>>())
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
