//! The registry: every protocol, in the order in which payloads are tried.

use crate::exchanges::{Exchanges, Order, StreamRules};
use crate::protocol::{Framing, Protocol, Scanning};
use crate::{
    amqp, ceph, http1, http2, kafka, memcached, mongodb, mqtt, mysql, nats, postgresql, redis, ssh, tls, turns,
    websocket, zookeeper,
};

/// All protocols. The last is that of connections that no other protocol claims.
pub const REGISTRY: &[&Protocol] = &[
    &http1::PROTOCOL,
    &mongodb::PROTOCOL, // by more bytes than those behind it
    &tls::PROTOCOL,
    &http2::PROTOCOL,
    &redis::PROTOCOL,
    &mqtt::PROTOCOL,
    &postgresql::PROTOCOL,
    &ssh::PROTOCOL,
    &websocket::PROTOCOL,
    &mysql::PROTOCOL,
    &memcached::PROTOCOL,
    &amqp::PROTOCOL,
    &nats::PROTOCOL,
    &ceph::PROTOCOL,
    &kafka::PROTOCOL,
    &zookeeper::PROTOCOL,
    &turns::PROTOCOL,
];

/// By the first byte of a payload, a bit for each protocol that reads it.
static BY_FIRST_BYTE: [u32; 256] = by_first_byte();
/// Bits of the protocols whose messages are followed across packets.
const FRAMED: u32 = framed_bits();

const fn framed_bits() -> u32 {
    let (mut bits, mut place) = (0, 0);
    while place < REGISTRY.len() {
        if REGISTRY[place].framing.is_some() || REGISTRY[place].scanning.is_some() {
            bits |= 1 << place;
        }
        place += 1;
    }
    bits
}

const fn by_first_byte() -> [u32; 256] {
    assert!(REGISTRY.len() <= u32::BITS as usize, "more protocols than bits");
    let (mut table, mut place) = ([0; 256], 0);
    while place < REGISTRY.len() {
        let (bytes, mut at) = (REGISTRY[place].first_bytes, 0);
        while at < bytes.len() {
            table[bytes[at] as usize] |= 1 << place;
            at += 1;
        }
        place += 1;
    }
    table
}

/// By the kind of a head, the place of its protocol: the first that has the kind, or the last of all if none has.
static BY_HEAD_KIND: [u8; 256] = by_head_kind();

const fn by_head_kind() -> [u8; 256] {
    let (mut table, mut place) = ([(REGISTRY.len() - 1) as u8; 256], REGISTRY.len());
    while place > 0 {
        place -= 1;
        let (kinds, mut at) = (REGISTRY[place].head_kinds, 0);
        while at < kinds.len() {
            table[kinds[at].0 as usize] = place as u8;
            at += 1;
        }
    }
    table
}

/// The place of the protocol whose messages are heads of this kind.
#[inline]
pub fn place_of_head_kind(kind: u8) -> u8 {
    BY_HEAD_KIND[usize::from(kind)]
}

/// The place of the protocol of this name.
pub fn place(name: &str) -> Option<u8> {
    REGISTRY
        .iter()
        .position(|protocol| protocol.name == name)
        .map(|place| place as u8)
}

/// How messages that are heads of this kind become exchanges.
#[inline]
pub fn exchanges_of_head_kind(kind: u8) -> &'static Exchanges {
    &REGISTRY[usize::from(place_of_head_kind(kind))].exchanges
}

/// The order of messages that are heads of this kind, if they have one.
#[inline]
pub fn order_of_head_kind(kind: u8) -> Option<&'static Order> {
    match exchanges_of_head_kind(kind) {
        Exchanges::Ordered(order) => Some(order),
        _ => None,
    }
}

/// The rules of streams of which heads of this kind are frames, if they are.
#[inline]
pub fn streams_of_head_kind(kind: u8) -> Option<&'static StreamRules> {
    match exchanges_of_head_kind(kind) {
        Exchanges::ByStreamId(rules) => Some(rules),
        _ => None,
    }
}

