//! Silences: intervals within a message in which none of its bytes was on the way, and what its sender waited for.
//!
//! A message (a request, or a response) is *on the way* while at least one of its bytes has been sent and has not yet
//! arrived. A byte that is lost stays on the way until the copy that arrives. A copy of bytes that have arrived (a tail
//! loss probe) ends no silence. The remaining time between the message's first send and its last arrival are its
//! silences:
//! ```text
//! sender    ──▶     ──▶ ──▶                        ──▶
//! receiver    ──▶     ──▶ ──▶                        ──▶
//! on the way ███   ███████                         ███
//! silence       ┄┄┄        ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
//! ```
//! Why the sender did not continue earlier is judged by what it received just before:
//!
//! | cause | evidence |
//! |---|---|
//! | `Reader` | a pause of the sender ends there, and its window was closed ([`Pauses`]) |
//! | `Held` | another pause ends there; or a full segment left within [`RESUME_AFTER_ACK_NS`] of an ACK |
//! | `Source` | neither: the sender had nothing to send |
//!
//! # Invariants
//! - Silences of a message do not overlap, and lie between its first send and its last arrival.
//! - Each is longer than [`MIN_SILENCE_NS`], and than twice the clocks' uncertainty.
//!
//! # Limits
//! - If the sender was not captured, or the arrival of some bytes at a captured receiver, the time next to it is not
//!   reported as a silence.
//! - If the receiver was not captured, bytes have arrived at the latest when the sender hears an acknowledgement. From the
//!   last one on, until the sender goes on with new bytes, there is a silence, if it is long; before that, bytes may be
//!   on the way.
//! - A silence begins at a receiver's stamp and ends at a sender's, so its length is as uncertain as the clocks.
//! - A sender that happens to continue at the moment of an acknowledgement, with a full segment, counts as held by it.
//!
//! Cost: a pass over the ranges of messages that have several. Source: RFC 9293 §3.8.6, RFC 5681.

use rustc_hash::FxHashMap;
use twintap_columns::input_table;

use crate::assembly::NO_PLACE;
use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range, partition_point_near};
use crate::{Hops, UNSEEN};

/// Ignore shorter silences: a host takes that long between sending one packet and the next.
pub const MIN_SILENCE_NS: i64 = 20_000;
/// A silence this long is a row of its own; shorter ones are only added up.
pub const LONG_SILENCE_NS: i64 = 1_000_000;
/// TCP resumes within this time after the acknowledgement that allows it; an application resumes at any time
/// (`matching::pauses`).
const RESUME_AFTER_ACK_NS: i64 = 500_000;
/// Bytes that TCP had held back leave in full segments; this is less than any usual one (RFC 9293 §3.7.1: 1,220 over
/// IPv6).
const FULL_SEGMENT_BYTES: i64 = 1_200;

/// Why a sender did not continue earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Source,
    Held,
    Reader,
}

input_table! {
    /// Pauses of senders that ended with new bytes, each with the place of these bytes in the stream.
    pub struct Pauses {
        connection_id: i64,
        from_client: bool,
        stream_offset: i64,
        /// The receiver's window was closed; otherwise another rule of TCP held the sender.
        is_reader: bool,
    }
}

/// How long none of a message's bytes was on the way, in ns by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silent {
    pub source_ns: i64,
    pub held_ns: i64,
    pub reader_ns: i64,
}

/// A long silence; `exchange` is the place of its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    pub exchange: u32,
    pub in_response: bool,
    pub from_ns: i64,
    pub to_ns: i64,
    pub cause: Cause,
}

/// Whether the receiver's window was closed during a pause, by connection, direction and place in the stream.
pub type PauseCauses = FxHashMap<(i64, bool, i64), bool>;

impl Pauses<'_> {
    pub(crate) fn by_place(&self) -> PauseCauses {
        let keys = self.connection_id.iter().zip(self.from_client).zip(self.stream_offset);
        keys.zip(self.is_reader)
            .map(|(((&id, &from_client), &offset), &is_reader)| ((id, from_client, offset), is_reader))
            .collect()
    }
}

