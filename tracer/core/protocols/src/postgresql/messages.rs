//! Types and lengths of PostgreSQL's messages, and which side sends them.
//!
//! ```text
//! type (1)  length of what follows the type (4)  body
//!           length of all (4)  version (4)  body        a client's first message has no type
//! ```
//! Several types mean one thing from a client and another from a server (`D`: Describe, DataRow), so a direction is
//! followed from a message on whose type or body only one side can send.
//!
//! Source: PostgreSQL, "Message Formats", "Streaming Replication Protocol".

/// Type and length of a message, or the first bytes of one without a type.
pub const HEADER_LEN: usize = 5;
const LENGTH_LEN: usize = 4;
/// Longest first message (`MAX_STARTUP_PACKET_LENGTH` in `libpq/pqcomm.h`).
const STARTUP_MAX_LEN: usize = 10_000;
/// Longest message that is not refused (`PQ_LARGE_MESSAGE_LIMIT`, MaxAllocSize of 1 GiB − 1).
const MAX_LEN: u32 = 0x3fff_ffff;

/// The codes that a message without a type has in place of a version.
const CANCEL: [u8; 4] = [0x04, 0xd2, 0x16, 0x2e];
const SSL: [u8; 4] = [0x04, 0xd2, 0x16, 0x2f];
const GSS: [u8; 4] = [0x04, 0xd2, 0x16, 0x30];

/// Which side sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// A message without a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    Startup,
    Cancel,
    /// SSLRequest or GSSENCRequest, which the server answers by one byte.
    Encryption,
}

/// Which first message bytes are, as far as they were captured.
pub fn first_message(bytes: &[u8]) -> Option<First> {
    let version = bytes.get(LENGTH_LEN..2 * LENGTH_LEN)?;
    match version {
        [0, 3, 0, _] => Some(First::Startup),
        _ if version == CANCEL => Some(First::Cancel),
        _ if version == SSL || version == GSS => Some(First::Encryption),
        _ => None,
    }
}

/// Length of the whole message that begins with this header; `None` if no message does.
#[inline]
pub fn message_len(header: &[u8]) -> Option<u32> {
    let [kind, a, b, c, d] = *header.first_chunk::<HEADER_LEN>()?;
    if kind == 0 {
        let len = usize::from(b) << 8 | usize::from(c);
        let is_first = a == 0 && (2 * LENGTH_LEN..=STARTUP_MAX_LEN).contains(&len) && matches!(d, 0 | 4);
        return is_first.then_some(len as u32);
    }
    let len = u32::from_be_bytes([a, b, c, d]);
    let sides = sides(kind);
    let fits = sides.iter().flatten().any(|lens| lens.fits(len));
    fits.then(|| len + 1)
}

/// Allowed lengths of a message, as its header gives them.
#[derive(Clone, Copy, Debug)]
struct Lens {
    least: u32,
    most: u32,
}

impl Lens {
    fn fits(self, len: u32) -> bool {
        self.least <= len && len <= self.most
    }
}

const fn exactly(len: u32) -> Option<Lens> {
    Some(Lens { least: len, most: len })
}

const fn from(least: u32) -> Option<Lens> {
    Some(Lens { least, most: MAX_LEN })
}

/// The lengths that a message of a type may have from a client, and from a server.
#[inline]
fn sides(kind: u8) -> [Option<Lens>; 2] {
    match kind {
        b'B' => [from(12), None],
        b'C' => [from(6), from(5)],
        b'D' => [from(6), from(6)],
        b'E' => [from(9), from(5)],
        b'F' => [from(14), None],
        b'H' => [exactly(4), from(7)],
        b'P' => [from(8), None],
        b'Q' => [from(5), None],
        b'S' => [exactly(4), from(6)],
        b'X' => [exactly(4), None],
        b'c' => [exactly(4), exactly(4)],
        b'd' => [from(4), from(4)],
        b'f' => [from(5), None],
        b'p' => [from(4), None],
        b'1' | b'2' | b'3' | b'I' | b'n' | b's' => [None, exactly(4)],
        b'A' => [None, from(10)],
        b'G' | b'W' => [None, from(7)],
        b'K' => [None, from(12)],
        b'N' => [None, from(5)],
        b'R' => [None, from(8)],
        b'T' => [None, from(6)],
        b't' => [None, from(6)],
        b'V' => [None, from(8)],
        b'v' => [None, from(12)],
        b'Z' => [None, exactly(5)],
        _ => [None, None],
    }
}

