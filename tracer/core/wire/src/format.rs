//! Recognises the format of a file by its first bytes; if it is no capture, says what it is instead.

use crate::bytes::ByteOrder;

/// Bytes of the file's beginning that [`detect`] inspects, at most.
pub const DETECT_LEN: usize = 512;

/// pcap magic numbers (draft-ietf-opsawg-pcap §4), read in the writer's byte order.
const PCAP_MICROSECONDS: u32 = 0xa1b2_c3d4;
const PCAP_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Block type of a pcapng section header: the same in both byte orders.
const PCAPNG_SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Formats of which we know the name, but which are not read: (first bytes, name, what to do).
const OTHER_FORMATS: &[(&[u8], &str, &str)] = &[
    (b"\xfd7zXZ\0", "xz-compressed", "decompress it first: xz -d FILE"),
    (b"BZh", "bzip2-compressed", "decompress it first: bzip2 -d FILE"),
    (
        b"\x04\x22\x4d\x18",
        "lz4-compressed",
        "decompress it first: lz4 -d FILE",
    ),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first: unzip FILE"),
    (b"snoop\0\0\0", "a snoop capture", CONVERT),
    (b"GMBU", "a Microsoft Network Monitor capture", CONVERT),
    (b"RTSS", "a Network Monitor 1 capture", CONVERT),
    (b"TRSNIFF data", "a Sniffer capture", CONVERT),
    (
        b"PAR1",
        "a Parquet table",
        "give the capture files that it was made from",
    ),
    (b"\x7fELF", "a program", "give a pcap or pcapng file"),
];

/// pcap relatives of which we know the name: (magic, name). Their record headers differ from pcap's.
const OTHER_PCAPS: &[(u32, &str)] = &[
    (0xa1b2_cd34, "a pcap file of Kuznetzov's modified libpcap"),
    (0xa1b2_34cd, "a pcap file in the FMESQUID variant"),
    (0xa12b_3c4d, "a pcap file in the NAVTEL variant"),
    (0x1c00_01ac, "an IXIA lcap file (hardware)"),
    (0x1c00_01ab, "an IXIA lcap file (software)"),
];

const CONVERT: &str = "convert it first: editcap -F pcapng FILE OUT.pcapng";
const GIVE_CAPTURE: &str = "give a pcap or pcapng file, as written by tcpdump, dumpcap, Wireshark or `tracer capture`";

/// A kind of file that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Pcap { order: ByteOrder, fraction_ns: u32 },
    Pcapng,
    Gzip,
    Zstd,
}

/// A file that is no capture: what it is, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotACapture {
    /// As in "FILE is {what}".
    pub what: String,
    pub next_step: String,
}

/// The format of a file that begins with `head` (up to [`DETECT_LEN`] bytes, fewer only if the file is shorter).
pub fn detect(head: &[u8]) -> Result<Format, NotACapture> {
    let Some(magic) = head.first_chunk::<4>() else {
        return Err(too_short(head));
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        match order.u32(magic, 0) {
            PCAP_MICROSECONDS => {
                return Ok(Format::Pcap {
                    order,
                    fraction_ns: 1_000,
                });
            }
            PCAP_NANOSECONDS => {
                return Ok(Format::Pcap { order, fraction_ns: 1 });
            }
            _ => {}
        }
    }
    match magic {
        &PCAPNG_SECTION => Ok(Format::Pcapng),
        [0x1f, 0x8b, ..] => Ok(Format::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd] => Ok(Format::Zstd),
        _ => Err(name_other(head, magic)),
    }
}

fn too_short(head: &[u8]) -> NotACapture {
    let what = if head.is_empty() {
        "empty".to_owned()
    } else {
        format!("only {} bytes long", head.len())
    };
    NotACapture {
        what,
        next_step: "nothing was captured into it; capture again".to_owned(),
    }
}

fn name_other(head: &[u8], magic: &[u8; 4]) -> NotACapture {
    let not = |what: &str, next_step: &str| NotACapture {
        what: what.to_owned(),
        next_step: next_step.to_owned(),
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if let Some((_, name)) = OTHER_PCAPS.iter().find(|(other, _)| *other == order.u32(magic, 0)) {
            return not(name, CONVERT);
        }
    }
    if let Some((_, name, next_step)) = OTHER_FORMATS.iter().find(|(start, ..)| head.starts_with(start)) {
        return not(name, next_step);
    }
    if is_text(head) {
        return not("a text file, not a capture", GIVE_CAPTURE);
    }
    let bytes: Vec<String> = magic.iter().map(|byte| format!("{byte:02x}")).collect();
    not(
        &format!("no capture (it begins with the bytes {})", bytes.join(" ")),
        GIVE_CAPTURE,
    )
}

fn is_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The window may end within a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or(""),
        Err(_) => return false,
    };
    !whole.is_empty()
        && !whole
            .chars()
            .any(|letter| letter.is_control() && !letter.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_are_read() {
        let pcap = |order, fraction_ns| Format::Pcap { order, fraction_ns };
        let cases: &[(&[u8], Format)] = &[
            (b"\xd4\xc3\xb2\xa1", pcap(ByteOrder::Little, 1_000)),
            (b"\xa1\xb2\xc3\xd4", pcap(ByteOrder::Big, 1_000)),
            (b"\x4d\x3c\xb2\xa1", pcap(ByteOrder::Little, 1)),
            (b"\xa1\xb2\x3c\x4d", pcap(ByteOrder::Big, 1)),
            (b"\x0a\x0d\x0d\x0a\x1c", Format::Pcapng),
            (b"\x1f\x8b\x08\x00", Format::Gzip),
            (b"\x28\xb5\x2f\xfd\x04", Format::Zstd),
        ];
        for (head, expected) in cases {
            assert_eq!(detect(head), Ok(*expected), "{head:x?}");
        }
    }

    #[test]
    fn files_that_are_no_capture_are_named() {
        let cases: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b"\xd4\xc3", "only 2 bytes"),
            (b"No.  Time  Source\n", "text file"),
            ("ログ: 失敗".as_bytes(), "text file"),
            (&"ログ: 失敗".as_bytes()[..10], "text file"),
            (b"\x34\xcd\xb2\xa1", "Kuznetzov"),
            (b"\xa1\xb2\xcd\x34", "Kuznetzov"),
            (b"\xa1\xb2\x34\xcd", "FMESQUID"),
            (b"\xfd7zXZ\0\0", "xz"),
            (b"snoop\0\0\0", "snoop"),
            (b"\x00\x01\x02\x03", "begins with the bytes 00 01 02 03"),
        ];
        for (head, expected) in cases {
            let error = detect(head).expect_err("not a capture");
            assert!(error.what.contains(expected), "{head:x?}: {}", error.what);
            assert!(!error.next_step.is_empty());
        }
    }
}
