//! What the TLS handshake of each connection says, from the excerpts of its hellos and records.
//!
//! 1. The client is the end whose direction has a client's hello; its first one counts, that before a retry. TLS may
//!    begin anywhere in the stream (STARTTLS, CONNECT).
//! 2. The server's hello is the first of the other direction that asks for no other hello (HelloRetryRequest).
//! 3. Up to TLS 1.2, a session was resumed if the server's next message is ChangeCipherSpec or a new ticket: a full
//!    handshake has others in between. Where that was not captured, it was resumed if the server's hello has the id of
//!    the session that the client asked for. In TLS 1.3 the server's hello accepts a key: that of a ticket, or one that
//!    both ends were given before; which one cannot be seen.
//! 4. A fatal alert in the clear is the reason why a handshake failed. In TLS 1.3 the client's is encrypted: it is then
//!    the client's first encrypted record, shorter than any other of a handshake.
//!
//! Several excerpts may show the same record (captures of two hosts, packets sent again): of those at one place the
//! longest counts.
//!
//! # Limits
//! The server's choice of a protocol (ALPN) is encrypted in TLS 1.3, and so is whether it took early data.
//!
//! Source: RFC 8446 §2, §4.1, §4.2.11, §6; RFC 5246 §7.3, §7.4.1; RFC 5077 §3.

use std::collections::BTreeMap;

use twintap_protocols::registry::place_of_head_kind;
use twintap_protocols::tls::hellos::{self, ClientHello, ServerHello};
use twintap_protocols::tls::{self, ALERT_LEN, content, names};

use crate::columns::TextColumn;
use crate::{Excerpts, Places};

const TLS_13: u16 = 0x0304;
const RECORD_HEADER_LEN: usize = 5;
/// Message types (RFC 8446 §4).
const NEW_SESSION_TICKET: u8 = 4;
/// Level of an alert (RFC 8446 §6).
const FATAL: u8 = 2;
/// Length of an encrypted record with an alert: header, alert, content type, tag (RFC 8446 §5.2). All other encrypted
/// messages of a handshake are longer.
const ENCRYPTED_ALERT_LEN: i64 = (RECORD_HEADER_LEN + ALERT_LEN + 1 + 16) as i64;

/// Whether a session was resumed. The order is that of the codes in Python's `collector.hops.tls_handshakes.RESUMPTION`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resumption {
    #[default]
    Unknown,
    Full,
    Resumed,
    /// TLS 1.3: resumed, or with a key that both ends were given before.
    Psk,
}

/// Calls `$then!` with the names of the columns of flags, and of those of texts, which are empty where nothing is known.
#[macro_export]
macro_rules! with_tls_columns {
    ($then:ident) => {
        $then! {
            [has_client_hello, has_server_hello, early_data_offered, ech_offered, retried, alert_from_server]
            [server_name, alpn_offered, alpn, versions_offered, version, cipher, alert]
        }
    };
}

macro_rules! define_columns {
    ([$($flag:ident),*] [$($text:ident),*]) => {
        /// Handshakes by column: the number of each one's connection, and what it says. All of one length, texts one
        /// longer (offsets).
        #[derive(Clone, Debug, Default)]
        pub struct TlsColumns {
            pub connection: Vec<i64>,
            pub resumption: Vec<i32>,
            $(pub $flag: Vec<bool>,)*
            $(pub $text: TextColumn,)*
        }

        /// What a handshake says.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct TlsHandshake {
            pub resumption: Resumption,
            $(pub $flag: bool,)*
            $(pub $text: Vec<u8>,)*
        }

        impl TlsColumns {
            fn push(&mut self, connection: usize, handshake: &TlsHandshake) {
                self.connection.push(connection as i64);
                self.resumption.push(handshake.resumption as i32);
                $(self.$flag.push(handshake.$flag);)*
                $(self.$text.push(&handshake.$text);)*
            }
        }
    };
}

with_tls_columns!(define_columns);

/// A record at its place; `bytes` are what was kept of it, of a hello also what continues in later records.
#[derive(Clone, Copy, Debug)]
struct Record<'a> {
    offset: i64,
    end: i64,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    fn kind(&self) -> u16 {
        u16::from(self.bytes[0])
    }

    /// The content's first bytes.
    fn content(&self) -> &'a [u8] {
        &self.bytes[RECORD_HEADER_LEN..]
    }
}

