//! Reads the packets of one direction: what a client commands, and what its server answers.
//!
//! | command | request | name |
//! |---|---|---|
//! | the answer to the greeting | one, up to the server's OK | `LOGIN` |
//! | COM_QUERY | one | the statement's shape |
//! | COM_STMT_PREPARE | one | `PREPARE`, and the shape |
//! | COM_STMT_EXECUTE | one | the shape, where the answer to its PREPARE was seen (`ordered::flag::STATEMENT`) |
//! | COM_PING, COM_INIT_DB, … | one | `PING`, `USE`, … |
//! | COM_QUIT, COM_STMT_CLOSE, COM_STMT_SEND_LONG_DATA | none, since they have no answer | |
//!
//! An answer begins with packet number 1, or with the one after that if the server first asks for the rest of a request:
//! for another proof of who logs in (to LOGIN and CHANGE USER), or for a file. An answer is an OK or an error, or a
//! number of columns, their descriptions, and rows up to an EOF or OK packet; if that says that more results follow,
//! another begins. So it is followed without knowing the command. An intermediate EOF after the descriptions is known by its length and place.
//!
//! Limits: of compressed connections nothing is read. Answers of other forms (statistics, a replica's events, fetched
//! rows) end with the last packet that looks like an end.
//!
//! Source: MySQL, "Command Phase"; MariaDB, "Clients & Utilities: Protocol".

use crate::ordered::{Row, flag};
use crate::protocol::FrameReader;
use crate::results::{SAYS_NOTHING, SUCCESS};
use crate::sql::{Dialect, Shape, shape};

use super::packets::{EOF, EOF_LEN, ERR, FULL_LEN, LOGIN_FIXED_LEN, OK, PROGRESS, Packet, capability, command, status};

const UNSEEN: &str = "(statement not captured)";
/// What a client puts before the text if it may send attributes of a query: none of them, in one set.
const NO_ATTRIBUTES: [u8; 2] = [0, 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

#[derive(Clone, Debug)]
pub struct Messages {
    side: Option<Side>,
    /// Packets may be missing before the next one.
    is_after_gap: bool,
    /// What follows is compressed or encrypted.
    is_hidden: bool,
    server: Server,
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            side: None,
            is_after_gap: true,
            is_hidden: false,
            server: Server::default(),
        }
    }
}

/// A row, what it names, and the statement of which it says something.
#[derive(Clone, Debug)]
struct NamedRow {
    flags: u8,
    result_code: i32,
    name: Shape,
    statement: i64,
}

impl NamedRow {
    fn new(flags: u8, result_code: i32) -> Self {
        Self {
            flags,
            result_code,
            name: Shape::default(),
            statement: -1,
        }
    }

    fn request(verb: &str, rest: &[u8]) -> Self {
        let name = Shape {
            verb: verb.into(),
            rest: rest.into(),
        };
        Self {
            name,
            ..Self::new(flag::REQUEST, SAYS_NOTHING)
        }
    }
}

impl FrameReader for Messages {
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>) {
        let Some(packet) = Packet::parse(frame) else { return };
        let is_login = self.side != Some(Side::Server) && packet.login_capabilities().is_some();
        if packet.is_greeting() || is_login {
            *self = Self {
                is_after_gap: false,
                ..Self::default()
            };
        }
        let side = *self.side.get_or_insert_with(|| match packet.number {
            0 if !packet.is_greeting() => Side::Client,
            _ if is_login => Side::Client,
            _ => Side::Server,
        });
        let row = match side {
            _ if self.is_hidden => None,
            Side::Client => self.read_client(&packet),
            Side::Server => self.server.read(&packet),
        };
        if let Some(row) = row {
            let gap = if std::mem::take(&mut self.is_after_gap) {
                flag::GAP
            } else {
                0
            };
            let row = Row {
                flags: row.flags | gap,
                result_code: row.result_code,
                stream: row.statement,
                verb: &row.name.verb,
                rest: &row.name.rest,
            };
            row.say(said);
        }
    }

    fn lose(&mut self) {
        self.is_after_gap = true;
        self.server.state = State::Between;
        self.server.has_asked = false;
    }

    fn boxed_clone(&self) -> Box<dyn FrameReader> {
        Box::new(self.clone())
    }
}

