//! Finds frames in packets, by following each direction of a connection from one frame's header to the next.
//!
//! Protocols whose messages are frames state a header's length and how it describes its frame
//! ([`twintap_protocols::protocol::Framing`]). A header can be anywhere in a packet, and can be cut by two packets. The
//! header before it gives its position, so for each direction only the sequence number of the next wanted byte is kept,
//! and the wanted bytes that have arrived. A packet without any of them costs one look-up. Following begins where a
//! direction is certain to be of a protocol (`Framing::begins`), or where HTTP/1.1 changes both directions to one
//! ([`twintap_protocols::upgrade`]). Packets of other directions are examined only if `Framing::may_begin` holds.
//!
//! A frame is recorded with the packet that carries its last wanted byte; it may begin in an earlier packet. What its
//! body says, its protocol's reader says, which reads the frames of a direction in their order.
//!
//! # What ends following
//! - Needed bytes were not captured (snaplen).
//! - A packet is missing while [`HELD_PACKETS`] others came.
//! - A header is not valid.
//!
//! Following resumes with the next packet that begins with frames. A reader notices that frames are missing in between,
//! because each frame gives the position of the next one; for the same reason a header that was found by mistake does
//! no harm.
//!
//! # Bounds
//! [`MAX_FLOWS`] directions of about 100 bytes, and of each what is kept of one frame; [`HELD_BYTES`] of packets held
//! back, of all of them.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use foldhash::fast::RandomState;
use twintap_protocols::excerpt::Keeper;
use twintap_protocols::protocol::{Finder, FrameReader, Framing, MAX_KEPT_LEN, ReadFrame, Scan, Scanner, Scanning};
use twintap_protocols::registry;
use twintap_protocols::upgrade::{self, Change};

use crate::counters::{CounterKind, Counters};
use crate::events::Event;
use crate::seq::SeqNumber;

const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const RST: u16 = 0x04;
/// Directions that are followed at one time, at most.
const MAX_FLOWS: usize = 1 << 17;
/// Packets of a direction that are held back for a missing one, at most.
const HELD_PACKETS: usize = 64;
/// Bytes of all packets held back, at most.
const HELD_BYTES: usize = 4 << 20;
/// Frames noted of one packet, at most.
const FRAME_LIMIT: usize = 4096;

/// One direction of a connection, at one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    pub src: (IpAddr, u16),
    pub dst: (IpAddr, u16),
    pub interface: u16,
}

#[derive(Clone, Debug)]
struct Flow {
    /// Place of its protocol in the registry.
    protocol: u8,
    walk: Walk,
    /// Sequence number of the first byte that was followed.
    begun: u32,
    /// Sequence number of the next wanted byte.
    wanted: u32,
    is_lost: bool,
    /// Nothing more can be read of its connection.
    is_ended: bool,
    held: Vec<HeldPacket>,
}

/// How a direction is followed.
#[derive(Clone, Debug)]
enum Walk {
    Framed(FramedWalk),
    Scanned {
        rules: &'static Scanning,
        scanner: Box<dyn Scanner>,
        from_client: bool,
    },
}

/// Follows frames from one header to the next.
#[derive(Clone, Debug)]
struct FramedWalk {
    framing: &'static Framing,
    reader: Box<dyn FrameReader>,
    /// What the reader says of the current frame.
    said: Vec<u8>,
    /// Wanted bytes of the current frame that have arrived.
    kept: Vec<u8>,
    /// Number of wanted bytes; until the header is complete, the header's length.
    kept_len: usize,
    /// Bytes of the frame after the wanted ones, once the header is complete.
    behind_len: u32,
}

/// A frame that was read, and its protocol.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Place of the protocol in the registry.
    pub protocol: u8,
    pub keep: fn(&ReadFrame<'_>, &mut Keeper<'_>),
    pub read: ReadFrame<'a>,
}

#[derive(Clone, Debug)]
struct HeldPacket {
    seq: u32,
    wire_len: u32,
    bytes: Box<[u8]>,
}

