//! Reads the two hellos of a TLS handshake, and finds which of their bytes may be kept.
//!
//! A hello is the first handshake message of its side. It is in the clear in all versions:
//!
//! ```text
//! client: version, random number, session id, cipher suites, compression, extensions
//! server: version, random number, session id, cipher suite,  compression, extensions
//! ```
//!
//! Input: a handshake message from its type on ([`message_of`] takes it out of records), as far as it was captured.
//! Bytes that an agent overwrote are zeros; no length is among them. Output: [`ClientHello`], [`ServerHello`]; of a
//! hello that is cut, what precedes the cut.
//!
//! # Limits
//! Of an encrypted hello (ECH) the outer one is read; in TLS 1.3 the server's choice of a protocol (ALPN) is encrypted.
//!
//! Source: RFC 8446 §4.1.2–4.1.4, §4.2 (hellos, extensions); RFC 6066 §3 (server name); RFC 7301 §3.1 (ALPN); RFC 8701
//! (GREASE); RFC 9849 (ECH).

use std::ops::Range;

use super::{HEADER_LEN, content, may_be_record, record_len};
use crate::parts::blank_beside;

pub const CLIENT_HELLO: u8 = 1;
pub const SERVER_HELLO: u8 = 2;
/// Longest hello that is read. Those with post-quantum key shares have 1.5 to 2 KB, and tickets add up to 2 KB each.
pub const MAX_HELLO_LEN: usize = 16_384;
/// SHA-256 of "HelloRetryRequest", in place of a server's random number (RFC 8446 §4.1.3).
pub const HELLO_RETRY_REQUEST_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Length of a handshake message's header: type and length (RFC 8446 §4).
const MESSAGE_HEADER_LEN: usize = 4;
const RANDOM_LEN: usize = 32;
/// Offset of the session id's length.
const SESSION_ID_AT: usize = MESSAGE_HEADER_LEN + 2 + RANDOM_LEN;
const MAX_SESSION_ID_LEN: usize = 32;
/// Extensions of a hello that are read, at most.
const MAX_EXTENSIONS: usize = 64;

/// Extensions that are read (IANA, TLS ExtensionType Values).
mod extension {
    pub const SERVER_NAME: u16 = 0;
    pub const ALPN: u16 = 16;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const EARLY_DATA: u16 = 42;
    pub const SUPPORTED_VERSIONS: u16 = 43;
    pub const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// A client's hello. Slices are as they are on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    pub random: [u8; RANDOM_LEN],
    pub legacy_version: u16,
    pub session_id: &'a [u8],
    /// The name that the client asks for (SNI); empty if none is given, or none that a host may have.
    pub server_name: &'a [u8],
    /// Protocols that it offers, by preference.
    pub alpn: Vec<&'a [u8]>,
    /// Versions that it offers besides `legacy_version`, by preference; empty without the extension.
    pub versions: Vec<u16>,
    /// It offers a session ticket of TLS 1.3, or a key that both ends were given before.
    pub offers_psk: bool,
    pub offers_early_data: bool,
    /// It sends an encrypted hello, or bytes that look like one: `server_name` may be that of another server.
    pub offers_ech: bool,
    /// All of it was captured.
    pub is_whole: bool,
}

/// A server's hello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello<'a> {
    pub random: [u8; RANDOM_LEN],
    /// The version that was negotiated; `None` if the hello is cut before it may say TLS 1.3.
    pub version: Option<u16>,
    pub session_id: &'a [u8],
    pub cipher_suite: u16,
    /// It asks for another hello (HelloRetryRequest).
    pub is_retry: bool,
    /// The protocol that it chose; empty for none. In TLS 1.3 that is encrypted.
    pub alpn: &'a [u8],
    /// It accepted a ticket of TLS 1.3, or a key that both ends were given before.
    pub accepts_psk: bool,
    /// All of it was captured.
    pub is_whole: bool,
}

impl ClientHello<'_> {
    /// Versions that it offers, the newest first.
    pub fn offered_versions(&self) -> Vec<u16> {
        let mut all = self.versions.clone();
        if all.is_empty() {
            all.push(self.legacy_version);
        }
        all.sort_unstable_by(|one, other| other.cmp(one));
        all
    }
}

