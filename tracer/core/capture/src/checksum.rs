//! Detects received packets with a wrong TCP checksum: TCP drops them, although the capture shows them.
//!
//! The checksum covers the whole packet, but the capture keeps only its head, so it must be verified here. Only
//! received packets that nobody has verified yet are checked: the card has verified most (`TP_STATUS_CSUM_VALID`), and
//! packets that were never on a wire have no checksum yet (`TP_STATUS_CSUMNOTREADY`: veth, `lo`, a virtual machine's
//! own host).
//!
//! Limits: not checked are fragments, IP headers with options or extensions (a source route changes the sum's
//! addresses), lengths of 0 (BIG TCP), tunnels, and packets longer than the part that the kernel hands over.
//!
//! Source: RFC 9293 §3.1, RFC 8200 §8.1, RFC 1071; Linux Documentation/networking/packet_mmap.rst.
//! Cost: about 0.1 ns a byte, of packets that the card has not checked.

use crate::layout::ip_start;
use crate::pcapng::LinkType;

const PROTOCOL_TCP: u8 = 6;
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const TCP_HEADER_LEN: usize = 20;
const CHECKSUM_AT: usize = 16;
const FRAGMENT_BITS: u16 = 0x3FFF;

/// Whether a TCP segment is completely in `frame`, and its checksum is wrong. A checksum of the pseudo-header alone is
/// not wrong: the sender's card completes it.
pub fn is_wrong(link_type: LinkType, frame: &[u8]) -> bool {
    let Some((addresses, segment)) = ip_start(link_type, frame).and_then(|start| ends(&frame[start..])) else {
        return false;
    };
    let pseudo = fold(sum(addresses) + segment.len() as u64 + u64::from(PROTOCOL_TCP));
    let found = u16::from_be_bytes([segment[CHECKSUM_AT], segment[CHECKSUM_AT + 1]]);
    found != pseudo && fold(u64::from(pseudo) + sum(segment)) != u16::MAX
}

/// Both addresses of a plain IP packet, and the whole TCP segment in it.
fn ends(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let (addresses, start, end) = match packet.first()? {
        0x45 => {
            let header: &[u8; IPV4_HEADER_LEN] = packet.first_chunk()?;
            let fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_BITS;
            let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let is_plain = fragment == 0 && header[9] == PROTOCOL_TCP;
            is_plain.then_some((&packet[12..IPV4_HEADER_LEN], IPV4_HEADER_LEN, total_len))?
        }
        version if version >> 4 == 6 => {
            let header: &[u8; IPV6_HEADER_LEN] = packet.first_chunk()?;
            let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let end = IPV6_HEADER_LEN + payload_len;
            (header[6] == PROTOCOL_TCP).then_some((&packet[8..IPV6_HEADER_LEN], IPV6_HEADER_LEN, end))?
        }
        _ => return None,
    };
    let segment = packet.get(start..end)?;
    (segment.len() >= TCP_HEADER_LEN).then_some((addresses, segment))
}

/// The sum of big-endian 16-bit words; an odd last byte is a word's first.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let whole: u64 = words.iter().map(|&word| u64::from(u32::from_be_bytes(word))).sum();
    let (pairs, last) = rest.as_chunks::<2>();
    let pairs: u64 = pairs.iter().map(|&pair| u64::from(u16::from_be_bytes(pair))).sum();
    whole + pairs + last.first().map_or(0, |&byte| u64::from(byte) << 8)
}

