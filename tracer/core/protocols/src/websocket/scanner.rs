//! Reads the frames of one direction, from one header to the next.

use super::flag;
use super::frames::{CODE_LEN, FrameHeader, KEY_LEN};
use crate::protocol::{OnMessage, ReadFrame, Scan, Scanner};

/// Bytes that are skipped at once, at most: places in streams are known modulo 2^32.
const SKIP_MOST: u64 = 1 << 30;

/// Finds frames; each is passed on with its flags and the code of a close, 0 if it has none.
#[derive(Clone, Debug, Default)]
pub(super) struct FrameScanner {
    /// The current frame's header so far, and the code of a close behind it.
    start: Vec<u8>,
    /// Bytes of the last frame's payload that come next.
    rest: u64,
    is_after_gap: bool,
}

impl FrameScanner {
    /// How many bytes of the current frame are wanted: as far as is known, and at least one more than there are.
    fn wanted_len(&self) -> usize {
        match self.start[..] {
            [_, second, ..] => {
                let len = FrameHeader::len_of(second);
                let has_code = || FrameHeader::parse(&self.start).is_some_and(|header| header.has_code());
                if self.start.len() >= len && has_code() {
                    len + CODE_LEN
                } else {
                    len
                }
            }
            _ => 2,
        }
    }

    /// Pass the current frame on, whose header is whole. `end`: place behind what is known of it.
    fn pass(&mut self, header: FrameHeader, end: i64, found: OnMessage<'_>) {
        let at = end - self.start.len() as i64;
        let (head, code) = self.start.split_at_mut(header.len);
        let key_at = header.len - if header.is_masked { KEY_LEN } else { 0 };
        let [mut c0, mut c1] = *code.first_chunk().unwrap_or(&[0; CODE_LEN]);
        if let ([k0, k1, ..], true) = (&head[key_at..], !code.is_empty()) {
            (c0, c1) = (c0 ^ k0, c1 ^ k1);
        }
        head[key_at..].fill(0);
        let own_flags = if self.is_after_gap { flag::AFTER_GAP } else { 0 };
        found(&ReadFrame {
            header: head,
            at: i32::try_from(at).unwrap_or(i32::MIN),
            said: &[own_flags, c0, c1],
        });
        self.rest = header.payload_len - code.len() as u64;
        self.is_after_gap = false;
        self.start.clear();
    }
}

impl Scanner for FrameScanner {
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan {
        let mut at = 0;
        loop {
            let skipped = self.rest.min((bytes.len() - at) as u64);
            (at, self.rest) = (at + skipped as usize, self.rest - skipped);
            let ahead = self.rest.min(SKIP_MOST);
            if at == bytes.len() {
                self.rest -= ahead;
                return Scan::Skip(ahead as u32);
            }
            let wanted = self.wanted_len();
            let more = (wanted - self.start.len()).min(bytes.len() - at);
            self.start.extend_from_slice(&bytes[at..at + more]);
            at += more;
            if let [first, second, ..] = self.start[..]
                && !FrameHeader::is_possible(first, second)
            {
                return Scan::End;
            }
            if self.start.len() < wanted || self.wanted_len() > self.start.len() {
                continue;
            }
            let Some(header) = FrameHeader::parse(&self.start) else {
                return Scan::End;
            };
            self.pass(header, at as i64, found);
        }
    }

    fn lose(&mut self, found: OnMessage<'_>) {
        if let [_, second, ..] = self.start[..]
            && self.start.len() >= FrameHeader::len_of(second)
            && let Some(header) = FrameHeader::parse(&self.start)
        {
            self.start.truncate(header.len); // of the code not all is known
            self.pass(header, 0, found);
        }
        self.start.clear();
        (self.rest, self.is_after_gap) = (0, true);
    }

    fn boxed_clone(&self) -> Box<dyn Scanner> {
        Box::new(self.clone())
    }
}
