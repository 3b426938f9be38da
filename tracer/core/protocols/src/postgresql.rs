//! PostgreSQL's frontend/backend protocol 3: requests, each a simple query or the messages up to a Sync, named by the
//! shapes of their statements ([`crate::sql`]), and the SQLSTATE of their errors.
//!
//! | file | |
//! |---|---|
//! | `messages` | types and lengths of messages, and which side sends them |
//! | `reader` | what the messages of a direction ask and answer |
//! | `sqlstate`, `condition_names` | the codes of errors, and the words for them |
//! | `payload_policy` | what an agent keeps |
//!
//! Each direction is followed from message to message (`twintap_wire::frames`), so several requests may be under way
//! (pipelining), and rows of a result are not read.
//!
//! `LISTEN` marks a stream: after it the server sends notifications without a request for the rest of the connection.
//! So does `START_REPLICATION`, and where that was not captured, what either side sends then: a standby reports how far
//! it is whenever it wants.
//!
//! Limits: a connection that continues with requests after `LISTEN`; what is inside of TLS or GSS encryption; of an
//! agent's capture, a replication stream that was begun before it.
//!
//! Source: PostgreSQL's documentation, "Frontend/Backend Protocol", "Streaming Replication Protocol".

use crate::excerpt::{Emit, Excerpt};
use crate::exchanges::Exchanges;
use crate::head::HeadKind;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::ordered;
use crate::protocol::{AgentKeeps, Docs, FrameLen, Framing, MAX_KEPT_LEN, Parts, Protocol};
use crate::tls;

use messages::{Chain, First, HEADER_LEN, chain, first_message, message_len};

