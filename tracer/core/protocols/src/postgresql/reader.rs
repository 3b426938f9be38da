//! Reads the messages of one direction: what a request asks, and what its answer says.
//!
//! A request is a simple query (Query, FunctionCall), or the messages up to a Sync; the server ends each answer with
//! ReadyForQuery. Of all these messages only those are kept that begin, name or end something (`ordered::flag`).
//!
//! | messages | request | name |
//! |---|---|---|
//! | the first ones, up to the password | one, with all that follows up to ReadyForQuery | `STARTUP` |
//! | Query | one | the statement's shape |
//! | Parse, Bind, Execute, Sync | one | the shape; `(+2)` if it executes three statements |
//! | Bind, Execute, Sync | one | the shape of the statement that was parsed under that name |
//! | Parse, Sync | one | `PREPARE`, and the shape |
//! | CopyData, CopyDone, CopyFail, and a Sync after them | part of the one before | |
//! | CopyData of a replication stream, before anything else of its direction was read | none | [`REPLICATION`] |
//! | Terminate, CancelRequest, a Flush after a Sync | none | |
//!
//! What asks for a password is no answer yet: it asks for the rest of the STARTUP.
//!
//! A statement that was parsed before the capture began, or where it has a gap, is `EXECUTE (statement not captured)`.
//!
//! # Bounds
//! [`STATEMENTS_MAX`] shapes of each connection; a later statement is not known.
//!
//! Source: PostgreSQL, "Message Flow" (simple query, extended query, pipelining, COPY operations).

use std::collections::HashMap;

use crate::ordered::{Row, flag};
use crate::protocol::FrameReader;
use crate::results::{DUE, SAYS_NOTHING, SUCCESS};
use crate::sql::{Dialect, Shape, shape};

use super::messages::{First, HEADER_LEN, Side, first_message, message_len, replication_side, side_of};
use super::sqlstate;

/// Shapes of statements of one connection.
const STATEMENTS_MAX: usize = 1024;
/// Longest name of a statement.
const NAME_MAX_LEN: usize = 256;
/// The name of a statement that was not seen.
const UNSEEN: &str = "(statement not captured)";
/// What a direction is of whose first message is a replication stream's.
pub const REPLICATION: &str = "replication";

#[derive(Clone, Debug)]
pub struct Messages {
    side: Option<Side>,
    /// Messages may be missing before the next one.
    is_after_gap: bool,
    client: Client,
    server: Server,
}

#[derive(Clone, Debug, Default)]
struct Client {
    statements: HashMap<Box<[u8]>, Shape>,
    /// The request whose Sync has not come.
    open: Option<Request>,
    /// Data of a COPY have come since the last request.
    is_copying: bool,
}

/// A request of several messages.
#[derive(Clone, Debug, Default)]
struct Request {
    parsed: Option<Shape>,
    /// The first statement that it executes; without a verb if that is not known.
    executed: Option<Shape>,
    executed_count: u32,
    /// What its first row was named.
    named: Shape,
}

#[derive(Clone, Debug)]
struct Server {
    is_answering: bool,
    result: i32,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            side: None,
            is_after_gap: true,
            client: Client::default(),
            server: Server {
                is_answering: false,
                result: SUCCESS,
            },
        }
    }
}

impl FrameReader for Messages {
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>) {
        if frame.first() == Some(&0) && first_message(frame) == Some(First::Startup) {
            *self = Self {
                is_after_gap: false,
                ..Self::default()
            };
        }
        let is_copy_data = frame.first() == Some(&b'd');
        if is_copy_data && self.side == Some(Side::Server) && !self.is_after_gap {
            return;
        }
        self.side = self.side.or_else(|| side_of(frame));
        let row = match self.side {
            _ if is_copy_data && self.is_after_gap && is_replication(frame) => {
                Some((row(flag::ASIDE, SAYS_NOTHING), words(REPLICATION, "")))
            }
            Some(Side::Server) if is_copy_data => None,
            Some(Side::Client) => self.client.read(frame),
            Some(Side::Server) => self.server.read(frame),
            None => None,
        };
        if let Some((mut row, shape)) = row {
            row.flags |= if std::mem::take(&mut self.is_after_gap) {
                flag::GAP
            } else {
                0
            };
            (row.verb, row.rest) = (&shape.verb, &shape.rest);
            row.say(said);
        }
    }

    fn lose(&mut self) {
        self.is_after_gap = true;
        self.client.open = None;
        self.client.is_copying = false;
        self.server.is_answering = false;
        self.server.result = DUE;
    }

    fn boxed_clone(&self) -> Box<dyn FrameReader> {
        Box::new(self.clone())
    }
}