/// The handshake message at the start of `records`, which follow each other from the first byte of one on; it may
/// continue in several. As much of it as they hold, and what follows it in its last record.
pub fn message_of(records: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for content in contents(records) {
        message.extend_from_slice(&records[content]);
        if message_len(&message).is_some_and(|len| len <= message.len()) || message.len() > MAX_HELLO_LEN {
            break;
        }
    }
    message
}

/// Length of the message by its header.
pub fn message_len(message: &[u8]) -> Option<usize> {
    let [_, high, middle, low, ..] = message else {
        return None;
    };
    Some(MESSAGE_HEADER_LEN + u32::from_be_bytes([0, *high, *middle, *low]) as usize)
}

/// Whether `message` begins as a hello of this type does, as far as it was captured. Of an encrypted message the first
/// byte may be the same.
pub fn is_hello(message: &[u8], kind: u8) -> bool {
    message.first() == Some(&kind)
        && message_len(message).is_none_or(|len| (SESSION_ID_AT + 1..=MAX_HELLO_LEN).contains(&len))
        && message.get(MESSAGE_HEADER_LEN).is_none_or(|major| *major == 3)
        && message
            .get(SESSION_ID_AT)
            .is_none_or(|len| usize::from(*len) <= MAX_SESSION_ID_LEN)
}

/// Read a client's hello; `None` if it is none, or is cut before its session id.
pub fn client_hello(message: &[u8]) -> Option<ClientHello<'_>> {
    let (fields, session_id) = begin(message, CLIENT_HELLO)?;
    let mut hello = ClientHello {
        random: *message.get(SESSION_ID_AT - RANDOM_LEN..)?.first_chunk()?,
        legacy_version: number(message, MESSAGE_HEADER_LEN)?,
        session_id,
        ..ClientHello::default()
    };
    hello.is_whole = extensions_of_client(fields).is_some_and(|extensions| {
        each_extension(extensions, |kind, body| match kind {
            extension::SERVER_NAME => hello.server_name = host_name(body).unwrap_or_default(),
            extension::ALPN => hello.alpn = protocol_names(body),
            extension::SUPPORTED_VERSIONS => hello.versions = versions(body),
            extension::PRE_SHARED_KEY => hello.offers_psk = true,
            extension::EARLY_DATA => hello.offers_early_data = true,
            extension::ENCRYPTED_CLIENT_HELLO => hello.offers_ech = true,
            _ => {}
        })
    });
    Some(hello)
}

/// Read a server's hello; `None` if it is none, or is cut before its cipher suite.
pub fn server_hello(message: &[u8]) -> Option<ServerHello<'_>> {
    let (fields, session_id) = begin(message, SERVER_HELLO)?;
    let random = *message.get(SESSION_ID_AT - RANDOM_LEN..)?.first_chunk()?;
    let mut hello = ServerHello {
        random,
        session_id,
        cipher_suite: number(fields, 0)?,
        is_retry: random == HELLO_RETRY_REQUEST_RANDOM,
        ..ServerHello::default()
    };
    hello.is_whole = extensions_of_server(message, fields).is_some_and(|extensions| {
        each_extension(extensions, |kind, body| match kind {
            extension::SUPPORTED_VERSIONS => hello.version = number(body, 0),
            extension::ALPN => hello.alpn = protocol_names(body).first().copied().unwrap_or_default(),
            extension::PRE_SHARED_KEY => hello.accepts_psk = true,
            _ => {}
        })
    });
    if hello.is_whole && hello.version.is_none() {
        hello.version = number(message, MESSAGE_HEADER_LEN);
    }
    Some(hello)
}

/// How much of a hello is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// By an agent: what is read, without random numbers of clients and ids of sessions.
    Agent,
    /// By the decoder: these too.
    Decoder,
}

