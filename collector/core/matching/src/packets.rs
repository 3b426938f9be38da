//! The fields of a packet that matching reads, copied from the event columns into one struct per packet.
//!
//! They are copied once, because the columns lie far apart in memory and a dozen passes follow.

use std::ops::Range;

use crate::connections::Groups;
use crate::{Direction, Events, flag, option};

/// One event, in a cache line. Fields that are rarely read stay in [`Events`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub host_ns: i64,
    /// Stream offset of its `seq`: 0 is the first byte after the SYN, so a SYN is at -1. Set when its incarnation is
    /// known.
    pub offset: i64,
    pub event: u32,
    pub seq: u32,
    pub ack: u32,
    pub payload_len: u32,
    pub tsval: u32,
    pub tsecr: u32,
    pub sack_hash: u32,
    pub flags: u16,
    pub window: u16,
    pub host: u16,
    pub point: u16,
    pub mss: u16,
    /// 255 if not given.
    pub window_scale: u8,
    pub direction: Direction,
    /// 0 if the lower endpoint sent it, else 1.
    pub side: u8,
    pub options: u8,
}

impl Packet {
    /// In places that are still to be filled.
    const NONE: Self = Self {
        host_ns: 0,
        offset: 0,
        event: 0,
        seq: 0,
        ack: 0,
        payload_len: 0,
        tsval: 0,
        tsecr: 0,
        sack_hash: 0,
        flags: 0,
        window: 0,
        host: 0,
        point: 0,
        mss: 0,
        window_scale: 0,
        direction: Direction::Unknown,
        side: 0,
        options: 0,
    };

    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub fn is_of(&self, side: usize) -> bool {
        usize::from(self.side) == side
    }

    pub fn is_stamped(&self) -> bool {
        self.options & option::TIMESTAMPS != 0
    }

    pub fn carries_data(&self) -> bool {
        self.payload_len > 0
    }

    /// The bytes of the stream that it carries; start = end for a zero-length segment.
    pub fn data_range(&self) -> (i64, i64) {
        let start = self.offset + i64::from(self.has(flag::SYN) && self.carries_data());
        (start, start + i64::from(self.payload_len))
    }
}

/// Replace `packets` by those of a run of 4-tuples, one 4-tuple after the other.
///
/// Columns are read from front to back, and each packet is written to its place: the other way round, the packets of one
/// of many connections would be gathered from twenty places far apart each.
///
/// # Panics
/// If the columns differ in length, or an event is not there.
pub(crate) fn copy_packets(events: &Events, groups: &Groups, run: &Range<usize>, packets: &mut Vec<Packet>) {
    let rows = groups.event_range(run);
    let n = rows.end;
    // Slices of one known length: their bounds are checked once, not for each column.
    macro_rules! columns {
        ($($name:ident)*) => { $(let $name = &events.$name[..n];)* };
    }
    columns!(host point host_ns direction src_addr dst_addr src_port dst_port);
    columns!(seq ack flags window payload_len tsval tsecr options mss window_scale sack_hash);
    let (places, places_of_run) = (&groups.places()[..n], groups.places_of(run));
    packets.resize(places_of_run.len(), Packet::NONE);
    for i in rows {
        let place = (places[i] as usize).wrapping_sub(places_of_run.start);
        if let Some(packet) = packets.get_mut(place) {
            *packet = Packet {
                host_ns: host_ns[i],
                offset: 0,
                event: i as u32,
                seq: seq[i],
                ack: ack[i],
                payload_len: payload_len[i],
                tsval: tsval[i],
                tsecr: tsecr[i],
                sack_hash: sack_hash[i],
                flags: flags[i],
                window: window[i],
                host: host[i],
                point: point[i],
                mss: mss[i],
                window_scale: window_scale[i],
                direction: Direction::from_code(direction[i]),
                side: u8::from(endpoint(src_addr[i], src_port[i]) > endpoint(dst_addr[i], dst_port[i])),
                options: options[i],
            };
        }
    }
}

/// An address and a port as one number, by which endpoints are ordered.
pub(crate) fn endpoint(addr: u32, port: u16) -> u64 {
    u64::from(addr) << 16 | u64::from(port)
}

/// Places of packets among those of a 4-tuple.
pub(crate) type Rows = Vec<u32>;

/// The packets of a 4-tuple, by row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packets<'a>(pub &'a [Packet]);

impl<'a> Packets<'a> {
    pub fn at(self, row: u32) -> &'a Packet {
        &self.0[row as usize]
    }

    pub fn of(self, rows: &'a [u32]) -> impl DoubleEndedIterator<Item = &'a Packet> + ExactSizeIterator + Clone + 'a {
        rows.iter().map(move |&row| self.at(row))
    }
}
