//! HTTP/2: length, type, flags and stream of each frame, and what header blocks say. Other contents are not read.
//!
//! ```text
//! +-----------------------------------------------+
//! |                 Length (24)                   |
//! +---------------+---------------+---------------+
//! |   Type (8)    |   Flags (8)   |
//! +-+-------------+---------------+-------------------------------+
//! |R|                 Stream Identifier (31)                      |
//! +=+=============================================================+
//! ```
//! Frame headers are never compressed, so streams, their beginnings and their ends are visible whatever is known of
//! header blocks (`hpack`). What a block says is read as HTTP/1's headers are, so all that is known of headers (ids,
//! services, secrets) holds for both (`blocks`). `twintap_wire::frames` finds the headers in packets.
//!
//! Sources: RFC 9113 §3.4 (preface), §4.1 (header), §6 (types, their lengths, flags and streams).

use crate::excerpt::{Emit, Excerpt};
use crate::exchanges::{Exchanges, FrameFields, FrameMeaning, StreamRules};
use crate::head::{FrameId, Head, HeadKind};
use crate::protocol::{AgentKeeps, Docs, Finder, FrameLen, Framing, Parts, Protocol, Upgrade};

mod block_secrets;
mod blocks;
mod grpc_results;
mod grpc_trace;
pub mod hpack;
mod kept_heads;
mod payload_policy;
mod redaction;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"\0P",
    head_kinds: &[FRAME],
    begins: |start, from_client| (from_client && start.starts_with(PREFACE)) || is_frame(start),
    exchanges: Exchanges::ByStreamId(&STREAMS),
    results: grpc_results::RESULTS,
    family: "http",
    framing: Some(&FRAMING),
    upgrade: Some(Upgrade {
        token: b"h2c",
        finder: Finder::Frames(&FRAMING),
    }),
    read,
    fixed_bytes: &[PREFACE],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: payload_policy::blank,
    }),
    redact_around: Some(redaction::redact_around_frames),
    docs: Docs {
        reads: "the preface and the headers of frames, wherever they stand: streams, their sizes and ends; what header blocks \
                say, as of HTTP/1 heads, and `grpc-status`; the codes of resets, of GOAWAY that and the last stream",
        agent_keeps: "the preface, the headers of frames, header blocks, the codes of resets, and what GOAWAY says but for \
                      its text",
        overwrites: "in header blocks what is secret in HTTP/1 heads, and values whose names the block does not spell out",
    },
    ..Protocol::with_name("http/2")
};

const FRAMING: Framing = Framing {
    header_len: HEADER_LEN,
    preface_len: |payload| if payload.starts_with(PREFACE) { PREFACE.len() } else { 0 },
    may_begin,
    begins,
    resumes: |payload, wire_len| chain(payload, wire_len, MAX_FRAMES).is_some(),
    is_other: |_| false,
    frame_len,
    reader: |_| Box::new(blocks::HeaderBlocks::default()),
    keep: blocks::keep,
};

const STREAMS: StreamRules = StreamRules {
    header_len: HEADER_LEN as i64,
    frame: meaning,
    shows_requests: true,
    upgrade_stream: Some(1),
    frames_stand_alone: false,
};

/// The header of a frame, or the preface; its place in the stream is the offset after it.
pub const FRAME: HeadKind = HeadKind(5);

pub const HEADER_LEN: usize = 9;
/// The first bytes that a client sends (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames; in the column `frame_kind`.
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    /// In the column `frame_kind` alone: the client's preface.
    pub const PREFACE: u16 = 0x100;
}

/// Bits of a frame's flags; in the column `head_flags`.
pub mod flag {
    pub const END_STREAM: u8 = 0x01;
    /// Of SETTINGS and PING.
    pub const ACK: u8 = 0x01;
    pub const END_HEADERS: u8 = 0x04;
    pub const PADDED: u8 = 0x08;
    pub const PRIORITY: u8 = 0x20;
}

