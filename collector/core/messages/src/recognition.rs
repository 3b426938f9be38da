//! Recognises each connection's protocol by the first bytes of its directions.
//!
//! 1. For each direction, excerpts that begin within [`START_LEN`] bytes of its start are copied to their places.
//!    Several excerpts may cover the same bytes (captures of two hosts, retransmissions); where they differ, the
//!    longest counts.
//! 2. Each protocol of the registry is tried on the bytes up to the first hole. The connection's protocol is the first
//!    one that claims both directions, otherwise the first that claims one. One that read these bytes as its own, in the
//!    packets that it follows, comes before others whose messages only begin alike.
//!
//! Without a captured handshake it is not certain which end is the client, so both assignments are tried.
//!
//! Limits: a later change of protocol (upgrade, CONNECT, STARTTLS) is not recognised here.

use twintap_protocols::registry::{self, REGISTRY};
use twintap_protocols::tls::content;
use twintap_protocols::tls::opened::{OPENED, OpenedRecord};

use crate::{Excerpts, Places};

/// Bytes compared: enough for the first line of a request, a frame's header or a banner.
pub const START_LEN: usize = 64;

/// Which directions of a connection begin as its protocol does. The order is that of the codes in Python's
/// `collector.hops.messages.EVIDENCE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    #[default]
    Neither,
    Client,
    Server,
    Both,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionProtocol {
    /// Place in the registry.
    pub protocol: u8,
    pub evidence: Evidence,
    /// It is TLS that was opened with keys, and the protocol is the one inside.
    pub is_opened: bool,
}

/// The first bytes of one direction of a connection, as far as excerpts show them.
#[derive(Clone, Debug)]
struct Start {
    bytes: [u8; START_LEN],
    known: u64,
}

impl Default for Start {
    fn default() -> Self {
        Self {
            bytes: [0; START_LEN],
            known: 0,
        }
    }
}

impl Start {
    /// Copy bytes to a place, except where bytes are already known.
    fn copy_bytes(&mut self, at: usize, bytes: &[u8]) {
        for (place, &byte) in (at..START_LEN).zip(bytes) {
            if self.known >> place & 1 == 0 {
                self.bytes[place] = byte;
                self.known |= 1 << place;
            }
        }
    }

    /// The bytes before the first hole.
    fn solid(&self) -> &[u8] {
        &self.bytes[..self.known.trailing_ones() as usize]
    }
}

/// An excerpt near the start of a direction; ordered as excerpts are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    /// Twice the connection's number, and 1 more if its client sent it.
    direction: usize,
    at: i64,
    /// Its length, negated: the longest first.
    shortness: i64,
    row: usize,
}

/// The protocols of `count` connections, which are numbered from `first_id`. Columns must be consistent.
pub fn recognise(excerpts: &Excerpts<'_>, places: &Places<'_>, first_id: i64, count: usize) -> Vec<ConnectionProtocol> {
    let unknown = ConnectionProtocol {
        protocol: (REGISTRY.len() - 1) as u8,
        evidence: Evidence::Neither,
        is_opened: false,
    };
    let is_opened = opened_connections(excerpts, places, first_id, count);
    let mut recognised = vec![unknown; count];
    let pieces = pieces_near_starts(excerpts, places, first_id, &is_opened);
    for own in pieces.chunk_by(|one, next| one.direction / 2 == next.direction / 2) {
        let mut starts = <[Start; 2]>::default();
        let is_reader = |place: u8| own.iter().any(|piece| excerpts.protocol[piece.row] == place);
        for direction in own.chunk_by(|one, next| one.direction == next.direction) {
            let first = direction[0].at;
            let start = &mut starts[direction[0].direction % 2];
            for piece in direction {
                start.copy_bytes((piece.at - first) as usize, excerpts.solid_bytes(piece.row));
            }
        }
        recognised[own[0].direction / 2] = by_starts(&starts, is_reader).unwrap_or(unknown);
    }
    for (one, is_opened) in recognised.iter_mut().zip(is_opened) {
        one.is_opened = is_opened;
    }
    recognised
}

/// The number of the connection at a place, if it is one of `count` that are numbered from `first_id`.
fn number(places: &Places<'_>, place: usize, first_id: i64, count: usize) -> Option<usize> {
    let number = places.connection_id[place].checked_sub(first_id)?;
    usize::try_from(number).ok().filter(|number| *number < count)
}

