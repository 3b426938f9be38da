//! memcached's text protocol, with its meta commands.
//!
//! ```text
//! set user:1234 0 60 5\r\nAlice\r\n       ─▶  set user:*
//! STORED\r\n                              ◀─
//! get user:1234 user:1235\r\n             ─▶  get user:*
//! VALUE user:1234 0 5\r\nAlice\r\nEND\r\n   ◀─  one answer
//! mg a v q\r\nmg b v q\r\nmn\r\n            ─▶  mg (a batch: only hits are answered, until MN)
//! ```
//! Commands and answers are lines, some followed by data of a stated length, so each direction is read from its first
//! byte on (`client`, `server`), from a client's command that no other protocol sends. The i-th answer answers the i-th
//! command. A request is named by its command and the shape of its first key; no value is kept. The first `set` of a
//! connection may hold a password (ASCII authentication): it is a value.
//!
//! A command with `noreply` is a request without an answer, and listed among the streams. So is `watch`, after which the
//! server sends without a request. Errors begin with `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`; a miss is none.
//!
//! Limits: the binary protocol; quiet meta commands that another command than `mn` ends, after which a connection is not
//! read; `delete`, `stats`, `version` and the like as a connection's first command, which other protocols have as well.
//!
//! Source: memcached's `doc/protocol.txt` (1.6.18).

use std::borrow::Cow;
use std::ops::Range;

use crate::exchanges::{Exchanges, MessageFields, Order, Role};
use crate::head::HeadKind;
use crate::kept_messages::{self, Kinds};
use crate::protocol::{AgentKeeps, Docs, Parts, Protocol, Scanner, Scanning};
use crate::results::{Results, StatusClass};

mod client;
mod payload_policy;
mod server;

#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"abcdfgilmpqrstvwBCDEHIMNORSTUV0123456789",
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: |captured, _| payload_policy::blank(captured),
    }),
    head_kinds: &[COMMAND, ANSWER],
    begins: |start, from_client| {
        if from_client {
            is_kept_command(start)
        } else {
            server::is_kept_answer(start)
        }
    },
    exchanges: Exchanges::Ordered(&ORDER),
    results: RESULTS,
    scanning: Some(&SCANNING),
    read: |excerpt, emit| kept_messages::read(&KINDS, excerpt, emit),
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
        reads: "commands (text and meta), the shape of their first key, answers and errors, wherever they stand; what marks \
                streams: `noreply`, `watch`",
        agent_keeps: "lines of commands and answers: names, lengths, keys with digits and ids masked; no data",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "memcached";
pub(crate) const COMMAND: HeadKind = HeadKind(9);
pub(crate) const ANSWER: HeadKind = HeadKind(14);

const SCANNING: Scanning = Scanning {
    begins: client::begins,
    resumes: |payload, from_client| {
        if from_client {
            client::resumes(payload)
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

const KINDS: Kinds = Kinds {
    request: COMMAND,
    answer: ANSWER,
    protocol: NAME,
    no_answer: b"noreply",
    is_request: is_kept_command,
};

/// Result codes: 0 is an answer that is no error; appended to only, since the numbers are in traces. A server out of
/// memory, or that gives up, is the server's; a line that it does not understand, or too large a value, the client's.
const ERRORS: [(&str, StatusClass); 5] = [
    ("OK", StatusClass::Ok),
    ("ERROR", StatusClass::ClientError),
    ("CLIENT_ERROR", StatusClass::ClientError),
    ("SERVER_ERROR", StatusClass::ServerError),
    ("BUSY", StatusClass::Refused),
];

const RESULTS: Results = Results {
    class: |_, code| error(code).map_or(StatusClass::Unknown, |(_, class)| *class),
    name: |code| (code > 0).then(|| error(code).map(|(word, _)| Cow::Borrowed(*word)))?,
};

const ORDER: Order = Order {
    role,
    is_bodiless: |_| false,
    follows: false,
    is_after_gap: |_| true,
    is_end: |_| false,
    is_seamless: true,
};

/// Where the words of a line are, for all that read or overwrite it: only spaces are between them, one or several.
fn word_places(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    line.split(|byte| *byte == b' ').filter_map(move |word| {
        let place = at..at + word.len();
        at = place.end + 1;
        (!word.is_empty()).then_some(place)
    })
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    word_places(line).map(|place| &line[place])
}

fn error(code: i32) -> Option<&'static (&'static str, StatusClass)> {
    ERRORS.get(usize::try_from(code).ok()?)
}

fn role(message: &MessageFields, from_client: bool) -> Option<Role> {
    match (message.head_kind, from_client) {
        (COMMAND, true) => Some(Role::Request),
        (ANSWER, false) => Some(Role::Response),
        _ => None,
    }
}

/// Whether an excerpt with these first bytes is of a command.
fn is_kept_command(start: &[u8]) -> bool {
    let len = start
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_')
        .count();
    start[len..].starts_with(b"\r\n") && client::find(&start[..len]).is_some()
}
