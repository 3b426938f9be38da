//! What the later messages of requests and answers show, where these consist of several
//! (`twintap_protocols::ordered`): the name, the result, whether an answer has ended, and which statement is executed.
//!
//! The number of a prepared statement is in the answer to the request that prepared it, and in the requests that execute
//! it. A request whose statement's number was not seen to be given keeps its own name.

use rustc_hash::FxHashMap;
use twintap_protocols::ordered::flag::STATEMENT;

use crate::Heads;
use crate::assembly::{Exchange, NO_PLACE};
use crate::heads::Head;
use crate::numbering::Message;
use crate::parts::Role;

/// MariaDB's number of the statement that was prepared last.
const LAST_PREPARED: i64 = u32::MAX as i64;

/// Set what later messages show of exchanges.
///
/// Arguments: `own`, the heads of a connection by direction and place; `messages`, those that begin requests and
/// answers; `places`, the place of each ordinal's exchange.
pub(crate) fn describe_by_later(
    own: &[Head],
    heads: &Heads,
    messages: &[Message],
    places: &[u32],
    exchanges: &mut [Exchange],
) {
    let place_of_head = places_of_heads(own, messages, places);
    let mut is_ended = vec![false; exchanges.len()];
    for (head, place) in own.iter().zip(&place_of_head) {
        let Some(exchange) = exchanges.get_mut(*place as usize) else {
            continue;
        };
        if head.role() == Some(Role::Name) {
            exchange.request_row = head.row.into();
        }
        if !head.from_client && head.has_result() {
            exchange.result_row = head.row.into();
        }
        is_ended[*place as usize] |= head.answer_end().is_some();
    }
    for (exchange, is_ended) in exchanges.iter_mut().zip(is_ended) {
        exchange.complete &= is_ended;
    }
    name_executions(own, heads, &place_of_head, exchanges);
}

/// For each head the place of the exchange that it belongs to, or `NO_PLACE`.
fn places_of_heads(own: &[Head], messages: &[Message], places: &[u32]) -> Vec<u32> {
    let mut ordinals = vec![0; own.len()];
    for message in messages {
        if let Some(head) = message.head {
            ordinals[head as usize] = message.ordinal;
        }
    }
    let (mut current, mut from_client) = (NO_PLACE, false);
    let place = |(head, ordinal): (&Head, usize)| {
        let is_begun = matches!(head.role(), Some(Role::Request | Role::Response));
        let goes_on = ordinal == 0 && head.is_after_gap; // an answer, after a part that was not captured
        if head.from_client != from_client || (is_begun && !goes_on) {
            current = places.get(ordinal).copied().filter(|_| ordinal > 0).unwrap_or(NO_PLACE);
            from_client = head.from_client;
        }
        current
    };
    own.iter().zip(ordinals).map(place).collect()
}

/// Name the requests that execute prepared statements by these.
fn name_executions(own: &[Head], heads: &Heads, places: &[u32], exchanges: &mut [Exchange]) {
    let is_statement = |head: &Head| heads.flags[head.row as usize] & STATEMENT != 0;
    let number = |head: &Head| heads.stream_id[head.row as usize];
    let with_places = || own.iter().zip(places);
    // The rows of statements by the exchange that prepared them, ascending; then by their numbers.
    let texts = with_places().filter(|(head, _)| head.from_client && is_statement(head));
    let texts: Vec<(u32, u32)> = texts.map(|(head, place)| (*place, head.row)).collect();
    if texts.is_empty() {
        return;
    }
    let row_of = |place: u32| {
        texts
            .binary_search_by_key(&place, |text| text.0)
            .ok()
            .map(|at| texts[at].1)
    };
    let answers = with_places().filter(|(head, _)| !head.from_client && is_statement(head));
    let by_number: FxHashMap<i64, u32> = answers
        .filter_map(|(head, place)| Some((number(head), row_of(*place)?)))
        .collect();
    for (head, place) in with_places().filter(|(head, _)| head.from_client && number(head) >= 0) {
        let before = texts.partition_point(|text| text.0 < *place).checked_sub(1);
        let row = match number(head) {
            LAST_PREPARED => before.map(|before| texts[before].1),
            number => by_number.get(&number).copied(),
        };
        if let (Some(row), Some(exchange)) = (row, exchanges.get_mut(*place as usize)) {
            exchange.request_row = row.into();
        }
    }
}
