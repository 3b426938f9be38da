//! Kafka: requests of a client and the answers of its broker.
//!
//! ```text
//! 00000047 0000 0009 00000005 … orders …   ─▶  Produce orders, number 5
//! 00000031 00000005 …                      ◀─  its answer
//! ```
//! 1. Each message is preceded by its length. A request has a kind, a version and a number; its answer begins with that
//!    number. So many may be under way at once, and each is paired with its own answer, also if the capture begins later.
//! 2. An answer shows nothing of its protocol. Both directions are followed from a client's packet that consists of
//!    requests: their lengths, kinds, versions and clients' names must fit.
//! 3. A request is named by its kind; a `Produce` also by its first topic, as long as it names topics (up to version 12).
//!
//! | no request | listed as |
//! |---|---|
//! | `Fetch`, `ShareFetch`: answered when there is news, or after a while without any | a stream |
//! | `JoinGroup`, `SyncGroup`: answered when the other members of the group have asked, too | a stream |
//! | `Produce` that awaits no replica (`acks=0`): it is not answered | a stream |
//!
//! # Limits
//! - Errors are not read: their places in answers depend on the kind and the version of the request.
//! - Tokens that SASL sends without headers (`SaslHandshake` of version 0) end what can be read of a connection.
//!
//! Source: Kafka's protocol guide (4.1).

use crate::exchanges::{Exchanges, FrameFields, FrameMeaning, StreamRules};
use crate::head::HeadKind;
use crate::numbered_messages::{AFTER_GAP, ANSWER, Naming, NumberedMessage, NumberedWriter};
use crate::protocol::{AgentKeeps, Docs, OnMessage, Parts, Protocol, Scanner, Scanning};
use crate::results::SAYS_NOTHING;
use crate::sized_messages::{self, LENGTH_LEN, SizedMessages, SizedScanner, length_of, whole_len};

use requests::{HEADER_LEN, Request};

mod apis;
mod payload_policy;
mod requests;
#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    // Requests of 16 MiB and more are followed, but none begins a connection.
    first_bytes: b"\0",
    head_kinds: &[MESSAGE],
    begins: |start, from_client| from_client && requests::is_sure_beginning(start),
    exchanges: Exchanges::ByStreamId(&STREAMS),
    scanning: Some(&SCANNING),
    read: |excerpt, emit| NAMING.read(excerpt, emit),
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
        reads: "lengths, kinds, versions and numbers of requests, wherever they stand; who asks; of `Produce` the first \
                topic, and whether it is answered; the numbers of answers. What marks streams: `Fetch`, `JoinGroup`, \
                `SyncGroup`",
        agent_keeps: "lengths, kinds, versions, numbers; who asks; of `Produce` the first topic and what is before it; of \
                      answers length and number, on connections on which requests were recognised",
        overwrites: "what `SaslAuthenticate` and other requests with passwords hold",
    },
    ..Protocol::with_name("kafka")
};

const SCANNING: Scanning = Scanning {
    begins: is_of_client,
    resumes: |payload, from_client| match from_client {
        true => is_of_client(payload),
        false => is_of_broker(payload),
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
    header_len: ANSWER_LEN as i64,
    frame: meaning,
    shows_requests: true,
    upgrade_stream: None,
    frames_stand_alone: true,
};

const NAMING: Naming = Naming {
    head_kind: MESSAGE,
    method: apis::name,
};

/// A request or an answer; its place is its first byte.
pub const MESSAGE: HeadKind = HeadKind(19);
/// Length and number.
const ANSWER_LEN: usize = LENGTH_LEN + 4;
/// A payload of a packet that is full may end within a request; such a packet has at least so many bytes (RFC 9293
/// §3.7.1).
const FULL_LEN: usize = 536;

/// Lengths and numbers of answers below this are low.
const LOW: u32 = 1 << 24;

/// The bit of the column `head_flags` of a request that is not answered.
const NO_ANSWER: u8 = 2;

/// Whether a payload consists of requests; the last one may end in another packet, or behind what an agent keeps of it.
fn is_of_client(payload: &[u8]) -> bool {
    let is_kept = |message: &[u8]| requests::read_len(message) == Some(message.len());
    requests::is_sure(payload)
        && sized_messages::messages_of(payload)
            .all(|message| message.len() < HEADER_LEN + 2 || requests::is_sure(message))
        && (payload.len() >= FULL_LEN
            || sized_messages::are_whole(payload)
            || sized_messages::messages_of(payload).last().is_some_and(is_kept))
}

/// Whether a payload consists of answers: whole ones, or with lengths and numbers as low as most are. By chance one packet
/// in 65,536 has those.
fn is_of_broker(payload: &[u8]) -> bool {
    let is_whole = sized_messages::are_whole(payload);
    let fits = |message: &[u8]| match answer_id(message) {
        Some(id) => is_whole || (id < LOW as i32 && length_of(message) < Some(LOW)),
        None => !is_whole && message.len() < ANSWER_LEN,
    };
    answer_id(payload).is_some() && sized_messages::messages_of(payload).all(fits)
}

/// The number of an answer.
fn answer_id(message: &[u8]) -> Option<i32> {
    let id = message.get(LENGTH_LEN..)?.first_chunk()?;
    Some(i32::from_be_bytes(*id)).filter(|id| *id >= 0)
}

/// Reads what a client sends.
#[derive(Clone, Debug, Default)]
struct Requests(NumberedWriter);

/// Reads what a broker sends.
#[derive(Clone, Debug, Default)]
struct Answers(NumberedWriter);

impl SizedMessages for Requests {
    const LEAST_LEN: usize = HEADER_LEN;

    fn wanted_len(&self, message: &[u8]) -> usize {
        requests::wanted_len(message)
    }

    fn read(&mut self, message: &[u8], start: i64, found: OnMessage<'_>) -> bool {
        let Some(request) = Request::parse(message) else {
            return false;
        };
        let produce = request.produce();
        let read = NumberedMessage {
            flags: match produce.is_some_and(|produce| !produce.is_answered) {
                true => NO_ANSWER,
                false => 0,
            },
            kind: request.kind,
            number: request.id.into(),
            len: whole_len(message),
            result: SAYS_NOTHING,
            target: produce.map_or(b"", |produce| produce.topic),
            client: request.client,
        };
        self.0.pass(read, &message[..request.head_len(message)], start, found);
        true
    }

    fn lose(&mut self) {
        self.0.lose();
    }
}

impl SizedMessages for Answers {
    const LEAST_LEN: usize = ANSWER_LEN;

    fn wanted_len(&self, _: &[u8]) -> usize {
        ANSWER_LEN
    }

    fn read(&mut self, message: &[u8], start: i64, found: OnMessage<'_>) -> bool {
        let Some(id) = answer_id(message) else {
            return false;
        };
        let read = NumberedMessage {
            flags: 0,
            kind: ANSWER,
            number: id.into(),
            len: whole_len(message),
            result: SAYS_NOTHING,
            target: b"",
            client: b"",
        };
        self.0.pass(read, message, start, found);
        true
    }

    fn lose(&mut self) {
        self.0.lose();
    }
}

fn meaning(frame: &FrameFields) -> FrameMeaning {
    let is_request = frame.kind != ANSWER;
    let is_answered = frame.flags & NO_ANSWER == 0;
    FrameMeaning {
        is_said: true,
        opens: is_request,
        ends: true,
        has_data: true,
        follows_gap: frame.flags & AFTER_GAP != 0,
        is_no_request: is_request && (apis::is_waiting(frame.kind) || !is_answered),
        ..FrameMeaning::default()
    }
}
