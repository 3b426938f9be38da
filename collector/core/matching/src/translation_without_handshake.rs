//! Finds translated connections whose handshake was not captured: see the header of [`crate::translation`].
//!
//! The fingerprint of a 4-tuple that only one host sent and received under is the set of its packets with the lowest
//! hashes (`SKETCH_HASHES` in each direction). Two captures of one connection that overlap in time share many of these
//! packets, however long the connection is.
//!
//! Source: Broder (1997), On the resemblance and containment of documents, for sketches of least hashes.

use rustc_hash::FxHashMap;

use crate::connections::Groups;
use crate::translation::{FourTuple, Translation};
use crate::{Direction, Events, flag, option};

/// Hashes kept of each 4-tuple and direction.
const SKETCH_HASHES: usize = 64;
/// Packets that two 4-tuples must share in each direction to be one connection.
const MIN_SHARED_PER_DIRECTION: u32 = 2;
/// Packets that they must share in both directions together.
const MIN_SHARED_TOTAL: u32 = 6;

/// A 4-tuple that one host alone sent and received under.
struct Lone {
    host: u16,
    /// Address and port of the host itself, and of its peer.
    own: (u32, u16),
    peer: (u32, u16),
    /// The lowest hashes of the packets it sent, and of those it received; ascending.
    sketches: [Vec<u64>; 2],
}

/// Finds connections known by two 4-tuples from packets after their handshakes.
///
/// Cost: a look at two events of each 4-tuple; a hash of each packet of those that may be translated.
pub(crate) fn find(events: &Events, groups: &Groups) -> Vec<Translation> {
    let maybe: Vec<&[u32]> = groups.iter().filter(|group| may_be_lone(events, group)).collect();
    let first_host = |group: &&[u32]| group.first().map(|&event| events.host[event as usize]);
    if maybe.len() < 2 || maybe.iter().all(|group| first_host(group) == first_host(&maybe[0])) {
        return Vec::new(); // nearly always
    }
    let lone: Vec<Lone> = maybe.into_iter().filter_map(|group| lone(events, group)).collect();
    let mut found: Vec<Translation> = partners(&lone)
        .into_iter()
        .map(|(one, other)| translation(&lone[one], &lone[other]))
        .collect();
    found.sort_by_key(|t| {
        (
            t.outer.client_addr,
            t.outer.client_port,
            t.outer.server_addr,
            t.outer.server_port,
        )
    });
    found
}

/// False if both ends were captured. Events are sorted by host, so the first and the last event show whether two hosts
/// saw the 4-tuple.
fn may_be_lone(events: &Events, group: &[u32]) -> bool {
    let (Some(&first), Some(&last)) = (group.first(), group.last()) else {
        return false;
    };
    let is_directed = |event: u32| matches!(events.direction(event), Direction::Send | Direction::Receive);
    events.host[first as usize] == events.host[last as usize] || !is_directed(first) || !is_directed(last)
}

fn lone(events: &Events, group: &[u32]) -> Option<Lone> {
    let mut found: Option<Lone> = None;
    for &event in group {
        let i = event as usize;
        let sent = match events.direction(event) {
            Direction::Send => true,
            Direction::Receive => false,
            Direction::Loopback => return None,
            Direction::Unknown => continue, // only passed through
        };
        let (src, dst) = (
            (events.src_addr[i], events.src_port[i]),
            (events.dst_addr[i], events.dst_port[i]),
        );
        let (own, peer) = if sent { (src, dst) } else { (dst, src) };
        let lone = found.get_or_insert_with(|| Lone {
            host: events.host[i],
            own,
            peer,
            sketches: [Vec::new(), Vec::new()],
        });
        if lone.host != events.host[i] || lone.own != own {
            return None;
        }
        if let Some(hash) = fingerprint(events, i) {
            keep_least(&mut lone.sketches[usize::from(!sent)], hash);
        }
    }
    found
}

/// A hash of the header fields that a translator keeps; nothing for packets that look alike in many connections.
fn fingerprint(events: &Events, i: usize) -> Option<u64> {
    if events.flags[i] & (flag::SYN | flag::RST) != 0 || events.flags[i] & flag::ACK == 0 {
        return None;
    }
    let is_stamped = events.options[i] & option::TIMESTAMPS != 0;
    let stamps = if is_stamped {
        (events.tsval[i], events.tsecr[i])
    } else {
        (0, 0)
    };
    let numbers = u64::from(events.seq[i]) << 32 | u64::from(events.ack[i]);
    let stamps = u64::from(stamps.0) << 32 | u64::from(stamps.1);
    Some(mix(mix(numbers) ^ stamps))
}

/// Spread over all bits (the finalizer of SplitMix64, Steele et al. 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

fn keep_least(sketch: &mut Vec<u64>, hash: u64) {
    if sketch.len() == SKETCH_HASHES && sketch.last().is_some_and(|&largest| hash >= largest) {
        return;
    }
    if let Err(place) = sketch.binary_search(&hash) {
        sketch.insert(place, hash);
        sketch.truncate(SKETCH_HASHES);
    }
}

/// Pairs of places in `lone` that share packets in both directions, and none with a third.
fn partners(lone: &[Lone]) -> Vec<(usize, usize)> {
    // The key's direction is the sender's: what one sent the other received.
    let mut by_hash: FxHashMap<u64, Vec<(usize, bool)>> = FxHashMap::default();
    for (place, one) in lone.iter().enumerate() {
        for (sketch, sent) in one.sketches.iter().zip([true, false]) {
            for &hash in sketch {
                by_hash.entry(hash).or_default().push((place, sent));
            }
        }
    }
    let mut shared: FxHashMap<(usize, usize), [u32; 2]> = FxHashMap::default();
    for seen in by_hash.values() {
        for (at, &(one, one_sent)) in seen.iter().enumerate() {
            for &(other, other_sent) in &seen[at + 1..] {
                if lone[one].host != lone[other].host && one_sent != other_sent {
                    shared.entry((one, other)).or_default()[usize::from(one_sent)] += 1;
                }
            }
        }
    }
    let mut likes = vec![0_u32; lone.len()];
    for &(one, other) in shared.keys() {
        likes[one] += 1;
        likes[other] += 1;
    }
    let is_sure = |votes: &[u32; 2]| {
        votes.iter().all(|&count| count >= MIN_SHARED_PER_DIRECTION) && votes.iter().sum::<u32>() >= MIN_SHARED_TOTAL
    };
    let sure = shared
        .iter()
        .filter(|((one, other), votes)| likes[*one] == 1 && likes[*other] == 1 && is_sure(votes));
    sure.map(|(&pair, _)| pair).collect()
}

/// The side with the higher port is taken for the client, as for any connection without a captured handshake.
fn translation(one: &Lone, other: &Lone) -> Translation {
    let (client, server) = if one.own.1 > one.peer.1 {
        (one, other)
    } else {
        (other, one)
    };
    let tuple = |client: (u32, u16), server: (u32, u16)| FourTuple {
        client_addr: client.0,
        client_port: client.1,
        server_addr: server.0,
        server_port: server.1,
    };
    Translation::without_handshake(
        tuple(client.own, client.peer),
        tuple(server.peer, server.own),
        server.host,
    )
}
