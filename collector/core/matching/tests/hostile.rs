//! Input that is no TCP traffic: it must cost no more, for each event, than traffic does.
//!
//! Where the work grew with the square of the events, these would run for hours; the limit is only there to say so.

#[path = "../../../../fuzz/bodies/matching.rs"]
#[allow(dead_code)] // the target itself
mod matching;

use std::time::{Duration, Instant};

use matching::{Columns, Event, check};
use twintap_matching::{MatchResult, match_events};

const MANY: u32 = 100_000;
/// Of a debug build on a busy machine; each takes a second or two there.
const LIMIT: Duration = Duration::from_secs(60);
/// Rows may be this many times the events.
const ROWS_FOR_EACH: usize = 80;

const SYN: u16 = 0x02;
const ACK: u16 = 0x10;
const SEND: u8 = 2;
const RECEIVE: u8 = 1;

fn send_event(number: u32) -> Event {
    Event {
        host_ns: i64::from(number) * 1_000,
        direction: SEND,
        src_addr: 0,
        dst_addr: 1,
        src_port: 40_000,
        dst_port: 80,
        flags: ACK,
        ip_id: (number & 0xffff) as i32,
        ..Event::default()
    }
}

fn receive_event(number: u32) -> Event {
    Event {
        host: 1,
        direction: RECEIVE,
        ..send_event(number)
    }
}

/// The client's packet as the server's answer.
fn as_answer(event: Event) -> Event {
    Event {
        src_addr: event.dst_addr,
        dst_addr: event.src_addr,
        src_port: event.dst_port,
        dst_port: event.src_port,
        ..event
    }
}

fn run(events: impl Iterator<Item = Event>) -> MatchResult {
    let mut columns = Columns {
        host_of_address: vec![0, 1],
        ..Columns::default()
    };
    events.for_each(|event| columns.push(event));
    let start = Instant::now();
    let matched = match_events(&columns.events(), 0, &[]);
    assert!(start.elapsed() < LIMIT, "took {:?}", start.elapsed());
    assert!(matched.hops.kind.len() <= ROWS_FOR_EACH * columns.host.len());
    check(&columns, &matched);
    matched
}

#[test]
fn one_range_sent_without_end() {
    let range = |event: Event| Event {
        payload_len: 1_000,
        seq: 7,
        ..event
    };
    run((0..MANY).map(|number| range(send_event(number))));
    run((0..MANY).flat_map(|number| [range(send_event(number)), range(receive_event(number))]));
    run((0..MANY)
        .map(|number| range(send_event(number)))
        .chain((0..100).map(|number| range(receive_event(number)))));
}

#[test]
fn ranges_that_all_overlap() {
    type Shape = fn(u32) -> (u32, u32);
    let shapes: [(&str, Shape); 4] = [
        ("staircase", |number| (number, MANY)),
        ("nested", |number| (number, 2 * (MANY - number))),
        ("nested, outermost last", |number| (MANY - number, 2 * number + 1)),
        ("same start", |number| (5, number + 1)),
    ];
    for (name, shape) in shapes {
        let placed = |event: Event, number: u32| {
            let (seq, payload_len) = shape(number);
            Event {
                seq,
                payload_len,
                ..event
            }
        };
        let start = Instant::now();
        run((0..MANY).map(|number| placed(send_event(number), number)));
        run((0..MANY).flat_map(|number| {
            [
                placed(send_event(number), number),
                placed(receive_event(number), number),
            ]
        }));
        println!("{name}: {:?}", start.elapsed());
    }
}

#[test]
fn one_header_repeated_without_end() {
    for flags in [ACK, SYN, SYN | ACK, ACK | 0x01, 0x04] {
        let same = |event: Event| Event { flags, seq: 9, ..event };
        run((0..MANY).flat_map(|number| [same(send_event(number)), same(receive_event(number))]));
    }
    // Few of each kind, and many kinds: the dearest that are still looked at one by one.
    let few = |event: Event, number: u32| Event {
        ack: number / 100,
        seq: 9,
        ..event
    };
    run((0..MANY).flat_map(|number| [few(send_event(number), number), few(receive_event(number), number)]));
}

#[test]
fn a_four_tuple_used_again_without_end() {
    let syn = |event: Event, number: u32| Event {
        flags: SYN,
        seq: number * 7,
        ..event
    };
    let matched =
        run((0..MANY).flat_map(|number| [syn(send_event(number), number), syn(receive_event(number), number)]));
    assert_eq!(matched.connections.client_addr.len(), MANY as usize);
    let answer = |event: Event, number: u32| Event {
        flags: SYN | ACK,
        seq: number * 7,
        ack: 5,
        ..event
    };
    run((0..MANY).flat_map(|number| {
        [
            answer(send_event(number), number),
            answer(receive_event(number), number),
        ]
    }));
    let far = |event: Event, number: u32| Event {
        seq: (number % 5) << 30 | number,
        ..event
    };
    run((0..MANY).flat_map(|number| [far(send_event(number), number), far(receive_event(number), number)]));
}

#[test]
fn connections_that_were_all_translated() {
    let outer = |number: u32| Event {
        src_port: (number & 0xffff) as u16,
        src_addr: 10 + (number >> 16),
        ..send_event(number)
    };
    let inner = |event: Event| Event {
        src_addr: event.src_addr + 1_000,
        ..event
    };
    let count = MANY / 4;
    let matched = run((0..count).flat_map(|number| {
        let syn = Event {
            flags: SYN,
            seq: number * 9,
            ..outer(number)
        };
        let answer = Event {
            flags: SYN | ACK,
            seq: number * 5 + 1,
            ack: number * 9 + 1,
            ..as_answer(syn)
        };
        [
            syn,
            Event {
                host: 1,
                direction: RECEIVE,
                ..inner(syn)
            },
            Event {
                host: 1,
                direction: SEND,
                dst_addr: answer.dst_addr + 1_000,
                ..answer
            },
            Event {
                host: 0,
                direction: RECEIVE,
                ..answer
            },
        ]
    }));
    assert_eq!(matched.connections.translated.len(), count as usize);
}

#[test]
fn one_packet_at_very_many_points() {
    let at = |event: Event, number: u32| Event {
        point: (number & 0xffff) as u16,
        payload_len: 10,
        seq: 1,
        ..event
    };
    run((0..MANY).map(|number| at(send_event(number), number)));
}
