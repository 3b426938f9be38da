//! Finds the frames of HTTP/2 in a payload: their headers must survive, and the secrets in their header blocks must not.
//!
//! A block that is in one frame keeps what is no secret (`block_secrets`); others are overwritten whole. The headers of frames and the client's preface hold nothing that a user sent, and the collector counts requests by
//! them. They are restored after all else was redacted as lines of text, since a line may reach into the next frame.
//!
//! Limits: a block in a packet that begins within a frame is not found.
//!
//! Source: RFC 9113 §3.4 (preface), §4.1 (frame header), §5.5 (extensions), §6 (types, flags); RFC 7541 (HPACK);
//! RFC 7838, 8336, 9218 (types 10, 12, 16).

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::block_secrets::overwrite_secrets;
use super::kind::{CONTINUATION, DATA, HEADERS, PUSH_PROMISE};
use super::{FrameHeader, HEADER_LEN, PREFACE};
use crate::redaction::RedactRest;

/// Types of extensions: ALTSVC, ORIGIN, PRIORITY_UPDATE. None has a flag.
const EXTENSIONS: [u8; 3] = [10, 12, 16];
/// Flags that may be set, by type.
const FLAGS: [u8; 10] = [0x09, 0x2d, 0, 0, 0x01, 0x0c, 0x01, 0, 0, 0x04];

/// Redact a payload by `redact_lines`, but keep the preface and the headers of frames if it consists of these, and
/// overwrite the secrets of their header blocks.
pub fn redact_around_frames(payload: &mut [u8], rules: &SecretRules, redact_lines: RedactRest<'_>) {
    let frames = find_frames(payload);
    let blocks = frames
        .blocks
        .iter()
        .map(|(header, body)| (body.start, redact_body(header, &payload[body.clone()], rules)));
    let blocks: Vec<(usize, Vec<u8>)> = blocks.collect();
    redact_lines(payload);
    for (at, bytes) in blocks {
        payload[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    for (at, header) in frames.headers {
        payload[at..at + HEADER_LEN].copy_from_slice(&header);
    }
    if frames.has_preface {
        payload[..PREFACE.len()].copy_from_slice(PREFACE);
    }
}

/// A body that carries a header block, with the secrets overwritten; whole if the block is cut.
fn redact_body(header: &FrameHeader, body: &[u8], rules: &SecretRules) -> Vec<u8> {
    let mut overwritten = vec![0; body.len()]; // as agents do: the reader of blocks recognises it
    if let Some(range) = header.whole_block(body) {
        let mut block = body[range.clone()].to_vec();
        if overwrite_secrets(&mut block, rules) {
            overwritten[..range.start].copy_from_slice(&body[..range.start]);
            overwritten[range].copy_from_slice(&block);
        }
    }
    overwritten
}

/// What a payload consists of; nothing if it holds anything but frames.
#[derive(Default)]
struct Frames {
    has_preface: bool,
    /// Of frames shorter than 64 KiB, which are all that the collector follows: bytes that begin with a zero are no
    /// text.
    headers: Vec<(usize, [u8; HEADER_LEN])>,
    /// Those that carry header blocks: their headers, and where their bodies are.
    blocks: Vec<(FrameHeader, Range<usize>)>,
}

fn find_frames(payload: &[u8]) -> Frames {
    let mut found = Frames {
        has_preface: payload.starts_with(PREFACE),
        ..Frames::default()
    };
    let mut at = if found.has_preface { PREFACE.len() } else { 0 };
    while let Some(header) = payload.get(at..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) {
        let &[a, b, c, kind, _, _, _, _, _] = header;
        if !is_frame(header, found.has_preface) {
            return Frames::default();
        }
        let behind = at + HEADER_LEN + u32::from_be_bytes([0, a, b, c]) as usize;
        if a == 0 {
            found.headers.push((at, *header));
        }
        if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            let body = at + HEADER_LEN..behind.min(payload.len());
            found.blocks.push((FrameHeader::parse(header), body));
        }
        at = behind;
    }
    found
}

/// Whether these bytes can be the header of a frame. Behind a preface every type can be: receivers ignore unknown ones.
fn is_frame(&[_, _, _, kind, flags, s0, s1, s2, s3]: &[u8; HEADER_LEN], behind_preface: bool) -> bool {
    let needs_stream = matches!(kind, DATA | HEADERS | PUSH_PROMISE | CONTINUATION);
    let is_known = match FLAGS.get(usize::from(kind)) {
        Some(known) => flags & !known == 0,
        None => behind_preface || (flags == 0 && EXTENSIONS.contains(&kind)),
    };
    is_known && s0 & 0x80 == 0 && !(needs_stream && [s0, s1, s2, s3] == [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, stream][..], body].concat()
    }

    fn with_blank_headers(payload: &[u8]) -> Vec<u8> {
        let mut bytes = payload.to_vec();
        redact_around_frames(&mut bytes, SecretRules::built_in(), &mut |_| {});
        bytes
    }

    #[test]
    fn header_blocks_are_overwritten_and_all_else_stays() {
        let with = |block: &[u8]| {
            let call = [frame(4, 0, 0, b""), frame(1, 4, 1, block), frame(9, 4, 1, block)].concat();
            [&PREFACE[..], &call, &frame(5, 4, 1, block), &frame(0, 1, 1, b"body")].concat()
        };
        assert_eq!(with_blank_headers(&with(b"secret")), with(&[0; 6]));
        assert_eq!(
            with_blank_headers(&with(b"secret")[PREFACE.len()..]),
            with(&[0; 6])[PREFACE.len()..]
        );
    }

    #[test]
    fn a_block_that_the_packet_cuts_is_overwritten_as_far_as_it_is_there() {
        let whole = frame(1, 4, 1, b"secret");
        for len in 0..whole.len() {
            let mut expected = whole[..len].to_vec();
            expected[HEADER_LEN.min(len)..].fill(0);
            assert_eq!(with_blank_headers(&whole[..len]), expected);
        }
    }

    #[test]
    fn what_only_begins_like_a_frame_stays() {
        for other in [
            frame(1, 4, 0, b"no stream"),
            frame(1, 0x40, 1, b"no such flag"),
            frame(11, 0, 1, b"no such type"),
            frame(10, 1, 1, b"no such flag of an extension"),
            [frame(1, 4, 1, b"one"), b"and no other frame".to_vec()].concat(),
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b"".to_vec(),
        ] {
            assert_eq!(with_blank_headers(&other), other);
        }
    }

    #[test]
    fn frames_of_extensions_hide_no_block() {
        let with = |block: &[u8]| [frame(16, 0, 0, b"\0\0\0\x01u=1"), frame(1, 4, 1, block)].concat();
        assert_eq!(with_blank_headers(&with(b"secret")), with(&[0; 6]));
        let unknown = |block: &[u8]| [&PREFACE[..], &frame(0xfa, 7, 0, b"ignored"), &frame(1, 4, 1, block)].concat();
        assert_eq!(with_blank_headers(&unknown(b"secret")), unknown(&[0; 6]));
    }

    #[test]
    fn whatever_is_overwritten_frames_and_the_preface_stay() {
        let with = |body: &[u8]| {
            [
                &PREFACE[..],
                &frame(4, 0, 0, body),
                &frame(0, 0, 1, body),
                &frame(0, 1, 1, b""),
            ]
            .concat()
        };
        let mut bytes = with(b"abcdef");
        redact_around_frames(&mut bytes, SecretRules::built_in(), &mut |bytes| bytes.fill(b'x'));
        assert_eq!(bytes, with(b"xxxxxx"));
    }
}
