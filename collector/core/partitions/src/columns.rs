//! The columns of a partition: rows of all hosts together, with directions inferred from each host's own addresses.
//!
//! Addresses that occur are numbered anew, in the order of their texts. Readers number them in the order in which
//! threads meet them, but a table must be the same in every run.

use twintap_protocols::excerpt::ExcerptColumns;
use twintap_wire::events::EventColumns;
use twintap_wire::packet::Direction;

use crate::copies::{Copying, rows_without_copies};
use crate::{blocks, excerpts};

/// Code of the direction of a packet that stayed inside its host.
const LOOPBACK: u8 = 3;
/// The options' bit for timestamps.
pub(crate) const TIMESTAMPS: u8 = 0x01;

/// What is needed to interpret a host's rows; vectors are indexed by an address's number in these rows.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// The host's own addresses, loopback ones too.
    pub is_own: &'a [bool],
    /// Rank of each address among the texts of all captures' addresses.
    pub rank: &'a [u32],
    pub first_point: u16,
    /// For each address that is a lane of its own, the lane's host and the interface that leads there; empty if there
    /// are none.
    pub lanes: &'a [Option<Lane>],
    /// Which packets its capture holds more than once; empty if there are none.
    pub copying: &'a [Copying],
}

/// An address behind an interface of a host, which stands for a host of its own (a container).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub host: u16,
    pub interface: u16,
}

/// Which rows of a column have a value, in Arrow's form: a bit for each, the lowest first. Empty if all have one.
#[derive(Clone, Debug, Default)]
pub struct Validity {
    pub bits: Vec<u8>,
}

impl Validity {
    /// Every row has a value except those that hold `missing`.
    pub fn but<T: Copy + PartialEq>(values: &[T], missing: T) -> Self {
        if values.iter().fold(true, |all, &value| all & (value != missing)) {
            return Self::default(); // nearly always; the check is vectorised
        }
        let known = |byte: u8, &value: &T| byte << 1 | u8::from(value != missing);
        let bits = values
            .chunks(8)
            .map(|eight| eight.iter().rev().fold(0, known))
            .collect();
        Self { bits }
    }

    /// Built from whether each row has a value.
    pub fn of(is_known: impl ExactSizeIterator<Item = bool>) -> Self {
        let n = is_known.len();
        let mut bits = Vec::with_capacity(n.div_ceil(8));
        let (mut byte, mut all) = (0, true);
        for (at, known) in is_known.enumerate() {
            byte |= u8::from(known) << (at % 8);
            all &= known;
            if at % 8 == 7 || at + 1 == n {
                bits.push(byte);
                byte = 0;
            }
        }
        Self {
            bits: if all { Vec::new() } else { bits },
        }
    }
}

/// Columns of a partition. In `events`, `interface` is the point and `direction` a code with 3 for what stayed inside
/// its host; addresses are places in `addresses`.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    pub events: EventColumns,
    pub host: Vec<u16>,
    /// The addresses of `events`, except that a loopback address is a different one on each host.
    pub src_end: Vec<u32>,
    pub dst_end: Vec<u32>,
    /// Ranks of the addresses that occur, ascending.
    pub addresses: Vec<u32>,
    pub excerpts: ExcerptColumns,
    /// The row of each excerpt's packet.
    pub excerpt_row: Vec<u32>,
    /// Packets left out, by host: copies of others.
    pub copies: Vec<u32>,
    occurs: Vec<bool>,
}

impl Columns {
    /// No rows yet, of captures with so many addresses.
    pub(crate) fn for_addresses(count: usize) -> Self {
        Self {
            occurs: vec![false; count],
            ..Self::default()
        }
    }

    /// Add the packed rows and excerpts of the next host.
    pub(crate) fn add_host(&mut self, host: u16, packed: &[Vec<u8>], packed_excerpts: &[Vec<u8>], view: &HostView) {
        let start = self.events.len();
        packed.iter().for_each(|chunk| blocks::unpack(chunk, &mut self.events));
        if !self.events.frame[start..].is_sorted() {
            self.sort_by_frame(start);
        }
        let all_count = self.events.len();
        self.leave_out_copies(start, view);
        self.copies.push((all_count - self.events.len()) as u32);
        self.host.resize(self.events.len(), host);
        self.assign_to_lanes(start, view);
        self.localise(start, view);
        let first = self.excerpts.len();
        packed_excerpts
            .iter()
            .for_each(|chunk| excerpts::unpack(chunk, &mut self.excerpts));
        if all_count > self.events.len() {
            self.keep_excerpts_of_rows(start, first);
        }
        let frames = &self.events.frame[start..];
        let mut row = 0;
        let rows = self.excerpts.frame[first..].iter().map(|&frame| {
            let is_ahead = frames.get(row).is_some_and(|&known| known <= frame);
            row = excerpts::row_of(frames, if is_ahead { row } else { 0 }, frame); // moved ones come in several runs
            (start + row) as u32
        });
        self.excerpt_row.extend(rows);
    }