/// Length of what a GOAWAY says before texts for debugging: last stream, error code.
const GOAWAY_LEN: usize = 8;
/// Headers read of one packet, at most, to resume after a loss.
const MAX_FRAMES: usize = 4096;
/// Settings, at most, in the first frame of a server.
const MAX_SETTINGS: u32 = 32;
const SETTING_LEN: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes behind the header.
    pub payload_len: u32,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl FrameHeader {
    /// Read a header from any nine bytes; [`Self::is_valid`] says whether such a header may be sent.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            payload_len: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    /// Whether its length and stream are allowed for its type; others end a connection (RFC 9113 §6). Unknown types may
    /// have any (§5.5).
    pub fn is_valid(&self) -> bool {
        let (is_of_connection, len) = (self.stream == 0, self.payload_len);
        match self.kind {
            kind::DATA | kind::HEADERS | kind::CONTINUATION => !is_of_connection,
            kind::PUSH_PROMISE => !is_of_connection && len >= 4,
            kind::PRIORITY => !is_of_connection && len == 5,
            kind::RST_STREAM => !is_of_connection && len == 4,
            kind::SETTINGS if self.flags & flag::ACK != 0 => is_of_connection && len == 0,
            kind::SETTINGS => is_of_connection && len.is_multiple_of(SETTING_LEN),
            kind::PING => is_of_connection && len == 8,
            kind::GOAWAY => is_of_connection && len >= 8,
            kind::WINDOW_UPDATE => len == 4,
            _ => true,
        }
    }

    /// Whether its type is one of RFC 9113, and it has no flag that its type lacks. Random bytes rarely satisfy this.
    pub fn is_usual(&self) -> bool {
        let known = match self.kind {
            kind::DATA => flag::END_STREAM | flag::PADDED,
            kind::HEADERS => flag::END_STREAM | flag::END_HEADERS | flag::PADDED | flag::PRIORITY,
            kind::PUSH_PROMISE => flag::END_HEADERS | flag::PADDED,
            kind::SETTINGS | kind::PING => flag::ACK,
            kind::CONTINUATION => flag::END_HEADERS,
            kind::PRIORITY | kind::RST_STREAM | kind::GOAWAY | kind::WINDOW_UPDATE => 0,
            _ => return false,
        };
        self.is_valid() && self.flags & !known == 0
    }

    /// Whether it may be the first frame that a side sends: its settings.
    pub fn is_first_settings(&self) -> bool {
        self.kind == kind::SETTINGS
            && self.flags == 0
            && self.is_valid()
            && self.payload_len <= MAX_SETTINGS * SETTING_LEN
    }

    /// As a head without text; `len` is the whole frame's length.
    pub fn head(&self) -> Head<'static> {
        let len = HEADER_LEN as u32 + self.payload_len;
        head(self.kind.into(), self.flags, self.stream, len)
    }
}

/// The preface as a head without text.
pub fn preface() -> Head<'static> {
    head(kind::PREFACE, 0, 0, PREFACE.len() as u32)
}

fn head(kind: u16, flags: u8, stream: u32, len: u32) -> Head<'static> {
    Head {
        flags,
        frame: FrameId {
            kind,
            stream: stream.into(),
        },
        len,
        ..Head::empty(FRAME)
    }
}

fn is_frame(start: &[u8]) -> bool {
    let header = start.first_chunk().map(FrameHeader::parse);
    header.is_some_and(|header| header.is_usual())
}

/// Streams of even numbers are pushed by the server, and belong to no request.
fn meaning(frame: &FrameFields) -> FrameMeaning {
    let is = |kind: u8| frame.kind == u16::from(kind);
    let (data, headers) = (is(kind::DATA), is(kind::HEADERS));
    let is_clients = frame.stream % 2 == 1;
    let is_preface = frame.kind == kind::PREFACE;
    FrameMeaning {
        header_len: if is_preface { PREFACE.len() } else { HEADER_LEN } as i64,
        is_preface,
        is_said: is_clients && (data || headers || is(kind::CONTINUATION)),
        opens: headers,
        ends: (data || headers) && frame.flags & flag::END_STREAM != 0,
        breaks: is_clients && is(kind::RST_STREAM),
        refuses: is(kind::GOAWAY),
        has_data: data && frame.len > HEADER_LEN as i64,
        ..FrameMeaning::default()
    }
}

