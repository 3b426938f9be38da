//! Reassembles the length of datagrams that were fragmented on the way; their payload is not reassembled.
//!
//! The first fragment holds the TCP header, so its packet gives the row, with its frame and time. The length of the
//! whole datagram follows from the last fragment's offset. The row is written at once, and its `payload_len` is set
//! when every piece was seen. A row whose datagram is not yet whole is held back from the batch, with all rows after it
//! ([`Fragments::oldest_row`]), and goes out with the next one. So rows stay in order, and do not depend on where a
//! batch ends.
//!
//! A datagram is given up after [`WINDOW_PACKETS`] packets or [`WINDOW_NS`], or if it is the oldest of more than
//! [`DATAGRAM_LIMIT`]. Its row then keeps the length that the first fragment carried, and is counted. Fragments may
//! come in any order, twice, or overlapping; pieces of one datagram are joined only if the same interface saw them.
//!
//! Source: RFC 791 §3.2, RFC 8200 §4.5 (identification, offset, more fragments), RFC 1122 §3.3.2 (time to give up).
//! Limits: the payload itself is not put together, so a message head is looked for in the first fragment alone.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use crate::address::Addresses;
use crate::counters::{CounterKind, Counters};
use crate::ip::Fragment;

/// Packets of the file, from a datagram's first-seen piece on, within which all others must come. So many rows at most
/// are held back.
pub const WINDOW_PACKETS: u32 = 16_384;
/// Time for which Linux keeps pieces (`net.ipv4.ipfrag_time`).
pub const WINDOW_NS: i64 = 30_000_000_000;
/// Incomplete datagrams at one time, at most: below 1 KiB each.
pub const DATAGRAM_LIMIT: usize = 4_096;
/// Stretches of one datagram with gaps between them; 64 KiB in pieces of 1,280 bytes are 52.
const STRETCH_LIMIT: usize = 64;
/// Rows of one datagram, at most: its first fragment, once for each time it was captured.
const ROW_LIMIT: usize = 16;

/// The key that the pieces of one datagram share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    pub interface: u16,
    pub addresses: Addresses,
    pub id: u32,
    pub protocol: u8,
}

/// A row that waits for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub frame: u32,
    /// Bytes of the datagram before the TCP payload.
    pub headers_len: u32,
}

/// A datagram of which every piece was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    pub len: u32,
    pub rows: Vec<Row>,
}

/// When a packet was captured.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub frame: u32,
    pub host_ns: i64,
}

/// A datagram of which pieces are missing.
struct Open {
    since: Moment,
    rows: Vec<Row>,
    /// Disjoint, ascending, not touching: `[start, end)` in bytes.
    stretches: Vec<(u32, u32)>,
    len: Option<u32>,
}

/// All datagrams of which pieces are missing.
#[derive(Default)]
pub struct Fragments {
    open: HashMap<Datagram, Open, RandomState>,
    /// Datagrams by their first piece; those completed or given up since are skipped.
    queue: VecDeque<(u32, Datagram)>,
}

impl Fragments {
    /// Add a piece, with its row if it is a datagram's first fragment. Returns the datagram if it is complete now.
    pub fn take(
        &mut self,
        datagram: Datagram,
        piece: &Fragment,
        row: Option<Row>,
        now: Moment,
        counters: &mut Counters,
    ) -> Option<Whole> {
        self.give_up_old(now.frame, Some(now.host_ns), counters);
        if !self.open.contains_key(&datagram) {
            self.make_room(counters);
            self.queue.push_back((now.frame, datagram));
        }
        let open = self.open.entry(datagram).or_insert_with(|| Open::since(now));
        open.add(piece);
        open.rows.extend(row.filter(|_| open.rows.len() < ROW_LIMIT));
        let len = open.len.filter(|&len| open.stretches == [(0, len)])?;
        let rows = self.open.remove(&datagram)?.rows;
        Some(Whole { len, rows })
    }

    /// The frame of the earliest row whose datagram is incomplete, after giving up those too old at packet `frame`.
    pub fn oldest_row(&mut self, frame: u32, counters: &mut Counters) -> Option<u32> {
        self.give_up_old(frame, None, counters);
        let rows = self.open.values().flat_map(|open| &open.rows);
        rows.map(|row| row.frame).min()
    }

    /// Give up all incomplete datagrams, because there are no more packets.
    pub fn close(&mut self, counters: &mut Counters) {
        let rows: usize = self.open.drain().map(|(_, open)| open.rows.len()).sum();
        counters.add(CounterKind::IpDatagramsIncomplete, rows as u64);
        self.queue.clear();
    }

