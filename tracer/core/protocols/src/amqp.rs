//! AMQP 0-9-1: the header of the protocol and the heartbeat, by which a broker is named.
//!
//! Source: AMQP 0-9-1 §2.2.4, §4.2.7.

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[b"AMQP\0", b"\x08\0\0\0\0\0\0\xce"],
    docs: Docs {
        agent_keeps: "the protocol's header; the heartbeat",
        ..Docs::NONE
    },
    ..Protocol::with_name("amqp")
};