fn frame_len(header: &[u8]) -> Option<FrameLen> {
    let header = FrameHeader::parse(header.first_chunk()?);
    let has_block = matches!(header.kind, kind::HEADERS | kind::PUSH_PROMISE | kind::CONTINUATION);
    let kept_len = match header.kind {
        _ if has_block => header.payload_len,
        kind::RST_STREAM => header.payload_len,
        kind::GOAWAY => header.payload_len.min(GOAWAY_LEN as u32),
        _ => 0,
    };
    header.is_valid().then_some(FrameLen {
        body_len: header.payload_len,
        kept_len,
    })
}

/// Read the message of an excerpt, which is a header, perhaps with what its block says, or the preface. Its place is the
/// offset after it, because its first byte may be in another packet.
fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if excerpt.bytes == PREFACE {
        emit(PREFACE.len() as u32, &preface());
    } else if let Some((header, said)) = excerpt.bytes.split_first_chunk() {
        let frame = FrameHeader::parse(header).head();
        emit(HEADER_LEN as u32, &blocks::with_block(frame, said));
    }
}

/// The result of reading the start of a payload as consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Headers that were read.
    pub count: usize,
    /// Where the last of them ends.
    pub headers_end: usize,
    /// The last frame ends where the payload does.
    pub ends_with_payload: bool,
    /// At least one of the frames has a type other than DATA and CONTINUATION, which other protocols do not produce.
    pub is_conclusive: bool,
}

/// The frames that `payload` begins with; `None` if its first header is not a usual one, or a later one is not valid.
///
/// Arguments: `wire_len`, how long the payload was before it was cut; `most`, how many headers are read at most.
pub fn chain(payload: &[u8], wire_len: usize, most: usize) -> Option<Chain> {
    let (mut at, mut found) = (
        0_usize,
        Chain {
            count: 0,
            headers_end: 0,
            ends_with_payload: false,
            is_conclusive: false,
        },
    );
    while found.count < most {
        let Some(bytes) = payload.get(at..).and_then(|rest| rest.first_chunk()) else {
            break;
        };
        let header = FrameHeader::parse(bytes);
        if !header.is_usual() {
            return None;
        }
        found.count += 1;
        found.headers_end = at + HEADER_LEN;
        found.is_conclusive |= header.kind != kind::DATA && header.kind != kind::CONTINUATION;
        at = found.headers_end + header.payload_len as usize;
    }
    found.ends_with_payload = at == wire_len;
    (found.count > 0).then_some(found)
}

/// Whether `payload` may begin with the preface or a frame; for the hot path.
#[inline(always)]
pub fn may_begin(payload: &[u8]) -> bool {
    let Some(header) = payload.first_chunk::<HEADER_LEN>() else {
        return false;
    };
    (header[0] == 0 && header[3] <= kind::CONTINUATION && header[5] & 0x80 == 0) || header.starts_with(b"PRI * HTT")
}

