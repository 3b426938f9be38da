//! Link layers: where the network layer begins in a frame, and which one it is.
//!
//! Source: the registry of link types at tcpdump.org/linktypes.html; IEEE 802.1Q-2018 §9; `linux/if_packet.h` for the
//! packet types of cooked captures. Not handled: 802.3 with LLC/SNAP (no IP is sent so today), Wi-Fi, PPP.

use crate::bytes::{ByteOrder, be16};
use crate::counters::CounterKind;
use crate::error::{DecodeError, Layer};
use crate::packet::Direction;

/// A link type, as pcapng holds it (pcap: its low 16 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    pub const RAW_BSD: Self = Self(12);
    pub const RAW_OPENBSD: Self = Self(14);
    pub const RAW: Self = Self(101);
    pub const LOOP: Self = Self(108);
    pub const LINUX_SLL: Self = Self(113);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    pub const LINUX_SLL2: Self = Self(276);
}

/// What follows a link or tunnel header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkType {
    Ipv4,
    Ipv6,
    /// IP whose version is in its first four bits.
    IpOfEitherVersion,
    Other,
}

/// A frame's link header, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    pub network: NetworkType,
    /// Where the network layer begins.
    pub offset: usize,
    /// Given by cooked captures only.
    pub direction: Direction,
}

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Tags of 802.1Q, 802.1ad and the older QinQ.
const VLAN_TAGS: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];
/// More tags than any switch puts on a frame; ends the walk over hostile ones.
const VLAN_LIMIT: usize = 8;

const ETHERNET_LEN: usize = 14;
const VLAN_LEN: usize = 4;
const SLL_LEN: usize = 16;
pub(crate) const SLL2_LEN: usize = 20;
const LOOPBACK_LEN: usize = 4;

/// Read the link header of `frame`.
///
/// # Errors
/// A frame shorter than its header; an unknown link type gives `Err(Ok(counter))`.
pub fn decode(link_type: LinkType, frame: &[u8]) -> Result<LinkHeader, LinkError> {
    match link_type {
        LinkType::ETHERNET => ethernet(frame, 0).map_err(LinkError::Decode),
        LinkType::LINUX_SLL => sll(frame).map_err(LinkError::Decode),
        LinkType::LINUX_SLL2 => sll2(frame).map_err(LinkError::Decode),
        LinkType::NULL | LinkType::LOOP => loopback(frame).map_err(LinkError::Decode),
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => Ok(raw(NetworkType::IpOfEitherVersion)),
        LinkType::IPV4 => Ok(raw(NetworkType::Ipv4)),
        LinkType::IPV6 => Ok(raw(NetworkType::Ipv6)),
        _ => Err(LinkError::Unknown),
    }
}

/// Why there is no link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    Decode(DecodeError),
    /// A link type that is not decoded.
    Unknown,
}

impl LinkError {
    /// The name under which it is counted.
    pub fn counter(&self) -> CounterKind {
        match self {
            Self::Decode(error) => error.counter(),
            Self::Unknown => CounterKind::LinkTypeUnknown,
        }
    }
}

/// An Ethernet header at `start`, with its VLAN tags.
pub(crate) fn ethernet(frame: &[u8], start: usize) -> Result<LinkHeader, DecodeError> {
    need(Layer::Ethernet, frame, start, ETHERNET_LEN)?;
    behind_tags(frame, start + ETHERNET_LEN, be16(frame, start + 12), Direction::Unknown)
}

/// Skip VLAN tags from `offset` on; the type before each tag shows what follows.
fn behind_tags(
    frame: &[u8],
    mut offset: usize,
    mut ethertype: u16,
    direction: Direction,
) -> Result<LinkHeader, DecodeError> {
    for _ in 0..VLAN_LIMIT {
        if !VLAN_TAGS.contains(&ethertype) {
            break;
        }
        need(Layer::Vlan, frame, offset, VLAN_LEN)?;
        ethertype = be16(frame, offset + 2);
        offset += VLAN_LEN;
    }
    Ok(LinkHeader {
        network: by_ethertype(ethertype),
        offset,
        direction,
    })
}

/// The network layer of an EtherType.
pub(crate) fn by_ethertype(ethertype: u16) -> NetworkType {
    match ethertype {
        ETHERTYPE_IPV4 => NetworkType::Ipv4,
        ETHERTYPE_IPV6 => NetworkType::Ipv6,
        _ => NetworkType::Other,
    }
}

fn sll(frame: &[u8]) -> Result<LinkHeader, DecodeError> {
    need(Layer::LinuxSll, frame, 0, SLL_LEN)?;
    behind_tags(frame, SLL_LEN, be16(frame, 14), cooked_direction(be16(frame, 0)))
}

fn sll2(frame: &[u8]) -> Result<LinkHeader, DecodeError> {
    need(Layer::LinuxSll2, frame, 0, SLL2_LEN)?;
    behind_tags(frame, SLL2_LEN, be16(frame, 0), cooked_direction(u16::from(frame[10])))
}

/// Packet types of `linux/if_packet.h`: host, broadcast, multicast, other host, outgoing. A frame for another host was
/// seen in promiscuous mode and is neither this host's send nor its receive.
fn cooked_direction(packet_type: u16) -> Direction {
    match packet_type {
        0..=2 => Direction::Receive,
        4 => Direction::Send,
        _ => Direction::Unknown,
    }
}