/// The handshakes of `count` connections, which are numbered from `first_id`. Columns must be consistent.
pub fn read_handshakes(excerpts: &Excerpts<'_>, places: &Places<'_>, first_id: i64, count: usize) -> TlsColumns {
    let mut found = TlsColumns::default();
    for (connection, directions) in records_by_connection(excerpts, places, first_id, count) {
        let [server, client] = directions.map(|records| records.into_values().collect::<Vec<_>>());
        let handshake = handshake_of(&client, &server).or_else(|| handshake_of(&server, &client));
        if let Some(handshake) = handshake {
            found.push(connection, &handshake);
        }
    }
    found
}

/// The records of each connection with a hello, by direction (first the server's) and place.
fn records_by_connection<'a>(
    excerpts: &Excerpts<'a>,
    places: &Places<'_>,
    first_id: i64,
    count: usize,
) -> BTreeMap<usize, [BTreeMap<i64, Record<'a>>; 2]> {
    let of_tls = place_of_head_kind(tls::RECORD.0);
    let all = || {
        (0..places.connection_id.len()).filter_map(|place| {
            let row = places.excerpt_row[place] as usize;
            let number = places.connection_id[place].checked_sub(first_id)?;
            let number = usize::try_from(number).ok().filter(|number| *number < count)?;
            let bytes = excerpts.row(row).bytes;
            let is_record = excerpts.protocol[row] == of_tls && tls::may_be_record(bytes);
            is_record.then_some((place, row, number, bytes))
        })
    };
    let mut found = BTreeMap::new();
    for (_, _, number, bytes) in all() {
        let message = &bytes[RECORD_HEADER_LEN..];
        let is_hello = |kind| message.len() > 1 && hellos::is_hello(message, kind);
        if u16::from(bytes[0]) == content::HANDSHAKE
            && (is_hello(hellos::CLIENT_HELLO) || is_hello(hellos::SERVER_HELLO))
        {
            found
                .entry(number)
                .or_insert_with(<[BTreeMap<i64, Record<'a>>; 2]>::default);
        }
    }
    for (place, row, number, bytes) in all() {
        let Some(directions) = found.get_mut(&number) else {
            continue;
        };
        let offset = places.stream_offset[place].saturating_add(excerpts.payload_offset[row].into());
        let len = i64::from(u16::from_be_bytes([bytes[3], bytes[4]])) + RECORD_HEADER_LEN as i64;
        let end = offset.saturating_add(len);
        let record = Record { offset, end, bytes };
        let known = directions[usize::from(places.from_client[place])]
            .entry(offset)
            .or_insert(record);
        if bytes.len() > known.bytes.len() {
            *known = record;
        }
    }
    found
}

/// What the handshake says, if `client` has a client's hello, or `server` a server's.
fn handshake_of(client: &[Record<'_>], server: &[Record<'_>]) -> Option<TlsHandshake> {
    let mut found = TlsHandshake::default();
    let messages = |records: &[Record<'_>]| {
        let of_handshake = records
            .iter()
            .enumerate()
            .filter(|(_, one)| one.kind() == content::HANDSHAKE);
        of_handshake
            .map(|(place, one)| (place, hellos::message_of(one.bytes)))
            .collect::<Vec<_>>()
    };
    let (asked, said) = (messages(client), messages(server));
    let client_hello = asked.iter().find_map(|(_, message)| hellos::client_hello(message));
    let server_hellos = || {
        said.iter()
            .filter_map(|(place, message)| Some((*place, message, hellos::server_hello(message)?)))
    };
    let server_hello = server_hellos().find(|(.., hello)| !hello.is_retry);
    found.retried = server_hellos().any(|(.., hello)| hello.is_retry);
    if client_hello.is_none() && server_hello.is_none() && !found.retried {
        return None;
    }
    if let Some(hello) = &client_hello {
        found.note_client(hello);
    }
    if let Some((place, message, hello)) = &server_hello {
        found.note_server(hello);
        found.resumption = if hello.version.is_some_and(|version| version >= TLS_13) {
            if hello.accepts_psk {
                Resumption::Psk
            } else {
                Resumption::Full
            }
        } else {
            let next = next_message(message, &server[*place..]);
            resumption(next).unwrap_or_else(|| resumption_by_id(client_hello.as_ref(), hello))
        };
    }
    let is_13 = server_hello
        .as_ref()
        .is_some_and(|(.., hello)| hello.version == Some(TLS_13));
    found.note_alert(client, server, is_13);
    Some(found)
}

impl TlsHandshake {
    fn note_client(&mut self, hello: &ClientHello<'_>) {
        self.has_client_hello = hello.is_whole;
        self.server_name = hello.server_name.to_ascii_lowercase();
        self.alpn_offered = hello.alpn.join(&b", "[..]);
        let versions = hello.offered_versions().into_iter().map(names::version);
        if hello.is_whole || !hello.versions.is_empty() {
            self.versions_offered = versions.collect::<Vec<_>>().join(", ").into_bytes();
        }
        self.early_data_offered = hello.offers_early_data;
        self.ech_offered = hello.offers_ech;
    }

    fn note_server(&mut self, hello: &ServerHello<'_>) {
        self.has_server_hello = hello.is_whole;
        self.alpn = hello.alpn.to_vec();
        self.version = hello
            .version
            .map_or_else(Vec::new, |version| names::version(version).as_bytes().to_vec());
        self.cipher = names::cipher_suite(hello.cipher_suite).as_bytes().to_vec();
    }

    /// Note the first alert that ended the handshake.
    fn note_alert(&mut self, client: &[Record<'_>], server: &[Record<'_>], is_13: bool) {
        for (records, from_server) in [(client, false), (server, true)] {
            let first = records.iter().find_map(|one| match (one.kind(), one.content()) {
                (content::ALERT, [FATAL, description, ..])
                    if one.end - one.offset == (RECORD_HEADER_LEN + ALERT_LEN) as i64 =>
                {
                    Some(*description)
                }
                _ => None,
            });
            if let Some(description) = first {
                self.alert = names::alert(description).as_bytes().to_vec();
                self.alert_from_server = from_server;
                return;
            }
        }
        let mut encrypted = client.iter().filter(|one| one.kind() == content::APPLICATION_DATA);
        let is_alert = |one: &Record<'_>| one.end - one.offset == ENCRYPTED_ALERT_LEN;
        if is_13 && !self.early_data_offered && encrypted.next().is_some_and(is_alert) {
            self.alert = b"encrypted".to_vec();
        }
    }
}

/// What the server sent behind its hello: `Ok` with the type of a message, `Err` with that of another record; `None` if
/// that was not captured. Arguments: the hello with what follows in its records, and the server's records from it on.
fn next_message(message: &[u8], records: &[Record<'_>]) -> Option<Result<u8, u16>> {
    let len = hellos::message_len(message)?;
    if let Some(kind) = message.get(len) {
        return Some(Ok(*kind));
    }
    let (hello, behind) = records.split_first()?;
    let next = behind.first().filter(|next| next.offset == hello.end)?;
    if next.kind() == content::HANDSHAKE {
        next.content().first().map(|kind| Ok(*kind))
    } else {
        Some(Err(next.kind()))
    }
}

/// Whether a session of TLS 1.2 or older was resumed, by what follows the server's hello.
fn resumption(next: Option<Result<u8, u16>>) -> Option<Resumption> {
    match next? {
        Ok(NEW_SESSION_TICKET) | Err(content::CHANGE_CIPHER_SPEC) => Some(Resumption::Resumed),
        Ok(0) | Err(_) => None,
        Ok(_) => Some(Resumption::Full),
    }
}

/// The same by the ids of sessions. An agent overwrites them with zeros.
fn resumption_by_id(client: Option<&ClientHello<'_>>, server: &ServerHello<'_>) -> Resumption {
    let is_known = |id: &[u8]| id.iter().any(|byte| *byte != 0);
    let is_old = server.version.is_some();
    match client.map(|hello| hello.session_id) {
        Some(asked) if is_old && is_known(asked) && asked == server.session_id => Resumption::Resumed,
        Some(asked) if is_old && is_known(asked) && (server.session_id.is_empty() || is_known(server.session_id)) => {
            Resumption::Full
        }
        _ => Resumption::Unknown,
    }
}

#[cfg(test)]
mod tests;