/// Whether `payload` begins with frames or the preface, judged without the bytes before it.
pub fn begins(payload: &[u8], wire_len: usize) -> bool {
    if !may_begin(payload) {
        return false;
    }
    if payload.starts_with(PREFACE) {
        return true;
    }
    let first = payload.first_chunk().map(FrameHeader::parse);
    let whole =
        || chain(payload, wire_len, usize::MAX).is_some_and(|found| found.ends_with_payload && found.is_conclusive);
    first.is_some_and(|header| header.is_first_settings()) || whole()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, len: usize) -> Vec<u8> {
        let mut bytes = (len as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(vec![0x5a; len]);
        bytes
    }

    #[test]
    fn a_header_has_the_length_and_the_stream_of_its_type() {
        let cases: &[(u8, u8, u32, u32, bool, bool)] = &[
            (kind::DATA, 1, 1, 0, true, true),
            (kind::DATA, 0, 0, 5, false, false),
            (kind::DATA, 0x40, 1, 5, true, false),
            (kind::HEADERS, 0x2d, 3, 40, true, true),
            (kind::HEADERS, 4, 0, 40, false, false),
            (kind::PRIORITY, 0, 3, 5, true, true),
            (kind::PRIORITY, 0, 3, 4, false, false),
            (kind::RST_STREAM, 0, 3, 4, true, true),
            (kind::RST_STREAM, 0, 0, 4, false, false),
            (kind::SETTINGS, 0, 0, 18, true, true),
            (kind::SETTINGS, 1, 0, 0, true, true),
            (kind::SETTINGS, 1, 0, 6, false, false),
            (kind::SETTINGS, 0, 0, 7, false, false),
            (kind::SETTINGS, 0, 1, 6, false, false),
            (kind::PUSH_PROMISE, 4, 1, 4, true, true),
            (kind::PING, 0, 0, 8, true, true),
            (kind::PING, 0, 0, 9, false, false),
            (kind::GOAWAY, 0, 0, 8, true, true),
            (kind::GOAWAY, 0, 0, 7, false, false),
            (kind::WINDOW_UPDATE, 0, 0, 4, true, true),
            (kind::WINDOW_UPDATE, 0, 7, 4, true, true),
            (kind::WINDOW_UPDATE, 0, 7, 0xff_ffff, false, false),
            (kind::CONTINUATION, 4, 7, 9, true, true),
            (0x10, 0, 0, 12, true, false),
        ];
        for &(kind, flags, stream, payload_len, valid, usual) in cases {
            let header = FrameHeader {
                payload_len,
                kind,
                flags,
                stream,
            };
            assert_eq!((header.is_valid(), header.is_usual()), (valid, usual), "{header:?}");
        }
    }

    #[test]
    fn a_header_is_read_as_it_is_written_but_for_the_reserved_bit() {
        let header = FrameHeader::parse(b"\x01\x02\x03\x01\x05\x80\0\0\x09");
        let expected = FrameHeader {
            payload_len: 0x01_0203,
            kind: 1,
            flags: 5,
            stream: 9,
        };
        assert_eq!(header, expected);
        assert_eq!(
            (header.head().len, header.head().frame.kind, header.head().frame.stream),
            (0x01_020c, 1, 9)
        );
    }

    #[test]
    fn what_begins_with_frames_shows_it() {
        let call = [frame(1, 4, 1, 30), frame(0, 1, 1, 7)].concat();
        let body = frame(0, 0, 1, 100);
        let cases: &[(&str, Vec<u8>, usize, bool)] = &[
            ("the preface", PREFACE.to_vec(), 24, true),
            ("a piece of it", PREFACE[..20].to_vec(), 24, false),
            ("settings", frame(4, 0, 0, 18), 27, true),
            (
                "settings, cut behind their header",
                frame(4, 0, 0, 18)[..9].to_vec(),
                27,
                true,
            ),
            (
                "too many settings, cut",
                frame(4, 0, 0, 6 * 33)[..9].to_vec(),
                300,
                false,
            ),
            ("a call", call.clone(), call.len(), true),
            (
                "a call, and no more of another packet",
                call.clone(),
                call.len() + 1,
                false,
            ),
            ("data alone", body.clone(), body.len(), false),
            ("a ping", frame(6, 1, 0, 8), 17, true),
            ("a window", frame(8, 0, 0, 4), 13, true),
            ("zeros", vec![0; 64], 64, false),
            (
                "a length of four bytes before text",
                b"\0\0\0\x09some text".to_vec(),
                13,
                false,
            ),
            ("Kafka", b"\0\0\0\x08\0\x03\0\0\0\0\0\x01".to_vec(), 12, false),
            ("nothing", vec![], 0, false),
        ];
        for (name, payload, wire_len, expected) in cases {
            assert_eq!(begins(payload, *wire_len), *expected, "{name}");
            assert!(may_begin(payload) || !expected, "{name}: not seen by the hot path");
        }
    }

    #[test]
    fn no_prefix_and_no_length_is_too_much() {
        let all = [
            PREFACE.to_vec(),
            frame(4, 0, 0, 18),
            frame(1, 4, 1, 30),
            b"\xff\xff\xff\0\0\0\0\0\x01".to_vec(),
        ]
        .concat();
        for from in 0..all.len() {
            for to in from..=all.len() {
                let payload = &all[from..to];
                let found = chain(payload, payload.len(), usize::MAX);
                assert!(found.is_none_or(|found| found.headers_end <= payload.len()));
                begins(payload, payload.len());
            }
        }
    }
}
