//! MySQL's and MariaDB's client/server protocol: requests, each a command, named by the shapes of their statements
//! ([`crate::sql`]), and the numbers of their errors.
//!
//! | file | |
//! |---|---|
//! | `packets` | lengths and numbers of packets, and what single packets are |
//! | `reader` | what the packets of a direction command and answer |
//! | `errors` | whose fault an error is |
//! | `payload_policy` | what an agent keeps |
//!
//! Each direction is followed from packet to packet (`twintap_wire::frames`); rows of a result are not read.
//!
//! Limits: nothing is read inside TLS without keys, nor of compressed connections. A connection whose greeting was not
//! captured is known by a query, the execution of a statement, an error, or a result that begins with a packet.
//!
//! Source: MySQL's documentation, "Client/Server Protocol"; MariaDB's, "Clients & Utilities: Protocol".

use crate::excerpt::{Emit, Excerpt};
use crate::exchanges::Exchanges;
use crate::head::{Head, HeadKind};
use crate::marks::{STREAM_MARK, mark, reach};
use crate::ordered::{self, flag};
use crate::protocol::{AgentKeeps, Docs, FrameLen, Framing, MAX_KEPT_LEN, Parts, Protocol};
use crate::tls;

use packets::{ERR, HEADER_LEN, OK, Packet, command, status};

