//! pcapng blocks, written as bytes. One section is one segment file, so that segments can be read alone and `cat`
//! together.
//!
//! Source: draft-ietf-opsawg-pcapng. Always little-endian, ns resolution, options as in `docs/architecture.md`.
//! Statistics count from the beginning of the section, not of the whole capture, so each segment can be read by itself,
//! and sums over segments are right.

use std::net::IpAddr;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const NAME_RESOLUTION: u32 = 4;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const SECTION_LENGTH_UNKNOWN: u64 = u64::MAX;
const RESOLUTION_NANOSECONDS: u8 = 9;

/// Comment that marks a packet with a wrong TCP checksum, for which pcapng has no flag; equals the reader's
/// `twintap_wire::pcapng::DAMAGED_COMMENT`.
const DAMAGED_COMMENT: &[u8] = b"twintap.tcp_checksum=wrong";

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const IF_FILTER: u16 = 11;
const EPB_FLAGS: u16 = 2;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_USRDELIV: u16 = 8;

/// Bytes of an Enhanced Packet Block with its one option, without the packet and its padding.
pub const PACKET_OVERHEAD_BYTES: usize = 32 + 12;

/// The link layer of an interface's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    Ethernet,
    RawIp,
}

impl LinkType {
    /// The number registered for it (LINKTYPE_…).
    pub fn number(self) -> u16 {
        match self {
            LinkType::Ethernet => 1,
            LinkType::RawIp => 101,
        }
    }
}

/// Direction of a packet at the host that captured it; values as in `epb_flags` bits 0-1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Receive = 1,
    Send = 2,
}

/// One captured interface, as an Interface Description Block describes it.
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    pub link_type: LinkType,
    pub snaplen: u32,
    /// The filter as the operator wrote it; empty for the built-in one.
    pub filter: String,
}

/// What one interface counted within one section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the kernel's filter, dropped ones included.
    pub received_count: u64,
    /// Of these, lost because the ring was full.
    pub dropped_count: u64,
    /// Packets written to this section.
    pub written_count: u64,
}

/// Appends a Section Header Block with the host, the program and the beginning of the capture. Sections of one capture
/// follow each other without a gap; between two captures the host was not captured.
pub fn section_header(out: &mut Vec<u8>, host: &str, since_ns: u64, application: &str, os: &str) {
    block(out, SECTION_HEADER, |out| {
        put32(out, BYTE_ORDER_MAGIC);
        put16(out, 1);
        put16(out, 0);
        out.extend_from_slice(&SECTION_LENGTH_UNKNOWN.to_le_bytes());
        option(out, OPT_COMMENT, format!("twintap.host={host}").as_bytes());
        option(out, OPT_COMMENT, format!("twintap.since={since_ns}").as_bytes());
        option(out, SHB_OS, os.as_bytes());
        option(out, SHB_USERAPPL, application.as_bytes());
        option(out, OPT_END, b"");
    });
}

/// Appends a Name Resolution Block: each of the host's own addresses under the host's name.
pub fn name_resolution(out: &mut Vec<u8>, host: &str, addresses: &[IpAddr]) {
    block(out, NAME_RESOLUTION, |out| {
        for address in addresses {
            let (record_type, bytes) = match address {
                IpAddr::V4(v4) => (1, v4.octets().to_vec()),
                IpAddr::V6(v6) => (2, v6.octets().to_vec()),
            };
            option(out, record_type, &[&bytes, host.as_bytes(), &[0]].concat());
        }
        option(out, OPT_END, b"");
    });
}

/// Appends a Name Resolution Block without a name, for its comments: those of a section's beginning are written before
/// its packets are known.
pub fn comments(out: &mut Vec<u8>, comments: &[String]) {
    block(out, NAME_RESOLUTION, |out| {
        option(out, OPT_END, b""); // of the records
        for comment in comments {
            option(out, OPT_COMMENT, comment.as_bytes());
        }
        option(out, OPT_END, b"");
    });
}