    /// Leave out copies among the rows from `start` on.
    fn leave_out_copies(&mut self, start: usize, view: &HostView) {
        let Some(rows) = rows_without_copies(&self.events, start, view.copying) else {
            return;
        };
        let mut kept = EventColumns::default();
        blocks::append_rows(&self.events, &rows, &mut kept);
        self.events.split_off(start);
        let order: Vec<u32> = (0..).take(rows.len()).collect();
        blocks::append_rows(&kept, &order, &mut self.events);
    }

    /// Drop the excerpts from `first` on whose packet is not among the rows from `start` on.
    fn keep_excerpts_of_rows(&mut self, start: usize, first: usize) {
        let all = self.excerpts.split_off(first);
        let frames = &self.events.frame[start..];
        let mut packed = Vec::new();
        for (at, frame) in all.frame.iter().enumerate() {
            if frames.binary_search(frame).is_ok() {
                excerpts::pack(&all, at, *frame, &mut packed);
            }
        }
        excerpts::unpack(&packed, &mut self.excerpts);
    }

    /// Sort the rows from `start` on by frame; they were moved here from several partitions.
    fn sort_by_frame(&mut self, start: usize) {
        let unsorted = self.events.split_off(start);
        let mut order: Vec<u32> = (0..).take(unsorted.len()).collect();
        order.sort_unstable_by_key(|&row| unsorted.frame[row as usize]);
        blocks::append_rows(&unsorted, &order, &mut self.events);
    }

    /// Assign rows from `start` on to the lanes whose interface saw them. Other packets between two lanes get an
    /// unknown direction; packets between a lane and other hosts belong to the lane at every point (see the matcher's
    /// `points`).
    fn assign_to_lanes(&mut self, start: usize, view: &HostView) {
        if view.lanes.is_empty() {
            return;
        }
        let events = &mut self.events;
        for row in start..events.len() {
            let [src, dst] = [events.src_addr[row], events.dst_addr[row]].map(|end| view.lanes[end as usize]);
            let here = |lane: Option<Lane>| lane.filter(|lane| lane.interface == events.interface[row]);
            let (host, direction) = match (here(src), here(dst)) {
                (Some(lane), None) => (lane.host, Direction::Send as u8),
                (None, Some(lane)) => (lane.host, Direction::Receive as u8),
                _ => match (src, dst) {
                    (None, None) => continue,
                    (Some(_), Some(_)) => (self.host[row], Direction::Unknown as u8),
                    (Some(lane), None) => (lane.host, Direction::Send as u8),
                    (None, Some(lane)) => (lane.host, Direction::Receive as u8),
                },
            };
            (self.host[row], events.direction[row]) = (host, direction);
        }
    }

    /// Interpret the rows from `start` on for their host: directions, ranks of addresses, numbers of points.
    fn localise(&mut self, start: usize, view: &HostView) {
        let events = &mut self.events;
        let ends = events.src_addr[start..].iter_mut().zip(&mut events.dst_addr[start..]);
        for ((src, dst), direction) in ends.zip(&mut events.direction[start..]) {
            let [from, to] = [*src as usize, *dst as usize];
            *direction = view.direction(from, to, *direction);
            (*src, *dst) = (view.rank[from], view.rank[to]);
            self.occurs[*src as usize] = true;
            self.occurs[*dst as usize] = true;
        }
        let points = events.interface[start..].iter_mut();
        points.for_each(|interface| *interface += view.first_point);
    }

