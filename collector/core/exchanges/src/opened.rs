//! TLS connections that were opened with keys, as if what is inside had been sent in the clear.
//!
//! Messages are at the places of the encrypted bytes, on which both ends agree. Their lengths count clear bytes. So the
//! streams of such a connection are laid out anew, and everything after that reads them as any other:
//! ```text
//! on the wire  [hello][ticket][header|GET /a … |tag][header|body |tag]
//! clear                       [GET /a …            ][body           ]
//! ```
//! 1. Of each direction, the records are collected in the order of their places, each once ([`Layout`]).
//! 2. A clear byte is carried by the transfer that carries the byte from which it was opened; the last one of a record
//!    by the transfer that ends the record, since it is readable only then. Headers, tags and records without content
//!    take no room; what is not known as a record takes as much as on the wire.
//! 3. Places of transfers, heads and pauses are replaced accordingly ([`ClearView`]).
//!
//! The handshake is what precedes: from the first byte to the last record that the openers mark.

use rustc_hash::FxHashMap;
use twintap_protocols::tls::content;
use twintap_protocols::tls::opened::{HANDSHAKE, OPENED};

use crate::by_stream_id::place_in_frame;
use crate::ranges::{ByDirection, byte_ranges};
use crate::silences::Pauses;
use crate::tls_handshake::{TlsHandshake, handshake_bounds};
use crate::{Crossings, Heads, Hops};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    start: i64,
    end: i64,
    content_start: i64,
    content_len: i64,
    is_handshake: bool,
    /// Place of its content among clear bytes.
    clear: i64,
}

/// Where the clear bytes of one direction are.
#[derive(Clone, Debug, Default)]
struct Layout {
    /// Ascending, and none within another.
    records: Vec<Record>,
}

/// The opened connections among others, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenedConnections {
    layouts: FxHashMap<i64, ByDirection<Layout>>,
}

/// The tables that have places in streams.
#[derive(Clone, Copy)]
pub(crate) struct PlacedTables<'a> {
    pub hops: Hops<'a>,
    pub heads: Heads<'a>,
    pub pauses: Pauses<'a>,
    pub crossings: Crossings<'a>,
}

/// Their columns in which places are those of clear bytes.
pub(crate) struct ClearView {
    stream_start: Vec<i64>,
    stream_end: Vec<i64>,
    head_offset: Vec<i64>,
    pause_offset: Vec<i64>,
    crossing_offset: Vec<i64>,
    crossed_start: Vec<i64>,
    crossed_end: Vec<i64>,
}

impl Layout {
    fn of(mut records: Vec<Record>) -> Self {
        records.sort_unstable();
        let mut reach = i64::MIN;
        records.retain(|record| {
            let is_next = record.start >= reach;
            reach = reach.max(record.end);
            is_next
        });
        let (mut end, mut clear_end) = (0, 0);
        for record in &mut records {
            record.clear = record.start.saturating_sub(end).saturating_add(clear_end);
            (end, clear_end) = (record.end, record.clear.saturating_add(record.content_len));
        }
        Self { records }
    }

    /// The place among clear bytes of a place on the wire.
    fn clear(&self, at: i64) -> i64 {
        let Some(place) = self.records.partition_point(|record| record.start <= at).checked_sub(1) else {
            return at;
        };
        let record = &self.records[place];
        if at >= record.end {
            let behind = record.clear.saturating_add(record.content_len);
            return behind.saturating_add(at.saturating_sub(record.end));
        }
        let last = (record.content_len - 1).max(0);
        record
            .clear
            .saturating_add(at.saturating_sub(record.content_start).clamp(0, last))
    }

    /// Where the records of the handshake end.
    fn handshake_end(&self) -> i64 {
        let own = self.records.iter().filter(|record| record.is_handshake);
        own.map(|record| record.end).max().unwrap_or(i64::MIN)
    }
}

impl OpenedConnections {
    /// The connections of which application data was opened.
    pub fn of(heads: &Heads) -> Self {
        if !heads.head_kind.contains(&OPENED.0) {
            return Self::default();
        }
        let mut found: FxHashMap<i64, (ByDirection<Vec<Record>>, bool)> = FxHashMap::default();
        for row in (0..heads.head_kind.len()).filter(|&row| heads.head_kind[row] == OPENED.0) {
            let (records, is_any) = found.entry(heads.connection_id[row]).or_default();
            let is_application = heads.status[row] == content::APPLICATION_DATA;
            *is_any |= is_application;
            records
                .of_mut(heads.from_client[row])
                .push(record(heads, row, is_application));
        }
        let opened = found.into_iter().filter(|(_, (_, is_any))| *is_any);
        let layouts = opened.map(|(id, (records, _))| {
            let (server, client) = (Layout::of(records.server), Layout::of(records.client));
            (id, ByDirection { server, client })
        });
        Self {
            layouts: layouts.collect(),
        }
    }

