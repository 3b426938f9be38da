//! Pairs data: the stream is cut into atoms at the union of both sides' packet boundaries, and the send and the receive
//! that carried each atom are paired.
//!
//! Nearly all flows are *in order*: the ranges of each side ascend and do not overlap, since nothing was retransmitted
//! or reordered. There pairing is one merge of two sorted lists. Otherwise a sweep over the sorted boundaries keeps the
//! set of packets that cover the current atom.

use crate::flow::{Context, Flow, certain_headers};
use crate::output::{Hop, Kind, State};
use crate::resolve::{Carrier, Certain, Evidence, MAX_CANDIDATES, Partner, resolve, same_stamp};

/// Payload bytes of a full packet where no MSS was captured: Ethernet's 1500 less IP, TCP and the timestamps option.
const DEFAULT_FULL_PAYLOAD_LEN: i64 = 1448;
/// Steps of a sweep (carriers of an atom, and pairs of them) that are allowed for each range, and in addition once.
const SWEEP_STEPS_PER_RANGE: usize = 64;
const SWEEP_STEPS_BASE: usize = 1 << 16;
/// With at most this many ranges a sweep is always allowed: n ranges have at most 2n atoms of less than n²/2 steps
/// each, which is below `SWEEP_STEPS_BASE`.
const ALWAYS_SWEPT_RANGES: usize = 40;
/// Length of the timestamps option with its padding (RFC 7323 appendix A).
const TIMESTAMPS_LEN: i64 = 12;

/// Bytes `[start, end)` that one packet carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    end: i64,
    row: u32,
}

impl Range {
    fn carrier(&self) -> Carrier {
        Carrier {
            row: self.row,
            start: self.start,
        }
    }
}

/// Buffers that are reused for each flow.
#[derive(Default)]
pub(crate) struct Buffers {
    sends: Vec<Range>,
    receives: Vec<Range>,
}

/// Append the hops of all data of `flow`.
pub(crate) fn match_data(context: &Context, flow: &Flow, buffers: &mut Buffers, hops: &mut Vec<Hop>) {
    let Buffers { sends, receives } = buffers;
    fill_ranges(context, &flow.sends, sends);
    fill_ranges(context, &flow.receives, receives);
    let first = hops.len();
    if in_order(sends) && in_order(receives) {
        if merge(context, sends, receives, hops) {
            return;
        }
        hops.truncate(first);
    }
    if is_too_much(sends, receives) {
        leave_ambiguous(sends, receives, hops);
    } else {
        sweep(context, flow, sends, receives, hops);
    }
}

fn fill_ranges(context: &Context, rows: &[u32], ranges: &mut Vec<Range>) {
    ranges.clear();
    let with_data = rows.iter().map(|&row| (row, context.packets.at(row)));
    let with_data = with_data.filter(|(_, packet)| packet.carries_data());
    ranges.extend(with_data.map(|(row, packet)| {
        let (start, end) = packet.data_range();
        Range { start, end, row }
    }));
}

