//! For a sample of a host's packets, the interfaces at which each was seen: on a bridge, a router or `-i any` a packet
//! passes several. The sample is chosen by a hash of what packets carry, so the copies of a chosen packet on another
//! interface, or in another file, are chosen too.
//!
//! Cost: a multiplication for each packet, and a look-up for those chosen. Memory: `MAX_PACKETS` for each host; beyond
//! that, half of the sample is dropped, again by the hash.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use twintap_wire::events::EventColumns;

/// Packets sampled for each host, and interfaces noted for each of them.
const MAX_PACKETS: usize = 1 << 13;
const MAX_SIGHTS_PER_PACKET: usize = 8;
/// A host forwards a packet within this time after its first sight; an equal packet later is a different one.
const MAX_PASSAGE_NS: i64 = 20_000_000;

/// A packet at an interface of the host: stamp, interface, and the direction's code.
pub type Sight = (i64, u16, u8);

/// Source, destination, payload (bytes), and sights of a packet.
pub type PacketSights = (u32, u32, u32, Vec<Sight>);

/// What identifies a packet, whatever link it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    ends: (u32, u32, u16, u16),
    numbers: (u32, u32),
    stamps: (u32, u32),
    rest: (u32, u16, i32),
    /// Window, and the SACK blocks.
    answer: (u16, u32),
}

/// Sights of some packets of one host.
#[derive(Debug, Default)]
pub struct Sights {
    /// The first sight of each packet, and the later ones, which most packets lack.
    seen: FxHashMap<Identity, (Sight, Vec<Sight>)>,
    /// One packet of 2^`level` is chosen.
    level: u32,
}

/// A hash whose high bits are evenly distributed (Knuth, TAOCP 3, §6.4): packets are chosen by how many of these are
/// zero.
fn rarity(seq: u32, ack: u32) -> u32 {
    let numbers = u64::from(seq) << 32 | u64::from(ack);
    numbers.wrapping_mul(0x9E37_79B9_7F4A_7C15).leading_zeros()
}

impl Sights {
    /// Note the packets of a batch; `number` and `place` as of [`crate::notes::Notes::add`].
    pub fn add(&mut self, events: &EventColumns, number: impl Fn(u32) -> u32, place: impl Fn(u16) -> u16) {
        for (row, (&seq, &ack)) in events.seq.iter().zip(&events.ack).enumerate() {
            if rarity(seq, ack) < self.level {
                continue;
            }
            let event = events.row(row);
            let identity = Identity {
                ends: (
                    number(event.src_addr),
                    number(event.dst_addr),
                    event.src_port,
                    event.dst_port,
                ),
                numbers: (seq, ack),
                stamps: (event.tsval, event.tsecr),
                rest: (event.payload_len, event.flags, event.ip_id),
                answer: (event.window, event.sack_hash),
            };
            let sight = (event.host_ns, place(event.interface), event.direction);
            match self.seen.entry(identity) {
                Entry::Vacant(entry) => {
                    entry.insert((sight, Vec::new()));
                }
                Entry::Occupied(entry) => {
                    let later = &mut entry.into_mut().1;
                    if later.len() + 1 < MAX_SIGHTS_PER_PACKET {
                        later.push(sight);
                    }
                }
            }
            while self.seen.len() > MAX_PACKETS && self.level < u64::BITS {
                self.level += 1;
                let level = self.level;
                self.seen
                    .retain(|identity, _| rarity(identity.numbers.0, identity.numbers.1) >= level);
            }
        }
    }

    /// Packets that more than one interface saw: source, destination, and the sights of one passage by time.
    pub fn passages(&self) -> Vec<(u32, u32, Vec<Sight>)> {
        let passage = |(identity, (first, later)): (&Identity, &(Sight, Vec<Sight>))| {
            if later.is_empty() {
                return None;
            }
            let mut sights = by_time(*first, later);
            let first = sights.first()?.0;
            sights.retain(|sight| sight.0 - first <= MAX_PASSAGE_NS);
            let several = sights.iter().any(|sight| sight.1 != sights[0].1);
            several.then_some((identity.ends.0, identity.ends.1, sights))
        };
        let mut found: Vec<_> = self.seen.iter().filter_map(passage).collect();
        found.sort();
        found
    }
}

impl Sights {
    /// Every sampled packet with all of its sights by time, however far apart; none if no packet was seen twice, as in
    /// most captures: then there is nothing to compare.
    pub fn all(&self) -> Vec<PacketSights> {
        if self.seen.values().all(|(_, later)| later.is_empty()) {
            return Vec::new();
        }
        let packet = |(identity, (first, later)): (&Identity, &(Sight, Vec<Sight>))| {
            let (src, dst) = (identity.ends.0, identity.ends.1);
            (src, dst, identity.rest.0, by_time(*first, later))
        };
        let mut found: Vec<_> = self.seen.iter().map(packet).collect();
        found.sort();
        found
    }
}

/// All sights of a packet by time; those of equal stamps in the file's order.
fn by_time(first: Sight, later: &[Sight]) -> Vec<Sight> {
    let mut sights = [&[first], later].concat();
    sights.sort_by_key(|sight| sight.0);
    sights
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_wire::events::Event;

    #[test]
    fn copies_of_a_packet_are_one_passage_in_the_order_of_time() {
        let mut sights = Sights::default();
        let event = |interface, host_ns, src_addr| Event {
            interface,
            host_ns,
            src_addr,
            dst_addr: 9,
            ..Event::default()
        };
        let mut events = EventColumns::default();
        events.extend(&[
            event(1, 500, 4),
            event(0, 100, 4),
            event(0, 100, 5),
            event(0, MAX_PASSAGE_NS + 101, 4),
        ]);
        sights.add(&events, |address| address, |interface| interface + 10);
        assert_eq!(sights.passages(), [(4, 9, vec![(100, 10, 0), (500, 11, 0)])]);
        let lens: Vec<usize> = sights.all().iter().map(|(.., sights)| sights.len()).collect();
        assert_eq!(lens, [3, 1]);
    }

    #[test]
    fn the_first_sights_of_a_packet_are_kept() {
        let mut sights = Sights::default();
        let mut events = EventColumns::default();
        let sight = |host_ns| Event {
            host_ns,
            ..Event::default()
        };
        events.extend(&(0..10).map(sight).collect::<Vec<_>>());
        sights.add(&events, |address| address, |interface| interface);
        let stamps: Vec<i64> = sights.all()[0].3.iter().map(|sight| sight.0).collect();
        assert_eq!(stamps, (0..MAX_SIGHTS_PER_PACKET as i64).collect::<Vec<_>>());
    }

    #[test]
    fn packets_that_were_all_seen_once_are_not_compared() {
        let mut sights = Sights::default();
        let mut events = EventColumns::default();
        events.extend(&[1, 2, 3].map(|seq| Event {
            seq,
            ..Event::default()
        }));
        sights.add(&events, |address| address, |interface| interface);
        assert_eq!(sights.all(), []);
    }
}
