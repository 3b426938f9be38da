//! The TCP header and the options that matching needs.
//!
//! Source: RFC 9293 §3.1; RFC 7323 (window scale, timestamps); RFC 2018 (SACK); RFC 9768 for the AE flag. The ports to
//! the window are in the first 16 bytes, so a packet cut behind them still gives a row. Other options are stepped over.

use crate::bytes::{be16, be32};
use crate::error::{DecodeError, Layer, LimitedBy};

/// Bytes without options.
const HEADER_LEN: usize = 20;
/// Bytes up to and with the window: the checksum and the urgent pointer are not used (a captured checksum is only the
/// pseudo-header's sum where the card completes it).
const NEEDED_LEN: usize = 16;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT_SIZE: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Bits of [`TcpOptions::present`]; Python has the same in `collector.capture_files.records.TcpOption`.
pub mod present {
    pub const TIMESTAMPS: u8 = 0x01;
    pub const MSS: u8 = 0x02;
    pub const WINDOW_SCALE: u8 = 0x04;
    pub const SACK_PERMITTED: u8 = 0x08;
    pub const SACK: u8 = 0x10;
}

/// `window_scale` where the option was not given.
pub const NO_WINDOW_SCALE: u8 = 255;

/// A TCP header, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpHeader {
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    /// With AE as 0x100.
    pub flags: u16,
    /// Raw, unscaled.
    pub window: u16,
    /// With options.
    pub header_len: usize,
    pub options: TcpOptions,
}

/// What the options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Bits of [`present`].
    pub present: u8,
    /// 0 if not given.
    pub mss: u16,
    /// [`NO_WINDOW_SCALE`] if not given.
    pub window_scale: u8,
    pub tsval: u32,
    pub tsecr: u32,
    /// Hash of the SACK blocks' bytes; 0 without blocks, never 0 with blocks.
    pub sack_hash: u32,
    /// Why options after some point were not read, if so.
    pub error: Option<DecodeError>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            present: 0,
            mss: 0,
            window_scale: NO_WINDOW_SCALE,
            tsval: 0,
            tsecr: 0,
            sack_hash: 0,
            error: None,
        }
    }
}

/// Read the TCP header at `offset` of `frame`, of a segment of `segment_len` bytes on the wire.
///
/// # Errors
/// Fewer than 16 bytes captured; a data offset below 5 words or past the segment's end.
pub fn decode(frame: &[u8], offset: usize, segment_len: usize) -> Result<TcpHeader, DecodeError> {
    let available = frame.len().saturating_sub(offset);
    if segment_len < HEADER_LEN {
        return Err(DecodeError::contradiction(
            Layer::Tcp,
            LimitedBy::Ipv4TotalLen,
            offset,
            HEADER_LEN,
            segment_len,
        ));
    }
    if available < NEEDED_LEN {
        return Err(DecodeError::cut(Layer::Tcp, offset, NEEDED_LEN, available));
    }
    let header = &frame[offset..];
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < HEADER_LEN || header_len > segment_len {
        return Err(DecodeError::contradiction(
            Layer::Tcp,
            LimitedBy::TcpDataOffset,
            offset,
            header_len,
            segment_len,
        ));
    }
    Ok(TcpHeader {
        src_port: be16(header, 0),
        dst_port: be16(header, 2),
        seq: be32(header, 4),
        ack: be32(header, 8),
        flags: be16(header, 12) & 0x01ff,
        window: be16(header, 14),
        header_len,
        options: options(header, header_len, offset),
    })
}

/// Read the options of the header that begins `header`, as far as they were captured.
fn options(header: &[u8], header_len: usize, offset: usize) -> TcpOptions {
    let mut read = TcpOptions::default();
    let captured_len = header_len.min(header.len());
    let mut at = HEADER_LEN;
    while at < captured_len {
        let kind = header[at];
        if kind == END {
            return read;
        }
        if kind == NO_OPERATION {
            at += 1;
            continue;
        }
        // If the length byte was not captured, or would be the payload's, assume 2, the shortest option.
        let len = header[..captured_len].get(at + 1).map_or(2, |&len| usize::from(len));
        let room = header_len - at;
        if len < 2 || len > room {
            read.error = Some(DecodeError::contradiction(
                Layer::TcpOptions,
                LimitedBy::TcpOptionLen,
                offset + at,
                len,
                room,
            ));
            return read;
        }
        if at + len > captured_len {
            read.error = Some(DecodeError::cut(Layer::TcpOptions, offset + at, len, captured_len - at));
            return read;
        }
        take_option(&mut read, kind, &header[at + 2..at + len]);
        at += len;
    }
    if captured_len < header_len && at < header_len {
        read.error = Some(DecodeError::cut(Layer::TcpOptions, offset, header_len, captured_len));
    }
    read
}