fn in_order(ranges: &[Range]) -> bool {
    ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

/// Whether a sweep would take more than the allowed steps. In TCP a byte has a few carriers, whatever the loss; only
/// hostile input has thousands of carriers for thousands of atoms.
fn is_too_much(sends: &[Range], receives: &[Range]) -> bool {
    if sends.len() + receives.len() <= ALWAYS_SWEPT_RANGES {
        return false;
    }
    let limit = SWEEP_STEPS_PER_RANGE * (sends.len() + receives.len()) + SWEEP_STEPS_BASE;
    // (position, change of the sends, change of the receives that cover it)
    let mut changes: Vec<(i64, i32, i32)> = Vec::with_capacity(2 * (sends.len() + receives.len()));
    changes.extend(sends.iter().flat_map(|range| [(range.start, 1, 0), (range.end, -1, 0)]));
    changes.extend(
        receives
            .iter()
            .flat_map(|range| [(range.start, 0, 1), (range.end, 0, -1)]),
    );
    changes.sort_by_key(|&(position, _, _)| position); // stable: fast on sorted runs, and most are
    let (mut sent, mut received, mut steps) = (0, 0, 0_usize);
    for at_one_place in changes.chunk_by(|a, b| a.0 == b.0) {
        sent += at_one_place.iter().map(|change| change.1).sum::<i32>();
        received += at_one_place.iter().map(|change| change.2).sum::<i32>();
        steps = steps.saturating_add(steps_of_atom(sent as usize, received as usize));
    }
    steps > limit
}

fn steps_of_atom(sent: usize, received: usize) -> usize {
    let candidates = sent * received;
    sent + received + if candidates > MAX_CANDIDATES { 0 } else { candidates }
}

/// Append every carrier as an ambiguous hop of its own.
fn leave_ambiguous(sends: &[Range], receives: &[Range], hops: &mut Vec<Hop>) {
    let whole = |range: &Range| (range.start, range.end);
    let lone_send = |range: &Range| Hop::lone_send(Kind::Data, range.row, whole(range), 1, State::Ambiguous);
    hops.extend(sends.iter().map(lone_send));
    let lone_receive = |range: &Range| Hop::lone_receive(Kind::Data, range.row, whole(range), 1, State::Ambiguous);
    hops.extend(receives.iter().map(lone_receive));
}

/// State of sent bytes that no receive carries: if the receiver acknowledged them, they arrived without being captured.
fn unseen_send(context: &Context, end: i64) -> State {
    match (context.receiver_is_captured, context.acknowledged_end() >= end) {
        (false, _) => State::OutsideWindow,
        (true, true) => State::CaptureDropped,
        (true, false) => State::Lost,
    }
}

fn unseen_receive(context: &Context) -> State {
    if context.sender_is_captured {
        State::CaptureDropped
    } else {
        State::OutsideWindow
    }
}

/// Pair two sides that are both in order, by merging them. Returns false, with hops unfinished, if the only send and
/// the only receive of some bytes bear different timestamps: one capture missed a copy, or a device on the path
/// rewrites timestamps.
fn merge(context: &Context, sends: &[Range], receives: &[Range], hops: &mut Vec<Hop>) -> bool {
    let lone_send =
        |s: &Range, from: i64, to: i64| Hop::lone_send(Kind::Data, s.row, (from, to), 1, unseen_send(context, to));
    let lone_receive =
        |r: &Range, from: i64, to: i64| Hop::lone_receive(Kind::Data, r.row, (from, to), 1, unseen_receive(context));
    let (mut s, mut r) = (sends.iter().copied(), receives.iter().copied());
    let (mut send, mut receive) = (s.next(), r.next());
    loop {
        match (&mut send, &mut receive) {
            (Some(a), Some(b)) if a.start < b.start => {
                let to = a.end.min(b.start);
                hops.push(lone_send(a, a.start, to));
                a.start = to;
            }
            (Some(a), Some(b)) if b.start < a.start => {
                let to = b.end.min(a.start);
                hops.push(lone_receive(b, b.start, to));
                b.start = to;
            }
            (Some(a), Some(b)) => {
                if same_stamp(context.packets, a.row, b.row) == Some(false) {
                    return false;
                }
                let to = a.end.min(b.end);
                hops.push(Hop::both(Kind::Data, a.row, b.row, (a.start, to), 1));
                (a.start, b.start) = (to, to);
            }
            (Some(a), None) => {
                hops.push(lone_send(a, a.start, a.end));
                a.start = a.end;
            }
            (None, Some(b)) => {
                hops.push(lone_receive(b, b.start, b.end));
                b.start = b.end;
            }
            (None, None) => return true,
        }
        if send.is_some_and(|a| a.start == a.end) {
            send = s.next();
        }
        if receive.is_some_and(|b| b.start == b.end) {
            receive = r.next();
        }
    }
}

/// Pair two sides of which one is not in order, atom by atom.
fn sweep(context: &Context, flow: &Flow, sends: &[Range], receives: &[Range], hops: &mut Vec<Hop>) {
    let evidence = weigh_evidence(context, flow, sends, receives);
    let mut open = OpenHops {
        hops,
        first_open: usize::MAX,
    };
    open.first_open = open.hops.len();
    for_each_atom(sends, receives, |start, end, sent, received| match (sent, received) {
        ([send], [receive]) if !evidence.other_stamps(context.packets, send.row, receive.row) => {
            open.extend(Hop::both(Kind::Data, send.row, receive.row, (start, end), 1));
        }
        _ => resolve_atom(context, &evidence, (start, end), sent, received, &mut open),
    });
}

/// Call `visit(start, end, sends, receives)` for each atom, with the ranges that cover it in time order.
fn for_each_atom(sends: &[Range], receives: &[Range], mut visit: impl FnMut(i64, i64, &[Range], &[Range])) {
    let mut boundaries: Vec<i64> = sends
        .iter()
        .chain(receives)
        .flat_map(|range| [range.start, range.end])
        .collect();
    boundaries.sort_unstable();
    boundaries.dedup();
    let (mut waiting_sends, mut waiting_receives) = (Waiting::new(sends), Waiting::new(receives));
    for pair in boundaries.windows(2) {
        waiting_sends.advance(pair[0]);
        waiting_receives.advance(pair[0]);
        let (sent, received) = (&waiting_sends.active, &waiting_receives.active);
        if !sent.is_empty() || !received.is_empty() {
            visit(pair[0], pair[1], sent, received);
        }
    }
}

/// Ranges by start, and those that cover the sweep's position, in time order.
struct Waiting<'a> {
    ranges: &'a [Range],
    by_start: Vec<u32>,
    next: usize,
    active: Vec<Range>,
    active_order: Vec<u32>,
}

