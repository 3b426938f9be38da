//! Connections that no other protocol claims; last in the registry. A message is what one side sends until the other
//! does.

use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    docs: Docs {
        reads: "nothing: a request is what a client sends until its server answers",
        ..Docs::NONE
    },
    ..Protocol::with_name("unknown")
};
