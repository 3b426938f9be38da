//! The numbers of a file's addresses among those of all captures, and the key of a connection's 4-tuple.
//!
//! A key is the same in every run and on every machine, whatever the numbering. Multiplying by [`HASH_MULTIPLIER`]
//! mixes it into the high bits, which number the partition (Knuth, TAOCP 3, §6.4).

use std::net::IpAddr;

use twintap_wire::address::AddressTable;
use twintap_wire::events::EventColumns;

/// 2^64 over the golden ratio.
pub const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// What the numbers of one capture file stand for: of each address, its number in all captures and its key.
#[derive(Clone, Debug, Default)]
pub struct FileAddresses {
    numbers: Vec<u32>,
    keys: Vec<u64>,
}

impl FileAddresses {
    /// How many are known.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether none is known yet.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Take in the file's next addresses.
    pub fn extend(&mut self, new: &[IpAddr], addresses: &mut AddressTable) {
        self.numbers
            .extend(new.iter().map(|&address| addresses.number(address)));
        self.keys.extend(new.iter().map(address_key));
    }

    /// The number in all captures of the file's address `index`.
    pub fn number(&self, index: u32) -> u32 {
        self.numbers[index as usize]
    }

    /// The key of row `at`.
    pub fn key_of_row(&self, events: &EventColumns, at: usize) -> u64 {
        let end = |address: u32, port| (self.keys[address as usize], port);
        connection_key(
            end(events.src_addr[at], events.src_port[at]),
            end(events.dst_addr[at], events.dst_port[at]),
        )
    }
}

/// 64 bits of an address.
pub fn address_key(address: &IpAddr) -> u64 {
    let bits = match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits() ^ (1 << 64), // a mapped IPv4 address is another one
    };
    let mixed = (bits as u64).wrapping_mul(HASH_MULTIPLIER) ^ ((bits >> 64) as u64).rotate_left(32);
    (mixed ^ mixed >> 29).wrapping_mul(HASH_MULTIPLIER)
}

/// 64 bits of a 4-tuple, the same for both directions; an end is its address's key and its port.
pub fn connection_key(src: (u64, u16), dst: (u64, u16)) -> u64 {
    let end = |(key, port): (u64, u16)| (key ^ u64::from(port)).wrapping_mul(HASH_MULTIPLIER);
    end(src).wrapping_add(end(dst)).wrapping_mul(HASH_MULTIPLIER)
}

/// The partition of a key, of 2^`bits`.
pub fn partition_of(key: u64, bits: u32) -> usize {
    (key >> 1 >> (63 - bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(bits: u32) -> IpAddr {
        IpAddr::from(bits.to_be_bytes())
    }

    #[test]
    fn both_directions_have_one_key_and_each_part_of_it_counts() {
        let [a, b] = [1, 2].map(|bits| address_key(&v4(bits)));
        assert_eq!(connection_key((a, 7), (b, 9)), connection_key((b, 9), (a, 7)));
        assert_ne!(connection_key((a, 7), (b, 9)), connection_key((a, 9), (b, 7)));
        assert_ne!(connection_key((a, 7), (b, 9)), connection_key((a, 8), (b, 9)));
        assert_ne!(address_key(&v4(5)), address_key(&IpAddr::from(5_u128.to_be_bytes())));
    }

    #[test]
    fn ports_that_count_up_fill_all_partitions_alike() {
        let ends = [1, 2].map(|bits| address_key(&v4(0x0a00_0000 + bits)));
        let mut counts = [0; 32];
        (0..3_200).for_each(|port| counts[partition_of(connection_key((ends[0], port), (ends[1], 80)), 5)] += 1);
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
        assert_eq!(partition_of(u64::MAX, 0), 0);
    }
}
