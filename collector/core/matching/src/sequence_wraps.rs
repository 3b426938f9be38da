//! How often the sequence numbers of a long stream wrapped before a capture joined it.
//!
//! Sequence numbers wrap every 4 GiB. A capture that joins without the handshake, more than 2 GiB after another one
//! did, is placed some multiples of 4 GiB too low by its sequence numbers alone. The timestamps option corrects this:
//! the same sequence number with the same timestamp is the same segment, because a sender's clock does not stand still
//! for 4 GiB (RFC 7323 §5.4).
//!
//! Limit: a stream without timestamps stays where its sequence numbers put it.

use rustc_hash::FxHashMap;

use crate::packets::Packet;

const SEQUENCE_SPACE: i64 = 1 << 32;
/// The offset of a packet in a shorter stream is unambiguous.
pub(crate) const MIN_AMBIGUOUS_LEN: i64 = 1 << 31;

/// Move the packets of one side that were placed whole multiples of 2^32 too low.
///
/// Arguments: `rows` of the side's packets, host by host; `anchor`, the host whose packets are placed correctly.
pub(crate) fn add_missing_wraps(packets: &mut [Packet], rows: &[Vec<u32>], anchor: usize) {
    let far = |&row: &u32| packets[row as usize].offset >= MIN_AMBIGUOUS_LEN;
    if rows.len() < 2 || !rows[anchor].iter().any(far) {
        return;
    }
    let key = |packet: &Packet| (packet.seq, packet.tsval);
    let stamped = |packets: &[Packet], rows: &[u32]| -> Vec<Packet> {
        let all = rows.iter().map(|&row| packets[row as usize]);
        all.filter(Packet::is_stamped).collect()
    };
    let known = stamped(packets, &rows[anchor]);
    let offsets: FxHashMap<_, _> = known.iter().map(|packet| (key(packet), packet.offset)).collect();
    for own in rows
        .iter()
        .enumerate()
        .filter(|(host, _)| *host != anchor)
        .map(|(_, own)| own)
    {
        let shift = |packet: &Packet| offsets.get(&key(packet)).map(|offset| offset - packet.offset);
        let found = stamped(packets, own).iter().find_map(shift).unwrap_or(0);
        if found % SEQUENCE_SPACE == 0 {
            own.iter().for_each(|&row| packets[row as usize].offset += found);
        }
    }
}