impl Messages {
    fn read_client(&mut self, packet: &Packet<'_>) -> Option<NamedRow> {
        if let Some(capabilities) = packet.login_capabilities() {
            let hides = capability::COMPRESS | capability::COMPRESS_ZSTD;
            let asks_tls = capabilities & capability::SSL != 0 && packet.len == LOGIN_FIXED_LEN;
            self.is_hidden = asks_tls || capabilities & hides != 0;
            return (!self.is_hidden).then(|| NamedRow::request("LOGIN", b""));
        }
        if packet.number != 0 {
            return None; // a long command, a file, or a password
        }
        command_row(packet)
    }
}

fn command_row(packet: &Packet<'_>) -> Option<NamedRow> {
    let (&kind, rest) = packet.body.split_first()?;
    let is_whole = packet.body.len() == packet.len && packet.len < FULL_LEN;
    let request = |verb: &str| Some(NamedRow::request(verb, b""));
    match kind {
        command::QUIT | command::CLOSE | command::SEND_LONG_DATA => Some(NamedRow::new(flag::ASIDE, SAYS_NOTHING)),
        command::INIT_DB => Some(NamedRow::request("USE", &rest[..rest.len().min(64)])),
        command::QUERY => {
            let text = rest.strip_prefix(&NO_ATTRIBUTES).unwrap_or(rest);
            let name = statement_shape(text, is_whole);
            Some(NamedRow {
                name,
                ..NamedRow::new(flag::REQUEST, SAYS_NOTHING)
            })
        }
        command::PREPARE => {
            let name = statement_shape(rest, is_whole);
            Some(NamedRow {
                name,
                ..NamedRow::new(flag::REQUEST | flag::STATEMENT, SAYS_NOTHING)
            })
        }
        command::EXECUTE | command::BULK_EXECUTE => {
            let row = NamedRow::request("EXECUTE", UNSEEN.as_bytes());
            let statement = rest.first_chunk().map_or(-1, |id| u32::from_le_bytes(*id).into());
            Some(NamedRow { statement, ..row })
        }
        command::FETCH => request("FETCH"),
        command::PING => request("PING"),
        command::FIELD_LIST => request("FIELD LIST"),
        command::STATISTICS => request("STATISTICS"),
        command::CHANGE_USER => request("CHANGE USER"),
        command::BINLOG_DUMP | command::BINLOG_DUMP_GTID => request("BINLOG DUMP"),
        command::RESET => request("RESET STATEMENT"),
        command::SET_OPTION => request("SET OPTION"),
        command::REGISTER_REPLICA => request("REGISTER REPLICA"),
        command::RESET_CONNECTION => request("RESET CONNECTION"),
        _ => request("COMMAND"),
    }
}

fn statement_shape(text: &[u8], is_whole: bool) -> Shape {
    let found = shape(text, is_whole, Dialect::MySql);
    if found.verb.is_empty() && found.rest.is_empty() {
        return Shape {
            verb: b"QUERY".into(),
            rest: b"(empty)".into(),
        };
    }
    found
}

/// Where in an answer the next packet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No answer is under way, as far as is known.
    #[default]
    Between,
    /// The first packet of a result.
    Result,
    /// Descriptions of columns.
    Columns(u64),
    /// Perhaps an EOF after them, and rows.
    Rows { is_first: bool },
    /// Descriptions of what a prepared statement has.
    Prepared(u32),
}

#[derive(Clone, Debug, Default)]
struct Server {
    state: State,
    last_number: u8,
    /// It has asked for the rest of the request.
    has_asked: bool,
}

impl Server {
    #[inline]
    fn read(&mut self, packet: &Packet<'_>) -> Option<NamedRow> {
        let last_number = std::mem::replace(&mut self.last_number, packet.number);
        if packet.is_greeting() {
            self.state = State::Result; // of the login
            return None;
        }
        let goes_on = self.state != State::Between && last_number == 0 && packet.number == 1; // numbers begin anew
        let is_login = self.state == State::Result && last_number == 0 && (2..=3).contains(&packet.number);
        let begins = (packet.number == 1 && !goes_on) || is_login || std::mem::take(&mut self.has_asked);
        if begins {
            self.state = State::Result;
            self.has_asked = packet.asks_for_more();
            if self.has_asked {
                return Some(NamedRow::new(flag::CONTINUE, SAYS_NOTHING));
            }
        }
        let begins = if begins { flag::ANSWER } else { 0 };
        let row = match self.state {
            State::Result => self.read_result(packet),
            State::Columns(left) => {
                let is_last = left <= 1;
                self.state = if is_last {
                    State::Rows { is_first: true }
                } else {
                    State::Columns(left - 1)
                };
                None
            }
            State::Prepared(left) => {
                self.state = if left <= 1 {
                    State::Between
                } else {
                    State::Prepared(left - 1)
                };
                (left <= 1).then(|| NamedRow::new(flag::END, SUCCESS))
            }
            State::Rows { .. } | State::Between => self.read_row(packet),
        };
        match row {
            Some(row) => Some(NamedRow {
                flags: row.flags | begins,
                ..row
            }),
            None if begins != 0 => Some(NamedRow::new(begins, SAYS_NOTHING)),
            None => None,
        }
    }

