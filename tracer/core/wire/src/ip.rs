//! IPv4 and IPv6: addresses, the protocol that follows, and its length on the wire.
//!
//! Source: RFC 791 §3.1, RFC 8200 §4, RFC 2675 (jumbo payload), RFC 4302 (AH). Lengths come from the IP header, never
//! from what was captured. Linux writes a length of 0 for a segment that the card is to split (TSO) and for BIG TCP;
//! there the length is taken from the frame. A fragment header identifies the datagram and the piece;
//! [`crate::fragments`] reassembles the lengths.

use crate::address::Addresses;
use crate::bytes::{be16, be32, be128};
use crate::error::{DecodeError, ErrorKind, Layer, LimitedBy};

pub(crate) const PROTOCOL_TCP: u8 = 6;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
/// Extension headers of one packet that are followed; real packets have at most three or four.
const EXTENSION_LIMIT: usize = 16;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const FRAGMENT_LEN: usize = 8;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;
const JUMBO_OPTION: u8 = 0xc2;

/// An IP header with its extensions, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    pub addresses: Addresses,
    /// IPv4 identification; -1 for IPv6.
    pub ip_id: i32,
    pub protocol: u8,
    /// Where the transport layer begins.
    pub offset: usize,
    /// Bytes of the transport layer on the wire.
    pub len: usize,
    /// `None` if the packet is a whole datagram.
    pub fragment: Option<Fragment>,
    /// The header contains no length; `len` is derived from the frame's.
    pub is_length_zero: bool,
}

/// Which piece of a datagram a packet holds (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identifies the datagram among those between two addresses.
    pub id: u32,
    /// Protocol of the first header in the datagram.
    pub protocol: u8,
    /// Offset of the piece in the datagram, and its length, in bytes.
    pub offset: u32,
    pub len: u32,
    pub is_last: bool,
    /// Where the piece begins in the frame.
    pub start: usize,
}

impl IpHeader {
    /// Whether it is not the first fragment, so that no transport header follows at `offset`.
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset > 0)
    }
}

/// The piece at `offset` (in units of 8 bytes); `None` if it is the whole datagram, because no piece follows (`more`)
/// or precedes it.
fn piece(id: u32, protocol: u8, offset: u16, more: bool, start: usize, len: usize) -> Option<Fragment> {
    (offset > 0 || more).then(|| Fragment {
        id,
        protocol,
        offset: u32::from(offset) * 8,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        is_last: !more,
        start,
    })
}

/// Read the IPv4 header at `offset` of `frame`, a packet of `original_len` bytes on the wire.
///
/// # Errors
/// A header cut by the capture, or lengths that contradict each other.
pub fn ipv4(frame: &[u8], offset: usize, original_len: usize) -> Result<IpHeader, DecodeError> {
    let available = frame.len().saturating_sub(offset);
    if available < IPV4_LEN {
        return Err(DecodeError::cut(Layer::Ipv4, offset, IPV4_LEN, available));
    }
    let header = &frame[offset..];
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < IPV4_LEN {
        return Err(DecodeError::contradiction(
            Layer::Ipv4,
            LimitedBy::Ipv4HeaderLen,
            offset,
            IPV4_LEN,
            header_len,
        ));
    }
    let total_len_field = usize::from(be16(header, 2));
    let is_length_zero = total_len_field == 0;
    let total_len = if is_length_zero {
        original_len.saturating_sub(offset)
    } else {
        total_len_field
    };
    let Some(len) = total_len.checked_sub(header_len) else {
        return Err(DecodeError::contradiction(
            Layer::Ipv4,
            LimitedBy::Ipv4TotalLen,
            offset,
            header_len,
            total_len,
        ));
    };
    Ok(IpHeader {
        addresses: Addresses::V4 {
            src: be32(header, 12),
            dst: be32(header, 16),
        },
        ip_id: i32::from(be16(header, 4)),
        protocol: header[9],
        offset: offset + header_len,
        len,
        fragment: piece(
            u32::from(be16(header, 4)),
            header[9],
            be16(header, 6) & 0x1fff,
            be16(header, 6) & 0x2000 != 0,
            offset + header_len,
            len,
        ),
        is_length_zero,
    })
}

/// Read the IPv6 header at `offset` of `frame` and the extension headers behind it.
///
/// # Errors
/// A header cut by the capture, or lengths that contradict each other.
pub fn ipv6(frame: &[u8], offset: usize, original_len: usize) -> Result<IpHeader, DecodeError> {
    let available = frame.len().saturating_sub(offset);
    if available < IPV6_LEN {
        return Err(DecodeError::cut(Layer::Ipv6, offset, IPV6_LEN, available));
    }
    let header = &frame[offset..];
    if header[0] >> 4 != 6 {
        return Err(DecodeError::contradiction(
            Layer::Ipv6,
            LimitedBy::CapturedLen,
            offset,
            IPV6_LEN,
            available,
        ));
    }
    let payload_len = usize::from(be16(header, 4));
    let mut read = IpHeader {
        addresses: Addresses::V6 {
            src: be128(header, 8),
            dst: be128(header, 24),
        },
        ip_id: -1,
        protocol: header[6],
        offset: offset + IPV6_LEN,
        len: payload_len,
        fragment: None,
        is_length_zero: payload_len == 0,
    };
    if read.is_length_zero {
        read.len = original_len.saturating_sub(read.offset);
    }
    walk_extensions(frame, &mut read)?;
    Ok(read)
}

