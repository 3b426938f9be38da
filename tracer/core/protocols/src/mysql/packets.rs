//! MySQL's packets: length (3 bytes, the lowest first), number, body.
//!
//! Numbers count from 0 in each command, which only a client begins, and go on through the answer, so the first packet
//! of an answer is number 1.
//!
//! Source: MySQL, "MySQL Packets", "Protocol::HandshakeV10", "Protocol::HandshakeResponse41",
//! "Protocol::AuthSwitchRequest", "Protocol::AuthMoreData", "LOCAL INFILE Request", "OK_Packet", "ERR_Packet".

/// Length and number.
pub const HEADER_LEN: usize = 4;
/// Length of a packet that the next one continues.
pub const FULL_LEN: usize = 0xff_ffff;
/// Protocol version of a server's greeting.
pub const GREETING: u8 = 10;
/// Bytes of a client's answer before the user's name; an SSLRequest is only these.
pub const LOGIN_FIXED_LEN: usize = 32;

pub const OK: u8 = 0x00;
/// What a method of authentication says; with [`ENOUGH`] it asks for nothing.
pub const MORE_PROOF: u8 = 0x01;
pub const ENOUGH: u8 = 0x03;
pub const INFILE: u8 = 0xfb;
pub const EOF: u8 = 0xfe;
pub const ERR: u8 = 0xff;
/// Error code of MariaDB's reports of progress, after which the answer goes on.
pub const PROGRESS: u16 = 0xffff;
/// Longest packet that is an EOF; with the same first byte, longer ones are OK packets or rows.
pub const EOF_LEN: usize = 5;

/// Commands, by the first byte of the body.
pub mod command {
    pub const QUIT: u8 = 0x01;
    pub const INIT_DB: u8 = 0x02;
    pub const QUERY: u8 = 0x03;
    pub const FIELD_LIST: u8 = 0x04;
    pub const STATISTICS: u8 = 0x09;
    pub const PING: u8 = 0x0e;
    pub const CHANGE_USER: u8 = 0x11;
    pub const BINLOG_DUMP: u8 = 0x12;
    pub const REGISTER_REPLICA: u8 = 0x15;
    pub const PREPARE: u8 = 0x16;
    pub const EXECUTE: u8 = 0x17;
    pub const SEND_LONG_DATA: u8 = 0x18;
    pub const CLOSE: u8 = 0x19;
    pub const RESET: u8 = 0x1a;
    pub const SET_OPTION: u8 = 0x1b;
    pub const FETCH: u8 = 0x1c;
    /// MySQL's.
    pub const BINLOG_DUMP_GTID: u8 = 0x1e;
    pub const RESET_CONNECTION: u8 = 0x1f;
    /// MariaDB's.
    pub const BULK_EXECUTE: u8 = 0xfa;
}

/// Bits of a client's capabilities.
pub mod capability {
    pub const COMPRESS: u32 = 1 << 5;
    pub const PROTOCOL_41: u32 = 1 << 9;
    pub const SSL: u32 = 1 << 11;
    pub const COMPRESS_ZSTD: u32 = 1 << 26;
}

/// Bits of a server's status.
pub mod status {
    pub const IN_TRANSACTION: u16 = 0x0001;
    pub const AUTOCOMMIT: u16 = 0x0002;
    pub const MORE_RESULTS: u16 = 0x0008;
    pub const CURSOR: u16 = 0x0040;
}

