//! One connection: its two flows, and what each tells about the other (acknowledgements, and a bound on the clocks).

use std::cell::OnceCell;

use crate::connections::{Incarnation, Placed, Side, distance};
use crate::output::{Hop, Kind, Matched, Pause, State};
use crate::points::{Nearest, keep_one_point};
use crate::resolve::{Carrier, CausalBound, Certain, Identified};
use crate::{Direction, Events, NO_HOST, control, data, flag, option, pauses};

/// Buffers used again for each connection, so that a million short connections allocate little.
#[derive(Default)]
pub(crate) struct Scratch {
    flows: [Flow; 2],
    hops: Vec<Hop>,
    duplicates: Vec<u32>,
    pauses: Vec<Pause>,
    data: data::Buffers,
    control: control::Buffers,
}

/// What one side sent, split by where it was seen. Each list is in time order.
#[derive(Default, Debug)]
pub(crate) struct Flow {
    pub sends: Vec<Placed>,
    pub receives: Vec<Placed>,
    pub both: Vec<Placed>,
    pub others: Vec<Placed>,
}

impl Flow {
    fn fill(&mut self, events: &Events, side: &Side, duplicates: &mut Vec<u32>) {
        for list in [&mut self.sends, &mut self.receives, &mut self.both, &mut self.others] {
            list.clear();
        }
        for &placed in &side.events {
            let host = events.host[placed.event as usize];
            match events.direction(placed.event) {
                Direction::Send if host == side.send_host => self.sends.push(placed),
                Direction::Receive if host == side.receive_host => self.receives.push(placed),
                Direction::Loopback => self.both.push(placed),
                _ => self.others.push(placed),
            }
        }
        keep_one_point(events, &mut self.sends, Nearest::Last, duplicates);
        keep_one_point(events, &mut self.receives, Nearest::First, duplicates);
        keep_one_point(events, &mut self.both, Nearest::First, duplicates);
        if !self.sends.is_empty() && !self.receives.is_empty() {
            // Both ends speak for themselves; what forwarding hosts saw on the way is theirs.
            duplicates.extend(self.others.drain(..).map(|placed| placed.event));
        }
    }

    /// What its sender's host saw leave.
    fn left(&self) -> &[Placed] {
        if self.sends.is_empty() { &self.both } else { &self.sends }
    }

    /// What its receiver's host saw arrive.
    fn arrived(&self) -> &[Placed] {
        if self.receives.is_empty() {
            &self.both
        } else {
            &self.receives
        }
    }
}

/// Pair both directions of one connection.
pub(crate) fn match_connection(
    events: &Events,
    incarnation: &Incarnation,
    connection: u32,
    scratch: &mut Scratch,
    matched: &mut Matched,
) {
    for (flow, side) in scratch.flows.iter_mut().zip(&incarnation.sides) {
        flow.fill(events, side, &mut scratch.duplicates);
    }
    for event in scratch.duplicates.drain(..) {
        matched.event_duplicate[event as usize] = true;
    }
    let mss = agreed_mss(events, &scratch.flows);
    let identified = [0, 1].map(|number: usize| Identified::new(events, &scratch.flows[number]));
    for (number, sender) in incarnation.sides.iter().enumerate() {
        let receiver = &incarnation.sides[1 - number];
        let (flow, other) = (&scratch.flows[number], &scratch.flows[1 - number]);
        let hosts = (
            known(sender.send_host, sender.host()),
            known(sender.receive_host, receiver.host()),
        );
        let bound = CausalBound {
            other: &identified[1 - number],
        };
        let context = Context {
            events,
            bound: &bound,
            identified: &identified[number],
            other,
            acknowledged: OnceCell::new(),
            sender,
            sender_is_captured: hosts.0 != NO_HOST,
            receiver_is_captured: hosts.1 != NO_HOST,
            mss,
            timestamps_in_use: sender
                .events
                .iter()
                .any(|p| events.options[p.event as usize] & option::TIMESTAMPS != 0),
        };
        scratch.hops.clear();
        data::match_data(&context, flow, &mut scratch.data, &mut scratch.hops);
        control::match_control(&context, flow, &mut scratch.control, &mut scratch.hops);
        match_unpaired(&context, flow, &mut scratch.hops);
        matched.push_hops(connection, number == incarnation.client, hosts, &scratch.hops);
        scratch.pauses.clear();
        pauses::find(events, flow.left(), other.arrived(), mss, &mut scratch.pauses);
        matched.push_pauses(connection, number == incarnation.client, hosts.0, &scratch.pauses);
    }
}

