//! Keeps the lengths and numbers of MySQL's packets, what names a request, and the status or error of an answer;
//! overwrites everything else.
//!
//! | packet | kept of its body |
//! |---|---|
//! | greeting | the server's version |
//! | a client's answer to it | its capabilities; no name, no password |
//! | COM_QUERY, COM_STMT_PREPARE | the statement; the values in it, and its comments, are overwritten |
//! | COM_STMT_EXECUTE | the statement's number; no parameters |
//! | other commands | which one |
//! | first packet of an answer | OK: numbers and status. Error: its number. The number of columns |
//! | EOF | all, which is its status |
//! | what asks for another proof or for a file | that it does |
//! | all others: descriptions of columns, rows, files, … | nothing |
//!
//! Limits: as of PostgreSQL's.

use std::ops::Range;

use crate::sql::{Dialect, overwrite_literals, overwrite_texts};

use super::packets::{EOF, ERR, HEADER_LEN, INFILE, LOGIN_FIXED_LEN, OK, Packet, chain, command, status};
use super::{SURE_COUNT, begins};

/// Packets of one payload that are checked, at most.
const CHECKED_MAX: usize = 64;
/// Kept of an error: its number, and the SQLSTATE.
const ERR_LEN: usize = 9;
/// Kept of an OK packet: two numbers, the status and the number of warnings.
const OK_LEN: usize = 12;
/// Kept of an execution: the command, the statement's number, flags and a count.
const EXECUTE_LEN: usize = 10;
/// Longest number of columns.
const COLUMNS_LEN: usize = 4;
/// The longest EOF, which is an OK packet.
const EOF_MAX_LEN: usize = 9;

/// Bytes up to the end of the last part that is kept; 0 if there is none. For the hot path.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !is_packets(payload) {
        return 0;
    }
    let inspected = &payload[..payload.len().min(limit)];
    let ends = packets(inspected).map(|place| {
        let wanted = wanted_len(inspected, &place);
        (place.start + HEADER_LEN + wanted).min(place.end)
    });
    ends.last().unwrap_or(0)
}

/// Whether a payload begins with packets that one can be sure of.
#[inline]
fn is_packets(payload: &[u8]) -> bool {
    let Some(packet) = Packet::parse(payload) else {
        return false;
    };
    let is_alone = packet.len + HEADER_LEN == payload.len();
    let is_command =
        is_alone && packet.number == 0 && packet.first().is_some_and(|first| first <= command::RESET_CONNECTION);
    let is_login_answer = is_alone && packet.number == 2 && ends_login(&packet);
    let is_chain = || {
        chain(payload, payload.len(), CHECKED_MAX)
            .is_some_and(|chain| chain.count >= SURE_COUNT || (chain.ends_with_payload && chain.count > 1))
    };
    begins(payload, payload.len()) || is_command || is_login_answer || is_chain()
}

fn ends_login(packet: &Packet<'_>) -> bool {
    match packet.body {
        [ERR, _, _, b'#', ..] => true,
        [OK, ..] => packet.status() & (status::AUTOCOMMIT | status::IN_TRANSACTION) != 0,
        _ => false,
    }
}

/// Overwrite what is not kept.
pub fn blank(captured: &mut [u8]) {
    let is_statement = begins(captured, usize::MAX) || begins(captured, captured.len());
    let places: Vec<Range<usize>> = packets(captured).collect();
    let mut end = 0;
    for place in places {
        let wanted = wanted_len(captured, &place);
        let body = &mut captured[place.start + HEADER_LEN..place.end];
        let kept = wanted.min(body.len());
        body[kept..].fill(0);
        if place.start == 0 && is_text_command(body) {
            if is_statement {
                overwrite_literals(&mut body[1..], Dialect::MySql);
            } else {
                body[1..].fill(0);
            }
        }
        end = place.end;
    }
    captured[end..].fill(0);
}

/// Overwrite what a client answers a greeting, the texts in statements, and parameters.
pub fn overwrite_values(payload: &mut [u8]) {
    if !begins(payload, payload.len()) {
        return;
    }
    let Some(packet) = Packet::parse(payload) else { return };
    let is_login = packet.login_capabilities().is_some();
    let (number, len) = (packet.number, packet.body.len());
    let body = &mut payload[HEADER_LEN..HEADER_LEN + len];
    match body {
        _ if is_login => body[LOGIN_FIXED_LEN.min(len)..].fill(b'x'),
        [command::QUERY | command::PREPARE, text @ ..] if number == 0 => overwrite_texts(text, Dialect::MySql),
        [command::EXECUTE, ..] if number == 0 => body[EXECUTE_LEN.min(len)..].fill(b'x'),
        _ => {}
    }
}

fn is_text_command(body: &[u8]) -> bool {
    matches!(body.first(), Some(&(command::QUERY | command::PREPARE)))
}

/// The packets of a payload; the last may be cut.
fn packets(payload: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = payload.get(at..)?;
        let packet = Packet::parse(rest)?;
        let start = at;
        at += HEADER_LEN + packet.body.len();
        Some(start..at)
    })
}

/// Bytes of a packet's body up to the last that is kept.
fn wanted_len(payload: &[u8], place: &Range<usize>) -> usize {
    let Some(packet) = Packet::parse(&payload[place.clone()]) else {
        return 0;
    };
    let is_only = packet.len + HEADER_LEN >= payload.len(); // more of it was not kept
    if packet.is_greeting() {
        return 1 + packet
            .body
            .iter()
            .skip(1)
            .position(|&byte| byte == 0)
            .unwrap_or(packet.body.len());
    }
    if packet.login_capabilities().is_some() {
        return LOGIN_FIXED_LEN;
    }
    match (packet.number, packet.first()) {
        (0, Some(command::QUERY | command::PREPARE | command::INIT_DB)) if place.start == 0 => packet.body.len(),
        (0, Some(command::EXECUTE | command::BULK_EXECUTE)) if place.start == 0 => EXECUTE_LEN,
        (0, Some(_)) if place.start == 0 && is_only => 1,
        (_, Some(ERR)) => ERR_LEN,
        (_, Some(EOF)) if packet.len <= EOF_MAX_LEN => EOF_MAX_LEN,
        (1 | 2, Some(EOF | INFILE)) if place.start == 0 => 1,
        (1 | 2, Some(OK)) if is_only || packet.statement_parts().is_some() => OK_LEN,
        (1, Some(_)) if place.start == 0 && packet.len <= COLUMNS_LEN => COLUMNS_LEN,
        _ => 0,
    }
}
