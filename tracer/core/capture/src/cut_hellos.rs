//! Hellos of TLS that packets cut. A client's hello with post-quantum key shares is longer than a packet, and which bytes of
//! the packet that continues it may be kept shows only behind those before it.
//!
//! ```text
//! packet 1: | record, hello: versions, suites, SNI, key sh…      begins a hello: kept to its end, secrets overwritten
//! packet 2: | …are | ALPN | ticket |                             continues it: ALPN is kept, all else is not
//! ```
//! 1. A packet that begins a hello and ends before it does is remembered, with the sequence number of the byte after it.
//! 2. The packet that continues there is judged as a part of the records from the hello's first byte on.
//! 3. A repeat of a packet, or one out of order, continues nothing: it is judged by itself.
//!
//! # Bounds
//! [`MAX_BEGUN`] hellos at one time, each at most [`MAX_HELLO_LEN`] long and a packet more.

use std::collections::HashMap;
use std::ops::Range;

use twintap_protocols::tls::hellos::{Keeping, MAX_HELLO_LEN, parts_of_records};
use twintap_protocols::tls::payload_policy::kept_parts;

use crate::connections::Place;

/// Where there are more, those that wait are given up.
const MAX_BEGUN: usize = 128;

/// Hellos of which the first packets were seen, by their directions.
#[derive(Debug, Default)]
pub struct CutHellos {
    begun: HashMap<u64, FirstPart, foldhash::fast::RandomState>,
}

#[derive(Debug)]
struct FirstPart {
    bytes: Vec<u8>,
    next: u32,
}

/// What is kept of a packet that continues a hello: parts of its payload, ascending, and how much of it is captured.
#[derive(Debug, PartialEq, Eq)]
pub struct Continuation {
    pub parts: Vec<Range<usize>>,
    pub captured_len: usize,
}

impl CutHellos {
    /// Whether none waits; for the hot path.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Whether a payload begins a hello and ends before it does. Arguments: `wire_len`, of the payload before any of it was
    /// cut off by the capture.
    #[inline]
    pub fn is_cut(payload: &[u8], wire_len: u32) -> bool {
        matches!(payload, [22, 3, ..])
            && payload.len() == wire_len as usize
            && parts_of_records(payload, Keeping::Agent).is_some_and(|hello| hello.is_cut)
    }

    /// Remember a packet that [`Self::is_cut`].
    pub fn begin(&mut self, key: u64, place: Place, payload: &[u8]) {
        if self.begun.len() >= MAX_BEGUN {
            self.begun.clear();
        }
        let (bytes, next) = (payload.to_vec(), place.seq.wrapping_add(place.len));
        self.begun.insert(key, FirstPart { bytes, next });
    }

    /// Forget the hello of a direction.
    pub fn forget(&mut self, key: u64) {
        self.begun.remove(&key);
    }

