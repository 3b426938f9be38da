//! AMQP 0-9-1 and 1.0: the header of the protocol shows that the connection is a session. On it a broker pushes
//! messages, and clients publish and acknowledge them, many at once: what is sent before the other side sends is no
//! request. The heartbeat names a broker whose connections are older than the capture.
//!
//! Source: AMQP 0-9-1 §2.2.4, §4.2.7; AMQP 1.0 §2.2, §5.3.2.

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"A",
    head_kinds: &[STREAM_MARK],
    begins: |start, from_client| from_client && has_header(start),
    exchanges: Exchanges::Streams,
    keep,
    read,
    fixed_bytes: &[b"AMQP\0", b"AMQP\x03", b"\x08\0\0\0\0\0\0\xce"],
    docs: Docs {
        reads: "the protocol's header, which makes the connection a session",
        agent_keeps: "the protocol's header; the heartbeat",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "amqp";
/// `AMQP`, and what follows: 0 for AMQP itself, 3 for the negotiation before it (SASL), 2 for TLS; three bytes of a
/// version.
const HEADER_BYTES: usize = 8;

/// Keep the header.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if has_header(payload.bytes) && keeper.has_room() {
        let end = HEADER_BYTES.min(payload.bytes.len());
        keeper.keep_start(payload.bytes, 0, end, payload.bytes.len() as u32);
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if has_header(excerpt.bytes) {
        emit(0, &mark(b"protocol header", NAME, reach::CONNECTION));
    }
}

fn has_header(payload: &[u8]) -> bool {
    matches!(payload.strip_prefix(b"AMQP"), Some([0 | 2 | 3, ..]))
}
