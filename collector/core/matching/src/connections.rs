//! Groups events by 4-tuple, splits each group into incarnations, and unwraps sequence numbers into stream offsets.
//!
//! A host's events of one 4-tuple are cut into *fragments*, each of one incarnation. A SYN with a new ISN begins a
//! fragment, and so does a sequence number that is impossible in the current one (past its FIN, before its ISN, or 2^30
//! away). Fragments of several hosts belong to the same incarnation if they share an ISN or, where a handshake was not
//! captured, if their ranges of sequence numbers overlap.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::packets::{Packet, Packets, copy_packets, endpoint};
use crate::sequence_wraps;
use crate::{Direction, Events, NO_HOST, flag};

/// Sequence numbers further apart than this are not of one incarnation: no window is that large (RFC 7323 §2.3).
const IMPLAUSIBLE_DISTANCE: u32 = 1 << 30;

/// A late packet is looked for in at most this many earlier fragments.
const FRAGMENTS_TRIED: usize = 3;

/// A fragment is compared with at most this many incarnations of its 4-tuple one by one, or that share its ISN.
const INCARNATIONS_COMPARED: usize = 256;

/// One end of a connection: what it sent, as seen by all hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub addr: u32,
    pub port: u16,
    pub isn: Option<u32>,
    /// Row of its first packet, host by host.
    pub first: Option<u32>,
    /// The host whose capture shows this side's packets as sent, and the host whose capture shows them as received.
    pub send_host: u16,
    pub receive_host: u16,
    /// The host that this side is, if it is captured.
    own_host: u16,
}

impl Side {
    pub fn host(&self) -> u16 {
        self.own_host
    }
}

/// One connection: a 4-tuple between its SYN and its end. `client` is the index of the side that began it.
#[derive(Debug)]
pub(crate) struct Incarnation<'a> {
    pub sides: [Side; 2],
    pub client: usize,
    /// Host by host, each in time order.
    fragments: &'a [Fragment],
    /// Smallest and largest stamp of any host.
    pub span_ns: (i64, i64),
}

impl<'a> Incarnation<'a> {
    pub fn events_count(&self) -> u32 {
        let count = self
            .fragments
            .iter()
            .map(|fragment| fragment.packets.len())
            .sum::<usize>();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Its rows among those of its 4-tuple, host by host, each in time order.
    pub fn rows(&self) -> impl Iterator<Item = usize> + 'a {
        self.fragments.iter().flat_map(|fragment| fragment.packets.clone())
    }

    /// Its packets among those of its 4-tuple.
    pub fn packets(&self, packets: &'a [Packet]) -> impl Iterator<Item = &'a Packet> + 'a {
        self.fragments
            .iter()
            .flat_map(|fragment| &packets[fragment.packets.clone()])
    }
}

/// Events of each 4-tuple: `order[starts[g]..starts[g + 1]]`, in input order. Event n is at `places[n]` of `order`.
pub(crate) struct Groups {
    order: Vec<u32>,
    starts: Vec<u32>,
    places: Vec<u32>,
}

/// Packets are copied in runs of groups of about so many events (8 MiB), which caches hold better than all; but in at
/// most [`MOST_RUNS`], since connections may be spread over all columns and each run reads what they are spread over.
const EVENTS_IN_RUN: usize = 1 << 17;
const MOST_RUNS: usize = 8;

impl Groups {
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts
            .windows(2)
            .map(|pair| &self.order[pair[0] as usize..pair[1] as usize])
    }

    /// Runs of groups that together have few events; a large group is a run of its own.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs_of(EVENTS_IN_RUN.max(self.order.len() / MOST_RUNS))
    }

    /// Runs of groups that together have at most `most` events, or of one group.
    fn runs_of(&self, most: usize) -> impl Iterator<Item = Range<usize>> {
        let (ends, mut next) = (&self.starts[1..], 0);
        std::iter::from_fn(move || {
            let begin = next;
            let limit = self.starts[begin] as usize + most;
            let fitting = ends[begin..].partition_point(|&end| end as usize <= limit);
            next = ends.len().min(begin + fitting.max(1));
            (begin < next).then_some(begin..next)
        })
    }

    /// Places of all events in the order of groups.
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// The places of the events of some groups.
    pub fn places_of(&self, groups: &Range<usize>) -> Range<usize> {
        self.starts[groups.start] as usize..self.starts[groups.end] as usize
    }

    /// The first event of some groups, and the one after their last.
    pub fn event_range(&self, groups: &Range<usize>) -> Range<usize> {
        let lasts = self.starts[groups.start + 1..=groups.end].iter();
        let end = lasts.map(|&end| self.order[end as usize - 1] + 1).max();
        let first = self.order[self.starts[groups.start] as usize]; // groups are in order of their first events
        first as usize..end.map_or(0, |end| end as usize)
    }
}

