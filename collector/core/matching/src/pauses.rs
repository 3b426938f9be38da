//! Pauses: intervals in which TCP held a sender back although it had more data to send.
//!
//! A pause ends when an acknowledgement arrives and the sender resumes at once. Pauses are found in the capture of the
//! sender's host alone, so on one clock, in the order of that capture:
//! ```text
//! sender   data ──▶ ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ data ──▶
//!          stopped        ▲ released          resumed
//!                         └ an ACK without data: more was acknowledged, or the window moved
//! ```
//! An application that had nothing to send can resume at any time; only TCP resumes within microseconds of an ACK.
//! Which limit held the sender back (receive window, congestion window or Nagle's rule) is inferred later from the
//! figures of each [`Pause`]; here the pause is only detected and measured.
//!
//! - A window that closed and was probed is a pause even if it never opened again.
//! - A copy of sent data (a tail loss probe) does not hide that new bytes had to wait. Whether a pause is long enough
//!   to be listed depends on how long the new bytes waited, but `stopped_ns` is the time of the copy. `full_ns` is the
//!   time since which the window had no room for a segment.
//!
//! Limits: an application that happens to write within [`RESUME_AFTER_ACK_NS`] after an ACK looks like a pause. An ACK
//! that carries data is taken for the beginning of the other side's turn, so no pause ends with it.
//!
//! Source: RFC 9293 §3.8.6 (window), RFC 5681 (congestion window), RFC 1122 §4.2.3.4 (Nagle's rule), RFC 7323 §2.3.

use crate::connections::distance;
use crate::flag;
use crate::output::Pause;
use crate::packets::{Packet, Packets};

/// Shorter pauses are ignored: the network's own delay within a site is of this size.
pub const MIN_PAUSE_NS: i64 = 1_000_000;
/// The kernel resumes within this time after the ACK that allows it, including the delay of the capture itself.
pub const RESUME_AFTER_ACK_NS: i64 = 500_000;
/// After so long without sending, Linux restarts from its initial window (`tcp_slow_start_after_idle`). The idle time
/// is one retransmission timeout, of which this is the minimum (`TCP_RTO_MIN`).
const IDLE_RESTART_NS: i64 = 200_000_000;
/// RFC 7323 §2.3.
const MAX_WINDOW_SCALE: u8 = 14;
/// The column's value where the option was absent.
const NO_WINDOW_SCALE: u8 = 255;

/// Append the pauses of one side to `found`. `own` are the rows that its host sent and `peer` those that it received,
/// each in the order of the capture. Cost: one pass over the packets sent; a merge of both lists only if a gap was
/// found.
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
            sender.on_receive(arrived);
        }
        sender.on_send(sent, found);
    }
    for arrived in arrivals {
        sender.on_receive(arrived);
    }
    sender.on_capture_end(found);
}

/// Whether data, or a probe of a closed window, was sent [`MIN_PAUSE_NS`] or more after the data before it.
fn has_gap<'a>(mut own: impl Iterator<Item = &'a Packet>) -> bool {
    let (mut last_ns, mut end) = (i64::MAX, i64::MIN);
    own.any(|packet| {
        let length = i64::from(packet.payload_len);
        let gap = packet.host_ns.saturating_sub(last_ns) >= MIN_PAUSE_NS;
        let probes = length == 0 && packet.offset < end;
        let reach = packet.offset.saturating_add(length);
        if length > 0 && reach > end {
            (last_ns, end) = (packet.host_ns, reach);
        }
        gap && (length > 0 || probes)
    })
}

/// The peer's state as the sender knew it from the peer's acknowledgements.
#[derive(Clone, Copy)]
struct PeerState {
    /// Everything before this offset had arrived.
    acknowledged: i64,
    /// Offset up to which the sender may send; `None` where the window's scale is not known.
    edge: Option<i64>,
    closed: bool,
    /// The time from which on its window had no room for a segment.
    full_ns: Option<i64>,
}

