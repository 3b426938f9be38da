//! A pcapng block as the agent writes it for a TCP packet, as fields, and back.
//!
//! [`Packet::parse`] takes only what [`Packet::write`] gives back byte for byte; everything else stays a raw block.

use crate::checksums::{fold, words};

const ENHANCED_PACKET: u32 = 6;
/// Of an Enhanced Packet Block before the packet, and behind it: the option with flags, the end of options, the length.
const BEFORE_LEN: usize = 28;
const BEHIND_LEN: usize = 16;
const FLAGS_OPTION: [u8; 4] = [2, 0, 4, 0];
pub(crate) const ETHERNET_LEN: usize = 14;
const ETHERTYPES: [[u8; 2]; 2] = [[0x08, 0x00], [0x86, 0xdd]];
const TCP: u8 = 6;
/// Longest options of a TCP header.
pub(crate) const OPTIONS_LEN: usize = 40;
/// NOP, NOP, timestamps (RFC 7323 Appendix A).
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
pub(crate) const TIMESTAMPS_LEN: usize = 12;

/// What names a flow: the interface, direction and form of its packets, addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    pub(crate) interface: u16,
    pub(crate) direction: u8,
    /// Bit 0: with an Ethernet header; bit 1: IPv6.
    pub(crate) form: u8,
    pub(crate) src: [u8; 16],
    pub(crate) dst: [u8; 16],
    pub(crate) ports: [u8; 4],
}

impl Tuple {
    /// Of the packets that answer.
    pub(crate) fn opposite(&self) -> Self {
        let [a, b, c, d] = self.ports;
        Tuple {
            direction: self.direction ^ 3,
            src: self.dst,
            dst: self.src,
            ports: [c, d, a, b],
            ..*self
        }
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.form & 2 != 0
    }

    pub(crate) fn link_len(&self) -> usize {
        if self.form & 1 != 0 { ETHERNET_LEN } else { 0 }
    }

    fn ip_len(&self) -> usize {
        if self.is_ipv6() { 40 } else { 20 }
    }

    pub(crate) fn address_len(&self) -> usize {
        if self.is_ipv6() { 16 } else { 4 }
    }
}

/// Fields of a packet that rarely change within a flow: Ethernet's addresses; of IPv4 the fragment field and TTL, of
/// IPv6 the flow label and hop limit.
pub(crate) type FixedFields = [u8; 17];

