//! Collects figures about a host from its packets: their number, times, addresses and directions.

use rustc_hash::{FxHashMap, FxHashSet};
use twintap_wire::events::EventColumns;
use twintap_wire::packet::Direction;

use crate::activity::Activity;
use crate::answers::Answers;
use crate::sights::Sights;

/// Pairs of addresses from which a host's own addresses are inferred: bounds memory where sources are forged.
pub const MAX_PAIRS: usize = 1 << 16;
/// Servers that are noted, at most.
pub const MAX_SERVERS: usize = 1 << 16;
const SYN_ACK: u16 = 0x12;
/// Bits of the hash by which recent pairs are counted in an array before the map: a capture has few pairs, and most
/// packets belong to recent ones.
const RECENT_BITS: u32 = 8;

/// Source, destination, the direction's code, and the interface.
type Pair = (u32, u32, u8, u16);

/// Figures of one host. An address is its number in all captures.
#[derive(Debug, Default)]
pub struct Notes {
    pub events_count: u64,
    /// Packets whose direction the capture does not give.
    pub unknown_count: u64,
    /// Smallest and largest stamp; `None` without packets.
    pub span_ns: Option<(i64, i64)>,
    /// Packets by source and destination, while there are few pairs.
    pub pairs: FxHashMap<(u32, u32), u64>,
    /// Addresses that the host sent from or received at, and those at the other end. An address in both belongs to
    /// packets that the host only forwarded.
    pub own: FxHashSet<u32>,
    pub others: FxHashSet<u32>,
    pub answers: Answers,
    /// Addresses and ports that answered a SYN.
    pub servers: FxHashSet<(u32, u16)>,
    /// When which of the host's interfaces captured, and what passed them.
    pub activity: Activity,
    pub sights: Sights,
}

impl Notes {
    /// Note the packets of a batch. `number` converts an address of its file, `place` an interface; `frames_before` is
    /// the number of packets in the host's earlier files.
    pub fn add(
        &mut self,
        events: &EventColumns,
        frames_before: u32,
        number: impl Fn(u32) -> u32,
        place: impl Fn(u16) -> u16,
    ) {
        let (Some(&first), Some(&last)) = (events.host_ns.iter().min(), events.host_ns.iter().max()) else {
            return;
        };
        let known = self.span_ns.unwrap_or((first, last));
        self.span_ns = Some((known.0.min(first), known.1.max(last)));
        self.events_count += events.len() as u64;
        self.answers.add(events, &number);
        self.note_servers(events, &number);
        self.activity.add(events, frames_before, (first, last), &place);
        self.sights.add(events, &number, &place);
        let counts_pairs = self.pairs.len() < MAX_PAIRS;
        if !counts_pairs
            && events
                .direction
                .iter()
                .all(|&direction| direction == Direction::Unknown as u8)
        {
            self.unknown_count += events.len() as u64;
            return; // forged addresses: counting their pairs would cost most, and nothing is noted of them
        }
        for ((src, dst, direction, interface), count) in tally(events) {
            let (src, dst) = (number(src), number(dst));
            if counts_pairs {
                *self.pairs.entry((src, dst)).or_default() += count;
                *self.activity.passed.entry((src, dst, place(interface))).or_default() += count;
            }
            if direction == Direction::Send as u8 {
                self.own.insert(src);
                self.others.insert(dst);
            } else if direction == Direction::Receive as u8 {
                self.own.insert(dst);
                self.others.insert(src);
            } else {
                self.unknown_count += count;
            }
        }
    }
}

impl Notes {
    fn note_servers(&mut self, events: &EventColumns, number: impl Fn(u32) -> u32) {
        for (row, flags) in events.flags.iter().enumerate() {
            if flags & SYN_ACK == SYN_ACK && self.servers.len() < MAX_SERVERS {
                self.servers
                    .insert((number(events.src_addr[row]), events.src_port[row]));
            }
        }
    }
}