/// A row, and what it names.
type NamedRow = (Row<'static>, Shape);

fn row(flags: u8, result_code: i32) -> Row<'static> {
    Row {
        flags,
        result_code,
        stream: -1,
        verb: &[],
        rest: &[],
    }
}

fn words(verb: &str, rest: &str) -> Shape {
    Shape {
        verb: verb.into(),
        rest: rest.into(),
    }
}

impl Client {
    #[inline]
    fn read(&mut self, frame: &[u8]) -> Option<NamedRow> {
        let (header, body) = frame.split_first_chunk::<HEADER_LEN>()?;
        let is_whole = message_len(header).is_some_and(|len| len as usize == frame.len());
        match header[0] {
            b'd' | b'c' | b'f' => {
                self.is_copying = self.open.is_none();
                return None;
            }
            b'p' => return None,
            b'X' => return Some((row(flag::ASIDE, SAYS_NOTHING), Shape::default())),
            b'S' if self.is_copying && self.open.is_none() => {
                self.is_copying = false;
                return None;
            }
            _ => self.is_copying = false,
        }
        match header[0] {
            0 => self.first(frame),
            b'Q' => self.alone(statement_shape(body, is_whole)),
            b'F' => self.alone(words("FUNCTION", "CALL")),
            b'P' => self.parse(body, is_whole),
            b'B' => self.bind(body),
            b'E' => self.execute(),
            b'C' => self.within(words("CLOSE", "")),
            b'D' => self.within(words("DESCRIBE", "")),
            b'H' if self.open.is_none() => Some((row(flag::ASIDE, SAYS_NOTHING), Shape::default())),
            b'S' => self.sync(),
            _ => None,
        }
    }

    fn first(&self, frame: &[u8]) -> Option<NamedRow> {
        match first_message(frame)? {
            First::Startup => Some((row(flag::REQUEST, SAYS_NOTHING), words("STARTUP", ""))),
            First::Cancel => Some((row(flag::ASIDE, SAYS_NOTHING), Shape::default())),
            First::Encryption => None,
        }
    }

    /// A request of one message.
    fn alone(&mut self, name: Shape) -> Option<NamedRow> {
        self.open = None;
        Some((row(flag::REQUEST, SAYS_NOTHING), name))
    }

    /// A message of a request, which begins one if none is open; `name` is what it is named then.
    fn within(&mut self, name: Shape) -> Option<NamedRow> {
        if self.open.is_some() {
            return None;
        }
        let named = name.clone();
        self.open = Some(Request {
            named,
            ..Request::default()
        });
        Some((row(flag::REQUEST, SAYS_NOTHING), name))
    }

    fn parse(&mut self, body: &[u8], is_whole: bool) -> Option<NamedRow> {
        let (name, text) = split_text(body)?;
        let shape = statement_shape(text, is_whole);
        if name.len() <= NAME_MAX_LEN && (self.statements.len() < STATEMENTS_MAX || self.statements.contains_key(name))
        {
            self.statements.insert(name.into(), shape.clone());
        }
        let said = self.within(shape.clone());
        let request = self.open.get_or_insert_default();
        request.parsed.get_or_insert(shape);
        said
    }

    fn bind(&mut self, body: &[u8]) -> Option<NamedRow> {
        let shape = split_text(body).and_then(|(_, rest)| Some(self.statements.get(split_text(rest)?.0)?.clone()));
        let shape = shape.unwrap_or_else(|| words("EXECUTE", UNSEEN));
        let said = self.within(shape.clone());
        let request = self.open.get_or_insert_default();
        request.executed.get_or_insert(shape);
        request.executed_count += 1;
        said
    }

    fn execute(&mut self) -> Option<NamedRow> {
        let said = self.within(words("EXECUTE", UNSEEN));
        let request = self.open.get_or_insert_default();
        if request.executed.is_none() {
            request.executed = Some(request.named.clone());
            request.executed_count = 1;
        }
        said
    }

    /// The end of a request; names it anew if its first message did not say what it is.
    fn sync(&mut self) -> Option<NamedRow> {
        let Some(request) = self.open.take() else {
            return self.alone(words("SYNC", ""));
        };
        let named = request.named.clone();
        let name = request.name();
        (name != named).then(|| (row(flag::NAME, SAYS_NOTHING), name))
    }
}

