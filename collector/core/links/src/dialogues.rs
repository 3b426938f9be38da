//! Groups exchanges into calls: the exchanges of one dialogue on a connection are one call.
//!
//! Where heads are hidden, a request that waits for an interim answer (HTTP's `100 Continue`) looks like two exchanges.
//! Interim answers are recognised: they are short, always come first on their connection, and are mostly followed by
//! more. Where one is not followed, the client gave up: the dialogue was cut short. It is of the same kind as whole
//! dialogues, but its byte counts are not compared.
//!
//! Input: columns of exchanges. Output: `Calls`, and the exchanges of each.

use std::collections::{HashMap, HashSet};

use crate::target_words::Words;
use crate::tuning::TUNING;
use crate::{Exchanges, UNSEEN};

/// Stands for the time of an event that never happened. A quarter of the range, so that differences do not overflow.
pub const NEVER_NS: i64 = i64::MAX / 4;

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub client_host: i64,
    pub server_host: i64,
    pub service: i64,
    pub connection_id: i64,
    /// At the client: when it began to connect, or if it reused a connection, to send.
    pub start_ns: i64,
    /// At the client: when it began to send.
    pub sent_ns: i64,
    /// At the client: when the answer began to arrive.
    pub answered_ns: i64,
    /// At the server: when the request began to arrive, when the response began to leave, and when all of it had left.
    pub arrival_ns: i64,
    pub response_ns: i64,
    pub close_ns: i64,
    pub request_bytes: i64,
    pub response_bytes: i64,
    /// Whether it is a dialogue that was cut short.
    pub is_cut: bool,
    /// Number of the method (GET, PUT), `NONE` where not known.
    pub method: i64,
    /// Words of its target: those that requests at its client's host may share, and those that calls of its server's
    /// host may.
    pub call_words: Words,
    pub served_words: Words,
}

#[cfg(test)]
impl Call {
    /// An exchange of host 0 with itself, from one time to another.
    pub fn between(from_ns: i64, until_ns: i64) -> Self {
        Call {
            client_host: 0,
            server_host: 0,
            service: 0,
            connection_id: 0,
            start_ns: from_ns,
            sent_ns: from_ns,
            answered_ns: until_ns,
            arrival_ns: from_ns,
            response_ns: until_ns,
            close_ns: until_ns,
            request_bytes: 0,
            response_bytes: 0,
            is_cut: false,
            method: crate::NONE,
            call_words: Words::default(),
            served_words: Words::default(),
        }
    }
}

pub struct Calls {
    pub calls: Vec<Call>,
    /// For each call the call whose class it has: itself, or if it was cut short, the last whole dialogue with its
    /// service.
    like: Vec<u32>,
    order: Vec<u32>,
    from: Vec<u32>,
}

impl Calls {
    /// Rows of the exchanges of a call, by time.
    pub fn rows(&self, call: usize) -> &[u32] {
        &self.order[self.from[call] as usize..self.from[call + 1] as usize]
    }

    /// Calls of one exchange each, in the order of their rows.
    #[cfg(test)]
    pub fn of_one_exchange_each(calls: Vec<Call>) -> Self {
        let count = calls.len() as u32;
        Calls {
            calls,
            like: (0..count).collect(),
            order: (0..count).collect(),
            from: (0..=count).collect(),
        }
    }

    /// Appends a call that has the exchanges of some others.
    pub fn join(&mut self, others: &[u32], call: Call) {
        for &other in others {
            let range = self.from[other as usize] as usize..self.from[other as usize + 1] as usize;
            self.order.extend_from_within(range);
        }
        self.from.push(self.order.len() as u32);
        self.calls.push(call);
    }

    /// The kind of each call: its class; of one that was cut short, the class of whole ones.
    pub fn kinds(&self, class: &[u16]) -> Vec<u16> {
        self.like.iter().map(|&call| class[call as usize]).collect()
    }

    /// Row of the last exchange of a call whose request had begun to arrive at `at_ns`.
    pub fn row_at(&self, exchanges: &Exchanges, call: usize, at_ns: i64) -> i64 {
        let rows = self.rows(call);
        let begun = |row: &&u32| arrival_of(exchanges, **row as usize) <= at_ns;
        (*rows.iter().rev().find(begun).unwrap_or(&rows[0])).into()
    }
}

