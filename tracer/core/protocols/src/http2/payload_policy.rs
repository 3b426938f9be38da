//! Keeps the headers of HTTP/2 frames and the client's preface, and overwrites the contents of all frames.
//!
//! From the lengths, types, flags and stream numbers in frame headers the collector infers where a request begins and
//! where its answer ends (`exchanges/src/by_stream_id.rs`). They contain nothing that a user sent.
//!
//! Limits: a header is overwritten if its packet begins within a frame, or if it lies beyond the inspected part of the
//! payload. The collector then reports that not all frames of that connection are known.
//!
//! Source: RFC 9113 §3.4 (preface), §4.1 (header), §6 (types, their lengths, flags and streams).

use std::ops::Range;

use crate::parts::blank_beside;

const HEADER_LEN: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The parts of a payload that are kept, ascending; none if it does not begin with frames.
///
/// Arguments: `limit`, how many bytes of the payload are inspected.
pub fn kept_parts(payload: &[u8], limit: usize) -> Parts<'_> {
    Parts {
        payload: &payload[..payload.len().min(limit)],
        at: 0,
    }
}

/// Bytes up to the end of the last part that is kept; 0 if there is none. For the hot path.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !may_be_frame(payload) && !payload.starts_with(PREFACE) {
        return 0;
    }
    if !are_frames_valid(payload, limit) {
        return 0;
    }
    kept_parts(payload, limit).last().map_or(0, |part| part.end)
}

/// Whether every frame that begins in the inspected part has a valid header. Otherwise the payload only looks as if it
/// began with a frame.
fn are_frames_valid(payload: &[u8], limit: usize) -> bool {
    let mut parts = kept_parts(payload, limit);
    let behind = parts.by_ref().last().map_or(0, |part| part.end);
    behind > 0 && parts.payload.get(parts.at..).is_none_or(|rest| rest.len() < HEADER_LEN)
}

/// Overwrite with zeros what is not kept.
pub fn blank(captured: &mut [u8]) {
    let parts = kept_parts(captured, captured.len()).collect();
    blank_beside(captured, parts);
}

/// See [`kept_parts`].
pub struct Parts<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Iterator for Parts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.payload.get(self.at..)?;
        let start = self.at;
        if start == 0 && rest.starts_with(PREFACE) {
            self.at = PREFACE.len();
            return Some(0..PREFACE.len());
        }
        if !may_be_frame(rest) || !is_usual(rest) {
            return None;
        }
        self.at += HEADER_LEN + payload_len(rest);
        Some(start..start + HEADER_LEN)
    }
}

/// Arguments: at least a header.
fn payload_len(frame: &[u8]) -> usize {
    u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize
}

#[inline(always)]
fn may_be_frame(payload: &[u8]) -> bool {
    payload.len() >= HEADER_LEN && payload[0] == 0 && payload[3] <= 9 && payload[5] & 0x80 == 0
}

/// Whether length, flags and stream are those of the type.
fn is_usual(frame: &[u8]) -> bool {
    let (len, flags) = (payload_len(frame), frame[4]);
    let is_of_connection = frame[5..HEADER_LEN] == [0; 4];
    let (known_flags, fits) = match frame[3] {
        0 => (0x09, !is_of_connection),
        1 => (0x2d, !is_of_connection),
        2 => (0, !is_of_connection && len == 5),
        3 => (0, !is_of_connection && len == 4),
        4 if flags == 1 => (1, is_of_connection && len == 0),
        4 => (0, is_of_connection && len.is_multiple_of(6)),
        5 => (0x0c, !is_of_connection && len >= 4),
        6 => (1, is_of_connection && len == 8),
        7 => (0, is_of_connection && len >= 8),
        8 => (0, len == 4),
        9 => (4, !is_of_connection),
        _ => return false,
    };
    fits && flags & !known_flags == 0
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
        blank(&mut captured);
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
        let opening = [PREFACE, &frame(4, 0, 0, &[7; 12])].concat();
        assert_eq!(captured_bytes(&opening, 2048), opening[..33]);
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