/// A packet's payload, as much of it as was captured.
#[derive(Clone, Copy)]
struct Piece<'a> {
    seq: u32,
    wire_len: u32,
    bytes: &'a [u8],
}

/// Result of reading a packet of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All headers in it were read.
    Read,
    /// An earlier packet is missing.
    TooEarly,
    /// The position of the next header is unknown.
    Lost,
    /// Nothing more can be read of the connection.
    Ended,
}

/// Follows the frames of all connections in a capture.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    flows: HashMap<Direction, Flow, RandomState>,
    held_bytes: usize,
}

impl Frames {
    /// Whether a packet may be of interest; for the hot path.
    #[inline(always)]
    pub fn concerns(&self, event: &Event, payload: &[u8]) -> bool {
        if self.flows.is_empty() {
            payload.first().is_some_and(|&first| registry::may_be_framed(first))
                && (registry::framings_of_payload(payload).next().is_some()
                    || registry::scannings_of_payload(payload).next().is_some())
                || upgrade::may_change(payload)
        } else {
            event.payload_len > 0 || event.flags & SYN != 0
        }
    }

    /// Read a packet, and call `note` for each frame whose wanted bytes are complete with it. Returns whether the
    /// packet's direction is followed, so that no other protocol need read it.
    pub fn take(
        &mut self,
        key: Direction,
        event: &Event,
        payload: &[u8],
        counters: &mut Counters,
        mut note: impl FnMut(Frame<'_>, &mut Counters),
    ) -> bool {
        if event.flags & SYN != 0 {
            self.forget(&key);
            return false;
        }
        let piece = Piece {
            seq: event.seq,
            wire_len: event.payload_len,
            bytes: payload,
        };
        if let Some(change) = upgrade::change_of(payload) {
            self.change(key, (event.seq, event.ack), &change, counters);
            if let Some(flow) = self.flows.get_mut(&key) {
                flow.take(&piece, 0, &mut |frame| note(frame, counters));
            }
            return false; // its head is HTTP's
        }
        let is_again = |flow: &Flow| flow.begun == event.seq;
        if let Some((protocol, framing)) = preface_of(payload)
            && !self.flows.get(&key).is_some_and(is_again)
        {
            self.forget(&key);
            let read = ReadFrame {
                header: &payload[..(framing.preface_len)(payload)],
                at: 0,
                said: &[],
            };
            let preface = Frame {
                protocol,
                keep: framing.keep,
                read,
            };
            note(preface, counters);
        }
        let flow = match self.flows.get_mut(&key) {
            Some(flow) => flow,
            None => {
                self.begin(key, &piece, counters);
                let Some(begun) = self.flows.get_mut(&key) else {
                    return false;
                };
                begun
            }
        };
        if flow.is_ended {
            if event.flags & (FIN | RST) != 0 {
                self.forget(&key);
            }
            return false;
        }
        if flow.is_other(&piece) {
            self.forget(&key);
            return false;
        }
        let held_before = flow.held_len();
        let room = HELD_BYTES.saturating_sub(self.held_bytes);
        if !flow.take(&piece, room, &mut |frame| note(frame, counters)) {
            counters.bump(CounterKind::FramesMissed);
        }
        self.held_bytes = (self.held_bytes + flow.held_len()).saturating_sub(held_before);
        if flow.is_ended {
            self.end(&key.other_way());
        }
        if event.flags & (FIN | RST) != 0 {
            self.forget(&key);
        }
        true
    }

    /// Follow a direction from this packet on, if a protocol's frames begin with it; with a message of a client that is
    /// scanned, both directions.
    fn begin(&mut self, key: Direction, piece: &Piece<'_>, counters: &mut Counters) {
        let begins = |(_, framing): &(u8, &'static Framing)| (framing.begins)(piece.bytes, piece.wire_len as usize);
        let framed = registry::framings_of_payload(piece.bytes).find(begins);
        let scanned = || registry::scannings_of_payload(piece.bytes).next();
        let (flow, answers) = if let Some((protocol, framing)) = framed {
            (Flow::of_frames(protocol, framing, piece), None)
        } else if let Some((protocol, rules)) = scanned() {
            let answers = Flow::of_messages(protocol, rules, false, piece);
            (Flow::of_messages(protocol, rules, true, piece), Some(answers))
        } else {
            return;
        };
        if self.flows.len() >= MAX_FLOWS {
            counters.bump(CounterKind::FramesMissed);
            return;
        }
        self.flows.insert(key, flow);
        if let Some(answers) = answers {
            self.forget(&key.other_way());
            self.flows.insert(key.other_way(), answers);
        }
    }

    /// Follow both directions from where HTTP/1.1 changes their protocol; of a protocol with frames the server's.
    ///
    /// Arguments: `key`, the server's direction; `(seq, ack)` of the packet that begins with the change's head. What it
    /// acknowledges is all of the request, behind which the client waits for this answer.
    fn change(&mut self, key: Direction, (seq, ack): (u32, u32), change: &Change, counters: &mut Counters) {
        let begun = seq.wrapping_add(change.head_len as u32);
        if self.flows.get(&key).is_some_and(|flow| flow.begun == begun) {
            return; // sent again
        }
        if self.flows.len() + 1 >= MAX_FLOWS {
            counters.bump(CounterKind::FramesMissed);
            return;
        }
        self.forget(&key);
        self.flows.insert(key, Flow::at_change(change, false, begun));
        // A client's frames begin behind a preface, which is recognised by itself.
        if let Finder::Scanner(_) = change.finder {
            self.forget(&key.other_way());
            self.flows.insert(key.other_way(), Flow::at_change(change, true, ack));
        }
    }

    /// Read nothing more of a direction.
    fn end(&mut self, key: &Direction) {
        if let Some(flow) = self.flows.get_mut(key) {
            self.held_bytes = self.held_bytes.saturating_sub(flow.held_len());
            flow.held = Vec::new();
            flow.is_ended = true;
        }
    }

    /// Read on with the next message that begins a packet, since bytes before it are missing.
    pub fn miss(&mut self, key: &Direction) {
        if let Some(flow) = self.flows.get_mut(key).filter(|flow| !flow.is_lost) {
            self.held_bytes = self.held_bytes.saturating_sub(flow.held_len());
            flow.held = Vec::new();
            flow.lose(flow.wanted, &mut |_| {});
            flow.is_lost = true;
        }
    }

    /// Follow a direction no more.
    pub fn forget(&mut self, key: &Direction) {
        if let Some(flow) = self.flows.remove(key) {
            self.held_bytes = self.held_bytes.saturating_sub(flow.held_len());
        }
    }
}

/// In three numbers: it is hashed for each packet, and what is derived hashes a dozen parts.
impl Hash for Direction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(four) => four.to_bits().into(),
            IpAddr::V6(six) => six.to_bits(),
        };
        let [src_port, dst_port, interface] = [self.src.1, self.dst.1, self.interface].map(u64::from);
        state.write_u128(bits(self.src.0));
        state.write_u128(bits(self.dst.0));
        state.write_u64(src_port << 32 | dst_port << 16 | interface);
    }
}