/// Appends an Interface Description Block.
pub fn interface_description(out: &mut Vec<u8>, interface: &Interface) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        put16(out, interface.link_type.number());
        put16(out, 0);
        put32(out, interface.snaplen);
        option(out, IF_NAME, interface.name.as_bytes());
        option(out, IF_TSRESOL, &[RESOLUTION_NANOSECONDS]);
        if !interface.filter.is_empty() {
            option(out, IF_FILTER, &[&[0], interface.filter.as_bytes()].concat());
        }
        option(out, OPT_END, b"");
    });
}

/// Appends an Enhanced Packet Block, with a comment if its TCP checksum was wrong, and returns where in `out` its
/// packet bytes are, so that they can be redacted in place.
pub fn enhanced_packet(
    out: &mut Vec<u8>,
    interface_index: u32,
    host_ns: u64,
    direction: Direction,
    captured: &[u8],
    original_len: u32,
    is_damaged: bool,
) -> std::ops::Range<usize> {
    let padded_len = captured.len().next_multiple_of(4);
    let comment_len = if is_damaged {
        4 + DAMAGED_COMMENT.len().next_multiple_of(4)
    } else {
        0
    };
    let total_len = (PACKET_OVERHEAD_BYTES + padded_len + comment_len) as u32;
    out.reserve(total_len as usize);
    for field in [
        ENHANCED_PACKET,
        total_len,
        interface_index,
        (host_ns >> 32) as u32,
        host_ns as u32,
        captured.len() as u32,
        original_len,
    ] {
        put32(out, field);
    }
    let start = out.len();
    out.extend_from_slice(captured);
    out.resize(start + padded_len, 0);
    put16(out, EPB_FLAGS);
    put16(out, 4);
    put32(out, direction as u32);
    if is_damaged {
        option(out, OPT_COMMENT, DAMAGED_COMMENT);
    }
    put32(out, u32::from(OPT_END));
    put32(out, total_len);
    start..start + captured.len()
}

/// Appends an Interface Statistics Block.
pub fn interface_statistics(
    out: &mut Vec<u8>,
    interface_index: u32,
    from_ns: u64,
    to_ns: u64,
    statistics: &Statistics,
) {
    block(out, INTERFACE_STATISTICS, |out| {
        put32(out, interface_index);
        put32(out, (to_ns >> 32) as u32);
        put32(out, to_ns as u32);
        option(out, ISB_STARTTIME, &timestamp(from_ns));
        option(out, ISB_ENDTIME, &timestamp(to_ns));
        option(out, ISB_IFRECV, &statistics.received_count.to_le_bytes());
        option(out, ISB_IFDROP, &statistics.dropped_count.to_le_bytes());
        option(out, ISB_USRDELIV, &statistics.written_count.to_le_bytes());
        option(out, OPT_END, b"");
    });
}

/// Length of the whole blocks at the start of `bytes` (all written by this module), at most `limit`.
pub fn whole_blocks_len(bytes: &[u8], limit: usize) -> usize {
    let mut end = 0;
    while let Some(field) = bytes.get(end + 4..end + 8) {
        let total_len = u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize;
        if total_len < 12 || end + total_len > limit.min(bytes.len()) {
            break;
        }
        end += total_len;
    }
    end
}

fn block(out: &mut Vec<u8>, block_type: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put32(out, block_type);
    put32(out, 0);
    body(out);
    let total_len = (out.len() - start + 4) as u32;
    put32(out, total_len);
    out[start + 4..start + 8].copy_from_slice(&total_len.to_le_bytes());
}

/// Options and name records share one layout: code, length, value padded to four bytes.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    put16(out, code);
    put16(out, value.len() as u16);
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A 64-bit stamp as pcapng has it: the high word first.
fn timestamp(ns: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&((ns >> 32) as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&(ns as u32).to_le_bytes());
    bytes
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}
