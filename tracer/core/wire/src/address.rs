//! Addresses as small numbers, in order of first appearance.
//!
//! A capture has few addresses and many packets, so recent pairs are looked up in a small direct-mapped table; only a
//! few packets in a thousand need the hash map behind it. Memory: below 64 bytes for each distinct address.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;

/// Both addresses of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    V4 { src: u32, dst: u32 },
    V6 { src: u128, dst: u128 },
}

/// Pairs in the direct-mapped table: 256 × 16 bytes stay in the level-1 cache.
const RECENT_BITS: u32 = 8;

#[derive(Clone, Copy)]
struct RecentPair {
    src: u32,
    dst: u32,
    src_index: u32,
    dst_index: u32,
}

/// Stands for an index where there is no address.
const NONE: u32 = u32::MAX;

/// Every address seen, numbered from 0.
pub struct AddressTable {
    recent: Box<[RecentPair; 1 << RECENT_BITS]>,
    v4: HashMap<u32, u32, RandomState>,
    v6: HashMap<u128, u32, RandomState>,
    all: Vec<IpAddr>,
}

impl Default for AddressTable {
    fn default() -> Self {
        let empty = RecentPair {
            src: 0,
            dst: 0,
            src_index: NONE,
            dst_index: NONE,
        };
        let recent = Box::new([empty; 1 << RECENT_BITS]);
        Self {
            recent,
            v4: HashMap::default(),
            v6: HashMap::default(),
            all: Vec::new(),
        }
    }
}

impl AddressTable {
    /// Indexes of both addresses.
    #[inline]
    pub fn intern(&mut self, addresses: Addresses) -> (u32, u32) {
        match addresses {
            Addresses::V4 { src, dst } => self.intern_v4(src, dst),
            Addresses::V6 { src, dst } => (self.number_v6(src), self.number_v6(dst)),
        }
    }

    /// Index of one address.
    pub fn number(&mut self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(four) => self.number_v4(four.to_bits()),
            IpAddr::V6(six) => self.number_v6(six.to_bits()),
        }
    }

    /// Indexes of two IPv4 addresses.
    #[inline(always)]
    pub fn intern_v4(&mut self, src: u32, dst: u32) -> (u32, u32) {
        // Fibonacci hashing of both: the two directions of a connection fall in different slots.
        let key = (u64::from(src) << 32 | u64::from(dst)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (key >> (64 - RECENT_BITS)) as usize;
        let pair = &self.recent[slot];
        if pair.src == src && pair.dst == dst && pair.src_index != NONE {
            return (pair.src_index, pair.dst_index);
        }
        self.intern_v4_slow(src, dst, slot)
    }

    #[cold]
    #[inline(never)]
    fn intern_v4_slow(&mut self, src: u32, dst: u32, slot: usize) -> (u32, u32) {
        let (src_index, dst_index) = (self.number_v4(src), self.number_v4(dst));
        self.recent[slot] = RecentPair {
            src,
            dst,
            src_index,
            dst_index,
        };
        (src_index, dst_index)
    }

    fn number_v4(&mut self, address: u32) -> u32 {
        *self
            .v4
            .entry(address)
            .or_insert_with(|| push(&mut self.all, IpAddr::V4(Ipv4Addr::from_bits(address))))
    }

    fn number_v6(&mut self, address: u128) -> u32 {
        *self
            .v6
            .entry(address)
            .or_insert_with(|| push(&mut self.all, IpAddr::V6(Ipv6Addr::from_bits(address))))
    }

    /// Every address so far, by index.
    pub fn all(&self) -> &[IpAddr] {
        &self.all
    }

    /// The texts of all addresses, one behind the other, and where each ends; the offsets begin with 0.
    pub fn texts(&self) -> (Vec<i32>, Vec<u8>) {
        let (mut offsets, mut texts) = (Vec::with_capacity(self.all.len() + 1), Vec::new());
        offsets.push(0);
        for address in &self.all {
            match address {
                IpAddr::V4(four) => push_v4(*four, &mut texts),
                IpAddr::V6(six) => texts.extend_from_slice(six.to_string().as_bytes()),
            }
            offsets.push(texts.len() as i32);
        }
        (offsets, texts)
    }

    /// The addresses from index `from` on as text, one a line, so that they cross to Python in one piece.
    pub fn lines_from(&self, from: usize) -> String {
        let mut lines = String::new();
        for address in self.all.iter().skip(from) {
            let separator = if lines.is_empty() { "" } else { "\n" };
            let _: std::fmt::Result = write!(lines, "{separator}{address}"); // writing to a String cannot fail
        }
        lines
    }
}

/// Append the text of an address; `Display` costs six times as much.
fn push_v4(address: Ipv4Addr, text: &mut Vec<u8>) {
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            text.push(b'.');
        }
        if octet >= 100 {
            text.push(b'0' + octet / 100);
        }
        if octet >= 10 {
            text.push(b'0' + octet / 10 % 10);
        }
        text.push(b'0' + octet % 10);
    }
}

fn push(all: &mut Vec<IpAddr>, address: IpAddr) -> u32 {
    all.push(address);
    // At 64 bytes each, 2^32 of them do not fit in memory.
    (all.len() - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stable_and_in_order_of_appearance() {
        let mut table = AddressTable::default();
        assert_eq!(table.intern_v4(0, 0), (0, 0), "the all-zero address is an address");
        assert_eq!(table.intern_v4(0x0a00_0001, 0x0a00_0002), (1, 2));
        assert_eq!(table.intern_v4(0x0a00_0002, 0x0a00_0001), (2, 1));
        assert_eq!(
            table.intern(Addresses::V6 {
                src: 1,
                dst: 0xffff_0a00_0001
            }),
            (3, 4),
            "a mapped one is another"
        );
        assert_eq!(
            table.intern(Addresses::V4 {
                src: 0x0a00_0001,
                dst: 0
            }),
            (1, 0)
        );
        assert_eq!(table.lines_from(0), "0.0.0.0\n10.0.0.1\n10.0.0.2\n::1\n::ffff:10.0.0.1");
        assert_eq!(table.lines_from(3), "::1\n::ffff:10.0.0.1");
        assert_eq!(table.lines_from(5), "");
        let (offsets, texts) = table.texts();
        assert_eq!(offsets, [0, 7, 15, 23, 26, 41]);
        assert_eq!(texts, b"0.0.0.010.0.0.110.0.0.2::1::ffff:10.0.0.1");
        let known = table.all().to_vec();
        assert_eq!(known.iter().map(|&address| table.number(address)).max(), Some(4));
        assert_eq!(table.number(IpAddr::from([9, 9, 9, 9])), 5);
    }

    #[test]
    fn an_ipv4_address_has_its_usual_text() {
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::from([octet, 255 - octet, 0, octet]);
            let mut text = Vec::new();
            push_v4(address, &mut text);
            assert_eq!(text, address.to_string().as_bytes());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn more_pairs_than_the_small_table_holds() {
        let mut table = AddressTable::default();
        for round in 0..2 {
            for address in 0..5_000 {
                assert_eq!(table.intern_v4(address, 0).0, address, "round {round}");
            }
        }
        assert_eq!(table.all().len(), 5_000);
    }
}
