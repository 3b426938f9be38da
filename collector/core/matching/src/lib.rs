//! Pairs the send event of each transfer of bytes on one host with its receive event on another.
//!
//! # The idea
//! Pairing by (connection, sequence number) fails on real networks: with segmentation offload the sender's capture
//! holds super-segments (TSO) and the receiver's capture holds different ones (GRO), so the same bytes have different
//! packet boundaries at each end. What both ends agree on is the byte stream. So, for each connection incarnation and
//! direction:
//!
//! 1. [`connections`] groups events by 4-tuple, splits reused 4-tuples into incarnations (by ISN, and by what cannot
//!    follow a FIN), and unwraps 32-bit sequence numbers into 64-bit stream offsets, the same on all hosts.
//! 2. [`data`] cuts the stream at the union of the boundaries of both sides. Each *atom* has the sends and the receives
//!    that carried it. One send and one receive are a hop. If an atom was retransmitted, [`resolve`] distinguishes its
//!    transmissions by timestamps option, IP ID, causality and order; if none of these decides, they are ambiguous.
//! 3. [`control`] pairs zero-length segments on their whole header (seq, ack, flags, window, timestamps, SACK).
//! 4. [`pauses`] records where a sender waited for an acknowledgement although it had more to send. It runs here
//!    because later stages no longer have the windows.
//!
//! Before step 1, [`translation`] finds connections whose addresses a NAT or balancer rewrote on the way, and undoes
//! the rewriting. The caller leaves out what captured routers and NATs forwarded, so that only the ends of a path
//! remain.
//!
//! # Worked example
//! The sender's capture shows one send of bytes 0..4344; the link splits it into 3 × 1448; GRO merges the first two:
//! ```text
//! sends     [0 ................ 4344)
//! receives  [0 ...... 2896)[2896 .. 4344)
//! hops      [0 ...... 2896)[2896 .. 4344)      the send event has two hops
//! ```
//!
//! # Invariants
//! - A byte of a receive event is in exactly one hop; a byte of a send event is in at least one row.
//! - A hop's send and receive belong to one incarnation and one direction, and overlap in the stream.
//! - No clock is compared across hosts except through a bound derived from causality in both directions.
//!
//! # Limits
//! - Each direction of a connection has one sending and one receiving host. What a host between them saw is a
//!   duplicate, or unmatched if an end was not captured.
//! - A capture that joins a connection more than 2 GiB after the other one did may be placed 4 GiB off if the stream
//!   has no timestamps.
//!
//! Source: docs/architecture.md; RFC 9293 §3.4 (sequence numbers), RFC 7323 §3 (timestamps), RFC 2018 (SACK).
#![forbid(unsafe_code)]

mod connections;
mod control;
mod crossings;
mod data;
mod event_subset;
mod flow;
mod output;
mod owners;
mod packets;
mod pauses;
mod points;
mod resolve;
mod sequence_wraps;
mod translation;
mod translation_without_handshake;

use twintap_columns::input_table;

pub use output::{Connections, Hops, Kind, MatchResult, Pause, Pauses, Places, State};
pub use owners::host_of_address;
pub use translation::{FourTuple, Translation};

use event_subset::EventSubset;

/// TCP flags that matter here (RFC 9293 §3.1).
pub(crate) mod flag {
    pub const FIN: u16 = 0x01;
    pub const SYN: u16 = 0x02;
    pub const RST: u16 = 0x04;
    pub const ACK: u16 = 0x10;
}

/// Bits of the column `options`.
pub(crate) mod option {
    pub const TIMESTAMPS: u8 = 0x01;
}

/// Which way a packet went at the host that captured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Unknown,
    Receive,
    Send,
    /// Seen once, on the way from the host to itself: the event is both send and receive.
    Loopback,
}

impl Direction {
    /// From the column's code (0 unknown, 1 receive, 2 send, 3 loopback); other codes are unknown.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Receive,
            2 => Self::Send,
            3 => Self::Loopback,
            _ => Self::Unknown,
        }
    }
}