/// The parts of a hello that are kept, ascending: its fields of fixed length, all lengths, and the contents of the
/// extensions that say what is asked for or chosen. No key share, ticket, or identity of a key is among them. After a
/// whole message, the type of the next.
pub fn kept_parts(message: &[u8], keeping: Keeping) -> Vec<Range<usize>> {
    let mut parts = Parts {
        found: Vec::new(),
        end: message_len(message).unwrap_or(usize::MAX).min(message.len()),
    };
    parts.add_fields(message, keeping);
    if let Some(len) = message_len(message)
        && len < message.len()
    {
        parts.end = message.len();
        parts.add(len, 1);
    }
    parts.found
}

/// Collects parts of a hello.
struct Parts {
    found: Vec<Range<usize>>,
    end: usize,
}

impl Parts {
    fn add(&mut self, start: usize, len: usize) {
        let part = start.min(self.end)..start.saturating_add(len).min(self.end);
        match self.found.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ if part.is_empty() => {}
            _ => self.found.push(part),
        }
    }

    /// Add the parts up to the last extension; stops where the hello is cut.
    fn add_fields(&mut self, message: &[u8], keeping: Keeping) -> Option<()> {
        let is_client = *message.first()? == CLIENT_HELLO;
        let message = &message[..self.end];
        self.add(0, MESSAGE_HEADER_LEN + 2);
        if !is_client || keeping == Keeping::Decoder {
            self.add(MESSAGE_HEADER_LEN + 2, RANDOM_LEN);
        }
        self.add(SESSION_ID_AT, 1);
        let session_id_len = usize::from(*message.get(SESSION_ID_AT)?);
        if keeping == Keeping::Decoder {
            self.add(SESSION_ID_AT + 1, session_id_len);
        }
        let mut at = SESSION_ID_AT + 1 + session_id_len;
        if is_client {
            self.add(at, 2);
            at += 2 + usize::from(number(message, at)?);
            self.add(at, 1);
            at += 1 + usize::from(*message.get(at)?);
        } else {
            self.add(at, 3);
            at += 3;
        }
        self.add(at, 2);
        at += 2;
        for _ in 0..MAX_EXTENSIONS {
            self.add(at, 4);
            let (kind, len) = (number(message, at)?, usize::from(number(message, at + 2)?));
            if is_read(kind) {
                self.add(at + 4, len);
            }
            at += 4 + len;
        }
        Some(())
    }
}

/// What is kept of the records that hold a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloParts {
    /// Ascending, from the first byte of the first record on: headers of records, and parts of the hello.
    pub parts: Vec<Range<usize>>,
    /// Length of the records, as far as they were captured.
    pub records_len: usize,
    /// The hello continues behind the captured bytes.
    pub is_cut: bool,
}

impl HelloParts {
    /// How many bytes there are up to the end of the last part.
    pub fn kept_len(&self) -> usize {
        self.parts.last().map_or(0, |part| part.end)
    }

    /// These bytes of the records, all others among them overwritten with zeros.
    pub fn redact(&self, records: &[u8]) -> Vec<u8> {
        let mut kept = records[..self.kept_len()].to_vec();
        blank_beside(&mut kept, self.parts.clone());
        kept
    }
}

/// The parts that are kept of the hello at the start of `records`; `None` if there is none, or its first record ends
/// before the session id. So it is judged by bytes that are kept, and judged alike once the others are overwritten.
pub fn parts_of_records(records: &[u8], keeping: Keeping) -> Option<HelloParts> {
    let kind = *records.get(HEADER_LEN)?;
    if u16::from(records[0]) != content::HANDSHAKE || !matches!(kind, CLIENT_HELLO | SERVER_HELLO) {
        return None;
    }
    let message = message_of(records);
    let begins_whole = contents(records)
        .next()
        .is_some_and(|first| first.len() > SESSION_ID_AT);
    if !begins_whole || !is_hello(&message, kind) {
        return None;
    }
    let (mut parts, mut records_len, mut begun) = (Vec::new(), 0, 0);
    let of_message = kept_parts(&message, keeping);
    for content in contents(records) {
        if message_len(&message).is_some_and(|len| begun >= len) {
            break;
        }
        parts.push(content.start - HEADER_LEN..content.start);
        let end = begun + content.len();
        let within = of_message.iter().map(|part| part.start.max(begun)..part.end.min(end));
        parts.extend(within.filter(|part| !part.is_empty()).map(|part| {
            let start = content.start + part.start - begun;
            start..start + part.len()
        }));
        (begun, records_len) = (end, content.end);
    }
    let is_cut = message_len(&message).is_none_or(|len| len > message.len());
    Some(HelloParts {
        parts,
        records_len,
        is_cut,
    })
}