/// Read one option; an option of unusual length is ignored, as receivers do.
fn take_option(read: &mut TcpOptions, kind: u8, value: &[u8]) {
    match (kind, value.len()) {
        (TIMESTAMPS, 8) => {
            read.present |= present::TIMESTAMPS;
            read.tsval = be32(value, 0);
            read.tsecr = be32(value, 4);
        }
        (MAXIMUM_SEGMENT_SIZE, 2) => {
            read.present |= present::MSS;
            read.mss = be16(value, 0);
        }
        (WINDOW_SCALE, 1) => {
            read.present |= present::WINDOW_SCALE;
            read.window_scale = value[0];
        }
        (SACK_PERMITTED, 0) => read.present |= present::SACK_PERMITTED,
        (SACK, len) if len > 0 && len % 8 == 0 => {
            read.present |= present::SACK;
            read.sack_hash = hash_sack(value);
        }
        _ => {}
    }
}

/// FNV-1a over the blocks' 32-bit words: equal blocks have equal hashes on every host. 0 is reserved for "none".
fn hash_sack(blocks: &[u8]) -> u32 {
    let mix = |hash: u64, word: &[u8]| (hash ^ u64::from(be32(word, 0))).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = blocks.chunks_exact(4).fold(0xcbf2_9ce4_8422_2325, mix);
    ((hash ^ (hash >> 32)) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn segment(options: &[u8]) -> Vec<u8> {
        let mut header = vec![
            0x9c, 0x40, 0x1f, 0x90, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 0x12, 0x34, 0, 0, 0, 0,
        ];
        header[12] = (((20 + options.len()) / 4) as u8) << 4;
        header.extend_from_slice(options);
        header
    }

    fn read(options: &[u8]) -> TcpOptions {
        let header = segment(options);
        decode(&header, 0, header.len()).expect("whole").options
    }

    #[test]
    fn fixed_fields() {
        let mut header = segment(&[]);
        header[12] |= 1;
        let read = decode(&header, 0, 1000).expect("whole");
        assert_eq!(
            (read.src_port, read.dst_port, read.seq, read.ack),
            (40000, 8080, 0x0102_0304, 0x0506_0708)
        );
        assert_eq!((read.flags, read.window, read.header_len), (0x118, 0x1234, 20));
    }

    #[test]
    fn option_tables() {
        let none = TcpOptions::default();
        let stamps = TcpOptions {
            present: present::TIMESTAMPS,
            tsval: 9,
            tsecr: 7,
            ..none
        };
        let syn = TcpOptions {
            present: present::MSS | present::SACK_PERMITTED | present::TIMESTAMPS | present::WINDOW_SCALE,
            mss: 1460,
            window_scale: 7,
            tsval: 9,
            tsecr: 0,
            ..none
        };
        let cases: &[(&str, &[u8], TcpOptions)] = &[
            ("none", &[], none),
            ("end", &[0, 8, 10, 0], none),
            ("timestamps", &[1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7], stamps),
            ("timestamps in front", &[8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 1, 1], stamps),
            (
                "a SYN of Linux",
                &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7],
                syn,
            ),
            (
                "unknown stepped over",
                &[30, 4, 0, 0, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 1, 1],
                stamps,
            ),
            ("MSS of an odd length", &[2, 3, 9, 1], none),
        ];
        for (name, options, expected) in cases {
            assert_eq!(read(options), *expected, "{name}");
        }
    }

    #[test]
    fn sack_blocks_distinguish_acks() {
        let one = read(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let other = read(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 3]);
        assert_eq!(one.present, present::SACK);
        assert_eq!(
            one,
            read(&[5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]),
            "wherever the option stands"
        );
        assert!(one.sack_hash != 0 && one.sack_hash != other.sack_hash);
    }

    #[test]
    fn malformed_options_keep_what_came_before() {
        for bad in [[3, 1, 0, 0], [3, 0, 0, 0], [3, 200, 0, 0], [1, 1, 1, 8]] {
            let read = read(&[&[2, 4, 5, 180][..], &bad].concat());
            let kind = read.error.map(|error| (error.layer, error.kind));
            assert_eq!(kind, Some((Layer::TcpOptions, ErrorKind::Malformed)), "{bad:?}");
            assert_eq!(read.mss, 1460);
        }
    }

    #[test]
    fn every_prefix() {
        let options = [2, 4, 5, 180, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7, 3, 3, 7, 1, 1, 1];
        let header = segment(&options);
        for len in 0..=header.len() {
            match decode(&header[..len], 0, 5000) {
                Err(error) => {
                    assert!(len < NEEDED_LEN);
                    assert_eq!(
                        (error.kind, error.needed, error.available),
                        (ErrorKind::TooShort, 16, len as u32)
                    );
                }
                Ok(read) => {
                    assert!(len >= NEEDED_LEN);
                    assert_eq!(read.header_len, 40);
                    assert_eq!(read.options.mss == 1460, len >= 24, "{len}");
                    assert_eq!(read.options.tsval == 9, len >= 34, "{len}");
                    assert_eq!(read.options.window_scale == 7, len >= 37, "{len}");
                    assert_eq!(read.options.error.is_some(), len < 40, "{len}");
                }
            }
        }
    }

    #[test]
    fn contradictions() {
        let mut short = segment(&[]);
        short[12] = 0x40;
        let cases = [(short, 40), (segment(&[]), 19), (segment(&[1; 8]), 27)];
        for (header, segment_len) in cases {
            let error = decode(&header, 0, segment_len).expect_err("contradicts itself");
            assert_eq!((error.layer, error.kind), (Layer::Tcp, ErrorKind::Malformed));
        }
    }
}
