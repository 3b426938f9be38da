//! The header of a request, and what is read of its body.
//!
//! ```text
//! 0000002b 0012 0004 00000001 000a producer-1 …   length, kind, version, number, who asks
//! ```
//! Source: Kafka's protocol guide, "Headers", "Protocol Primitive Types".

use super::apis::{self, Api};
use crate::sized_messages::{LENGTH_LEN, length_of};

/// Length, kind, version and number.
pub(super) const HEADER_LEN: usize = LENGTH_LEN + 2 + 2 + 4;
/// Bytes of a request that are wanted at most: the header with a client's name, a transaction's name and a topic, each of
/// 255 bytes.
const WANTED_MOST: usize = 800;
/// So many more bytes are wanted of a request of which those that are there do not show where its first topic ends.
const WANTED_MORE: usize = 64;
/// Longest name of a client, a transaction or a topic that is taken for one.
const NAME_LIMIT: usize = 255;
/// First version of `Produce` with a transaction's id, with compact texts, and with ids in place of topics' names.
const PRODUCE_TRANSACTION: u16 = 3;
const PRODUCE_COMPACT: u16 = 9;
const PRODUCE_TOPIC_IDS: u16 = 13;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// The number of its kind.
    pub kind: u16,
    pub api: &'static Api,
    version: u16,
    /// The number that its answer has, too.
    pub id: i32,
    /// Empty if it has none, or was not captured to its end.
    pub client: &'a [u8],
    is_client_cut: bool,
    /// What was captured of the rest.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// Read the beginning of a request; `None` if Kafka has none like it.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(message);
        rest.take(LENGTH_LEN)?;
        let (kind, version, id) = (rest.u16()?, rest.u16()?, rest.i32()?);
        let api = apis::find(kind, version)?;
        (id >= 0).then_some(())?;
        let client = rest.nullable_text();
        Some(Self {
            kind,
            api,
            version,
            id,
            client: client.unwrap_or_default(),
            is_client_cut: client.is_none(),
            body: rest.0,
        })
    }

    /// Bytes of its header, up to the end of its client's name if that is there. Arguments: what it was read from.
    pub fn head_len(&self, message: &[u8]) -> usize {
        match self.is_client_cut {
            true => HEADER_LEN,
            false => message.len() - self.body.len(),
        }
    }

    /// What is read of a `Produce`; `None` if it is another request, or cut.
    pub fn produce(&self) -> Option<Produce<'a>> {
        (self.kind == apis::PRODUCE).then_some(())?;
        let mut rest = Cursor(self.body);
        let acks = rest.acks(self.version)?;
        let topic = rest.first_topic(self.version)?;
        Some(Produce {
            is_answered: acks != 0,
            topic,
            len: self.body.len() - rest.0.len(),
        })
    }
}

/// What is read of the body of a `Produce`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Produce<'a> {
    pub is_answered: bool,
    /// The first topic; empty if it is not named.
    pub topic: &'a [u8],
    /// Bytes up to its end.
    len: usize,
}

/// Bytes of a request that are read: up to the end of its client's name, of a `Produce` up to that of its first topic; the
/// header alone if what follows it is no name. `None` if that is not known without more of it.
pub(super) fn read_len(message: &[u8]) -> Option<usize> {
    let is_whole = length_of(message).is_some_and(|length| message.len() >= LENGTH_LEN + length as usize);
    let cannot_grow = is_whole || message.len() >= WANTED_MOST;
    let request = Request::parse(message)?;
    if request.is_client_cut {
        return cannot_grow.then_some(HEADER_LEN);
    }
    let head_len = request.head_len(message);
    match request.produce() {
        Some(produce) => Some(head_len + produce.len),
        None if request.kind == apis::PRODUCE && !cannot_grow => None,
        None => Some(head_len),
    }
}

/// How many bytes of a request are wanted, as far as those that are there show it.
pub(super) fn wanted_len(message: &[u8]) -> usize {
    match Request::parse(message) {
        _ if message.len() < HEADER_LEN + 2 => HEADER_LEN + 2,
        None => message.len(),
        Some(_) => read_len(message).unwrap_or(message.len() + WANTED_MORE),
    }
}

/// Whether a payload begins with a request that no other protocol sends: its kind, its version and who asks fit.
pub(super) fn is_sure(message: &[u8]) -> bool {
    let length = length_of(message).unwrap_or(0) as usize;
    Request::parse(message)
        .is_some_and(|request| !request.is_client_cut && length + LENGTH_LEN >= HEADER_LEN + 2 + request.client.len())
        && is_sure_beginning(message)
}

/// The same of a request of which the first bytes are there.
pub(super) fn is_sure_beginning(message: &[u8]) -> bool {
    let Some((&[high, low], rest)) = message.get(HEADER_LEN..).and_then(<[u8]>::split_first_chunk) else {
        return false;
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let name = &rest[..rest.len().min(len)];
    let is_name =
        (1..=NAME_LIMIT).contains(&len) && !name.is_empty() && name.iter().all(|byte| matches!(byte, b' '..=b'~'));
    Request::parse(message).is_some() && (is_name || [high, low] == [0xff; 2])
}

/// Bytes that are read one value after the other, the highest byte of a number first.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        self.take(LEN)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned number of 7 bits a byte, the lowest first.
    fn varint(&mut self) -> Option<u32> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let [byte] = self.array()?;
            number |= u32::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    /// A text with its length before it; nothing if that is -1.
    fn nullable_text(&mut self) -> Option<&'a [u8]> {
        match self.u16()? {
            u16::MAX => Some(b""),
            len if usize::from(len) > NAME_LIMIT => None,
            len => self.take(len.into()),
        }
    }

    /// A text with its length and one more before it; nothing if that is 0.
    fn compact_text(&mut self) -> Option<&'a [u8]> {
        match self.varint()? {
            0 => Some(b""),
            len if len as usize - 1 > NAME_LIMIT => None,
            len => self.take(len as usize - 1),
        }
    }

    /// Of the body of a `Produce`, how many replicas its client awaits.
    fn acks(&mut self, version: u16) -> Option<u16> {
        match version {
            PRODUCE_COMPACT.. => {
                (self.varint()? == 0).then_some(())?; // tagged fields of the header: there are none
                self.compact_text()?;
            }
            PRODUCE_TRANSACTION.. => drop(self.nullable_text()?),
            _ => {}
        }
        self.u16()
    }

    /// The first topic, behind that; nothing if it is not named.
    fn first_topic(&mut self, version: u16) -> Option<&'a [u8]> {
        if version >= PRODUCE_TOPIC_IDS {
            return Some(b"");
        }
        self.i32()?; // how long the broker may take
        let count = match version {
            PRODUCE_COMPACT.. => i64::from(self.varint()?) - 1,
            _ => i64::from(self.i32()?),
        };
        match version {
            _ if count < 1 => Some(b""),
            PRODUCE_COMPACT.. => self.compact_text(),
            _ => self.nullable_text(),
        }
    }
}