/// The smaller MSS of the two SYNs; 0 if none was captured.
fn agreed_mss(events: &Events, flows: &[Flow; 2]) -> u16 {
    let announced = flows
        .iter()
        .flat_map(|flow| [flow.sends.first(), flow.receives.first()])
        .flatten();
    announced
        .map(|p| events.mss[p.event as usize])
        .filter(|&mss| mss > 0)
        .min()
        .unwrap_or(0)
}

fn known(seen: u16, inferred: u16) -> u16 {
    if seen == NO_HOST { inferred } else { seen }
}

/// What matching one flow may look at besides the flow.
pub(crate) struct Context<'a, 'e> {
    pub events: &'a Events<'e>,
    /// No hop of this flow can have a smaller (receive - send), by the other flow.
    pub bound: &'a CausalBound<'a, 'e>,
    /// This flow's transfers that need no resolving.
    pub identified: &'a Identified<'a, 'e>,
    /// The flow against this one.
    pub other: &'a Flow,
    sender: &'a Side,
    acknowledged: OnceCell<i64>,
    pub sender_is_captured: bool,
    pub receiver_is_captured: bool,
    /// The smaller MSS of both SYNs; 0 if not captured.
    pub mss: u16,
    pub timestamps_in_use: bool,
}

impl Context<'_, '_> {
    /// Stream offset up to which the receiver acknowledged; -1 if nothing, not even the SYN. Only lone sends ask for it.
    pub fn acknowledged(&self) -> i64 {
        *self
            .acknowledged
            .get_or_init(|| highest_acknowledged(self.events, self.other, self.sender))
    }

    /// Had the receiver's latest window before `at_ns` (the sender's clock) shut? The raw field is 0 whatever the scale.
    pub fn receiver_window_closed(&self, at_ns: i64) -> bool {
        let earlier = self
            .other
            .receives
            .partition_point(|p| self.events.host_ns[p.event as usize] < at_ns);
        let latest = earlier.checked_sub(1).map(|index| self.other.receives[index].event);
        latest.is_some_and(|event| self.events.window[event as usize] == 0 && !self.events.has(event, flag::RST))
    }
}

/// The flow's transfers whose header occurs once at each end.
pub(crate) fn certain_headers<'a>(context: &'a Context) -> impl Iterator<Item = Certain> + 'a {
    let at_own_start = |event| Carrier { event, start: 0 };
    context.identified.pairs().iter().map(move |&(send, receive)| Certain {
        send: at_own_start(send),
        receive: at_own_start(receive),
        offset: 0,
    })
}

/// What was seen once for both ends, or only on the way.
fn match_unpaired(context: &Context, flow: &Flow, hops: &mut Vec<Hop>) {
    for placed in &flow.both {
        let range = data_range(context.events, placed);
        hops.push(Hop::both(
            kind_of(context.events, placed),
            placed.event,
            placed.event,
            range,
            1,
        ));
    }
    for placed in &flow.others {
        let range = data_range(context.events, placed);
        hops.push(Hop::lone_receive(
            kind_of(context.events, placed),
            placed.event,
            range,
            1,
            State::Unmatched,
        ));
    }
}

/// The bytes of the stream that an event carries; start = end for a zero-length segment.
pub(crate) fn data_range(events: &Events, placed: &Placed) -> (i64, i64) {
    let start = placed.offset + i64::from(events.has(placed.event, flag::SYN) && carries_data(events, placed));
    (start, start + i64::from(events.payload_len[placed.event as usize]))
}

pub(crate) fn carries_data(events: &Events, placed: &Placed) -> bool {
    events.payload_len[placed.event as usize] > 0
}

/// The kind as the header alone tells it; a keepalive needs the flow's history (see `control`).
pub(crate) fn kind_of(events: &Events, placed: &Placed) -> Kind {
    let has = |flag| events.has(placed.event, flag);
    if has(flag::RST) {
        Kind::Rst
    } else if has(flag::SYN) {
        if has(flag::ACK) { Kind::SynAck } else { Kind::Syn }
    } else if carries_data(events, placed) {
        Kind::Data
    } else if has(flag::FIN) {
        Kind::Fin
    } else {
        Kind::Ack
    }
}

/// How far the other flow acknowledges this side's stream, as an offset. The acks are unwrapped along the way.
fn highest_acknowledged(events: &Events, other: &Flow, side: &Side) -> i64 {
    let Some(first) = side.events.first() else { return -1 };
    let mut highest = -1;
    for list in [&other.sends, &other.both, &other.receives] {
        let mut furthest = (events.seq[first.event as usize], first.offset);
        for placed in list.iter().filter(|p| events.has(p.event, flag::ACK)) {
            let ack = events.ack[placed.event as usize];
            let offset = furthest.1 + i64::from(distance(ack, furthest.0));
            if offset > furthest.1 {
                furthest = (ack, offset);
            }
            highest = highest.max(offset);
        }
    }
    highest
}
