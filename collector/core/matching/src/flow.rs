//! One connection: its two flows, and what each shows about the other (acknowledgements, and a bound on the clock
//! offset).

use std::cell::OnceCell;

use crate::connections::{Incarnation, Side, distance};
use crate::output::{Hop, Kind, Matched, Pause, State};
use crate::packets::{Packet, Packets, Rows};
use crate::points::{Nearest, keep_one_point};
use crate::resolve::{Carrier, CausalBound, Certain, Identified};
use crate::{Direction, Events, NO_HOST, control, data, flag, pauses};

/// Buffers used again for each connection, so that a million short connections allocate little.
#[derive(Default)]
pub(crate) struct Scratch {
    flows: [Flow; 2],
    hops: Vec<Hop>,
    duplicates: Rows,
    pauses: Vec<Pause>,
    data: data::Buffers,
    control: control::Buffers,
}

/// What one side sent, split by where it was seen. Each list is in time order.
#[derive(Default, Debug)]
pub(crate) struct Flow {
    pub sends: Rows,
    pub receives: Rows,
    pub both: Rows,
    pub others: Rows,
}

impl Flow {
    fn clear(&mut self) {
        for list in [&mut self.sends, &mut self.receives, &mut self.both, &mut self.others] {
            list.clear();
        }
    }

    /// Have one point of each host speak; what others saw of the same goes to `duplicates`.
    fn settle(&mut self, packets: Packets, duplicates: &mut Rows) {
        keep_one_point(packets, &mut self.sends, Nearest::Last, duplicates);
        keep_one_point(packets, &mut self.receives, Nearest::First, duplicates);
        keep_one_point(packets, &mut self.both, Nearest::First, duplicates);
        if !self.sends.is_empty() && !self.receives.is_empty() {
            // Both ends speak for themselves; what forwarding hosts saw on the way is theirs.
            duplicates.append(&mut self.others);
        }
    }

    /// What its sender's host saw leave.
    fn sends_seen(&self) -> &[u32] {
        if self.sends.is_empty() { &self.both } else { &self.sends }
    }

    /// What its receiver's host saw arrive.
    fn receives_seen(&self) -> &[u32] {
        if self.receives.is_empty() {
            &self.both
        } else {
            &self.receives
        }
    }
}

/// The packets of an incarnation, by side and by where they were seen.
fn fill(flows: &mut [Flow; 2], packets: Packets, incarnation: &Incarnation) {
    flows.iter_mut().for_each(Flow::clear);
    for row in incarnation.parts.iter().flat_map(Clone::clone) {
        let packet = &packets.0[row];
        let side = usize::from(packet.side & 1);
        let (flow, ends) = (&mut flows[side], &incarnation.sides[side]);
        let list = match packet.direction {
            Direction::Send if packet.host == ends.send_host => &mut flow.sends,
            Direction::Receive if packet.host == ends.receive_host => &mut flow.receives,
            Direction::Loopback => &mut flow.both,
            _ => &mut flow.others,
        };
        list.push(row as u32);
    }
}

/// Pair both directions of one connection, whose packets are among those of its 4-tuple.
pub(crate) fn match_connection(
    events: &Events,
    packets: Packets,
    incarnation: &Incarnation,
    connection: i64,
    scratch: &mut Scratch,
    matched: &mut Matched,
) {
    fill(&mut scratch.flows, packets, incarnation);
    for flow in &mut scratch.flows {
        flow.settle(packets, &mut scratch.duplicates);
    }
    let duplicates = scratch.duplicates.drain(..);
    matched.duplicates.extend(duplicates.map(|row| packets.at(row).event));
    let mss = agreed_mss(packets, &scratch.flows);
    let identified = [0, 1].map(|number: usize| Identified::new(packets, &scratch.flows[number]));
    let is_elsewhere = [0, 1].map(|number| is_elsewhere(packets, &incarnation.sides, &scratch.flows, number));
    for (number, sender) in incarnation.sides.iter().enumerate() {
        let receiver = &incarnation.sides[1 - number];
        let (flow, other) = (&scratch.flows[number], &scratch.flows[1 - number]);
        let hosts = (
            seen_or_inferred(sender.send_host, sender.host()),
            seen_or_inferred(sender.receive_host, receiver.host()),
        );
        let bound = CausalBound {
            other: &identified[1 - number],
        };
        let context = Context {
            events,
            packets,
            bound: &bound,
            identified: &identified[number],
            other,
            acknowledged: OnceCell::new(),
            incarnation,
            side: number,
            sender_is_captured: hosts.0 != NO_HOST && !is_elsewhere[number],
            receiver_is_captured: hosts.1 != NO_HOST && !is_elsewhere[1 - number],
            mss,
        };
        scratch.hops.clear();
        data::match_data(&context, flow, &mut scratch.data, &mut scratch.hops);
        control::match_control(&context, flow, &mut scratch.control, &mut scratch.hops);
        match_unpaired(&context, flow, &mut scratch.hops);
        matched.push_hops(packets, connection, number == incarnation.client, hosts, &scratch.hops);
        scratch.pauses.clear();
        let sides = [flow.sends_seen(), other.receives_seen()];
        pauses::find(packets, sides, mss, &mut scratch.pauses);
        matched.push_pauses(connection, number == incarnation.client, hosts.0, &scratch.pauses);
    }
}

