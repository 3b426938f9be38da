//! MongoDB's wire protocol: commands and their answers, each named by its command and its collection.
//!
//! ```text
//! { find: "orders", filter: {…}, $db: "shop" }                 ─▶  find shop.orders
//! { cursor: {…}, ok: 1 }                                       ◀─  no error
//! { ok: 0, code: 11000, codeName: "DuplicateKey", errmsg: … }  ◀─  11000 DuplicateKey
//! ```
//! 1. Each message has a header with its length, so each direction is followed from one to the next (`messages`).
//! 2. A request has an id, which its answer repeats. So several may be under way, and each message shows by itself what it
//!    is part of: where some are missing, only what they were is unknown.
//! 3. Of documents the top is walked through (`bson`), as far as it stands in the message's first [`MAX_KEPT_LEN`] bytes.
//!
//! | no request | known by |
//! |---|---|
//! | a command that wants no answer | the flag `moreToCome`; of a compressed one, that a later command was answered |
//! | a command that is answered again and again | the same flag, of the answer |
//! | `hello` that waits for a change of its server | `maxAwaitTimeMS`, the flag `exhaustAllowed` |
//! | `getMore` that waits for news: of a tailable cursor, a change stream | its `maxTimeMS`; how the cursor was opened on this connection; an empty batch of a cursor that goes on |
//!
//! An excerpt is a header and what its message says: flags, id of the request, result, cursor, command and target.
//!
//! # Limits
//! - Compressed messages are paired, and their contents are not read.
//! - What clients older than MongoDB 3.6 send, but for their handshakes.
//! - A `getMore` that waited and got something is a request if it lacks `maxTimeMS`, and its cursor was opened on another
//!   connection, or before the capture.
//!
//! Source: MongoDB's manual, "MongoDB Wire Protocol"; specifications of its drivers.

use crate::excerpt::{Emit, Excerpt, Keeper};
use crate::exchanges::{Asker, Exchanges, FrameFields, FrameMeaning, StreamRules};
use crate::head::{FrameId, Head, HeadKind};
use crate::protocol::{AgentKeeps, Docs, FrameLen, FrameReader, Framing, MAX_KEPT_LEN, Parts, Protocol, ReadFrame};

use messages::{Content, HEADER_LEN, Header, opcode};

mod bson;
mod commands;
mod errors;
mod messages;
mod payload_policy;
#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: &EVERY_BYTE,
    head_kinds: &[MESSAGE],
    begins,
    exchanges: Exchanges::ByStreamId(&STREAMS),
    framing: Some(&FRAMING),
    read,
    results: errors::RESULTS,
    fixed_bytes: &[b"????????\0\0\0\0\xdd\x07\0\0"],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: payload_policy::blank,
    }),
    redact_around: Some(payload_policy::redact_around),
    docs: Docs {
        reads: "headers of messages, wherever they stand; of commands the name, database and collection; of answers `ok`, the \
                codes of errors, also of the first write that failed; what marks streams: `moreToCome`, `exhaustAllowed`, \
                `maxAwaitTimeMS`, cursors that wait for news",
        agent_keeps: "headers of messages, lengths and names of what is read, and that",
        overwrites: "`saslStart`, `saslContinue`, `authenticate`, `createUser` and their like, and what they are answered; \
                     `speculativeAuthenticate`; in names of collections what is overwritten in targets",
    },
    ..Protocol::with_name("mongodb")
};

const FRAMING: Framing = Framing {
    header_len: HEADER_LEN,
    preface_len: |_| 0,
    may_begin,
    begins: |payload, _| is_sure(payload),
    resumes: |payload, _| is_sure(payload),
    is_other: |_| false,
    frame_len,
    reader: |_| Box::new(Reader::default()),
    keep,
};

const STREAMS: StreamRules = StreamRules {
    header_len: HEADER_LEN as i64,
    frame: meaning,
    shows_requests: true,
    upgrade_stream: None,
    frames_stand_alone: true,
};

/// A message's header; its place in the stream is the offset after it. `frame_kind` is the opcode, `content_length` the
/// number of the cursor that the message names.
pub const MESSAGE: HeadKind = HeadKind(11);