impl Direction {
    /// The opposite direction of the connection.
    pub fn other_way(&self) -> Self {
        Self {
            src: self.dst,
            dst: self.src,
            interface: self.interface,
        }
    }
}

impl Flow {
    fn new(protocol: u8, walk: Walk, seq: u32) -> Self {
        Self {
            protocol,
            walk,
            begun: seq,
            wanted: seq,
            is_lost: false,
            is_ended: false,
            held: Vec::new(),
        }
    }

    /// A direction whose frames begin with this packet.
    fn of_frames(protocol: u8, framing: &'static Framing, piece: &Piece<'_>) -> Self {
        let ahead = (framing.preface_len)(piece.bytes) as u32;
        Self {
            wanted: piece.seq.wrapping_add(ahead),
            ..Self::new(protocol, Walk::of_frames(framing, ahead > 0), piece.seq)
        }
    }

    /// A direction behind a change of protocol, from sequence number `seq` on.
    fn at_change(change: &Change, from_client: bool, seq: u32) -> Self {
        let walk = match change.finder {
            Finder::Frames(framing) => Walk::of_frames(framing, true),
            Finder::Scanner(rules) => Walk::of_messages(rules, from_client),
        };
        Self::new(change.protocol, walk, seq)
    }

    /// A direction of a connection whose client's packet this is. Answers begin with the next packet that begins with
    /// one.
    fn of_messages(protocol: u8, rules: &'static Scanning, from_client: bool, piece: &Piece<'_>) -> Self {
        Self {
            is_lost: !from_client,
            ..Self::new(protocol, Walk::of_messages(rules, from_client), piece.seq)
        }
    }