/// A sum in ones' complement, as 16 bits; 32-bit words are congruent to the sum of their halves.
fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(version: u8, payload: &[u8]) -> Vec<u8> {
        let segment_len = (TCP_HEADER_LEN + payload.len()) as u16;
        let mut bytes = if version == 4 {
            let mut header = vec![
                0x45,
                0,
                0,
                0,
                0,
                7,
                0x40,
                0,
                64,
                PROTOCOL_TCP,
                0,
                0,
                10,
                0,
                0,
                1,
                10,
                0,
                0,
                2,
            ];
            header[2..4].copy_from_slice(&(segment_len + 20).to_be_bytes());
            header
        } else {
            let mut header = vec![0x60, 0, 0, 0, 0, 0, PROTOCOL_TCP, 64];
            header[4..6].copy_from_slice(&segment_len.to_be_bytes());
            header.extend([0xFD; 16]);
            header.extend([0xFE; 16]);
            header
        };
        let start = bytes.len();
        let mut tcp = vec![0; TCP_HEADER_LEN];
        tcp[..4].copy_from_slice(&[0x1F, 0x90, 0xC0, 1]);
        tcp[12] = 0x50;
        bytes.extend(tcp);
        bytes.extend(payload);
        let sum = right(&bytes, start);
        bytes[start + CHECKSUM_AT..start + CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The checksum, word by word as RFC 1071 has it.
    fn right(packet: &[u8], start: usize) -> u16 {
        let addresses = if start == IPV4_HEADER_LEN { 12..20 } else { 8..40 };
        let segment = &packet[start..];
        let mut words = [
            &packet[addresses],
            &[0, PROTOCOL_TCP],
            &(segment.len() as u16).to_be_bytes(),
        ]
        .concat();
        words.extend(segment);
        words.resize(words.len().next_multiple_of(2), 0);
        let mut sum = 0u32;
        for pair in words.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn ethernet(tags: usize, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 5].repeat(tags));
        frame.extend(if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xDD] });
        frame.extend(packet);
        frame
    }

    #[test]
    fn every_flipped_bit_of_a_segment_is_seen_and_nothing_else_is() {
        for version in [4, 6] {
            for len in [0, 1, 2, 3, 4, 5, 1447] {
                let payload: Vec<u8> = (0..len).map(|at: usize| (at * 7) as u8).collect();
                let whole = packet(version, &payload);
                let start = if version == 4 { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
                for tags in 0..3 {
                    assert!(
                        !is_wrong(LinkType::Ethernet, &ethernet(tags, &whole)),
                        "{version} {len} {tags}"
                    );
                }
                assert!(!is_wrong(LinkType::RawIp, &whole));
                for at in (start..whole.len()).step_by(13) {
                    let mut spoilt = whole.clone();
                    spoilt[at] ^= 0x10;
                    assert!(is_wrong(LinkType::RawIp, &spoilt), "{version} {len} {at}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_judged_is_not_wrong() {
        let mut spoilt = packet(4, b"payload!");
        let last = spoilt.len() - 1;
        spoilt[last] ^= 1;
        assert!(is_wrong(LinkType::RawIp, &spoilt));
        assert!(is_wrong(LinkType::RawIp, &[&spoilt[..], b"padding"].concat()));
        let changed = |at: usize, value: u8| {
            let mut other = spoilt.clone();
            other[at] = value;
            other
        };
        let cases = [
            ("cut", spoilt[..last].to_vec()),
            ("options", changed(0, 0x46)),
            ("a first fragment", changed(6, 0x20)),
            ("a later fragment", changed(7, 1)),
            ("UDP", changed(9, 17)),
            (
                "no length",
                changed(2, 0)
                    .into_iter()
                    .enumerate()
                    .map(|(at, byte)| if at == 3 { 0 } else { byte })
                    .collect(),
            ),
        ];
        for (name, frame) in cases {
            assert!(!is_wrong(LinkType::RawIp, &frame), "{name}");
        }
        let pseudo = fold(sum(&spoilt[12..20]) + 28 + u64::from(PROTOCOL_TCP));
        let mut unfilled = spoilt.clone();
        unfilled[36..38].copy_from_slice(&pseudo.to_be_bytes());
        assert!(!is_wrong(LinkType::RawIp, &unfilled), "unfilled");
        for len in 0..spoilt.len() {
            assert!(
                !is_wrong(LinkType::Ethernet, &ethernet(0, &spoilt[..len.max(1)])),
                "{len}"
            );
        }
    }
}