struct Sender {
    mss: i64,
    own_scale: Option<u8>,
    peer_scale: Option<u8>,
    /// Offset after the last byte sent; `None` before any was.
    next: Option<i64>,
    /// Sequence number and offset of its last packet, from which acknowledgement numbers are unwrapped.
    last: Option<(u32, i64)>,
    stopped_ns: i64,
    /// When new bytes were last sent.
    new_ns: i64,
    in_flight: i64,
    peer: PeerState,
    /// `peer` as it was before the last acknowledgement that changed it; `released_ns` is when that one arrived.
    before: PeerState,
    released_ns: Option<i64>,
    heard_ns: i64,
    /// The peer has sent data since this side last did.
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
        let peer = PeerState {
            acknowledged: -1, // not even the SYN, so that its acknowledgement gives the round-trip time
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
            peer,
            before: peer,
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

    fn on_receive(&mut self, arrived: &Packet) {
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
        let window = self.scaled_window(arrived.window, arrived.has(flag::SYN));
        let peer = PeerState {
            acknowledged: acknowledged.max(self.peer.acknowledged),
            edge: window.map(|window| acknowledged.saturating_add(window)),
            closed: arrived.window == 0,
            full_ns: self.peer.full_ns,
        };
        if acknowledged < self.peer.acknowledged {
            return; // overtaken by a later one
        }
        let more = acknowledged > self.peer.acknowledged;
        let wider = peer.edge > self.peer.edge || (self.peer.closed && !peer.closed);
        if more && self.next.is_some_and(|next| acknowledged >= next) && !self.resent && self.stopped_ns != i64::MAX {
            self.measure(self.heard_ns.saturating_sub(self.stopped_ns));
        }
        if (more || wider) && !arrived.carries_data() {
            self.before = self.peer;
            self.released_ns = Some(self.heard_ns);
        }
        self.peer = peer;
        self.note_room(self.heard_ns);
    }

    /// Update the time from which on the window has had no room for a segment.
    fn note_room(&mut self, now_ns: i64) {
        let next = self.next.unwrap_or(0);
        let has_no_room = |edge: i64| edge.saturating_sub(next) < self.mss.max(1);
        let is_full = self.peer.closed || self.peer.edge.is_some_and(has_no_room);
        self.peer.full_ns = is_full.then(|| self.peer.full_ns.unwrap_or(now_ns));
    }

    fn on_send(&mut self, sent: &Packet, found: &mut Vec<Pause>) {
        let (at_ns, length) = (sent.host_ns, i64::from(sent.payload_len));
        if sent.has(flag::SYN) {
            self.own_scale = Some(sent.window_scale);
            self.stopped_ns = at_ns;
            self.next = Some(0);
        }
        self.last = Some((sent.seq, sent.offset));
        if length == 0 {
            self.probes += u32::from(self.peer.closed && self.next.is_some_and(|next| sent.offset < next));
            return;
        }
        let end = sent.offset.saturating_add(length);
        match self.next {
            Some(next) if sent.offset < next => self.resent = true,
            Some(_) if self.in_flight > 0 => self.on_resume(at_ns, sent.offset, length, found),
            _ => {}
        }
        if self.next.is_none_or(|next| end > next) {
            self.new_ns = at_ns;
        }
        self.next = Some(self.next.map_or(end, |next| next.max(end)));
        self.in_flight = end.saturating_sub(self.peer.acknowledged).max(1);
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.stopped_ns = at_ns;
        self.note_room(at_ns);
        (self.released_ns, self.answered, self.probes) = (None, false, 0);
    }

    /// New bytes are sent, which are not the connection's first: append a pause if TCP had held the sender.
    fn on_resume(&mut self, at_ns: i64, offset: i64, length: i64, found: &mut Vec<Pause>) {
        if at_ns.saturating_sub(self.new_ns) < MIN_PAUSE_NS {
            return;
        }
        if let Some(released_ns) = self.released_ns
            && !self.answered
            && (at_ns.saturating_sub(released_ns) <= RESUME_AFTER_ACK_NS || self.probes > 0)
        {
            found.push(self.pause(offset, released_ns, at_ns, length));
        }
        let gap_ns = at_ns.saturating_sub(self.stopped_ns);
        if gap_ns >= IDLE_RESTART_NS && self.peer.acknowledged >= offset && !self.before.closed {
            self.idle_ns = gap_ns;
            self.in_flight_before_idle = self.most_in_flight;
            self.resent = false;
        }
    }

    /// The capture ends: report a closed window that was not seen to open again.
    fn on_capture_end(&self, found: &mut Vec<Pause>) {
        if let (true, true, Some(next)) = (self.peer.closed, self.probes > 0, self.next) {
            let mut pause = self.pause(next, self.heard_ns, self.heard_ns, 0);
            (pause.window_closed, pause.room_bytes, pause.full_ns) = (true, Some(0), self.peer.full_ns);
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

    /// The window of a packet of the peer, in bytes; that of a SYN is never scaled.
    fn scaled_window(&self, window: u16, in_syn: bool) -> Option<i64> {
        let (own, peer) = (self.own_scale?, self.peer_scale?);
        let agreed = own != NO_WINDOW_SCALE && peer != NO_WINDOW_SCALE && !in_syn;
        Some(i64::from(window) << if agreed { peer.min(MAX_WINDOW_SCALE) } else { 0 })
    }
}