/// Skip extension headers.
fn walk_extensions(frame: &[u8], read: &mut IpHeader) -> Result<(), DecodeError> {
    for _ in 0..EXTENSION_LIMIT {
        let Some(len) = extension_len(frame, read)? else {
            return Ok(());
        };
        match read.protocol {
            // beside a length the option is an error (RFC 2675 section 3)
            HOP_BY_HOP if read.is_length_zero => take_jumbo_len(&frame[read.offset..], len, read),
            FRAGMENT if read.fragment.is_none() => read.fragment = six_piece(frame, read),
            _ => {}
        }
        read.protocol = frame[read.offset];
        let Some(rest) = read.len.checked_sub(len) else {
            let (needed, available) = (len, read.len);
            return Err(DecodeError::contradiction(
                Layer::Ipv6Extension,
                LimitedBy::Ipv6PayloadLen,
                read.offset,
                needed,
                available,
            ));
        };
        read.len = rest;
        read.offset += len;
        if read.is_later_fragment() {
            return Ok(());
        }
    }
    let mut error = DecodeError::cut(Layer::Ipv6Extension, read.offset, 0, 0);
    error.kind = ErrorKind::TooDeep;
    Err(error)
}

/// The piece that the fragment header at `read.offset` describes.
fn six_piece(frame: &[u8], read: &IpHeader) -> Option<Fragment> {
    let header = &frame[read.offset..];
    let place = be16(header, 2);
    let len = read.len.saturating_sub(FRAGMENT_LEN);
    let start = read.offset + FRAGMENT_LEN;
    piece(be32(header, 4), header[0], place >> 3, place & 1 != 0, start, len)
}

/// Whether a datagram that begins with a header of `protocol` may be one of TCP: itself, or an IPv6 extension before
/// it.
pub(crate) fn may_hold_tcp(protocol: u8) -> bool {
    matches!(
        protocol,
        PROTOCOL_TCP | ROUTING | AUTHENTICATION | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6
    )
}

/// Length of the extension header at `read.offset`; `None` if there is none.
fn extension_len(frame: &[u8], read: &IpHeader) -> Result<Option<usize>, DecodeError> {
    let is_extension = matches!(
        read.protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6
    );
    if !is_extension {
        return Ok(None);
    }
    let available = frame.len().saturating_sub(read.offset);
    if available < 8 {
        return Err(DecodeError::cut(Layer::Ipv6Extension, read.offset, 8, available));
    }
    let len_field = usize::from(frame[read.offset + 1]);
    Ok(Some(match read.protocol {
        FRAGMENT => FRAGMENT_LEN,
        AUTHENTICATION => (len_field + 2) * 4,
        _ => (len_field + 1) * 8,
    }))
}

/// Take the length from a jumbo payload option among the hop-by-hop options, if there is one.
fn take_jumbo_len(header: &[u8], header_len: usize, read: &mut IpHeader) {
    let options = &header[2..header_len.min(header.len())];
    let mut at = 0;
    while at + 1 < options.len() {
        match options[at] {
            0 => at += 1,
            JUMBO_OPTION if options.len() >= at + 6 => {
                // The length counts from the end of the fixed header, as the 16-bit one does.
                read.len = be32(options, at + 2) as usize;
                read.is_length_zero = false;
                return;
            }
            _ => at += 2 + usize::from(options[at + 1]),
        }
    }
}

#[cfg(test)]
#[allow(clippy::type_complexity)] // tables of cases
mod tests {
    use super::*;

