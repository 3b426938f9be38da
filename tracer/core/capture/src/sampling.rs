//! Which packets a capture keeps while it may not cost more: of whole connections one in 2, 4 … 64, the same ones on
//! every host, and less of each packet.
//!
//! The depth of a connection is how many of the first bits of its hash are zero, so one connection in 2^n has at least
//! depth n. A capture that keeps one in 2^n keeps those, and so keeps all that a capture with a larger n keeps.
//!
//! ```text
//! depth           0    1    2    3    4    5    6
//! share of all   1/2  1/4  1/8 1/16 1/32 1/64 1/64
//! one in 4 kept             ×    ×    ×    ×    ×
//! ```
//!
//! The hash is of both ends, whichever comes first, so it is the same for both directions and at both hosts, unless
//! something between them translates addresses. An IPv4 address and the IPv6 address that it is mapped to are the same.
//! It is a contract between agents and collectors of all versions: it never changes.
//!
//! Packets without ports (later fragments, headers that were cut) are kept: nothing says of which connection they are.

use crate::layout::{Layout, locate};
use crate::pcapng::LinkType;

/// The largest depth: no capture keeps less than one connection in 2^6.
pub const MOST_DEPTH: u8 = 6;

/// Changes that are remembered: packets of the ring may be older than the last ones.
const REMEMBERED: usize = 16;

/// What a capture keeps from a time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// Of packets that are at least so new, by the host's clock.
    pub since_ns: u64,
    /// One connection in 2^`depth`.
    pub depth: u8,
    /// At most so many bytes of a packet's payload; `None`: what the payload policy says.
    pub head_bytes: Option<u32>,
}

impl Keeping {
    /// All connections, with whole heads.
    pub fn all(since_ns: u64) -> Self {
        Keeping {
            since_ns,
            depth: 0,
            head_bytes: None,
        }
    }

    /// As the comment of a segment states it.
    pub fn statement(&self, stamp: impl Fn(u64) -> u64) -> String {
        let heads = self
            .head_bytes
            .map_or(String::new(), |len| format!(" head_bytes={len}"));
        format!(
            "twintap.kept since={} connections=1/{}{heads}",
            stamp(self.since_ns),
            1 << self.depth
        )
    }
}

/// What was not kept in a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Packets of connections that were not kept.
    pub packets_count: u64,
    /// Packets written while heads were shorter.
    pub shortened_count: u64,
}

impl LeftOut {
    /// As the comment of a segment states it; `None` if there is nothing to state.
    pub fn statement(&self) -> Option<String> {
        (*self != LeftOut::default()).then(|| {
            format!(
                "twintap.left_out packets={} shortened={}",
                self.packets_count, self.shortened_count
            )
        })
    }
}

/// What a capture keeps, by when a packet came.
#[derive(Debug, Clone)]
pub struct KeepingHistory {
    /// By time; never empty.
    changes: Vec<Keeping>,
}

impl KeepingHistory {
    pub fn new(first: Keeping) -> Self {
        KeepingHistory { changes: vec![first] }
    }

    /// What is kept now.
    pub fn now(&self) -> Keeping {
        self.changes[self.changes.len() - 1]
    }

    /// What is kept of a packet that came then.
    #[inline]
    pub fn at(&self, host_ns: u64) -> Keeping {
        let found = self.changes.iter().rev().find(|each| each.since_ns <= host_ns);
        *found.unwrap_or(&self.changes[0])
    }

    /// Adds a change. Where the clock was set back, later ones no longer hold.
    pub fn change(&mut self, next: Keeping) {
        self.changes.retain(|each| each.since_ns < next.since_ns);
        if self.changes.len() == REMEMBERED {
            self.changes.remove(0);
        }
        self.changes.push(next);
    }
}

/// The depth of the connection of a frame; [`MOST_DEPTH`] if it shows none.
#[inline]
pub fn depth_of_frame(link_type: LinkType, frame: &[u8]) -> u8 {
    let Layout::Tcp(segment) = locate(link_type, frame) else {
        return MOST_DEPTH;
    };
    match (segment.addresses(frame), segment.ports_and_seq(frame)) {
        ([], _) | (_, None) => MOST_DEPTH,
        (addresses, Some((ports, _))) => depth(addresses, ports),
    }
}

/// The depth of a connection. Arguments: the bytes of its two addresses (8 or 32) and of its two ports.
#[inline]
pub fn depth(addresses: &[u8], ports: [u8; 4]) -> u8 {
    let words = addresses.chunks_exact(4);
    // The same for both directions; the prefix of mapped addresses (::ffff:0:0/96) cancels itself.
    let addresses = words.fold(0, |all, word| {
        all ^ u32::from_be_bytes([word[0], word[1], word[2], word[3]])
    });
    let ports = u16::from_be_bytes([ports[0], ports[1]]) ^ u16::from_be_bytes([ports[2], ports[3]]);
    let hash = mix(u64::from(addresses) << 16 | u64::from(ports));
    (hash.leading_zeros() as u8).min(MOST_DEPTH)
}

