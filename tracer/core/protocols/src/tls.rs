//! TLS records: their places, types and lengths. Of their contents only the first hello is read.
//!
//! A record is searched where a payload begins, and after each record that is captured to its end. Bytes within a
//! record that look like a record are rare (one payload in millions); whoever reads records leaves out those that begin
//! within another. Not handled: a record whose header is cut by two segments.
//!
//! Source: RFC 8446 §5.1 (record layer), §4.1.2–4.1.3 (hellos), RFC 5246 §6.2.1.

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::head::{Head, HeadKind};
use crate::protocol::{AgentKeeps, Docs, Parts, Protocol};

pub mod payload_policy;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: &[20, 21, 22, 23],
    head_kinds: &[RECORD],
    begins: |start, _| parse(start).is_some(),
    exchanges: Exchanges::TurnsInside,
    keep,
    read,
    fixed_bytes: &[b"\x16\x03\x01??\x01", b"\x16\x03\x03??\x01"],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: payload_policy::blank,
    }),
    docs: Docs {
        reads: "types and lengths of records; of the server's hello the version and whether it chose HTTP/2",
        agent_keeps: "the headers of records, the type of a handshake message, the server's hello",
        overwrites: "",
    },
    ..Protocol::with_name("tls")
};

pub const RECORD: HeadKind = HeadKind(3);

/// Bits of [`Head::flags`] of a record.
pub mod flag {
    pub const CLIENT_HELLO: u8 = 0x01;
    pub const SERVER_HELLO: u8 = 0x02;
    /// The server's hello chose TLS 1.3 or later.
    pub const TLS_13: u8 = 0x04;
    /// The server's hello chose HTTP/2 (ALPN); in TLS 1.3 that choice is encrypted.
    pub const HTTP2: u8 = 0x08;
}

/// Content types (RFC 8446 §5.1).
pub mod content {
    pub const CHANGE_CIPHER_SPEC: u16 = 20;
    pub const ALERT: u16 = 21;
    pub const HANDSHAKE: u16 = 22;
    pub const APPLICATION_DATA: u16 = 23;
}

const HEADER_LEN: usize = 5;
/// Records read of one packet, at most.
const RECORD_LIMIT: usize = 64;
/// Length of a handshake message's header: type and length (RFC 8446 §4).
const MESSAGE_HEADER_LEN: usize = 4;
/// Longest content of a record: 2^14 bytes and what encryption may add (RFC 5246 §6.2.3).
const MAX_CONTENT_LEN: usize = (1 << 14) + 2048;
const SUPPORTED_VERSIONS: u16 = 43;
/// Application-layer protocol negotiation: a list with the length of one name in it, and the name (RFC 7301 §3.1).
const ALPN: u16 = 16;
const ALPN_HTTP2: &[u8] = b"\0\x03\x02h2";
/// Extensions of a hello that are read, at most.
const MAX_EXTENSIONS: usize = 64;
const TLS_13: u16 = 0x0304;
/// SHA-256 of "HelloRetryRequest", in place of a server's random number (RFC 8446 §4.1.3); its first bytes.
const HELLO_RETRY_REQUEST_RANDOM: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

/// Keep the headers of the records that a payload begins with, and a server's hello.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    let mut at = 0;
    for _ in 0..RECORD_LIMIT {
        let Some(record) = payload.bytes.get(at..).filter(|rest| may_be_record(rest)) else {
            break;
        };
        let Some(len) = record_len(record) else { break };
        let kept_len = HEADER_LEN + hello_len(&record[..len.min(record.len())]);
        keeper.keep_start(record, at, kept_len, len as u32);
        at += len;
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if let Some(record) = parse(excerpt.bytes) {
        emit(0, &record);
    }
}

/// Bytes of a record's content that are kept: the type of a client's hello, all of a server's.
fn hello_len(record: &[u8]) -> usize {
    let message = &record[HEADER_LEN..];
    match message {
        [1, ..] if u16::from(record[0]) == content::HANDSHAKE => 1,
        [2, long, high, low, ..] if u16::from(record[0]) == content::HANDSHAKE => {
            let len = MESSAGE_HEADER_LEN + u32::from_be_bytes([0, *long, *high, *low]) as usize;
            len.min(message.len())
        }
        _ => 0,
    }
}

/// Whether `payload` begins as a record of the handshake does: that begins TLS within another protocol.
pub(crate) fn is_handshake(payload: &[u8]) -> bool {
    matches!(payload, [kind, 3, 0..=4, ..] if u16::from(*kind) == content::HANDSHAKE)
}

/// Whether `payload` may begin with a record.
pub fn may_be_record(payload: &[u8]) -> bool {
    payload.len() >= HEADER_LEN && (20..=23).contains(&payload[0]) && payload[1] == 3 && payload[2] <= 4
}

