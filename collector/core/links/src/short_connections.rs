//! Joins the calls of a connection that a host opened for one request.
//!
//! A page opens a connection to its database, logs in, makes one statement or five, and closes it. All of these calls are
//! of one request, but linked kind by kind, each by itself, they may get several parents, and those that are more than
//! the usual number none. So where a host's connections of a kind are short, those within a request are linked as one
//! call: it begins with the connection, ends with the last answer, and is of the kind of the connection's first call.
//!
//! ```text
//! request        |-----------------------|
//! connection       SYN login  q1  q2  q3         joined: from SYN to the answer of q3, of the kind "login"
//! ```
//!
//! Connections are grouped by the host that opens them and the kind of their first call. Those of a group are short if
//! nearly all lie within some request that their host served, and that is no accident:
//! - in the median they are no longer than a request (a pool's connection outlives many, and may lie only within one
//!   that is open for hours, as that of a client that waits for events), or
//! - more requests were open from their begin to their end than around other times, shortly before and after, of the same
//!   length: a request that makes a connection is open through all of it.
//!
//! Input: calls with their kinds. Output: the same, with joined calls behind all others, and the calls that were joined
//! without a client. As requests, which their servers serve, these stay what they were.
//!
//! Cost: sorting; for the test of accidents a bounded sample of connections, with a bounded number of requests each.

use std::collections::BTreeMap;

use crate::NONE;
use crate::dialogues::{Call, Calls, NEVER_NS};
use crate::tuning::TUNING;
use crate::work_after_response::SHIFTS;

/// Connections that are sampled, and requests before each. Structural: they bound the cost.
const SAMPLED_CONNECTIONS: usize = 1000;
const SAMPLED_REQUESTS: usize = 128;

/// The requests that a host serves.
#[derive(Default)]
struct ServedRequests {
    /// When they arrived and when they had been answered, in order of arrival.
    times: Vec<(i64, i64)>,
    /// For each of them the latest end of it and those before.
    latest_end_ns: Vec<i64>,
    median_ns: i64,
}

/// A connection that its host was seen to open.
struct Connection {
    calls: Vec<u32>,
    start_ns: i64,
    end_ns: i64,
}

/// Joins calls. `class` and `kind`: of each call; those of joined calls are appended.
pub fn join(made: &mut Calls, class: &mut Vec<u16>, kind: &mut Vec<u16>) {
    let served = served_by_host(&made.calls);
    let mut joined: Vec<Connection> = vec![];
    for ((host, _), connections) in connections_by_kind(&made.calls, kind, &served) {
        let served = &served[&host];
        if are_short(served, &connections) {
            let is_within = |c: &Connection| c.calls.len() > 1 && served.has_around(c.start_ns, c.end_ns);
            joined.extend(connections.into_iter().filter(is_within));
        }
    }
    for connection in joined {
        let first = connection.calls[0] as usize;
        made.join(&connection.calls, joined_call(&made.calls, &connection));
        class.push(class[first]);
        kind.push(kind[first]);
        for call in connection.calls {
            made.calls[call as usize].client_host = NONE;
        }
    }
}

fn joined_call(calls: &[Call], connection: &Connection) -> Call {
    let all = || connection.calls.iter().map(|&call| &calls[call as usize]);
    Call {
        sent_ns: connection.end_ns,
        answered_ns: connection.end_ns,
        request_bytes: all().map(|call| call.request_bytes).sum(),
        response_bytes: all().map(|call| call.response_bytes).sum(),
        is_cut: all().any(|call| call.is_cut),
        ..calls[connection.calls[0] as usize]
    }
}

fn served_by_host(calls: &[Call]) -> BTreeMap<i64, ServedRequests> {
    let mut served: BTreeMap<i64, ServedRequests> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.close_ns < NEVER_NS) {
        let times = &mut served.entry(call.server_host).or_default().times;
        times.push((call.arrival_ns, call.close_ns));
    }
    served.remove(&NONE);
    for served in served.values_mut() {
        served.sort();
    }
    served
}