/// Whether any protocol without frames reads payloads that begin with this byte; for the hot path.
#[inline(always)]
pub fn is_of_interest(first: u8) -> bool {
    BY_FIRST_BYTE[usize::from(first)] & !FRAMED != 0
}

/// The protocols that read payloads that begin with this byte, in the order of the registry.
pub fn beginning_with(first: u8) -> impl Iterator<Item = &'static Protocol> {
    places(BY_FIRST_BYTE[usize::from(first)]).map(|place| REGISTRY[place])
}

/// The protocols that read this payload; none if it is empty.
pub fn of_payload(payload: &[u8]) -> impl Iterator<Item = &'static Protocol> + use<> {
    payload.first().copied().into_iter().flat_map(beginning_with)
}

/// The protocols that read this payload, with their places in the registry.
pub fn places_of_payload(payload: &[u8]) -> impl Iterator<Item = (u8, &'static Protocol)> + use<> {
    let bits = payload.first().map_or(0, |&first| BY_FIRST_BYTE[usize::from(first)]);
    places(bits).map(|place| (place as u8, REGISTRY[place]))
}

/// Whether a payload that begins with this byte may begin what is followed across packets; for the hot path.
#[inline(always)]
pub fn may_be_framed(first: u8) -> bool {
    BY_FIRST_BYTE[usize::from(first)] & FRAMED != 0
}

/// The protocols with frames that may begin a payload, with their places.
pub fn framings_of_payload(payload: &[u8]) -> impl Iterator<Item = (u8, &'static Framing)> {
    let all = places_of_payload(payload).filter_map(|(place, protocol)| Some((place, protocol.framing?)));
    all.filter(|(_, framing)| (framing.may_begin)(payload))
}

/// The protocols that are scanned and of which a client's payload may be the beginning, with their places.
pub fn scannings_of_payload(payload: &[u8]) -> impl Iterator<Item = (u8, &'static Scanning)> {
    let all = places_of_payload(payload).filter_map(|(place, protocol)| Some((place, protocol.scanning?)));
    all.filter(|(_, scanning)| (scanning.begins)(payload))
}

/// The places of the bits that are set, ascending.
fn places(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (place < REGISTRY.len()).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::head::HeadKind;
    use crate::marks::STREAM_MARK;

    #[test]
    fn names_differ_and_the_last_is_unknown() {
        let names: HashSet<&str> = REGISTRY.iter().map(|protocol| protocol.name).collect();
        assert_eq!(names.len(), REGISTRY.len());
        assert_eq!(REGISTRY.last().map(|protocol| protocol.name), Some("unknown"));
    }

    #[test]
    fn a_kind_of_head_is_of_one_protocol_but_for_marks() {
        let kinds = |protocol: &&'static Protocol| protocol.head_kinds.iter().copied();
        let mut all: Vec<_> = REGISTRY
            .iter()
            .flat_map(kinds)
            .filter(|kind| *kind != STREAM_MARK)
            .collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), all.contains(&HeadKind(0))), (count, false));
        assert_eq!(REGISTRY[usize::from(place_of_head_kind(2))].name, "http/1.1");
        assert!(matches!(exchanges_of_head_kind(0), Exchanges::Turns));
    }

    #[test]
    fn a_first_byte_leads_to_its_protocols() {
        let names = |first: u8| beginning_with(first).map(|protocol| protocol.name).collect::<Vec<_>>();
        assert_eq!(names(b'*'), ["mongodb", "redis", "mysql"]);
        assert_eq!(
            names(b'S'),
            ["http/1.1", "mongodb", "postgresql", "ssh", "mysql", "memcached"]
        );
        assert_eq!(names(0xff), ["mongodb", "mysql"]);
        assert!(is_of_interest(b'G') && !is_of_interest(b'*') && !is_of_interest(0xff));
    }
}
