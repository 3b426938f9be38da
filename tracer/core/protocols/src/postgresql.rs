//! PostgreSQL's frontend/backend protocol 3: of its queries only `LISTEN`, after which the server speaks unasked for the
//! rest of the connection, as a simple query or in a Parse message.
//!
//! Limits: a connection that goes on with requests after `UNLISTEN`.
//!
//! Source: PostgreSQL's documentation, "Frontend/Backend Protocol" (message formats).

use crate::head::Head;
use crate::marks::{mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    find_marks,
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
    ..Protocol::named(NAME)
};

const NAME: &str = "postgresql";
/// Type and length of a message.
const HEADER_LEN: usize = 5;

fn find_marks(payload: &[u8], _wire_len: usize, note: &mut dyn FnMut(usize, Head<'static>)) {
    if matches!(payload.first(), Some(b'Q' | b'P')) && is_listen(payload) {
        note(0, mark(b"LISTEN", NAME, reach::REST));
    }
}

/// Overwrite a PasswordMessage, which holds a password or what proves that one is known; false for anything else.
fn overwrite(payload: &mut [u8]) -> bool {
    let is_password = matches!(payload, [b'p', a, b, c, d, ..]
        if u32::from_be_bytes([*a, *b, *c, *d]) as usize == payload.len() - 1);
    if is_password {
        payload[HEADER_LEN..].fill(b'x');
    }
    is_password
}

/// `Q`, or `P` with a statement's name, and `LISTEN` as the query's first word.
fn is_listen(payload: &[u8]) -> bool {
    let Some(text) = payload.get(5..) else {
        return false;
    };
    let name_len = match payload[0] {
        b'P' => text.iter().position(|&byte| byte == 0).map(|len| len + 1),
        _ => Some(0),
    };
    let query = name_len
        .and_then(|len| text.get(len..))
        .unwrap_or(&[])
        .trim_ascii_start();
    let (word, rest) = query.split_at(query.len().min(6));
    payload[1..3] == [0, 0] && word.eq_ignore_ascii_case(b"LISTEN") && matches!(rest.first(), None | Some(b' ' | b'\t'))
}
