//! Distinguishes the bytes of the TLS handshake from those of the application on TLS connections.
//!
//! A request over TLS is a turn of application records. Records are recognised by their headers, which are not
//! encrypted.
//!
//! Certain, if the headers were captured: the handshake records of TLS 1.2 (content types 20 and 22), its alerts (21),
//! and the first application record (23) of either side. In TLS 1.3 every encrypted record is of type 23, so these are
//! inferred from the order and the lengths of records:
//! - The client's handshake ends with its first record of type 23 that is as long as a Finished (hash of 32 or 48
//!   bytes). If there is none, the client sent a certificate, and its handshake ends with its first record of type 23.
//! - What the server sends before that record has arrived is its handshake.
//! - What the server sends after that, until the client's first application record has arrived, are session tickets. So
//!   are two records of equal length before its first answer, which is how OpenSSL sends them.
//! - A record that holds two bytes is an alert (`close_notify`).
//!
//! HTTP/2 inside TLS cannot be read. Many requests may be under way at once, so its turns are not requests
//! (`TlsHandshake::hides_http2`). In TLS 1.2 the server's hello contains the negotiated protocol (ALPN). In TLS 1.3 it
//! is encrypted, so HTTP/2 is inferred from the lengths of the first records: hardly anything else is as long as a
//! preface with settings, settings, and an empty frame.
//!
//! Not certain: a single ticket that is sent after the first request had arrived looks like the beginning of its
//! answer; early data (0-RTT) is taken for part of the handshake. If records were not captured (only packet headers
//! were), a connection is not known to be TLS, and its handshake appears as turns like any other.
//!
//! Source: RFC 8446 §2, §4.6.1, §5, §6.1; RFC 5246 §7.3.

use twintap_protocols::tls::{RECORD, content, flag};

use crate::ranges::{ByDirection, Range, last_at_or_before};
use crate::{Heads, UNSEEN};

/// Lengths of a record with a Finished: header, message header, hash of 32 or 48 bytes, content type, tag (RFC 8446
/// §4.4.4, §5.2).
const FINISHED_RECORD_LENS: [i64; 2] = [5 + 4 + 32 + 1 + 16, 5 + 4 + 48 + 1 + 16];
/// Length of a record with an alert: header, alert, content type, tag (RFC 8446 §5.2, §6).
const ALERT_RECORD_LEN: i64 = 5 + 2 + 1 + 16;
/// Bytes of a TLS 1.3 record around its message: header, content type, tag.
const RECORD_OVERHEAD_13_LEN: i64 = 5 + 1 + 16;
/// HTTP/2 (RFC 9113): bytes of the client's preface, of a frame's header, of a WINDOW_UPDATE without its header, and
/// how many settings a first frame may hold.
const PREFACE_LEN: i64 = 24;
const FRAME_HEADER_LEN: i64 = 9;
const WINDOW_FRAME_LEN: i64 = 9 + 4;
const MAX_SETTINGS: i64 = 16;
/// Records of either side whose lengths are compared with those of HTTP/2's first frames.
const COMPARED_RECORDS: usize = 6;
/// Bytes with which a client asks for TLS, at most: PostgreSQL's SSLRequest has 8, MySQL's 36, SMTP's EHLO and STARTTLS a
/// few lines. They are part of the handshake.
const ASKED_LEN: i64 = 64;
/// Lengths of a record with a session ticket.
const TICKET_RECORD_LENS: std::ops::Range<i64> = 100..2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    from_client: bool,
    offset: i64,
    end: i64,
    kind: u16,
    flags: u8,
}

impl Record {
    fn len(&self) -> i64 {
        self.end - self.offset
    }

    fn is_application(&self) -> bool {
        self.kind == content::APPLICATION_DATA
    }
}

/// When a client began and ended the TLS handshake, by its own clock; `UNSEEN` where that was not captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsHandshake {
    pub start_ns: i64,
    pub end_ns: i64,
    /// The encrypted application data is HTTP/2.
    pub hides_http2: bool,
}