    /// The first packet of a result.
    fn read_result(&mut self, packet: &Packet<'_>) -> Option<NamedRow> {
        if let Some(prepared) = packet.statement_parts() {
            let parts = [prepared.parameters, prepared.columns].map(u32::from);
            let left: u32 = parts.iter().sum();
            self.state = if left > 0 {
                State::Prepared(left)
            } else {
                State::Between
            };
            let ends = if left > 0 {
                flag::STATEMENT
            } else {
                flag::STATEMENT | flag::END
            };
            let row = NamedRow::new(ends, SUCCESS);
            return Some(NamedRow {
                statement: prepared.statement.into(),
                ..row
            });
        }
        match packet.first() {
            Some(ERR) => self.end_with_error(packet),
            Some(OK) => self.end(packet.status()),
            Some(EOF) if packet.len <= EOF_LEN => self.end(packet.status()),
            Some(1) if packet.columns().is_none() => None, // a proof is enough, which the next packet says, too
            _ => match packet.columns() {
                Some((count, true)) => {
                    self.state = State::Columns(count);
                    None
                }
                Some((_, false)) => {
                    self.state = State::Rows { is_first: true };
                    None
                }
                None => self.end(0),
            },
        }
    }

    /// A row, or what ends the rows.
    fn read_row(&mut self, packet: &Packet<'_>) -> Option<NamedRow> {
        let is_first = self.state == State::Rows { is_first: true };
        if self.state != State::Between {
            self.state = State::Rows { is_first: false };
        }
        match packet.first() {
            Some(ERR) => self.end_with_error(packet),
            Some(EOF) if is_first && packet.len <= EOF_LEN && packet.status() & status::CURSOR == 0 => None,
            Some(EOF) if packet.len < FULL_LEN => self.end(packet.status()),
            _ => None,
        }
    }

    /// The end of a result, and of the answer unless more results follow.
    fn end(&mut self, status: u16) -> Option<NamedRow> {
        if status & status::MORE_RESULTS != 0 {
            self.state = State::Result;
            return None;
        }
        self.state = State::Between;
        Some(NamedRow::new(flag::END, SUCCESS))
    }