/// Stands for the index of an event where there is none.
pub const NO_EVENT: u32 = u32::MAX;
/// A host that is not known.
pub const NO_HOST: u16 = u16::MAX;

input_table! {
    /// Events of all hosts of one partition, as columns of one length. Events of a host stand in the order of its
    /// capture.
    ///
    /// Addresses are small integers that mean the same on all hosts. Times are each host's own, in ns.
    pub struct Events {
        host: u16,
        /// Which of the host's interfaces saw it.
        point("interface"): u16,
        host_ns: i64,
        direction: u8,
        src_addr("src_end"): u32,
        dst_addr("dst_end"): u32,
        src_port: u16,
        dst_port: u16,
        seq: u32,
        ack: u32,
        flags: u16,
        window: u16,
        payload_len: u32,
        ip_id: i32,
        tsval: u32,
        tsecr: u32,
        options: u8,
        mss: u16,
        /// 255 if not given.
        window_scale: u8,
        sack_hash: u32,
    } beside {
        /// The host that each address belongs to, `NO_HOST` or missing where it is not a captured one's.
        host_of_address: &'a [u16] = &[],
        /// Addresses and ports that are known to be servers', ascending.
        servers: &'a [(u32, u16)] = &[],
    }
}

impl Events<'_> {
    pub(crate) fn direction(&self, event: u32) -> Direction {
        Direction::from_code(self.direction[event as usize])
    }

    pub(crate) fn has(&self, event: u32, flag: u16) -> bool {
        self.flags[event as usize] & flag != 0
    }
}

/// Pair all transfers in `events`. Connections are numbered from `first_connection`. For the events in `asked` their
/// places in their streams are returned as well.
///
/// # Panics
/// If the columns differ in length, or hold 2^32 - 1 events or more.
pub fn match_events(events: &Events, first_connection: i64, asked: &[u32]) -> MatchResult {
    assert!(events.is_consistent(), "event columns differ in length");
    let n = events.host.len();
    assert!(n < NO_EVENT as usize, "too many events for one partition");
    let event_subset = EventSubset::of(n, asked);
    let translations = translation::find(events);
    let mut matched = if translations.is_empty() {
        match_without_handshakes(events, n, first_connection, &event_subset)
    } else {
        let rewritten = translation::undo_translations(events, &translations);
        let mut matched = match_without_handshakes(&rewritten.over(events), n, first_connection, &event_subset);
        matched.note_translations(translations);
        matched
    };
    let rows = asked.iter().filter_map(|&event| event_subset.place(event));
    matched.places = matched.places.of(rows, asked.len());
    matched
}

/// Pair after undoing the translations that packets after the handshake show; those that handshakes show are already
/// undone.
fn match_without_handshakes(
    events: &Events,
    n: usize,
    first_connection: i64,
    event_subset: &EventSubset,
) -> MatchResult {
    let groups = connections::group_by_four_tuple(events);
    let translations = translation_without_handshake::find(events, &groups);
    if translations.is_empty() {
        return match_untranslated(events, &groups, n, first_connection, event_subset);
    }
    let rewritten = translation::undo_translations(events, &translations);
    let events = rewritten.over(events);
    let groups = connections::group_by_four_tuple(&events);
    let mut matched = match_untranslated(&events, &groups, n, first_connection, event_subset);
    matched.note_translations(translations);
    matched
}

fn match_untranslated(
    events: &Events,
    groups: &connections::Groups,
    n: usize,
    first_connection: i64,
    event_subset: &EventSubset,
) -> MatchResult {
    let mut matched = MatchResult::with_events(n, event_subset);
    let mut splitter = connections::Splitter::new(events, groups);
    let mut scratch = flow::Scratch::default();
    let mut number = first_connection;
    for run in groups.runs() {
        splitter.read(&run);
        for group in run {
            for place in 0..splitter.split(group) {
                let (incarnation, packets) = splitter.place(place);
                matched.begin_connection(packets, &incarnation, number, event_subset);
                flow::match_connection(events, packets, &incarnation, number, &mut scratch, &mut matched);
                number += 1;
            }
        }
    }
    matched
}