impl Request {
    fn name(self) -> Shape {
        match (self.executed, self.parsed) {
            (Some(mut first), _) => {
                if self.executed_count > 1 {
                    let more = format!(" (+{})", self.executed_count - 1);
                    first.rest.extend_from_slice(more.as_bytes());
                }
                first
            }
            (None, Some(parsed)) => Shape {
                verb: b"PREPARE".into(),
                rest: [&parsed.verb[..], b" ", &parsed.rest[..]].concat(),
            },
            (None, None) => self.named,
        }
    }
}

impl Server {
    #[inline]
    fn read(&mut self, frame: &[u8]) -> Option<NamedRow> {
        let (header, body) = frame.split_first_chunk::<HEADER_LEN>()?;
        let is_first = !self.is_answering;
        let begins = if is_first { flag::ANSWER } else { 0 };
        let said = match header[0] {
            b'N' | b'S' | b'A' if is_first => return None,
            b'R' if is_first && asks_for_proof(body) => {
                return Some((row(flag::CONTINUE, SAYS_NOTHING), Shape::default()));
            }
            b'E' => {
                let error = sqlstate::of_error(body);
                self.result = if self.result > SUCCESS { self.result } else { error.code };
                let ends = if error.is_fatal { flag::END } else { 0 };
                row(begins | ends, error.code)
            }
            b'Z' => row(begins | flag::END, self.result),
            // With these an answer begins, so nothing of it is missing; with others (after a gap) an error may be.
            b'R' | b'1' | b'2' | b'3' | b'T' | b'G' | b'H' | b'W' if is_first => {
                self.result = SUCCESS;
                row(begins, SAYS_NOTHING)
            }
            _ if is_first => row(begins, SAYS_NOTHING),
            _ => return None,
        };
        self.is_answering = said.flags & flag::END == 0;
        if said.flags & flag::END != 0 {
            self.result = SUCCESS;
        }
        Some((said, Shape::default()))
    }
}

/// Whether an Authentication message asks for what proves who logs in; it says that it is proven (0), what the server
/// proves itself by (12), or asks.
fn asks_for_proof(body: &[u8]) -> bool {
    body.first_chunk()
        .is_some_and(|&kind| !matches!(u32::from_be_bytes(kind), 0 | 12))
}

/// Whether CopyData is of a replication stream.
fn is_replication(frame: &[u8]) -> bool {
    replication_side(frame.get(HEADER_LEN..).unwrap_or(&[])).is_some()
}

