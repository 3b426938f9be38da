//! One end of a connection as its host has it: local and remote address and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::layout::{Layout, locate};
use crate::pcapng::LinkType;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl Key {
    /// The other end.
    pub fn other_end(self) -> Key {
        Key {
            local: self.remote,
            remote: self.local,
        }
    }
}

/// A packet's addresses and ports as bytes, in the order of the packet: cheap to compare.
pub struct Ends<'a> {
    addresses: &'a [u8],
    ports: [u8; 4],
    /// It opens a connection.
    pub is_syn: bool,
}

impl<'a> Ends<'a> {
    /// Of a frame; `None` if it has no whole TCP header.
    pub fn of(link_type: LinkType, frame: &'a [u8]) -> Option<Self> {
        let Layout::Tcp(segment) = locate(link_type, frame) else {
            return None;
        };
        let (ports, _) = segment.ports_and_seq(frame)?;
        Some(Ends {
            addresses: segment.addresses(frame),
            ports,
            is_syn: segment.has_flag(frame, SYN) && !segment.has_flag(frame, ACK),
        })
    }

    /// The bytes by which two packets of one direction are the same.
    pub fn bytes(&self) -> (&[u8], [u8; 4]) {
        (self.addresses, self.ports)
    }

    /// The sender's end.
    pub fn sender(&self) -> Option<Key> {
        let (src, dst) = self.addresses.split_at_checked(self.addresses.len() / 2)?;
        let [a, b, c, d] = self.ports;
        Some(Key {
            local: SocketAddr::new(address(src)?, u16::from_be_bytes([a, b])),
            remote: SocketAddr::new(address(dst)?, u16::from_be_bytes([c, d])),
        })
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::V4(Ipv4Addr::from(v4)));
    }
    <[u8; 16]>::try_from(bytes)
        .ok()
        .map(|v6| IpAddr::V6(Ipv6Addr::from(v6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flags: u8) -> Vec<u8> {
        let mut ip = vec![0; 40];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&40_u16.to_be_bytes());
        ip[9] = 6;
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        ip[20..24].copy_from_slice(&[0x12, 0x67, 0, 80]);
        ip[32] = 0x50;
        ip[33] = flags;
        ip
    }

    #[test]
    fn the_ends_of_a_packet_are_read() {
        let frame = frame(SYN);
        let ends = Ends::of(LinkType::RawIp, &frame).expect("TCP");
        let sender = ends.sender().expect("IPv4");
        assert_eq!(sender.local, "10.0.0.1:4711".parse().expect("an address"));
        assert_eq!(sender.remote, "10.0.0.2:80".parse().expect("an address"));
        assert_eq!(sender.other_end().other_end(), sender);
    }

    #[test]
    fn only_a_bare_syn_opens_a_connection() {
        for (flags, expected) in [(SYN, true), (SYN | ACK, false), (ACK, false)] {
            let frame = frame(flags);
            assert_eq!(
                Ends::of(LinkType::RawIp, &frame).map(|ends| ends.is_syn),
                Some(expected)
            );
        }
        assert!(Ends::of(LinkType::RawIp, &frame(SYN)[..22]).is_none());
    }
}
