//! Where the next message begins in each direction of the connections at one interface, so that a packet which begins
//! within a message shows what follows it, and nothing within a message is taken for one.
//!
//! ```text
//! packet 1: | header, length 5000 | body …        next head: 5000 bytes after this header
//! packet 2: | … body, all of it                   Within: nothing is kept
//! packet 3: | … body | header | …                 Head: the message is looked for there
//! ```
//! 1. What the packets of a direction say of its next head is noted with the sequence number of the byte after them.
//! 2. A packet that continues there, or repeats bytes behind the last head, has a known place.
//! 3. Any other packet does not: one before it is missing, or it belongs to another connection. What was noted is
//!    forgotten, and packets are judged by themselves until one begins with a message.
//!
//! # Bounds
//! [`SETS`] × [`WAYS`] directions of 32 bytes (1 MiB), and 128 hellos of TLS (2.5 MiB); the direction that was silent for
//! longest makes room. A message of more than [`LONGEST_BODY`] bytes is not followed.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::cut_hellos::CutHellos;

const SETS: usize = 1 << 13;
const WAYS: usize = 4;
/// Longest distance to the next head: more than HTTP/2, MySQL and Ceph send in one message.
const LONGEST_BODY: u32 = 64 << 20;

/// The bytes of a packet in its direction's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub seq: u32,
    /// Length of the payload on the wire.
    pub len: u32,
}

/// What is known of where a packet lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Unknown,
    /// A repeat of what came before the last head.
    Earlier,
    /// All of it is within a message.
    Within,
    /// A message of this kind begins `at` bytes after the payload's start.
    Head {
        kind: MessageKind,
        at: usize,
    },
}

/// Whose messages come next in a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageKind {
    /// Place in the registry.
    pub protocol: u8,
    /// They are a server's, and known by its client's (`Protocol::agent_answers`).
    pub are_answers: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    /// A hash of interface, addresses and ports, never 0; 0 if the slot is free.
    key: u64,
    /// Number of the last packet that was looked up.
    used: u32,
    kind: MessageKind,
    /// Sequence numbers: of the byte behind the last packet with a head, of the byte that comes next, of the next head.
    /// `from ≤ expected ≤ head`, unless the packet ended within a head.
    from: u32,
    expected: u32,
    head: u32,
    is_cut: bool,
}

/// The directions that are followed.
#[derive(Debug, Default)]
pub struct Connections {
    hasher: RandomState,
    /// Empty until the first direction is followed.
    slots: Vec<Direction>,
    packets_count: u32,
    pub cut_hellos: CutHellos,
}

impl Connections {
    /// The key of a direction, given the bytes of its addresses and ports.
    #[inline]
    pub fn key(&self, interface: u32, addresses: &[u8], ports: [u8; 4]) -> u64 {
        let ends = u64::from(interface) << 32 | u64::from(u32::from_ne_bytes(ports));
        let hash = match <[u8; 8]>::try_from(addresses) {
            Ok(v4) => self.hasher.hash_one((ends, u64::from_ne_bytes(v4))), // for the hot path
            Err(_) => self.hasher.hash_one((ends, addresses)),
        };
        hash.max(1)
    }

    /// The key of the direction opposite to that with these addresses and ports.
    pub fn key_of_answers(&self, interface: u32, addresses: &[u8], [a, b, c, d]: [u8; 4]) -> u64 {
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        self.key(interface, &[destination, source].concat(), [c, d, a, b])
    }

    /// Whether no direction was followed yet; for the hot path.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Where a packet lies. What is known no longer holds if it does not continue the one before it.
    pub fn locate(&mut self, key: u64, place: Place) -> Position {
        self.packets_count = self.packets_count.wrapping_add(1);
        let used = self.packets_count;
        let Some(slot) = self.set_of(key).iter_mut().find(|slot| slot.key == key) else {
            return Position::Unknown;
        };
        slot.used = used;
        let offset = place.seq.wrapping_sub(slot.from);
        let end = offset.wrapping_add(place.len);
        let known_len = slot.expected.wrapping_sub(slot.from);
        if offset > known_len {
            let is_earlier = offset > u32::MAX / 2 && (end == 0 || end > u32::MAX / 2);
            if !is_earlier {
                slot.key = 0;
            }
            return if is_earlier {
                Position::Earlier
            } else {
                Position::Unknown
            };
        }
        let at = slot.head.wrapping_sub(place.seq);
        if slot.is_cut {
            slot.key = if end > known_len { 0 } else { key };
            return Position::Within;
        }
        if at < place.len {
            return Position::Head {
                kind: slot.kind,
                at: at as usize,
            };
        }
        slot.expected = slot.from.wrapping_add(known_len.max(end));
        Position::Within
    }

    /// Note that the next head of a direction begins `next` bytes after the start of a packet. If that is within the packet,
    /// the head is cut: of the packet that continues it nothing is known but that it begins within a message.
    pub fn follow(&mut self, key: u64, kind: MessageKind, place: Place, next: u64) {
        if next.saturating_sub(place.len.into()) > LONGEST_BODY.into() {
            return self.forget(key);
        }
        if self.slots.is_empty() {
            self.slots = vec![Direction::default(); SETS * WAYS];
        }
        let now = self.packets_count;
        let end = place.seq.wrapping_add(place.len);
        let age = |slot: &Direction| match slot.key {
            _ if slot.key == key => u64::MAX,
            0 => u64::MAX - 1,
            _ => now.wrapping_sub(slot.used).into(),
        };
        if let Some(slot) = self.set_of(key).iter_mut().max_by_key(|slot| age(slot)) {
            *slot = Direction {
                key,
                used: now,
                kind,
                from: end,
                expected: end,
                head: place.seq.wrapping_add(next as u32),
                is_cut: next < place.len.into(),
            };
        }
    }