    fn held_len(&self) -> usize {
        self.held.iter().map(|held| held.bytes.len()).sum()
    }

    /// Whether a header is wanted next, and the packet begins with another protocol.
    fn is_other(&self, piece: &Piece<'_>) -> bool {
        let Walk::Framed(walk) = &self.walk else {
            return false;
        };
        let is_at_header = self.is_lost || (walk.kept.is_empty() && self.wanted == piece.seq);
        is_at_header && (walk.framing.is_other)(piece.bytes)
    }

    /// Read a packet, and the held-back ones that follow it; false if the position of the next header is unknown.
    fn take(&mut self, piece: &Piece<'_>, room: usize, note: &mut impl FnMut(Frame<'_>)) -> bool {
        if self.is_lost {
            if !self.walk.resumes(piece) {
                return true;
            }
            (self.is_lost, self.wanted) = (false, piece.seq);
        }
        let mut outcome = self.read(piece, piece.seq, note);
        if outcome == Outcome::TooEarly && self.held.len() < HELD_PACKETS && piece.bytes.len() <= room {
            let (seq, wire_len) = (piece.seq, piece.wire_len);
            let bytes = piece.bytes.into();
            self.held.push(HeldPacket { seq, wire_len, bytes });
            return true;
        }
        while outcome == Outcome::Read
            && let Some(place) = self.held.iter().position(|held| !is_before(self.wanted, held.seq))
        {
            let held = self.held.swap_remove(place);
            let next = Piece {
                seq: held.seq,
                wire_len: held.wire_len,
                bytes: &held.bytes,
            };
            outcome = self.read(&next, piece.seq, note);
        }
        if outcome != Outcome::Read {
            self.lose(piece.seq, note);
            (self.is_lost, self.is_ended) = (true, outcome == Outcome::Ended);
            self.held.clear();
        }
        outcome == Outcome::Read
    }

    /// Read what a packet holds. Places that are noted count from sequence number `first`.
    fn read(&mut self, piece: &Piece<'_>, first: u32, note: &mut impl FnMut(Frame<'_>)) -> Outcome {
        match &mut self.walk {
            Walk::Framed(walk) => walk.read(self.protocol, &mut self.wanted, piece, first, note),
            Walk::Scanned { rules, scanner, .. } => {
                let noter = Noter {
                    protocol: self.protocol,
                    keep: rules.keep,
                    first,
                };
                noter.scan(&mut **scanner, &mut self.wanted, piece, note)
            }
        }
    }

    /// Note what is known of the current frame or message; what follows it is missing.
    fn lose(&mut self, first: u32, note: &mut impl FnMut(Frame<'_>)) {
        match &mut self.walk {
            Walk::Framed(walk) => walk.lose(self.protocol, &mut self.wanted, first, note),
            Walk::Scanned { rules, scanner, .. } => {
                let noter = Noter {
                    protocol: self.protocol,
                    keep: rules.keep,
                    first,
                };
                scanner.lose(&mut |read| noter.note(self.wanted, read, note));
            }
        }
    }
}

/// Notes messages of a protocol that is scanned; their places count from sequence number `first`.
struct Noter {
    protocol: u8,
    keep: fn(&ReadFrame<'_>, &mut Keeper<'_>),
    first: u32,
}