/// Leave only the application's bytes in `ranges`, if records show that the connection uses TLS from its first byte on, or
/// from where its client asked for it.
/// Returns its handshake, if that was captured.
pub fn keep_application(
    heads: &Heads,
    rows: impl Iterator<Item = usize>,
    ranges: &mut ByDirection<Vec<Range>>,
) -> Option<TlsHandshake> {
    let records = records(heads, rows);
    let of = |from_client: bool| records.iter().filter(move |record| record.from_client == from_client);
    let is_hello = |record: &Record| record.flags & flag::CLIENT_HELLO != 0;
    let first = |from_client: bool| ranges.of(from_client).first().map(|range| range.start);
    let is_first = |hello: &Record| first(true).is_some_and(|first| hello.offset.saturating_sub(first) <= ASKED_LEN);
    let shows_hello = of(true).next().is_some_and(|hello| is_hello(hello) && is_first(hello));
    if !shows_hello {
        drop_alerts(&records, None, ranges);
        return None;
    }
    let is_13 = is_13(of(false));
    let chose_http2 = of(false).any(|record| record.flags & flag::HTTP2 != 0);
    let (client_end, server_end, server_start) = if is_13 {
        bounds_of_13(&records, ranges)
    } else {
        let start = |from_client| {
            of(from_client)
                .find(|one| one.is_application())
                .map_or(i64::MAX, |one| one.offset)
        };
        (start(true), start(false), start(false))
    };
    let handshake_bounds = TlsHandshake {
        hides_http2: chose_http2 || (is_13 && begins_as_http2(&records, (client_end, server_end))),
        ..handshake_bounds(ranges, client_end, server_end)
    };
    for (from_client, start) in [(true, client_end), (false, server_start)] {
        let kept = ranges.of_mut(from_client);
        kept.retain(|range| range.end > start);
        kept.iter_mut().for_each(|range| range.start = range.start.max(start));
    }
    drop_alerts(&records, Some(is_13), ranges);
    Some(handshake_bounds)
}

/// The records of a connection by direction and place, each once, and none that begins within another.
fn records(heads: &Heads, rows: impl Iterator<Item = usize>) -> Vec<Record> {
    let record = |row: usize| Record {
        from_client: heads.from_client[row],
        offset: heads.stream_offset[row],
        end: heads.stream_offset[row].saturating_add(heads.head_len[row].into()),
        kind: heads.status[row],
        flags: heads.flags[row],
    };
    let mut found: Vec<Record> = rows
        .filter(|&row| heads.head_kind[row] == RECORD.0)
        .map(record)
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|one| (one.from_client, one.offset));
    let (mut reach, mut from_client) = (i64::MIN, false);
    found.retain(|one| {
        if one.from_client != from_client {
            (reach, from_client) = (i64::MIN, one.from_client);
        }
        let is_whole = one.offset >= reach;
        reach = reach.max(one.end);
        is_whole
    });
    found
}

/// Whether the server chose TLS 1.3: its hello shows so, or, without a captured hello, its first application record
/// does not follow a Finished.
fn is_13<'a>(said: impl Iterator<Item = &'a Record> + Clone) -> bool {
    let says = said.clone().any(|record| record.flags & flag::TLS_13 != 0);
    let mut behind = said
        .skip_while(|record| record.kind != content::CHANGE_CIPHER_SPEC)
        .skip(1);
    says || behind.next().is_some_and(Record::is_application)
}

/// For TLS 1.3: the offsets at which the client's handshake and the server's end, and at which the server's first
/// answer begins.
fn bounds_of_13(records: &[Record], ranges: &ByDirection<Vec<Range>>) -> (i64, i64, i64) {
    let of = |from_client: bool| {
        records
            .iter()
            .filter(move |one| one.from_client == from_client && one.is_application())
    };
    let is_finished = |record: &&Record| FINISHED_RECORD_LENS.contains(&record.len());
    let Some(finished) = of(true).find(is_finished).or_else(|| of(true).next()) else {
        return (i64::MAX, i64::MAX, i64::MAX);
    };
    let place = last_at_or_before(&ranges.client, finished.offset, |range| range.start);
    let finished_ns = place.map_or(UNSEEN, |place| ranges.client[place].server_ns(true));
    let asked = ranges.client.iter().filter(|range| range.end > finished.end);
    let asked_ns = asked.map(|range| range.server_ns(true)).min().unwrap_or(i64::MAX);
    let from = |at_ns: i64| {
        let said = ranges.server.iter().find(|range| range.server_ns(false) > at_ns);
        said.map_or(i64::MAX, |range| range.start)
    };
    let (server_end, answer) = (from(finished_ns), from(asked_ns.max(finished_ns)));
    let is_ticket = |one: &Record, other: &Record| one.len() == other.len() && TICKET_RECORD_LENS.contains(&one.len());
    let before = of(false).rfind(|record| (server_end..answer).contains(&record.offset));
    let mut ahead = of(false).filter(|record| record.offset >= answer);
    let start = match (before, ahead.next(), ahead.next()) {
        (Some(before), Some(one), _) if one.offset == answer && is_ticket(before, one) => one.end,
        (None, Some(one), Some(other)) if one.offset == answer && is_ticket(one, other) => other.end,
        _ => answer,
    };
    (finished.end, server_end, start)
}