mod condition_names;
mod messages;
mod payload_policy;
mod reader;
mod sqlstate;

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[MESSAGE, STREAM_MARK],
    begins: |start, from_client| messages::may_be_sent_by(start, from_client),
    exchanges: Exchanges::Ordered(&ordered::ORDER),
    results: sqlstate::RESULTS,
    family: "sql",
    framing: Some(&FRAMING),
    read,
    first_bytes: b"\0BCDEFGHIKNPQRSTVWXZ123Acdfnpstv",
    fixed_bytes: &[
        b"\0\0??\0\x03\0\0",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        b"\0\0\0\x08\x04\xd2\x16\x30",
        b"1\0\0\0\x042\0\0",
        b"P\0\0??\0LISTEN",
        b"P\0\0??\0listen",
        b"Q\0\0??SEL",
        b"Q\0\0??sel",
        b"Q\0\0??INS",
        b"Q\0\0??UPD",
        b"Q\0\0??BEG",
        b"Q\0\0??COM",
        b"Q\0\0??LISTEN",
        b"Q\0\0??listen",
        b"R\0\0\0?\0\0\0",
        b"Z\0\0\0\x05I",
        b"Z\0\0\0\x05T",
    ],
    agent: AgentKeeps::Parts(Parts {
        kept_len: payload_policy::kept_len,
        blank: |captured, _| payload_policy::blank(captured),
    }),
    overwrite,
    docs: Docs {
        reads: "types and lengths of messages; of queries the statement's shape, without the values in it; of errors the \
                SQLSTATE; `LISTEN`, `START_REPLICATION`",
        agent_keeps: "types and lengths of messages; statements with literals and comments overwritten; names of prepared \
                      statements and portals; severity and SQLSTATE of errors",
        overwrites: "password messages and parameters, whole; texts and comments in statements",
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "postgresql";

/// A message that begins, names or ends a request or its answer; `frame_kind` is its type, 0 if it has none.
pub const MESSAGE: HeadKind = HeadKind(6);

const FRAMING: Framing = Framing {
    header_len: HEADER_LEN,
    preface_len: |_| 0,
    may_begin,
    begins,
    resumes: |payload, wire_len| {
        may_begin(payload) && chain_of(payload, wire_len).is_some_and(|chain| chain.is_solid())
    },
    is_other: tls::is_handshake,
    frame_len,
    reader: |_| Box::new(reader::Messages::default()),
    keep: ordered::keep,
};

/// Messages of one packet that are checked, at most, before its direction is followed.
const CHECKED_MAX: usize = 64;
/// Bytes kept of an error: its severity, twice, and its code come first.
const ERROR_LEN: u32 = 96;
/// Bytes kept of the names that a Bind begins with.
const NAMES_LEN: u32 = 512;
/// Bytes kept of a command tag, or of the kind of thing that a Describe or a Close names.
const TAG_LEN: u32 = 8;
/// Bytes of the kind of an Authentication message.
const KIND_LEN: u32 = 4;
/// Bytes of a COPY's data that show a replication stream.
const COPIED_LEN: u32 = 34;
/// Statements after which their connection is a stream.
const STREAMING: [&[u8]; 2] = [b"LISTEN", b"START_REPLICATION"];

/// For the hot path.
#[inline]
fn may_begin(payload: &[u8]) -> bool {
    message_len(payload).is_some()
}

fn chain_of(payload: &[u8], wire_len: usize) -> Option<Chain> {
    chain(payload, wire_len, CHECKED_MAX)
}

/// Whether a payload begins with messages, judged without the bytes before it: which side sent them is certain, and they
/// are several, reach exactly to its end, or begin with a statement.
fn begins(payload: &[u8], wire_len: usize) -> bool {
    let Some(chain) = may_begin(payload).then(|| chain_of(payload, wire_len)).flatten() else {
        return false;
    };
    match payload[0] {
        0 => is_first(payload, wire_len),
        b'Q' | b'P' => chain.is_solid() || is_statement(payload),
        _ => chain.is_first_certain && chain.is_solid(),
    }
}

/// Whether a payload is a StartupMessage or a CancelRequest.
fn is_first(payload: &[u8], wire_len: usize) -> bool {
    let is_whole = message_len(payload).is_some_and(|len| len as usize == wire_len);
    let parameters = payload.get(8..).unwrap_or(&[]);
    let is_named = parameters
        .first()
        .is_none_or(|&byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_overwritten = parameters.iter().all(|&byte| byte == 0);
    match first_message(payload) {
        Some(First::Startup) => is_whole && (is_named || is_overwritten),
        Some(First::Cancel) => is_whole,
        Some(First::Encryption) | None => false, // TLS follows, or a StartupMessage in a packet of its own
    }
}

/// Whether the text of a Query or a Parse begins as a statement may.
fn is_statement(payload: &[u8]) -> bool {
    let body = payload[HEADER_LEN..].iter();
    let is_text = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let is_named = payload[0] == b'P';
    let text = body
        .skip_while(|byte| is_named && **byte != 0)
        .skip(usize::from(is_named));
    let start = || text.clone().take(TAG_LEN as usize);
    start().count() == TAG_LEN as usize && start().all(is_text)
}

fn frame_len(header: &[u8]) -> Option<FrameLen> {
    let body_len = message_len(header)? - HEADER_LEN as u32;
    let wanted = match header[0] {
        0 | b'Q' | b'P' => MAX_KEPT_LEN,
        b'B' => NAMES_LEN,
        b'E' => ERROR_LEN,
        b'C' => TAG_LEN,
        b'R' => KIND_LEN,
        b'd' => COPIED_LEN,
        _ => 0,
    };
    let kept_len = wanted.min(body_len);
    Some(FrameLen { body_len, kept_len })
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    let message = |header: &[u8]| (u16::from(header[0]), message_len(header).unwrap_or(0));
    let Some(head) = ordered::head(excerpt, MESSAGE, HEADER_LEN, message) else {
        return;
    };
    if head.method == reader::REPLICATION.as_bytes() {
        emit(0, &mark(head.method, NAME, reach::CONNECTION));
        return;
    }
    emit(0, &head);
    if head.flags & ordered::flag::REQUEST != 0 && STREAMING.contains(&head.method) {
        emit(0, &mark(head.method, NAME, reach::REST));
    }
}

/// Overwrite what may be a credential. True for a PasswordMessage alone, of which nothing is left to overwrite.
fn overwrite(payload: &mut [u8]) -> bool {
    payload_policy::overwrite_values(payload);
    payload.first() == Some(&b'p') && message_len(payload) == Some(payload.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of pgbench: its first message, and a server's first answer (as captured, its rows left out).
    const STARTUP: &[u8] =
        b"\0\0\0\x54\0\x03\0\0user\0postgres\0database\0postgres\0application_name\0pgbench\0client_encoding\0UTF8\0\0";
    const AUTHENTICATED: &[u8] =
        b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16application_name\0\0K\0\0\0\x0c\0\0\x0c\x1f\x1f\x8b\xb9\x3cZ\0\0\0\x05I";
    const ANSWER: &[u8] = b"1\0\0\0\x042\0\0\0\x04T\0\0\0\x1a\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0D\0\0\0\x0b\0\x01\0\0\0\x011C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";

    #[test]
    fn what_begins_with_messages_shows_it() {
        let startup = {
            let mut bytes = STARTUP.to_vec();
            bytes[3] = bytes.len() as u8;
            bytes
        };
        let answer = {
            let mut bytes = ANSWER.to_vec();
            bytes[14] = 4 + 2 + 9 + 18;
            bytes
        };
        let overwritten = [&startup[..8], &vec![0; startup.len() - 8]].concat();
        let cases: &[(&str, &[u8], usize, bool)] = &[
            ("startup", &startup, startup.len(), true),
            (
                "startup, overwritten by an agent",
                &overwritten,
                overwritten.len(),
                true,
            ),
            ("startup, cut", &startup[..8], startup.len(), true),
            ("Kafka", b"\0\0\0\x29\0\x03\0\0\0\0\0\x01\0\x04rdka", 45, false),
            ("SSLRequest", b"\0\0\0\x08\x04\xd2\x16\x2f", 8, false),
            (
                "CancelRequest",
                b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02",
                16,
                true,
            ),
            ("a query", b"Q\0\0\0\x0dSELECT 1\0", 14, true),
            ("a long query, cut", b"Q\0\0\x20\x0dSELECT 1 + ", 1448, true),
            (
                "not a query",
                b"Q\0\0\0\x0d\x01\x02\x03\x04\x05\x06\x07\x08",
                1448,
                false,
            ),
            ("an unnamed statement", b"P\0\0\0\x11\0SELECT 1\0\0\0", 18, true),
            ("ready", b"Z\0\0\0\x05I", 6, true),
            ("an answer", &answer, answer.len(), true),
            ("rows alone", b"D\0\0\0\x0b\0\x01\0\0\0\x011", 12, false),
            ("authenticated", AUTHENTICATED, AUTHENTICATED.len(), true),
            ("NATS", b"PING\r\n", 6, false),
            ("HTTP", b"POST / HTTP/1.1\r\n", 17, false),
            (
                "settings of HTTP/2",
                b"\0\0\x12\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
                27,
                false,
            ),
            ("TLS", b"\x16\x03\x01\x02\0\x01\0\x01\xfc", 517, false),
            ("nothing", b"", 0, false),
        ];
        for (name, payload, wire_len, expected) in cases {
            assert_eq!(begins(payload, *wire_len), *expected, "{name}");
            assert!(!expected || PROTOCOL.first_bytes.contains(&payload[0]), "{name}");
        }
        for len in 0..answer.len() {
            begins(&answer[..len], answer.len());
            assert!(
                (FRAMING.resumes)(&answer[..len], answer.len()) || len < 20,
                "cut at {len}"
            );
        }
    }

    #[test]
    fn of_whole_payloads_values_are_overwritten_and_rows_stay() {
        let cases: &[(&[u8], &[u8], bool)] = &[
            (b"p\0\0\0\x0bsecret\0", b"p\0\0\0\x0bxxxxxxx", true),
            (b"Q\0\0\0\x14SELECT 'secret'\0", b"Q\0\0\0\x14SELECT 'xxxxxx'\0", false),
            (b"D\0\0\0\x0b\0\x01\0\0\0\x011", b"D\0\0\0\x0b\0\x01\0\0\0\x011", false),
            (b"Quite another text", b"Quite another text", false),
        ];
        for (payload, expected, is_secret) in cases {
            let mut bytes = payload.to_vec();
            assert_eq!((overwrite(&mut bytes), &bytes[..]), (*is_secret, *expected));
        }
    }

    #[test]
    fn every_type_has_its_first_byte() {
        for kind in 0..=u8::MAX {
            let is_type = [4_u32, 5, 8, 20].iter().any(|len| {
                let header = [&[kind][..], &len.to_be_bytes()].concat();
                kind != 0 && message_len(&header).is_some()
            });
            assert!(!is_type || PROTOCOL.first_bytes.contains(&kind), "{kind}");
        }
    }

    #[test]
    fn an_agent_keeps_statements_without_values_and_no_rows_or_passwords() {
        let kept = |payload: &[u8]| {
            let mut bytes = payload[..payload_policy::kept_len(payload, 2048)].to_vec();
            payload_policy::blank(&mut bytes);
            bytes
        };
        let cases: &[(&[u8], &[u8])] = &[
            (b"Q\0\0\0\x14SELECT 'secret'\0", b"Q\0\0\0\x14SELECT 'xxxxxx'\0"),
            (
                b"P\0\0\0\x1cs1\0SELECT 'a', $1\0\0\x01\0\0\0\x17S\0\0\0\x04",
                b"P\0\0\0\x1cs1\0SELECT 'x', $1\0\0\0\0\0\0\0S\0\0\0\x04",
            ),
            (
                b"B\0\0\0\x17\0s1\0\0\0\0\x01\0\0\0\x06secret\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
                b"B\0\0\0\x17\0s1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04",
            ),
            (b"p\0\0\0\x0bsecret\0", b"p\0\0\0\x0b"),
            (
                b"E\0\0\0\x2bSERROR\0VERROR\0C42P01\0Mrelation secret\0\0Z\0\0\0\x05I",
                b"E\0\0\0\x2bSERROR\0VERROR\0C42P01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0Z\0\0\0\x05I",
            ),
            (b"D\0\0\0\x10\0\x01\0\0\0\x06secret", b"D\0\0\0\x10"),
            (b"d\0\0\0\x0bsecret\n", b"d\0\0\0\x0b"),
            (b"GET / HTTP/1.1\r\n", b""),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc", b""),
        ];
        for (payload, expected) in cases {
            let found = kept(payload);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(&found), text(expected));
        }
        let startup = b"\0\0\0\x1d\0\x03\0\0user\0secret\0a\0secret\0";
        assert_eq!(kept(&[&startup[..], b"\0"].concat()[..29]), b"\0\0\0\x1d\0\x03\0\0");
        for (payload, _) in cases {
            (0..payload.len()).for_each(|len| assert!(kept(&payload[..len]).len() <= len));
        }
    }
}
