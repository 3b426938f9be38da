//! One packet seen at several points of one host: a bridge and its ports, a bond and its members, `-i any`.
//!
//! Each direction of a connection is represented by one point: the one that saw most of it and, of equals, the one
//! nearest to the wire (the last to see what is sent, the first to see what is received). If another point saw the same
//! bytes or the same header, its event is a duplicate: it stays in `events` and takes part in no hop. An event that
//! only another point saw is used like any other.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::packets::{Packet, Packets, Rows};
use crate::resolve::HeaderKey;

/// Which of several points that saw the same packet is nearest to the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearest {
    First,
    Last,
}

/// Keep the packets of `list` (one host's, in time order) that its main point saw or that only other points saw; move
/// the others to `duplicates`.
pub(crate) fn keep_one_point(packets: Packets, list: &mut Rows, nearest: Nearest, duplicates: &mut Rows) {
    let point = |row: u32| packets.at(row).point;
    let Some(&first) = list.first() else { return };
    if list.iter().all(|&row| point(row) == point(first)) {
        return;
    }
    let main = main_point(packets, list, nearest);
    let seen = PacketSet::of(packets.of(list).filter(|packet| packet.point == main));
    list.retain(|&row| {
        let packet = packets.at(row);
        let again = packet.point != main && seen.has(packet);
        if again {
            duplicates.push(row);
        }
        !again
    });
}

fn main_point(packets: Packets, list: &[u32], nearest: Nearest) -> u16 {
    let mut points: Vec<(u16, usize, i64)> = Vec::new();
    let mut places: FxHashMap<u16, usize> = FxHashMap::default();
    for packet in packets.of(list) {
        let place = *places.entry(packet.point).or_insert(points.len());
        if place == points.len() {
            points.push((packet.point, 0, packet.host_ns));
        }
        points[place].1 += 1;
    }
    let by_count_then_place = |&&(_, count, first_ns): &&(u16, usize, i64)| match nearest {
        Nearest::Last => (count, first_ns),
        Nearest::First => (count, first_ns.saturating_neg()),
    };
    points
        .iter()
        .max_by_key(by_count_then_place)
        .map_or(0, |&(point, _, _)| point)
}

/// Packets of one point: whole headers, and bytes of the stream as disjoint ascending ranges.
struct PacketSet {
    headers: FxHashSet<HeaderKey>,
    bytes: Vec<(i64, i64)>,
}

impl PacketSet {
    fn of<'a>(packets: impl Iterator<Item = &'a Packet>) -> Self {
        let mut headers = FxHashSet::default();
        let mut ranges = Vec::new();
        for packet in packets {
            headers.insert(HeaderKey::of(packet));
            if packet.carries_data() {
                ranges.push(packet.data_range());
            }
        }
        ranges.sort_unstable();
        let mut bytes: Vec<(i64, i64)> = Vec::new();
        for (start, end) in ranges {
            match bytes.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => bytes.push((start, end)),
            }
        }
        Self { headers, bytes }
    }

    fn has(&self, packet: &Packet) -> bool {
        if self.headers.contains(&HeaderKey::of(packet)) {
            return true;
        }
        let (start, end) = packet.data_range();
        let at = self.bytes.partition_point(|&(_, known_end)| known_end < end);
        start < end
            && self
                .bytes
                .get(at)
                .is_some_and(|&(known_start, known_end)| known_start <= start && end <= known_end)
    }
}