/// Group events by 4-tuple, either direction. Groups are in order of first appearance.
pub(crate) fn group_by_four_tuple(events: &Events) -> Groups {
    let n = events.host.len();
    let mut ids: FxHashMap<u128, u32> = FxHashMap::default();
    let mut group_of = Vec::with_capacity(n);
    let mut counts: Vec<u32> = Vec::new();
    let mut recent = [(u128::MAX, 0); RECENT_SLOTS];
    for event in 0..n {
        let key = four_tuple_key(events, event);
        let known = &mut recent[recent_slot(key)];
        if key != known.0 {
            let fresh = u32::try_from(counts.len()).expect("fewer 4-tuples than events");
            *known = (key, *ids.entry(key).or_insert(fresh));
            if known.1 == fresh {
                counts.push(0);
            }
        }
        counts[known.1 as usize] += 1;
        group_of.push(known.1);
    }
    scatter(group_of, &counts)
}

/// Slots of a cache of recent 4-tuples, in which a look-up costs little. At any time few of a capture's connections are
/// active.
const RECENT_SLOTS: usize = 1 << 10;

fn recent_slot(key: u128) -> usize {
    let mixed = (key as u64 ^ (key >> 64) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15); // as FxHash: spread over high bits
    (mixed >> 54) as usize
}

/// Counting sort: stable, so each group keeps the input's order. `places`: the group of each event.
fn scatter(mut places: Vec<u32>, counts: &[u32]) -> Groups {
    let mut starts = Vec::with_capacity(counts.len() + 1);
    let mut total = 0;
    starts.push(0);
    for count in counts {
        total += count;
        starts.push(total);
    }
    let mut next = starts.clone();
    let mut order = vec![0; places.len()];
    for (event, place) in (0..).zip(&mut places) {
        let slot = &mut next[*place as usize];
        order[*slot as usize] = event;
        *place = *slot;
        *slot += 1;
    }
    Groups { order, starts, places }
}

fn four_tuple_key(events: &Events, event: usize) -> u128 {
    let src = endpoint(events.src_addr[event], events.src_port[event]);
    let dst = endpoint(events.dst_addr[event], events.dst_port[event]);
    u128::from(src.min(dst)) << 64 | u128::from(src.max(dst))
}

/// `a - b` as a signed distance (RFC 9293 §3.4).
pub(crate) fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Sequence numbers seen of one side: first and one past the last.
#[derive(Clone, Copy, Debug)]
struct SeqRange {
    min: u32,
    max: u32,
}

impl SeqRange {
    fn widen(range: &mut Option<Self>, min: u32, max: u32) {
        match range {
            None => *range = Some(Self { min, max }),
            Some(known) => {
                if distance(min, known.min) < 0 {
                    known.min = min;
                }
                if distance(max, known.max) > 0 {
                    known.max = max;
                }
            }
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        other.min.wrapping_sub(self.min) <= self.max.wrapping_sub(self.min)
            || self.min.wrapping_sub(other.min) <= other.max.wrapping_sub(other.min)
    }
}

/// An incarnation's sequence numbers so far, by side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    isn: [Option<u32>; 2],
    range: [Option<SeqRange>; 2],
    fin_end: [Option<u32>; 2],
}

