//! WebSocket: payloads that are whole frames, and nothing else. One says nothing by itself; several make a stream. A
//! client's frames are masked, a server's are not.
//!
//! Source: RFC 6455 §5.2.

use crate::head::Head;
use crate::marks::{mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    find_marks,
    first_bytes: &[0x81, 0x82, 0x88, 0x89, 0x8a, 0xc1, 0xc2],
    docs: Docs {
        reads: "payloads that are whole frames, if the `101` of HTTP was not captured",
        ..Docs::NONE
    },
    ..Protocol::named(NAME)
};

const NAME: &str = "websocket";
/// Most frames of one payload that are looked at.
const FRAME_LIMIT: usize = 64;

fn find_marks(payload: &[u8], wire_len: usize, note: &mut dyn FnMut(usize, Head<'static>)) {
    if let Some(is_masked) = frames_masked(payload, wire_len) {
        let of = if is_masked {
            reach::MASKED_FRAMES
        } else {
            reach::PLAIN_FRAMES
        };
        note(0, mark(b"frames", NAME, of));
    }
}

/// Whether the frames of a WebSocket are masked that a payload is made of; `None` if it is not, or what was captured of
/// it does not show it.
fn frames_masked(payload: &[u8], wire_len: usize) -> Option<bool> {
    let (mut at, mut masked) = (0_usize, None);
    for _ in 0..FRAME_LIMIT {
        let (len, is_masked) = websocket_frame(payload.get(at..)?)?;
        if masked.is_some_and(|masked| masked != is_masked) {
            return None;
        }
        masked = Some(is_masked);
        at = at.checked_add(len)?;
        if at >= wire_len {
            return masked.filter(|_| at == wire_len);
        }
    }
    None
}

/// How long the frame at the start of `bytes` is, and whether it is masked (RFC 6455 §5.2); `None` if there can be
/// none.
fn websocket_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    let (opcode, len7, is_masked) = (first & 0x0f, second & 0x7f, second & 0x80 != 0);
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
    // As short as can be (§5.2: "the minimal number of bytes MUST be used").
    let is_shortest = match more {
        2 => len > 125,
        8 => len > u64::from(u16::MAX),
        _ => true,
    };
    let header = 2 + more + if is_masked { 4 } else { 0 };
    (is_valid && is_shortest).then_some((header + usize::try_from(len).ok()?.min(usize::MAX >> 1), is_masked))
}