    /// The places of clear bytes; none if no connection was opened.
    pub fn view(&self, tables: &PlacedTables<'_>) -> Option<ClearView> {
        if self.layouts.is_empty() {
            return None;
        }
        let PlacedTables {
            hops,
            heads,
            pauses,
            crossings,
        } = tables;
        let of_hops = |places| self.clear_column(hops.connection_id, hops.from_client, places);
        let others: Vec<bool> = crossings.from_client.iter().map(|from_client| !from_client).collect();
        let of_others = |places| self.clear_column(crossings.connection_id, &others, places);
        Some(ClearView {
            stream_start: of_hops(hops.stream_start),
            stream_end: of_hops(hops.stream_end),
            head_offset: (0..heads.head_kind.len())
                .map(|row| self.clear_head(heads, row))
                .collect(),
            pause_offset: self.clear_column(pauses.connection_id, pauses.from_client, pauses.stream_offset),
            crossing_offset: self.clear_column(crossings.connection_id, crossings.from_client, crossings.stream_offset),
            crossed_start: of_others(crossings.crossed_start),
            crossed_end: of_others(crossings.crossed_end),
        })
    }

    /// The place of a head. A frame's header may be cut by records, so it counts from the frame's first byte.
    fn clear_head(&self, heads: &Heads, row: usize) -> i64 {
        let at = heads.stream_offset[row];
        let Some(layouts) = self.layouts.get(&heads.connection_id[row]) else {
            return at;
        };
        let ahead = place_in_frame(heads, row);
        let start = layouts.of(heads.from_client[row]).clear(at.saturating_sub(ahead));
        start.saturating_add(ahead)
    }

    fn clear_column(&self, ids: &[i64], from_client: &[bool], places: &[i64]) -> Vec<i64> {
        let rows = ids.iter().zip(from_client).zip(places);
        rows.map(|((id, &from_client), &at)| {
            let layout = self.layouts.get(id).map(|layouts| layouts.of(from_client));
            layout.map_or(at, |layout| layout.clear(at))
        })
        .collect()
    }

    /// The handshake of a connection, if it was opened. Arguments: `hops` with places on the wire; `swapped`, the end
    /// that was taken for its server sends requests.
    pub fn handshake(
        &self,
        connection_id: i64,
        hops: &Hops,
        rows: impl Iterator<Item = usize>,
        swapped: bool,
    ) -> Option<TlsHandshake> {
        let layouts = self.layouts.get(&connection_id)?;
        let mut ranges = ByDirection::default();
        byte_ranges(hops, rows, swapped, &mut ranges);
        let end = |from_client: bool| layouts.of(from_client != swapped).handshake_end();
        Some(handshake_bounds(&ranges, end(true), end(false)))
    }
}

impl ClearView {
    /// The tables with places of clear bytes.
    pub fn of<'a>(&'a self, tables: &PlacedTables<'a>) -> PlacedTables<'a> {
        PlacedTables {
            hops: Hops {
                stream_start: &self.stream_start,
                stream_end: &self.stream_end,
                ..tables.hops
            },
            heads: Heads {
                stream_offset: &self.head_offset,
                ..tables.heads
            },
            pauses: Pauses {
                stream_offset: &self.pause_offset,
                ..tables.pauses
            },
            crossings: Crossings {
                stream_offset: &self.crossing_offset,
                crossed_start: &self.crossed_start,
                crossed_end: &self.crossed_end,
                ..tables.crossings
            },
        }
    }
}

fn record(heads: &Heads, row: usize, is_application: bool) -> Record {
    let start = heads.stream_offset[row];
    Record {
        start,
        end: start.saturating_add(heads.head_len[row].into()),
        content_start: start.saturating_add(heads.frame_kind[row].into()),
        content_len: if is_application {
            heads.content_length[row].max(0)
        } else {
            0
        },
        is_handshake: heads.flags[row] & HANDSHAKE != 0,
        clear: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(records: &[(i64, i64, i64, i64)]) -> Layout {
        let record = |&(start, end, ahead, content_len): &(i64, i64, i64, i64)| Record {
            start,
            end,
            content_start: start.saturating_add(ahead),
            content_len,
            is_handshake: content_len == 0,
            clear: 0,
        };
        Layout::of(records.iter().map(record).collect())
    }

    #[test]
    fn a_clear_byte_is_carried_where_its_record_is_and_the_last_one_where_that_ends() {
        // A request for TLS, a hello, 10 bytes, a ticket, 1 byte, bytes of no known record, 20 bytes; one record twice.
        let layout = layout(&[
            (8, 108, 5, 0),
            (108, 140, 5, 10),
            (108, 140, 5, 10),
            (140, 200, 5, 0),
            (200, 223, 5, 1),
            (253, 300, 13, 20),
        ]);
        let cases = [
            (0, 0),
            (8, 8),
            (107, 8),
            (108, 8),
            (113, 8),
            (114, 9),
            (122, 17),
            (139, 17),
            (140, 18),
            (200, 18),
            (222, 18),
            (223, 19),
            (252, 48),
            (253, 49),
            (266, 49),
            (285, 68),
            (299, 68),
            (300, 69),
            (301, 70),
        ];
        for (wire, clear) in cases {
            assert_eq!(layout.clear(wire), clear, "{wire}");
        }
        assert!((0..400).map(|at| layout.clear(at)).is_sorted());
        assert_eq!(layout.handshake_end(), 200);
    }

    #[test]
    fn hostile_records_lead_nowhere() {
        let layout = layout(&[
            (0, i64::MAX, 5, 10),
            (i64::MAX - 1, i64::MAX, 5, i64::MAX),
            (i64::MIN, 0, 0, 7),
        ]);
        for at in [i64::MIN, -1, 0, 5, i64::MAX] {
            layout.clear(at);
        }
    }
}
