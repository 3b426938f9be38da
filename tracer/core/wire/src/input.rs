//! A window on a stream: the bytes from the current position on, without loading the file into memory.
//!
//! One buffer is reused for the whole file. It grows only when a single record needs more, up to [`RECORD_LIMIT`];
//! longer records are skipped in pieces. So memory is bounded, whatever lengths the file claims.

use std::io::{ErrorKind, Read};

/// Longest record that is held in memory. BIG TCP frames are below 512 KiB; pcapng blocks have no limit of their own.
pub const RECORD_LIMIT: usize = 16 << 20;

/// First size of the buffer: stays in the level-2 cache, so that bytes are decoded where the kernel copied them.
const BUFFER_LEN: usize = 256 << 10;

/// Why there are no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source has no more.
    Finished,
    /// A compressed source is truncated.
    Cut,
    /// A compressed source is damaged.
    Corrupt,
    /// A compressed source expands to more than it may.
    Excessive,
    /// The operating system failed to read.
    Failed,
}

/// Bytes of `source` from the current position on.
pub struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    read_bytes: u64,
    ended: Option<End>,
}

impl<R: Read> Input<R> {
    /// An input at the beginning of `source`.
    pub fn new(source: R) -> Self {
        Self {
            source,
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            end: 0,
            read_bytes: 0,
            ended: None,
        }
    }

    /// Read until `len` bytes are buffered; whether they are. Always false for more than [`RECORD_LIMIT`].
    #[inline(always)]
    pub fn require(&mut self, len: usize) -> bool {
        self.end - self.start >= len || self.refill(len)
    }

    /// Bytes read of the uncompressed source so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The bytes in the buffer, from the current position on.
    #[inline(always)]
    pub fn available(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Advance by `len` buffered bytes. They stay in place until the next `require`.
    #[inline(always)]
    pub fn consume(&mut self, len: usize) {
        assert!(len <= self.end - self.start);
        self.start += len;
    }

    /// The `len` bytes just consumed, less `tail` at their end.
    #[inline(always)]
    pub fn last_consumed(&self, len: usize, tail: usize) -> &[u8] {
        &self.buffer[self.start - len - tail..self.start - tail]
    }

    /// Advance by `len` bytes, buffered or not; false if the source ends before.
    pub fn skip(&mut self, mut len: u64) -> bool {
        loop {
            let step = len.min((self.end - self.start) as u64) as usize;
            self.start += step;
            len -= step as u64;
            if len == 0 {
                return true;
            }
            if !self.require(1) {
                return false;
            }
        }
    }

    /// Why `require` returned false; `None` if more than [`RECORD_LIMIT`] bytes were required.
    pub fn end_reason(&self) -> Option<End> {
        self.ended
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self, len: usize) -> bool {
        if len > RECORD_LIMIT {
            return false;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if len > self.buffer.len() {
            self.buffer.resize(len.next_power_of_two(), 0);
        }
        while self.end < len && self.ended.is_none() {
            self.read_once();
        }
        self.end >= len
    }

    fn read_once(&mut self) {
        match self.source.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.ended = Some(End::Finished),
            Ok(count) => {
                self.end += count;
                self.read_bytes += count as u64;
            }
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                // The errors that flate2 and zstd return for a truncated and for a damaged stream.
                ErrorKind::UnexpectedEof => self.ended = Some(End::Cut),
                ErrorKind::InvalidInput | ErrorKind::InvalidData => self.ended = Some(End::Corrupt),
                ErrorKind::FileTooLarge => self.ended = Some(End::Excessive),
                _ => self.ended = Some(End::Failed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives `step` bytes at a time, then `last`.
    struct Dripping {
        data: Vec<u8>,
        at: usize,
        step: usize,
        last: Option<ErrorKind>,
    }

    impl Read for Dripping {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.step.min(out.len()).min(self.data.len() - self.at);
            out[..count].copy_from_slice(&self.data[self.at..self.at + count]);
            self.at += count;
            match self.last {
                Some(kind) if count == 0 => Err(kind.into()),
                _ => Ok(count),
            }
        }
    }

    fn dripping(len: usize, step: usize, last: Option<ErrorKind>) -> Input<Dripping> {
        let data = (0..len).map(|at| at as u8).collect();
        Input::new(Dripping {
            data,
            at: 0,
            step,
            last,
        })
    }

    #[test]
    fn every_byte_once_whatever_the_reads() {
        for step in [1, 7, 1000] {
            let mut input = dripping(1000, step, None);
            let mut seen = Vec::new();
            while input.require(10) {
                seen.extend_from_slice(&input.available()[..10]);
                input.consume(10);
                assert_eq!(input.last_consumed(3, 7), &seen[seen.len() - 10..seen.len() - 7]);
            }
            assert_eq!(seen, (0..1000).map(|at| at as u8).collect::<Vec<_>>());
            assert_eq!(input.end_reason(), Some(End::Finished));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn grows_for_one_record_but_not_past_the_limit() {
        let mut input = dripping(BUFFER_LEN * 3, 100_000, None);
        assert!(input.require(BUFFER_LEN * 2));
        assert_eq!(input.buffer.len(), BUFFER_LEN * 2);
        assert!(!input.require(RECORD_LIMIT + 1));
        assert_eq!(input.end_reason(), None, "the limit is not the end of the source");
        assert!(input.require(BUFFER_LEN * 3));
    }

    #[test]
    fn skips_past_what_is_held() {
        let mut input = dripping(BUFFER_LEN * 2 + 3, 5_000, None);
        assert!(input.skip(BUFFER_LEN as u64 * 2));
        assert!(input.require(3));
        assert!(!input.skip(4_000_000_000));
        assert_eq!(input.buffer.len(), BUFFER_LEN, "skipping takes no memory");
    }

    #[test]
    fn errors_of_the_source_end_it() {
        for (kind, end) in [
            (ErrorKind::InvalidData, End::Corrupt),
            (ErrorKind::UnexpectedEof, End::Cut),
            (ErrorKind::PermissionDenied, End::Failed),
        ] {
            let mut input = dripping(5, 5, Some(kind));
            assert!(!input.require(6));
            assert_eq!(
                (input.available().len(), input.end_reason()),
                (5, Some(end)),
                "what was read before is kept"
            );
        }
    }
}
