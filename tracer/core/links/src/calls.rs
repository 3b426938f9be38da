//! Calls: exchanges, where those of a connection that are one dialogue are taken together.
//!
//! A request that waits for an interim answer (HTTP's `100 Continue`) looks like two exchanges where heads are not
//! visible. Such answers show by themselves: they are short, always come first on their connection, and the connection
//! always goes on after them.

use std::collections::{HashMap, HashSet};

use crate::{Exchanges, UNSEEN};

/// In place of a time that never came.
pub const FAR: i64 = i64::MAX / 4;
/// An interim answer has no body and hardly a head.
const SHORT_BYTES: i64 = 64;
/// Of the answers of that length, so many in ten must come first and be followed.
const NEARLY_ALL: usize = 9;

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub client_host: i64,
    pub server_host: i64,
    pub service: i64,
    /// At the client: when it began to connect, or to send.
    pub start_ns: i64,
    /// At the client: when the answer began to arrive.
    pub end_ns: i64,
    /// At the server: when the request began to arrive, when its answer began to leave, and when all of it had left.
    pub open_ns: i64,
    pub out_ns: i64,
    pub close_ns: i64,
    pub request_bytes: i64,
    pub response_bytes: i64,
}

pub struct Calls {
    pub calls: Vec<Call>,
    order: Vec<u32>,
    from: Vec<u32>,
}

impl Calls {
    /// Rows of the exchanges of a call, in order of time.
    pub fn rows(&self, call: usize) -> &[u32] {
        &self.order[self.from[call] as usize..self.from[call + 1] as usize]
    }

    /// Of the exchanges of a call, the row of the last one that its server had begun to receive by then.
    pub fn row_at(&self, exchanges: &Exchanges, call: usize, at_ns: i64) -> i64 {
        let rows = self.rows(call);
        let begun = |row: &&u32| opened(exchanges, **row as usize) <= at_ns;
        (*rows.iter().rev().find(begun).unwrap_or(&rows[0])).into()
    }
}

fn seen(values: &[i64], otherwise: i64) -> i64 {
    values
        .iter()
        .copied()
        .find(|&value| value != UNSEEN)
        .unwrap_or(otherwise)
}

fn opened(e: &Exchanges, row: usize) -> i64 {
    seen(&[e.request_first_received_ns[row], e.request_first_sent_ns[row]], FAR)
}

pub fn calls(e: &Exchanges) -> Calls {
    let began = |row: usize| seen(&[e.request_first_sent_ns[row], e.request_first_received_ns[row]], FAR);
    let mut order: Vec<u32> = (0..e.service.len() as u32).collect();
    order.sort_by_key(|&row| (e.connection_id[row as usize], began(row as usize)));
    let interim = interim_answers(e, &order);
    let goes_on = |place: usize| {
        let (before, row) = (order[place - 1] as usize, order[place] as usize);
        e.connection_id[before] == e.connection_id[row]
            && interim.contains(&(e.service[before], e.response_bytes[before]))
    };
    let mut from: Vec<u32> = (0..order.len())
        .filter(|&place| place == 0 || !goes_on(place))
        .map(|p| p as u32)
        .collect();
    from.push(order.len() as u32);
    let calls = from
        .windows(2)
        .map(|ends| call(e, &order[ends[0] as usize..ends[1] as usize]))
        .collect();
    Calls { calls, order, from }
}

/// (service, length) of interim answers.
fn interim_answers(e: &Exchanges, order: &[u32]) -> HashSet<(i64, i64)> {
    let mut counts: HashMap<(i64, i64), (usize, usize)> = HashMap::new();
    for (place, row) in order.iter().map(|&row| row as usize).enumerate() {
        if !(1..=SHORT_BYTES).contains(&e.response_bytes[row]) {
            continue;
        }
        let same = |other: Option<&u32>| other.is_some_and(|&o| e.connection_id[o as usize] == e.connection_id[row]);
        let first = !same(place.checked_sub(1).and_then(|before| order.get(before)));
        let (all, fit) = counts.entry((e.service[row], e.response_bytes[row])).or_default();
        *all += 1;
        *fit += usize::from(first && same(order.get(place + 1)));
    }
    let fits = |(_, (all, fit)): &(_, (usize, usize))| fit * 10 >= all * NEARLY_ALL;
    counts.into_iter().filter(fits).map(|(key, _)| key).collect()
}

fn call(e: &Exchanges, rows: &[u32]) -> Call {
    let (first, last) = (rows[0] as usize, rows[rows.len() - 1] as usize);
    let out_ns = seen(
        &[
            e.response_first_sent_ns[last],
            e.response_first_received_ns[last],
            e.given_up_ns[last],
        ],
        FAR,
    );
    Call {
        client_host: e.client_host[first],
        server_host: e.server_host[first],
        service: e.service[first],
        start_ns: seen(
            &[
                e.connect_start_ns[first],
                e.request_first_sent_ns[first],
                e.request_first_received_ns[first],
            ],
            FAR,
        ),
        end_ns: seen(
            &[
                e.response_first_received_ns[last],
                e.response_first_sent_ns[last],
                e.given_up_ns[last],
            ],
            FAR,
        ),
        open_ns: opened(e, first),
        out_ns,
        close_ns: seen(
            &[e.response_last_sent_ns[last], e.response_last_received_ns[last]],
            out_ns,
        ),
        request_bytes: rows.iter().map(|&row| e.request_bytes[row as usize].max(0)).sum(),
        response_bytes: e.response_bytes[last].max(0),
    }
}