impl Numbers {
    fn accepts(&self, packet: &Packet) -> bool {
        let (side, seq) = (usize::from(packet.side), packet.seq);
        if packet.has(flag::SYN) {
            return match self.isn[side] {
                Some(isn) => isn == seq,
                None => self.accepts_first_syn(packet, side),
            };
        }
        if packet.has(flag::RST) {
            return true;
        }
        if self.fin_end[side].is_some_and(|end| distance(seq, end) > 0) {
            return false;
        }
        match (self.range[side], self.isn[side]) {
            (Some(range), isn) => {
                distance(seq, range.max).unsigned_abs() < IMPLAUSIBLE_DISTANCE
                    && isn.is_none_or(|isn| wrapped_past(isn, range.max) || distance(seq, isn) >= 0)
            }
            (None, Some(isn)) => (0..IMPLAUSIBLE_DISTANCE as i32).contains(&distance(seq, isn)),
            (None, None) => true,
        }
    }

    /// Whether a SYN of a side that has sent none fits: it answers the other's SYN, or both sides open at the same time
    /// (RFC 9293 §3.5).
    fn accepts_first_syn(&self, packet: &Packet, side: usize) -> bool {
        let other = self.isn[1 - side];
        if packet.has(flag::ACK) {
            other.is_some_and(|isn| packet.ack == isn.wrapping_add(1))
        } else {
            other.is_some() && self.range[side].is_none()
        }
    }

    fn add(&mut self, packet: &Packet) {
        let side = usize::from(packet.side);
        let (seq, ack) = (packet.seq, packet.ack);
        let (syn, fin) = (packet.has(flag::SYN), packet.has(flag::FIN));
        if syn {
            self.isn[side] = Some(seq);
            if packet.has(flag::ACK) && self.isn[1 - side].is_none() && self.range[1 - side].is_none() {
                self.isn[1 - side] = Some(ack.wrapping_sub(1));
            }
        }
        if packet.has(flag::RST) {
            return; // its seq may be anything (RFC 9293 §3.5.2)
        }
        let end = seq
            .wrapping_add(packet.payload_len)
            .wrapping_add(u32::from(syn))
            .wrapping_add(u32::from(fin));
        SeqRange::widen(&mut self.range[side], seq, end);
        if fin {
            self.fin_end[side] = Some(end);
        }
    }

    /// Whether both are of one incarnation: no ISN differs, and an ISN or a range of sequence numbers is shared.
    fn same_incarnation(&self, other: &Self) -> bool {
        let isns = |side: usize| self.isn[side].zip(other.isn[side]);
        if (0..2).any(|side| isns(side).is_some_and(|(a, b)| a != b)) {
            return false;
        }
        (0..2).any(|side| isns(side).is_some())
            || (0..2).any(|side| {
                self.range[side]
                    .zip(other.range[side])
                    .is_some_and(|(a, b)| a.overlaps(&b))
            })
    }

    fn merge(&mut self, other: &Self) {
        for side in 0..2 {
            self.isn[side] = self.isn[side].or(other.isn[side]);
            if let Some(range) = other.range[side] {
                SeqRange::widen(&mut self.range[side], range.min, range.max);
            }
        }
    }
}

/// Whether the stream is so long that its sequence numbers may have wrapped past the ISN.
fn wrapped_past(isn: u32, max: u32) -> bool {
    max.wrapping_sub(isn) >= IMPLAUSIBLE_DISTANCE
}

/// One host's packets of one incarnation, in time order: a run of the 4-tuple's.
#[derive(Debug)]
struct Fragment {
    numbers: Numbers,
    packets: Range<usize>,
    /// The place of its incarnation among the 4-tuple's.
    incarnation: usize,
}

/// Splits the events of 4-tuples into incarnations, one 4-tuple after the other, in buffers that are reused.
pub(crate) struct Splitter<'a, 'e> {
    events: &'a Events<'e>,
    groups: &'a Groups,
    /// Those of a run of 4-tuples, which begins at this place in the order of all.
    packets: Vec<Packet>,
    begin: usize,
    /// The 4-tuple that was split last, among them.
    own: Range<usize>,
    /// By incarnation, once the 4-tuple is split.
    fragments: Vec<Fragment>,
    /// Of each incarnation.
    merged: Vec<Numbers>,
    seen: Vec<SeenByHost>,
}

