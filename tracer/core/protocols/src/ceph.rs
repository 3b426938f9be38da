//! Ceph's messenger, version 2: frames, the messages in them, and which answers which. Of version 1 only the banner.
//!
//! 1. Both ends send a banner, then frames, each with a preamble that has a checksum (`frames`).
//! 2. Of a frame that is a message, the header and what its front says are read (`messages`). Data is not.
//! 3. A request and its answer have one tid. Either end of a connection may ask: two OSDs use one connection, opened by
//!    one of them, for the operations of both.
//!
//! Each message shows by itself what it is part of. So where frames are missing, only what they were is unknown, and
//! following resumes with the next packet that begins with a frame.
//!
//! An excerpt is a banner; or a preamble, and what its frame says: flags, result, tid, and the texts with their lengths.
//! Frames that acknowledge or keep a connection open are left out. A message that only keeps a watch on an object alive
//! is no request.
//!
//! # Limits
//! - Secure mode, which monitors prefer: all after the end of authentication is encrypted. The connection is reported as
//!   such if that end was captured.
//! - Compressed frames, and messages of CephFS other than their types, are not read.
//!
//! Source: Ceph's documentation, "msgr2 protocol (msgr2.0 and msgr2.1)"; Ceph 16.2.

use std::ops::Range;

use crate::excerpt::{Emit, Excerpt, Keeper};
use crate::exchanges::{Asker, Exchanges, FrameFields, FrameMeaning, StreamRules};
use crate::fixed_bytes::Pattern;
use crate::head::{FrameId, Head, HeadKind};
use crate::protocol::{AgentKeeps, Docs, FrameLen, FrameReader, Framing, Parts, Protocol, ReadFrame};
use crate::results::SAYS_NOTHING;

use cursor::Cursor;
use frames::{CRC_LEN, PREAMBLE_LEN, Preamble, tag};
use messages::{Content, Header};

mod cursor;
mod errors;
mod frames;
mod messages;
mod payload_policy;
#[cfg(test)]
mod tests;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"c\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16",
    head_kinds: &[FRAME],
    begins: |start, _| frames::banner_len(start) > 0 || Preamble::parse(start).is_some(),
    exchanges: Exchanges::ByStreamId(&STREAMS),
    ids_are_own: true,
    framing: Some(&FRAMING),
    read,
    results: errors::RESULTS,
    fixed_bytes: &[MESSAGE, b"\x11?\x29\0\0\0\x08\0", b"ceph v2\n", b"ceph v027"],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: payload_policy::blank,
    }),
    redact_around: Some(payload_policy::redact_around),
    docs: Docs {
        reads: "banners and preambles of messenger 2, wherever frames begin; of messages type and tid; of operations on \
                objects their names, pool, object, and result; of commands the prefix",
        agent_keeps: "banners, preambles, headers of messages; of operations on objects what is read of them",
        overwrites: "contents of authentication and of commands; in names of objects what is overwritten in targets",
    },
    ..Protocol::with_name("ceph")
};

const FRAMING: Framing = Framing {
    header_len: PREAMBLE_LEN,
    preface_len: frames::banner_len,
    may_begin: frames::may_begin,
    begins: |payload, _| frames::banner_len(payload) > 0 || Preamble::parse(payload).is_some(),
    resumes: |payload, _| Preamble::parse(payload).is_some(),
    is_other: |_| false,
    frame_len,
    reader: |from_preface| {
        Box::new(Reader {
            is_after_gap: !from_preface,
        })
    },
    keep,
};

const STREAMS: StreamRules = StreamRules {
    header_len: PREAMBLE_LEN as i64,
    frame: meaning,
    shows_requests: true,
    upgrade_stream: None,
    frames_stand_alone: true,
};

/// A message up to its type: the frame's preamble (32 bytes), and the header's sequence and transaction numbers.
const MESSAGE: Pattern = b"\x11?\x29\0\0\0\x08\0??????????????????????????????????????????";
/// A frame's preamble, or the banner; its place in the stream is the offset after it.
pub const FRAME: HeadKind = HeadKind(10);

/// In the column `frame_kind`: types of messages, or one of these.
mod frame_kind {
    pub const BANNER: u16 = 0xffff;
    pub const AUTH_DONE: u16 = 0xfffe;
}