    fn v4(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; 24];
        header[0] = 0x45;
        header[2..4].copy_from_slice(&100u16.to_be_bytes());
        header[4..6].copy_from_slice(&0xabcdu16.to_be_bytes());
        header[9] = PROTOCOL_TCP;
        header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        for (at, bytes) in fields {
            header[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        header
    }

    fn v6(payload_len: u16, next: u8, behind: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        header[6] = next;
        header[23] = 1;
        header[39] = 2;
        header.extend_from_slice(behind);
        header
    }

    #[test]
    fn ipv4_lengths() {
        let cases: &[(&str, Vec<u8>, usize, Result<(usize, usize), ErrorKind>)] = &[
            ("plain", v4(&[]), 100, Ok((20, 80))),
            ("options", v4(&[(0, &[0x46])]), 100, Ok((24, 76))),
            ("padded frame", v4(&[(2, &[0, 40])]), 46, Ok((20, 20))),
            ("TSO", v4(&[(2, &[0, 0])]), 70_000, Ok((20, 69_980))),
            ("IHL below 5", v4(&[(0, &[0x44])]), 100, Err(ErrorKind::Malformed)),
            ("version 5", v4(&[(0, &[0x55])]), 100, Err(ErrorKind::Malformed)),
            (
                "total below header",
                v4(&[(2, &[0, 19])]),
                100,
                Err(ErrorKind::Malformed),
            ),
            ("TSO of nothing", v4(&[(2, &[0, 0])]), 3, Err(ErrorKind::Malformed)),
        ];
        for (name, header, original_len, expected) in cases {
            let read = ipv4(header, 0, *original_len);
            assert_eq!(
                read.map(|read| (read.offset, read.len)).map_err(|error| error.kind),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn ipv4_fields_and_fragments() {
        let read = ipv4(&v4(&[]), 0, 100).expect("whole");
        assert_eq!(
            read.addresses,
            Addresses::V4 {
                src: 0x0a00_0001,
                dst: 0x0a00_0002
            }
        );
        assert_eq!(
            (read.ip_id, read.protocol, read.is_later_fragment()),
            (0xabcd, PROTOCOL_TCP, false)
        );
        for (flags, expected) in [
            ([0x40, 0], false),
            ([0x20, 0], false),
            ([0x20, 1], true),
            ([0, 185], true),
        ] {
            let read = ipv4(&v4(&[(6, &flags)]), 0, 100).expect("whole");
            assert_eq!(read.is_later_fragment(), expected, "{flags:x?}");
        }
    }

    #[test]
    fn ipv6_extensions() {
        let jumbo = [6, 0, 0xc2, 4, 0, 1, 0x11, 0x70];
        let padded_jumbo = [6, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0xc2, 4, 0, 1, 0x11, 0x70];
        let cases: &[(&str, Vec<u8>, usize, (u8, usize, usize, bool))] = &[
            ("plain", v6(60, 6, &[]), 100, (6, 40, 60, false)),
            ("udp", v6(60, 17, &[]), 100, (17, 40, 60, false)),
            (
                "hop by hop",
                v6(60, 0, &[6, 0, 1, 4, 0, 0, 0, 0]),
                100,
                (6, 48, 52, false),
            ),
            (
                "routing",
                v6(60, 43, &[&[6, 2][..], &[0; 22]].concat()),
                100,
                (6, 64, 36, false),
            ),
            (
                "AH",
                v6(60, 51, &[&[6, 4][..], &[0; 22]].concat()),
                100,
                (6, 64, 36, false),
            ),
            (
                "first fragment",
                v6(60, 44, &[6, 0, 0, 1, 0, 0, 0, 9]),
                100,
                (6, 48, 52, false),
            ),
            (
                "later fragment",
                v6(60, 44, &[6, 0, 5, 0x68, 0, 0, 0, 9]),
                100,
                (6, 48, 52, true),
            ),
            (
                "two",
                v6(60, 0, &[60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]),
                100,
                (6, 56, 44, false),
            ),
            ("jumbo", v6(0, 0, &jumbo), 70_048, (6, 48, 70_000 - 8, false)),
            (
                "padded jumbo",
                v6(0, 0, &padded_jumbo),
                70_048,
                (6, 56, 70_000 - 16, false),
            ),
            ("jumbo beside a length", v6(60, 0, &jumbo), 100, (6, 48, 52, false)),
            ("BIG TCP", v6(0, 6, &[]), 100_040, (6, 40, 100_000, false)),
            ("ESP ends the walk", v6(60, 50, &[0; 16]), 100, (50, 40, 60, false)),
        ];
        for (name, header, original_len, expected) in cases {
            let read = ipv6(header, 0, *original_len).expect(name);
            assert_eq!(
                (read.protocol, read.offset, read.len, read.is_later_fragment()),
                *expected,
                "{name}"
            );
            assert_eq!((read.addresses, read.ip_id), (Addresses::V6 { src: 1, dst: 2 }, -1));
            for len in 0..header.len() {
                let cut = ipv6(&header[..len], 0, *original_len);
                let whole_enough = cut.is_ok_and(|cut| cut.protocol == expected.0);
                assert!(cut.is_err() || whole_enough, "{name} cut to {len}: {cut:?}");
            }
        }
    }

    #[test]
    fn ipv6_contradictions() {
        let long = v6(7, 0, &[6, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(
            ipv6(&long, 0, 100).map_err(|error| error.kind),
            Err(ErrorKind::Malformed)
        );
        let endless = v6(60_000, 60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(100));
        assert_eq!(
            ipv6(&endless, 0, 100).map_err(|error| error.kind),
            Err(ErrorKind::TooDeep)
        );
        let version = [0x40; 40];
        assert_eq!(
            ipv6(&version, 0, 100).map_err(|error| error.kind),
            Err(ErrorKind::Malformed)
        );
    }

    #[test]
    fn ipv4_every_prefix() {
        let header = v4(&[]);
        for len in 0..20 {
            let error = ipv4(&header[..len], 0, 100).expect_err("cut");
            assert_eq!(
                (error.kind, error.needed, error.available),
                (ErrorKind::TooShort, 20, len as u32)
            );
        }
    }
}
