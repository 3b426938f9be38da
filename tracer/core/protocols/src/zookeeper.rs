//! ZooKeeper: operations of a client and the answers of its server.
//!
//! ```text
//! 00000011 00000002 00000004 00000004 /app 00   ─▶  getData /app, number 2
//! 00000014 00000002 … ffffff9b                  ◀─  its answer: NONODE
//! ```
//! 1. Each message is preceded by its length. A request has a number and a type, most also a path; its answer begins with
//!    that number and has an error. Many may be under way at once.
//! 2. Both directions are followed from a client's packet that opens a session, or that consists of requests whose
//!    lengths, types and paths fit.
//! 3. Pings, and the server's notifications of watches, are no requests, and part of none.
//!
//! # Limits
//! - Of `multi` the operations in it are not read.
//! - What servers of an ensemble say to each other (ports 2888 and 3888) is another protocol.
//!
//! Source: ZooKeeper 3.9, `zookeeper.jute`, `ClientCnxn`.

use crate::exchanges::{Exchanges, FrameFields, FrameMeaning, StreamRules};
use crate::head::HeadKind;
use crate::numbered_messages::{AFTER_GAP, ANSWER, Naming, NumberedMessage, NumberedWriter};
use crate::protocol::{AgentKeeps, Docs, OnMessage, Parts, Protocol, Scanner, Scanning};
use crate::results::SAYS_NOTHING;
use crate::sized_messages::{self, SizedMessages, SizedScanner, whole_len};

use messages::{Answer, Request};

mod errors;
mod messages;
mod operations;
mod payload_policy;
#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"\0",
    head_kinds: &[MESSAGE],
    begins: |start, from_client| from_client && Request::parse(start).is_some_and(|request| request.is_sure),
    exchanges: Exchanges::ByStreamId(&STREAMS),
    scanning: Some(&SCANNING),
    read: |excerpt, emit| NAMING.read(excerpt, emit),
    results: errors::RESULTS,
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len_of_requests,
        blank: payload_policy::blank_requests,
    }),
    agent_followed: Some(Parts {
        kept_len: payload_policy::kept_len_of_next,
        blank: payload_policy::blank_requests,
    }),
    agent_answers: Some(Parts {
        kept_len: payload_policy::kept_len_of_answers,
        blank: |captured, _| payload_policy::blank_answers(captured),
    }),
    redact_around: Some(|payload, _, rest| {
        payload_policy::overwrite_secrets(payload);
        rest(payload);
    }),
    docs: Docs {
        reads: "lengths, numbers and types of requests, and their paths, wherever they stand; numbers and errors of answers",
        agent_keeps: "lengths, numbers, types, paths; of answers length, number and error, on connections on which requests \
                      were recognised",
        overwrites: "the session's password; what `auth` and `sasl` hold",
    },
    ..Protocol::with_name("zookeeper")
};

const SCANNING: Scanning = Scanning {
    begins: is_of_client,
    resumes: |payload, from_client| match from_client {
        true => is_of_client(payload),
        false => is_of_server(payload),
    },
    scanner: |from_client| -> Box<dyn Scanner> {
        match from_client {
            true => Box::new(SizedScanner::<Requests>::default()),
            false => Box::new(SizedScanner::<Answers>::default()),
        }
    },
    next_head: sized_messages::next_head,
    keep: |read, keeper| NAMING.keep(read, keeper),
};

const STREAMS: StreamRules = StreamRules {
    header_len: messages::ANSWER_LEN as i64,
    frame: meaning,
    shows_requests: true,
    upgrade_stream: None,
    frames_stand_alone: true,
};

const NAMING: Naming = Naming {
    head_kind: MESSAGE,
    method: operations::name,
};

/// A request or an answer; its place is its first byte.
pub const MESSAGE: HeadKind = HeadKind(22);

/// In the column `frame_kind`, of what is no request: a ping, or a notification.
const ASIDE: u16 = u16::MAX - 1;

/// Whether a payload consists of requests, of which no other protocol has the like.
fn is_of_client(payload: &[u8]) -> bool {
    let requests = || sized_messages::messages_of(payload).map(Request::parse);
    requests().next().flatten().is_some_and(|first| first.is_sure)
        && requests().all(|request| request.is_some_and(|request| request.is_whole))
}

/// Whether a payload consists of answers.
fn is_of_server(payload: &[u8]) -> bool {
    sized_messages::messages_of(payload).next().is_some()
        && sized_messages::messages_of(payload).all(|message| Answer::parse(message).is_some())
}

/// Reads what a client sends.
#[derive(Clone, Debug, Default)]
struct Requests(NumberedWriter);

/// Reads what a server sends.
#[derive(Clone, Debug, Default)]
struct Answers(NumberedWriter);

impl SizedMessages for Requests {
    const LEAST_LEN: usize = messages::REQUEST_LEN;

    fn wanted_len(&self, message: &[u8]) -> usize {
        messages::wanted_len(message)
    }

    fn read(&mut self, message: &[u8], start: i64, found: OnMessage<'_>) -> bool {
        let Some(request) = Request::parse(message) else {
            return false;
        };
        let read = NumberedMessage {
            flags: 0,
            kind: request.operation.map_or(ASIDE, |operation| operation.kind),
            number: request.number,
            len: whole_len(message),
            result: SAYS_NOTHING,
            target: request.path,
            client: b"",
        };
        self.0.pass(read, &message[..request.header_len()], start, found);
        true
    }

    fn lose(&mut self) {
        self.0.lose();
    }
}

impl SizedMessages for Answers {
    const LEAST_LEN: usize = messages::LENGTH_AND_NUMBER;

    fn wanted_len(&self, message: &[u8]) -> usize {
        messages::answer_wanted_len(message)
    }

    fn read(&mut self, message: &[u8], start: i64, found: OnMessage<'_>) -> bool {
        let Some(answer) = Answer::parse(message) else {
            return false;
        };
        let read = NumberedMessage {
            flags: 0,
            kind: if answer.is_aside { ASIDE } else { ANSWER },
            number: answer.number,
            len: whole_len(message),
            result: answer.result,
            target: b"",
            client: b"",
        };
        let header = &message[..message.len().min(messages::LENGTH_AND_NUMBER)];
        self.0.pass(read, header, start, found);
        true
    }

    fn lose(&mut self) {
        self.0.lose();
    }
}

fn meaning(frame: &FrameFields) -> FrameMeaning {
    let is_said = frame.kind != ASIDE;
    FrameMeaning {
        is_said,
        opens: is_said && frame.kind != ANSWER,
        ends: true,
        has_data: true,
        follows_gap: frame.flags & AFTER_GAP != 0,
        ..FrameMeaning::default()
    }
}