/// How many packets there are of each pair and direction.
fn tally(events: &EventColumns) -> FxHashMap<Pair, u64> {
    let mut counts: FxHashMap<Pair, u64> = FxHashMap::default();
    let mut recent: [(Pair, u64); 1 << RECENT_BITS] = [((0, 0, 0, 0), 0); 1 << RECENT_BITS];
    let ends = events.src_addr.iter().zip(&events.dst_addr);
    for (((&src, &dst), &direction), &interface) in ends.zip(&events.direction).zip(&events.interface) {
        let pair = (src, dst, direction, interface);
        let of_row = u32::from(direction) ^ u32::from(interface) << 2;
        let mixed = (src.wrapping_mul(31) ^ dst.rotate_left(16) ^ of_row).wrapping_mul(0x9E37_79B9);
        let slot = &mut recent[(mixed >> (32 - RECENT_BITS)) as usize];
        if slot.0 != pair {
            *counts.entry(slot.0).or_default() += slot.1;
            *slot = (pair, 0);
        }
        slot.1 += 1;
    }
    for (pair, count) in recent {
        *counts.entry(pair).or_default() += count;
    }
    counts.retain(|_, count| *count > 0);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_wire::events::Event;

    fn batch(packets: &[(u32, u32, u8, i64)]) -> EventColumns {
        let rows: Vec<Event> = packets
            .iter()
            .map(|&(src_addr, dst_addr, direction, host_ns)| Event {
                src_addr,
                dst_addr,
                direction,
                host_ns,
                ..Event::default()
            })
            .collect();
        let mut events = EventColumns::default();
        events.extend(&rows);
        events
    }

    #[test]
    fn who_answers_a_syn_is_a_server() {
        let packet = |flags, src_addr, src_port| Event {
            flags,
            src_addr,
            src_port,
            ..Event::default()
        };
        let mut events = EventColumns::default();
        events.extend(&[
            packet(0x02, 1, 4000),
            packet(0x52, 2, 80),
            packet(0x10, 3, 80),
            packet(0x14, 4, 81),
        ]);
        let mut notes = Notes::default();
        notes.add(&events, 0, |address| address + 10, |interface| interface);
        assert_eq!(notes.servers, FxHashSet::from_iter([(12, 80)]));
    }

    #[test]
    fn packets_are_counted_by_pair_and_own_addresses_follow_from_directions() {
        let mut notes = Notes::default();
        let packets = batch(&[(0, 1, 2, 50), (1, 0, 1, 70), (0, 1, 2, 60)]);
        notes.add(&packets, 0, |address| address + 10, |interface| interface + 3);
        notes.add(
            &batch(&[(2, 3, 0, 40)]),
            3,
            |address| address + 10,
            |interface| interface,
        );
        notes.add(&batch(&[]), 4, |address| address, |interface| interface);
        assert_eq!((notes.events_count, notes.unknown_count), (4, 1));
        assert_eq!(notes.span_ns, Some((40, 70)));
        assert_eq!(notes.own, FxHashSet::from_iter([10]));
        assert_eq!(notes.others, FxHashSet::from_iter([11]));
        let pairs = [((10, 11), 2), ((11, 10), 1), ((12, 13), 1)];
        assert_eq!(notes.pairs, FxHashMap::from_iter(pairs));
        let passed = [((10, 11, 3), 2), ((11, 10, 3), 1), ((12, 13, 0), 1)];
        assert_eq!(notes.activity.passed, FxHashMap::from_iter(passed));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn where_pairs_are_too_many_only_packets_without_a_direction_are_counted() {
        let forged: Vec<_> = (0..MAX_PAIRS as u32).map(|n| (n + 2, 1, 0, 1)).collect();
        let mut notes = Notes::default();
        notes.add(&batch(&forged), 0, |address| address, |interface| interface);
        for more in [&[(2, 1, 0, 1)][..], &[(2, 1, 0, 1), (1, 0, 2, 1)]] {
            notes.add(&batch(more), 0, |address| address, |interface| interface);
        }
        assert_eq!((notes.pairs.len(), notes.pairs[&(2, 1)]), (MAX_PAIRS, 1));
        assert_eq!(notes.unknown_count, MAX_PAIRS as u64 + 2);
        assert_eq!(
            (notes.own, notes.others),
            (FxHashSet::from_iter([1]), FxHashSet::from_iter([0]))
        );
    }

    #[test]
    fn many_pairs_are_all_counted() {
        let packets: Vec<_> = (0..5_000).map(|n| (n % 1_000, n % 7, 0, i64::from(n))).collect();
        let counts = tally(&batch(&packets));
        assert_eq!(counts.values().sum::<u64>(), 5_000);
        assert_eq!(
            counts[&(0, 0, 0, 0)],
            packets.iter().filter(|p| p.0 == 0 && p.1 == 0).count() as u64
        );
    }
}
