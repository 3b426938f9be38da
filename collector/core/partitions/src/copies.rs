//! Leaves out copies: packets that a capture holds more than once. A mirror port copies a packet where it enters the
//! switch and where it leaves; two ports of a bridge, captured as one interface, show it twice. One of the copies
//! stays.
//!
//! The caller determines between which addresses packets are copied, how often, and within how many nanoseconds. There,
//! a packet is a copy of another if their headers are equal and their stamps at most that far apart. A retransmission
//! has another IP ID or timestamp, or comes later. If it has neither and comes at once, as many packets stay as were
//! sent, because no more copies are left out for each packet that stays than the capture makes.
//!
//! Cost: a look-up for each packet of a capture that copies; nothing for others.

use rustc_hash::FxHashMap;
use twintap_wire::events::{Event, EventColumns};

/// How a capture copies packets between two addresses (by number) at one of its interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copying {
    pub src: u32,
    pub dst: u32,
    pub interface: u16,
    /// How often it shows a packet.
    pub times: u8,
    /// The longest time between the stamps of a packet and its copy.
    pub longest_ns: i64,
}

/// A packet that is kept: its stamp, and how many copies of it may follow.
type OriginalPacket = (i64, u8);

/// A packet's header without the fields in which copies differ: stamp, frame number and link header.
fn header(event: &Event) -> Event {
    Event {
        frame: 0,
        host_ns: 0,
        captured_len: 0,
        original_len: 0,
        ..*event
    }
}

/// The rows from `start` on that are no copies, ascending; `None` if that is all of them.
pub fn rows_without_copies(events: &EventColumns, start: usize, copying: &[Copying]) -> Option<Vec<u32>> {
    if copying.is_empty() {
        return None;
    }
    let rules: FxHashMap<_, _> = copying
        .iter()
        .map(|rule| ((rule.src, rule.dst, rule.interface), (rule.times, rule.longest_ns)))
        .collect();
    let mut kept: FxHashMap<Event, OriginalPacket> = FxHashMap::default();
    let mut is_copy = |row: usize| {
        let event = events.row(row);
        let Some(&(times, longest_ns)) = rules.get(&(event.src_addr, event.dst_addr, event.interface)) else {
            return false;
        };
        match kept.get_mut(&header(&event)) {
            Some((at, left)) if *left > 0 && event.host_ns.abs_diff(*at) <= longest_ns.unsigned_abs() => {
                *left -= 1;
                true
            }
            Some(known) => {
                *known = (event.host_ns, times.saturating_sub(1));
                false
            }
            None => {
                kept.insert(header(&event), (event.host_ns, times.saturating_sub(1)));
                false
            }
        }
    };
    let rows: Vec<u32> = (start..events.len())
        .filter(|&row| !is_copy(row))
        .map(|row| row as u32)
        .collect();
    (rows.len() < events.len() - start).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;
    const MS: i64 = 1_000_000;

    fn rule(times: u8) -> Copying {
        Copying {
            src: 1,
            dst: 2,
            interface: 0,
            times,
            longest_ns: 200 * US,
        }
    }

    fn packet(host_ns: i64, ip_id: i32, tsval: u32) -> Event {
        Event {
            host_ns,
            src_addr: 1,
            dst_addr: 2,
            seq: 7,
            payload_len: 100,
            ip_id,
            tsval,
            options: 1,
            ..Event::default()
        }
    }

    fn rows_kept(packets: &[Event], times: u8) -> Vec<u32> {
        let mut events = EventColumns::default();
        events.extend(packets);
        rows_without_copies(&events, 0, &[rule(times)]).unwrap_or_else(|| (0..packets.len() as u32).collect())
    }

    #[test]
    fn what_stays_of_packets_with_one_header() {
        let cases: &[(&str, &[Event], u8, &[u32])] = &[
            (
                "a packet and its copy",
                &[packet(0, 5, 1), packet(3 * US, 5, 1)],
                2,
                &[0],
            ),
            (
                "the copy has the lesser stamp",
                &[packet(3 * US, 5, 1), packet(0, 5, 1)],
                2,
                &[0],
            ),
            (
                "sent again, with a number of its own",
                &[
                    packet(0, 5, 1),
                    packet(3 * US, 5, 1),
                    packet(40 * US, 6, 1),
                    packet(43 * US, 6, 1),
                ],
                2,
                &[0, 2],
            ),
            (
                "sent again, with another timestamp only",
                &[
                    packet(0, 0, 1),
                    packet(3 * US, 0, 1),
                    packet(40 * US, 0, 2),
                    packet(43 * US, 0, 2),
                ],
                2,
                &[0, 2],
            ),
            (
                "sent again later, with the same header",
                &[
                    packet(0, 0, 1),
                    packet(3 * US, 0, 1),
                    packet(MS, 0, 1),
                    packet(MS + 3 * US, 0, 1),
                ],
                2,
                &[0, 2],
            ),
            (
                "sent again at once, with the same header",
                &[
                    packet(0, 0, 1),
                    packet(3 * US, 0, 1),
                    packet(40 * US, 0, 1),
                    packet(43 * US, 0, 1),
                ],
                2,
                &[0, 2],
            ),
            (
                "one of them not copied",
                &[packet(0, 0, 1), packet(MS, 0, 1)],
                2,
                &[0, 1],
            ),
            (
                "seen three times",
                &[packet(0, 5, 1), packet(3 * US, 5, 1), packet(5 * US, 5, 1)],
                3,
                &[0],
            ),
        ];
        for (name, packets, times, expected) in cases {
            assert_eq!(rows_kept(packets, *times), *expected, "{name}");
        }
    }

    #[test]
    fn only_packets_between_the_addresses_at_the_interface_that_copies() {
        let others = [
            Event {
                dst_addr: 3,
                ..packet(0, 5, 1)
            },
            Event {
                interface: 1,
                ..packet(0, 5, 1)
            },
        ];
        for other in others {
            assert_eq!(rows_kept(&[other, other], 2), [0, 1]);
        }
    }
}