impl<'a, 'e> Splitter<'a, 'e> {
    pub fn new(events: &'a Events<'e>, groups: &'a Groups) -> Self {
        Self {
            events,
            groups,
            packets: Vec::new(),
            begin: 0,
            own: 0..0,
            fragments: Vec::new(),
            merged: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Read the packets of a run of 4-tuples, of which each can then be split.
    pub fn read(&mut self, run: &Range<usize>) {
        copy_packets(self.events, self.groups, run, &mut self.packets);
        self.begin = self.groups.places_of(run).start;
    }

    /// Split one 4-tuple of the run; returns how many incarnations it has. They are in order of their first fragment.
    pub fn split(&mut self, group: usize) -> usize {
        let places = self.groups.places_of(&(group..group + 1));
        self.own = places.start - self.begin..places.end - self.begin;
        let packets = &mut self.packets[self.own.clone()];
        let by_host_and_time = |packet: &Packet| (packet.host, packet.host_ns);
        if !packets.is_sorted_by_key(by_host_and_time) {
            packets.sort_by_key(by_host_and_time);
        }
        let (merged, fragments) = (&mut self.merged, &mut self.fragments);
        merged.clear();
        fragments.clear();
        let mut start = 0;
        for of_host in packets.chunk_by_mut(|a, b| a.host == b.host) {
            // Fragments of one host are different incarnations, so only those of earlier hosts are candidates.
            let earlier = Candidates::of(merged);
            let first = fragments.len();
            add_fragments_of_host(of_host, start, fragments);
            for fragment in &mut fragments[first..] {
                fragment.incarnation = earlier.find(merged, &fragment.numbers).unwrap_or(merged.len());
                match merged.get_mut(fragment.incarnation) {
                    Some(numbers) => numbers.merge(&fragment.numbers),
                    None => merged.push(fragment.numbers.clone()),
                }
            }
            start += of_host.len();
        }
        fragments.sort_by_key(|fragment| fragment.incarnation); // stable: those of an incarnation stay host by host
        merged.len()
    }

    /// Give each packet of an incarnation its stream offset, and return the incarnation with the hosts at its ends, and
    /// the packets of the 4-tuple that was split last.
    pub fn place(&mut self, number: usize) -> (Incarnation<'_>, Packets<'_>) {
        let begin = self.fragments.partition_point(|fragment| fragment.incarnation < number);
        let end = self
            .fragments
            .partition_point(|fragment| fragment.incarnation <= number);
        let (numbers, fragments) = (&self.merged[number], &self.fragments[begin..end]);
        let packets = &mut self.packets[self.own.clone()];
        unwrap_offsets(packets, numbers, fragments, &mut self.seen);
        let placed = incarnation(self.events, packets, numbers, fragments, &self.seen);
        (placed, Packets(packets))
    }
}

/// Incarnations that earlier hosts saw, among which a fragment's incarnation is looked up: one by one while they are
/// few, otherwise by ISN.
struct Candidates {
    count: usize,
    by_isn: FxHashMap<(usize, u32), Vec<usize>>,
    /// Those without an ISN in one direction, which can only be compared by their ranges of sequence numbers.
    without_isn: Vec<usize>,
}

impl Candidates {
    fn of(merged: &[Numbers]) -> Self {
        let mut found = Self {
            count: merged.len(),
            by_isn: FxHashMap::default(),
            without_isn: Vec::new(),
        };
        if merged.len() <= INCARNATIONS_COMPARED {
            return found;
        }
        for (index, numbers) in merged.iter().enumerate() {
            for (side, isn) in numbers.isn.iter().enumerate() {
                if let Some(isn) = isn {
                    found.by_isn.entry((side, *isn)).or_default().push(index);
                }
            }
            if numbers.isn.contains(&None) {
                found.without_isn.push(index);
            }
        }
        found
    }

    /// The first incarnation that `numbers` belong to.
    fn find(&self, merged: &[Numbers], numbers: &Numbers) -> Option<usize> {
        let is_same = |index: &usize| merged[*index].same_incarnation(numbers);
        if self.count <= INCARNATIONS_COMPARED {
            return (0..self.count).find(is_same);
        }
        let first = |list: &[usize]| list.iter().copied().take(INCARNATIONS_COMPARED).find(is_same);
        let of_side = |side: usize| numbers.isn[side].and_then(|isn| self.by_isn.get(&(side, isn)));
        let by_isn = (0..2).filter_map(of_side).filter_map(|list| first(list));
        by_isn.chain(first(&self.without_isn)).min()
    }
}

/// Divide the packets of one host into fragments, which are appended, and sort them by fragment. `start` is the place
/// of the first one among the 4-tuple's packets. Their incarnations are still to be found.
fn add_fragments_of_host(of_host: &mut [Packet], start: usize, fragments: &mut Vec<Fragment>) {
    let empty = || Fragment {
        numbers: Numbers::default(),
        packets: start..start,
        incarnation: 0,
    };
    let first = fragments.len();
    fragments.push(empty());
    let mut fragment_of: Vec<usize> = Vec::new(); // filled once there are several
    for (at, packet) in of_host.iter().enumerate() {
        let known = &fragments[first..];
        let count = known.len();
        let found = known
            .iter()
            .rposition_within(FRAGMENTS_TRIED, |fragment| fragment.numbers.accepts(packet));
        let index = found.unwrap_or(if at == 0 { 0 } else { count });
        if index == count {
            fragment_of.resize(at, 0);
            fragments.push(empty());
        }
        fragments[first + index].numbers.add(packet);
        if fragments.len() > first + 1 {
            fragment_of.push(index);
        }
    }
    let known = &mut fragments[first..];
    let mut begin = start;
    let ends = fragment_ends(of_host, &fragment_of, known.len());
    for (index, fragment) in known.iter_mut().enumerate() {
        let end = start + ends.get(index).copied().unwrap_or(of_host.len());
        fragment.packets = begin..end;
        begin = end;
    }
}

/// Sort packets by fragment. Returns where each fragment ends, or nothing if there is only one.
fn fragment_ends(of_host: &mut [Packet], fragment_of: &[usize], count: usize) -> Vec<usize> {
    if count == 1 {
        return Vec::new();
    }
    let mut by_fragment: Vec<(usize, Packet)> = fragment_of.iter().copied().zip(of_host.iter().copied()).collect();
    by_fragment.sort_by_key(|&(fragment, _)| fragment); // stable: in time order
    for (place, &(_, packet)) in of_host.iter_mut().zip(&by_fragment) {
        *place = packet;
    }
    let end = |index| by_fragment.partition_point(|&(fragment, _)| fragment <= index);
    (0..count).map(end).collect()
}

trait RpositionWithin {
    type Item;
    fn rposition_within(self, tries: usize, accepts: impl Fn(&Self::Item) -> bool) -> Option<usize>;
}

impl<'a, T> RpositionWithin for std::slice::Iter<'a, T> {
    type Item = T;

    /// Index of the last item that is accepted, among the last `tries`.
    fn rposition_within(self, tries: usize, accepts: impl Fn(&T) -> bool) -> Option<usize> {
        let items = self.as_slice();
        (items.len().saturating_sub(tries)..items.len())
            .rev()
            .find(|&index| accepts(&items[index]))
    }
}

fn incarnation<'a>(
    events: &Events,
    packets: &[Packet],
    numbers: &Numbers,
    fragments: &'a [Fragment],
    seen: &[SeenByHost],
) -> Incarnation<'a> {
    let ends = endpoints(events, packets, fragments);
    let owner = |side: usize| {
        let known = events.host_of_address.get(ends[side].0 as usize);
        known.copied().unwrap_or(NO_HOST)
    };
    let mut sides = [0, 1].map(|side| Side {
        addr: ends[side].0,
        port: ends[side].1,
        isn: numbers.isn[side],
        first: rows_of(packets, fragments, side).next(),
        send_host: busiest_host(seen, |seen| seen.sent[side], owner(side)),
        receive_host: busiest_host(seen, |seen| seen.received[side], owner(1 - side)),
        own_host: NO_HOST,
    });
    let hosts = [0, 1].map(|side| match sides[side].send_host {
        NO_HOST => sides[1 - side].receive_host,
        host => host,
    });
    for (side, host) in hosts.into_iter().enumerate() {
        sides[side].own_host = if host == NO_HOST { owner(side) } else { host };
    }
    let client = client_side(events, packets, fragments, &sides);
    let edges = fragments.iter().filter_map(|fragment| {
        let own = &packets[fragment.packets.clone()];
        own.first().zip(own.last())
    });
    let span_ns = edges
        .map(|(first, last)| (first.host_ns, last.host_ns))
        .reduce(|known, span| (known.0.min(span.0), known.1.max(span.1)));
    Incarnation {
        sides,
        client,
        fragments,
        span_ns: span_ns.unwrap_or((0, 0)),
    }
}

