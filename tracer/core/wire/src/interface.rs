//! The interfaces of a capture, with what their blocks say of them.

use crate::link::LinkType;
use crate::time::Resolution;

/// One interface, as the file describes it. The index in [`crate::reader::Reader::interfaces`] is the events' `interface`.
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
}

/// What the Interface Statistics Blocks say, over all sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// `isb_ifrecv`: packets that the interface received, if told.
    pub received_count: Option<u64>,
    /// `isb_ifdrop` and `isb_osdrop`: packets that the capture lost, if told.
    pub dropped_count: Option<u64>,
}

impl Interface {
    /// One of which only the link type, snaplen and clock are known.
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
        }
    }

    /// An equal one that has seen nothing yet.
    pub(crate) fn without_counts(&self) -> Self {
        Self {
            packets_count: 0,
            statistics: Statistics::default(),
            ..self.clone()
        }
    }
}
