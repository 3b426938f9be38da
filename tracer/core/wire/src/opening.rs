//! Where the contents of opened (decrypted) records come from, and their places in the stream.
//!
//! An [`Opener`] sees all packets, and yields the records that it can open. The decoder reads a record's content as it
//! reads a payload ([`crate::packet`]). What it finds has places among the clear bytes; [`Places`] leads from there to
//! the bytes of the stream, since both ends' captures agree on those. A clear byte is where the byte is that it was
//! opened from: AEAD ciphers change no byte's place within a record.
//!
//! Bounds: [`MAX_PLACES`] records of each direction.

use std::any::Any;
use std::collections::VecDeque;

use crate::counters::Counters;
use crate::events::Event;
use crate::frames::Direction;
use crate::seq::SeqNumber;

/// Records of a direction whose places are known, at most. What begins before them is left out.
const MAX_PLACES: usize = 1024;

/// Opens records. One for each capture, in which packets come in order.
pub trait Opener: Send {
    /// Whether a packet may be of interest; for the hot path.
    fn concerns(&self, payload: &[u8]) -> bool;

    /// Read a packet, and call `found` with each record that is complete with it. Returns whether the packet's
    /// connection is being opened, so that nothing else need read its payload.
    fn take(
        &mut self,
        direction: Direction,
        event: &Event,
        payload: &[u8],
        counters: &mut Counters,
        found: &mut dyn FnMut(RecordFound<'_>, &mut Counters),
    ) -> bool;
    /// A copy, which opens on from here by itself.
    fn boxed_clone(&self) -> Box<dyn Opener>;
    /// Open what comes with the keys of a newer opener of the same kind.
    fn take_keys(&mut self, newer: &dyn Opener);
    /// This opener, for `take_keys`.
    fn as_any(&self) -> &dyn Any;
}

impl Clone for Box<dyn Opener> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// What an opener finds in a direction, in the order of its bytes.
pub enum RecordFound<'a> {
    Record(Record<'a>),
    /// A record that could not be opened, from its header on.
    Sealed {
        at: i32,
        bytes: &'a [u8],
    },
    /// Records are missing, or could not be opened, before the next one.
    Missed,
}

/// An opened record.
pub struct Record<'a> {
    /// Offset of its first byte in the packet's payload; below 0 if that was in an earlier packet.
    pub at: i32,
    /// Its length on the wire, with its header.
    pub wire_len: u32,
    /// As sent, as far as it is not encrypted: its header, or all of it.
    pub shown: &'a [u8],
    /// Type of its content (RFC 8446 §5.1), which in TLS 1.3 is encrypted.
    pub content_type: u8,
    /// It is part of the handshake that begins the connection.
    pub is_handshake: bool,
    /// The application's bytes; empty if it holds none.
    pub content: &'a [u8],
    /// Offset of the content in the record.
    pub content_at: u32,
    /// Sequence number of the content's first byte among the direction's clear bytes.
    pub clear_seq: u32,
    pub places: &'a Places,
}

/// Sequence numbers of a direction's clear bytes, and of the bytes on the wire from which they were opened.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Of the first byte of each record's content: among clear bytes, and on the wire. Ascending.
    starts: VecDeque<(u32, u32)>,
}

impl Places {
    /// Add the content of the next record.
    pub fn push(&mut self, clear_seq: u32, wire_seq: u32) {
        if self.starts.len() == MAX_PLACES {
            self.starts.pop_front();
        }
        self.starts.push_back((clear_seq, wire_seq));
    }

    /// Sequence number on the wire of a clear byte; none if its record is too long ago.
    pub fn wire_seq(&self, clear_seq: u32) -> Option<u32> {
        let is_up_to = |(start, _): &(u32, u32)| !SeqNumber(clear_seq).is_before(SeqNumber(*start));
        let place = self.starts.partition_point(is_up_to).checked_sub(1)?;
        let (start, wire_seq) = self.starts[place];
        Some(wire_seq.wrapping_add(clear_seq.wrapping_sub(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_byte_is_where_its_record_is() {
        let mut places = Places::default();
        places.push(u32::MAX - 9, 105);
        places.push(10, 305);
        places.push(30, 405);
        let cases = [
            (u32::MAX - 9, 105),
            (9, 124),
            (10, 305),
            (29, 324),
            (30, 405),
            (31, 406),
        ];
        for (clear, wire) in cases {
            assert_eq!(places.wire_seq(clear), Some(wire), "{clear}");
        }
        assert_eq!(places.wire_seq(u32::MAX - 10), None);
        (0..MAX_PLACES as u32).for_each(|number| places.push(100 + number, 1_000 + 2 * number));
        assert_eq!((places.wire_seq(31), places.wire_seq(101)), (None, Some(1_002)));
    }
}