/// Source: the finaliser of MurmurHash3 (fmix64); 2^64 over the golden ratio is added, so that 0 is mixed as well.
#[inline]
fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let key = (key ^ key >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let key = (key ^ key >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    key ^ key >> 33
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn octets(address: IpAddr) -> Vec<u8> {
        match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        }
    }

    fn frame(from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
        let addresses = [octets(from.0), octets(to.0)].concat();
        let mut tcp = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
        tcp.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        let mut ip = match from.0 {
            IpAddr::V4(_) => vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0],
            IpAddr::V6(_) => vec![0x60, 0, 0, 0, 0, 20, 6, 64],
        };
        ip.extend(addresses);
        ip.extend(tcp);
        ip
    }

    fn both_ways(client: (IpAddr, u16), server: (IpAddr, u16)) -> u8 {
        let there = depth_of_frame(LinkType::RawIp, &frame(client, server));
        let back = depth_of_frame(LinkType::RawIp, &frame(server, client));
        assert_eq!(there, back, "{client:?} {server:?}");
        there
    }

    #[test]
    fn both_ends_and_mapped_addresses_agree() {
        let (a, b) = (Ipv4Addr::new(10, 1, 0, 7), Ipv4Addr::new(192, 168, 3, 9));
        for port in 1_024..3_000 {
            let v4 = both_ways((a.into(), port), (b.into(), 443));
            let mapped = both_ways((a.to_ipv6_mapped().into(), port), (b.to_ipv6_mapped().into(), 443));
            assert_eq!(v4, mapped);
        }
        let (a, b) = (Ipv6Addr::new(0xFD00, 0, 0, 1, 2, 3, 4, 5), Ipv6Addr::LOCALHOST);
        for port in 1_024..1_100 {
            both_ways((a.into(), port), (b.into(), 80));
        }
    }

    #[test]
    fn each_depth_has_its_share_of_connections_that_are_opened_one_after_the_other() {
        for (step, servers) in [(1, 1_u32), (2, 1), (16, 16)] {
            let mut counts = [0_u32; MOST_DEPTH as usize + 1];
            let mut all = 0;
            for server in 0..servers {
                for port in (32_768..60_999).step_by(step) {
                    let server = Ipv4Addr::from_bits(0x0A00_0001 + server);
                    let client = (Ipv4Addr::new(10, 0, 9, 9).into(), port);
                    counts[usize::from(both_ways(client, (server.into(), 80)))] += 1;
                    all += 1;
                }
            }
            for depth in 1..=MOST_DEPTH {
                let kept: u32 = counts[usize::from(depth)..].iter().sum();
                let expected = all >> depth;
                assert!(
                    kept.abs_diff(expected) < expected / 4 + 20,
                    "1/{}: {kept} of {all}, {expected} expected",
                    1 << depth
                );
            }
        }
    }

    #[test]
    fn the_hash_is_a_contract() {
        let ends = |last, client: u16| {
            let addresses = [10, 0, 0, 1, 10, 0, 0, last];
            let [a, b] = client.to_be_bytes();
            depth(&addresses, [a, b, 0, 80])
        };
        let depths: Vec<u8> = (0..24).map(|at| ends(2, 40_000 + at)).collect();
        assert_eq!(depths, CONTRACT);
    }

    /// Of 10.0.0.1:40000… to 10.0.0.2:80, as every agent since the first that sampled.
    const CONTRACT: [u8; 24] = [0, 0, 0, 1, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 2, 2, 1, 1, 0, 0, 1, 0, 0, 0];

    #[test]
    fn packets_without_ports_are_always_kept() {
        let later = [&[0x45, 0, 0, 40, 0, 0, 0x00, 0x10, 64, 6, 0, 0][..], &[1; 28]].concat();
        let whole = frame((Ipv4Addr::LOCALHOST.into(), 1), (Ipv4Addr::BROADCAST.into(), 2));
        for packet in [&later[..], &whole[..20], &whole[..22], b""] {
            assert_eq!(depth_of_frame(LinkType::RawIp, packet), MOST_DEPTH);
        }
    }

    #[test]
    fn a_change_holds_for_packets_from_then_on_and_a_clock_that_was_set_back_keeps_none() {
        let at = |since_ns, depth| Keeping {
            depth,
            ..Keeping::all(since_ns)
        };
        let mut history = KeepingHistory::new(Keeping::all(100));
        history.change(at(200, 1));
        history.change(at(300, 2));
        let depths = [50, 100, 199, 200, 299, 300, 1_000].map(|ns| history.at(ns).depth);
        assert_eq!(depths, [0, 0, 0, 1, 1, 2, 2]);
        history.change(at(150, 3));
        assert_eq!([100, 150, 1_000].map(|ns| history.at(ns).depth), [0, 3, 3]);
        (0..100).for_each(|turn| history.change(at(1_000 + turn, 4)));
        assert_eq!(history.changes.len(), REMEMBERED);
        assert_eq!(history.now(), at(1_099, 4));
    }

    #[test]
    fn statements_say_since_when_and_what() {
        let cut = Keeping {
            since_ns: 7,
            depth: 2,
            head_bytes: Some(512),
        };
        assert_eq!(
            cut.statement(|ns| ns + 1),
            "twintap.kept since=8 connections=1/4 head_bytes=512"
        );
        assert_eq!(
            Keeping::all(7).statement(|ns| ns),
            "twintap.kept since=7 connections=1/1"
        );
        assert_eq!(LeftOut::default().statement(), None);
    }
}
