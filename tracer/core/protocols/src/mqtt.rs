//! MQTT 3.1, 3.1.1 and 5: the fixed header and protocol name of CONNECT show that the connection is a session.
//!
//! Source: MQTT 5.0 §3.1.

use crate::head::Head;
use crate::marks::{mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    find_marks,
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
    ..Protocol::named(NAME)
};

const NAME: &str = "mqtt";
/// Type and flags.
const CONNECT: u8 = 0x10;

fn find_marks(payload: &[u8], _wire_len: usize, note: &mut dyn FnMut(usize, Head<'static>)) {
    if payload.first() == Some(&CONNECT) && is_connect(payload) {
        note(0, mark(b"CONNECT", NAME, reach::CONNECTION));
    }
}

/// CONNECT: the type, a remaining length of one to four bytes, and the protocol's name (`MQIsdp` is 3.1's).
fn is_connect(payload: &[u8]) -> bool {
    let length = payload[1..].iter().take(4);
    let more = length.take_while(|&&byte| byte & 0x80 != 0).count();
    let name = payload.get(2 + more..).unwrap_or(&[]);
    name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp")
}
