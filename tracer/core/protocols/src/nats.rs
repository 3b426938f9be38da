//! NATS: the greeting of a server, by which it is named.
//!
//! Source: NATS' client protocol.

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[b"INFO {\"server"],
    docs: Docs {
        agent_keeps: "`INFO {\"server`",
        ..Docs::NONE
    },
    ..Protocol::with_name("nats")
};
