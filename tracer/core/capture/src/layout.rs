//! Finds where a frame's TCP payload begins and ends, which is all that the payload policy needs of the headers.
//!
//! Limits: Ethernet (with any number of VLAN tags) or raw IP; no tunnels, MPLS or PPPoE inside.

use std::ops::Range;

use crate::pcapng::LinkType;

/// The place of a frame's TCP payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The frame is no TCP packet.
    NotTcp,
    /// A later fragment of a TCP segment: `headers_len` bytes come before its piece of payload.
    Fragment { headers_len: usize },
    /// A TCP packet, or the first fragment of one.
    Tcp(Segment),
}

/// Places in the captured bytes of a TCP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The payload, padding of short frames left out. Empty if the capture ends in the headers.
    pub payload: Range<usize>,
    /// Where the payload ends on the wire; `None` if that is the frame's end.
    wire_end: Option<usize>,
    /// Source and destination, one behind the other.
    addresses: Range<usize>,
    /// Where the TCP header begins.
    header: usize,
}

impl Segment {
    /// Length of the payload on the wire, of a frame of the given length.
    pub fn wire_len(&self, original_len: u32) -> u32 {
        let end = self.wire_end.unwrap_or(original_len as usize);
        end.saturating_sub(self.payload.start) as u32
    }

    /// The addresses of a frame.
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.addresses.clone()]
    }

    /// Ports and sequence number, if they were captured.
    pub fn ports_and_seq(&self, frame: &[u8]) -> Option<([u8; 4], u32)> {
        let (start, _) = frame.get(self.header..)?.split_first_chunk::<8>()?;
        let (ports, seq) = start.split_first_chunk::<4>()?;
        Some((*ports, u32::from_be_bytes(*seq.first_chunk()?)))
    }

    /// The number of the byte that its sender expects next, if that was captured.
    pub fn ack(&self, frame: &[u8]) -> Option<u32> {
        let ack = frame.get(self.header + ACK_AT..)?.first_chunk()?;
        Some(u32::from_be_bytes(*ack))
    }

    /// Whether one of these flags is set.
    pub fn has_flag(&self, frame: &[u8], flags: u8) -> bool {
        frame.get(self.header + FLAGS_AT).is_some_and(|own| own & flags != 0)
    }
}

const PROTOCOL_TCP: u8 = 6;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88A8, 0x9100];
const IPV6_HEADER_LEN: usize = 40;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
/// Offset of a TCP header's flags.
const FLAGS_AT: usize = 13;
const ACK_AT: usize = 8;

/// Finds the TCP payload in the captured bytes of a frame.
pub fn locate(link_type: LinkType, frame: &[u8]) -> Layout {
    ip_start(link_type, frame)
        .and_then(|start| locate_ip(frame, start))
        .unwrap_or(Layout::NotTcp)
}

/// Where the IP header of a frame begins; `None` if it has none.
pub fn ip_start(link_type: LinkType, frame: &[u8]) -> Option<usize> {
    match link_type {
        LinkType::Ethernet => ethernet_header_len(frame),
        LinkType::RawIp => Some(0),
    }
}

/// Length of the Ethernet header with its VLAN tags; `None` if no IP follows.
fn ethernet_header_len(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        match be16(frame, at)? {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return Some(at + 2),
            tag if VLAN_TAGS.contains(&tag) => at += 4,
            _ => return None,
        }
    }
}

fn locate_ip(frame: &[u8], start: usize) -> Option<Layout> {
    match frame.get(start)? >> 4 {
        4 => locate_ipv4(frame, start),
        6 => locate_ipv6(frame, start),
        _ => None,
    }
}

fn locate_ipv4(frame: &[u8], start: usize) -> Option<Layout> {
    let header_len = usize::from(frame.get(start)? & 0x0F) * 4;
    if *frame.get(start + 9)? != PROTOCOL_TCP || header_len < 20 {
        return None;
    }
    let total_len = usize::from(be16(frame, start + 2)?);
    let wire_end = match total_len {
        0 => None, // a super-packet too long for the field (TSO, BIG TCP)
        len => Some(start + len),
    };
    let headers_len = start + header_len;
    if be16(frame, start + 6)? & 0x1FFF != 0 {
        return Some(Layout::Fragment { headers_len });
    }
    Some(locate_tcp(frame, start + 12..start + 20, headers_len, wire_end))
}

fn locate_ipv6(frame: &[u8], start: usize) -> Option<Layout> {
    let payload_len = usize::from(be16(frame, start + 4)?);
    let wire_end = match payload_len {
        0 => None, // jumbogram, BIG TCP
        len => Some(start + IPV6_HEADER_LEN + len),
    };
    let addresses = start + 8..start + IPV6_HEADER_LEN;
    let mut next_header = *frame.get(start + 6)?;
    let mut at = start + IPV6_HEADER_LEN;
    let mut later_fragment = None; // by the first fragment header, as for the collector
    loop {
        let header_len = match next_header {
            PROTOCOL_TCP if later_fragment == Some(true) => return Some(Layout::Fragment { headers_len: at }),
            PROTOCOL_TCP => return Some(locate_tcp(frame, addresses, at, wire_end)),
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => (usize::from(*frame.get(at + 1)?) + 1) * 8,
            AUTHENTICATION => (usize::from(*frame.get(at + 1)?) + 2) * 4,
            FRAGMENT => {
                let is_later = be16(frame, at + 2)? & 0xFFF8 != 0;
                later_fragment.get_or_insert(is_later);
                8
            }
            _ => return None,
        };
        next_header = *frame.get(at)?;
        at += header_len;
    }
}

