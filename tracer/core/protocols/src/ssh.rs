//! SSH 2: the version exchange shows that the connection is a session.
//!
//! Source: RFC 4253 §4.2.

use crate::head::Head;
use crate::marks::{mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    find_marks,
    first_bytes: b"S",
    fixed_bytes: &[VERSION],
    docs: Docs {
        reads: "the version exchange, which makes the connection a session",
        agent_keeps: "`SSH-2.0-`",
        ..Docs::NONE
    },
    ..Protocol::named(NAME)
};

const NAME: &str = "ssh";
const VERSION: &[u8] = b"SSH-2.0-";

fn find_marks(payload: &[u8], _wire_len: usize, note: &mut dyn FnMut(usize, Head<'static>)) {
    if payload.starts_with(VERSION) {
        note(0, mark(b"SSH", NAME, reach::CONNECTION));
    }
}
