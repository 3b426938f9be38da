//! Keeps the types and lengths of PostgreSQL's messages, what names a request, and the code of an error; overwrites
//! everything else.
//!
//! | message | kept of its body |
//! |---|---|
//! | Query, Parse | names and the statement; the values in it, and its comments, are overwritten |
//! | Bind | the names of portal and statement; no parameters |
//! | ErrorResponse | severity and SQLSTATE |
//! | startup messages | the version |
//! | ReadyForQuery, Authentication… | the state, the kind of authentication |
//! | all others: passwords, rows, COPY data, … | nothing |
//!
//! Of payloads that are kept whole, on the operator's demand, only values are overwritten that may be credentials: in
//! statements, of parameters, and passwords ([`overwrite_values`]).
//!
//! Limits: nothing is kept of a payload that begins within a message, nor of what lies beyond the inspected part of the
//! payload. The collector then knows that messages are missing.

use std::ops::Range;

use crate::sql::{Dialect, overwrite_literals, overwrite_texts};

use super::messages::{HEADER_LEN, chain, message_len};
use super::{CHECKED_MAX, may_begin};

/// Bytes up to the end of the last part that is kept; 0 if there is none. For the hot path.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !begins_with_messages(payload) {
        return 0;
    }
    let inspected = &payload[..payload.len().min(limit)];
    let ends = messages(inspected).map(|message| {
        let len = wanted_len(&inspected[message.clone()]);
        (message.start + len).min(message.end)
    });
    ends.last().unwrap_or(0)
}

fn begins_with_messages(payload: &[u8]) -> bool {
    let is_text = || matches!(payload[0], b'Q' | b'P') && super::is_statement(payload);
    let found = may_begin(payload)
        .then(|| chain(payload, payload.len(), CHECKED_MAX))
        .flatten();
    found.is_some_and(|chain| chain.is_solid() || is_text())
}

/// Overwrite what is not kept.
pub fn blank(captured: &mut [u8]) {
    let mut at = 0;
    while let Some(message) = next_message(captured, at) {
        at = message.end;
        blank_message(&mut captured[message]);
    }
    captured[at..].fill(0);
}

/// Overwrite passwords, parameters, and the texts in statements.
pub fn overwrite_values(payload: &mut [u8]) {
    if !begins_with_messages(payload) {
        return;
    }
    let mut at = 0;
    while let Some(message) = next_message(payload, at) {
        at = message.end;
        let (kind, body) = (
            payload[message.start],
            &mut payload[message.start + HEADER_LEN..message.end],
        );
        let names_end = names_end(kind, body);
        let values = &mut body[names_end..];
        match kind {
            b'Q' | b'P' => overwrite_texts(statement_of(values), Dialect::PostgreSql),
            b'p' | b'B' => values.fill(b'x'),
            _ => {}
        }
    }
}

/// The messages of a payload; the last may be cut.
fn messages(payload: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let message = next_message(payload, at)?;
        at = message.end;
        Some(message)
    })
}

fn next_message(payload: &[u8], at: usize) -> Option<Range<usize>> {
    let rest = payload.get(at..)?;
    let len = message_len(rest)? as usize;
    (rest[0] != 0 || at == 0).then(|| at..at + len.min(rest.len())) // only the first has no type
}

/// Bytes of a message up to the last that is kept.
fn wanted_len(message: &[u8]) -> usize {
    match message[0] {
        b'Q' | b'P' | b'B' | b'E' => message.len(),
        0 => HEADER_LEN + 3,
        b'R' => HEADER_LEN + 4,
        b'Z' => HEADER_LEN + 1,
        _ => HEADER_LEN,
    }
}

fn blank_message(message: &mut [u8]) {
    let fixed_len = wanted_len(message).min(message.len());
    let kind = message[0];
    message[fixed_len..].fill(0);
    let body = &mut message[HEADER_LEN..];
    let names_end = names_end(kind, body);
    let values = &mut body[names_end..];
    match kind {
        b'Q' | b'P' => {
            let statement = statement_of(values);
            let len = statement.len();
            overwrite_literals(statement, Dialect::PostgreSql);
            values[len..].fill(0);
        }
        b'B' => values.fill(0),
        b'E' => blank_error(values),
        _ => {}
    }
}

/// Offset after the names that a message begins with: of a statement, or of a portal and a statement.
fn names_end(kind: u8, body: &[u8]) -> usize {
    match kind {
        b'P' => text_end(body, 0),
        b'B' => text_end(body, text_end(body, 0)),
        _ => 0,
    }
}

/// The statement that a message's values begin with, without its zero.
fn statement_of(values: &mut [u8]) -> &mut [u8] {
    let len = values.iter().position(|&byte| byte == 0).unwrap_or(values.len());
    &mut values[..len]
}

/// Overwrite all fields but severity and SQLSTATE.
fn blank_error(body: &mut [u8]) {
    let mut at = 0;
    while at < body.len() {
        let end = text_end(body, at);
        if !matches!(body[at], b'S' | b'V' | b'C') {
            body[at..].fill(0);
            break;
        }
        at = end;
    }
}

/// Offset after the zero that ends the text at `at`, or the end of the body.
fn text_end(body: &[u8], at: usize) -> usize {
    let text = body.get(at..).unwrap_or(&[]);
    text.iter()
        .position(|&byte| byte == 0)
        .map_or(body.len(), |end| at + end + 1)
}