/// BSD loopback: an address family in the byte order of the capturing host (NULL) or of the network (LOOP). Families
/// are below 256, so the order shows.
fn loopback(frame: &[u8]) -> Result<LinkHeader, DecodeError> {
    need(Layer::Loopback, frame, 0, LOOPBACK_LEN)?;
    let little = ByteOrder::Little.u32(frame, 0);
    let family = if little > 0xffff {
        ByteOrder::Big.u32(frame, 0)
    } else {
        little
    };
    let network = match family {
        2 => NetworkType::Ipv4,
        // AF_INET6 of Linux, of NetBSD and OpenBSD, of FreeBSD, of macOS.
        10 | 24 | 28 | 30 => NetworkType::Ipv6,
        _ => NetworkType::Other,
    };
    Ok(LinkHeader {
        network,
        offset: LOOPBACK_LEN,
        direction: Direction::Unknown,
    })
}

fn raw(network: NetworkType) -> LinkHeader {
    LinkHeader {
        network,
        offset: 0,
        direction: Direction::Unknown,
    }
}

#[inline]
fn need(layer: Layer, frame: &[u8], offset: usize, len: usize) -> Result<(), DecodeError> {
    let available = frame.len().saturating_sub(offset);
    if available < len {
        Err(DecodeError::cut(layer, offset, len, available))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(network: NetworkType, offset: usize, direction: Direction) -> Result<LinkHeader, LinkError> {
        Ok(LinkHeader {
            network,
            offset,
            direction,
        })
    }

    fn frame(len: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut frame = vec![0; len];
        for (at, bytes) in fields {
            frame[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        frame
    }

    #[test]
    fn headers_of_every_link_type() {
        use Direction::{Receive, Send, Unknown};
        use NetworkType::{IpOfEitherVersion, Ipv4, Ipv6, Other};
        let cases = [
            ("ethernet", 1, frame(14, &[(12, &[8, 0])]), header(Ipv4, 14, Unknown)),
            (
                "ethernet v6",
                1,
                frame(14, &[(12, &[0x86, 0xdd])]),
                header(Ipv6, 14, Unknown),
            ),
            ("arp", 1, frame(14, &[(12, &[8, 6])]), header(Other, 14, Unknown)),
            (
                "802.1Q",
                1,
                frame(18, &[(12, &[0x81, 0, 0, 7, 8, 0])]),
                header(Ipv4, 18, Unknown),
            ),
            (
                "QinQ",
                1,
                frame(22, &[(12, &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0])]),
                header(Ipv4, 22, Unknown),
            ),
            (
                "old QinQ",
                1,
                frame(22, &[(12, &[0x91, 0, 0, 7, 0x81, 0, 0, 8, 8, 0])]),
                header(Ipv4, 22, Unknown),
            ),
            ("SLL in", 113, frame(16, &[(14, &[8, 0])]), header(Ipv4, 16, Receive)),
            (
                "SLL out",
                113,
                frame(16, &[(1, &[4]), (14, &[8, 0])]),
                header(Ipv4, 16, Send),
            ),
            (
                "SLL other host",
                113,
                frame(16, &[(1, &[3]), (14, &[8, 0])]),
                header(Ipv4, 16, Unknown),
            ),
            (
                "SLL tagged",
                113,
                frame(20, &[(14, &[0x81, 0, 0, 1, 8, 0])]),
                header(Ipv4, 20, Receive),
            ),
            (
                "SLL2 in",
                276,
                frame(20, &[(0, &[0x86, 0xdd])]),
                header(Ipv6, 20, Receive),
            ),
            (
                "SLL2 out",
                276,
                frame(20, &[(0, &[8, 0]), (10, &[4])]),
                header(Ipv4, 20, Send),
            ),
            (
                "SLL2 tagged",
                276,
                frame(24, &[(0, &[0x81, 0]), (22, &[8, 0])]),
                header(Ipv4, 24, Receive),
            ),
            ("null little", 0, vec![2, 0, 0, 0], header(Ipv4, 4, Unknown)),
            ("null big", 0, vec![0, 0, 0, 2], header(Ipv4, 4, Unknown)),
            ("null v6 macOS", 0, vec![30, 0, 0, 0], header(Ipv6, 4, Unknown)),
            ("loop v6 OpenBSD", 108, vec![0, 0, 0, 24], header(Ipv6, 4, Unknown)),
            ("null of no family", 0, vec![0, 0, 0, 99], header(Other, 4, Unknown)),
            ("raw", 101, vec![], header(IpOfEitherVersion, 0, Unknown)),
            ("raw 12", 12, vec![], header(IpOfEitherVersion, 0, Unknown)),
            ("raw 14", 14, vec![], header(IpOfEitherVersion, 0, Unknown)),
            ("raw v4", 228, vec![], header(Ipv4, 0, Unknown)),
            ("raw v6", 229, vec![], header(Ipv6, 0, Unknown)),
            ("Wi-Fi", 105, vec![0; 64], Err(LinkError::Unknown)),
        ];
        for (name, link_type, frame, expected) in &cases {
            assert_eq!(decode(LinkType(*link_type), frame), *expected, "{name}");
            for len in 0..frame.len() {
                let cut = decode(LinkType(*link_type), &frame[..len]);
                assert!(
                    expected.is_err() || matches!(cut, Err(LinkError::Decode(_))),
                    "{name} cut to {len}"
                );
            }
        }
    }

    #[test]
    fn tags_without_end_are_no_network_layer() {
        let frame: Vec<u8> = [0x81, 0, 0x81, 0].repeat(100);
        let header = decode(LinkType::ETHERNET, &frame).expect("long enough");
        assert_eq!(header.network, NetworkType::Other);
    }
}