    /// What is kept of a packet that continues a hello; `None` if it does not.
    pub fn continue_with(&mut self, key: u64, place: Place, payload: &[u8]) -> Option<Continuation> {
        let begun = self.begun.get_mut(&key)?;
        if payload.is_empty() || place.seq != begun.next {
            return None;
        }
        let before = begun.bytes.len();
        begun.bytes.extend_from_slice(payload);
        begun.next = begun.next.wrapping_add(place.len);
        let is_last = payload.len() != place.len as usize || begun.bytes.len() > MAX_HELLO_LEN;
        let goes_on = parts_of_records(&begun.bytes, Keeping::Agent).is_some_and(|hello| hello.is_cut);
        let shown = kept_parts(&begun.bytes, begun.bytes.len()).filter(|part| part.end > before);
        let parts: Vec<_> = shown
            .map(|part| part.start.max(before) - before..part.end - before)
            .collect();
        let captured_len = match goes_on && !is_last {
            true => payload.len(),
            false => {
                self.begun.remove(&key);
                parts.last().map_or(0, |part| part.end)
            }
        };
        Some(Continuation { parts, captured_len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: u8 = 0x5a;

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        let len = body.len() as u16;
        [&kind.to_be_bytes()[..], &len.to_be_bytes(), body].concat()
    }

    /// A client's hello: a long key share before its names, and a ticket behind them.
    fn records() -> Vec<u8> {
        let extensions = [
            extension(51, &[SECRET; 600]),
            extension(0, b"\0\x06\0\0\x03a.b"),
            extension(16, b"\0\x03\x02h2"),
            extension(41, &[SECRET; 99]),
        ]
        .concat();
        let fields = [
            &[3, 3][..],
            &[SECRET; 32],
            &[0, 0, 2, 0x13, 1, 1, 0],
            &(extensions.len() as u16).to_be_bytes(),
            &extensions,
        ]
        .concat();
        let message = [&[1, 0][..], &(fields.len() as u16).to_be_bytes(), &fields].concat();
        let record = |kind: u8, body: &[u8]| [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat();
        [record(22, &message), record(23, &[SECRET; 20])].concat()
    }

    fn place(at: usize, part: &[u8]) -> Place {
        Place {
            seq: (at as u32).wrapping_sub(300), // it wraps within the hello
            len: part.len() as u32,
        }
    }

    /// What is left of the packets behind the first, with zeros in place of what was not captured.
    fn left_of(parts: &[Range<usize>], all: &[u8], hellos: &mut CutHellos) -> Vec<u8> {
        let mut left = Vec::new();
        for part in parts {
            let bytes = &all[part.clone()];
            let kept = hellos.continue_with(1, place(part.start, bytes), bytes);
            let mut shown = bytes.to_vec();
            twintap_protocols::parts::blank_beside(&mut shown, kept.map_or_else(Vec::new, |kept| kept.parts));
            left.extend(shown);
        }
        left
    }

    #[test]
    fn wherever_packets_cut_a_hello_the_same_is_kept_of_it() {
        let all = records();
        let kept: Vec<_> = kept_parts(&all, all.len()).collect();
        let mut whole = all.clone();
        twintap_protocols::parts::blank_beside(&mut whole, kept);
        assert!(!whole.contains(&SECRET));
        let hello_len = all.len() - 25;
        for first in 60..hello_len {
            for second in [first + 1, first + 7, hello_len - 1] {
                let mut hellos = CutHellos::default();
                assert!(CutHellos::is_cut(&all[..first], first as u32));
                hellos.begin(1, place(0, &all[..first]), &all[..first]);
                let second = second.clamp(first, hello_len - 1);
                let left = left_of(&[first..second, second..all.len()], &all, &mut hellos);
                assert!(left == whole[first..], "{first} {second}");
                assert!(hellos.is_empty());
            }
        }
    }

    #[test]
    fn what_does_not_continue_a_hello_is_none_of_it() {
        let all = records();
        let (first, rest) = all.split_at(200);
        let mut hellos = CutHellos::default();
        hellos.begin(1, place(0, first), first);
        for (key, at, bytes) in [(2, 200, rest), (1, 201, rest), (1, 0, first), (1, 200, &[][..])] {
            assert_eq!(hellos.continue_with(key, place(at, bytes), bytes), None);
        }
        let middle = hellos.continue_with(1, place(200, &rest[..50]), &rest[..50]);
        assert_eq!(
            middle.map(|kept| kept.captured_len),
            Some(50),
            "the decoder needs all of it"
        );
        hellos.forget(1);
        assert!(hellos.is_empty());
        let cut_by_the_capture = CutHellos::is_cut(first, 201);
        assert!(!cut_by_the_capture && !CutHellos::is_cut(&all, all.len() as u32));
    }

    #[test]
    fn memory_is_bounded() {
        let mut hellos = CutHellos::default();
        let first = &records()[..200];
        for key in 0..3 * MAX_BEGUN as u64 {
            hellos.begin(key, place(0, first), first);
            assert!(hellos.begun.len() <= MAX_BEGUN);
        }
        let last = 3 * MAX_BEGUN as u64 - 1;
        let mut at = 200;
        while hellos
            .continue_with(last, place(at, &[SECRET; 1000]), &[SECRET; 1000])
            .is_some()
        {
            at += 1000;
            assert!(at <= MAX_HELLO_LEN + 2000);
        }
    }
}
