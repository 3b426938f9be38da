//! WebSocket: payloads that consist of whole frames. One such payload is no evidence; several show a stream. A client's
//! frames are masked, a server's are not.
//!
//! Source: RFC 6455 §5.2.

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[STREAM_MARK],
    begins,
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: FIRST_BYTES,
    docs: Docs {
        reads: "payloads that are whole frames, if the `101` of HTTP was not captured",
        ..Docs::NONE
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "websocket";
/// Final text, binary, close, ping and pong frames; and the first two compressed.
const FIRST_BYTES: &[u8] = &[0x81, 0x82, 0x88, 0x89, 0x8a, 0xc1, 0xc2];
/// Of a frame's second byte: its payload is masked.
const MASKED: u8 = 0x80;
/// Frames of one payload that are inspected, at most.
const FRAME_LIMIT: usize = 64;

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

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if let [_, second] = excerpt.bytes {
        let reach = if second & MASKED != 0 {
            reach::MASKED_FRAMES
        } else {
            reach::PLAIN_FRAMES
        };
        emit(0, &mark(b"frames", NAME, reach));
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

/// How long the frame at the start of `bytes` is, and whether it is masked (RFC 6455 §5.2); `None` if there can be
/// none.
fn websocket_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    let (opcode, len7, is_masked) = (first & 0x0f, second & 0x7f, second & MASKED != 0);
    let is_control = opcode >= 8;
    let is_valid = if is_control {
        first & 0xf0 == 0x80 && opcode <= 10 && len7 <= 125
    } else {
        first & 0x30 == 0 && opcode <= 2
    };
    let (more, len) = match len7 {
        126 => (2, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
        127 => (8, u64::from_be_bytes(*rest.first_chunk()?)),
        _ => (0, u64::from(len7)),
    };
    // A length must take as few bytes as possible (§5.2: "the minimal number of bytes MUST be used").
    let is_shortest = match more {
        2 => len > 125,
        8 => len > u64::from(u16::MAX),
        _ => true,
    };
    let header = 2 + more + if is_masked { 4 } else { 0 };
    (is_valid && is_shortest).then_some((header + usize::try_from(len).ok()?.min(usize::MAX >> 1), is_masked))
}
