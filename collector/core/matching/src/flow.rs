//! One connection: its two flows, and what each shows about the other (acknowledgements, and a bound on the clock
//! offset).

use std::cell::OnceCell;

use crate::connections::{Incarnation, Side, distance};
use crate::output::{Hop, Kind, MatchResult, Pause, State};
use crate::packets::{Packet, Packets, Rows};
use crate::points::{Nearest, keep_one_point};
use crate::resolve::{Carrier, CausalBound, Certain, CertainTransfers};
use crate::{Direction, Events, NO_HOST, control, crossings, data, flag, pauses};

/// Buffers that are reused for each connection, so that a million short connections allocate little.
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

    /// Keep one point's packets of each host, and move what other points saw of the same to `duplicates`.
    fn keep_one_point_per_host(&mut self, packets: Packets, duplicates: &mut Rows) {
        keep_one_point(packets, &mut self.sends, Nearest::Last, duplicates);
        keep_one_point(packets, &mut self.receives, Nearest::First, duplicates);
        keep_one_point(packets, &mut self.both, Nearest::First, duplicates);
        if !self.sends.is_empty() && !self.receives.is_empty() {
            // If both ends were captured, what forwarding hosts saw is a duplicate.
            duplicates.append(&mut self.others);
        }
    }

    /// Rows of the packets that the sender's host saw leave.
    fn sends_seen(&self) -> &[u32] {
        if self.sends.is_empty() { &self.both } else { &self.sends }
    }

    /// Rows of the packets that the receiver's host saw arrive.
    fn receives_seen(&self) -> &[u32] {
        if self.receives.is_empty() {
            &self.both
        } else {
            &self.receives
        }
    }
}

/// Divide the packets of an incarnation by side and by where they were seen.
fn fill(flows: &mut [Flow; 2], packets: Packets, incarnation: &Incarnation) {
    flows.iter_mut().for_each(Flow::clear);
    for row in incarnation.rows() {
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
    matched: &mut MatchResult,
) {
    fill(&mut scratch.flows, packets, incarnation);
    for flow in &mut scratch.flows {
        flow.keep_one_point_per_host(packets, &mut scratch.duplicates);
    }
    let duplicates = scratch.duplicates.drain(..);
    matched.duplicates.extend(duplicates.map(|row| packets.at(row).event));
    let mss = agreed_mss(packets, &scratch.flows);
    let certain_transfers = [0, 1].map(|number: usize| CertainTransfers::new(packets, &scratch.flows[number]));
    let is_elsewhere = [0, 1].map(|number| is_elsewhere(packets, &incarnation.sides, &scratch.flows, number));
    for (number, sender) in incarnation.sides.iter().enumerate() {
        let receiver = &incarnation.sides[1 - number];
        let (flow, other) = (&scratch.flows[number], &scratch.flows[1 - number]);
        let hosts = (
            seen_or_inferred(sender.send_host, sender.host()),
            seen_or_inferred(sender.receive_host, receiver.host()),
        );
        let bound = CausalBound {
            other: &certain_transfers[1 - number],
        };
        let context = Context {
            events,
            packets,
            bound: &bound,
            certain_transfers: &certain_transfers[number],
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
        let from_client = number != incarnation.client;
        let others = [&flow.others[..], &other.others[..]];
        let passing = if sides.iter().any(|side| side.is_empty()) {
            others
        } else {
            sides
        };
        crossings::find(packets, passing, |offset, crossed| {
            matched.push_crossing(connection, from_client, offset, crossed);
        });
    }
}

/// Whether the connection works at its other end while the host that has a side's address saw nothing of it. Then it
/// bypassed that host's capture, or has another 4-tuple there (a NAT, a proxy), and its packets are not lost.
fn is_elsewhere(packets: Packets, sides: &[Side; 2], flows: &[Flow; 2], number: usize) -> bool {
    let (side, peer) = (&sides[number], &sides[1 - number]);
    let unseen = side.send_host == NO_HOST && peer.receive_host == NO_HOST;
    let syn_acks = || packets.of(&flows[number].receives).any(|packet| !packet.has(flag::RST));
    unseen && peer.send_host != NO_HOST && side.receive_host != NO_HOST && syn_acks()
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

/// What matching of one flow uses besides the flow.
pub(crate) struct Context<'a, 'e> {
    pub events: &'a Events<'e>,
    pub packets: Packets<'a>,
    /// Lower bound on (receive - send) of this flow's hops, from the other flow.
    pub bound: &'a CausalBound<'a>,
    /// This flow's transfers that are certain without [`resolve`](crate::resolve).
    pub certain_transfers: &'a CertainTransfers<'a>,
    /// The flow in the opposite direction.
    pub other: &'a Flow,
    incarnation: &'a Incarnation<'a>,
    side: usize,
    acknowledged: OnceCell<i64>,
    pub sender_is_captured: bool,
    pub receiver_is_captured: bool,
    /// The smaller MSS of both SYNs; 0 if not captured.
    pub mss: u16,
}

impl Context<'_, '_> {
    /// Stream offset up to which the receiver acknowledged; -1 if not even the SYN. Computed when a send without a
    /// receive first needs it.
    pub fn acknowledged_end(&self) -> i64 {
        *self
            .acknowledged
            .get_or_init(|| highest_acknowledged(self.packets, self.other, &self.incarnation.sides[self.side]))
    }

    /// IP ID of a packet; -1 if it has none.
    pub fn ip_id(&self, row: u32) -> i32 {
        self.events.ip_id[self.packets.at(row).event as usize]
    }

    /// Whether any of the sender's packets bears a timestamp.
    pub fn timestamps_in_use(&self) -> bool {
        let mut all = self.incarnation.packets(self.packets.0);
        all.any(|packet| packet.is_of(self.side) && packet.is_stamped())
    }

    /// Whether the receiver's last window before `at_ns` (the sender's clock) was closed. The raw field is 0 whatever
    /// the scale.
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
    context
        .certain_transfers
        .pairs()
        .iter()
        .map(move |&(send, receive)| Certain {
            send: at_own_start(send),
            receive: at_own_start(receive),
            offset: 0,
        })
}

/// Append the packets of which one event stands for both ends, and those seen only between the ends.
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

/// The offset up to which the other flow acknowledges this side's stream. Acknowledgement numbers are unwrapped.
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