/// Arguments: `header`, where the TCP header begins; `wire_end`, where the payload ends on the wire, if not the frame.
fn locate_tcp(frame: &[u8], addresses: Range<usize>, header: usize, wire_end: Option<usize>) -> Layout {
    let header_len = match frame.get(header + 12) {
        Some(offset_byte) => usize::from(offset_byte >> 4).max(5) * 4,
        None => frame.len(),
    };
    let payload_start = (header + header_len).min(frame.len());
    let end = wire_end.map_or(frame.len(), |end| frame.len().min(end));
    let addresses = if addresses.end <= frame.len() { addresses } else { 0..0 };
    Layout::Tcp(Segment {
        payload: payload_start..end.max(payload_start),
        wire_end,
        addresses,
        header,
    })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(tags: usize, ethertype: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0x00, 0, 5]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(rest);
        frame
    }

    fn tcp(options_len: usize, payload: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 20 + options_len];
        header[12] = (((20 + options_len) / 4) as u8) << 4;
        header.extend(payload);
        header
    }

    fn ipv4(total_len: Option<u16>, fragment: u16, options_len: usize, rest: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 20 + options_len];
        header[0] = 0x40 | ((20 + options_len) / 4) as u8;
        let len = total_len.unwrap_or((header.len() + rest.len()) as u16);
        header[2..4].copy_from_slice(&len.to_be_bytes());
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header[9] = 6;
        header.extend(rest);
        header
    }

    fn ipv6(next_header: u8, payload_len: Option<u16>, rest: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&payload_len.unwrap_or(rest.len() as u16).to_be_bytes());
        header[6] = next_header;
        header.extend(rest);
        header
    }

    fn payload_of(link_type: LinkType, frame: &[u8]) -> Option<Vec<u8>> {
        match locate(link_type, frame) {
            Layout::Tcp(segment) => Some(frame[segment.payload].to_vec()),
            _ => None,
        }
    }

    #[test]
    fn payload_is_found_behind_every_kind_of_header() {
        let segment = tcp(12, b"data");
        let authentication = [&[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &segment[..]].concat();
        let routing = [&[51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &authentication[..]].concat();
        let hop_by_hop = [&[43, 0, 0, 0, 0, 0, 0, 0], &routing[..]].concat();
        let packets = [
            ("ipv4", 0x0800, ipv4(None, 0, 0, &segment)),
            ("ipv4 with options", 0x0800, ipv4(None, 0, 8, &segment)),
            ("ipv4, length 0", 0x0800, ipv4(Some(0), 0, 0, &segment)),
            ("ipv4, first fragment", 0x0800, ipv4(None, 0x2000, 0, &segment)),
            ("ipv6", 0x86DD, ipv6(6, None, &segment)),
            ("ipv6, length 0", 0x86DD, ipv6(6, Some(0), &segment)),
            ("ipv6, three extension headers", 0x86DD, ipv6(0, None, &hop_by_hop)),
            (
                "ipv6, destination options",
                0x86DD,
                ipv6(60, None, &[&[6, 0, 0, 0, 0, 0, 0, 0], &segment[..]].concat()),
            ),
            (
                "ipv6, first fragment",
                0x86DD,
                ipv6(44, None, &[&[6, 0, 0, 1, 0, 0, 0, 0], &segment[..]].concat()),
            ),
        ];
        for (name, ethertype, packet) in packets {
            assert_eq!(
                payload_of(LinkType::RawIp, &packet).as_deref(),
                Some(&b"data"[..]),
                "{name}"
            );
            for tags in 0..3 {
                let frame = ethernet(tags, ethertype, &packet);
                assert_eq!(
                    payload_of(LinkType::Ethernet, &frame).as_deref(),
                    Some(&b"data"[..]),
                    "{name} {tags}"
                );
            }
        }
    }

    #[test]
    fn padding_is_no_payload() {
        let packet = ipv4(None, 0, 0, &tcp(0, b"d"));
        let frame = ethernet(0, 0x0800, &[&packet[..], b"leaked memory"].concat());
        assert_eq!(payload_of(LinkType::Ethernet, &frame).as_deref(), Some(&b"d"[..]));
    }

    #[test]
    fn later_fragments_have_no_tcp_header() {
        let v4 = ipv4(None, 0x0010, 0, b"piece of a segment");
        assert_eq!(locate(LinkType::RawIp, &v4), Layout::Fragment { headers_len: 20 });
        let v6 = ipv6(44, None, &[&[6, 0, 0, 0x10, 0, 0, 0, 0], &b"piece"[..]].concat());
        assert_eq!(locate(LinkType::RawIp, &v6), Layout::Fragment { headers_len: 48 });
    }

    #[test]
    fn every_prefix_is_harmless() {
        let packet = ipv6(60, None, &[&[6, 0, 0, 0, 0, 0, 0, 0], &tcp(12, b"data")[..]].concat());
        let frame = ethernet(1, 0x86DD, &packet);
        for len in 0..frame.len() {
            match locate(LinkType::Ethernet, &frame[..len]) {
                Layout::Tcp(segment) => {
                    assert!(segment.payload.start <= segment.payload.end && segment.payload.end <= len);
                    segment.addresses(&frame[..len]);
                    segment.ports_and_seq(&frame[..len]);
                }
                other => assert_eq!(other, Layout::NotTcp),
            }
        }
    }

    #[test]
    fn other_protocols_are_not_ours() {
        let mut udp = ipv4(None, 0, 0, &tcp(0, b""));
        udp[9] = 17;
        assert_eq!(locate(LinkType::RawIp, &udp), Layout::NotTcp);
        assert_eq!(
            locate(LinkType::Ethernet, &ethernet(0, 0x0806, &[0; 40])),
            Layout::NotTcp
        );
        assert_eq!(locate(LinkType::RawIp, &ipv6(58, None, &[0; 8])), Layout::NotTcp);
    }
}