/// Rows of one side's packets.
fn rows_of<'a>(packets: &'a [Packet], fragments: &'a [Fragment], side: usize) -> impl Iterator<Item = u32> + 'a {
    let rows = fragments.iter().flat_map(|fragment| fragment.packets.clone());
    rows.filter(move |&row| packets[row].is_of(side)).map(|row| row as u32)
}

/// Set the packets' offsets. Replaces `seen` by how many packets of each side each host saw.
fn unwrap_offsets(packets: &mut [Packet], numbers: &Numbers, fragments: &[Fragment], seen: &mut Vec<SeenByHost>) {
    let base = [0, 1].map(|side: usize| {
        let isn = numbers.isn[side].map(|isn| isn.wrapping_add(1));
        isn.or(numbers.range[side].map(|range| range.min)).unwrap_or(0)
    });
    let mut goes_far = [false; 2];
    seen.clear();
    for fragment in fragments {
        let own = &mut packets[fragment.packets.clone()];
        let mut furthest = base.map(|base| (base, 0));
        let mut counts = [[0; 4]; 2];
        for packet in own.iter_mut() {
            let side = usize::from(packet.side & 1);
            packet.offset = unwrap_offset(packet.seq, &mut furthest[side]);
            counts[side][packet.direction as usize] += 1;
        }
        let Some(host) = own.first().map(|packet| packet.host) else {
            continue;
        };
        SeenByHost::add(seen, host, &counts);
        for side in [0, 1] {
            goes_far[side] |= furthest[side].1 >= sequence_wraps::MIN_AMBIGUOUS_LEN;
        }
    }
    for side in (0..2).filter(|&side| goes_far[side]) {
        let of_fragment = |fragment: &Fragment| rows_of(packets, std::slice::from_ref(fragment), side).collect();
        let rows: Vec<Vec<u32>> = fragments.iter().map(of_fragment).collect();
        let anchor = fragments
            .iter()
            .position(|fragment| fragment.numbers.isn[side].is_some());
        sequence_wraps::add_missing_wraps(packets, &rows, anchor.unwrap_or(0));
    }
}

