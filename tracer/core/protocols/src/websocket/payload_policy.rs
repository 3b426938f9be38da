//! What is kept of frames: their headers without the keys, and the codes of closes, unmasked.
//!
//! A payload is masked so that servers between the ends do not take it for their own protocol, not to hide it: the key
//! stands before it. Rules for secrets in lines of text do not find one that is masked or compressed, so such payloads are
//! overwritten whole wherever packets are copied.
//!
//! Limits: a frame is not recognised, and nothing of it kept, where its packet begins within another one, or with a frame
//! that is not the first or only one of its message.

use super::frames::{CODE_LEN, FrameHeader, KEY_LEN, MASKED};
use super::{FIRST_BYTES, FRAME_LIMIT};
use crate::redaction::RedactRest;

/// First of the lengths that take more than one byte.
const LONG: u8 = 126;

/// Bytes up to the end of the last header that is kept; 0 if the payload does not begin with frames.
///
/// Arguments: `limit`, how many bytes of the payload are inspected.
pub(super) fn kept_len(payload: &[u8], limit: usize) -> usize {
    let frames = frames_of(payload);
    let ends = frames.iter().map(|frame| frame.kept_end(payload.len()));
    ends.take_while(|end| *end <= limit).last().unwrap_or(0)
}

/// Overwrite payloads and keys with zeros, but for the codes of closes.
pub(super) fn blank(captured: &mut [u8]) {
    let frames = frames_of(captured);
    let mut at = 0;
    for frame in &frames {
        captured[at..frame.start].fill(0);
        frame.unmask_code(captured);
        at = frame.kept_end(captured.len());
    }
    captured[at..].fill(0);
}

/// Redact a payload by `rest`, but overwrite what frames hold if that is masked or compressed, and keep their headers.
pub(super) fn redact_around(payload: &mut [u8], rest: RedactRest<'_>) {
    let frames = frames_of(payload);
    let mut restored: Vec<(usize, Vec<u8>)> = Vec::with_capacity(frames.len());
    for frame in &frames {
        let is_hidden = frame.header.is_masked || frame.header.is_compressed;
        frame.unmask_code(payload);
        let kept_end = frame.kept_end(payload.len());
        let end = if is_hidden {
            frame.end.min(payload.len())
        } else {
            kept_end
        };
        payload[kept_end..end.max(kept_end)].fill(0);
        restored.push((frame.start, payload[frame.start..end.max(kept_end)].to_vec()));
    }
    rest(payload);
    for (at, bytes) in restored {
        payload[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

/// A frame in a payload.
struct Frame {
    start: usize,
    /// May be beyond the payload.
    end: usize,
    header: FrameHeader,
}

impl Frame {
    /// Where the header ends, or the code of a close behind it, in a payload of this length.
    fn kept_end(&self, payload_len: usize) -> usize {
        let header_end = self.start + self.header.len;
        let with_code = header_end + CODE_LEN;
        if self.header.has_code() && with_code <= payload_len {
            with_code
        } else {
            header_end
        }
    }

    /// Overwrite the key, and undo what it did to the code of a close.
    fn unmask_code(&self, payload: &mut [u8]) {
        if !self.header.is_masked {
            return;
        }
        let header_end = self.start + self.header.len;
        let kept_end = self.kept_end(payload.len());
        let (ahead, code) = payload[..kept_end].split_at_mut(header_end);
        let key = &mut ahead[header_end - KEY_LEN..];
        code.iter_mut().zip(key.iter()).for_each(|(byte, key)| *byte ^= key);
        key.fill(0);
    }
}

/// The frames that a payload begins with; none if it does not end with one, with the header of one, or within one of
/// which enough is known: its length takes more than one byte, or another one is before it.
fn frames_of(payload: &[u8]) -> Vec<Frame> {
    let mut found: Vec<Frame> = Vec::new();
    let is_first = |first: &u8| FIRST_BYTES.contains(first);
    if !payload.first().is_some_and(is_first) {
        return found;
    }
    let mut at = 0;
    while at < payload.len() && found.len() < FRAME_LIMIT {
        let rest = &payload[at..];
        let header = FrameHeader::parse(rest).filter(|header| header.len <= rest.len());
        let is_like = |header: &FrameHeader| found.first().is_none_or(|one| one.header.is_masked == header.is_masked);
        let Some(header) = header.filter(is_like) else {
            // The packet, or what was captured of it, may end within a header.
            let is_cut = match *rest {
                [first, second, ..] => {
                    FrameHeader::is_possible(first, second) && rest.len() < FrameHeader::len_of(second)
                }
                _ => true,
            };
            return if is_cut { found } else { Vec::new() };
        };
        let end = at.saturating_add(usize::try_from(header.frame_len()).unwrap_or(usize::MAX));
        found.push(Frame { start: at, end, header });
        at = end;
    }
    let is_long = |second: u8| second & !MASKED >= LONG;
    let is_header_alone = found
        .last()
        .is_some_and(|last| last.kept_end(payload.len()) == payload.len());
    let is_known = at <= payload.len()
        || is_header_alone
        || found.len() > 1
        || payload.get(1).is_some_and(|&second| is_long(second));
    if is_known { found } else { Vec::new() }
}
