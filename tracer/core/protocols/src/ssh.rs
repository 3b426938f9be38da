//! SSH 2: the version exchange shows that the connection is a session.
//!
//! Source: RFC 4253 §4.2.

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[STREAM_MARK],
    begins: |start, _| start.starts_with(VERSION),
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: b"S",
    fixed_bytes: &[VERSION],
    docs: Docs {
        reads: "the version exchange, which makes the connection a session",
        agent_keeps: "`SSH-2.0-`",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "ssh";
const VERSION: &[u8] = b"SSH-2.0-";

/// Keep the bytes that show the version exchange.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if payload.bytes.starts_with(VERSION) && keeper.has_room() {
        keeper.keep_start(payload.bytes, 0, VERSION.len(), payload.bytes.len() as u32);
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if excerpt.bytes.starts_with(VERSION) {
        emit(0, &mark(b"SSH", NAME, reach::CONNECTION));
    }
}
