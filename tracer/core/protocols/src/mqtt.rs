//! MQTT 3.1, 3.1.1 and 5: the fixed header and protocol name of CONNECT show that the connection is a session.
//!
//! Source: MQTT 5.0 §3.1.

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[STREAM_MARK],
    begins: |start, from_client| from_client && name_end(start).is_some(),
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: &[CONNECT],
    fixed_bytes: &[
        b"\x10?\0\x04MQTT",
        b"\x10??\0\x04MQTT",
        b"\x10?\0\x06MQIsdp",
        b"\x10??\0\x06MQIsdp",
    ],
    docs: Docs {
        reads: "CONNECT, which makes the connection a session",
        agent_keeps: "the fixed header and the protocol's name in CONNECT",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "mqtt";
/// Type and flags.
const CONNECT: u8 = 0x10;

/// Keep the bytes that show a CONNECT.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if let Some(end) = name_end(payload.bytes).filter(|_| keeper.has_room()) {
        keeper.keep_start(payload.bytes, 0, end, payload.bytes.len() as u32);
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if name_end(excerpt.bytes).is_some() {
        emit(0, &mark(b"CONNECT", NAME, reach::CONNECTION));
    }
}

/// Offset at which the protocol's name ends in a CONNECT, after the type and a remaining length of one to four bytes
/// (`MQIsdp` is the name of 3.1).
fn name_end(payload: &[u8]) -> Option<usize> {
    let length = payload.strip_prefix(&[CONNECT])?.iter().take(4);
    let start = 2 + length.take_while(|&&byte| byte & 0x80 != 0).count();
    let name = payload.get(start..)?;
    let names: [&[u8]; 2] = [b"\0\x04MQTT", b"\0\x06MQIsdp"];
    names
        .into_iter()
        .find(|known| name.starts_with(known))
        .map(|known| start + known.len())
}