    fn give_up_old(&mut self, frame: u32, host_ns: Option<i64>, counters: &mut Counters) {
        while let Some(&(since_frame, datagram)) = self.queue.front() {
            let is_old = |open: &Open| host_ns.is_some_and(|now| now.saturating_sub(open.since.host_ns) > WINDOW_NS);
            let current = self.open.get(&datagram).filter(|open| open.since.frame == since_frame);
            let is_past = frame - since_frame > WINDOW_PACKETS;
            if current.is_some_and(|open| !is_past && !is_old(open)) {
                return;
            }
            if current.is_some() {
                self.give_up(&datagram, CounterKind::IpDatagramsIncomplete, counters);
            }
            self.queue.pop_front();
        }
    }

    fn make_room(&mut self, counters: &mut Counters) {
        while self.open.len() >= DATAGRAM_LIMIT
            && let Some((since_frame, datagram)) = self.queue.pop_front()
        {
            if self
                .open
                .get(&datagram)
                .is_some_and(|open| open.since.frame == since_frame)
            {
                self.give_up(&datagram, CounterKind::IpDatagramsEvicted, counters);
            }
        }
    }

    fn give_up(&mut self, datagram: &Datagram, reason: CounterKind, counters: &mut Counters) {
        let rows = self.open.remove(datagram).map_or(0, |open| open.rows.len());
        counters.add(reason, rows as u64);
    }
}

impl Open {
    fn since(now: Moment) -> Self {
        Self {
            since: now,
            rows: Vec::new(),
            stretches: Vec::new(),
            len: None,
        }
    }