    /// Follow the answers to a client's messages from sequence number `seq` on, if that direction is not followed.
    pub fn expect_answers(&mut self, key: u64, protocol: u8, seq: u32) {
        if !self.set_of(key).iter().any(|slot| slot.key == key) {
            let kind = MessageKind {
                protocol,
                are_answers: true,
            };
            self.follow(key, kind, Place { seq, len: 0 }, 0);
        }
    }

    /// Forget what is known of a direction.
    pub fn forget(&mut self, key: u64) {
        if let Some(slot) = self.set_of(key).iter_mut().find(|slot| slot.key == key) {
            slot.key = 0;
        }
    }

    fn set_of(&mut self, key: u64) -> &mut [Direction] {
        if self.slots.is_empty() {
            return &mut [];
        }
        let first = (key >> 32) as usize % SETS * WAYS;
        &mut self.slots[first..first + WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 7;
    const KIND: MessageKind = MessageKind {
        protocol: 3,
        are_answers: false,
    };

    fn place(seq: u32, len: u32) -> Place {
        Place { seq, len }
    }

    fn head(at: usize) -> Position {
        Position::Head { kind: KIND, at }
    }

    /// A direction of which a packet at `zero` of 100 bytes said that the next head is 250 bytes behind its start.
    fn one_direction(zero: u32) -> Connections {
        let mut connections = Connections::default();
        connections.follow(KEY, KIND, place(zero, 100), 250);
        connections
    }

    #[test]
    fn packets_that_continue_have_a_known_place() {
        for zero in [0, u32::MAX - 120, u32::MAX - 260] {
            let mut connections = one_direction(zero);
            let mut at = |offset: u32, len| connections.locate(KEY, place(zero.wrapping_add(offset), len));
            assert_eq!(at(100, 50), Position::Within);
            assert_eq!(at(100, 50), Position::Within, "a repeat");
            assert_eq!(at(120, 60), Position::Within, "a repeat with more");
            assert_eq!(at(20, 30), Position::Earlier);
            assert_eq!(at(180, 70), Position::Within);
            assert_eq!(at(250, 70), head(0));
            assert_eq!(at(240, 70), head(10), "a repeat that reaches to the head");
        }
    }

    #[test]
    fn answers_are_expected_where_nothing_is_followed() {
        let answers = MessageKind {
            are_answers: true,
            ..KIND
        };
        let mut connections = Connections::default();
        connections.expect_answers(KEY, 3, u32::MAX);
        let next = Position::Head { kind: answers, at: 0 };
        assert_eq!(connections.locate(KEY, place(u32::MAX, 10)), next);
        let mut connections = one_direction(0);
        connections.expect_answers(KEY, 3, 100);
        assert_eq!(connections.locate(KEY, place(100, 50)), Position::Within);
        let [one, other] = [
            ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4]),
            ([5, 6, 7, 8, 1, 2, 3, 4], [3, 4, 1, 2]),
        ];
        assert_eq!(
            connections.key_of_answers(0, &one.0, one.1),
            connections.key(0, &other.0, other.1)
        );
    }

    #[test]
    fn behind_a_missing_packet_nothing_is_known() {
        let gaps: [(u32, u32); 4] = [(101, 10), (250, 10), (900, 10), (u32::MAX - 20, 200)];
        for (offset, len) in gaps {
            let mut connections = one_direction(1000);
            let mut at = |offset: u32, len| connections.locate(KEY, place(offset.wrapping_add(1000), len));
            assert_eq!(at(offset, len), Position::Unknown, "{offset}");
            assert_eq!(at(100, 50), Position::Unknown, "{offset}, forgotten");
        }
    }

    #[test]
    fn behind_a_head_that_is_cut_one_packet_is_within_a_message() {
        let mut connections = one_direction(0);
        connections.follow(KEY, KIND, place(250, 100), 95);
        assert_eq!(connections.locate(KEY, place(350, 5)), Position::Within);
        assert_eq!(connections.locate(KEY, place(355, 5)), Position::Unknown);
    }

    #[test]
    fn a_message_that_is_too_long_is_not_followed() {
        for next in [100 + u64::from(LONGEST_BODY) + 1, u64::MAX] {
            let mut connections = one_direction(0);
            connections.follow(KEY, KIND, place(0, 100), next);
            assert_eq!(connections.locate(KEY, place(100, 1)), Position::Unknown, "{next}");
        }
    }

    #[test]
    fn of_many_directions_those_that_were_silent_for_longest_are_forgotten() {
        let mut connections = Connections::default();
        let same_set = |number: u64| number + 1;
        for number in 0..WAYS as u64 {
            connections.follow(same_set(number), KIND, place(0, 100), 250);
            connections.locate(same_set(number), place(100, 1));
        }
        connections.locate(same_set(0), place(101, 1));
        connections.follow(same_set(WAYS as u64), KIND, place(0, 100), 250);
        let mut known = |number| connections.locate(same_set(number), place(100, 1)) == Position::Within;
        assert_eq!([known(0), known(1), known(2), known(4)], [true, false, true, true]);
        assert_eq!(connections.slots.len(), SETS * WAYS);
    }
}
