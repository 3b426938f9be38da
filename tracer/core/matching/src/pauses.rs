//! Where a sender stood still although it had more to send, and went on at once when an acknowledgement came.
//!
//! Seen from the sender's host alone, so on one clock, in the order of its capture:
//! ```text
//! sender   data ──▶ ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ data ──▶
//!          stopped        ▲ released          resumed
//!                         └ an ACK without data: more was acknowledged, or the window moved
//! ```
//! Application that has nothing to send resumes at any time; only TCP resumes within microseconds of an ACK. What held it
//! (window, congestion window, Nagle's rule) is told later, from the figures of each [`Pause`]
//! (`collector.hops.sender_pauses`). A window that closed and was probed is a pause even if it never opened. A copy of
//! what was sent (a tail loss probe) does not hide that new bytes had to wait: a pause is listed by how long these did,
//! though it is measured from the copy; since when the window had no room is noted beside it.
//!
//! Limits: an application that happens to write in the [`SOON_NS`] behind an ACK looks the same; an ACK that comes with
//! data is taken for the other side's turn.
//!
//! Source: RFC 9293 §3.8.6 (window), RFC 5681 (congestion window), RFC 1122 §4.2.3.4 (Nagle's rule), RFC 7323 §2.3.

use crate::connections::distance;
use crate::flag;
use crate::output::Pause;
use crate::packets::{Packet, Packets};

/// A shorter pause is told by nobody: the network's own delay within a site.
pub const PAUSE_NS: i64 = 1_000_000;
/// The kernel goes on so soon after the ACK that lets it; the capture is in between.
pub const SOON_NS: i64 = 500_000;
/// Without sending for so long, Linux begins anew with its initial window (`tcp_slow_start_after_idle`): the least
/// retransmission timeout, `TCP_RTO_MIN`.
const IDLE_NS: i64 = 200_000_000;
/// RFC 7323 §2.3.
const MOST_SCALE: u8 = 14;
/// The column's mark for an option that was not given.
const NO_SCALE: u8 = 255;

/// Append the pauses of one side to `found`: rows of what its host saw leave, and of what it saw arrive, each in the order
/// of the capture. Cost: a look at each packet sent; a walk over both where one came late.
pub(crate) fn find(packets: Packets, [own, peer]: [&[u32]; 2], mss: u16, found: &mut Vec<Pause>) {
    let (Some(&first), Some(&other)) = (own.first(), peer.first()) else {
        return;
    };
    if packets.at(first).host != packets.at(other).host || !has_gap(packets.of(own)) {
        return;
    }
    let mut sender = Sender::new(i64::from(mss));
    let mut arrivals = packets.of(peer).peekable();
    for sent in packets.of(own) {
        while let Some(arrived) = arrivals.next_if(|arrived| arrived.event < sent.event) {
            sender.hears(arrived);
        }
        sender.sends(sent, found);
    }
    for arrived in arrivals {
        sender.hears(arrived);
    }
    sender.ends(found);
}

/// Did data, or a probe of a closed window, leave long after the data before it?
fn has_gap<'a>(mut own: impl Iterator<Item = &'a Packet>) -> bool {
    let (mut last_ns, mut end) = (i64::MAX, i64::MIN);
    own.any(|packet| {
        let length = i64::from(packet.payload_len);
        let gap = packet.host_ns.saturating_sub(last_ns) >= PAUSE_NS;
        let probes = length == 0 && packet.offset < end;
        let reach = packet.offset.saturating_add(length);
        if length > 0 && reach > end {
            (last_ns, end) = (packet.host_ns, reach);
        }
        gap && (length > 0 || probes)
    })
}

/// What the sender had been told by its peer.
#[derive(Clone, Copy)]
struct Told {
    /// Everything before this offset had arrived.
    acknowledged: i64,
    /// It may send up to here; `None` where the window's scale is not known.
    edge: Option<i64>,
    closed: bool,
    /// Since when it had no room for a segment.
    full_ns: Option<i64>,
}

struct Sender {
    mss: i64,
    own_scale: Option<u8>,
    peer_scale: Option<u8>,
    /// Offset past all that was sent; `None` before anything was.
    next: Option<i64>,
    /// Its last packet: the place that acknowledgements are counted from.
    last: Option<(u32, i64)>,
    stopped_ns: i64,
    /// When bytes left that had not before.
    new_ns: i64,
    in_flight: i64,
    told: Told,
    /// As it was before the last acknowledgement that told it something new, and when that came.
    before: Told,
    released_ns: Option<i64>,
    heard_ns: i64,
    /// The peer sent data since this side last did.
    answered: bool,
    probes: u32,
    rtt_ns: Option<i64>,
    most_in_flight: i64,
    idle_ns: i64,
    in_flight_before_idle: i64,
    resent: bool,
}

impl Sender {
    fn new(mss: i64) -> Self {
        let told = Told {
            acknowledged: -1, // not even the SYN, so that its acknowledgement tells the round trip
            edge: None,
            closed: false,
            full_ns: None,
        };
        Self {
            mss,
            own_scale: None,
            peer_scale: None,
            next: None,
            last: None,
            stopped_ns: i64::MAX,
            new_ns: i64::MAX,
            in_flight: 0,
            told,
            before: told,
            released_ns: None,
            heard_ns: 0,
            answered: false,
            probes: 0,
            rtt_ns: None,
            most_in_flight: 0,
            idle_ns: 0,
            in_flight_before_idle: 0,
            resent: false,
        }
    }