/// Whether the first TLS 1.3 records are as long as HTTP/2's first frames: the client's preface and settings; the
/// server's settings, then its acknowledgement of the client's. Arguments: the offsets at which each handshake ends.
fn begins_as_http2(records: &[Record], (client_end, server_end): (i64, i64)) -> bool {
    let lens = |from_client: bool, end: i64| {
        let own = records
            .iter()
            .filter(move |one| one.from_client == from_client && one.is_application());
        own.filter(move |one| one.offset >= end)
            .map(|one| one.len() - RECORD_OVERHEAD_13_LEN)
            .take(COMPARED_RECORDS)
    };
    let first = lens(true, client_end).next().unwrap_or(0);
    let mut said = lens(false, server_end);
    is_settings(first - PREFACE_LEN)
        && said.any(|len| len > FRAME_HEADER_LEN && is_settings(len))
        && said.any(|len| len == FRAME_HEADER_LEN)
}

/// Whether `len` bytes may be a SETTINGS frame, or one followed by a WINDOW_UPDATE (RFC 9113 §6.5, §6.9).
fn is_settings(len: i64) -> bool {
    let settings = |len: i64| len >= 0 && len % 6 == 0 && len <= MAX_SETTINGS * 6;
    settings(len - FRAME_HEADER_LEN) || settings(len - FRAME_HEADER_LEN - WINDOW_FRAME_LEN)
}

/// The handshake: from the client's first byte until the client had sent and received all of it.
pub(crate) fn handshake_bounds(ranges: &ByDirection<Vec<Range>>, client_end: i64, server_end: i64) -> TlsHandshake {
    let start_ns = ranges.client.first().map_or(UNSEEN, |range| range.sent_ns);
    let last = |ranges: &[Range], end: i64| ranges.iter().rfind(|range| range.start < end).copied();
    let sent_ns = last(&ranges.client, client_end).map_or(UNSEEN, |range| range.sent_ns);
    let heard_ns = last(&ranges.server, server_end).map_or(UNSEEN, |range| range.received_ns);
    TlsHandshake {
        start_ns,
        end_ns: if start_ns == UNSEEN {
            UNSEEN
        } else {
            sent_ns.max(heard_ns)
        },
        hides_http2: false,
    }
}

/// Remove ranges that carry alerts only. `is_13` is `None` where the handshake was not captured: then the last record
/// of a direction counts as an alert if it is as long as one.
fn drop_alerts(records: &[Record], is_13: Option<bool>, ranges: &mut ByDirection<Vec<Range>>) {
    for from_client in [false, true] {
        let own: Vec<Record> = records
            .iter()
            .filter(|one| one.from_client == from_client)
            .copied()
            .collect();
        let last = own.last().map(|one| one.offset);
        let is_alert = |one: &Record| {
            let hidden = one.is_application() && one.len() == ALERT_RECORD_LEN;
            let may_be = is_13.unwrap_or(Some(one.offset) == last);
            !one.is_application() || (hidden && may_be)
        };
        ranges.of_mut(from_client).retain(|range| {
            let first = own.partition_point(|one| one.offset < range.start);
            let within = own[first..].iter().take_while(|one| one.offset < range.end);
            let covers = own.get(first).is_some_and(|one| one.offset == range.start);
            !(covers && within.clone().all(is_alert))
        });
    }
}