impl Silent {
    pub(crate) fn add(&mut self, cause: Cause, took_ns: i64) {
        let sum = match cause {
            Cause::Source => &mut self.source_ns,
            Cause::Held => &mut self.held_ns,
            Cause::Reader => &mut self.reader_ns,
        };
        *sum = sum.saturating_add(took_ns);
    }

    /// Whether the message had no silence.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// One connection's evidence of what held its senders back.
pub(crate) struct Evidence<'a> {
    pub hops: &'a Hops<'a>,
    pub held: &'a PauseCauses,
    pub connection_id: i64,
    pub swapped: bool,
}

impl Evidence<'_> {
    /// When each side received acknowledgements without data, ascending; `swapped` as for the ranges.
    fn acknowledgement_times(&self, rows: impl Iterator<Item = usize>) -> ByDirection<Vec<i64>> {
        let mut heard: ByDirection<Vec<i64>> = ByDirection::default();
        for row in rows {
            let is_plain = self.hops.stream_end[row] <= self.hops.stream_start[row];
            if is_plain && self.hops.received_ns[row] != UNSEEN {
                let by_client = self.hops.from_client[row] == self.swapped;
                heard.of_mut(by_client).push(self.hops.received_ns[row]);
            }
        }
        heard.client.sort_unstable();
        heard.server.sort_unstable();
        heard
    }

    fn cause(&self, gap: &Gap, from_client: bool, heard: &ByDirection<Vec<i64>>) -> Cause {
        let place = (self.connection_id, from_client != self.swapped, gap.offset);
        match self.held.get(&place) {
            Some(true) => return Cause::Reader,
            Some(false) => return Cause::Held,
            None => {}
        }
        let by_then = heard.of(from_client);
        let last = by_then
            .partition_point(|at| *at <= gap.to_ns)
            .checked_sub(1)
            .map(|place| by_then[place]);
        let is_soon = last.is_some_and(|at| at > gap.sent_ns && gap.to_ns.saturating_sub(at) <= RESUME_AFTER_ACK_NS);
        // If TCP had held the sender, a pause of this length would be listed.
        let could_be_listed = gap.to_ns.saturating_sub(gap.sent_ns) >= LONG_SILENCE_NS;
        if is_soon && !could_be_listed && gap.bytes >= FULL_SEGMENT_BYTES {
            Cause::Held
        } else {
            Cause::Source
        }
    }
}

/// A silence whose cause is not yet determined. The transfer that ended it begins at `offset`; the previous one left at
/// `sent_ns`. `from_ns` is `UNSEEN` if no arrival shows when the silence began.
#[derive(Clone, Copy, Debug)]
struct Gap {
    ordinal: usize,
    in_response: bool,
    from_client: bool,
    from_ns: i64,
    to_ns: i64,
    sent_ns: i64,
    offset: i64,
    bytes: i64,
}

impl Gap {
    /// The gap with its beginning, if there is one: an arrival that was captured, or else the last acknowledgement that
    /// the sender heard (`by_then`, ascending) after it had sent.
    fn with_begin(&self, by_then: &[i64]) -> Option<Gap> {
        if self.from_ns != UNSEEN {
            return Some(*self);
        }
        let last = by_then.partition_point(|&at| at <= self.to_ns).checked_sub(1)?;
        let from_ns = by_then[last];
        let is_silence = from_ns >= self.sent_ns && self.to_ns.saturating_sub(from_ns) >= LONG_SILENCE_NS;
        is_silence.then_some(Gap { from_ns, ..*self })
    }
}

/// Finds the silences of one connection, in buffers that are reused for the next.
#[derive(Default)]
pub(crate) struct SilenceFinder {
    gaps: Vec<Gap>,
    order: Vec<Range>,
}

