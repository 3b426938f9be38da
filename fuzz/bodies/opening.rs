//! Opening TLS: a key log, and packets of a connection, whole, cut and missing.

use std::sync::Arc;

use twintap_tls::{KeyLog, TlsOpener};
use twintap_wire::counters::Counters;
use twintap_wire::events::Event;
use twintap_wire::frames::Direction;
use twintap_wire::opening::{Opener, RecordFound};

/// All that the applications of the corpus say.
pub const SAID: u8 = b'x';
const FIELDS_LEN: usize = 7;
const ACK: u16 = 0x10;

/// A packet: whether the server sends it, its first byte's distance from the end of the side's packet before it, its
/// payload as captured, and how many bytes of it were not captured.
#[derive(Clone, Debug)]
pub struct Packet {
    pub is_servers: bool,
    pub distance: i16,
    pub payload: Vec<u8>,
    pub cut_len: u16,
}

/// What was opened of a connection: each side's bytes with their places in its stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenedStreams {
    pub bytes: [Vec<u8>; 2],
    pub places: [Vec<u32>; 2],
    pub missed_count: usize,
}

/// A key log up to the first zero, then packets.
pub fn split(data: &[u8]) -> (&[u8], Vec<Packet>) {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (mut rest, mut packets) = (data.get(end + 1..).unwrap_or(&[]), Vec::new());
    while let Some((fields, behind)) = rest.split_first_chunk::<FIELDS_LEN>() {
        let number = |at: usize| u16::from_le_bytes([fields[at], fields[at + 1]]);
        let len = usize::from(number(3)).min(behind.len());
        packets.push(Packet {
            is_servers: fields[0] & 1 != 0,
            distance: number(1) as i16,
            payload: behind[..len].to_vec(),
            cut_len: number(5),
        });
        rest = &behind[len..];
    }
    (&data[..end], packets)
}

/// Open a connection that begins at sequence number `zero` of either side.
pub fn open(key_log: &[u8], packets: &[Packet], zero: u32) -> OpenedStreams {
    let mut keys = KeyLog::default();
    keys.add(key_log);
    let (mut opener, mut counters) = (TlsOpener::new(Arc::new(keys)), Counters::default());
    let client = Direction {
        src: ([10, 0, 0, 1].into(), 40_000),
        dst: ([10, 0, 0, 2].into(), 443),
        interface: 0,
    };
    let (mut next, mut opened) = ([zero; 2], OpenedStreams::default());
    for packet in packets {
        let side = usize::from(packet.is_servers);
        let seq = next[side].wrapping_add_signed(packet.distance.into());
        let payload_len = packet.payload.len() as u32 + u32::from(packet.cut_len);
        let event = Event {
            seq,
            ack: next[1 - side],
            payload_len,
            flags: ACK,
            ..Event::default()
        };
        next[side] = seq.wrapping_add(payload_len);
        let ends = if packet.is_servers { client.other_way() } else { client };
        opener.take(
            ends,
            &event,
            &packet.payload,
            &mut counters,
            &mut |found, _| match found {
                RecordFound::Record(record) => {
                    let place = seq
                        .wrapping_sub(zero)
                        .wrapping_add_signed(record.at)
                        .wrapping_add(record.content_at);
                    let len = record.content.len() as u32;
                    opened.bytes[side].extend_from_slice(record.content);
                    opened.places[side].extend((0..len).map(|at| place.wrapping_add(at)));
                    let first = record
                        .places
                        .wire_seq(record.clear_seq)
                        .map(|first| first.wrapping_sub(zero));
                    assert!(len == 0 || first == Some(place), "places lead to where the record is");
                    assert!(record.shown.len() <= record.wire_len as usize);
                }
                RecordFound::Sealed { bytes, .. } => assert!(bytes.len() <= 5),
                RecordFound::Missed => opened.missed_count += 1,
            },
        );
    }
    opened
}

/// Invariant: it does not panic, and nothing is opened but what was encrypted.
pub fn tls_opening(data: &[u8]) {
    let (key_log, packets) = split(data);
    let opened = open(key_log, &packets, u32::MAX - 5_000);
    assert!(opened.bytes.iter().flatten().all(|&byte| byte == SAID));
}
