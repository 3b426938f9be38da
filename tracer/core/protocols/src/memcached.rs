//! memcached, its text protocol: verbs and answers, by which a server is named.
//!
//! Source: memcached's `protocol.txt`.

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[
        b"DELETED\r\n",
        b"END\r\n",
        b"NOT_STORED\r\n",
        b"NOT_FOUND\r\n",
        b"STORED\r\n",
        b"VALUE ",
        b"add ",
        b"delete ",
        b"get ",
        b"gets ",
        b"incr ",
        b"set ",
        b"touch ",
    ],
    docs: Docs {
        agent_keeps: "the verb of a command or an answer",
        ..Docs::NONE
    },
    ..Protocol::with_name("memcached")
};
