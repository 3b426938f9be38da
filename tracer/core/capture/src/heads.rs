//! What is kept of a packet with `--payload heads`: the heads and parts of messages that begin in it.
//!
//! 1. A packet whose place in its connection is known ([`connections`](crate::connections)) holds messages from the next
//!    head on. Those are recognised as at a payload's start; what is before them is overwritten.
//! 2. Any other packet is judged by itself: it holds messages if it begins with one.
//! 3. Where the next head is, the messages that were recognised show.
//! 4. A packet that continues a hello of TLS is judged as a part of it ([`cut_hellos`](crate::cut_hellos)).
//!
//! Invariant: of bytes that are not part of a message that was recognised, from its head on, none is kept.

use twintap_protocols::protocol::Parts;
use twintap_protocols::redaction;
use twintap_protocols::registry::{self, REGISTRY};

use crate::connections::{Connections, MessageKind, Place, Position};
use crate::cut_hellos::CutHellos;
use crate::layout::Segment;
use crate::policy::{KeptPart, MESSAGES_LIMIT_BYTES, Packet, PayloadPolicy};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;

/// What is kept of a payload, and whose messages were recognised in it.
type Judgement = (KeptPart, Option<MessageKind>);

/// What to keep of a packet.
pub fn keep(packet: &Packet<'_>, segment: &Segment, connections: &mut Connections) -> KeptPart {
    let start = segment.payload.start;
    let payload = &packet.frame[segment.payload.clone()];
    let len = segment.wire_len(packet.original_len);
    let begins_anew = segment.has_flag(packet.frame, SYN | RST);
    if len == 0 && !begins_anew {
        return KeptPart::nothing(start);
    }
    let Some((ports, seq)) = segment.ports_and_seq(packet.frame) else {
        return KeptPart::nothing(start);
    };
    let key = |connections: &Connections| {
        let addresses = segment.addresses(packet.frame);
        connections.key(packet.interface, addresses, ports)
    };
    let place = Place { seq, len };
    if !connections.cut_hellos.is_empty() {
        let key = key(connections);
        if begins_anew {
            connections.cut_hellos.forget(key);
        } else if let Some(continuation) = connections.cut_hellos.continue_with(key, place, payload) {
            return KeptPart::of_ranges(start, continuation);
        }
    }
    let position = match connections.is_empty() {
        true => Position::Unknown,
        false if begins_anew => {
            connections.forget(key(connections));
            Position::Unknown
        }
        false => connections.locate(key(connections), place),
    };
    let ((kept, kind), at) = match position {
        Position::Within => return KeptPart::nothing(start),
        Position::Head { kind, at } => (judge_at(payload, start, at, kind), at),
        Position::Unknown | Position::Earlier => (judge(payload, start), 0),
    };
    let next = kind.and_then(|kind| next_head(payload, at, len, kind.protocol));
    match (next, position) {
        (_, Position::Earlier) => {}
        (Some(next), _) if !begins_anew => {
            let key = key(connections);
            connections.follow(key, kind.unwrap_or_default(), place, next);
        }
        (_, Position::Head { .. }) => connections.forget(key(connections)),
        _ => {}
    }
    if let Some(protocol) = kind.and_then(protocol_of_answers)
        && !begins_anew
        && let Some(ack) = segment.ack(packet.frame)
    {
        let key = connections.key_of_answers(packet.interface, segment.addresses(packet.frame), ports);
        connections.expect_answers(key, protocol, ack);
    }
    if kind.is_some() && !begins_anew && position == Position::Unknown && CutHellos::is_cut(payload, len) {
        let key = key(connections);
        connections.cut_hellos.begin(key, place, payload);
        return kept.extended_to(start + payload.len());
    }
    kept
}

/// Judge a payload by itself, which begins `start` bytes after its frame.
fn judge(payload: &[u8], start: usize) -> Judgement {
    let head_len = redaction::head_len(payload);
    if head_len == 0 {
        let kind = |protocol| MessageKind {
            protocol,
            are_answers: false,
        };
        let parts = |place| REGISTRY[usize::from(place)].agent.parts();
        let mut found = registry::places_of_payload(payload)
            .map(|(place, _)| kept_at(payload, start, 0, (kind(place), parts(place)?)));
        if let Some(judged) = found.find_map(|found| found) {
            return judged;
        }
    }
    (PayloadPolicy::Heads.keep_payload(payload, start, head_len), None)
}

/// The protocol whose client's messages these are, if its server's are known by them only.
fn protocol_of_answers(kind: MessageKind) -> Option<u8> {
    let is_of_client = !kind.are_answers && REGISTRY[usize::from(kind.protocol)].agent_answers.is_some();
    is_of_client.then_some(kind.protocol)
}

/// Judge a payload in which a message is to begin at `at`.
fn judge_at(payload: &[u8], start: usize, at: usize, kind: MessageKind) -> Judgement {
    let protocol = REGISTRY[usize::from(kind.protocol)];
    let parts = match kind.are_answers {
        true => protocol.agent_answers,
        false => protocol.agent_followed.or(protocol.agent.parts()),
    };
    if let Some(judged) = parts.and_then(|parts| kept_at(payload, start, at, (kind, parts))) {
        return judged;
    }
    match at {
        0 => judge(payload, start),
        _ => (KeptPart::nothing(start), None),
    }
}

/// The parts of messages of a kind that begin at `at`, if they do.
fn kept_at(payload: &[u8], start: usize, at: usize, (kind, parts): (MessageKind, Parts)) -> Option<Judgement> {
    let limit = MESSAGES_LIMIT_BYTES.checked_sub(at)?;
    let len = (parts.kept_len)(payload.get(at..)?, limit);
    (len > 0).then(|| (KeptPart::of_parts(parts, start, at, len), Some(kind)))
}

/// Where the first message behind a payload begins, or the head that the payload ends within, counted from the payload's
/// start; `None` if that is not known, since it may be in what was not captured.
///
/// Arguments: `len` of the payload on the wire, in which messages of `protocol` begin at `at`.
fn next_head(payload: &[u8], at: usize, len: u32, protocol: u8) -> Option<u64> {
    let behind = REGISTRY[usize::from(protocol)].next_head(payload.get(at..)?)?;
    let next = (at + behind) as u64;
    let is_whole = payload.len() == len as usize;
    (is_whole || next >= len.into()).then_some(next)
}