/// A message begins with its length, which may be any.
const EVERY_BYTE: [u8; 256] = every_byte();

const fn every_byte() -> [u8; 256] {
    let (mut bytes, mut at) = ([0; 256], 0);
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
}

/// Bits of the column `head_flags`.
mod flag {
    /// Messages before it may be missing.
    pub const AFTER_GAP: u8 = 1;
    pub const REQUEST: u8 = 2;
    pub const ANSWER: u8 = 4;
    /// It waits for news, or wants no answer.
    pub const NO_REQUEST: u8 = 8;
    /// What is asked later of its cursor waits for news.
    pub const OPENS_WAIT: u8 = 0x20;
    /// An answer behind which another follows.
    pub const GOES_ON: u8 = 0x40;
}

/// Whether a payload may begin with a message; for the hot path.
#[inline(always)]
fn may_begin(payload: &[u8]) -> bool {
    let header = payload.first_chunk::<HEADER_LEN>();
    header.is_some_and(|header| matches!(header[12..], [0xd4 | 0xdc | 0xdd, 0x07, 0, 0] | [1, 0, 0, 0]))
}

fn is_sure(payload: &[u8]) -> bool {
    may_begin(payload) && Header::parse(payload).is_some_and(|header| messages::is_sure(&header, payload))
}

/// Whether a direction begins with what is kept of a message: at least its header.
fn begins(start: &[u8], from_client: bool) -> bool {
    let header = Header::parse(start).filter(|header| !opcode::OLDER.contains(&header.opcode));
    header.is_some_and(|header| header.may_ask() == from_client)
}

fn frame_len(header: &[u8]) -> Option<FrameLen> {
    let body_len = Header::parse(header)?.len - HEADER_LEN as u32;
    Some(FrameLen {
        body_len,
        kept_len: body_len.min(MAX_KEPT_LEN),
    })
}

/// Reads the messages of one direction.
#[derive(Clone, Debug)]
struct Reader {
    /// Messages before the next one may be missing.
    is_after_gap: bool,
    /// The last answer, if another follows it: its own id, which that one answers, and the request's.
    goes_on: Option<(u32, u32)>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            is_after_gap: true,
            goes_on: None,
        }
    }
}

impl FrameReader for Reader {
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>) {
        let Some(header) = Header::parse(frame) else {
            return;
        };
        let content = messages::read(&header, frame);
        let asked = self.request_id(&header, &content);
        let gap = if self.is_after_gap { flag::AFTER_GAP } else { 0 };
        MessageText {
            flags: gap | flags(&header, &content),
            stream: asked,
            result: content.result,
            cursor: content.cursor,
            method: method(&header, &content, frame),
            target: &content.target(frame),
        }
        .write(said);
        self.is_after_gap = false;
    }

    fn lose(&mut self) {
        *self = Self::default();
    }

    fn boxed_clone(&self) -> Box<dyn FrameReader> {
        Box::new(self.clone())
    }
}

impl Reader {
    /// Id of the request that a message is, or is part of the answer to. Of several answers to one request each but the
    /// first answers the one before.
    fn request_id(&mut self, header: &Header, content: &Content) -> u32 {
        if content.is_request {
            return header.id;
        }
        let asked = match self.goes_on.take() {
            Some((id, asked)) if id == header.answers => asked,
            _ => header.answers,
        };
        self.goes_on = content.more_to_come.then_some((header.id, asked));
        asked
    }
}

fn flags(header: &Header, content: &Content) -> u8 {
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let is_known = !opcode::OLDER.contains(&header.opcode);
    bit(is_known && content.is_request, flag::REQUEST)
        | bit(is_known && !content.is_request, flag::ANSWER)
        | bit(content.waits || content.more_to_come, flag::NO_REQUEST)
        | bit(content.opens_wait, flag::OPENS_WAIT)
        | bit(!content.is_request && content.more_to_come, flag::GOES_ON)
}

/// The name of a request.
fn method<'a>(header: &Header, content: &Content, message: &'a [u8]) -> &'a [u8] {
    match header.opcode {
        _ if !content.is_request => b"",
        opcode::COMPRESSED => b"compressed",
        opcode::QUERY if content.method.is_empty() && content.database.is_empty() => b"query",
        _ => &message[content.method.clone()],
    }
}

