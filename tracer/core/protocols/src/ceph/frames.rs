//! Frames of messenger v2: the preamble, and how long what follows it is.
//!
//! ```text
//! preamble (32)                       body
//! tag │ count of segments │ 4 × (length, alignment) │ flags │ crc ║ segment 0 │ crc ║ segments 1 to 3 │ epilogue (13)
//! ```
//! The preamble ends with a checksum of itself, so one anywhere in a stream is recognised for sure. The crc behind
//! segment 0 exists if that is not empty, the epilogue if there is more than one segment.
//!
//! Limits: frames of messenger 2.0 with one segment are 13 bytes longer; following ends behind them. Those with several
//! segments, which all messages are, have the same length in 2.0 and 2.1.
//!
//! Source: Ceph's documentation, "msgr2 protocol (msgr2.0 and msgr2.1)", "Frame format".

use std::ops::Range;

/// Length of a preamble.
pub const PREAMBLE_LEN: usize = 32;
/// Length of the crc behind segment 0.
pub const CRC_LEN: usize = 4;
const EPILOGUE_LEN: u64 = 13;
const SEGMENTS_MOST: usize = 4;
const SEGMENT_LEN: usize = 6;
const FLAGS: usize = 26;
const CRC: usize = 28;
/// A frame whose segments are compressed.
const COMPRESSED: u8 = 1;
/// What both sides send first: these words, the length of the rest, which features are supported and required.
const BANNER: &[u8] = b"ceph v2\n";
const BANNER_LEN: usize = BANNER.len() + 2 + FEATURES_LEN;
const FEATURES_LEN: usize = 16;

/// Kinds of frames.
pub mod tag {
    pub const HELLO: u8 = 1;
    pub const AUTH_REQUEST: u8 = 2;
    pub const AUTH_REPLY_MORE: u8 = 4;
    pub const AUTH_REQUEST_MORE: u8 = 5;
    pub const AUTH_DONE: u8 = 6;
    pub const AUTH_SIGNATURE: u8 = 7;
    pub const MESSAGE: u8 = 17;
    /// `COMPRESSION_DONE`.
    pub const LAST: u8 = 22;
}

/// A preamble, whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    pub tag: u8,
    pub segments: [u32; SEGMENTS_MOST],
    segments_count: u8,
    pub is_compressed: bool,
}

impl Preamble {
    /// Read a preamble; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PREAMBLE_LEN] = bytes.first_chunk()?;
        if !may_be_preamble(bytes) {
            return None;
        }
        let sent = u32::from_le_bytes(*bytes[CRC..].first_chunk()?);
        if crc32c_from_zero(&bytes[..CRC]) != sent {
            return None;
        }
        let length = |segment: usize| {
            let at = 2 + segment * SEGMENT_LEN;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Some(Self {
            tag: bytes[0],
            segments: [length(0), length(1), length(2), length(3)],
            segments_count: bytes[1],
            is_compressed: bytes[FLAGS] & COMPRESSED != 0,
        })
    }

    /// Bytes of the frame behind the preamble; `None` if they are more than a frame can have.
    pub fn body_len(&self) -> Option<u32> {
        let all: u64 = self.segments.iter().map(|&len| u64::from(len)).sum();
        let crc = if self.segments[0] > 0 { CRC_LEN as u64 } else { 0 };
        let epilogue = if self.segments_count > 1 { EPILOGUE_LEN } else { 0 };
        u32::try_from(all + crc + epilogue).ok()
    }

    /// Where the parts of a message stand in the frame's body, of which `len` bytes are there.
    pub fn places(&self, len: usize) -> Places {
        let mut at = 0;
        let mut next = |part_len: usize| {
            let begun = at;
            at = part_len.saturating_add(at).min(len);
            begun..at
        };
        let [first, front, middle, data] = self.segments.map(|len| len as usize);
        let header = next(first);
        next(CRC_LEN);
        let front = next(front);
        next(middle);
        Places {
            header,
            front,
            data: next(data),
        }
    }

    pub fn is_message(&self) -> bool {
        self.tag == tag::MESSAGE && !self.is_compressed && self.segments[0] as usize == super::messages::HEADER_LEN
    }

    /// Whether it carries what proves who its sender is: tickets and challenges of cephx.
    pub fn is_secret(&self) -> bool {
        matches!(
            self.tag,
            tag::AUTH_REQUEST | tag::AUTH_REPLY_MORE | tag::AUTH_REQUEST_MORE | tag::AUTH_DONE | tag::AUTH_SIGNATURE
        )
    }
}

/// Where the parts of a message stand in its frame's body.
#[derive(Clone, Debug)]
pub struct Places {
    pub header: Range<usize>,
    pub front: Range<usize>,
    pub data: Range<usize>,
}

/// Whether these bytes may be a preamble, but for the checksum; for the hot path.
#[inline(always)]
fn may_be_preamble(bytes: &[u8; PREAMBLE_LEN]) -> bool {
    (tag::HELLO..=tag::LAST).contains(&bytes[0])
        && (1..=SEGMENTS_MOST as u8).contains(&bytes[1])
        && bytes[FLAGS] <= COMPRESSED
        && bytes[FLAGS + 1] == 0
}

/// Whether a payload may begin with a frame or the banner; for the hot path.
#[inline(always)]
pub fn may_begin(payload: &[u8]) -> bool {
    payload.first_chunk().is_some_and(may_be_preamble) || payload.starts_with(BANNER)
}

/// Length of the banner that a payload begins with; 0 if it begins with none.
pub fn banner_len(payload: &[u8]) -> usize {
    let rest_len = payload.strip_prefix(BANNER).and_then(<[u8]>::first_chunk);
    match rest_len {
        Some(&len) if usize::from(u16::from_le_bytes(len)) == FEATURES_LEN && payload.len() >= BANNER_LEN => BANNER_LEN,
        _ => 0,
    }
}

/// CRC-32C as Ceph computes it for preambles: from 0, without inversions.
fn crc32c_from_zero(bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, bytes)
}
