//! MongoDB: the header of a message, by which a server is named.
//!
//! Source: MongoDB's wire protocol, OP_MSG.

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[b"????????\0\0\0\0\xdd\x07\0\0"],
    docs: Docs {
        agent_keeps: "the header of a message: length, number, operation",
        ..Docs::NONE
    },
    ..Protocol::with_name("mongodb")
};