/// A TCP packet as fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) tuple: Tuple,
    pub(crate) fixed: FixedFields,
    pub(crate) host_ns: u64,
    pub(crate) original_len: u32,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    /// Of the segment, on the wire.
    pub(crate) payload_len: u32,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) checksum: u16,
    /// Of the timestamps option, if that is all there is.
    pub(crate) timestamp: u32,
    pub(crate) echo: u32,
    /// Timestamps are zeros in it.
    pub(crate) options: [u8; OPTIONS_LEN],
    pub(crate) options_len: usize,
    /// What the capture kept of the payload.
    pub(crate) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Whether a SYN or FIN takes a sequence number.
    pub(crate) fn seq_len(&self) -> u32 {
        self.payload_len
            .wrapping_add(u32::from(self.flags & 1 != 0))
            .wrapping_add(u32::from(self.flags & 2 != 0))
    }

    pub(crate) fn has_timestamps(&self) -> bool {
        self.options_len == TIMESTAMPS_LEN && self.options.starts_with(&TIMESTAMPS)
    }

    /// The packet in a whole block; none if it is not one that `write` can give back.
    pub(crate) fn parse(block: &'a [u8]) -> Option<Self> {
        let word = |at: usize| block.get(at..at + 4).map(u32_le);
        if word(0)? != ENHANCED_PACKET {
            return None;
        }
        let captured_len = word(20)? as usize;
        let padded_len = captured_len.checked_next_multiple_of(4)?;
        let behind = block.get(BEFORE_LEN..)?.get(padded_len..)?;
        let padding = block.get(BEFORE_LEN + captured_len..BEFORE_LEN + padded_len)?;
        let frame = block.get(BEFORE_LEN..BEFORE_LEN + captured_len)?;
        let direction = *behind.get(4)?;
        let is_ours = behind.len() == BEHIND_LEN
            && behind[..4] == FLAGS_OPTION
            && matches!(direction, 1 | 2)
            && behind[5..12].iter().chain(padding).all(|byte| *byte == 0)
            && behind[12..] == block[4..8];
        let interface = u16::try_from(word(8)?).ok()?;
        let host_ns = u64::from(word(12)?) << 32 | u64::from(word(16)?);
        let packet = Self::parse_frame(frame, interface, direction)?;
        is_ours.then_some(Packet {
            host_ns,
            original_len: word(24)?,
            ..packet
        })
    }

    fn parse_frame(frame: &'a [u8], interface: u16, direction: u8) -> Option<Self> {
        let has_link = ETHERTYPES.contains(frame.get(12..14)?.first_chunk()?) && matches!(frame.get(14)? >> 4, 4 | 6);
        let (link, ip) = frame.split_at(if has_link { ETHERNET_LEN } else { 0 });
        let is_ipv6 = ip.first()? >> 4 == 6;
        if has_link && link[12..14] != ETHERTYPES[usize::from(is_ipv6)] {
            return None;
        }
        let mut tuple = Tuple {
            interface,
            direction,
            form: u8::from(has_link) | u8::from(is_ipv6) << 1,
            src: [0; 16],
            dst: [0; 16],
            ports: [0; 4],
        };
        let mut fixed = FixedFields::default();
        if has_link {
            fixed[..12].copy_from_slice(&link[..12]);
        }
        let (ip_header, tcp) = ip.split_at_checked(tuple.ip_len())?;
        let ip_fields = if is_ipv6 { parse_ipv6 } else { parse_ipv4 };
        let (tos, id, segment_len) = ip_fields(ip_header, &mut tuple, &mut fixed)?;
        Self::parse_tcp(tcp, tuple, fixed, segment_len).map(|packet| Packet { tos, id, ..packet })
    }

    fn parse_tcp(tcp: &'a [u8], mut tuple: Tuple, fixed: FixedFields, segment_len: usize) -> Option<Self> {
        let header = tcp.first_chunk::<20>()?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let payload_len = segment_len.checked_sub(header_len)?;
        let given = tcp.get(20..header_len)?;
        let payload = &tcp[header_len..];
        if header[12] & 15 != 0 || header[18..20] != [0, 0] || payload.len() > payload_len {
            return None;
        }
        tuple.ports = *header.first_chunk()?;
        let mut options = [0; OPTIONS_LEN];
        options[..given.len()].copy_from_slice(given);
        let be = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let mut packet = Packet {
            tuple,
            fixed,
            host_ns: 0,
            original_len: 0,
            tos: 0,
            id: 0,
            payload_len: payload_len as u32,
            seq: be(4),
            ack: be(8),
            flags: header[13],
            window: u16::from_be_bytes([header[14], header[15]]),
            checksum: u16::from_be_bytes([header[16], header[17]]),
            timestamp: 0,
            echo: 0,
            options,
            options_len: given.len(),
            payload,
        };
        if packet.has_timestamps() {
            packet.timestamp = u32_be(&given[4..]);
            packet.echo = u32_be(&given[8..]);
            packet.options[4..12].fill(0);
        }
        Some(packet)
    }

    fn tcp_len(&self) -> usize {
        20 + self.options_len
    }

    /// Length of the packet at the interface, if nothing follows the segment.
    pub(crate) fn likely_original_len(&self) -> u32 {
        self.headers_len() as u32 + self.payload_len
    }

    /// What a sender leaves in the checksum's place for its network card: the sum of the pseudo header.
    pub(crate) fn pseudo_sum(&self) -> u64 {
        let tcp_len = self.tcp_len() as u64 + u64::from(self.payload_len);
        let address_len = self.tuple.address_len();
        words(&self.tuple.src[..address_len]) + words(&self.tuple.dst[..address_len]) + u64::from(TCP) + tcp_len
    }

    /// The checksum of a segment of which all is kept.
    pub(crate) fn whole_checksum(&self) -> u16 {
        let mut header = [0; 20 + OPTIONS_LEN];
        self.write_tcp(&mut header, 0);
        !fold(self.pseudo_sum() + words(&header[..self.tcp_len()]) + words(self.payload))
    }

    fn write_tcp(&self, header: &mut [u8], checksum: u16) {
        header[..4].copy_from_slice(&self.tuple.ports);
        header[4..8].copy_from_slice(&self.seq.to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.to_be_bytes());
        header[12] = ((self.tcp_len() / 4) as u8) << 4;
        header[13] = self.flags;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        header[18..20].fill(0);
        header[20..20 + self.options_len].copy_from_slice(&self.options[..self.options_len]);
        if self.has_timestamps() {
            header[24..28].copy_from_slice(&self.timestamp.to_be_bytes());
            header[28..32].copy_from_slice(&self.echo.to_be_bytes());
        }
    }

    fn write_ip(&self, header: &mut [u8]) {
        let tcp_len = self.tcp_len() + self.payload_len as usize;
        if self.tuple.is_ipv6() {
            let [.., a, b, c, hops] = self.fixed;
            header[..4].copy_from_slice(&[0x60 | self.tos >> 4, self.tos << 4 | a, b, c]);
            header[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
            header[6..8].copy_from_slice(&[TCP, hops]);
            header[8..24].copy_from_slice(&self.tuple.src);
            header[24..40].copy_from_slice(&self.tuple.dst);
            return;
        }
        let [.., fragment, offset, ttl, _] = self.fixed;
        header[..2].copy_from_slice(&[0x45, self.tos]);
        header[2..4].copy_from_slice(&((20 + tcp_len) as u16).to_be_bytes());
        header[4..6].copy_from_slice(&self.id.to_be_bytes());
        header[6..12].copy_from_slice(&[fragment, offset, ttl, TCP, 0, 0]);
        header[12..16].copy_from_slice(&self.tuple.src[..4]);
        header[16..20].copy_from_slice(&self.tuple.dst[..4]);
        let checksum = !fold(words(&header[..20]));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn headers_len(&self) -> usize {
        self.tuple.link_len() + self.tuple.ip_len() + self.tcp_len()
    }

    /// Length of its block when so much of its payload is kept.
    pub(crate) fn block_len(&self, kept_len: usize) -> usize {
        BEFORE_LEN + (self.headers_len() + kept_len).next_multiple_of(4) + BEHIND_LEN
    }

    /// Append the block.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (link_len, ip_len) = (self.tuple.link_len(), self.tuple.ip_len());
        let headers_len = self.headers_len();
        let captured_len = headers_len + self.payload.len();
        let padded_len = captured_len.next_multiple_of(4);
        let total_len = (BEFORE_LEN + padded_len + BEHIND_LEN) as u32;
        for word in [
            ENHANCED_PACKET,
            total_len,
            u32::from(self.tuple.interface),
            (self.host_ns >> 32) as u32,
            self.host_ns as u32,
            captured_len as u32,
            self.original_len,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let mut headers = [0; ETHERNET_LEN + 40 + 20 + OPTIONS_LEN];
        if link_len > 0 {
            headers[..12].copy_from_slice(&self.fixed[..12]);
            headers[12..14].copy_from_slice(&ETHERTYPES[usize::from(self.tuple.is_ipv6())]);
        }
        self.write_ip(&mut headers[link_len..link_len + ip_len]);
        self.write_tcp(&mut headers[link_len + ip_len..], self.checksum);
        out.extend_from_slice(&headers[..headers_len]);
        out.extend_from_slice(self.payload);
        out.resize(out.len() + padded_len - captured_len, 0);
        out.extend_from_slice(&FLAGS_OPTION);
        out.extend_from_slice(&[self.tuple.direction, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&total_len.to_le_bytes());
    }
}

/// TOS, id and the length of the segment.
fn parse_ipv4(header: &[u8], tuple: &mut Tuple, fixed: &mut FixedFields) -> Option<(u8, u16, usize)> {
    let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] != 0x45 || header[9] != TCP || fold(words(header)) != 0xffff {
        return None;
    }
    // Of the two zeros of one's complement the other one cannot be given back.
    if header[10..12] == [0xff, 0xff] {
        return None;
    }
    fixed[13..16].copy_from_slice(&header[6..9]);
    tuple.src[..4].copy_from_slice(&header[12..16]);
    tuple.dst[..4].copy_from_slice(&header[16..20]);
    Some((
        header[1],
        u16::from_be_bytes([header[4], header[5]]),
        total_len.checked_sub(20)?,
    ))
}

fn parse_ipv6(header: &[u8], tuple: &mut Tuple, fixed: &mut FixedFields) -> Option<(u8, u16, usize)> {
    if header[0] >> 4 != 6 || header[6] != TCP {
        return None;
    }
    fixed[13..].copy_from_slice(&[header[1] & 15, header[2], header[3], header[7]]);
    tuple.src.copy_from_slice(&header[8..24]);
    tuple.dst.copy_from_slice(&header[24..40]);
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some((header[0] << 4 | header[1] >> 4, 0, payload_len))
}

fn u32_le(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn u32_be(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
