//! Walks through the elements of a BSON document, of which the end may not have been captured.
//!
//! ```text
//! length (4) │ type │ name, 0 │ value │ type │ name, 0 │ value │ … │ 0
//! ```
//! The type says how long a value is, so values are passed without being read. Where an agent has overwritten elements
//! with zeros, the walk goes on behind these: no type is 0, which only ends a document.
//!
//! Source: BSON specification 1.1 (bsonspec.org).

use std::ops::Range;

/// Shortest document: its length, and the 0 that ends it.
pub const SHORTEST: usize = 5;
const LENGTH_LEN: usize = 4;

/// Types of elements.
pub mod kind {
    pub const DOUBLE: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const DOCUMENT: u8 = 0x03;
    pub const ARRAY: u8 = 0x04;
    pub const BINARY: u8 = 0x05;
    pub const UNDEFINED: u8 = 0x06;
    pub const OBJECT_ID: u8 = 0x07;
    pub const BOOLEAN: u8 = 0x08;
    pub const DATE: u8 = 0x09;
    pub const NULL: u8 = 0x0a;
    pub const REGEX: u8 = 0x0b;
    pub const POINTER: u8 = 0x0c;
    pub const CODE: u8 = 0x0d;
    pub const SYMBOL: u8 = 0x0e;
    pub const SCOPED_CODE: u8 = 0x0f;
    pub const INT32: u8 = 0x10;
    pub const TIMESTAMP: u8 = 0x11;
    pub const INT64: u8 = 0x12;
    pub const DECIMAL: u8 = 0x13;
    pub const MAX_KEY: u8 = 0x7f;
    pub const MIN_KEY: u8 = 0xff;
}

/// An element of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub kind: u8,
    pub name: &'a [u8],
    /// Where its type stands.
    pub at: usize,
    /// Where its value stands; it may end behind the captured bytes.
    pub value: Range<usize>,
}

impl Element<'_> {
    /// Where its type and its name stand, and the length of its value if that begins with one.
    pub fn head(&self) -> Range<usize> {
        let length_len = if has_length(self.kind) { LENGTH_LEN } else { 0 };
        self.at..self.value.start + length_len
    }

    pub fn is_document(&self) -> bool {
        matches!(self.kind, kind::DOCUMENT | kind::ARRAY)
    }

    /// Its value, if that is a number, or a boolean as 0 or 1.
    pub fn number(&self, bytes: &[u8]) -> Option<i64> {
        let value = bytes.get(self.value.clone())?;
        match self.kind {
            kind::DOUBLE => Some(f64::from_le_bytes(*value.first_chunk()?) as i64),
            kind::INT32 => Some(i32::from_le_bytes(*value.first_chunk()?).into()),
            kind::INT64 => Some(i64::from_le_bytes(*value.first_chunk()?)),
            kind::BOOLEAN => value.first().map(|&byte| byte.into()),
            _ => None,
        }
    }

    /// Where its text stands, if it is one, of at least one byte.
    pub fn text(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let text = self.value.start + LENGTH_LEN..self.value.end.checked_sub(1)?;
        let is_text = self.kind == kind::STRING && text.start < text.end && bytes.get(text.end) == Some(&0);
        is_text.then_some(text)
    }
}

/// The elements of a document or an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    bytes: &'a [u8],
    /// Where the next element begins.
    at: usize,
    /// Where the 0 stands that ends the document.
    end: usize,
}

impl<'a> Elements<'a> {
    /// The elements of the document that begins at `start`, and must end at `limit` or before. `None` if none does.
    pub fn of(bytes: &'a [u8], start: usize, limit: usize) -> Option<Self> {
        let len = read_u32(bytes, start)? as usize;
        let end = start.checked_add(len).filter(|&end| len >= SHORTEST && end <= limit)?;
        Some(Self {
            bytes,
            at: start + LENGTH_LEN,
            end: end - 1,
        })
    }

    /// The elements of a value that is a document or an array.
    pub fn of_value(bytes: &'a [u8], element: &Element<'_>) -> Option<Self> {
        Self::of(bytes, element.value.start, element.value.end).filter(|_| element.is_document())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let rest = self.bytes.get(self.at..self.end.min(self.bytes.len()))?;
        let zeros = rest.iter().take_while(|&&byte| byte == 0).count();
        let at = self.at + zeros;
        let (&kind, named) = rest[zeros..].split_first()?;
        let name = &named[..named.iter().position(|&byte| byte == 0)?];
        let start = at + 1 + name.len() + 1;
        let end = start.checked_add(value_len(self.bytes, kind, start)?)?;
        self.at = end;
        (end <= self.end).then_some(Element {
            kind,
            name,
            at,
            value: start..end,
        })
    }
}

/// Whether values of this type begin with their length.
fn has_length(kind: u8) -> bool {
    matches!(
        kind,
        kind::STRING..=kind::BINARY | kind::POINTER..=kind::SCOPED_CODE
    )
}

/// Length of a value of this type that begins at `start`; `None` if there is none, or the captured bytes do not show it.
fn value_len(bytes: &[u8], kind: u8, start: usize) -> Option<usize> {
    let length = |own: usize| (read_u32(bytes, start)? as usize).checked_add(own);
    match kind {
        kind::DOUBLE | kind::DATE | kind::TIMESTAMP | kind::INT64 => Some(8),
        kind::STRING | kind::CODE | kind::SYMBOL => length(LENGTH_LEN),
        kind::DOCUMENT | kind::ARRAY | kind::SCOPED_CODE => length(0).filter(|&len| len >= SHORTEST),
        kind::BINARY => length(LENGTH_LEN + 1),
        kind::UNDEFINED | kind::NULL | kind::MAX_KEY | kind::MIN_KEY => Some(0),
        kind::OBJECT_ID => Some(12),
        kind::BOOLEAN => Some(1),
        kind::REGEX => {
            let rest = bytes.get(start..)?;
            let mut ends = (0..rest.len()).filter(|&at| rest[at] == 0);
            ends.nth(1).map(|end| end + 1)
        }
        kind::POINTER => length(LENGTH_LEN + 12),
        kind::INT32 => Some(4),
        kind::DECIMAL => Some(16),
        _ => None,
    }
}

/// Whether a document's first element may begin so: with a type, and a name that a command or an answer has. As much as
/// there is of it is compared; what was overwritten with zeros may be any.
pub fn may_be_first(start: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    match start {
        [] | [0, ..] => true,
        [kind::DOUBLE..=kind::DECIMAL | kind::MAX_KEY | kind::MIN_KEY, name @ ..] => name.first().is_none_or(is_name),
        _ => false,
    }
}

/// The number of 32 bits at a place.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_le_bytes(*four))
}