/// Is the connection well at its other end, while the host whose address a side has saw nothing of it at all? Then it
/// passed that host's capture by, or goes by another 4-tuple there (a NAT, a proxy): nothing of it was lost.
fn is_elsewhere(packets: Packets, sides: &[Side; 2], flows: &[Flow; 2], number: usize) -> bool {
    let (side, peer) = (&sides[number], &sides[1 - number]);
    let unseen = side.send_host == NO_HOST && peer.receive_host == NO_HOST;
    let answers = || packets.of(&flows[number].receives).any(|packet| !packet.has(flag::RST));
    unseen && peer.send_host != NO_HOST && side.receive_host != NO_HOST && answers()
}

/// The smaller MSS of the two SYNs; 0 if none was captured.
fn agreed_mss(packets: Packets, flows: &[Flow; 2]) -> u16 {
    let first = flows
        .iter()
        .flat_map(|flow| [flow.sends.first(), flow.receives.first()]);
    let announced = first.flatten().map(|&row| packets.at(row).mss);
    announced.filter(|&mss| mss > 0).min().unwrap_or(0)
}

fn seen_or_inferred(seen: u16, inferred: u16) -> u16 {
    if seen == NO_HOST { inferred } else { seen }
}

/// What matching one flow may look at besides the flow.
pub(crate) struct Context<'a, 'e> {
    pub events: &'a Events<'e>,
    pub packets: Packets<'a>,
    /// No hop of this flow can have a smaller (receive - send), by the other flow.
    pub bound: &'a CausalBound<'a>,
    /// This flow's transfers that need no resolving.
    pub identified: &'a Identified<'a>,
    /// The flow against this one.
    pub other: &'a Flow,
    incarnation: &'a Incarnation,
    side: usize,
    acknowledged: OnceCell<i64>,
    pub sender_is_captured: bool,
    pub receiver_is_captured: bool,
    /// The smaller MSS of both SYNs; 0 if not captured.
    pub mss: u16,
}

impl Context<'_, '_> {
    /// Stream offset up to which the receiver acknowledged; -1 if nothing, not even the SYN. Computed when first
    /// needed, by a send that has no receive.
    pub fn acknowledged_end(&self) -> i64 {
        *self
            .acknowledged
            .get_or_init(|| highest_acknowledged(self.packets, self.other, &self.incarnation.sides[self.side]))
    }

    /// Of a packet; -1 if it has none.
    pub fn ip_id(&self, row: u32) -> i32 {
        self.events.ip_id[self.packets.at(row).event as usize]
    }

    /// Does any of the sender's packets bear a timestamp?
    pub fn timestamps_in_use(&self) -> bool {
        let mut all = self.incarnation.packets(self.packets.0);
        all.any(|packet| packet.is_of(self.side) && packet.is_stamped())
    }

    /// Had the receiver's latest window before `at_ns` (the sender's clock) shut? The raw field is 0 whatever the
    /// scale.
    pub fn receiver_window_closed(&self, at_ns: i64) -> bool {
        let received = &self.other.receives;
        let earlier = received.partition_point(|&row| self.packets.at(row).host_ns < at_ns);
        let latest = earlier.checked_sub(1).map(|index| self.packets.at(received[index]));
        latest.is_some_and(|packet| packet.window == 0 && !packet.has(flag::RST))
    }
}

/// The flow's transfers whose header occurs once at each end.
pub(crate) fn certain_headers<'a>(context: &'a Context) -> impl Iterator<Item = Certain> + 'a {
    let at_own_start = |row| Carrier { row, start: 0 };
    context.identified.pairs().iter().map(move |&(send, receive)| Certain {
        send: at_own_start(send),
        receive: at_own_start(receive),
        offset: 0,
    })
}

/// What was seen once for both ends, or only on the way.
fn match_unpaired(context: &Context, flow: &Flow, hops: &mut Vec<Hop>) {
    for &row in &flow.both {
        let packet = context.packets.at(row);
        hops.push(Hop::both(kind_of(packet), row, row, packet.data_range(), 1));
    }
    for &row in &flow.others {
        let packet = context.packets.at(row);
        let (kind, range) = (kind_of(packet), packet.data_range());
        hops.push(Hop::lone_receive(kind, row, range, 1, State::Unmatched));
    }
}

/// The kind by the header alone; recognising a keepalive needs the flow's history (see `control`).
pub(crate) fn kind_of(packet: &Packet) -> Kind {
    if packet.has(flag::RST) {
        Kind::Rst
    } else if packet.has(flag::SYN) {
        if packet.has(flag::ACK) { Kind::SynAck } else { Kind::Syn }
    } else if packet.carries_data() {
        Kind::Data
    } else if packet.has(flag::FIN) {
        Kind::Fin
    } else {
        Kind::Ack
    }
}

/// How far the other flow acknowledges this side's stream, as an offset. The acks are unwrapped along the way.
fn highest_acknowledged(packets: Packets, other: &Flow, side: &Side) -> i64 {
    let Some(first) = side.first.map(|row| packets.at(row)) else {
        return -1;
    };
    let mut highest = -1;
    for list in [&other.sends, &other.both, &other.receives] {
        let mut furthest = (first.seq, first.offset);
        for packet in packets.of(list).filter(|packet| packet.has(flag::ACK)) {
            let offset = furthest.1 + i64::from(distance(packet.ack, furthest.0));
            if offset > furthest.1 {
                furthest = (packet.ack, offset);
            }
            highest = highest.max(offset);
        }
    }
    highest
}