/// Of each connection, whether application data in TLS records was opened.
fn opened_connections(excerpts: &Excerpts<'_>, places: &Places<'_>, first_id: i64, count: usize) -> Vec<bool> {
    let mut is_opened = vec![false; count];
    let tls = registry::place_of_head_kind(OPENED.0);
    let is_application = |record: OpenedRecord| u16::from(record.content_type) == content::APPLICATION_DATA;
    for place in 0..places.connection_id.len() {
        let row = places.excerpt_row[place] as usize;
        if excerpts.protocol[row] == tls && OpenedRecord::read(&excerpts.row(row)).is_some_and(is_application) {
            number(places, place, first_id, count)
                .into_iter()
                .for_each(|number| is_opened[number] = true);
        }
    }
    is_opened
}

/// The excerpts near the starts of directions, by direction and place, the longest copy first. Of connections that were
/// opened, those of what is inside.
fn pieces_near_starts(excerpts: &Excerpts<'_>, places: &Places<'_>, first_id: i64, is_opened: &[bool]) -> Vec<Piece> {
    let (count, tls) = (is_opened.len(), registry::place_of_head_kind(OPENED.0));
    let all = || {
        (0..places.connection_id.len()).filter_map(|place| {
            let number = number(places, place, first_id, count)?;
            let row = places.excerpt_row[place] as usize;
            if is_opened[number] && excerpts.protocol[row] == tls {
                return None;
            }
            let at = places.stream_offset[place].saturating_add(excerpts.payload_offset[row].into());
            Some((2 * number + usize::from(places.from_client[place]), at, row))
        })
    };
    let mut first = vec![i64::MAX; 2 * count];
    all().for_each(|(direction, at, _)| first[direction] = first[direction].min(at));
    let near = all().filter(|(direction, at, _)| at.saturating_sub(first[*direction]) < START_LEN as i64);
    let mut pieces: Vec<Piece> = near
        .map(|(direction, at, row)| Piece {
            direction,
            at,
            shortness: -i64::from(excerpts.solid_len[row]),
            row,
        })
        .collect();
    pieces.sort_unstable();
    pieces
}