fn coalesce(values: &[i64], otherwise: i64) -> i64 {
    values
        .iter()
        .copied()
        .find(|&value| value != UNSEEN)
        .unwrap_or(otherwise)
}

fn arrival_of(e: &Exchanges, row: usize) -> i64 {
    coalesce(
        &[e.request_first_received_ns[row], e.request_first_sent_ns[row]],
        NEVER_NS,
    )
}

fn sending_of(e: &Exchanges, row: usize) -> i64 {
    coalesce(
        &[e.request_first_sent_ns[row], e.request_first_received_ns[row]],
        NEVER_NS,
    )
}

pub fn group_into_calls(e: &Exchanges) -> Calls {
    let began = |row: usize| sending_of(e, row);
    let mut order: Vec<u32> = (0..e.service.len() as u32).collect();
    order.sort_by_key(|&row| (e.connection_id[row as usize], began(row as usize)));
    let interim = interim_answers(e, &order);
    let begins = |row: usize| interim.contains(&(e.service[row], e.response_bytes[row]));
    let goes_on = |place: usize| {
        let (before, row) = (order[place - 1] as usize, order[place] as usize);
        e.connection_id[before] == e.connection_id[row] && begins(before)
    };
    let mut from: Vec<u32> = (0..order.len())
        .filter(|&place| place == 0 || !goes_on(place))
        .map(|p| p as u32)
        .collect();
    from.push(order.len() as u32);
    let rows = |ends: &[u32]| &order[ends[0] as usize..ends[1] as usize];
    let is_cut = |rows: &[u32]| begins(rows[rows.len() - 1] as usize);
    let calls: Vec<Call> = from
        .windows(2)
        .map(|ends| call(e, rows(ends), is_cut(rows(ends))))
        .collect();
    let like = whole_dialogues(&calls, |number| from[number + 1] - from[number] > 1);
    Calls {
        calls,
        like,
        order,
        from,
    }
}

/// The call whose class each call has: itself; if it was cut short, the last whole dialogue with its service, if any.
fn whole_dialogues(calls: &[Call], is_dialogue: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut whole: HashMap<i64, u32> = HashMap::new();
    let like = |(number, call): (usize, &Call)| {
        if call.is_cut {
            return *whole.get(&call.service).unwrap_or(&(number as u32));
        }
        if is_dialogue(number) {
            whole.insert(call.service, number as u32);
        }
        number as u32
    };
    calls.iter().enumerate().map(like).collect()
}

/// (service, length) of interim answers.
fn interim_answers(e: &Exchanges, order: &[u32]) -> HashSet<(i64, i64)> {
    let mut counts: HashMap<(i64, i64), (usize, usize, usize)> = HashMap::new();
    for (place, row) in order.iter().map(|&row| row as usize).enumerate() {
        if !(1..=TUNING.interim_max_bytes).contains(&e.response_bytes[row]) {
            continue;
        }
        let same = |other: Option<&u32>| other.is_some_and(|&o| e.connection_id[o as usize] == e.connection_id[row]);
        let first = !same(place.checked_sub(1).and_then(|before| order.get(before)));
        let (all, firsts, followed) = counts.entry((e.service[row], e.response_bytes[row])).or_default();
        *all += 1;
        *firsts += usize::from(first);
        *followed += usize::from(first && same(order.get(place + 1)));
    }
    let fits = |(_, (all, firsts, followed)): &(_, (usize, usize, usize))| {
        firsts * 100 >= all * TUNING.interim_first_percent && followed * 100 >= all * TUNING.interim_followed_percent
    };
    counts.into_iter().filter(fits).map(|(key, _)| key).collect()
}

fn call(e: &Exchanges, rows: &[u32], is_cut: bool) -> Call {
    let (first, last) = (rows[0] as usize, rows[rows.len() - 1] as usize);
    let response_ns = coalesce(
        &[
            e.response_first_sent_ns[last],
            e.response_first_received_ns[last],
            e.given_up_ns[last],
        ],
        NEVER_NS,
    );
    let arrival_ns = arrival_of(e, first);
    let close_ns = coalesce(
        &[e.response_last_sent_ns[last], e.response_last_received_ns[last]],
        response_ns,
    );
    Call {
        client_host: e.client_host[first],
        server_host: e.server_host[first],
        service: e.service[first],
        connection_id: e.connection_id[first],
        start_ns: coalesce(&[e.connect_start_ns[first]], sending_of(e, first)),
        sent_ns: sending_of(e, first),
        answered_ns: coalesce(
            &[
                e.response_first_received_ns[last],
                e.response_first_sent_ns[last],
                e.given_up_ns[last],
            ],
            NEVER_NS,
        ),
        arrival_ns,
        response_ns,
        close_ns: close_ns.max(arrival_ns), // damaged stamps can end a request before it begins
        request_bytes: rows.iter().map(|&row| e.request_bytes[row as usize].max(0)).sum(),
        response_bytes: e.response_bytes[last].max(0),
        is_cut,
        method: e.method[first],
        call_words: Words::default(),
        served_words: Words::default(),
    }
}

