//! Tunnels: where the inner network layer begins in an IP packet that carries another.
//!
//! Source: RFC 2003 and RFC 4213 (IP in IP), RFC 2784 and RFC 2890 (GRE), RFC 7348 (VXLAN), RFC 8926 (Geneve). VXLAN
//! and Geneve are known by their UDP destination port, so a network that uses others shows as UDP. Not handled: GRE
//! version 1 (PPTP) and with source routing, GUE, FOU, WireGuard and ESP (encrypted).

use crate::bytes::be16;
use crate::error::{DecodeError, Layer};
use crate::ip::IpHeader;
use crate::link::{self, NetworkType};

const IP_IN_IP: u8 = 4;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;

const UDP_LEN: usize = 8;
/// IANA's port, and the default port of Linux.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const VXLAN_LEN: usize = 8;
/// The flag that says that the network identifier is valid; it always is.
const VXLAN_VALID: u8 = 0x08;
const GENEVE_PORT: u16 = 6081;
const GENEVE_LEN: usize = 8;
const GRE_LEN: usize = 4;
/// Checksum, key and sequence number: 4 bytes each if present.
const GRE_OPTIONAL: [u16; 3] = [0x8000, 0x2000, 0x1000];
/// Version and routing: not handled if set.
const GRE_UNKNOWN: u16 = 0x4007;
/// EtherType of an Ethernet frame inside (Transparent Ethernet Bridging).
const ETHERTYPE_ETHERNET: u16 = 0x6558;

/// What a tunnel carries, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inner {
    pub network: NetworkType,
    pub offset: usize,
}

/// The inner packet of the IP packet `ip`; nothing if it is no tunnel.
///
/// # Errors
/// A tunnel's header that is cut by the capture.
pub fn inner(frame: &[u8], ip: &IpHeader) -> Result<Option<Inner>, DecodeError> {
    match ip.protocol {
        IP_IN_IP => Ok(Some(Inner {
            network: NetworkType::Ipv4,
            offset: ip.offset,
        })),
        IPV6_IN_IP => Ok(Some(Inner {
            network: NetworkType::Ipv6,
            offset: ip.offset,
        })),
        GRE => gre(frame, ip.offset),
        UDP => in_udp(frame, ip.offset),
        _ => Ok(None),
    }
}

fn gre(frame: &[u8], offset: usize) -> Result<Option<Inner>, DecodeError> {
    need(frame, offset, GRE_LEN)?;
    let flags = be16(frame, offset);
    if flags & GRE_UNKNOWN != 0 {
        return Ok(None);
    }
    let optional_len = GRE_OPTIONAL.iter().filter(|&bit| flags & bit != 0).count() * 4;
    by_ethertype(frame, be16(frame, offset + 2), offset + GRE_LEN + optional_len)
}

fn in_udp(frame: &[u8], offset: usize) -> Result<Option<Inner>, DecodeError> {
    // A datagram cut before its port is no TCP either way.
    let Some(udp) = frame.get(offset..offset + UDP_LEN) else {
        return Ok(None);
    };
    let start = offset + UDP_LEN;
    match be16(udp, 2) {
        port if VXLAN_PORTS.contains(&port) => vxlan(frame, start),
        GENEVE_PORT => geneve(frame, start),
        _ => Ok(None),
    }
}

fn vxlan(frame: &[u8], offset: usize) -> Result<Option<Inner>, DecodeError> {
    need(frame, offset, VXLAN_LEN)?;
    if frame[offset] & VXLAN_VALID == 0 {
        return Ok(None);
    }
    by_ethertype(frame, ETHERTYPE_ETHERNET, offset + VXLAN_LEN)
}

fn geneve(frame: &[u8], offset: usize) -> Result<Option<Inner>, DecodeError> {
    need(frame, offset, GENEVE_LEN)?;
    let (version, options_len) = (frame[offset] >> 6, usize::from(frame[offset] & 0x3f) * 4);
    if version != 0 {
        return Ok(None);
    }
    by_ethertype(frame, be16(frame, offset + 2), offset + GENEVE_LEN + options_len)
}

