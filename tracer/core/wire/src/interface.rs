//! The interfaces of a capture, with the description and the statistics from their blocks.

use crate::link::LinkType;
use crate::time::Resolution;

/// Intervals with drops that are kept for an interface, at most.
const DROPS_LIMIT: usize = 65_536;

/// One interface, as the file describes it. The index in [`crate::reader::Reader::interfaces`] is the events'
/// `interface`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub link_type: LinkType,
    /// Bytes kept of each packet; 0 = no limit.
    pub snaplen: u32,
    pub resolution: Resolution,
    /// `if_name`, or empty.
    pub name: String,
    /// `if_description`, or empty.
    pub description: String,
    /// `if_speed`, bits per second; 0 if not given.
    pub speed_bps: u64,
    /// Packets in this file.
    pub packets_count: u64,
    pub statistics: Statistics,
    /// What each of its Interface Statistics Blocks adds, in file order.
    pub drops: Vec<Drops>,
}

/// Packets that the capture dropped at an interface between two of its statistics blocks; 0 if they report none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// Time of the previous statistics, or the beginning that the first ones state.
    pub from_ns: Option<i64>,
    pub to_ns: i64,
    pub count: u64,
}

/// Totals of the Interface Statistics Blocks of all sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// `isb_ifrecv`: packets that the interface received, if the block gives it.
    pub received_count: Option<u64>,
    /// `isb_ifdrop` and `isb_osdrop`: packets that the capture lost, if the blocks give it.
    pub dropped_count: Option<u64>,
}

impl Interface {
    /// An interface of which only the link type, snaplen and clock are known.
    pub fn new(link_type: LinkType, snaplen: u32, resolution: Resolution) -> Self {
        Self {
            link_type,
            snaplen,
            resolution,
            name: String::new(),
            description: String::new(),
            speed_bps: 0,
            packets_count: 0,
            statistics: Statistics::default(),
            drops: Vec::new(),
        }
    }

    /// An equal interface without packets and drops.
    pub(crate) fn without_counts(&self) -> Self {
        Self {
            packets_count: 0,
            statistics: Statistics::default(),
            drops: Vec::new(),
            ..self.clone()
        }
    }

    /// Note the drops that a statistics block adds. Consecutive intervals without drops are merged, and so are all past
    /// the limit.
    pub(crate) fn note_drops(&mut self, start_ns: Option<i64>, to_ns: i64, count: u64) {
        let from_ns = self.drops.last().map_or(start_ns, |last| Some(last.to_ns));
        let is_full = self.drops.len() >= DROPS_LIMIT;
        match self.drops.last_mut() {
            Some(last) if is_full || (last.count == 0 && count == 0) => {
                last.to_ns = last.to_ns.max(to_ns);
                last.count = last.count.saturating_add(count);
            }
            _ => self.drops.push(Drops {
                from_ns: from_ns.map(|from| from.min(to_ns)),
                to_ns,
                count,
            }),
        }
    }
}