/// The record at the start of `payload` as a head without text: `status` is its content type, `len` its whole length.
pub fn parse(payload: &[u8]) -> Option<Head<'static>> {
    if !may_be_record(payload) {
        return None;
    }
    let len = record_len(payload)?;
    let kind = u16::from(payload[0]);
    let flags = if kind == content::HANDSHAKE {
        hello(&payload[HEADER_LEN..])
    } else {
        0
    };
    Some(Head {
        flags,
        status: kind,
        len: len as u32,
        ..Head::empty(RECORD)
    })
}

/// How long the record at the start of `payload` is, with its header; `None` if there can be none.
fn record_len(payload: &[u8]) -> Option<usize> {
    let len = usize::from(number(payload, 3)?);
    let shortest = if u16::from(payload[0]) == content::APPLICATION_DATA {
        0
    } else {
        1
    };
    (shortest..=MAX_CONTENT_LEN).contains(&len).then_some(HEADER_LEN + len)
}

/// Flags of the hello that a handshake record begins with.
fn hello(message: &[u8]) -> u8 {
    match message.first() {
        Some(1) => flag::CLIENT_HELLO,
        Some(2) if message.get(6..10) == Some(&HELLO_RETRY_REQUEST_RANDOM) => 0,
        Some(2) => flag::SERVER_HELLO | choice_of_hello(message),
        _ => 0,
    }
}

/// Flags of what a server's hello chooses, as far as it was captured.
fn choice_of_hello(message: &[u8]) -> u8 {
    // Type, length, version, random number; then the session's id, the cipher, the compression.
    let Some(&session_len) = message.get(38) else {
        return 0;
    };
    let (mut at, mut flags) = (39 + usize::from(session_len) + 3 + 2, 0);
    for _ in 0..MAX_EXTENSIONS {
        let (Some(kind), Some(len)) = (number(message, at), number(message, at + 2)) else {
            break;
        };
        let behind = at + 4 + usize::from(len);
        match kind {
            SUPPORTED_VERSIONS if number(message, at + 4).is_some_and(|version| version >= TLS_13) => {
                flags |= flag::TLS_13;
            }
            ALPN if message.get(at + 4..behind) == Some(ALPN_HTTP2) => flags |= flag::HTTP2,
            _ => {}
        }
        at = behind;
    }
    flags
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_hello(version: Option<u16>, random: u8) -> Vec<u8> {
        let mut message = vec![2, 0, 0, 0, 3, 3];
        message.extend([random; 32]);
        message.extend([0, 0x13, 0x01, 0, 0, 6]);
        if let Some(version) = version {
            message.extend([0, 43, 0, 2]);
            message.extend(version.to_be_bytes());
        }
        let mut record = vec![22, 3, 3];
        record.extend((message.len() as u16).to_be_bytes());
        record.extend(message);
        record
    }

    #[test]
    fn records_are_known_by_their_headers() {
        type Case = Option<(u16, u8, u32)>;
        let cases: &[(&[u8], Case)] = &[
            (&[22, 3, 1, 2, 0, 1, 0], Some((22, flag::CLIENT_HELLO, 517))),
            (&[20, 3, 3, 0, 1, 1], Some((20, 0, 6))),
            (&[23, 3, 3, 0x40, 0x11, 9], Some((23, 0, 16_406))),
            (&[23, 3, 3, 0x50, 0, 9], None),
            (&[22, 3, 3, 0, 0], None),
            (&[24, 3, 3, 0, 9], None),
            (&[23, 2, 3, 0, 9], None),
            (&[23, 3, 3, 0], None),
            (b"GET / HTTP/1.1", None),
        ];
        for (payload, expected) in cases {
            let found = parse(payload).map(|head| (head.status, head.flags, head.len));
            assert_eq!(found, *expected, "{payload:?}");
        }
    }

    #[test]
    fn a_servers_hello_shows_its_version_as_far_as_it_was_captured() {
        let flags = |record: &[u8]| parse(record).map(|head| head.flags);
        let of_13 = server_hello(Some(TLS_13), 7);
        assert_eq!(flags(&of_13), Some(flag::SERVER_HELLO | flag::TLS_13));
        assert_eq!(flags(&server_hello(None, 7)), Some(flag::SERVER_HELLO));
        for len in HEADER_LEN..of_13.len() {
            assert!(parse(&of_13[..len]).is_some());
        }
        let mut alpn = server_hello(None, 7);
        alpn.extend([0, 16, 0, 5, 0, 3, 2, b'h', b'2']);
        assert_eq!(flags(&alpn), Some(flag::SERVER_HELLO | flag::HTTP2));
        assert_eq!(flags(&alpn[..alpn.len() - 1]), Some(flag::SERVER_HELLO));
        *alpn.last_mut().expect("long") = b'3';
        assert_eq!(flags(&alpn), Some(flag::SERVER_HELLO));
        let mut retry = server_hello(Some(TLS_13), 7);
        retry[11..15].copy_from_slice(&HELLO_RETRY_REQUEST_RANDOM);
        assert_eq!(flags(&retry), Some(0));
    }
}