fn by_ethertype(frame: &[u8], ethertype: u16, offset: usize) -> Result<Option<Inner>, DecodeError> {
    let inner = if ethertype == ETHERTYPE_ETHERNET {
        let header = link::ethernet(frame, offset)?;
        Inner {
            network: header.network,
            offset: header.offset,
        }
    } else {
        Inner {
            network: link::by_ethertype(ethertype),
            offset,
        }
    };
    Ok((inner.network != NetworkType::Other).then_some(inner))
}

fn need(frame: &[u8], offset: usize, len: usize) -> Result<(), DecodeError> {
    let available = frame.len().saturating_sub(offset);
    if available < len {
        Err(DecodeError::cut(Layer::Tunnel, offset, len, available))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Addresses;

    fn ip(protocol: u8) -> IpHeader {
        IpHeader {
            addresses: Addresses::V4 { src: 0, dst: 0 },
            ip_id: 0,
            protocol,
            offset: 2,
            len: 1000,
            fragment: None,
            is_length_zero: false,
        }
    }

    fn udp(port: u16, behind: &[u8]) -> Vec<u8> {
        let port = port.to_be_bytes();
        [&[0, 0, 1, 1, port[0], port[1], 0, 0, 0, 0], behind].concat()
    }

    /// An Ethernet header of an IPv4 packet.
    const ETHERNET: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];

    #[test]
    fn tunnels() {
        use NetworkType::{Ipv4, Ipv6};
        let at = |network, offset| Some(Inner { network, offset });
        let ethernet = |head: &[u8]| [head, &ETHERNET].concat();
        let vxlan = ethernet(&[8, 0, 0, 0, 0, 0, 7, 0]);
        let cases = [
            ("IPIP", ip(4), vec![0, 0], at(Ipv4, 2)),
            ("6in4", ip(41), vec![0, 0], at(Ipv6, 2)),
            ("GRE", ip(47), vec![0, 0, 0, 0, 8, 0], at(Ipv4, 6)),
            ("GRE v6", ip(47), vec![0, 0, 0, 0, 0x86, 0xdd], at(Ipv6, 6)),
            ("GRE all fields", ip(47), vec![0, 0, 0xb0, 0, 8, 0], at(Ipv4, 18)),
            ("GRE key", ip(47), vec![0, 0, 0x20, 0, 8, 0], at(Ipv4, 10)),
            (
                "GRE Ethernet",
                ip(47),
                ethernet(&[0, 0, 0, 0, 0x65, 0x58]),
                at(Ipv4, 20),
            ),
            ("PPTP", ip(47), vec![0, 0, 0x20, 1, 0x88, 0x0b], None),
            ("GRE of something else", ip(47), vec![0, 0, 0, 0, 0x88, 0xbe], None),
            ("VXLAN", ip(17), udp(4789, &vxlan), at(Ipv4, 32)),
            ("VXLAN of Linux", ip(17), udp(8472, &vxlan), at(Ipv4, 32)),
            ("VXLAN, not valid", ip(17), udp(4789, &[0; 22]), None),
            (
                "Geneve",
                ip(17),
                udp(6081, &ethernet(&[0, 0, 0x65, 0x58, 0, 0, 0, 0])),
                at(Ipv4, 32),
            ),
            (
                "Geneve options",
                ip(17),
                udp(6081, &ethernet(&[1, 0, 0x65, 0x58, 0, 0, 0, 0, 1, 2, 3, 4])),
                at(Ipv4, 36),
            ),
            (
                "Geneve of IP",
                ip(17),
                udp(6081, &[0, 0, 0x86, 0xdd, 0, 0, 0, 0]),
                at(Ipv6, 18),
            ),
            (
                "Geneve version 1",
                ip(17),
                udp(6081, &[0x40, 0, 8, 0, 0, 0, 0, 0]),
                None,
            ),
            ("UDP", ip(17), udp(53, &vxlan), None),
            ("TCP", ip(6), vxlan.clone(), None),
        ];
        for (name, ip, frame, expected) in &cases {
            assert_eq!(inner(frame, ip), Ok(*expected), "{name}");
            for len in 0..frame.len() {
                let cut = inner(&frame[..len], ip);
                assert!(
                    cut.is_err() || cut == Ok(None) || cut == Ok(*expected),
                    "{name} cut to {len}"
                );
            }
        }
    }
}
