//! Header blocks of HTTP/2 are compressed (HPACK), so names cannot show where their secrets are: each block is
//! overwritten whole.
//!
//! Limits: a block in a packet that begins within a frame is not found.
//!
//! Source: RFC 9113 §3.4 (preface), §4.1 (frame header), §6 (types, flags); RFC 7541 (HPACK).

use std::ops::Range;

const HEADER_LEN: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
/// Flags that may be set, by type.
const FLAGS: [u8; 10] = [0x09, 0x2d, 0, 0, 0x01, 0x0c, 0x01, 0, 0, 0x04];

/// Overwrite the header blocks of a payload that begins with the preface or with frames, and holds nothing else.
pub fn blank_header_blocks(payload: &mut [u8]) {
    for block in header_blocks(payload) {
        payload[block].fill(b'x');
    }
}

fn header_blocks(payload: &[u8]) -> Vec<Range<usize>> {
    let mut at = if payload.starts_with(PREFACE) { PREFACE.len() } else { 0 };
    let mut found = Vec::new();
    while let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = payload.get(at..at + HEADER_LEN) {
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        let has_stream = [s0, s1, s2, s3] != [0; 4];
        let known = FLAGS.get(usize::from(kind)).is_some_and(|known| flags & !known == 0);
        let needs_stream = matches!(kind, DATA | HEADERS | PUSH_PROMISE | CONTINUATION);
        if !known || s0 & 0x80 != 0 || (needs_stream && !has_stream) {
            return Vec::new(); // no frames after all
        }
        let behind = at + HEADER_LEN + len;
        if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            found.push(at + HEADER_LEN..behind.min(payload.len()));
        }
        at = behind;
    }
    found
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
        blank_header_blocks(&mut bytes);
        bytes
    }

    #[test]
    fn header_blocks_are_overwritten_and_all_else_stays() {
        let with = |block: &[u8]| {
            let call = [frame(4, 0, 0, b""), frame(1, 4, 1, block), frame(9, 4, 1, block)].concat();
            [PREFACE, &call, &frame(5, 4, 1, block), &frame(0, 1, 1, b"body")].concat()
        };
        assert_eq!(with_blank_headers(&with(b"secret")), with(b"xxxxxx"));
        assert_eq!(
            with_blank_headers(&with(b"secret")[PREFACE.len()..]),
            with(b"xxxxxx")[PREFACE.len()..]
        );
    }

    #[test]
    fn a_block_that_the_packet_cuts_is_overwritten_as_far_as_it_is_there() {
        let whole = frame(1, 4, 1, b"secret");
        for len in 0..whole.len() {
            let mut expected = whole[..len].to_vec();
            expected[HEADER_LEN.min(len)..].fill(b'x');
            assert_eq!(with_blank_headers(&whole[..len]), expected);
        }
    }

    #[test]
    fn what_only_begins_like_a_frame_stays() {
        for other in [
            frame(1, 4, 0, b"no stream"),
            frame(1, 0x40, 1, b"no such flag"),
            frame(10, 0, 1, b"no such type"),
            [frame(1, 4, 1, b"one"), b"and no other frame".to_vec()].concat(),
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            b"".to_vec(),
        ] {
            assert_eq!(with_blank_headers(&other), other);
        }
    }
}