/// The stream offset of a packet of one host, given in time order: it is within 2^31 of the furthest one so far.
#[inline]
fn unwrap_offset(seq: u32, furthest: &mut (u32, i64)) -> i64 {
    let offset = furthest.1 + i64::from(distance(seq, furthest.0));
    if offset > furthest.1 {
        *furthest = (seq, offset);
    }
    offset
}

/// Address and port of both sides.
fn endpoints(events: &Events, packets: &[Packet], fragments: &[Fragment]) -> [(u32, u16); 2] {
    let first = fragments
        .iter()
        .find_map(|fragment| packets[fragment.packets.clone()].first());
    let i = first.map_or(0, |packet| packet.event as usize);
    let (src, dst) = (
        (events.src_addr[i], events.src_port[i]),
        (events.dst_addr[i], events.dst_port[i]),
    );
    if first.is_some_and(|packet| packet.is_of(0)) {
        [src, dst]
    } else {
        [dst, src]
    }
}

/// How many packets of each side a host saw being sent and received; a loopback packet is both.
struct SeenByHost {
    host: u16,
    sent: [usize; 2],
    received: [usize; 2],
}

impl SeenByHost {
    /// Append the counts of `host`, by side and direction, after those of previous hosts.
    fn add(known: &mut Vec<Self>, host: u16, counts: &[[usize; 4]; 2]) {
        if known.last().is_none_or(|last| last.host != host) {
            known.push(Self {
                host,
                sent: [0; 2],
                received: [0; 2],
            });
        }
        let Some(last) = known.last_mut() else { return };
        for (side, counts) in counts.iter().enumerate() {
            let of = |direction: Direction| counts[direction as usize];
            last.sent[side] += of(Direction::Send) + of(Direction::Loopback);
            last.received[side] += of(Direction::Receive) + of(Direction::Loopback);
        }
    }
}

