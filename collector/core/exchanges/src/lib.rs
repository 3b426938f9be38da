//! Builds exchanges (a request and its response) from hops: which end is the client, and when the first and the last
//! bytes of request and response left and arrived.
//!
//! Input: hops of whole connections, message heads with their places in the streams, and senders' pauses, and packets
//! that crossed. Output: exchanges in order of time, the exchange of each hop, long silences within messages, and streams ([`build()`]).
//!
//! # The idea
//! 1. Each connection is divided into exchanges by itself, as its protocol requires
//!    ([`twintap_protocols::exchanges::Exchanges`]): by the order of message heads ([`heads`], [`numbering`], [`waiting`]), by
//!    stream ids ([`by_stream_id`]), otherwise by turn-taking ([`turns`]); of TLS without its handshake
//!    ([`tls_handshake`]); of TLS that was opened, by what is inside ([`opened`]). What follows a change of protocol is one
//!    exchange more ([`changes`]). The results are *parts*: byte ranges of one direction that belong to one exchange.
//! 2. The eight times of an exchange are those of the transfers that carry the first and the last byte of its request
//!    and of its response ([`parts`]).
//!    What turn-taking finds is judged ([`clean_turns`]): where turns overlap, they are no requests.
//! 3. Every hop is assigned to an exchange ([`assembly`]): payload by its offset in the stream; a handshake to the
//!    first exchange; acknowledgements, FIN and RST to the last exchange whose request had reached the server.
//!
//! # Worked example
//! ```text
//! client's stream   [0 .. GET /a .. 100)[100 .. GET /b .. 200)
//! server's stream   [0 .... 200 .... 50)[50 ..... 404 .... 90)
//! exchanges         1: request 0..100, response 0..50     2: request 100..200, response 50..90
//! ```
//! A hop with bytes 90..110 of the client's stream ends the first request and begins the second one. An answer whose
//! head declares no length ends with the server's FIN, which counts as one byte after the last one (RFC 9112 §6.3).
//!
//! # Invariants
//! - The parts of a direction are in order and do not overlap: a part ends where the next one begins.
//! - A hop belongs to at most one exchange, and that one is of its connection.
//! - Only stamps of one host are compared: the server's, or the client's where the server has none.
//!
//! # Limits
//! - An answer without a declared length (chunked, or until the connection closes) that is broken off looks whole,
//!   because a server that closes with unread data sends RST after a whole answer as well.
//! - So does an answer whose client left before the server's FIN.
//!
//! Cost: linear in hops, but for sorting those of a connection's direction by their place. Memory: the hops of one
//! connection, and the exchanges.
//!
//! Source: docs/architecture.md; RFC 9110 §15.2 and RFC 9112 §9.3 (which response answers which request).
#![forbid(unsafe_code)]

mod assembly;
mod by_stream_id;
mod changes;
mod clean_turns;
mod connection_rows;
mod copies;
mod head_of_line;
mod heads;
mod later_messages;
mod numbering;
mod opened;
mod parts;
mod ranges;
mod rare_times;
mod silences;
mod streams;
mod tls_handshake;
mod turns;
mod waiting;

pub use assembly::{BuiltExchanges, Exchange, NO_PLACE};
pub use by_stream_id::BrokenBy;
pub use head_of_line::{ServerTimes, rows_behind};
pub use parts::PartTimes;
pub use ranges::ByDirection;
pub use rare_times::{RareTimes, RareTimesOfAll};
pub use silences::{Cause, Pauses, Silence, Silent};
pub use streams::{ClientMessage, LateMessage, Messages, Stream, StreamReason};

use connection_rows::{Places, RowsByConnection};
pub use twintap_columns::Texts;
use twintap_columns::input_table;
use twintap_protocols::http1::flag;

/// Stands for a time that was not seen, or another value that is not known. Less than every time.
pub const UNSEEN: i64 = i64::MIN;
/// Stands for a row where there is none.
pub const NO_ROW: i64 = -1;

