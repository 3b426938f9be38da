//! The distinct byte ranges of one direction of a connection, each with its first send and its first arrival.

use crate::{Hops, UNSEEN, earlier, first_seen, kind};

/// Bytes `start..end` of one direction; `origin` is where the transfer that carries them begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub start: i64,
    pub end: i64,
    pub origin: i64,
    pub sent_ns: i64,
    pub received_ns: i64,
    pub uncertainty_ns: i64,
    pub likely_error_ns: i64,
    /// All of its bytes had arrived before it did.
    pub is_repeat: bool,
}

impl Range {
    /// The server's stamp, or the client's where the server has none.
    pub fn server_ns(&self, from_client: bool) -> i64 {
        server_ns(from_client, self.sent_ns, self.received_ns)
    }

    /// The client's stamp, or the server's where the client has none.
    pub fn client_ns(&self, from_client: bool) -> i64 {
        server_ns(!from_client, self.sent_ns, self.received_ns)
    }

    /// When it brought a byte that had not arrived before; `UNSEEN` if it did not.
    pub fn new_ns(&self) -> i64 {
        if self.is_repeat { UNSEEN } else { self.received_ns }
    }
}

/// A value for each direction of a connection: for what the server sent, and for what the client sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByDirection<T> {
    pub server: T,
    pub client: T,
}

impl<T> ByDirection<T> {
    pub fn of(&self, from_client: bool) -> &T {
        if from_client { &self.client } else { &self.server }
    }

    pub fn of_mut(&mut self, from_client: bool) -> &mut T {
        if from_client {
            &mut self.client
        } else {
            &mut self.server
        }
    }
}

/// The server's stamp of a transfer, or the client's where the server has none.
pub fn server_ns(from_client: bool, sent_ns: i64, received_ns: i64) -> i64 {
    if from_client {
        first_seen(received_ns, sent_ns)
    } else {
        first_seen(sent_ns, received_ns)
    }
}

/// Whether a hop carries bytes of the stream. A keepalive repeats a byte that was read before, and a window probe holds
/// one that the receiver may refuse; neither counts.
fn carries(hops: &Hops, row: usize) -> bool {
    hops.stream_end[row] > hops.stream_start[row] && !matches!(hops.kind[row], kind::KEEPALIVE | kind::WINDOW_PROBE)
}

/// The byte ranges that some hops of a connection carry, by start and end; `swapped` if its client is the server.
pub fn byte_ranges(hops: &Hops, rows: impl Iterator<Item = usize>, swapped: bool, found: &mut ByDirection<Vec<Range>>) {
    found.server.clear();
    found.client.clear();
    for row in rows.filter(|row| carries(hops, *row)) {
        let from_client = hops.from_client[row] != swapped;
        found.of_mut(from_client).push(Range {
            start: hops.stream_start[row],
            end: hops.stream_end[row],
            origin: hops.stream_start[row],
            sent_ns: hops.sent_ns[row],
            received_ns: hops.received_ns[row],
            uncertainty_ns: hops.uncertainty_ns[row],
            likely_error_ns: hops.likely_error_ns[row],
            is_repeat: false,
        });
    }
    for from_client in [false, true] {
        merge(found.of_mut(from_client));
    }
}

/// Sort ranges, and merge those that carry the same bytes.
fn merge(ranges: &mut Vec<Range>) {
    let place = |range: &Range| (range.start, range.end);
    if !ranges.is_sorted_by(|one, next| place(one) < place(next)) {
        ranges.sort_unstable_by_key(place);
        ranges.dedup_by(|again, first| {
            let same = place(again) == place(first);
            if same {
                first.sent_ns = earlier(first.sent_ns, again.sent_ns);
                first.received_ns = earlier(first.received_ns, again.received_ns);
                first.uncertainty_ns = first.uncertainty_ns.max(again.uncertainty_ns);
                first.likely_error_ns = first.likely_error_ns.max(again.likely_error_ns);
            }
            same
        });
    }
    let (mut reach, mut overlap) = (i64::MIN, false);
    for range in ranges.iter() {
        overlap |= range.start < reach;
        reach = reach.max(range.end);
    }
    if overlap {
        mark_repeats_slow(ranges);
    }
}

/// Mark retransmitted ranges, cut at other boundaries, all of whose bytes had arrived before.
fn mark_repeats_slow(ranges: &mut [Range]) {
    let mut order: Vec<usize> = (0..ranges.len())
        .filter(|at| ranges[*at].received_ns != UNSEEN)
        .collect();
    order.sort_by_key(|at| ranges[*at].received_ns);
    let mut there: Vec<(i64, i64)> = Vec::new(); // disjoint, ascending
    for at in order {
        let (start, end) = (ranges[at].start, ranges[at].end);
        let first = there.partition_point(|piece| piece.1 < start);
        let behind = there.partition_point(|piece| piece.0 <= end);
        if there[first..behind]
            .iter()
            .any(|piece| piece.0 <= start && end <= piece.1)
        {
            ranges[at].is_repeat = true;
            continue;
        }
        let touched = &there[first..behind];
        let whole = (
            touched.first().map_or(start, |piece| piece.0.min(start)),
            touched.last().map_or(end, |piece| piece.1.max(end)),
        );
        there.splice(first..behind, [whole]);
    }
}

/// The index of the last of `things`, ascending by `start`, that starts no later than `at`.
pub fn last_at_or_before<T>(things: &[T], at: i64, start: impl Fn(&T) -> i64) -> Option<usize> {
    things.partition_point(|thing| start(thing) <= at).checked_sub(1)
}

/// The same of things that are looked up one after another: `near` is where the last one was found, or 0. In about the
/// order of things, each look-up takes a few steps, however many things there are.
pub fn last_near<T>(things: &[T], near: &mut usize, at: i64, start: impl Fn(&T) -> i64) -> Option<usize> {
    *near = partition_point_near(things, *near, |thing| start(thing) <= at);
    near.checked_sub(1)
}

/// As `partition_point`, with a search that begins at `near` and goes in growing steps to either side.
pub fn partition_point_near<T>(things: &[T], near: usize, is_before: impl Fn(&T) -> bool) -> usize {
    let near = near.min(things.len());
    let (mut from, mut to, mut step) = (near, near, 1);
    while to < things.len() && is_before(&things[to]) {
        from = to + 1;
        to = (to + step).min(things.len());
        step *= 2;
    }
    while from > 0 && !is_before(&things[from - 1]) {
        to = from - 1;
        from = from.saturating_sub(step);
        step *= 2;
    }
    from + things[from..to].partition_point(is_before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_from_anywhere_finds_the_same_place() {
        for len in 0..20 {
            let things: Vec<usize> = (0..len).collect();
            for (near, place) in (0..=len + 1).flat_map(|near| (0..=len).map(move |place| (near, place))) {
                let found = partition_point_near(&things, near, |thing| *thing < place);
                assert_eq!(found, place, "{place} of {len} from {near}");
            }
        }
    }
}