mod errors;
mod packets;
mod payload_policy;
mod reader;

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[MESSAGE, STREAM_MARK],
    begins: |start, from_client| start.len() >= HEADER_LEN && from_client == (start[3] == 0),
    exchanges: Exchanges::Ordered(&ordered::ORDER),
    results: errors::RESULTS,
    family: "sql",
    framing: Some(&FRAMING),
    read,
    first_bytes: &EVERY_BYTE,
    fixed_bytes: &[b"?\0\0\0\x0a5.", b"?\0\0\0\x0a8.", b"?\0\0\0\x0a9.", b"?\0\0\0\x0a1?."],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: |captured, _| payload_policy::blank(captured),
    }),
    overwrite: |payload| {
        payload_policy::overwrite_values(payload);
        false
    },
    docs: Docs {
        reads: "lengths and numbers of packets; commands; of statements the shape, without the values in them; the number of \
                an error",
        agent_keeps: "lengths and numbers of packets; the version in the greeting; commands, statements with literals and \
                      comments overwritten, ids of prepared statements; the numbers of errors, the status of answers",
        overwrites: "what a client answers a greeting, but for its capabilities; texts and comments in statements, \
                     parameters",
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "mysql";
/// What a replica asks for: from then on its server sends what is written, as it is written.
const BINLOG_DUMP: &[u8] = b"BINLOG DUMP";

/// A packet that begins or ends a request or its answer; `frame_kind` is its number.
pub const MESSAGE: HeadKind = HeadKind(7);

/// A packet begins with its length, which may be any.
const EVERY_BYTE: [u8; 256] = every_byte();

const fn every_byte() -> [u8; 256] {
    let (mut bytes, mut at) = ([0; 256], 0);
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
}

const FRAMING: Framing = Framing {
    header_len: HEADER_LEN,
    preface_len: |_| 0,
    may_begin,
    begins,
    resumes: begins,
    is_other: tls::is_handshake,
    frame_len,
    reader: |_| Box::new(reader::Messages::default()),
    keep: ordered::keep,
};

/// Bytes kept of a packet that is no command: an OK packet's numbers, a client's capabilities.
const ANSWER_LEN: u32 = 36;
/// Bytes of a statement that are compared with text.
const COMPARED_LEN: usize = 8;
/// Packets, numbered one after the other, that other bytes hardly look like.
const SURE_COUNT: usize = 3;
/// Numbers of columns at which the length of a result's first packet is one byte.
const COLUMNS_MAX: u8 = 250;

/// For the hot path.
#[inline]
fn may_begin(payload: &[u8]) -> bool {
    let Some(&[_, _, high, number, first]) = payload.first_chunk() else {
        return false;
    };
    match number {
        0 => matches!(
            first,
            packets::GREETING | command::QUERY | command::PREPARE | command::EXECUTE
        ),
        1 => high == 0,
        _ => false,
    }
}

/// Whether a payload begins with a packet, judged without the bytes before it.
fn begins(payload: &[u8], wire_len: usize) -> bool {
    let Some(packet) = Packet::parse(payload).filter(|_| may_begin(payload)) else {
        return false;
    };
    let is_all = packet.len + HEADER_LEN == wire_len;
    let goes_on = packet.len + HEADER_LEN > wire_len && payload.len() > 2 * COMPARED_LEN;
    match (packet.number, packet.body) {
        (0, [packets::GREETING, ..]) => is_all && packet.is_greeting(),
        (0, [command::QUERY | command::PREPARE, text @ ..]) => (is_all || goes_on) && is_text(text),
        (0, [command::EXECUTE, ..]) => is_all && packet.body.get(6..10) == Some(&[1, 0, 0, 0]),
        (1, [ERR, _, _, b'#', ..]) => is_all,
        (1, [OK, ..]) => is_all && packet.status() & (status::IN_TRANSACTION | status::AUTOCOMMIT) != 0,
        (1, [1..=COLUMNS_MAX] | [1..=COLUMNS_MAX, 0 | 1]) => {
            packets::chain(payload, wire_len, SURE_COUNT).is_some_and(|chain| chain.count == SURE_COUNT)
        }
        (1, _) => is_all && packet.login_capabilities().is_some(),
        _ => false,
    }
}

/// Whether a statement begins as text does.
fn is_text(text: &[u8]) -> bool {
    let text = text.strip_prefix(&[0, 1]).unwrap_or(text);
    let start = &text[..text.len().min(COMPARED_LEN)];
    start.len() > 2
        && start
            .iter()
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

fn frame_len(header: &[u8]) -> Option<FrameLen> {
    let &[a, b, c, number] = header.first_chunk()?;
    let body_len = u32::from_le_bytes([a, b, c, 0]);
    let wanted = if number == 0 { MAX_KEPT_LEN } else { ANSWER_LEN };
    let kept_len = wanted.min(body_len);
    (!tls::is_handshake(header)).then_some(FrameLen { body_len, kept_len })
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    let message = |header: &[u8]| {
        let packet = Packet::parse(header);
        packet.map_or((0, 0), |packet| {
            (packet.number.into(), (packet.len + HEADER_LEN) as u32)
        })
    };
    let Some(head) = ordered::head(excerpt, MESSAGE, HEADER_LEN, message) else {
        return;
    };
    if head.flags & flag::REQUEST == 0 || head.flags & flag::STATEMENT == 0 {
        emit(0, &head);
        if head.flags & flag::REQUEST != 0 && head.method == BINLOG_DUMP {
            emit(0, &mark(BINLOG_DUMP, NAME, reach::REST));
        }
        return;
    }
    // What prepares a statement is named so; the statement, for what executes it, is a row of its own.
    let target = [head.method, b" ", head.target].concat();
    let preparing = Head {
        flags: head.flags & !flag::STATEMENT,
        method: b"PREPARE",
        target: &target,
        ..head
    };
    emit(0, &preparing);
    emit(
        1,
        &Head {
            flags: flag::STATEMENT,
            ..head
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_packets_shows_it() {
        let greeting = b"\x2d\0\0\0\x0a10.11.19-MariaDB\0\x07\0\0\0abcdefgh\0\xfe\xf7-\x02\0\xff\x81\x15";
        let greeting = [&[greeting.len() as u8 - 4], &greeting[1..]].concat();
        let login = [&b"\x24\0\0\x01\x05\xa2\x3f\0\0\0\0\x40\x2d"[..], &[0; 23], b"u\0\0\0"].concat();
        let cases: &[(&str, &[u8], usize, bool)] = &[
            ("a greeting", &greeting, greeting.len(), true),
            ("an answer to it", &login, login.len(), true),
            ("a query", b"\x09\0\0\0\x03SELECT 1", 13, true),
            ("a query, cut", b"\xff\x0f\0\0\x03SELECT 1, 2, 3", 1448, true),
            ("a statement", b"\x09\0\0\0\x16SELECT ?", 13, true),
            ("an execution", b"\x0a\0\0\0\x17\x01\0\0\0\0\x01\0\0\0", 14, true),
            ("OK", b"\x07\0\0\x01\0\0\0\x02\0\0\0", 11, true),
            ("an error", b"\x0c\0\0\x01\xff\x7a\x04#42S02abc", 16, true),
            (
                "a result",
                b"\x01\0\0\x01\x01\x04\0\0\x02\x03def\x05\0\0\x03\xfe",
                60,
                true,
            ),
            ("no text", b"\x09\0\0\0\x03\x01\x02\x03\x04\x05\x06\x07\x08", 13, false),
            (
                "settings of HTTP/2",
                b"\0\0\x12\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                27,
                false,
            ),
            (
                "headers of HTTP/2",
                b"\0\0\x12\x01\x04\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                27,
                false,
            ),
            ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 517, false),
            ("TLS, a record", b"\x17\x03\x03\0\x16SELECT 1", 27, false),
            ("HTTP", b"GET / HTTP/1.1\r\n", 16, false),
            ("PostgreSQL", b"Q\0\0\0\x16SELECT 1\0", 23, false),
            ("nothing", b"", 0, false),
        ];
        for (name, payload, wire_len, expected) in cases {
            assert_eq!(begins(payload, *wire_len), *expected, "{name}");
            (0..payload.len()).for_each(|len| _ = begins(&payload[..len], *wire_len));
        }
    }

    #[test]
    fn an_agent_keeps_statements_without_values_and_no_rows_or_passwords() {
        let kept = |payload: &[u8]| {
            let mut bytes = payload[..payload_policy::kept_len(payload, 2048)].to_vec();
            payload_policy::blank(&mut bytes);
            bytes
        };
        let login = [
            &b"\x2c\0\0\x01\x05\xa2\x3f\0\0\0\0\x40\x2d"[..],
            &[0; 23],
            b"user\0secret!",
        ]
        .concat();
        let cases: &[(&[u8], &[u8])] = &[
            (&login, &login[..36]),
            (b"\x10\0\0\0\x03SELECT 'secret'", b"\x10\0\0\0\x03SELECT 'xxxxxx'"),
            (b"\x0e\0\0\0\x03SELECT 123456", b"\x0e\0\0\0\x03SELECT 000000"),
            (
                b"\x12\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01secret",
                b"\x12\0\0\0\x17\x01\0\0\0\0\x01\0\0\0",
            ),
            (b"\x12\0\0\x01\xff\x7a\x04#42S02no secret", b"\x12\0\0\x01\xff\x7a\x04#42S02"),
            (
                b"\x01\0\0\x01\x01\x06\0\0\x02\x03defab\x05\0\0\x03\xfe\0\0\x02\0\x07\0\0\x04\x06secret\x05\0\0\x05\xfe\0\0\x02\0",
                b"\x01\0\0\x01\x01\x06\0\0\x02\0\0\0\0\0\0\x05\0\0\x03\xfe\0\0\x02\0\x07\0\0\x04\0\0\0\0\0\0\0\x05\0\0\x05\xfe\0\0\x02\0",
            ),
            (b"GET / HTTP/1.1\r\n", b""),
        ];
        for (payload, expected) in cases {
            assert_eq!(kept(payload), *expected, "{:?}", String::from_utf8_lossy(payload));
            (0..payload.len()).for_each(|len| assert!(kept(&payload[..len]).len() <= len));
        }
    }
}