impl<'a> Waiting<'a> {
    fn new(ranges: &'a [Range]) -> Self {
        let mut by_start: Vec<u32> = (0..).take(ranges.len()).collect();
        by_start.sort_by_key(|&index| ranges[index as usize].start);
        Self {
            ranges,
            by_start,
            next: 0,
            active: Vec::new(),
            active_order: Vec::new(),
        }
    }

    fn advance(&mut self, position: i64) {
        let ended = |order: &u32| self.ranges[*order as usize].end <= position;
        self.active_order.retain(|order| !ended(order));
        while let Some(&order) = self
            .by_start
            .get(self.next)
            .filter(|&&o| self.ranges[o as usize].start <= position)
        {
            let place = self.active_order.partition_point(|&other| other < order);
            self.active_order.insert(place, order);
            self.next += 1;
        }
        self.active.clear();
        self.active
            .extend(self.active_order.iter().map(|&order| self.ranges[order as usize]));
    }
}

fn resolve_atom(
    context: &Context,
    evidence: &Evidence,
    range: (i64, i64),
    sent: &[Range],
    received: &[Range],
    open: &mut OpenHops,
) {
    let carriers = |ranges: &[Range]| ranges.iter().map(Range::carrier).collect::<Vec<_>>();
    let (sends, receives) = (carriers(sent), carriers(received));
    let (of_sends, of_receives) = resolve(context, evidence, &sends, &receives, range.0);
    for (index, (send, partner)) in sends.iter().zip(&of_sends).enumerate() {
        let attempt = attempt_number(index);
        open.extend(match partner {
            Partner::Of(receive) => Hop::both(Kind::Data, send.row, receives[*receive].row, range, attempt),
            Partner::Ambiguous => Hop::lone_send(Kind::Data, send.row, range, attempt, State::Ambiguous),
            Partner::None => {
                let superseded = index + 1 < sends.len() || !receives.is_empty();
                let state = match unseen_send(context, range.1) {
                    State::CaptureDropped if superseded => State::Lost,
                    state => state,
                };
                Hop::lone_send(Kind::Data, send.row, range, attempt, state)
            }
        });
    }
    for (index, (receive, partner)) in receives.iter().zip(&of_receives).enumerate() {
        let of_unseen_send = || {
            let other = |send: &Carrier| evidence.other_stamps(context.packets, send.row, receive.row);
            sends.iter().all(other)
        };
        let state = match partner {
            Partner::Of(_) => continue,
            Partner::Ambiguous => State::Ambiguous,
            Partner::None if of_unseen_send() => unseen_receive(context),
            Partner::None => State::Unmatched,
        };
        open.extend(Hop::lone_receive(
            Kind::Data,
            receive.row,
            range,
            attempt_number(index),
            state,
        ));
    }
}

fn attempt_number(index: usize) -> u16 {
    u16::try_from(index + 1).unwrap_or(u16::MAX)
}

/// Hops under construction: an atom that continues a hop of the same carriers is joined to it.
struct OpenHops<'a> {
    hops: &'a mut Vec<Hop>,
    first_open: usize,
}

impl OpenHops<'_> {
    /// How many of the latest hops an atom may continue; more carriers overlap only in hostile input.
    const MAX_OPEN_HOPS: usize = 16;

    fn extend(&mut self, hop: Hop) {
        let from = self.hops.len().saturating_sub(Self::MAX_OPEN_HOPS).max(self.first_open);
        let continued = self.hops[from..].iter_mut().rev().find(|known| {
            known.stream_end == hop.stream_start
                && (known.send, known.receive) == (hop.send, hop.receive)
                && (known.attempt, known.state) == (hop.attempt, hop.state)
        });
        match continued {
            Some(known) => known.stream_end = hop.stream_end,
            None => self.hops.push(hop),
        }
    }
}

/// Judge this flow's IP IDs by the headers that occur once at each end and by the atoms with one send and one receive.
fn weigh_evidence(context: &Context, flow: &Flow, sends: &[Range], receives: &[Range]) -> Evidence {
    let mut certain: Vec<Certain> = certain_headers(context).collect();
    for_each_atom(sends, receives, |offset, _, sent, received| {
        if let ([send], [receive]) = (sent, received) {
            certain.push(Certain {
                send: send.carrier(),
                receive: receive.carrier(),
                offset,
            });
        }
    });
    Evidence::weigh(context, flow, full_payload_len(context), certain)
}

/// Payload bytes of a full packet, from the MSS that both ends announced.
fn full_payload_len(context: &Context) -> i64 {
    let stamped = context.timestamps_in_use();
    match context.mss {
        0 => DEFAULT_FULL_PAYLOAD_LEN,
        mss => (i64::from(mss) - if stamped { TIMESTAMPS_LEN } else { 0 }).max(1),
    }
}
