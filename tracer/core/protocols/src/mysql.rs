//! MySQL and MariaDB: the greeting of a server, by which it is named.
//!
//! Source: MySQL's documentation, "Protocol::HandshakeV10".

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[b"?\0\0\0\x0a5.", b"?\0\0\0\x0a8.", b"?\0\0\0\x0a9.", b"?\0\0\0\x0a1?."],
    docs: Docs {
        agent_keeps: "the length of the greeting and the first digit of the version",
        ..Docs::NONE
    },
    ..Protocol::with_name("mysql")
};
