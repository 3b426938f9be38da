//! Reads Ceph's encoding of values: little-endian numbers, strings with their length, and structures with their version
//! and length, to which later versions append.
//!
//! Source: Ceph's documentation, "Network encoding"; `include/encoding.h`.

use std::ops::Range;

/// Bytes that are read one value after the other. All methods return `None` where the bytes end before.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    all: &'a [u8],
    /// Offset of the next value.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// Where the next `len` bytes stand; they are passed.
    pub fn skip(&mut self, len: usize) -> Option<Range<usize>> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.all.len())?;
        let skipped = self.at..end;
        self.at = end;
        Some(skipped)
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let place = self.skip(len)?;
        Some(&self.all[place])
    }

    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.bytes(LEN)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Where a string stands, whose length in 32 bits precedes it.
    pub fn string(&mut self) -> Option<Range<usize>> {
        let len = self.u32()?;
        self.skip(len as usize)
    }

    /// The text of such a string.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let place = self.string()?;
        Some(&self.all[place])
    }

    /// A structure with its version, which is passed; if it is cut, what there is of it. Versions count from 1: what an
    /// agent overwrote with zeros is none.
    pub fn structure(&mut self) -> Option<Self> {
        self.u8().filter(|&version| version > 0)?;
        self.skip(1)?;
        let len = self.u32()? as usize;
        let begun = self.at;
        self.at = begun.saturating_add(len).min(self.all.len());
        Some(Self {
            all: &self.all[..self.at],
            at: begun,
        })
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        &self.all[self.at..]
    }

    /// The bytes at a place that was passed.
    pub fn text_at(&self, place: &Range<usize>) -> &'a [u8] {
        &self.all[place.clone()]
    }
}
