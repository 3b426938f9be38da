//! Redis (RESP 2 and 3): commands and their answers.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$9\r\nuser:1234\r\n     ─▶  GET user:*
//! $5\r\nAlice\r\n                           ◀─  no error
//! -WRONGTYPE Operation against a key …\r\n  ◀─  WRONGTYPE
//! ```
//! Commands and answers begin anywhere in packets and have no header that says their length, so each direction is read
//! from its first byte on (`client`, `server`), from a client's command with a known name. The i-th answer answers the
//! i-th command. A request is named by its command and the shape of its first key; no value is kept, and no argument of
//! a command that has none or that may hold a secret (`commands`).
//!
//! | no request | reach |
//! |---|---|
//! | `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `MONITOR`, `SYNC`, `PSYNC` | the rest of the connection |
//! | `BLPOP` and its like; `XREAD` and `XREADGROUP` with `BLOCK` | the answer to that command |
//! | `REPLCONF ACK` and `GETACK`, by which a replica reports | the connection |
//!
//! Limits: a connection that unsubscribes from everything and goes on with requests; a connection that begins with
//! inline commands, before its first command that is an array; answers without a length (`server`).
//!
//! Source: Redis serialization protocol specification; command reference.

use crate::exchanges::{Exchanges, MessageFields, Order, Role};
use crate::head::HeadKind;
use crate::kept_messages::{self, Kinds};
use crate::protocol::{AgentKeeps, Docs, Parts, Protocol, Scanner, Scanning};

mod client;
mod commands;
mod errors;
mod line;
mod marked;
mod payload_policy;
mod server;

#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[COMMAND, ANSWER],
    begins: |start, from_client| {
        if from_client {
            client::begins(start)
        } else {
            is_answer(start)
        }
    },
    exchanges: Exchanges::Ordered(&ORDER),
    results: errors::RESULTS,
    scanning: Some(&SCANNING),
    read: |excerpt, emit| kept_messages::read(&KINDS, excerpt, emit),
    first_bytes: b"*$+-:%~>_#,(=!",
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: |captured, _| payload_policy::blank(captured),
    }),
    redact_around: Some(|payload, _, rest| {
        payload_policy::overwrite_secrets(payload);
        rest(payload);
    }),
    fixed_bytes: &[b"*?\r\n$?\r\n", b"*?\r\n$??\r\n"],
    fixed_words_len: marked::waits_len,
    docs: Docs {
        reads: "commands, the shape of their first key, and answers with the first word of an error, wherever they stand; \
                what marks streams: `SUBSCRIBE` and its like, `MONITOR`, `SYNC`, `PSYNC`, `BLPOP` and its like, `XREAD` \
                and `XREADGROUP` with `BLOCK`",
        agent_keeps: "types and lengths of values; names of commands; the first key, its digits and ids masked; the first \
                      word of an error",
        overwrites: "the arguments of `AUTH`, `HELLO`, `ACL SETUSER`, `CONFIG SET`, `MIGRATE`",
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "redis";
pub(crate) const COMMAND: HeadKind = HeadKind(8);
pub(crate) const ANSWER: HeadKind = HeadKind(13);

const KINDS: Kinds = Kinds {
    request: COMMAND,
    answer: ANSWER,
    protocol: NAME,
    no_answer: b"CLIENT REPLY",
    is_request: |start| start.starts_with(b"*1\r\n$"),
};

const SCANNING: Scanning = Scanning {
    begins: client::begins,
    resumes: |payload, from_client| {
        if from_client {
            client::begins(payload)
        } else {
            server::resumes(payload)
        }
    },
    scanner: |from_client| -> Box<dyn Scanner> {
        if from_client {
            Box::new(client::ClientScanner::default())
        } else {
            Box::new(server::ServerScanner::default())
        }
    },
    keep: kept_messages::keep,
    next_head: payload_policy::next_head,
};

const ORDER: Order = Order {
    role,
    is_bodiless: |_| false,
    follows: false,
    is_after_gap: |_| true,
    is_end: |_| false,
    is_seamless: true,
};

fn role(message: &MessageFields, from_client: bool) -> Option<Role> {
    match (message.head_kind, from_client) {
        (COMMAND, true) => Some(Role::Request),
        (ANSWER, false) => Some(Role::Response),
        _ => None,
    }
}

/// Whether a direction begins with what is kept of an answer.
fn is_answer(start: &[u8]) -> bool {
    let Some((kind, rest)) = start.split_first() else {
        return false;
    };
    let word_len = rest.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    b"+-:$*_#,(!=%~>|".contains(kind) && rest[word_len..].starts_with(b"\r\n")
}
