//! TLS records: their places, types and lengths. Of their contents the hellos are read ([`hellos`]), and alerts in the
//! clear.
//!
//! A record is searched where a payload begins, and after each record that is captured to its end. Bytes within a
//! record that look like a record are rare (one payload in millions); whoever reads records leaves out those that begin
//! within another. Not handled: a record whose header is cut by two segments.
//!
//! Source: RFC 8446 §5.1 (record layer), §4.1.2–4.1.3 (hellos), RFC 5246 §6.2.1.

use self::hellos::{CLIENT_HELLO, Keeping, SERVER_HELLO};
use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::head::{Head, HeadKind};
use crate::protocol::{AgentKeeps, Docs, Parts, Protocol};

pub mod hellos;
pub mod names;
pub mod opened;
pub mod payload_policy;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: &[20, 21, 22, 23],
    head_kinds: &[RECORD, opened::OPENED],
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
        reads: "types and lengths of records; both hellos; alerts in the clear",
        agent_keeps: "the headers of records, the type of a handshake message, alerts in the clear; of the hellos the server's name, protocols (ALPN), versions, cipher suite, and which extensions there are",
        overwrites: "key shares, tickets, ids of sessions and keys",
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
/// Level and description (RFC 8446 §6).
pub const ALERT_LEN: usize = 2;
/// Records read of one packet, at most.
const RECORD_LIMIT: usize = 64;
/// Longest content of a record: 2^14 bytes and what encryption may add (RFC 5246 §6.2.3).
const MAX_CONTENT_LEN: usize = (1 << 14) + 2048;
const TLS_13: u16 = 0x0304;

/// Keep the headers of the records that a payload begins with, the hello among them, the types of other handshake
/// messages, and alerts.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    let (mut at, mut hello_end) = (0, 0);
    for _ in 0..RECORD_LIMIT {
        let Some(record) = payload.bytes.get(at..).filter(|rest| may_be_record(rest)) else {
            break;
        };
        let Some(len) = record_len(record) else { break };
        match hellos::parts_of_records(record, Keeping::Decoder).filter(|_| at >= hello_end) {
            Some(hello) => {
                keeper.keep_start(&hello.redact(record), at, hello.kept_len(), len as u32);
                hello_end = at + hello.records_len;
            }
            None => {
                let shown_len = if at < hello_end { 0 } else { shown_len(record, len) };
                keeper.keep_start(record, at, HEADER_LEN + shown_len, len as u32);
            }
        }
        at += len;
    }
    false // its first bytes show the software
}

/// How many bytes of a record's content are kept if it begins no hello: the type of a handshake message, and an alert
/// that is in the clear (encrypted, it is longer).
pub(crate) fn shown_len(record: &[u8], len: usize) -> usize {
    let wanted = match u16::from(record[0]) {
        content::HANDSHAKE => 1,
        content::ALERT if len == HEADER_LEN + ALERT_LEN => ALERT_LEN,
        _ => 0,
    };
    wanted.min(record.len().min(len) - HEADER_LEN)
}

/// The record that an excerpt begins with. One of no bytes of the stream is a whole hello, of which its first packet
/// showed the record.
fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if excerpt.stream_len == 0 {
        return;
    }
    if let Some(record) = opened::OpenedRecord::read(excerpt) {
        emit(0, &record.head());
    } else if let Some(record) = parse(excerpt.bytes) {
        emit(0, &record);
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
        flags_of_hello(payload)
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

/// Flags of the hello that handshake records begin with, as far as it was captured.
fn flags_of_hello(records: &[u8]) -> u8 {
    match records.get(HEADER_LEN) {
        Some(&CLIENT_HELLO) => flag::CLIENT_HELLO,
        Some(&SERVER_HELLO) => match hellos::server_hello(&hellos::message_of(records)) {
            Some(hello) if hello.is_retry => 0,
            Some(hello) => {
                let is_13 = hello.version.is_some_and(|version| version >= TLS_13);
                let chose_http2 = hello.alpn == b"h2";
                flag::SERVER_HELLO | if is_13 { flag::TLS_13 } else { 0 } | if chose_http2 { flag::HTTP2 } else { 0 }
            }
            None => flag::SERVER_HELLO,
        },
        _ => 0,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        use super::hellos::tests::{ALPN_H2, VERSION_13, in_record, server_hello};
        let flags = |record: &[u8]| parse(record).map(|head| head.flags);
        let of_13 = in_record(&server_hello(7, &[VERSION_13]));
        assert_eq!(flags(&of_13), Some(flag::SERVER_HELLO | flag::TLS_13));
        assert_eq!(flags(&in_record(&server_hello(7, &[]))), Some(flag::SERVER_HELLO));
        for len in HEADER_LEN..of_13.len() {
            assert!(parse(&of_13[..len]).is_some());
        }
        let alpn = in_record(&server_hello(7, &[ALPN_H2]));
        assert_eq!(flags(&alpn), Some(flag::SERVER_HELLO | flag::HTTP2));
        assert_eq!(flags(&alpn[..alpn.len() - 1]), Some(flag::SERVER_HELLO));
        let mut retry = server_hello(7, &[VERSION_13]);
        retry[6..38].copy_from_slice(&hellos::HELLO_RETRY_REQUEST_RANDOM);
        assert_eq!(flags(&in_record(&retry)), Some(0));
    }
}
