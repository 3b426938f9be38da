//! Body of the matcher's target: any events, and what must hold of their pairing.
//!
//! Run by cargo-fuzz (`fuzz_targets/matching.rs`) and, over the committed corpus and mutations of it, by
//! `matching/tests/fuzz_bodies.rs`; `matching/tests/hostile.rs` checks the same of large input.

use twintap_matching::{Events, MatchResult, NO_EVENT, match_events};

/// Bytes of the script that make one event.
const EVENT_LEN: usize = 12;
/// More events than this only make a run slow.
const EVENT_LIMIT: usize = 512;
const HOSTS: [u16; 4] = [0, 1, 2, u16::MAX];

macro_rules! define_columns {
    ($($name:ident: $kind:ty,)*) => {
        /// One event, all of whose fields may be anything.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Event { $(pub $name: $kind,)* }

        /// Events by column, the host of each address, and known servers.
        #[derive(Clone, Debug, Default)]
        pub struct Columns {
            $(pub $name: Vec<$kind>,)*
            pub host_of_address: Vec<u16>,
            pub servers: Vec<(u32, u16)>,
        }

        impl Columns {
            pub fn push(&mut self, event: Event) {
                $(self.$name.push(event.$name);)*
            }

            pub fn events(&self) -> Events<'_> {
                Events { $($name: &self.$name,)* host_of_address: &self.host_of_address, servers: &self.servers }
            }
        }
    };
}

define_columns! {
    host: u16, point: u16, host_ns: i64, direction: u8, src_addr: u32, dst_addr: u32, src_port: u16, dst_port: u16,
    seq: u32, ack: u32, flags: u16, window: u16, payload_len: u32, ip_id: i32, tsval: u32, tsecr: u32, options: u8,
    mss: u16, window_scale: u8, sack_hash: u32,
}

/// Invariant: whatever the events, matching ends, and [`check`] holds.
pub fn matching(data: &[u8]) {
    let columns = parse(data);
    let every: Vec<u32> = (0..).take(columns.host.len()).collect();
    let matched = match_events(&columns.events(), 0, &every);
    check(&columns, &matched);
    check_places(&matched);
}

/// Events from bytes: small numbers mostly, so that events meet; large ones by a shift.
fn parse(data: &[u8]) -> Columns {
    let mut columns = Columns::default();
    let Some((&owners, rest)) = data.split_first() else {
        return columns;
    };
    columns.host_of_address = (0..owners & 3)
        .map(|address| HOSTS[usize::from(owners >> (2 + 2 * address) & 3)])
        .collect();
    columns.servers = (0..owners & 1).map(|_| (1, 80)).collect();
    let mut host_ns = 0_i64;
    for bytes in rest.as_chunks::<EVENT_LEN>().0.iter().take(EVENT_LIMIT) {
        let [place, flags, s0, s1, l0, l1, a0, a1, time, shift, id, stamp] = *bytes;
        host_ns = host_ns.wrapping_add(i64::from(time as i8) << (shift & 0x3f).min(56));
        let scale = 8 * u32::from(flags >> 6);
        let number = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low])).wrapping_shl(scale);
        let (client, server) = ((0, 40_000 + u16::from(place >> 7)), (1 + u32::from(shift >> 7), 80));
        let (src, dst) = if place & 0x40 != 0 {
            (client, server)
        } else {
            (server, client)
        };
        columns.push(Event {
            host: HOSTS[usize::from(place & 3)],
            point: u16::from(place >> 2 & 3),
            host_ns,
            direction: place >> 4 & 3,
            src_addr: src.0,
            dst_addr: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            seq: number(s0, s1),
            ack: number(a0, a1),
            flags: u16::from(flags & 0x1f),
            window: u16::from(stamp & 3),
            payload_len: number(l0, l1),
            ip_id: i32::from(id as i8),
            tsval: u32::from(stamp >> 2),
            tsecr: u32::from(id >> 6),
            options: flags >> 5 & 1,
            mss: u16::from(shift >> 6 & 1) * 8,
            window_scale: id,
            sack_hash: u32::from(stamp >> 7),
        });
    }
    columns
}

/// One row, as far as its two ends go.
#[derive(Clone, Copy)]
struct Row {
    start: i64,
    end: i64,
}

/// Every event is in a row or is a duplicate, and not both; a received byte is in one row, a sent one in one at least; a
/// row's ends are of one connection and direction.
pub fn check(columns: &Columns, matched: &MatchResult) {
    let n = columns.host.len();
    let hops = &matched.hops;
    let (mut sent, mut received): (Vec<Vec<Row>>, Vec<Vec<Row>>) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    let mut is_duplicate = vec![false; n];
    for &event in &matched.duplicates {
        let known = std::mem::replace(&mut is_duplicate[event as usize], true);
        assert!(!known, "event {event} is a duplicate twice");
    }
    for row in 0..hops.kind.len() {
        let (start, end) = (hops.stream_start[row], hops.stream_end[row]);
        assert!(start <= end, "row {row} runs backwards");
        let (send, receive) = (hops.send_event[row], hops.receive_event[row]);
        assert!((send, receive) != (NO_EVENT, NO_EVENT), "row {row} is of no event");
        for (event, rows) in [(send, &mut sent), (receive, &mut received)] {
            if event == NO_EVENT {
                continue;
            }
            let event = event as usize;
            rows[event].push(Row { start, end });
            assert_eq!(matched.event_connection[event], hops.connection[row]);
            assert!(!is_duplicate[event], "event {event} is in a row and a duplicate");
        }
    }
    for event in 0..n {
        let len = i64::from(columns.payload_len[event]);
        let (as_sent, as_received) = (&mut sent[event], &mut received[event]);
        let is_in_rows = !as_sent.is_empty() || !as_received.is_empty();
        assert!(is_in_rows || is_duplicate[event], "event {event} is nowhere");
        if !as_received.is_empty() {
            let total: i64 = as_received.iter().map(|row| row.end - row.start).sum();
            assert_eq!(
                (covered_bytes(as_received), total),
                (len, len),
                "bytes that event {event} received"
            );
            assert!(len > 0 || as_received.len() == 1, "event {event} was received twice");
        }
        if !as_sent.is_empty() {
            assert_eq!(covered_bytes(as_sent), len, "bytes that event {event} sent");
        }
    }
}

/// The places of all events agree with the rows.
fn check_places(matched: &MatchResult) {
    let (hops, places) = (&matched.hops, &matched.places);
    assert_eq!(places.connection, matched.event_connection);
    for row in 0..hops.kind.len() {
        for event in [hops.send_event[row], hops.receive_event[row]] {
            if event != NO_EVENT {
                assert_eq!(places.from_client[event as usize], hops.from_client[row]);
            }
        }
    }
}

/// Bytes in at least one of `rows`.
fn covered_bytes(rows: &mut [Row]) -> i64 {
    rows.sort_by_key(|row| row.start);
    let (mut total, mut furthest) = (0, i64::MIN);
    for row in rows {
        total += (row.end - row.start.max(furthest)).max(0);
        furthest = furthest.max(row.end);
    }
    total
}
