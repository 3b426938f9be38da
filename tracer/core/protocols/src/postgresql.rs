//! PostgreSQL's frontend/backend protocol 3: recognises only the query `LISTEN`, as a simple query or in a Parse
//! message. After it the server sends notifications without a request for the rest of the connection.
//!
//! Limits: a connection that continues with requests after `UNLISTEN`.
//!
//! Source: PostgreSQL's documentation, "Frontend/Backend Protocol" (message formats).

use std::ops::Range;

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[STREAM_MARK],
    begins: |start, from_client| from_client && find_listen(start).is_some(),
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: b"QP",
    fixed_bytes: &[
        b"\0\0??\0\x03\0\0",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"\0\0\0\x08\x04\xd2\x16\x30",
        b"1\0\0\0\x042\0\0",
        b"P\0\0??\0LISTEN",
        b"P\0\0??\0listen",
        b"Q\0\0??SEL",
        b"Q\0\0??sel",
        b"Q\0\0??INS",
        b"Q\0\0??UPD",
        b"Q\0\0??BEG",
        b"Q\0\0??COM",
        b"Q\0\0??LISTEN",
        b"Q\0\0??listen",
        b"R\0\0\0?\0\0\0",
        b"Z\0\0\0\x05I",
        b"Z\0\0\0\x05T",
    ],
    overwrite,
    docs: Docs {
        reads: "`LISTEN`, as a simple query or in a Parse message",
        agent_keeps: "type and length of a message; of a query the first letters of its verb",
        overwrites: "the password message, whole",
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "postgresql";
/// Type and length of a message.
const HEADER_LEN: usize = 5;
const LISTEN: &[u8] = b"LISTEN";

/// Keep the bytes that show `LISTEN`.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if let Some((name_end, word)) = find_listen(payload.bytes).filter(|_| keeper.has_room()) {
        let parts = [0..HEADER_LEN, name_end, word]; // the statement's name is left out
        keeper.keep(payload.bytes, 0, &parts, payload.bytes.len() as u32);
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if find_listen(excerpt.bytes).is_some() {
        emit(0, &mark(b"LISTEN", NAME, reach::REST));
    }
}

/// Overwrite a PasswordMessage, which holds a password or a proof of knowing one; false for other messages.
fn overwrite(payload: &mut [u8]) -> bool {
    let is_password = matches!(payload, [b'p', a, b, c, d, ..]
        if u32::from_be_bytes([*a, *b, *c, *d]) as usize == payload.len() - 1);
    if is_password {
        payload[HEADER_LEN..].fill(b'x');
    }
    is_password
}

/// Range of `LISTEN` as the first word of a query (`Q`) or of a prepared statement (`P`), and the range of the byte
/// that ends the statement's name before it.
fn find_listen(payload: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
    let text = payload.get(HEADER_LEN..)?;
    let name_end = match payload[0] {
        b'Q' => HEADER_LEN..HEADER_LEN,
        b'P' => {
            let end = HEADER_LEN + text.iter().position(|&byte| byte == 0)?;
            end..end + 1
        }
        _ => return None,
    };
    let query = payload[name_end.end..].trim_ascii_start();
    let (word, rest) = query.split_at(query.len().min(LISTEN.len()));
    let is_listen = word.eq_ignore_ascii_case(LISTEN) && matches!(rest.first(), None | Some(b' ' | b'\t'));
    let start = payload.len() - query.len();
    (payload[1..3] == [0, 0] && is_listen).then_some((name_end, start..start + word.len()))
}
