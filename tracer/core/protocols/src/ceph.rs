//! Ceph's messenger, versions 1 and 2: banners, and the types of messages, by which daemons are named.
//!
//! Source: Ceph's documentation, "msgr2 protocol (msgr2.0 and msgr2.1)".

use crate::fixed_bytes::Pattern;
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    fixed_bytes: &[MESSAGE, b"\x11?\x29\0\0\0\x08\0", b"ceph v2\n", b"ceph v027"],
    docs: Docs {
        agent_keeps: "the banner; of a message the frame's preamble, its sequence and transaction numbers",
        ..Docs::NONE
    },
    ..Protocol::with_name("ceph")
};

/// A message up to its type: the frame's preamble (32 bytes), and the header's sequence and transaction numbers.
const MESSAGE: Pattern = b"\x11?\x29\0\0\0\x08\0??????????????????????????????????????????";