    fn hears(&mut self, arrived: &Packet) {
        self.heard_ns = arrived.host_ns;
        if arrived.has(flag::SYN) {
            self.peer_scale = Some(arrived.window_scale);
        }
        if arrived.carries_data() {
            self.answered = true;
        }
        let Some((seq, offset)) = self.last else { return };
        if !arrived.has(flag::ACK) || arrived.has(flag::RST) {
            return;
        }
        let acknowledged = offset.saturating_add(distance(arrived.ack, seq).into());
        let window = self.scaled(arrived.window, arrived.has(flag::SYN));
        let told = Told {
            acknowledged: acknowledged.max(self.told.acknowledged),
            edge: window.map(|window| acknowledged.saturating_add(window)),
            closed: arrived.window == 0,
            full_ns: self.told.full_ns,
        };
        if acknowledged < self.told.acknowledged {
            return; // overtaken by a later one
        }
        let more = acknowledged > self.told.acknowledged;
        let wider = told.edge > self.told.edge || (self.told.closed && !told.closed);
        if more && self.next.is_some_and(|next| acknowledged >= next) && !self.resent && self.stopped_ns != i64::MAX {
            self.measure(self.heard_ns.saturating_sub(self.stopped_ns));
        }
        if (more || wider) && !arrived.carries_data() {
            self.before = self.told;
            self.released_ns = Some(self.heard_ns);
        }
        self.told = told;
        self.note_room(self.heard_ns);
    }

    /// Keep since when the window has had no room for a segment.
    fn note_room(&mut self, now_ns: i64) {
        let next = self.next.unwrap_or(0);
        let has_no_room = |edge: i64| edge.saturating_sub(next) < self.mss.max(1);
        let is_full = self.told.closed || self.told.edge.is_some_and(has_no_room);
        self.told.full_ns = is_full.then(|| self.told.full_ns.unwrap_or(now_ns));
    }

    fn sends(&mut self, sent: &Packet, found: &mut Vec<Pause>) {
        let (at_ns, length) = (sent.host_ns, i64::from(sent.payload_len));
        if sent.has(flag::SYN) {
            self.own_scale = Some(sent.window_scale);
            self.stopped_ns = at_ns;
            self.next = Some(0);
        }
        self.last = Some((sent.seq, sent.offset));
        if length == 0 {
            self.probes += u32::from(self.told.closed && self.next.is_some_and(|next| sent.offset < next));
            return;
        }
        let end = sent.offset.saturating_add(length);
        match self.next {
            Some(next) if sent.offset < next => self.resent = true,
            Some(_) if self.in_flight > 0 => self.goes_on(at_ns, sent.offset, length, found),
            _ => {}
        }
        if self.next.is_none_or(|next| end > next) {
            self.new_ns = at_ns;
        }
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
        self.in_flight = end.saturating_sub(self.told.acknowledged).max(1);
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.stopped_ns = at_ns;
        self.note_room(at_ns);
        (self.released_ns, self.answered, self.probes) = (None, false, 0);
    }

    /// New bytes leave, of which there were some before.
    fn goes_on(&mut self, at_ns: i64, offset: i64, length: i64, found: &mut Vec<Pause>) {
        if at_ns.saturating_sub(self.new_ns) < PAUSE_NS {
            return;
        }
        if let Some(released_ns) = self.released_ns
            && !self.answered
            && (at_ns.saturating_sub(released_ns) <= SOON_NS || self.probes > 0)
        {
            found.push(self.pause(offset, released_ns, at_ns, length));
        }
        let gap_ns = at_ns.saturating_sub(self.stopped_ns);
        if gap_ns >= IDLE_NS && self.told.acknowledged >= offset && !self.before.closed {
            self.idle_ns = gap_ns;
            self.in_flight_before_idle = self.most_in_flight;
            self.resent = false;
        }
    }

    /// A window that was never seen to open again.
    fn ends(&self, found: &mut Vec<Pause>) {
        if let (true, true, Some(next)) = (self.told.closed, self.probes > 0, self.next) {
            let mut pause = self.pause(next, self.heard_ns, self.heard_ns, 0);
            (pause.window_closed, pause.room_bytes, pause.full_ns) = (true, Some(0), self.told.full_ns);
            found.push(pause);
        }
    }

    fn pause(&self, stream_offset: i64, released_ns: i64, resumed_ns: i64, resumed_bytes: i64) -> Pause {
        let room = |edge: i64| edge.saturating_sub(stream_offset).max(0);
        Pause {
            stream_offset,
            stopped_ns: self.stopped_ns,
            full_ns: self.before.full_ns,
            released_ns,
            resumed_ns,
            resumed_bytes,
            in_flight_bytes: self.in_flight,
            waiting_bytes: stream_offset.saturating_sub(self.before.acknowledged).max(0),
            room_bytes: self.before.edge.map(room),
            window_closed: self.before.closed,
            mss_bytes: self.mss,
            rtt_ns: self.rtt_ns,
            idle_ns: self.idle_ns,
            in_flight_before_idle_bytes: self.in_flight_before_idle,
            resent: self.resent,
        }
    }

    fn measure(&mut self, rtt_ns: i64) {
        self.rtt_ns = Some(self.rtt_ns.map_or(rtt_ns, |known| known.min(rtt_ns)).max(0));
    }

    /// Of a window in a packet of the peer; a SYN's is never scaled.
    fn scaled(&self, window: u16, in_syn: bool) -> Option<i64> {
        let (own, peer) = (self.own_scale?, self.peer_scale?);
        let agreed = own != NO_SCALE && peer != NO_SCALE && !in_syn;
        Some(i64::from(window) << if agreed { peer.min(MOST_SCALE) } else { 0 })
    }
}