/// Connections to others of hosts that serve, by host and the kind of their first call. Those of which the opening was
/// not seen are empty.
fn connections_by_kind(
    calls: &[Call],
    kind: &[u16],
    served: &BTreeMap<i64, ServedRequests>,
) -> BTreeMap<(i64, u16), Vec<Connection>> {
    let mut order: Vec<u32> = (0..calls.len() as u32).collect();
    order.retain(|&call| served.contains_key(&calls[call as usize].client_host));
    order.sort_by_key(|&call| (calls[call as usize].connection_id, calls[call as usize].sent_ns));
    let mut found: BTreeMap<(i64, u16), Vec<Connection>> = BTreeMap::new();
    for same in order.chunk_by(|&a, &b| calls[a as usize].connection_id == calls[b as usize].connection_id) {
        let key = (calls[same[0] as usize].client_host, kind[same[0] as usize]);
        found.entry(key).or_default().push(Connection::new(calls, same));
    }
    found
}

/// Whether nearly all of these connections lie within a request, and not by accident.
fn are_short(served: &ServedRequests, connections: &[Connection]) -> bool {
    let seen: Vec<&Connection> = connections.iter().filter(|c| !c.calls.is_empty()).collect();
    let within = seen.iter().filter(|c| served.has_around(c.start_ns, c.end_ns)).count();
    if within < TUNING.min_calls_per_kind || (within as f64) < TUNING.short_min_share * connections.len() as f64 {
        return false;
    }
    let mut lengths_ns: Vec<i64> = seen.iter().map(|c| c.end_ns - c.start_ns).collect();
    median(&mut lengths_ns) <= served.median_ns || are_owned(served, &seen)
}

/// Whether more requests are open all the time from a connection's begin to its end than around other times.
fn are_owned(served: &ServedRequests, connections: &[&Connection]) -> bool {
    let starts = || connections.iter().map(|c| c.start_ns);
    let span_ns = starts().max().unwrap_or(0) - starts().min().unwrap_or(0);
    let between_ns = span_ns as f64 / connections.len() as f64;
    let step = connections.len().div_ceil(SAMPLED_CONNECTIONS);
    let more = |c: &&&Connection| {
        let around = |shift: f64| {
            let by_ns = (shift * between_ns) as i64;
            served.count_around(c.start_ns + by_ns, c.end_ns + by_ns) as f64
        };
        around(0.0) - SHIFTS.iter().map(|&shift| around(shift)).sum::<f64>() / SHIFTS.len() as f64
    };
    let more: Vec<f64> = connections.iter().step_by(step).map(|c| more(&c)).collect();
    let count = more.len() as f64;
    let mean = more.iter().sum::<f64>() / count;
    let variance = more.iter().map(|more| (more - mean).powi(2)).sum::<f64>() / count;
    mean > TUNING.short_min_excess_requests && mean > TUNING.linger_sigmas * (variance / count).sqrt()
}

fn median(values: &mut [i64]) -> i64 {
    let middle = values.len() / 2;
    *values.select_nth_unstable(middle).1
}

impl Connection {
    /// `same`: its calls by time.
    fn new(calls: &[Call], same: &[u32]) -> Self {
        let first = &calls[same[0] as usize];
        let is_timed = |&call: &u32| calls[call as usize].sent_ns < NEVER_NS;
        let is_seen = first.start_ns < first.sent_ns && same.iter().all(is_timed);
        // a farewell has no answer, and may follow the response of the request
        let answers = same.iter().map(|&call| calls[call as usize].answered_ns);
        let end_ns = answers.filter(|&at_ns| at_ns < NEVER_NS).max();
        Connection {
            calls: if is_seen { same.to_vec() } else { vec![] },
            start_ns: first.start_ns,
            end_ns: end_ns.unwrap_or(first.sent_ns),
        }
    }
}

impl ServedRequests {
    fn sort(&mut self) {
        self.times.sort_unstable();
        let mut latest_ns = i64::MIN;
        let latest = self.times.iter().map(|times| {
            latest_ns = latest_ns.max(times.1);
            latest_ns
        });
        self.latest_end_ns = latest.collect();
        let mut lengths_ns: Vec<i64> = self.times.iter().map(|times| times.1 - times.0).collect();
        self.median_ns = median(&mut lengths_ns);
    }

    fn arrived_until(&self, at_ns: i64) -> usize {
        self.times.partition_point(|times| times.0 <= at_ns)
    }

    /// Whether some request was open all the time.
    fn has_around(&self, start_ns: i64, end_ns: i64) -> bool {
        let arrived = self.arrived_until(start_ns);
        arrived > 0 && self.latest_end_ns[arrived - 1] >= end_ns
    }