/// Codes of the column `kind`, those of `twintap_matching::Kind`.
pub mod kind {
    pub const SYN: u8 = 0;
    pub const SYN_ACK: u8 = 1;
    pub const DATA: u8 = 2;
    pub const ACK: u8 = 3;
    pub const FIN: u8 = 4;
    pub const RST: u8 = 5;
    pub const KEEPALIVE: u8 = 6;
    pub const WINDOW_PROBE: u8 = 7;
}

input_table! {
    /// Hops of whole connections, in any order; times are trace times in ns, `UNSEEN` where there is none.
    pub struct Hops {
        connection_id: i64,
        kind: u8,
        from_client: bool,
        stream_start: i64,
        stream_end: i64,
        sent_ns: i64,
        received_ns: i64,
        uncertainty_ns: i64,
        likely_error_ns: i64,
    }
}

input_table! {
    /// Message heads as captured: that of one message at up to two hosts, and again for each retransmission.
    pub struct Heads {
        connection_id: i64,
        from_client: bool,
        stream_offset: i64,
        /// Kind of the head, one of its protocol's `head_kinds`; it determines what the other columns mean.
        head_kind: u8,
        /// Bits of [`twintap_protocols::http1::flag`].
        flags("head_flags"): u8,
        /// 0 if it is not known.
        head_len: u32,
        /// -1 if not given.
        content_length: i64,
        status: u16,
        /// -1 if nothing is said of it, -2 if it is said later.
        result_code: i32,
        /// Kind of a frame as its protocol numbers them, and its stream; 0 and -1 where there are none.
        frame_kind: u16,
        stream_id: i64,
    } texts {
        method,
        target,
        /// Transaction ids; empty where there is none.
        id,
    }
}

input_table! {
    /// Connections, in any order.
    pub struct Connections {
        connection_id: i64,
        /// Its SYN was captured.
        handshake: bool,
    }
}

input_table! {
    /// Packets with new data that left before data from the other side had arrived, as `twintap_matching::Crossings`.
    pub struct Crossings {
        connection_id: i64,
        from_client: bool,
        stream_offset: i64,
        crossed_start: i64,
        crossed_end: i64,
    }
}

impl Heads<'_> {
    fn is_cut(&self, row: usize) -> bool {
        self.flags[row] & flag::CUT != 0
    }
}

/// Divide every connection into exchanges. The columns of each argument must be consistent; hops and heads of
/// connections that are not among `connections` are ignored.
pub fn build(
    hops: &Hops,
    heads: &Heads,
    connections: &Connections,
    pauses: &Pauses,
    crossings: &Crossings,
) -> BuiltExchanges {
    let ids = connections.connection_id;
    let places = Places::of(ids);
    let [hop_rows, head_rows, crossing_rows] = [hops.connection_id, heads.connection_id, crossings.connection_id]
        .map(|own| RowsByConnection::by_place(own, &places, ids.len()));
    let opened = opened::OpenedConnections::of(heads);
    let wire = opened::PlacedTables {
        hops: *hops,
        heads: *heads,
        pauses: *pauses,
        crossings: *crossings,
    };
    let view = opened.view(&wire);
    let clear = view.as_ref().map_or(wire, |view| view.of(&wire));
    let mut builder = assembly::Builder::new((hops, &opened), &clear, ids.len());
    for row in rows_by_id(ids) {
        let place = row as usize;
        builder.add(
            (row, ids[place]),
            connections.handshake[place],
            hop_rows.of(place),
            head_rows.of(place),
            crossing_rows.of(place),
        );
    }
    builder.finish()
}

fn rows_by_id(ids: &[i64]) -> Vec<u32> {
    let mut rows: Vec<u32> = (0..ids.len() as u32).collect();
    if !ids.is_sorted() {
        rows.sort_by_key(|row| ids[*row as usize]);
    }
    rows
}

/// The earlier of two times, of which either may be unseen.
pub(crate) fn earlier(one: i64, other: i64) -> i64 {
    match (one, other) {
        (UNSEEN, _) => other,
        (_, UNSEEN) => one,
        _ => one.min(other),
    }
}

/// The first of two times that was seen.
pub(crate) fn first_seen(one: i64, other: i64) -> i64 {
    if one == UNSEEN { other } else { one }
}