/// A packet, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub len: usize,
    pub number: u8,
    pub body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The packet that bytes begin with.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[a, b, c, number], rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let len = u32::from_le_bytes([a, b, c, 0]) as usize;
        let body = &rest[..rest.len().min(len)];
        Some(Self { len, number, body })
    }

    pub fn first(&self) -> Option<u8> {
        self.body.first().copied()
    }

    /// Whether it is a server's greeting: the protocol's version, and the server's as text.
    pub fn is_greeting(&self) -> bool {
        let version = self.body.get(1..).unwrap_or(&[]);
        let is_version =
            version.first().is_some_and(u8::is_ascii_digit) && version.get(1).is_some_and(|&byte| byte >= b'.');
        self.number == 0 && self.first() == Some(GREETING) && is_version && self.len > LOGIN_FIXED_LEN
    }

    /// The capabilities of a client that answers a greeting, or asks for TLS; between them and the user's name stand
    /// zeros.
    pub fn login_capabilities(&self) -> Option<u32> {
        let capabilities = u32::from_le_bytes(*self.body.first_chunk()?);
        let is_login = (1..=2).contains(&self.number)
            && self.len >= LOGIN_FIXED_LEN
            && self.body.get(9..28)?.iter().all(|&byte| byte == 0)
            && capabilities & capability::PROTOCOL_41 != 0;
        is_login.then_some(capabilities)
    }

    /// The number of an error, if it is one.
    pub fn error(&self) -> Option<u16> {
        match self.body {
            [ERR, low, high, ..] => Some(u16::from_le_bytes([*low, *high])),
            _ => None,
        }
    }

    /// The status in an OK packet, or in an EOF; 0 if it was not captured.
    pub fn status(&self) -> u16 {
        let rest = if self.len <= EOF_LEN && self.first() == Some(EOF) {
            self.body.get(3..)
        } else {
            let affected = self.body.get(1..).and_then(skip_number);
            affected.and_then(skip_number)
        };
        rest.and_then(|rest| rest.first_chunk())
            .map_or(0, |bytes| u16::from_le_bytes(*bytes))
    }

    /// The columns of a result that begins with this packet, and whether they are described.
    pub fn columns(&self) -> Option<(u64, bool)> {
        let (count, rest) = number(self.body)?;
        let is_header = count > 0 && self.body.len() == self.len;
        match rest {
            [] if is_header => Some((count, true)),
            [follow @ 0..=1] if is_header => Some((count, *follow == 1)), // MariaDB's cached metadata
            _ => None,
        }
    }

    /// Whether the server asks for the rest of a request: for a file, or for another proof of who logs in. Only where a
    /// result may begin.
    pub fn asks_for_more(&self) -> bool {
        match self.body {
            [INFILE, ..] => true,
            [EOF, ..] => self.len > EOF_LEN && self.columns().is_none(),
            [MORE_PROOF, ENOUGH] => false,
            [MORE_PROOF, _, ..] => self.columns().is_none(),
            _ => false,
        }
    }

    /// Of the answer to a PREPARE: the statement's id, and the columns and parameters that are described after it.
    pub fn statement_parts(&self) -> Option<StatementParts> {
        let &[OK, i0, i1, i2, i3, c0, c1, p0, p1, 0, _, _] = self.body else {
            return None;
        };
        // An OK packet as long would have no status here, and a text of five letters.
        (self.len == self.body.len() && [i2, i3] == [0, 0]).then_some(StatementParts {
            statement: u32::from_le_bytes([i0, i1, i2, i3]),
            columns: u16::from_le_bytes([c0, c1]),
            parameters: u16::from_le_bytes([p0, p1]),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementParts {
    pub statement: u32,
    pub columns: u16,
    pub parameters: u16,
}

/// A number of variable length, and what follows it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let len = match first {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        INFILE | ERR => return None,
        small => return Some((small.into(), rest)),
    };
    let (digits, rest) = rest.split_at_checked(len)?;
    let value = digits
        .iter()
        .rev()
        .fold(0, |value, &digit| value << 8 | u64::from(digit));
    Some((value, rest))
}

fn skip_number(bytes: &[u8]) -> Option<&[u8]> {
    number(bytes).map(|(_, rest)| rest)
}

/// Consecutive packets at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub count: usize,
    /// The last one ends where the payload does.
    pub ends_with_payload: bool,
}

/// The packets, numbered one after the other, that a payload begins with.
///
/// Arguments: `wire_len`, how long the payload was before it was cut; `most`, how many packets are read at most.
pub fn chain(payload: &[u8], wire_len: usize, most: usize) -> Option<Chain> {
    let (mut at, mut count) = (0, 0);
    while count < most
        && let Some(packet) = payload.get(at..).and_then(Packet::parse)
    {
        if payload[3].wrapping_add(count as u8) != packet.number {
            return None;
        }
        count += 1;
        at += HEADER_LEN + packet.len;
    }
    (count > 0).then_some(Chain {
        count,
        ends_with_payload: at == wire_len,
    })
}