    fn end_with_error(&mut self, packet: &Packet<'_>) -> Option<NamedRow> {
        let code = packet.error().filter(|code| *code != PROGRESS)?;
        self.state = State::Between;
        Some(NamedRow::new(flag::END, code.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, packets, and what they say.
    type Case<'a, T> = (&'a str, Vec<Vec<u8>>, &'a [T]);

    fn packet(number: u8, body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32).to_le_bytes()[..3], &[number], body].concat()
    }

    fn said_of(kind: u8, text: &str) -> Vec<u8> {
        packet(0, &[&[kind], text.as_bytes()].concat())
    }

    fn query(text: &str) -> Vec<u8> {
        said_of(command::QUERY, text)
    }

    fn login(capabilities: u32, more: &[u8]) -> Vec<u8> {
        let fixed = [&capabilities.to_le_bytes()[..], &[0, 0, 0, 1, 45], &[0; 23]].concat();
        packet(1, &[&fixed, more].concat())
    }

    const PLAIN: u32 = capability::PROTOCOL_41;
    const AUTH_SWITCH: &[u8] = b"\xfemysql_native_password\0S3cr3t";
    const EOF_BODY: &[u8] = &[EOF, 0, 0, 2, 0];
    const DEF: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";

    /// What a reader says of these packets: number, flags, result code, statement, name.
    fn rows(reader: &mut Messages, packets: &[Vec<u8>]) -> Vec<(usize, u8, i32, i64, String)> {
        let mut found = Vec::new();
        for (number, packet) in packets.iter().enumerate() {
            let mut said = Vec::new();
            reader.read(packet, &mut said);
            if let Some(row) = Row::parse(&said) {
                let name = String::from_utf8([row.verb, b" ", row.rest].concat()).expect("a name of UTF-8");
                assert!(!name.contains("S3cr3t"), "{name}");
                let flags = row.flags & !flag::GAP;
                found.push((number, flags, row.result_code, row.stream, name.trim().to_owned()));
            }
        }
        found
    }

    #[test]
    fn each_command_that_is_answered_is_a_request() {
        let cases: &[Case<'_, &str>] = &[
            (
                "a session",
                vec![
                    login(PLAIN, b"S3cr3t\0\x14S3cr3t"),
                    query("select a from t where b = \"S3cr3t\""),
                    packet(0, &[command::PING]),
                    said_of(command::INIT_DB, "shop"),
                    packet(0, &[command::QUIT]),
                ],
                &["LOGIN", "SELECT a FROM t WHERE b = ?", "PING", "USE shop"],
            ),
            ("with TLS", vec![login(PLAIN | capability::SSL, b"")], &[]),
            (
                "compressed",
                vec![login(PLAIN | capability::COMPRESS, b"u\0"), query("select 1")],
                &[],
            ),
            (
                "statements",
                vec![
                    said_of(command::PREPARE, "select a from t where b = ?"),
                    packet(0, &[command::EXECUTE, 9, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
                    packet(0, &[command::SEND_LONG_DATA, 9, 0, 0, 0, 0, 0, b'S']),
                    packet(0, &[command::CLOSE, 9, 0, 0, 0]),
                ],
                &["SELECT a FROM t WHERE b = ?", "EXECUTE (statement not captured)"],
            ),
            (
                "attributes of a query",
                vec![packet(0, b"\x03\0\x01select 1")],
                &["SELECT ?"],
            ),
            ("nothing", vec![query("")], &["QUERY (empty)"]),
        ];
        for (name, packets, expected) in cases {
            let mut reader = Messages {
                side: Some(Side::Client),
                ..Messages::default()
            };
            let found = rows(&mut reader, packets)
                .into_iter()
                .filter(|row| row.1 & flag::REQUEST != 0);
            assert_eq!(found.map(|row| row.4).collect::<Vec<_>>(), *expected, "{name}");
        }
    }

    #[test]
    fn an_answer_is_followed_to_its_end() {
        let (answer, end, open, go_on) = (flag::ANSWER, flag::END, SAYS_NOTHING, flag::CONTINUE);
        let ok = |number| packet(number, &[OK, 0, 0, 2, 0, 0, 0]);
        let error = packet(1, b"\xff\x7a\x04#42S02Table 'S3cr3t'");
        let row = |number| packet(number, b"\x06S3cr3t");
        let more = &[EOF, 0, 0, 10, 0][..];
        let cases: &[Case<'_, (usize, u8, i32)>] = &[
            ("OK", vec![ok(1)], &[(0, answer | end, 0)]),
            (
                "an error, then OK",
                vec![error, ok(1)],
                &[(0, answer | end, 1146), (1, answer | end, 0)],
            ),
            (
                "rows with two EOFs",
                vec![
                    packet(1, &[1]),
                    packet(2, DEF),
                    packet(3, EOF_BODY),
                    row(4),
                    packet(5, EOF_BODY),
                ],
                &[(0, answer, open), (4, end, 0)],
            ),
            (
                "rows with one OK packet",
                vec![
                    packet(1, &[1]),
                    packet(2, DEF),
                    row(3),
                    packet(4, &[EOF, 0, 0, 2, 0, 0, 0]),
                ],
                &[(0, answer, open), (3, end, 0)],
            ),
            (
                "an error among rows",
                vec![
                    packet(1, &[1]),
                    packet(2, DEF),
                    packet(3, EOF_BODY),
                    row(4),
                    packet(5, b"\xff\x25\x05#70100"),
                ],
                &[(0, answer, open), (4, end, 1317)],
            ),
            (
                "two results",
                vec![
                    packet(1, &[1]),
                    packet(2, DEF),
                    packet(3, EOF_BODY),
                    packet(4, more),
                    ok(5),
                ],
                &[(0, answer, open), (4, end, 0)],
            ),
            (
                "a file is asked for",
                vec![packet(1, b"\xfb/S3cr3t"), ok(4)],
                &[(0, go_on, open), (1, answer | end, 0)],
            ),
            (
                "another proof is asked for",
                vec![packet(1, AUTH_SWITCH), ok(3)],
                &[(0, go_on, open), (1, answer | end, 0)],
            ),
            (
                "another proof is asked for, and its text is not captured",
                vec![packet(1, AUTH_SWITCH)[..5].to_vec(), ok(3)],
                &[(0, go_on, open), (1, answer | end, 0)],
            ),
            (
                "another, then a whole one",
                vec![packet(1, AUTH_SWITCH), packet(3, &[1, 4]), ok(5), ok(1)],
                &[
                    (0, go_on, open),
                    (1, go_on, open),
                    (2, answer | end, 0),
                    (3, answer | end, 0),
                ],
            ),
            (
                "a proof is enough",
                vec![packet(1, &[1, 3]), ok(2)],
                &[(0, answer, open), (1, end, 0)],
            ),
            (
                "another proof is refused",
                vec![packet(1, AUTH_SWITCH), packet(3, b"\xff\x15\x04#28000S3cr3t")],
                &[(0, go_on, open), (1, answer | end, 1045)],
            ),
            (
                "a prepared statement",
                vec![
                    packet(1, b"\0\x09\0\0\0\x01\0\x01\0\0\0\0"),
                    packet(2, DEF),
                    packet(3, DEF),
                ],
                &[(0, answer | flag::STATEMENT, 0), (2, end, 0)],
            ),
            (
                "statistics",
                vec![packet(1, b"Uptime: 7  Threads: 1")],
                &[(0, answer | end, 0)],
            ),
        ];
        for (name, packets, expected) in cases {
            let mut reader = Messages {
                side: Some(Side::Server),
                ..Messages::default()
            };
            let found: Vec<_> = rows(&mut reader, packets)
                .into_iter()
                .map(|row| (row.0, row.1, row.2))
                .collect();
            assert_eq!(found, *expected, "{name}");
        }
    }

    #[test]
    fn numbers_that_begin_anew_begin_no_answer() {
        let mut reader = Messages {
            side: Some(Side::Server),
            ..Messages::default()
        };
        let mut packets = vec![packet(1, &[1]), packet(2, DEF)];
        packets.extend((3..700_u32).map(|number| packet(number as u8, b"\x01x")));
        packets.push(packet((700_u32 % 256) as u8, EOF_BODY));
        let found = rows(&mut reader, &packets);
        assert_eq!(
            found.iter().map(|row| row.0).collect::<Vec<_>>(),
            [0, packets.len() - 1]
        );
    }

    #[test]
    fn the_answer_to_a_login_is_no_greeting() {
        let greeting = packet(
            0,
            b"\x0a10.11.19-MariaDB\0\x07\0\0\0abcdefgh\0\xfe\xf7-\x02\0\xff\x81\x15",
        );
        let mut reader = Messages::default();
        for number in [2, 3] {
            // Within TLS, which its client's request for it precedes, it is the third.
            let found = rows(
                &mut reader,
                &[greeting.clone(), packet(number, &[OK, 0, 0, 2, 0, 0, 0])],
            );
            assert_eq!((found.len(), found[0].0, found[0].1), (1, 1, flag::ANSWER | flag::END));
        }
        let switched = [
            greeting.clone(),
            packet(2, AUTH_SWITCH),
            packet(4, &[OK, 0, 0, 2, 0, 0, 0]),
        ];
        let found = rows(&mut reader, &switched);
        let flags: Vec<u8> = found.iter().map(|row| row.1).collect();
        assert_eq!(flags, [flag::CONTINUE, flag::ANSWER | flag::END]);
        let denied = packet(2, b"\xff\x15\x04#28000Access denied for user 'S3cr3t'");
        let found = rows(&mut reader, &[greeting, denied]);
        assert_eq!((found[0].1, found[0].2), (flag::ANSWER | flag::END, 1045));
    }

    #[test]
    fn packets_cut_anywhere_show_no_value() {
        let all = [
            query("select 'S3cr3t', \"S3cr3t\" from t"),
            login(PLAIN, b"S3cr3t\0"),
            packet(1, b"\xff\x7a\x04#42S02Table 'S3cr3t'"),
            packet(1, b"\0\xfc"),
            packet(1, b"\xfc\x01"),
        ];
        for packet in &all {
            for len in 0..=packet.len() {
                rows(&mut Messages::default(), &[packet[..len].to_vec()]);
            }
        }
    }
}
