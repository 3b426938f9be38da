//! WebSocket: frames, and the messages that they make up.
//!
//! ```text
//!  0               1               2               3
//! +-+-+-+-+-------+-+-------------+-------------------------------+
//! |F|R|R|R| opcode|M| Payload len |  16 or 64 bits of length, if  |
//! |I|S|S|S|  (4)  |A|     (7)     |  the 7 bits are 126 or 127;   |
//! |N|V|V|V|       |S|             |  a key of 32 bits, if masked  |
//! +-+-+-+-+-------+-+-------------+-------------------------------+
//! ```
//! Behind the head of HTTP's `101` both directions are read from frame to frame, wherever packets cut them. A message is
//! a text or binary frame with the continuation frames behind it; ping, pong and close are messages of one frame, and may
//! stand between. Of payloads nothing is read but the code of a close; a client masks it. Messages are no requests: either
//! side sends when it wants.
//!
//! Where no `101` was captured, payloads that consist of whole frames mark a stream; one such payload is no evidence,
//! several are.
//!
//! Source: RFC 6455 §5.2 (frames), §5.4 (fragments), §5.5.1 and §7.4 (close); RFC 7692 §6 (RSV1: compressed).

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::head::{FrameId, Head, HeadKind};
use crate::kept_messages;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{AgentKeeps, Docs, Finder, Parts, Protocol, Scanner, Scanning, Upgrade};

mod frames;
mod payload_policy;
mod scanner;

use frames::{FrameHeader, MASKED, opcode, websocket_frame};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[FRAME, STREAM_MARK],
    begins,
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: FIRST_BYTES,
    upgrade: Some(Upgrade {
        token: b"websocket",
        finder: Finder::Scanner(&SCANNING),
    }),
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: |captured, _| payload_policy::blank(captured),
    }),
    redact_around: Some(|payload, _, rest| payload_policy::redact_around(payload, rest)),
    docs: Docs {
        reads: "behind the `101` of HTTP the headers of frames, wherever they stand: messages, their types and sizes; the \
                codes of closes. Without it, payloads that are whole frames",
        agent_keeps: "the headers of frames without their keys, the codes of closes",
        overwrites: "payloads that are masked or compressed",
    },
    ..Protocol::with_name(NAME)
};

const SCANNING: Scanning = Scanning {
    begins: |_| false,
    resumes: |payload, from_client| {
        payload.get(..2).is_some_and(|start| begins(start, from_client))
            && payload_policy::kept_len(payload, payload.len()) > 0
    },
    scanner: |_| -> Box<dyn Scanner> { Box::new(scanner::FrameScanner::default()) },
    next_head: |_| None,
    keep: kept_messages::keep,
};

const NAME: &str = "websocket";
/// A frame's header. Column `frame_kind` is its opcode, `content_length` the length of its payload, `status` the code of a
/// close.
pub const FRAME: HeadKind = HeadKind(20);
/// Final text, binary, close, ping and pong frames; and the first two compressed.
const FIRST_BYTES: &[u8] = &[0x81, 0x82, 0x88, 0x89, 0x8a, 0xc1, 0xc2];
/// Frames of one payload that are inspected, at most.
const FRAME_LIMIT: usize = 64;

/// Bits of the column `head_flags`.
pub mod flag {
    /// The last frame of its message.
    pub const FINAL: u8 = 0x01;
    pub const MASKED: u8 = 0x02;
    /// Its message is compressed.
    pub const COMPRESSED: u8 = 0x04;
    /// Frames before it are missing.
    pub const AFTER_GAP: u8 = 0x08;
}

fn begins(start: &[u8], from_client: bool) -> bool {
    matches!(start, [first, second] if FIRST_BYTES.contains(first) && (second & MASKED != 0) == from_client)
}

/// Keep the first two bytes of a payload of whole frames, which show whether it is masked.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    if keeper.has_room() && are_frames(payload.bytes, payload.wire_len) {
        keeper.keep_start(payload.bytes, 0, 2, payload.wire_len as u32);
    }
    false
}

/// Read a frame, or the mark that a payload of frames is.
fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if let [_, second] = excerpt.bytes {
        let reach = if second & MASKED != 0 {
            reach::MASKED_FRAMES
        } else {
            reach::PLAIN_FRAMES
        };
        emit(0, &mark(b"frames", NAME, reach));
        return;
    }
    let Some((header, &[own_flags, c0, c1])) = excerpt.bytes.split_last_chunk() else {
        return;
    };
    let Some(header) = FrameHeader::parse(header) else {
        return;
    };
    let if_set = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    emit(
        0,
        &Head {
            flags: own_flags
                | if_set(header.is_final, flag::FINAL)
                | if_set(header.is_masked, flag::MASKED)
                | if_set(header.is_compressed, flag::COMPRESSED),
            status: u16::from_be_bytes([c0, c1]),
            content_length: i64::try_from(header.payload_len).unwrap_or(i64::MAX),
            len: u32::try_from(header.frame_len()).unwrap_or(u32::MAX),
            method: name_of(header.opcode),
            frame: FrameId {
                kind: header.opcode.into(),
                stream: -1,
            },
            ..Head::empty(FRAME)
        },
    );
}

fn name_of(opcode: u8) -> &'static [u8] {
    match opcode {
        opcode::CONTINUATION => b"continuation",
        opcode::TEXT => b"text",
        opcode::BINARY => b"binary",
        opcode::CLOSE => b"close",
        opcode::PING => b"ping",
        _ => b"pong",
    }
}

/// Whether a payload consists of whole frames, all masked or none, as far as it was captured.
fn are_frames(payload: &[u8], wire_len: usize) -> bool {
    let (mut at, mut masked) = (0_usize, None);
    for _ in 0..FRAME_LIMIT {
        let frame = payload.get(at..).and_then(websocket_frame);
        let Some((len, is_masked)) = frame.filter(|frame| masked.is_none_or(|masked| masked == frame.1)) else {
            return false;
        };
        masked = Some(is_masked);
        at = at.saturating_add(len);
        if at >= wire_len {
            return at == wire_len;
        }
    }
    false
}

#[cfg(test)]
mod tests;