    /// Number the addresses that occur. `is_loopback` by rank.
    pub(crate) fn finish(&mut self, is_loopback: &[bool]) {
        let ranks = (0..).zip(&self.occurs).filter(|(_, occurs)| **occurs);
        self.addresses = ranks.map(|(rank, _)| rank).collect();
        let mut place = vec![0; self.occurs.len()];
        (0..)
            .zip(&self.addresses)
            .for_each(|(at, &rank)| place[rank as usize] = at);
        let settle = |column: &mut Vec<u32>| column.iter_mut().for_each(|rank| *rank = place[*rank as usize]);
        settle(&mut self.events.src_addr);
        settle(&mut self.events.dst_addr);
        self.src_end = self.ends(&self.events.src_addr, is_loopback);
        self.dst_end = self.ends(&self.events.dst_addr, is_loopback);
    }

    fn ends(&self, places: &[u32], is_loopback: &[bool]) -> Vec<u32> {
        let count = self.addresses.len() as u32;
        let own: Vec<bool> = self.addresses.iter().map(|&rank| is_loopback[rank as usize]).collect();
        if !own.contains(&true) {
            return places.to_vec();
        }
        let end = |(&place, &host): (&u32, &u16)| {
            if own[place as usize] {
                place + (u32::from(host) + 1) * count
            } else {
                place
            }
        };
        places.iter().zip(&self.host).map(end).collect()
    }

    /// Which rows have an IP ID, and which have timestamps.
    pub fn validity(&self) -> [Validity; 2] {
        let is_stamped = |options: &u8| options & TIMESTAMPS != 0;
        [
            Validity::of(self.events.ip_id.iter().map(|&id| id >= 0)),
            Validity::of(self.events.options.iter().map(is_stamped)),
        ]
    }
}

impl HostView<'_> {
    /// Direction code of a packet between two addresses. `captured` is the code in the capture, possibly `Unknown`.
    #[inline]
    fn direction(&self, src: usize, dst: usize, captured: u8) -> u8 {
        match (self.is_own[src], self.is_own[dst]) {
            (true, true) => LOOPBACK,
            (true, false) if captured == Direction::Unknown as u8 => Direction::Send as u8,
            (false, true) if captured == Direction::Unknown as u8 => Direction::Receive as u8,
            _ => captured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_wire::events::Event;

    #[test]
    fn directions_are_inferred_only_where_the_capture_has_none() {
        let view = HostView {
            is_own: &[true, false, false],
            rank: &[2, 1, 0],
            first_point: 4,
            lanes: &[],
            copying: &[],
        };
        let settled = |src_addr, dst_addr, direction| {
            let mut columns = Columns::default();
            let event = Event {
                src_addr,
                dst_addr,
                direction,
                interface: 1,
                ..Event::default()
            };
            columns.events.extend(&[Event::default(), event]);
            columns.occurs.resize(3, false);
            columns.localise(1, &view);
            let event = columns.events.row(1);
            (event.src_addr, event.dst_addr, event.direction, event.interface)
        };
        assert_eq!(settled(0, 1, 0), (2, 1, 2, 5));
        assert_eq!(settled(1, 0, 0), (1, 2, 1, 5));
        assert_eq!(settled(0, 0, 2), (2, 2, 3, 5), "what stays inside its host");
        assert_eq!(settled(1, 2, 2), (1, 0, 2, 5), "given by the capture");
        assert_eq!(settled(1, 2, 0), (1, 0, 0, 5), "no evidence");
    }

    #[test]
    fn what_passes_a_lane_s_interface_is_the_lane_s() {
        let lane = |host, interface| Some(Lane { host, interface });
        let view = HostView {
            is_own: &[false; 3],
            rank: &[0, 1, 2],
            first_point: 0,
            lanes: &[lane(5, 0), lane(6, 1), None],
            copying: &[],
        };
        let mut columns = Columns::default();
        for (interface, src_addr, dst_addr) in [(0, 0, 1), (2, 0, 1), (1, 0, 1), (2, 2, 0), (0, 2, 0), (3, 2, 2)] {
            columns.events.extend(&[Event {
                interface,
                src_addr,
                dst_addr,
                direction: 2,
                ..Event::default()
            }]);
        }
        columns.host = vec![0; 6];
        columns.assign_to_lanes(0, &view);
        assert_eq!(columns.host, [5, 0, 6, 5, 5, 0]);
        assert_eq!(columns.events.direction, [2, 0, 1, 1, 1, 2]);
    }

    #[test]
    fn validity_is_a_bit_for_each_row_and_nothing_where_all_are_known() {
        assert_eq!(Validity::of([true; 9].into_iter()).bits, [0; 0]);
        let known = [true, false, true, true, false, false, false, false, true];
        assert_eq!(Validity::of(known.into_iter()).bits, [0b1101, 1]);
    }
}
