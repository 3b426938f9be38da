//! Keeps the headers of HTTP/2 frames, the client's preface, the codes of resets, last stream and code of GOAWAY, and
//! header blocks with their secrets overwritten; and overwrites the contents of all other frames.
//!
//! From the lengths, types, flags and stream numbers in frame headers the collector infers where a request begins and
//! where its answer ends (`exchanges/src/by_stream_id.rs`). They contain nothing that a user sent. Header blocks say what
//! is asked and how it is answered.
//!
//! Limits: a header is overwritten if the payload begins within a frame, or if it lies beyond the inspected part of the
//! payload. The collector then reports that not all frames of that connection are known. A block is overwritten whole if
//! it is not in one frame, or not all of it is in the inspected part; then names of later blocks may be unknown, too.
//!
//! Source: RFC 9113 §3.4 (preface), §4.1 (header), §6 (types, their lengths, flags and streams).

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::block_secrets::overwrite_secrets;
use super::{FrameHeader, GOAWAY_LEN, HEADER_LEN, PREFACE, kind, may_begin};
use crate::parts::blank_beside;

/// Bytes up to the end of the last part that is kept; 0 if the payload does not begin with frames. For the hot path.
///
/// Arguments: `limit`, how many bytes of the payload are inspected.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !may_begin(payload) {
        return 0;
    }
    let inspected = &payload[..payload.len().min(limit)];
    let mut frames = Frames::of(inspected);
    let last = frames.by_ref().last();
    match last {
        Some(frame) if frames.end_validly() => frame.block.map_or(frame.header.end, |block| block.end),
        _ => 0,
    }
}

/// Overwrite what is not kept: with zeros, but for secrets within header blocks.
pub fn blank(captured: &mut [u8], rules: &SecretRules) {
    let frames: Vec<Frame> = Frames::of(captured).collect();
    let mut kept = Vec::with_capacity(2 * frames.len());
    for frame in frames {
        kept.push(frame.header);
        kept.extend(
            frame
                .block
                .filter(|block| overwrite_secrets(&mut captured[block.clone()], rules)),
        );
    }
    blank_beside(captured, kept);
}

/// Where a frame's header is, or the preface, and the header block in it, if it holds a whole one. The numbers that a
/// reset and a GOAWAY begin with count as part of their headers.
struct Frame {
    header: Range<usize>,
    block: Option<Range<usize>>,
}

/// The frames of a payload, up to the first that is none.
struct Frames<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    fn of(payload: &'a [u8]) -> Self {
        Self { payload, at: 0 }
    }

    /// Whether every frame that begins in the payload has a valid header. Otherwise it only looks as if it began with a
    /// frame.
    fn end_validly(&self) -> bool {
        let rest = self.payload.get(self.at..);
        rest.is_none_or(|rest| rest.len() < HEADER_LEN)
    }
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        let rest = self.payload.get(self.at..)?;
        let start = self.at;
        if start == 0 && rest.starts_with(PREFACE) {
            self.at = PREFACE.len();
            return Some(Frame {
                header: 0..self.at,
                block: None,
            });
        }
        let header = FrameHeader::parse(rest.first_chunk()?);
        if rest[0] != 0 || rest[5] & 0x80 != 0 || !header.is_usual() {
            return None;
        }
        let body = start + HEADER_LEN;
        self.at = body + header.payload_len as usize;
        let block = self
            .payload
            .get(body..self.at)
            .and_then(|bytes| header.whole_block(bytes));
        let numbers_end = match header.kind {
            kind::RST_STREAM => self.at,
            kind::GOAWAY => body + GOAWAY_LEN,
            _ => body,
        };
        Some(Frame {
            header: start..if numbers_end <= self.payload.len() {
                numbers_end
            } else {
                body
            },
            block: block.map(|block| body + block.start..body + block.end),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, stream][..], body].concat()
    }

    /// What is left of a payload.
    fn captured_bytes(payload: &[u8], limit: usize) -> Vec<u8> {
        let mut captured = payload[..kept_len(payload, limit)].to_vec();
        blank(&mut captured, SecretRules::built_in());
        captured
    }

    #[test]
    fn headers_of_frames_are_kept_and_nothing_that_they_hold() {
        let call = [frame(1, 4, 1, b"authorization"), frame(0, 1, 1, b"secret")].concat();
        let bare = [frame(1, 4, 1, &[0; 13]), frame(0, 1, 1, b"")].concat();
        let with_lengths = |mut bytes: Vec<u8>| {
            bytes[24] = 6;
            bytes
        };
        assert_eq!(captured_bytes(&call, 2048), with_lengths(bare));
        let opening = [&PREFACE[..], &frame(4, 0, 0, &[7; 12])].concat();
        assert_eq!(captured_bytes(&opening, 2048), opening[..33]);
    }

    #[test]
    fn the_code_of_a_reset_is_kept() {
        let reset = frame(3, 0, 1, &[0, 0, 0, 8]);
        assert_eq!(captured_bytes(&reset, 2048), reset);
        assert_eq!(captured_bytes(&reset, 12), reset[..9]);
    }

    #[test]
    fn of_goaway_all_but_its_text_is_kept() {
        let goaway = frame(7, 0, 0, b"\0\0\0\x05\0\0\0\x0bsecret");
        assert_eq!(captured_bytes(&goaway, 2048), goaway[..17]);
        assert_eq!(captured_bytes(&goaway[..14], 2048), goaway[..9]);
    }

    #[test]
    fn a_frame_that_goes_on_in_other_packets_is_kept_as_one() {
        let mut body = frame(0, 0, 1, &[9; 100]);
        body[1] = 0x40;
        assert_eq!(captured_bytes(&body, 2048), body[..9]);
    }

    #[test]
    fn what_is_cut_or_is_no_frame_is_kept_that_far_or_not_at_all() {
        let two = [frame(0, 0, 1, &[7; 100]), frame(0, 1, 1, &[7; 100])].concat();
        assert_eq!(captured_bytes(&two, 112).len(), 9); // the second header is not whole
        assert_eq!(captured_bytes(&two, 118).len(), 118);
        assert_eq!(
            captured_bytes(&[frame(1, 4, 1, b"secret"), b"no frame here".to_vec()].concat(), 2048),
            b""
        );
        for other in [
            &b"password=secret"[..],
            &[0; 40],
            b"\0\0\0\x29\0\x03\0\0user\0alice\0",
            b"\0\0\x06",
            b"",
        ] {
            assert_eq!(captured_bytes(other, 2048), b"", "{other:?}");
        }
    }
}