impl SilenceFinder {
    /// Call `note` for each silence of a connection, with the ordinal of its exchange and whether it is in the
    /// response. The silence's own `exchange` is not set.
    ///
    /// Arguments: `parts` and `ranges` of both directions, ascending; `rows`, the connection's hops.
    pub fn find(
        &mut self,
        parts: &ByDirection<Vec<Part>>,
        ranges: &ByDirection<Vec<Range>>,
        evidence: &Evidence,
        rows: impl Iterator<Item = usize>,
        mut note: impl FnMut(usize, bool, Silence),
    ) {
        self.gaps.clear();
        for from_client in [false, true] {
            self.find_in_direction(parts.of(from_client), ranges.of(from_client), from_client);
        }
        if self.gaps.is_empty() {
            return;
        }
        let heard = evidence.acknowledgement_times(rows);
        let gaps = self.gaps.iter();
        for gap in gaps.filter_map(|gap| gap.with_begin(heard.of(gap.from_client))) {
            let cause = evidence.cause(&gap, gap.from_client, &heard);
            let silence = Silence {
                exchange: NO_PLACE,
                in_response: gap.in_response,
                from_ns: gap.from_ns,
                to_ns: gap.to_ns,
                cause,
            };
            note(gap.ordinal, gap.in_response, silence);
        }
    }

    fn find_in_direction(&mut self, parts: &[Part], ranges: &[Range], from_client: bool) {
        let before = |at: i64, near: usize| partition_point_near(ranges, near, |range| range.start < at);
        let mut first = parts.first().map_or(0, |part| before(part.start, 0));
        for (place, part) in parts.iter().enumerate() {
            let behind = parts
                .get(place + 1)
                .map_or(ranges.len(), |next| before(next.start, first));
            if behind - first > 1 && matches!(part.role, Role::Request | Role::Response) {
                self.find_in_message(part, &ranges[first..behind], from_client);
            }
            first = behind;
        }
    }

    /// The gaps of one message, whose ranges these are.
    fn find_in_message(&mut self, part: &Part, ranges: &[Range], from_client: bool) {
        let in_order = ranges.is_sorted_by_key(|range| range.sent_ns);
        self.order.clear();
        let ranges = if in_order {
            ranges
        } else {
            self.order.extend_from_slice(ranges);
            self.order.sort_by_key(|range| (range.sent_ns, range.start));
            &self.order
        };
        let no_arrival = ranges.iter().all(|range| range.received_ns == UNSEEN);
        let (mut reach, mut sent_ns, mut doubt, mut sent_end) = (UNSEEN, UNSEEN, 0, i64::MIN);
        for range in ranges {
            if range.sent_ns == UNSEEN || range.is_repeat {
                continue;
            }
            let least = MIN_SILENCE_NS.max(doubt.max(range.uncertainty_ns).saturating_mul(2));
            let is_new =
                no_arrival && range.start >= sent_end && range.sent_ns.saturating_sub(sent_ns) >= LONG_SILENCE_NS;
            let is_gap = match reach {
                UNSEEN => false,
                i64::MAX => is_new,
                arrived => range.sent_ns.saturating_sub(arrived) > least,
            };
            if is_gap {
                self.gaps.push(Gap {
                    ordinal: part.ordinal,
                    in_response: part.role == Role::Response,
                    from_client,
                    from_ns: if reach == i64::MAX { UNSEEN } else { reach },
                    to_ns: range.sent_ns,
                    sent_ns,
                    offset: range.origin,
                    bytes: range.end - range.start,
                });
            }
            // If the arrival of some bytes was not captured, they may be on the way until the next captured arrival.
            let arrived = if range.received_ns == UNSEEN {
                i64::MAX
            } else {
                range.received_ns
            };
            reach = if reach == i64::MAX { arrived } else { reach.max(arrived) };
            (sent_ns, doubt) = (range.sent_ns, range.uncertainty_ns);
            sent_end = sent_end.max(range.end);
        }
    }
}