/// The ranges with the contents of the handshake records that `records` begins with.
fn contents(records: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = records.get(at..).filter(|rest| may_be_record(rest))?;
        if u16::from(record[0]) != content::HANDSHAKE {
            return None;
        }
        let (start, len) = (at + HEADER_LEN, record_len(record)?);
        at += len;
        Some(start..at.min(records.len()))
    })
}

/// The fields after the session id, and the session id.
fn begin(message: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    if !is_hello(message, kind) {
        return None;
    }
    let message = &message[..message_len(message)?.min(message.len())];
    let (id_len, rest) = message.get(SESSION_ID_AT..)?.split_first()?;
    let (session_id, fields) = rest.split_at_checked(usize::from(*id_len))?;
    Some((fields, session_id))
}

/// A client's extensions with their length before them; `None` if the hello is cut before them.
fn extensions_of_client(fields: &[u8]) -> Option<&[u8]> {
    let suites_len = usize::from(number(fields, 0)?);
    let compression = fields.get(2 + suites_len..)?;
    compression.get(1 + usize::from(*compression.first()?)..)
}

/// The same of a server's. One of TLS 1.2 may end without any.
fn extensions_of_server<'a>(message: &[u8], fields: &'a [u8]) -> Option<&'a [u8]> {
    let rest = fields.get(3..)?;
    let is_whole = message_len(message)? <= message.len();
    Some(if rest.is_empty() && is_whole { &[0, 0] } else { rest })
}

/// Visit extensions, which their length precedes; returns whether all were captured, but for contents that are not read.
fn each_extension<'a>(extensions: &'a [u8], mut visit: impl FnMut(u16, &'a [u8])) -> bool {
    let Some(len) = number(extensions, 0) else { return false };
    let (mut at, end, mut is_whole) = (2, 2 + usize::from(len), true);
    for _ in 0..MAX_EXTENSIONS {
        if at == end {
            return is_whole;
        }
        let (Some(kind), Some(len)) = (number(extensions, at), number(extensions, at + 2)) else {
            return false;
        };
        let behind = at + 4 + usize::from(len);
        if behind > end {
            return false;
        }
        let body = extensions.get(at + 4..behind);
        is_whole &= body.is_some() || !is_read(kind);
        visit(kind, body.unwrap_or_default());
        at = behind;
    }
    false
}

/// Whether the content of an extension is read, and so kept.
fn is_read(kind: u16) -> bool {
    matches!(
        kind,
        extension::SERVER_NAME | extension::ALPN | extension::SUPPORTED_VERSIONS
    )
}

/// The first name of a list of server names that a host may have.
fn host_name(body: &[u8]) -> Option<&[u8]> {
    let len = usize::from(number(body, 3)?);
    let name = body.get(5..5 + len)?;
    let may_have = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:".contains(byte);
    (body[2] == 0 && !name.is_empty() && name.len() <= 255 && name.iter().all(may_have)).then_some(name)
}

/// Names of protocols that are made of printable characters, without those that only try servers (GREASE).
fn protocol_names(body: &[u8]) -> Vec<&[u8]> {
    let mut names = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((len, behind)) = rest.split_first()
        && let Some((name, after)) = behind.split_at_checked(usize::from(*len))
    {
        let may_show = |byte: &u8| byte.is_ascii_graphic() && *byte != b',';
        if !name.is_empty() && name.iter().all(may_show) {
            names.push(name);
        }
        rest = after;
    }
    names
}

/// A client's versions without those that only try servers (GREASE).
fn versions(body: &[u8]) -> Vec<u16> {
    let (pairs, _) = body.get(1..).unwrap_or_default().as_chunks();
    let all = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
    all.filter(|version| version & 0x0f0f != 0x0a0a).collect()
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
pub(super) mod tests;