impl Noter {
    /// Read the messages in a packet, of which the byte at `wanted` comes next.
    fn scan(
        &self,
        scanner: &mut dyn Scanner,
        wanted: &mut u32,
        piece: &Piece<'_>,
        note: &mut impl FnMut(Frame<'_>),
    ) -> Outcome {
        if is_before(*wanted, piece.seq) {
            return Outcome::TooEarly;
        }
        let at = wanted.wrapping_sub(piece.seq);
        if at >= piece.wire_len {
            return Outcome::Read;
        }
        let rest = piece.bytes.get(at as usize..).unwrap_or(&[]);
        let begun = *wanted;
        *wanted = begun.wrapping_add(rest.len() as u32);
        match scanner.scan(rest, &mut |read| self.note(begun, read, note)) {
            Scan::Skip(len) => *wanted = wanted.wrapping_add(len),
            Scan::End => return Outcome::Ended,
        }
        // The snaplen may have cut bytes that are needed.
        let is_cut = piece.bytes.len() < piece.wire_len as usize;
        if is_cut && wanted.wrapping_sub(piece.seq) < piece.wire_len {
            Outcome::Lost
        } else {
            Outcome::Read
        }
    }

    /// Note a message whose place counts from sequence number `base`.
    fn note(&self, base: u32, read: &ReadFrame<'_>, note: &mut impl FnMut(Frame<'_>)) {
        let at = (base.wrapping_sub(self.first) as i32).saturating_add(read.at);
        note(Frame {
            protocol: self.protocol,
            keep: self.keep,
            read: ReadFrame { at, ..*read },
        });
    }
}

impl Walk {
    /// Arguments: `from_first`: it begins with the first frame that the side sends.
    fn of_frames(framing: &'static Framing, from_first: bool) -> Self {
        Self::Framed(FramedWalk {
            framing,
            reader: (framing.reader)(from_first),
            said: Vec::new(),
            kept: Vec::new(),
            kept_len: framing.header_len,
            behind_len: 0,
        })
    }

    fn of_messages(rules: &'static Scanning, from_client: bool) -> Self {
        Self::Scanned {
            rules,
            scanner: (rules.scanner)(from_client),
            from_client,
        }
    }

    /// Whether a packet begins with frames or messages, on a direction of which some are missing.
    fn resumes(&mut self, piece: &Piece<'_>) -> bool {
        match self {
            Self::Framed(walk) => {
                walk.expect_header();
                (walk.framing.resumes)(piece.bytes, piece.wire_len as usize)
            }
            Self::Scanned { rules, from_client, .. } => (rules.resumes)(piece.bytes, *from_client),
        }
    }
}