    /// How many of the last requests were.
    fn count_around(&self, start_ns: i64, end_ns: i64) -> usize {
        let arrived = self.arrived_until(start_ns);
        let last = &self.times[arrived.saturating_sub(SAMPLED_REQUESTS)..arrived];
        last.iter().filter(|times| times.1 >= end_ns).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const FRONT: i64 = 0;
    const PAGES: i64 = 1;

    fn call(client_host: i64, connection_id: i64, from_ns: i64, until_ns: i64) -> Call {
        Call {
            client_host,
            server_host: client_host + 1,
            service: client_host + 1,
            connection_id,
            ..Call::between(from_ns, until_ns)
        }
    }

    /// A connection to the database with calls of 1 ms, one after another, and a farewell.
    fn connection(connection_id: i64, opened_ns: i64, calls: i64) -> Vec<Call> {
        let at = |number: i64| opened_ns + (1 + 2 * number) * MS;
        let mut made: Vec<Call> = (0..calls)
            .map(|number| call(PAGES, connection_id, at(number), at(number) + MS))
            .collect();
        made[0].start_ns = opened_ns;
        made.push(call(PAGES, connection_id, at(calls), NEVER_NS));
        made
    }

    /// The calls of each connection that are joined, and how many calls are not.
    fn join_calls(calls: Vec<Call>) -> (Vec<usize>, usize) {
        let of_service = |call: &Call| call.service as u16;
        let mut class: Vec<u16> = calls.iter().map(of_service).collect();
        let mut kind = class.clone();
        let count = calls.len();
        let mut made = Calls::of_one_exchange_each(calls);
        join(&mut made, &mut class, &mut kind);
        assert_eq!((class.len(), kind.len()), (made.calls.len(), made.calls.len()));
        let to_database = made.calls[..count].iter().filter(|call| call.client_host == PAGES);
        let apart = to_database.count();
        (
            (count..made.calls.len()).map(|call| made.rows(call).len()).collect(),
            apart,
        )
    }

    #[test]
    fn calls_of_a_connection_that_a_request_opened_and_closed_are_one_call() {
        let page = |number: i64| {
            let (at_ns, calls) = (number * 7 * MS, 1 + number % 3);
            let mut made = connection(number, at_ns + MS, calls);
            let all_answered_ns = made[calls as usize - 1].answered_ns;
            made.push(call(FRONT, 1000 + number, at_ns, all_answered_ns + MS));
            made
        };
        let (joined, apart) = join_calls((0..60).flat_map(page).collect());
        assert_eq!(joined.len(), 60);
        assert!(
            joined
                .iter()
                .enumerate()
                .all(|(number, calls)| *calls == 2 + number % 3)
        );
        assert_eq!(apart, 0);
    }

    #[test]
    fn connections_that_outlive_requests_lie_within_a_long_one_by_accident() {
        let mut calls: Vec<Call> = (0..400)
            .map(|number| call(FRONT, number, number * 5 * MS, (number * 5 + 4) * MS))
            .collect();
        calls.push(call(FRONT, 999, 0, 5_000 * MS));
        let calls = calls
            .into_iter()
            .chain((0..60).flat_map(|number| connection(1000 + number, number * 20 * MS, 8)));
        assert_eq!(join_calls(calls.collect()).0, []);
    }

    #[test]
    fn few_requests_that_take_longer_than_all_others_join_their_calls_too() {
        let page = |number: i64| {
            let at_ns = number * number % 17 * MS + number * 50 * MS;
            let mut made = connection(number, at_ns + MS, 5);
            made.push(call(FRONT, 1000 + number, at_ns, at_ns + 13 * MS));
            made.extend((0..4).map(|other| {
                call(
                    FRONT,
                    2000 + 4 * number + other,
                    at_ns + (20 + other) * MS,
                    at_ns + (20 + other) * MS + 1,
                )
            }));
            made
        };
        assert_eq!(join_calls((0..60).flat_map(page).collect()).0.len(), 60);
    }

    #[test]
    fn connections_opened_before_the_capture_stay_as_they_are() {
        let page = |number: i64| {
            let mut made = connection(number, number * 20 * MS + MS, 3);
            made[0].start_ns = made[0].sent_ns;
            made.push(call(FRONT, 1000 + number, number * 20 * MS, (number * 20 + 15) * MS));
            made
        };
        assert_eq!(join_calls((0..60).flat_map(page).collect()).0, []);
    }
}