/// Which side sent a message, if that is certain from it alone.
///
/// Arguments: its bytes as far as they were captured, at least a header.
pub fn side_of(message: &[u8]) -> Option<Side> {
    let (header, body) = message.split_first_chunk::<HEADER_LEN>()?;
    let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    if header[0] == 0 {
        return first_message(message).map(|_| Side::Client);
    }
    match sides(header[0]).map(|lens| lens.is_some_and(|lens| lens.fits(len))) {
        [true, false] => Some(Side::Client),
        [false, true] => Some(Side::Server),
        [true, true] => side_of_body(header[0], body),
        [false, false] => None,
    }
}

/// The same for a type that both send.
fn side_of_body(kind: u8, body: &[u8]) -> Option<Side> {
    match (kind, body) {
        // The severity is the first field of errors of all versions.
        (b'E', [b'S', letter, ..]) if letter.is_ascii_uppercase() || *letter >= 0x80 => Some(Side::Server),
        (b'E', [0, 0, ..]) => Some(Side::Client), // the unnamed portal
        (b'C', [a, b, c, ..]) if [*a, *b, *c].iter().all(u8::is_ascii_uppercase) => Some(Side::Server),
        (b'D' | b'C', [b'S' | b'P', 0, ..]) => Some(Side::Client), // the unnamed statement or portal
        (b'd', _) => replication_side(body),
        _ => None,
    }
}

/// Which side sent the CopyData of a replication stream: positions in the log, times, and whether an answer is wanted
/// have zeros where no text of a COPY has one.
///
/// Arguments: its body, as far as it was captured, to the next message at most.
pub fn replication_side(body: &[u8]) -> Option<Side> {
    let (kind, fields) = body.split_first()?;
    let is_small = |at: usize| fields.get(at..at + 2).is_some_and(|high| high == [0, 0]); // of 64 bits the upper 16
    let is_time = |at: usize| fields.get(at).is_some_and(|&high| high == 0); // µs since 2000
    let is_flag = |at: usize| fields.get(at).is_some_and(|&wanted| wanted <= 1);
    let is_last = |at: usize| fields.len() == at;
    match kind {
        b'w' if [0, 8].into_iter().all(is_small) && is_time(16) => Some(Side::Server),
        b'k' if is_last(17) && is_small(0) && is_time(8) && is_flag(16) => Some(Side::Server),
        b'r' if is_last(33) && [0, 8, 16].into_iter().all(is_small) && is_time(24) && is_flag(32) => Some(Side::Client),
        b'h' if is_last(24) && is_time(0) => Some(Side::Client),
        _ => None,
    }
}

/// Whether a direction may begin with this message: type and length of one that only this side sends, or both may.
pub fn may_be_sent_by(start: &[u8], from_client: bool) -> bool {
    let Some(&[kind, a, b, c, d]) = start.first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let lens = sides(kind)[usize::from(!from_client)];
    match kind {
        0 => from_client && message_len(start).is_some(),
        _ => lens.is_some_and(|lens| lens.fits(u32::from_be_bytes([a, b, c, d]))),
    }
}

/// Consecutive messages at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    count: usize,
    /// The first message shows by itself which side sent it.
    pub is_first_certain: bool,
    /// The last one ends where the payload does.
    ends_with_payload: bool,
}

impl Chain {
    /// Whether other bytes hardly look like it.
    pub fn is_solid(&self) -> bool {
        self.ends_with_payload || self.count > 2
    }
}

/// The messages that a payload begins with; `None` if there are none, if a header is not valid, or if both sides would
/// have sent some.
///
/// Arguments: `wire_len`, how long the payload was before it was cut; `most`, how many messages are read at most.
pub fn chain(payload: &[u8], wire_len: usize, most: usize) -> Option<Chain> {
    let (mut at, mut side, mut is_first_certain, mut count) = (0, None, false, 0);
    while count < most
        && let Some(message) = payload.get(at..).filter(|rest| rest.len() >= HEADER_LEN)
    {
        let len = message_len(message)? as usize;
        let own = side_of(&message[..message.len().min(len)]);
        let is_other_side = own.is_some() && side.is_some() && side != own;
        if is_other_side || (message[0] == 0 && (count > 0 || own.is_none())) {
            return None;
        }
        side = side.or(own);
        is_first_certain |= count == 0 && own.is_some();
        count += 1;
        at += len;
    }
    (count > 0).then_some(Chain {
        count,
        is_first_certain,
        ends_with_payload: at == wire_len,
    })
}