/// Bits of the column `head_flags`.
mod flag {
    /// Frames before it are missing.
    pub const AFTER_GAP: u8 = 1;
    /// What follows is encrypted.
    pub const SECURE: u8 = 2;
    /// It keeps something alive, and is no request.
    pub const KEEPALIVE: u8 = 4;
}

/// Bytes of a message's front and of its data, at most, that are read. A front with a name of an object, which may have
/// 2 KiB, and 40 operations is shorter; names of a class and a method have 510 bytes at most.
const FRONT_MOST: u32 = 4096;
const DATA_MOST: u32 = 512;
/// Bytes of the end of authentication up to its mode: the client's number, the mode.
const MODE_END: usize = 12;
const MODE_SECURE: u32 = 2;

fn frame_len(header: &[u8]) -> Option<FrameLen> {
    let preamble = Preamble::parse(header)?;
    let body_len = preamble.body_len()?;
    let [first, front, middle, data] = preamble.segments;
    let wanted = match preamble.tag {
        tag::AUTH_DONE => MODE_END as u32,
        tag::MESSAGE if preamble.is_message() => {
            let ahead = first.saturating_add(CRC_LEN as u32);
            let is_whole = front <= FRONT_MOST && middle == 0;
            let data_len = if is_whole { data.min(DATA_MOST) } else { 0 };
            ahead.saturating_add(front.min(FRONT_MOST)).saturating_add(data_len)
        }
        _ => 0,
    };
    Some(FrameLen {
        body_len,
        kept_len: wanted.min(body_len),
    })
}

/// Reads the frames of one direction.
#[derive(Clone, Debug)]
struct Reader {
    /// Frames before the next one may be missing.
    is_after_gap: bool,
}

impl FrameReader for Reader {
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>) {
        let Some((preamble, body)) = frame.split_at_checked(PREAMBLE_LEN) else {
            return;
        };
        let Some(preamble) = Preamble::parse(preamble) else {
            return;
        };
        let mut flags = if self.is_after_gap { flag::AFTER_GAP } else { 0 };
        match preamble.tag {
            tag::AUTH_DONE => {
                flags |= if is_secure(body) { flag::SECURE } else { 0 };
                write(
                    flags,
                    frame_kind::AUTH_DONE,
                    &Content {
                        result: SAYS_NOTHING,
                        ..Content::default()
                    },
                    said,
                );
            }
            tag::MESSAGE => {
                if let Some((header, content)) = read_message(&preamble, body) {
                    flags |= if content.is_keepalive { flag::KEEPALIVE } else { 0 };
                    write(flags, header.kind, &content, said);
                }
            }
            _ => {}
        }
        // Frames that are left out do not make a gap.
        self.is_after_gap &= said.is_empty();
    }

    fn lose(&mut self) {
        self.is_after_gap = true;
    }

    fn boxed_clone(&self) -> Box<dyn FrameReader> {
        Box::new(self.clone())
    }
}

fn is_secure(body: &[u8]) -> bool {
    let mode = body.get(MODE_END - 4..).and_then(<[u8]>::first_chunk);
    mode.is_some_and(|&mode| u32::from_le_bytes(mode) == MODE_SECURE)
}

/// Read a message. Arguments: `body`, as much of the frame behind the preamble as was captured.
fn read_message(preamble: &Preamble, body: &[u8]) -> Option<(Header, Content)> {
    if !preamble.is_message() {
        return None;
    }
    let places = preamble.places(body.len());
    let header = Header::parse(&body[places.header])?;
    let content = messages::read(&header, &body[places.front], &body[places.data]);
    Some((header, content))
}

/// Append what a frame says, as [`FrameText::parse`] reads it.
fn write(flags: u8, kind: u16, content: &Content, said: &mut Vec<u8>) {
    said.push(flags);
    said.extend_from_slice(&kind.to_le_bytes());
    said.extend_from_slice(&content.result.to_le_bytes());
    said.extend_from_slice(&content.tid.to_le_bytes());
    for text in [&content.target, &content.method, &content.id] {
        let len = text.len().min(TEXT_MOST);
        said.extend_from_slice(&(len as u32).to_le_bytes());
        said.extend_from_slice(&text[..len]);
    }
}