/// The text before a zero, and the bytes after it.
fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The shape of the statement that a message holds, up to its zero.
fn statement_shape(body: &[u8], is_whole: bool) -> Shape {
    let text = split_text(body).map(|(text, _)| text);
    let found = shape(text.unwrap_or(body), is_whole && text.is_some(), Dialect::PostgreSql);
    if found.verb.is_empty() && found.rest.is_empty() {
        return words("QUERY", "(empty)");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, messages, and what they say.
    type Case<'a, T> = (&'a str, Vec<Vec<u8>>, &'a [T]);

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &len, body].concat()
    }

    fn startup(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], &[0, 3, 0, 0], body].concat()
    }

    fn query(text: &str) -> Vec<u8> {
        message(b'Q', format!("{text}\0").as_bytes())
    }

    fn parse(name: &str, text: &str) -> Vec<u8> {
        message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
    }

    fn bind(name: &str) -> Vec<u8> {
        message(b'B', format!("\0{name}\0\0\0\0\x01\0\0\0\x06S3cr3t\0\0").as_bytes())
    }

    fn error(severity: &str, code: &str) -> Vec<u8> {
        message(
            b'E',
            format!("S{severity}\0V{severity}\0C{code}\0MS3cr3t\0\0").as_bytes(),
        )
    }

    const SYNC: &[u8] = b"S\0\0\0\x04";
    const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
    const READY: &[u8] = b"Z\0\0\0\x05I";

    /// What a reader says of these messages: number, flags, result code, name.
    fn rows(reader: &mut Messages, messages: &[Vec<u8>]) -> Vec<(usize, u8, i32, String)> {
        let mut found = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            let mut said = Vec::new();
            reader.read(message, &mut said);
            if let Some(row) = Row::parse(&said) {
                let name = [row.verb, b" ", row.rest].concat();
                let name = String::from_utf8(name).expect("a name of UTF-8");
                assert!(!name.contains("S3cr3t"), "{name}");
                found.push((number, row.flags & !flag::GAP, row.result_code, name.trim().to_owned()));
            }
        }
        found
    }

    /// The requests of a client, by name.
    fn requests(reader: &mut Messages, messages: &[Vec<u8>]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (_, flags, _, name) in rows(reader, messages) {
            if flags & flag::NAME != 0 {
                *names.last_mut().expect("a request to name") = name;
            } else if flags & flag::REQUEST != 0 {
                names.push(name);
            }
        }
        names
    }

    #[test]
    fn a_request_is_a_query_or_what_ends_with_a_sync() {
        let copy_data = message(b'd', b"1\tS3cr3t\n");
        let cases: &[Case<'_, &str>] = &[
            (
                "simple",
                vec![query("select 'S3cr3t'"), query("begin"), query("")],
                &["SELECT ?", "BEGIN", "QUERY (empty)"],
            ),
            (
                "opening",
                vec![
                    startup(b"user\0u\0\0"),
                    message(b'p', b"S3cr3t\0"),
                    query("select 1"),
                    message(b'X', b""),
                ],
                &["STARTUP", "SELECT ?"],
            ),
            (
                "extended",
                vec![
                    parse("", "select a from t where b = $1"),
                    bind(""),
                    EXECUTE.into(),
                    SYNC.into(),
                ],
                &["SELECT a FROM t WHERE b = ?"],
            ),
            (
                "prepared",
                vec![
                    parse("s1", "delete from t where a = 5"),
                    SYNC.into(),
                    bind("s1"),
                    EXECUTE.into(),
                    SYNC.into(),
                ],
                &["PREPARE DELETE FROM t WHERE a = ?", "DELETE FROM t WHERE a = ?"],
            ),
            (
                "prepared before the capture",
                vec![bind("s7"), EXECUTE.into(), SYNC.into()],
                &["EXECUTE (statement not captured)"],
            ),
            (
                "three in one",
                (0..3)
                    .flat_map(|_| [parse("", "select 1"), bind(""), EXECUTE.into()])
                    .chain([SYNC.into()])
                    .collect(),
                &["SELECT ? (+2)"],
            ),
            (
                "closed before it is parsed anew",
                vec![
                    message(b'C', b"Ss1\0"),
                    parse("s1", "select a from t"),
                    bind("s1"),
                    EXECUTE.into(),
                    SYNC.into(),
                ],
                &["SELECT a FROM t"],
            ),
            (
                "copied in by the simple protocol",
                vec![
                    query("copy t from stdin"),
                    copy_data.clone(),
                    message(b'c', b""),
                    query("select 1"),
                ],
                &["COPY t FROM stdin", "SELECT ?"],
            ),
            (
                "copied in by the extended protocol, with a Sync on each side of the data",
                vec![
                    parse("", "copy t from stdin"),
                    bind(""),
                    EXECUTE.into(),
                    SYNC.into(),
                    copy_data,
                    message(b'c', b""),
                    SYNC.into(),
                    query("select 1"),
                ],
                &["COPY t FROM stdin", "SELECT ?"],
            ),
            (
                "a Sync alone, and a Flush after it",
                vec![SYNC.into(), message(b'H', b"")],
                &["SYNC"],
            ),
        ];
        for (name, messages, expected) in cases {
            let mut reader = Messages {
                side: Some(Side::Client),
                ..Messages::default()
            };
            assert_eq!(requests(&mut reader, messages), *expected, "{name}");
        }
    }

    #[test]
    fn an_answer_ends_when_its_server_is_ready_and_shows_its_error() {
        let (answer, end, aside) = (flag::ANSWER, flag::END, SAYS_NOTHING);
        let denied = sqlstate::pack(b"42501").expect("a code");
        let cases: &[Case<'_, (usize, u8, i32)>] = &[
            (
                "rows",
                vec![
                    message(b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0"),
                    message(b'D', b"\0\x01\0\0\0\x01S3cr3t"),
                    message(b'C', b"SELECT 1\0"),
                    READY.into(),
                ],
                &[(0, answer, aside), (3, end, 0)],
            ),
            (
                "an error, and the next answer without one",
                vec![
                    error("ERROR", "42501"),
                    READY.into(),
                    message(b'C', b"BEGIN\0"),
                    READY.into(),
                ],
                &[(0, answer, denied), (1, end, denied), (2, answer, aside), (3, end, 0)],
            ),
            (
                "a password is asked for, in two steps, and proven",
                vec![
                    message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"),
                    message(b'R', b"\0\0\0\x0br=S3cr3t,s=S3cr3t,i=4096"),
                    message(b'R', b"\0\0\0\x0cv=S3cr3t"),
                    message(b'R', b"\0\0\0\0"),
                    message(b'S', b"TimeZone\0UTC\0"),
                    READY.into(),
                ],
                &[
                    (0, flag::CONTINUE, aside),
                    (1, flag::CONTINUE, aside),
                    (2, answer, aside),
                    (5, end, 0),
                ],
            ),
            (
                "a password is wrong",
                vec![message(b'R', b"\0\0\0\x03"), error("FATAL", "42501")],
                &[(0, flag::CONTINUE, aside), (1, answer | end, denied)],
            ),
            (
                "a fatal error ends it",
                vec![error("FATAL", "42501")],
                &[(0, answer | end, denied)],
            ),
            (
                "what a server sends unasked begins none",
                vec![
                    message(b'A', b"\0\0\0\x01jobs\0S3cr3t\0"),
                    message(b'S', b"TimeZone\0UTC\0"),
                    message(b'I', b""),
                ],
                &[(2, answer, aside)],
            ),
        ];
        for (name, messages, expected) in cases {
            let mut reader = Messages {
                side: Some(Side::Server),
                ..Messages::default()
            };
            let found: Vec<_> = rows(&mut reader, messages)
                .into_iter()
                .map(|row| (row.0, row.1, row.2))
                .collect();
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn after_a_gap_nothing_is_guessed() {
        let mut client = Messages {
            side: Some(Side::Client),
            ..Messages::default()
        };
        assert_eq!(
            requests(&mut client, &[parse("", "select a from t")]),
            ["SELECT a FROM t"]
        );
        client.lose();
        assert_eq!(requests(&mut client, &[query("select 1")]), ["SELECT ?"]);
        let mut server = Messages {
            side: Some(Side::Server),
            ..Messages::default()
        };
        rows(&mut server, &[message(b'T', b"\0\x01a\0")]);
        server.lose();
        let row = message(b'D', b"\0\x01\0\0\0\x01x");
        let found = rows(&mut server, &[row, READY.into()]);
        assert_eq!((found[0].1, found[1].1, found[1].2), (flag::ANSWER, flag::END, DUE));
        let again = rows(&mut server, &[message(b'T', b"\0\x01a\0"), READY.into()]);
        assert_eq!(again[1].2, SUCCESS);
    }

    #[test]
    fn what_begins_within_a_replication_stream_says_so_once() {
        let wal = message(
            b'd',
            &[b"w\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\x08\0\x03\x04\x5f\xb6\0\0\0S3cr3t".as_slice()].concat(),
        );
        let status = message(b'd', &[&b"r"[..], &[0; 33]].concat());
        let keepalive = message(b'd', &[&b"k"[..], &[0; 17]].concat());
        let feedback = message(b'd', &[&b"h"[..], &[0; 24]].concat());
        let text = message(b'd', b"rows of a table, as a COPY sends them\n");
        let aside = |number| vec![(number, flag::ASIDE, SAYS_NOTHING, REPLICATION.to_owned())];
        let cases = [
            (
                "a server's",
                vec![wal.clone(), wal.clone(), keepalive.clone()],
                aside(0),
            ),
            ("a standby's", vec![status.clone(), feedback.clone(), status], aside(0)),
            ("a standby's, of its snapshots first", vec![feedback], aside(0)),
            ("a keepalive first", vec![keepalive, wal], aside(0)),
            ("rows of a COPY", vec![text], vec![]),
        ];
        for (name, messages, expected) in cases {
            assert_eq!(rows(&mut Messages::default(), &messages), expected, "{name}");
        }
    }

    #[test]
    fn messages_cut_anywhere_show_no_value_and_a_name_is_bounded() {
        let long = query(&format!(
            "select {} from t where a = 'S3cr3t'",
            "column_name, ".repeat(200)
        ));
        let all = [
            startup(b"user\0u\0\0"),
            query("select 'S3cr3t' from t"),
            parse("s1", "select E'\\'S3cr3t'"),
            bind("s1"),
            long,
        ];
        for message in &all {
            for len in HEADER_LEN..=message.len() {
                let mut reader = Messages::default();
                let mut said = Vec::new();
                reader.read(&message[..len], &mut said);
                assert!(!said.windows(6).any(|window| window == b"S3cr3t") && said.len() < 1024);
            }
        }
    }

    #[test]
    fn statements_are_bounded() {
        let mut reader = Messages::default();
        for number in 0..2 * STATEMENTS_MAX {
            rows(&mut reader, &[parse(&number.to_string(), "select 1"), SYNC.into()]);
        }
        assert_eq!(reader.client.statements.len(), STATEMENTS_MAX);
        assert_eq!(requests(&mut reader, &[bind("0"), SYNC.into()]), ["SELECT ?"]);
        assert_eq!(
            requests(&mut reader, &[bind("2000"), SYNC.into()]),
            ["EXECUTE (statement not captured)"]
        );
    }
}