/// Arguments: how the server's direction begins, and the client's; whether the protocol at a place of the registry read
/// these bytes.
fn by_starts([server, client]: &[Start; 2], is_reader: impl Fn(u8) -> bool) -> Option<ConnectionProtocol> {
    let (server, client) = (server.solid(), client.solid());
    let evidence = |begins: fn(&[u8], bool) -> bool| {
        let claims = |client: &[u8], server: &[u8]| {
            let one = |start: &[u8], from_client| !start.is_empty() && begins(start, from_client);
            (one(client, true), one(server, false))
        };
        match (claims(client, server), claims(server, client)) {
            ((true, true), _) | (_, (true, true)) => Evidence::Both,
            ((true, _), _) | (_, (_, true)) => Evidence::Client,
            ((_, true), _) | (_, (true, _)) => Evidence::Server,
            _ => Evidence::Neither,
        }
    };
    let found = (0..).zip(REGISTRY).map(|(protocol, one)| ConnectionProtocol {
        protocol,
        evidence: evidence(one.begins),
        is_opened: false,
    });
    let found: Vec<ConnectionProtocol> = found.filter(|one| one.evidence != Evidence::Neither).collect();
    // Of equal ones the first is the minimum.
    let order = |one: &&ConnectionProtocol| (!is_reader(one.protocol), one.evidence != Evidence::Both);
    found.iter().min_by_key(order).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Excerpts as connection, whether its client sent it, place, bytes.
    fn names(sent: &[(i64, bool, i64, &[u8])]) -> Vec<(&'static str, Evidence)> {
        names_by("unknown", sent)
    }

    /// The same of excerpts that a protocol has read.
    fn names_by(reader: &str, sent: &[(i64, bool, i64, &[u8])]) -> Vec<(&'static str, Evidence)> {
        let reader = registry::place(reader).expect("it is registered");
        let count = sent.len();
        let mut offsets = vec![0];
        offsets.extend(sent.iter().scan(0, |end, one| {
            *end += one.3.len() as i64;
            Some(*end)
        }));
        let lens: Vec<u32> = sent.iter().map(|one| one.3.len() as u32).collect();
        let excerpts = Excerpts {
            payload_offset: &vec![0; count],
            protocol: &vec![reader; count],
            stream_len: &lens,
            solid_len: &lens,
            offsets: &offsets,
            bytes: &sent.iter().flat_map(|one| one.3).copied().collect::<Vec<u8>>(),
        };
        let places = Places {
            excerpt_row: &(0..count as u32).collect::<Vec<_>>(),
            connection_id: &sent.iter().map(|one| one.0).collect::<Vec<_>>(),
            from_client: &sent.iter().map(|one| one.1).collect::<Vec<_>>(),
            stream_offset: &sent.iter().map(|one| one.2).collect::<Vec<_>>(),
        };
        assert!(excerpts.has_bytes_of_rows() && places.has_rows_below(count));
        let name = |one: ConnectionProtocol| (REGISTRY[usize::from(one.protocol)].name, one.evidence);
        recognise(&excerpts, &places, 7, 3).into_iter().map(name).collect()
    }

    #[test]
    fn a_connection_is_known_by_how_its_directions_begin() {
        let unknown = ("unknown", Evidence::Neither);
        type Packets = &'static [(i64, bool, i64, &'static [u8])];
        let cases: &[(Packets, (&str, Evidence))] = &[
            (&[], unknown),
            (
                &[(7, true, 0, b"GET /a HTTP/1.1\r\n"), (7, false, 0, b"HTTP/1.1 200\r\n")],
                ("http/1.1", Evidence::Both),
            ),
            (
                &[(7, true, 900, b"GET /a HTTP/1.1\r\n")],
                ("http/1.1", Evidence::Client),
            ),
            (&[(7, false, 0, b"HTTP/1.1 200\r\n")], ("http/1.1", Evidence::Server)),
            (
                &[(7, false, 0, b"GET /a HTTP/1.1\r\n"), (7, true, 0, b"HTTP/1.1 200\r\n")],
                ("http/1.1", Evidence::Both),
            ),
            (
                &[(7, true, 0, b"SSH-2.0-"), (7, false, 0, b"SSH-2.0-")],
                ("ssh", Evidence::Both),
            ),
            (&[(7, true, 0, b"\x16\x03\x01\x02\0\x01")], ("tls", Evidence::Client)),
            (
                &[
                    (7, true, 0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                    (7, false, 0, b"\0\0\x12\x04\0\0\0\0\0"),
                ],
                ("http/2", Evidence::Both),
            ),
            (
                &[(7, true, 0, b"*2\r\n$9\r\nSUBSCRIBE\r\n")],
                ("redis", Evidence::Client),
            ),
            (&[(99, true, 0, b"SSH-2.0-"), (6, true, 0, b"SSH-2.0-")], unknown),
        ];
        for (sent, expected) in cases {
            assert_eq!(names(sent), [*expected, unknown, unknown], "{sent:?}");
        }
    }

    #[test]
    fn the_protocol_that_read_the_bytes_comes_before_those_whose_messages_begin_alike() {
        let kafka = b"\0\0\0\x17\0\x03\0\x0c\0\0\0\x05\0\x0aproducer-1\0";
        let zookeeper = b"\0\0\0\x11\0\0\0\x02\0\0\0\x04\0\0\0\x04/";
        for (reader, start) in [("kafka", &kafka[..]), ("zookeeper", zookeeper)] {
            let sent: &[(i64, bool, i64, &[u8])] = &[(7, true, 900, start), (7, false, 400, &start[..8])];
            assert_eq!(names_by(reader, sent)[0], (reader, Evidence::Client));
            let other = [(7, true, 0, &b"GET /a HTTP/1.1\r\n"[..])];
            assert_eq!(
                names_by(reader, &other)[0],
                ("http/1.1", Evidence::Client),
                "it claims nothing"
            );
        }
        assert_ne!(names_by("kafka", &[(7, true, 0, zookeeper)])[0].0, "kafka");
    }

    #[test]
    fn pieces_and_copies_are_laid_together() {
        // The second packet completes the line; of the copy that was cut, the longer one counts.
        let sent: &[(i64, bool, i64, &[u8])] = &[
            (8, true, 8, b" HTTP/1.1\r\n"),
            (8, true, 0, b"GE"),
            (8, true, 0, b"GET /abc"),
            (8, true, 500, b"SSH-2.0-"),
        ];
        assert_eq!(names(sent)[1], ("http/1.1", Evidence::Client));
        assert_eq!(names(&sent[..2])[1], ("unknown", Evidence::Neither), "there is a hole");
    }
}