/// Longest text of an excerpt.
const TEXT_MOST: usize = 4096;
/// Flags, kind, result, tid.
const BEFORE_TARGET: usize = 1 + 2 + 4 + 8;

/// What a frame says, as [`write()`] has it.
struct FrameText<'a> {
    flags: u8,
    kind: u16,
    result: i32,
    tid: u64,
    target: &'a [u8],
    method: &'a [u8],
    id: &'a [u8],
}

impl<'a> FrameText<'a> {
    /// Where the target stands in what a frame says.
    fn target_place(bytes: &[u8]) -> Option<Range<usize>> {
        let mut said = Cursor::new(bytes);
        said.skip(BEFORE_TARGET)?;
        said.string()
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut said = Cursor::new(bytes);
        Some(Self {
            flags: said.u8()?,
            kind: said.u16()?,
            result: said.u32()?.cast_signed(),
            tid: said.u64()?,
            target: said.text()?,
            method: said.text()?,
            id: said.text()?,
        })
    }
}

/// Keep a frame that is a message, ends authentication, or is the banner.
fn keep(frame: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
    let is_banner = frame.header.len() != PREAMBLE_LEN;
    if frame.said.is_empty() && !is_banner {
        return;
    }
    if !keeper.has_room() {
        keeper.notes.left_out();
        return;
    }
    let mut kept = [frame.header, frame.said].concat();
    if let Some(target) = FrameText::target_place(frame.said) {
        keeper
            .secrets
            .redact_target(&mut kept[PREAMBLE_LEN + target.start..PREAMBLE_LEN + target.end]);
    }
    if let Some(said) = kept.get(PREAMBLE_LEN..).and_then(FrameText::parse) {
        note(&said, keeper);
    }
    let (number, protocol) = (keeper.frame, keeper.protocol);
    keeper
        .excerpts
        .push_frame(number, frame.at, protocol, &kept, frame.header.len());
}

/// Notify of a request or an answer.
fn note(said: &FrameText<'_>, keeper: &mut Keeper<'_>) {
    let Some((_, is_request)) = messages::request_of(said.kind) else {
        return;
    };
    let head = Head {
        method: if is_request { said.method } else { b"" },
        target: said.target,
        ..Head::empty(FRAME)
    };
    keeper.notes.head(&head, 0, true);
}

/// Read the message of an excerpt. Its place is the offset after the preamble or banner, as the first byte of that may
/// be in another packet.
fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    let banner_len = frames::banner_len(excerpt.bytes);
    if banner_len > 0 {
        let kind = frame_kind::BANNER;
        let frame = FrameId { kind, stream: -1 };
        emit(
            banner_len as u32,
            &Head {
                frame,
                len: banner_len as u32,
                ..Head::empty(FRAME)
            },
        );
        return;
    }
    let Some((preamble, said)) = excerpt.bytes.split_at_checked(PREAMBLE_LEN) else {
        return;
    };
    let (Some(preamble), Some(said)) = (Preamble::parse(preamble), FrameText::parse(said)) else {
        return;
    };
    let body_len = preamble.body_len().unwrap_or(0);
    let head = Head {
        flags: said.flags,
        len: body_len.saturating_add(PREAMBLE_LEN as u32),
        method: said.method,
        target: said.target,
        transaction_id: said.id,
        result_code: said.result,
        frame: FrameId {
            kind: said.kind,
            stream: said.tid.cast_signed().max(0),
        },
        ..Head::empty(FRAME)
    };
    emit(PREAMBLE_LEN as u32, &head);
}

fn meaning(frame: &FrameFields) -> FrameMeaning {
    let is_banner = frame.kind == frame_kind::BANNER;
    let own = FrameMeaning {
        header_len: if is_banner { frame.len } else { PREAMBLE_LEN as i64 },
        follows_gap: frame.flags & flag::AFTER_GAP != 0,
        hides_rest: frame.flags & flag::SECURE != 0,
        ..FrameMeaning::default()
    };
    let of_request = messages::request_of(frame.kind).filter(|_| frame.flags & flag::KEEPALIVE == 0);
    let Some((family, is_request)) = of_request else {
        return own;
    };
    FrameMeaning {
        is_said: true,
        asker: if is_request { Asker::Sender } else { Asker::Receiver },
        family,
        opens: is_request,
        ends: true,
        has_data: true,
        ..own
    }
}