/// The host that saw most packets of a direction. If `owner`, the host that has the address, saw any, it is that one:
/// the others forwarded them.
fn busiest_host(hosts: &[SeenByHost], count: impl Fn(&SeenByHost) -> usize, owner: u16) -> u16 {
    let saw_any = hosts.iter().filter(|seen| count(seen) > 0);
    saw_any
        .max_by_key(|seen| (seen.host == owner, count(seen)))
        .map_or(NO_HOST, |seen| seen.host)
}

/// The side that sent a SYN without ACK; else the one that did not send the SYN-ACK; else the one whose peer is known to
/// be a server; else the one with the higher port.
fn client_side(events: &Events, packets: &[Packet], fragments: &[Fragment], sides: &[Side; 2]) -> usize {
    let sent = |side: usize, ack: bool| {
        rows_of(packets, fragments, side)
            .take(8)
            .map(|row| &packets[row as usize])
            .any(|packet| packet.has(flag::SYN) && packet.has(flag::ACK) == ack)
    };
    if sent(0, false) || sent(1, true) {
        0
    } else if sent(1, false) || sent(0, true) {
        1
    } else {
        let is_server = |side: &Side| events.servers.binary_search(&(side.addr, side.port)).is_ok();
        match (is_server(&sides[0]), is_server(&sides[1])) {
            (true, false) => 1,
            (false, true) => 0,
            _ => usize::from(sides[1].port > sides[0].port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(group_of: &[u32], counts: &[u32]) -> Groups {
        scatter(group_of.to_vec(), counts)
    }

    #[test]
    fn a_run_has_few_events_or_one_group() {
        let groups = groups(&[0, 1, 0, 2, 2, 2, 2, 3, 1, 4], &[2, 2, 4, 1, 1]);
        let found: Vec<_> = groups.runs_of(3).collect();
        assert_eq!(found, [0..1, 1..2, 2..3, 3..5]);
        assert_eq!(groups.runs_of(4).collect::<Vec<_>>(), [0..2, 2..3, 3..5]);
        assert_eq!(
            found.iter().map(|run| groups.event_range(run)).collect::<Vec<_>>(),
            [0..3, 1..9, 3..7, 7..10]
        );
        assert_eq!(groups.places_of(&(2..3)), 4..8);
        assert_eq!(scatter(Vec::new(), &[]).runs().count(), 0);
    }

    #[test]
    fn the_packets_of_a_run_are_in_the_order_of_its_groups() {
        let groups = groups(&[0, 1, 0, 2, 2, 2, 2, 3, 1, 4], &[2, 2, 4, 1, 1]);
        let (bytes, shorts, words) = ([0_u8; 10], [0_u16; 10], [0_u32; 10]);
        let host_ns: Vec<i64> = (100..110).collect();
        let events = Events {
            host: &shorts,
            point: &shorts,
            host_ns: &host_ns,
            direction: &bytes,
            src_addr: &words,
            dst_addr: &words,
            src_port: &shorts,
            dst_port: &shorts,
            seq: &words,
            ack: &words,
            flags: &shorts,
            window: &shorts,
            payload_len: &words,
            tsval: &words,
            tsecr: &words,
            options: &bytes,
            mss: &shorts,
            window_scale: &bytes,
            sack_hash: &words,
            ..Events::default()
        };
        let (mut packets, mut found) = (Vec::new(), Vec::new());
        for run in groups.runs_of(3) {
            copy_packets(&events, &groups, &run, &mut packets);
            found.push(packets.iter().map(|packet| packet.event).collect::<Vec<_>>());
            assert!(
                packets
                    .iter()
                    .all(|packet| packet.host_ns == 100 + i64::from(packet.event))
            );
        }
        assert_eq!(found, [vec![0, 2], vec![1, 8], vec![3, 4, 5, 6], vec![7, 9]]);
    }
}
