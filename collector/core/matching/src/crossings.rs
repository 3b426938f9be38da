//! Crossings: packets with new data that left before data from the other side had arrived, so that both were on the way
//! at the same time.
//!
//! An acknowledgement number says what its sender had received when it sent the packet. So one host's capture is enough,
//! and no clocks are compared:
//! ```text
//! own host     bytes 0..100 ──▶          ▲ data of the peer, which acknowledges only byte 0: they crossed
//! peer                      data ──▶   bytes 0..100 arrive
//! ```
//! The same holds at any point that both directions pass, so a capture that does not say which end its host is will do.
//! A packet of the own host acknowledges all that the host has received, so only the peer's packets are examined. Each
//! crossing is seen from both ends, by a packet of either.
//!
//! Where a client awaits each answer before it asks again, nothing crosses. What crosses is pipelined, pushed, or belongs
//! to several requests at once.
//!
//! Limits: what an application had received in its kernel, but not read, when it wrote, counts as received.
//!
//! Source: RFC 9293 §3.4.

use crate::connections::distance;
use crate::flag;
use crate::packets::Packets;

/// Call `note` with the stream offset of each of the peer's packets that crossed, and with the own side's bytes that its
/// sender had not received (first, and after the last). `own` and `peer` are the rows of either side that one host
/// captured, in the order of its capture. Cost: one pass over both.
pub(crate) fn find(packets: Packets, [own, peer]: [&[u32]; 2], mut note: impl FnMut(i64, (i64, i64))) {
    let (Some(&first), Some(&other)) = (own.first(), peer.first()) else {
        return;
    };
    let host = packets.at(first).host;
    if packets.at(other).host != host {
        return;
    }
    let with_data = |rows| {
        packets
            .of(rows)
            .filter(|packet| packet.carries_data() && packet.host == host)
    };
    let mut sent = with_data(own).peekable();
    // The last data sent, as sequence number and offset, and the offsets after the last byte sent and received.
    let mut last: Option<(u32, i64)> = None;
    let (mut sent_end, mut received_end) = (i64::MIN, i64::MIN);
    for arrived in with_data(peer) {
        while let Some(packet) = sent.next_if(|packet| packet.event < arrived.event) {
            last = Some((packet.seq, packet.offset));
            sent_end = sent_end.max(packet.data_range().1);
        }
        let (start, end) = arrived.data_range();
        let is_new = end > received_end;
        received_end = received_end.max(end);
        if let (Some((seq, offset)), true) = (last, is_new && arrived.has(flag::ACK)) {
            let acknowledged = offset.saturating_add(distance(arrived.ack, seq).into());
            if acknowledged < sent_end {
                note(start, (acknowledged, sent_end));
            }
        }
    }
}