impl FramedWalk {
    /// Read the frames in a packet, of which the byte at `wanted` comes next. Places that are noted count from sequence
    /// number `first`.
    fn read(
        &mut self,
        protocol: u8,
        wanted: &mut u32,
        piece: &Piece<'_>,
        first: u32,
        note: &mut impl FnMut(Frame<'_>),
    ) -> Outcome {
        for _ in 0..FRAME_LIMIT {
            if is_before(*wanted, piece.seq) {
                return Outcome::TooEarly;
            }
            let at = wanted.wrapping_sub(piece.seq);
            if at >= piece.wire_len {
                return Outcome::Read;
            }
            let Some(rest) = piece.bytes.get(at as usize..).filter(|rest| !rest.is_empty()) else {
                if self.kept.len() < self.framing.header_len {
                    return Outcome::Lost;
                }
                self.finish_frame(protocol, wanted, first, note); // the rest of its body was not captured
                continue;
            };
            let more = rest.len().min(self.kept_len - self.kept.len());
            self.kept.extend_from_slice(&rest[..more]);
            *wanted = wanted.wrapping_add(more as u32);
            if self.kept.len() == self.framing.header_len && !self.read_header() {
                self.kept.clear();
                return Outcome::Lost;
            }
            if self.kept.len() < self.kept_len {
                continue;
            }
            self.finish_frame(protocol, wanted, first, note);
        }
        Outcome::Lost
    }

    /// Note the current frame if its header is known; those after it are missing.
    fn lose(&mut self, protocol: u8, wanted: &mut u32, first: u32, note: &mut impl FnMut(Frame<'_>)) {
        if self.kept.len() >= self.framing.header_len {
            self.finish_frame(protocol, wanted, first, note);
        }
        self.reader.lose();
    }

    /// Read the frame whose bytes are kept, and go on behind it. Places count from sequence number `first`.
    fn finish_frame(&mut self, protocol: u8, wanted: &mut u32, first: u32, note: &mut impl FnMut(Frame<'_>)) {
        self.said.clear();
        self.reader.read(&self.kept, &mut self.said);
        note(Frame {
            protocol,
            keep: self.framing.keep,
            read: ReadFrame {
                header: &self.kept[..self.framing.header_len],
                at: wanted.wrapping_sub(first).wrapping_sub(self.kept.len() as u32) as i32,
                said: &self.said,
            },
        });
        let missing = (self.kept_len - self.kept.len()) as u32;
        *wanted = wanted.wrapping_add(missing).wrapping_add(self.behind_len);
        self.expect_header();
    }

    /// Read the current frame's header; false if it is invalid.
    fn read_header(&mut self) -> bool {
        let Some(len) = (self.framing.frame_len)(&self.kept) else {
            return false;
        };
        let kept_len = len.kept_len.min(len.body_len).min(MAX_KEPT_LEN);
        self.kept_len = self.framing.header_len + kept_len as usize;
        self.behind_len = len.body_len - kept_len;
        true
    }

    /// Expect the first byte of a header next.
    fn expect_header(&mut self) {
        self.kept.clear();
        self.kept_len = self.framing.header_len;
    }
}

/// The protocol whose preface a payload begins with.
fn preface_of(payload: &[u8]) -> Option<(u8, &'static Framing)> {
    let mut framings = registry::framings_of_payload(payload);
    framings.find(|(_, framing)| (framing.preface_len)(payload) > 0)
}

fn is_before(one: u32, other: u32) -> bool {
    SeqNumber(one).is_before(SeqNumber(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_protocols::http2::{PREFACE, kind};

    const ENDS: Direction = Direction {
        src: (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 50_000),
        dst: (IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 80),
        interface: 0,
    };

    fn frame(kind: u8, flags: u8, stream: u32, len: usize) -> Vec<u8> {
        let mut bytes = (len as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(vec![0x5a; len]);
        bytes
    }

    /// A client's side of a connection, and where each header in it ends.
    fn client_bytes() -> (Vec<u8>, Vec<i64>) {
        let frames = [
            frame(kind::SETTINGS, 0, 0, 18),
            frame(kind::HEADERS, 4, 1, 40),
            frame(kind::DATA, 0, 1, 300),
            frame(kind::DATA, 1, 1, 0),
            frame(0x0c, 0, 0, 3),
            frame(kind::HEADERS, 5, 3, 25),
        ];
        let (mut bytes, mut places) = (PREFACE.to_vec(), vec![24]);
        for frame in frames {
            places.push(bytes.len() as i64 + 9);
            bytes.extend(frame);
        }
        (bytes, places)
    }

    /// Packets as offset into the stream, captured bytes, bytes on the wire.
    type SentPacket<'a> = (i64, &'a [u8], usize);

    /// Where headers were found to end, and how often others were missed; the stream begins at sequence number `zero`.
    fn header_ends(zero: u32, packets: &[SentPacket<'_>]) -> (Vec<i64>, u64) {
        let (mut frames, mut counters, mut places) = (Frames::default(), Counters::default(), Vec::new());
        for &(at, bytes, wire_len) in packets {
            let event = Event {
                seq: zero.wrapping_add(at as u32),
                payload_len: wire_len as u32,
                ..Event::default()
            };
            if frames.concerns(&event, bytes) {
                frames.take(ENDS, &event, bytes, &mut counters, |frame, _| {
                    places.push(at + i64::from(frame.read.at) + frame.read.header.len() as i64)
                });
            }
        }
        (places, counters.get(CounterKind::FramesMissed))
    }

    fn whole(at: usize, bytes: &[u8]) -> SentPacket<'_> {
        (at as i64, bytes, bytes.len())
    }

    #[test]
    fn headers_are_found_wherever_packets_cut_the_stream() {
        let (bytes, expected) = client_bytes();
        for first in 24..bytes.len() {
            for second in first..bytes.len() {
                let packets = [(0, first), (first, second), (second, bytes.len())];
                let packets = packets.map(|(from, to)| whole(from, &bytes[from..to]));
                for zero in [0, u32::MAX - 60] {
                    assert_eq!(
                        header_ends(zero, &packets),
                        (expected.clone(), 0),
                        "cut at {first} and {second}"
                    );
                }
            }
        }
        let drops: Vec<SentPacket<'_>> = (24..bytes.len()).map(|at| whole(at, &bytes[at..=at])).collect();
        assert_eq!(
            header_ends(7, &[&[whole(0, &bytes[..24])][..], &drops].concat()),
            (expected, 0),
            "byte by byte"
        );
    }

    #[test]
    fn a_repeat_brings_nothing_and_a_packet_that_is_late_is_waited_for() {
        let (bytes, expected) = client_bytes();
        let [one, two, three, four] =
            [(0, 60), (60, 100), (100, 420), (420, bytes.len())].map(|(from, to)| whole(from, &bytes[from..to]));
        assert_eq!(
            header_ends(7, &[one, two, one, three, two, four, four]),
            (expected.clone(), 0)
        );
        for late in [
            [one, four, two, three],
            [one, three, four, two],
            [one, four, three, two],
        ] {
            let (mut places, missed) = header_ends(7, &late);
            places.sort_unstable();
            assert_eq!((places, missed), (expected.clone(), 0));
        }
    }

    #[test]
    fn behind_what_is_missing_a_packet_that_begins_with_frames_goes_on() {
        let (bytes, expected) = client_bytes();
        let begin = [whole(0, &bytes[..60]), (60, &[][..], 60)]; // of the second packet nothing was captured
        let body = whole(120, &bytes[120..409]);
        let last = bytes.len() - 34;
        let rest = [whole(409, &bytes[409..last]), whole(last, &bytes[last..])];
        let (places, missed) = header_ends(7, &[&begin[..], &[body], &rest].concat());
        assert_eq!(
            (places, missed),
            ([&expected[..3], &expected[6..]].concat(), 1),
            "an unusual frame is no beginning"
        );
    }

    #[test]
    fn of_what_is_held_back_there_is_an_end() {
        let (bytes, _) = client_bytes();
        let mut packets = vec![whole(0, &bytes[..60])];
        packets.extend((0..1_000).map(|number| (1_000 + 10 * number, &bytes[30..40], 10)));
        assert_eq!(header_ends(7, &packets), (vec![24, 33, 60], 1));
        let mut frames = Frames::default();
        let large = vec![0x5a; 1 << 16];
        for port in 0..1_000 {
            let ends = Direction {
                src: (ENDS.src.0, port),
                ..ENDS
            };
            for (seq, payload) in [(0, PREFACE.as_slice()), (1_000, &large)] {
                let event = Event {
                    seq,
                    payload_len: payload.len() as u32,
                    ..Event::default()
                };
                frames.take(ends, &event, payload, &mut Counters::default(), |_, _| {});
            }
        }
        assert!(frames.held_bytes <= HELD_BYTES && frames.held_bytes > HELD_BYTES / 2);
        let held: usize = frames.flows.values().map(Flow::held_len).sum();
        assert_eq!(held, frames.held_bytes);
    }

    #[test]
    fn hostile_lengths_lead_nowhere() {
        let longest = [&b"\xff\xff\xff\x00\x00\0\0\0\x01"[..], &[0; 20]].concat();
        let cases: &[(&[u8], usize, u64)] = &[
            (&longest, 1, 0),
            (b"\0\0\x05\x06\0\0\0\0\0hello, no ping", 0, 1),
            (b"\0\0\0\x01\x04\0\0\0\0", 0, 1),
        ];
        for &(said, more, missed) in cases {
            let bytes = [PREFACE, said].concat();
            let (places, counted) = header_ends(u32::MAX - 3, &[whole(0, &bytes)]);
            assert_eq!((places.len(), counted), (1 + more, missed), "{said:?}");
        }
    }

    #[test]
    fn another_connection_of_the_same_ends_begins_anew() {
        let (bytes, expected) = client_bytes();
        let twice = [whole(0, &bytes[..200]), (900_000, &bytes[..], bytes.len())];
        let again = expected.iter().map(|place| place + 900_000);
        assert_eq!(
            header_ends(7, &twice).0,
            expected[..4].iter().copied().chain(again).collect::<Vec<i64>>()
        );
    }

    /// Names of messages found behind a change of protocol, with their places in the payloads of both sides' packets.
    fn behind_change(packets: &[(bool, i64, &[u8])]) -> Vec<(bool, i64)> {
        let (mut frames, mut counters, mut places) = (Frames::default(), Counters::default(), Vec::new());
        let zero = [u32::MAX - 20, 7_000];
        let mut reach = [0, 0];
        for &(from_server, at, bytes) in packets {
            let side = usize::from(from_server);
            reach[side] = reach[side].max(at + bytes.len() as i64);
            let event = Event {
                seq: zero[side].wrapping_add(at as u32),
                ack: zero[1 - side].wrapping_add(reach[1 - side] as u32),
                payload_len: bytes.len() as u32,
                ..Event::default()
            };
            let key = if from_server { ENDS.other_way() } else { ENDS };
            if frames.concerns(&event, bytes) {
                frames.take(key, &event, bytes, &mut counters, |frame, _| {
                    places.push((from_server, at + i64::from(frame.read.at)))
                });
            }
        }
        assert_eq!(counters.get(CounterKind::FramesMissed), 0);
        places
    }

    #[test]
    fn behind_a_change_of_protocol_both_directions_are_followed() {
        let ask = b"GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
        let (asked, switched) = (ask.len() as i64, switch.len() as i64);
        let with_news = [&switch[..], b"\x81\x04news"].concat();
        let packets: &[(bool, i64, &[u8])] = &[
            (false, 0, ask),
            (true, 0, &with_news),
            (true, 0, &with_news),
            (false, asked, b"\x81\x85\0\0\0\0he"),
            (false, asked + 8, b"llo\x89\x80\0\0\0\0"),
            (true, switched + 6, b"\x82\x02hi\x8a\0"),
        ];
        let (from_client, from_server) = ([asked, asked + 11], [switched, switched + 6, switched + 10]);
        let expected = [
            (true, from_server[0]),
            (false, from_client[0]),
            (false, from_client[1]),
            (true, from_server[1]),
            (true, from_server[2]),
        ];
        assert_eq!(behind_change(packets), expected);
    }

    #[test]
    fn the_first_frames_of_http2_may_come_with_the_change_to_it() {
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
        let switched = switch.len() as i64;
        let settings = [
            &switch[..],
            &frame(kind::SETTINGS, 0, 0, 6),
            &frame(kind::HEADERS, 4, 1, 20),
        ]
        .concat();
        let begin = [PREFACE.as_slice(), &frame(kind::SETTINGS, 0, 0, 0)].concat();
        let packets: &[(bool, i64, &[u8])] = &[
            (false, 0, b"GET / HTTP/1.1\r\n\r\n"),
            (true, 0, &settings),
            (false, 18, &begin),
        ];
        let expected = [(true, switched), (true, switched + 15), (false, 18), (false, 42)];
        assert_eq!(behind_change(packets), expected);
    }

    #[test]
    fn what_is_no_http2_is_left_to_others() {
        for payload in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"\x17\x03\x03\0\x06secret",
            &[0; 100],
            b"",
        ] {
            let event = Event {
                payload_len: payload.len() as u32,
                ..Event::default()
            };
            let mut frames = Frames::default();
            assert!(
                !frames.take(ENDS, &event, payload, &mut Counters::default(), |_, _| panic!(
                    "a frame"
                ))
            );
        }
    }
}