/// Requests by class, in the order of `parents`, and the place of each request in its class.
pub fn by_class(class: &[u16], parents: &[u32]) -> (HashMap<u16, Vec<u32>>, Vec<usize>) {
    let mut of_class: HashMap<u16, Vec<u32>> = HashMap::new();
    let mut place = vec![0; parents.len()];
    for (at, &parent) in parents.iter().enumerate() {
        let same = of_class.entry(class[parent as usize]).or_default();
        place[at] = same.len();
        same.push(parent);
    }
    (of_class, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each connection, by turns of time, the answers' lengths; all requests have 100 bytes.
    fn calls_with_answers(connections: &[&[i64]]) -> Calls {
        let lengths: Vec<i64> = connections.concat();
        let connection_id: Vec<i64> = (0..)
            .zip(connections)
            .flat_map(|(number, answers)| vec![number; answers.len()])
            .collect();
        let (same, bytes) = (vec![1; lengths.len()], vec![100; lengths.len()]);
        let times: Vec<i64> = (0..lengths.len() as i64).map(|place| 1000 * place).collect();
        group_into_calls(&Exchanges {
            client_host: &same,
            server_host: &same,
            service: &same,
            connection_id: &connection_id,
            connect_start_ns: &times,
            request_first_sent_ns: &times,
            request_first_received_ns: &times,
            response_first_sent_ns: &times,
            response_first_received_ns: &times,
            response_last_sent_ns: &times,
            response_last_received_ns: &times,
            given_up_ns: &times,
            request_bytes: &bytes,
            response_bytes: &lengths,
            method: &vec![crate::NONE; lengths.len()],
            words: &vec![[0; crate::MAX_WORDS]; lengths.len()],
        })
    }

    #[test]
    fn dialogues_cut_short_are_of_the_kind_of_whole_dialogues() {
        let found = calls_with_answers(&[&[25], &[25, 300], &[25], &[25, 300], &[500], &[25, 300]]);
        let cut: Vec<bool> = found.calls.iter().map(|call| call.is_cut).collect();
        assert_eq!(cut, [true, false, true, false, false, false]);
        assert_eq!(found.calls[1].request_bytes, 200);
        assert_eq!(found.kinds(&[0, 1, 2, 3, 4, 5]), [0, 1, 1, 3, 4, 5]);
    }

    #[test]
    fn a_request_whose_stamps_end_it_before_it_begins_is_open_for_no_time() {
        let answered = [900];
        let found = group_into_calls(&Exchanges {
            client_host: &[1],
            server_host: &[2],
            service: &[3],
            connection_id: &[4],
            connect_start_ns: &[crate::NONE],
            request_first_sent_ns: &[5_000],
            request_first_received_ns: &[6_000],
            response_first_sent_ns: &answered,
            response_first_received_ns: &answered,
            response_last_sent_ns: &answered,
            response_last_received_ns: &answered,
            given_up_ns: &[crate::NONE],
            request_bytes: &[100],
            response_bytes: &[100],
            method: &[crate::NONE],
            words: &[[0; crate::MAX_WORDS]],
        });
        assert_eq!((found.calls[0].arrival_ns, found.calls[0].close_ns), (6_000, 6_000));
    }

    #[test]
    fn short_answers_are_no_beginnings_where_they_mostly_end_a_connection_or_come_later() {
        for connections in [
            &[&[25][..], &[25], &[25, 300]],
            &[&[25, 25, 300][..], &[25, 25], &[25, 25]],
        ] {
            let found = calls_with_answers(connections);
            assert_eq!(found.calls.len(), connections.concat().len());
            assert!(found.calls.iter().all(|call| !call.is_cut));
        }
    }
}
