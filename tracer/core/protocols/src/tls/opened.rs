//! Records whose content was opened with a connection's keys: where they are, and where their content is in them. What
//! they say is kept by the protocol inside.
//!
//! Both ends of a connection, and what was opened of it at each, agree on the places of its encrypted bytes. So these
//! are the places of all messages in it; the rows of this kind lead from there to places among the clear bytes, on
//! which messages' lengths count (`exchanges/src/opened.rs`).

use crate::excerpt::{Excerpt, ExcerptColumns};
use crate::head::{FrameId, Head, HeadKind};
use crate::registry;

pub const OPENED: HeadKind = HeadKind(24);

/// Bit of [`Head::flags`]: the record is part of the handshake that begins the connection.
pub const HANDSHAKE: u8 = 0x01;

/// First byte of an excerpt; no record begins with it.
const MARK: u8 = 0xff;
const EXCERPT_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedRecord {
    /// As in a record's header (RFC 8446 §5.1); in TLS 1.3 it was encrypted.
    pub content_type: u8,
    pub is_handshake: bool,
    /// Offset of the application's bytes in the record, and how many there are.
    pub content_at: u32,
    pub content_len: u32,
    /// Its length on the wire, with its header.
    pub wire_len: u32,
}

impl OpenedRecord {
    /// Keep it as an excerpt without bytes of the stream.
    pub fn keep(&self, excerpts: &mut ExcerptColumns, frame: u32, at: i32) {
        let (content_at, content_len) = (
            (self.content_at as u16).to_be_bytes(),
            (self.content_len as u16).to_be_bytes(),
        );
        let wire_len = (self.wire_len as u16).to_be_bytes();
        let flags = self.content_type << 1 | u8::from(self.is_handshake);
        let bytes = [[MARK, flags], content_at, content_len, wire_len].concat();
        let protocol = registry::place_of_head_kind(OPENED.0);
        excerpts.push_note(frame, at, protocol, &bytes, self.wire_len);
    }

    /// What [`Self::keep`] kept; none if the excerpt is another one.
    pub fn read(excerpt: &Excerpt<'_>) -> Option<Self> {
        let bytes = excerpt
            .bytes
            .first_chunk::<EXCERPT_LEN>()
            .filter(|bytes| bytes[0] == MARK)?;
        let number = |at: usize| u32::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        Some(Self {
            content_type: bytes[1] >> 1,
            is_handshake: bytes[1] & 1 != 0,
            content_at: number(2),
            content_len: number(4),
            wire_len: number(6),
        })
    }

    /// As a row of `messages`: `status` is its content's type, `frame.kind` where its content begins.
    pub fn head(&self) -> Head<'static> {
        Head {
            flags: if self.is_handshake { HANDSHAKE } else { 0 },
            status: self.content_type.into(),
            content_length: self.content_len.into(),
            len: self.wire_len,
            frame: FrameId {
                kind: self.content_at as u16,
                stream: -1,
            },
            ..Head::empty(OPENED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::REGISTRY;

    #[test]
    fn what_is_kept_is_read_back() {
        let record = OpenedRecord {
            content_type: 23,
            is_handshake: false,
            content_at: 13,
            content_len: 16_384,
            wire_len: 16_413,
        };
        let mut excerpts = ExcerptColumns::default();
        record.keep(&mut excerpts, 7, -3);
        assert_eq!(OpenedRecord::read(&excerpts.row(0)), Some(record));
        assert_eq!(REGISTRY[usize::from(excerpts.protocol[0])].name, "tls");
        assert_eq!((excerpts.payload_offset[0], excerpts.solid_len[0]), (-3, 0));
        let head = record.head();
        assert_eq!((head.len, head.content_length, head.frame.kind), (16_413, 16_384, 13));
        for bytes in [&b"\x17\x03\x03\0\x06"[..], b"\xff\x2e\0\x0d", b""] {
            assert_eq!(OpenedRecord::read(&Excerpt { bytes, stream_len: 5 }), None);
        }
    }
}