/// Longest text of an excerpt.
const TEXT_MOST: usize = 512;

/// What a message says.
#[derive(Clone, Copy)]
struct MessageText<'a> {
    flags: u8,
    stream: u32,
    result: i32,
    cursor: i64,
    method: &'a [u8],
    target: &'a [u8],
}

impl<'a> MessageText<'a> {
    /// Length of what precedes the target: flags, id, result, cursor, the length of the method, and that.
    const fn target_start(method_len: usize) -> usize {
        1 + 4 + 4 + 8 + 1 + method_len
    }

    fn write(&self, to: &mut Vec<u8>) {
        let method = &self.method[..self.method.len().min(u8::MAX.into())];
        to.push(self.flags);
        to.extend_from_slice(&self.stream.to_le_bytes());
        to.extend_from_slice(&self.result.to_le_bytes());
        to.extend_from_slice(&self.cursor.to_le_bytes());
        to.push(method.len() as u8);
        to.extend_from_slice(method);
        to.extend_from_slice(&self.target[..self.target.len().min(TEXT_MOST)]);
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[flags], rest) = bytes.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        let (result, rest) = rest.split_first_chunk()?;
        let (cursor, rest) = rest.split_first_chunk()?;
        let (&[method_len], rest) = rest.split_first_chunk()?;
        let (method, target) = rest.split_at_checked(method_len.into())?;
        Some(Self {
            flags,
            stream: u32::from_le_bytes(*stream),
            result: i32::from_le_bytes(*result),
            cursor: i64::from_le_bytes(*cursor),
            method,
            target,
        })
    }
}

/// Keep a message.
fn keep(frame: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
    let Some(said) = MessageText::parse(frame.said) else {
        return;
    };
    if !keeper.has_room() {
        keeper.notes.left_out();
        return;
    }
    let mut kept = frame.said.to_vec();
    let target = MessageText::target_start(said.method.len());
    keeper.secrets.redact_target(&mut kept[target..]);
    let shown = MessageText::parse(&kept).unwrap_or(said);
    if said.flags & (flag::REQUEST | flag::ANSWER) != 0 {
        let head = Head {
            method: shown.method,
            target: shown.target,
            ..Head::empty(MESSAGE)
        };
        keeper.notes.head(&head, 0, true);
    }
    let (number, protocol) = (keeper.frame, keeper.protocol);
    keeper
        .excerpts
        .push_parts(number, frame.at, protocol, [frame.header, &kept]);
}

/// Read the message of an excerpt. Its place is the offset after the header, as the first byte of that may be in another
/// packet.
fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    let Some((header, said)) = excerpt.bytes.split_at_checked(HEADER_LEN) else {
        return;
    };
    let (Some(header), Some(said)) = (Header::parse(header), MessageText::parse(said)) else {
        return;
    };
    let head = Head {
        flags: said.flags,
        len: header.len,
        method: said.method,
        target: said.target,
        result_code: said.result,
        content_length: said.cursor,
        frame: FrameId {
            kind: header.opcode as u16,
            stream: said.stream.into(),
        },
        ..Head::empty(MESSAGE)
    };
    emit(HEADER_LEN as u32, &head);
}

fn meaning(frame: &FrameFields) -> FrameMeaning {
    let is = |flag: u8| frame.flags & flag != 0;
    let is_request = is(flag::REQUEST);
    FrameMeaning {
        header_len: HEADER_LEN as i64,
        follows_gap: is(flag::AFTER_GAP),
        is_said: is_request || is(flag::ANSWER),
        asker: if is_request { Asker::Sender } else { Asker::Receiver },
        opens: is_request,
        ends: !is(flag::GOES_ON),
        has_data: true,
        is_no_request: is(flag::NO_REQUEST),
        answer_unsure: is_request && u32::from(frame.kind) == opcode::COMPRESSED,
        series: frame.content_length,
        opens_wait: is(flag::OPENS_WAIT),
        ..FrameMeaning::default()
    }
}
