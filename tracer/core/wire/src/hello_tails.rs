//! Puts together the hellos of TLS that packets cut.
//!
//! A client's hello with post-quantum key shares is longer than a packet. What the decoder keeps, it keeps packet by
//! packet; so the first part of a hello waits here for the packets that continue it, and all of it is then one more
//! excerpt.
//!
//! # Limits
//! Packets count in the order of the stream; if one of a hello arrives before another, the hello is not put together
//! (the capture of the other end may show it).
//!
//! # Bounds
//! [`MAX_BEGUN`] hellos at one time, each at most [`MAX_HELLO_LEN`] long and a packet more.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use twintap_protocols::tls::hellos::{Keeping, MAX_HELLO_LEN, parts_of_records};

use crate::events::Event;
use crate::frames::Direction;

/// Where there are more, those that wait are given up.
const MAX_BEGUN: usize = 1024;
const SYN: u16 = 0x02;

/// A hello that was captured to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeHello {
    /// Offset of its first byte in the payload of the packet that completes it; below 0.
    pub at: i32,
    /// What is kept of its records.
    pub bytes: Vec<u8>,
}

/// What a packet is to hellos that began before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// It continues none.
    None,
    Middle,
    End(WholeHello),
}

/// Hellos of which the first packets were read.
#[derive(Debug, Default)]
pub struct HelloTails {
    begun: HashMap<Direction, FirstPart, RandomState>,
}

#[derive(Debug)]
struct FirstPart {
    bytes: Vec<u8>,
    next: u32,
}

impl HelloTails {
    /// Whether none waits; for the hot path.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Whether a payload begins a hello and ends before it does.
    pub fn may_begin(payload: &[u8]) -> bool {
        matches!(payload, [22, 3, ..]) && parts_of_records(payload, Keeping::Decoder).is_some_and(|hello| hello.is_cut)
    }

    /// Note a packet with a payload that [`Self::may_begin`].
    pub fn begin(&mut self, key: Direction, event: &Event, payload: &[u8]) {
        if payload.len() != event.payload_len as usize {
            return; // the rest of this packet was not captured
        }
        if self.begun.len() >= MAX_BEGUN {
            self.begun.clear();
        }
        let (bytes, next) = (payload.to_vec(), event.seq.wrapping_add(event.payload_len));
        self.begun.insert(key, FirstPart { bytes, next });
    }

    /// Read a packet that may continue a hello.
    pub fn take(&mut self, key: Direction, event: &Event, payload: &[u8]) -> Tail {
        let Some(begun) = self.begun.get_mut(&key) else {
            return Tail::None;
        };
        if event.flags & SYN != 0 {
            self.begun.remove(&key);
            return Tail::None;
        }
        if payload.is_empty() || event.seq != begun.next {
            return Tail::None;
        }
        let at = -(begun.bytes.len() as i32);
        begun.bytes.extend_from_slice(payload);
        begun.next = begun.next.wrapping_add(event.payload_len);
        let hello = parts_of_records(&begun.bytes, Keeping::Decoder);
        let is_last = payload.len() != event.payload_len as usize || begun.bytes.len() > MAX_HELLO_LEN;
        match hello {
            Some(hello) if hello.is_cut && !is_last => Tail::Middle,
            Some(hello) => {
                let bytes = hello.redact(&begun.bytes);
                self.begun.remove(&key);
                Tail::End(WholeHello { at, bytes })
            }
            None => {
                self.begun.remove(&key);
                Tail::None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(seq: u32, payload: &[u8], missing: u32) -> Event {
        Event {
            seq,
            payload_len: payload.len() as u32 + missing,
            ..Event::default()
        }
    }

    fn key(port: u16) -> Direction {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        Direction {
            src: (address, port),
            dst: (address, 443),
            interface: 0,
        }
    }

    /// A record with a client's hello that has one extension, `len` bytes long.
    fn hello(len: u16) -> Vec<u8> {
        let extensions = [
            &(len + 4).to_be_bytes()[..],
            &[0, 51],
            &len.to_be_bytes(),
            &vec![9; len.into()],
        ]
        .concat();
        let fields = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
        let message = [&[1, 0][..], &(fields.len() as u16).to_be_bytes(), &fields].concat();
        [&[22, 3, 1][..], &(message.len() as u16).to_be_bytes(), &message].concat()
    }

    #[test]
    fn a_hello_is_whole_with_its_last_packet_wherever_it_is_cut() {
        let whole = hello(1500);
        let expected = parts_of_records(&whole, Keeping::Decoder)
            .expect("a hello")
            .redact(&whole);
        for (one, two) in (60..whole.len())
            .step_by(97)
            .flat_map(|one| [(one, one + 1), (one, whole.len())])
        {
            let mut tails = HelloTails::default();
            let parts = [&whole[..one], &whole[one..two], &whole[two..]];
            assert!(HelloTails::may_begin(parts[0]));
            tails.begin(key(1), &packet(u32::MAX - 9, parts[0], 0), parts[0]);
            assert_eq!(tails.take(key(2), &packet(0, parts[1], 0), parts[1]), Tail::None);
            let mut seq = (u32::MAX - 9).wrapping_add(one as u32);
            let mut last = Tail::None;
            for part in parts[1..].iter().filter(|part| !part.is_empty()) {
                assert_eq!(
                    tails.take(key(1), &packet(seq + 1, part, 0), part),
                    Tail::None,
                    "not the next"
                );
                last = tails.take(key(1), &packet(seq, part, 0), part);
                seq = seq.wrapping_add(part.len() as u32);
            }
            let Tail::End(found) = last else { panic!("{last:?}") };
            assert_eq!(found.bytes, expected);
            assert!(found.at < 0 && tails.is_empty());
        }
        assert!(!HelloTails::may_begin(&whole) && !HelloTails::may_begin(b"GET / HTTP/1.1\r\n"));
    }

    #[test]
    fn memory_is_bounded_and_packets_that_were_cut_end_a_hello() {
        let whole = hello(1500);
        let mut tails = HelloTails::default();
        tails.begin(key(1), &packet(0, &whole[..90], 700), &whole[..90]);
        assert!(tails.is_empty(), "the snaplen was too short");
        for port in 0..3000 {
            tails.begin(key(port), &packet(0, &whole[..90], 0), &whole[..90]);
        }
        assert!(tails.begun.len() <= MAX_BEGUN);
        let last = tails.take(key(2999), &packet(90, &whole[90..100], 700), &whole[90..100]);
        assert!(matches!(last, Tail::End(_)), "as far as it was captured");
    }
}