    fn add(&mut self, piece: &Fragment) {
        let (mut start, mut end) = (piece.offset, piece.offset.saturating_add(piece.len));
        if piece.is_last {
            self.len = self.len.or(Some(end));
        }
        let from = self.stretches.partition_point(|&(_, known_end)| known_end < start);
        let to = self.stretches.partition_point(|&(known_start, _)| known_start <= end);
        if let Some(&[first, .., last]) = self.stretches.get(from..to).filter(|touched| touched.len() > 1) {
            (start, end) = (start.min(first.0), end.max(last.1));
        } else if let Some(&[only]) = self.stretches.get(from..to) {
            (start, end) = (start.min(only.0), end.max(only.1));
        } else if self.stretches.len() >= STRETCH_LIMIT {
            return; // stays incomplete
        }
        self.stretches.splice(from..to, [(start, end)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: Datagram = Datagram {
        interface: 0,
        addresses: Addresses::V4 { src: 1, dst: 2 },
        id: 7,
        protocol: 6,
    };

    fn piece(offset: u32, len: u32, is_last: bool) -> Fragment {
        Fragment {
            id: 7,
            protocol: 6,
            offset,
            len,
            is_last,
            start: 34,
        }
    }

    fn at(frame: u32) -> Moment {
        Moment {
            frame,
            host_ns: i64::from(frame),
        }
    }

    /// Feed pieces of one datagram; the row is that of a piece at 0.
    fn feed_pieces(pieces: &[(u32, u32, bool)]) -> Option<Whole> {
        let (mut fragments, mut counters) = (Fragments::default(), Counters::default());
        let mut found = None;
        for (frame, &(offset, len, is_last)) in (1..).zip(pieces) {
            let row = (offset == 0).then_some(Row { frame, headers_len: 32 });
            assert_eq!(found, None, "whole too early");
            found = fragments.take(DATAGRAM, &piece(offset, len, is_last), row, at(frame), &mut counters);
        }
        assert_eq!(fragments.open.is_empty(), found.is_some());
        found
    }

    #[test]
    #[allow(clippy::type_complexity)] // a table of cases
    fn a_datagram_is_whole_when_all_of_it_was_seen() {
        let whole = |frames: &[u32]| {
            let rows = frames.iter().map(|&frame| Row { frame, headers_len: 32 }).collect();
            Some(Whole { len: 24, rows })
        };
        let cases: &[(&str, &[(u32, u32, bool)], Option<Whole>)] = &[
            ("in order", &[(0, 8, false), (8, 8, false), (16, 8, true)], whole(&[1])),
            ("backwards", &[(16, 8, true), (8, 8, false), (0, 8, false)], whole(&[3])),
            ("mixed", &[(16, 8, true), (0, 8, false), (8, 8, false)], whole(&[2])),
            (
                "first twice",
                &[(0, 8, false), (0, 8, false), (8, 16, true)],
                whole(&[1, 2]),
            ),
            ("overlap", &[(0, 16, false), (8, 8, false), (8, 16, true)], whole(&[1])),
            ("middle missing", &[(0, 8, false), (16, 8, true)], None),
            ("last missing", &[(0, 8, false), (8, 8, false)], None),
            ("first missing", &[(8, 8, false), (16, 8, true)], None),
            ("past the end", &[(0, 32, false), (16, 8, true)], None),
        ];
        for (name, pieces, expected) in cases {
            assert_eq!(feed_pieces(pieces), *expected, "{name}");
        }
    }

    #[test]
    fn pieces_of_other_datagrams_do_not_help() {
        let others = [
            Datagram { id: 8, ..DATAGRAM },
            Datagram {
                interface: 1,
                ..DATAGRAM
            },
            Datagram {
                addresses: Addresses::V4 { src: 2, dst: 1 },
                ..DATAGRAM
            },
            Datagram {
                protocol: 17,
                ..DATAGRAM
            },
        ];
        for other in others {
            let (mut fragments, mut counters) = (Fragments::default(), Counters::default());
            let row = Some(Row {
                frame: 1,
                headers_len: 20,
            });
            assert_eq!(
                fragments.take(DATAGRAM, &piece(0, 8, false), row, at(1), &mut counters),
                None
            );
            assert_eq!(
                fragments.take(other, &piece(8, 8, true), None, at(2), &mut counters),
                None
            );
        }
    }

    #[test]
    fn old_ones_are_given_up() {
        let late = i64::from(WINDOW_PACKETS);
        for (frames, ns, is_kept) in [
            (WINDOW_PACKETS, late, true),
            (WINDOW_PACKETS + 1, late, false),
            (2, WINDOW_NS, true),
            (2, WINDOW_NS + 1, false),
        ] {
            let (mut fragments, mut counters) = (Fragments::default(), Counters::default());
            let row = Some(Row {
                frame: 1,
                headers_len: 20,
            });
            let start = Moment { frame: 1, host_ns: 0 };
            fragments.take(DATAGRAM, &piece(0, 8, false), row, start, &mut counters);
            let end = Moment {
                frame: 1 + frames,
                host_ns: ns,
            };
            let found = fragments.take(DATAGRAM, &piece(8, 8, true), None, end, &mut counters);
            assert_eq!(found.is_some(), is_kept, "{frames} {ns}");
            assert_eq!(counters.get(CounterKind::IpDatagramsIncomplete), u64::from(!is_kept));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn the_table_is_bounded_and_the_oldest_goes() {
        let (mut fragments, mut counters) = (Fragments::default(), Counters::default());
        let count = DATAGRAM_LIMIT as u32 + 10;
        for frame in 1..=count {
            let datagram = Datagram { id: frame, ..DATAGRAM };
            let row = Some(Row { frame, headers_len: 20 });
            fragments.take(datagram, &piece(0, 8, false), row, at(frame), &mut counters);
        }
        assert_eq!(fragments.open.len(), DATAGRAM_LIMIT);
        assert_eq!(counters.get(CounterKind::IpDatagramsEvicted), 10);
        assert_eq!(fragments.oldest_row(count, &mut counters), Some(11));
        for offset in (16..).step_by(16).take(10 * STRETCH_LIMIT) {
            let datagram = Datagram { id: 11, ..DATAGRAM };
            fragments.take(datagram, &piece(offset, 8, false), None, at(count), &mut counters);
        }
        assert!(
            fragments
                .open
                .values()
                .all(|open| open.stretches.len() <= STRETCH_LIMIT)
        );
        fragments.close(&mut counters);
        assert_eq!(counters.get(CounterKind::IpDatagramsIncomplete), DATAGRAM_LIMIT as u64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn the_queue_is_bounded_when_every_datagram_is_whole() {
        let (mut fragments, mut counters) = (Fragments::default(), Counters::default());
        for number in 0..5 * WINDOW_PACKETS {
            let frame = 2 * number + 1;
            fragments.take(DATAGRAM, &piece(0, 8, false), None, at(frame), &mut counters);
            let found = fragments.take(DATAGRAM, &piece(8, 8, true), None, at(frame + 1), &mut counters);
            assert!(found.is_some());
        }
        assert!(fragments.queue.len() <= WINDOW_PACKETS as usize);
    }
}
