//! NATS: the client's CONNECT shows that the connection is a session, on which both sides send without a request; the
//! server's greeting names it.
//!
//! Limits: a request of NATS is two messages on subjects, over the server; neither is read.
//!
//! Source: NATS documentation, "Client protocol" (CONNECT, INFO).

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"C",
    head_kinds: &[STREAM_MARK],
    begins: |start, from_client| start.starts_with(if from_client { CONNECT } else { INFO }),
    exchanges: Exchanges::Streams,
    keep,
    read,
    fixed_bytes: &[INFO, CONNECT],
    docs: Docs {
        reads: "CONNECT, which makes the connection a session",
        agent_keeps: "`INFO {\"server`, `CONNECT {`",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "nats";
const INFO: &[u8] = b"INFO {\"server";
const CONNECT: &[u8] = b"CONNECT {";

/// Keep the bytes that show a CONNECT; what follows may be a password.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if payload.bytes.starts_with(CONNECT) && keeper.has_room() {
        keeper.keep_start(payload.bytes, 0, CONNECT.len(), payload.bytes.len() as u32);
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if excerpt.bytes.starts_with(CONNECT) {
        emit(0, &mark(b"CONNECT", NAME, reach::CONNECTION));
    }
}
