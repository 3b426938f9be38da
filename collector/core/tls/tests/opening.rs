//! Connections between OpenSSL's client and server, of the fuzzer's corpus: however packets cut them, whatever is
//! missing.

#[path = "../../../../fuzz/bodies/opening.rs"]
mod opening;

#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

use mutation::{corpus, run};
use opening::{OpenedStreams, Packet, open, split};

/// What the applications say: the lengths of the client's messages and the server's, in turn.
const SAID_LENS: [usize; 2] = [40 + 1 + 300, 500 + 2_000 + 1];

/// The packets of a file, and what is opened of them.
fn read(file: &[u8]) -> (Vec<u8>, Vec<Packet>, OpenedStreams) {
    let (key_log, packets) = split(file);
    let opened = open(key_log, &packets, 7);
    (key_log.to_vec(), packets, opened)
}

/// A packet without payload.
fn acknowledgement(is_servers: bool) -> Packet {
    Packet {
        is_servers,
        distance: 0,
        payload: Vec::new(),
        cut_len: 0,
    }
}

/// The packets, of which those of a side are cut `first` bytes behind their beginning.
fn cut(packets: &[Packet], first: usize) -> Vec<Packet> {
    let halves = |packet: &Packet| {
        let (one, other) = packet.payload.split_at(first.min(packet.payload.len()));
        let part = |payload: &[u8]| Packet {
            payload: payload.to_vec(),
            ..packet.clone()
        };
        [part(one), part(other)]
    };
    packets
        .iter()
        .flat_map(halves)
        .filter(|packet| !packet.payload.is_empty())
        .collect()
}

#[test]
fn all_is_opened_wherever_packets_cut_it() {
    for file in corpus("tls_opening") {
        let (key_log, packets, whole) = read(&file);
        assert_eq!(whole.bytes.each_ref().map(Vec::len), SAID_LENS);
        assert_eq!(whole.missed_count, 0);
        // The client's hello must be whole up to its session's id.
        for first in (76..220).chain((220..1_400).step_by(29)) {
            assert_eq!(open(&key_log, &cut(&packets, first), 7), whole, "{first}");
        }
        assert_eq!(open(&key_log, &packets, u32::MAX - 1_000), whole);
    }
}

#[test]
fn packets_out_of_order_and_repeated_change_nothing() {
    for file in corpus("tls_opening") {
        let (key_log, packets, whole) = read(&file);
        for place in 1..packets.len() {
            let mut twice = packets.clone();
            let back = -(packets[place].payload.len() as i16);
            twice.insert(
                place + 1,
                Packet {
                    distance: back,
                    ..packets[place].clone()
                },
            );
            assert_eq!(open(&key_log, &twice, 7), whole, "{place} twice");
        }
    }
}

#[test]
fn behind_a_missing_packet_records_are_opened_again() {
    for file in corpus("tls_opening") {
        let (key_log, packets, whole) = read(&file);
        let large = |packet: &Packet| packet.is_servers && packet.payload.len() > 1_000;
        let first = packets.iter().rposition(large).expect("the longest answer");
        for place in first..packets.len() - 1 {
            let mut less = packets.clone();
            let missing = less.remove(place);
            let next = less[place..]
                .iter_mut()
                .find(|packet| packet.is_servers == missing.is_servers);
            let Some(next) = next else { continue };
            next.distance = missing.payload.len() as i16;
            less.extend([false, true, false].map(acknowledgement));
            let opened = open(&key_log, &less, 7);
            let side = usize::from(missing.is_servers);
            assert_eq!(opened.bytes[1 - side], whole.bytes[1 - side], "{place}");
            assert!(
                opened.bytes[side].len() < whole.bytes[side].len() && opened.missed_count > 0,
                "{place}"
            );
            assert_eq!(
                opened.places[side].last(),
                whole.places[side].last(),
                "{place}: the last record"
            );
        }
    }
}

#[test]
fn of_a_packet_that_is_cut_only_its_record_is_lost() {
    for file in corpus("tls_opening") {
        let (key_log, mut packets, whole) = read(&file);
        let last = packets.len() - 1;
        let large = (0..last)
            .rfind(|&place| packets[place].payload.len() > 1_000)
            .expect("a large one");
        let kept = packets[large].payload.len() - 100;
        packets[large].payload.truncate(kept);
        packets[large].cut_len = 100;
        let opened = open(&key_log, &packets, 7);
        assert_eq!(opened.missed_count, 1);
        assert_eq!(opened.bytes[0], whole.bytes[0]);
        assert_eq!(opened.places[1].last(), whole.places[1].last());
    }
}

#[test]
fn other_keys_open_nothing() {
    for file in corpus("tls_opening") {
        let (key_log, packets, _) = read(&file);
        let mut other = key_log.clone();
        for line in other
            .split_mut(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty() && line[0] != b'#')
        {
            let place = line.len() - 1;
            line[place] = if line[place] == b'0' { b'1' } else { b'0' };
        }
        let opened = open(&other, &packets, 7);
        assert!(opened.bytes.iter().all(Vec::is_empty) && opened.missed_count > 0);
    }
}

#[test]
fn bodies() {
    run("tls_opening", opening::tls_opening);
}
