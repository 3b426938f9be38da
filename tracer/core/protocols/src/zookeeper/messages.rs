//! The beginnings of messages.
//!
//! ```text
//! length  number  type    path              a request
//! length  0       zxid    timeout  id  key  what opens a session
//! length  number  zxid    error             an answer
//! length  0       timeout id  key           the answer to what opened it
//! ```

use super::errors;
use super::operations::{self, Body, Operation};
use crate::results::{SAYS_NOTHING, SUCCESS};
use crate::sized_messages::{LENGTH_LEN, length_of};

/// Length, number, type.
pub(super) const REQUEST_LEN: usize = 12;
/// Those of a request with a path, the path's length, and its first byte.
const PATH_BEGUN: usize = REQUEST_LEN + LENGTH_LEN + 1;
/// Length, number, zxid, error.
pub(super) const ANSWER_LEN: usize = 20;
pub(super) const LENGTH_AND_NUMBER: usize = 8;
/// What opens a session, up to how long it may be silent: what is behind is its id and password.
pub(super) const CONNECT_LEN: usize = 20;
/// Bytes of what opens a session and of its answer, without a last byte that older versions have not.
const CONNECT_WHOLE: usize = 48;
const CONNECT_ANSWER_WHOLE: usize = 40;
const PASSWORD_LEN: i32 = 16;
/// Longest path that is read.
const PATH_LIMIT: usize = 2048;
/// Longest silence of a session: a day, in milliseconds.
const SILENCE_LIMIT: i32 = 86_400_000;

/// Numbers that are no request's own: of notifications, of pings; lowest of all.
const NOTIFICATION: i32 = -1;
const PING: i32 = -2;
const LOWEST: i32 = -8;
/// The number of what opens a session, which has none.
pub(super) const CONNECT_NUMBER: i64 = 1 << 32;

/// A message's number without its sign.
fn number_of(number: i32) -> i64 {
    number.cast_unsigned().into()
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i32::from_be_bytes(*bytes))
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(i64::from_be_bytes(*bytes))
}

/// A request, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub number: i64,
    /// `None` for a ping.
    pub operation: Option<&'static Operation>,
    /// Empty if it has none, or was cut.
    pub path: &'a [u8],
    /// No other protocol has the like: a path, a ping, or what opens a session.
    pub is_sure: bool,
    /// All that is read of it was captured.
    pub is_whole: bool,
}

impl<'a> Request<'a> {
    /// `None` if ZooKeeper has none like it.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let length = length_of(message)? as usize;
        let (number, kind) = (int(message, 4)?, int(message, 8)?);
        if is_connect(message, length) {
            return Some(Self {
                number: CONNECT_NUMBER,
                operation: Some(operations::connect()),
                path: b"",
                is_sure: true,
                is_whole: true,
            });
        }
        if number == PING || operations::is_ping(kind) {
            let is_ping = number == PING && operations::is_ping(kind) && length == REQUEST_LEN - LENGTH_LEN;
            return is_ping.then_some(Self {
                number: number_of(number),
                operation: None,
                path: b"",
                is_sure: true,
                is_whole: true,
            });
        }
        let operation = operations::find(kind)?;
        (number >= LOWEST && number != NOTIFICATION && length >= REQUEST_LEN - LENGTH_LEN).then_some(())?;
        let (path, is_whole) = match operation.body {
            Body::Path => path_of(message, length)?,
            _ => (&b""[..], true),
        };
        Some(Self {
            number: number_of(number),
            operation: Some(operation),
            path,
            is_sure: operation.body == Body::Path && message.len() >= PATH_BEGUN,
            is_whole,
        })
    }

    /// Bytes of its header, which have no secret: of a path the length, and the slash that it begins with.
    pub fn header_len(&self) -> usize {
        match self.operation {
            Some(operation) if operation.kind == operations::CONNECT => CONNECT_LEN,
            Some(operation) if operation.body == Body::Path && self.is_whole => PATH_BEGUN,
            _ => REQUEST_LEN,
        }
    }

    /// Bytes that are read.
    pub fn read_len(&self) -> usize {
        match self.path.len() {
            0 => self.header_len(),
            len => REQUEST_LEN + LENGTH_LEN + len,
        }
    }
}

/// Whether a message opens a session, as far as it was captured.
fn is_connect(message: &[u8], length: usize) -> bool {
    let has_length = (CONNECT_WHOLE..=CONNECT_WHOLE + 1).contains(&(length + LENGTH_LEN));
    let may_be_silent = int(message, 16).is_some_and(|most| (1..=SILENCE_LIMIT).contains(&most));
    let key_len = int(message, 28).is_none_or(|len| len == PASSWORD_LEN || len == 0);
    has_length
        && int(message, 4) == Some(0)
        && long(message, 8).is_some_and(|seen| seen >= 0)
        && may_be_silent
        && key_len
}

/// The path behind a request's header, and whether all of it was captured; `None` if there is none.
fn path_of(message: &[u8], length: usize) -> Option<(&[u8], bool)> {
    let Some(len) = int(message, REQUEST_LEN) else {
        return Some((b"", false));
    };
    let len = usize::try_from(len).ok()?;
    let fits = (1..=PATH_LIMIT).contains(&len) && REQUEST_LEN + len <= length;
    fits.then_some(())?;
    let start = REQUEST_LEN + LENGTH_LEN;
    let path = &message[start..message.len().min(start + len)];
    let is_path = path.first().is_none_or(|first| *first == b'/') && !path.contains(&0);
    is_path.then_some(())?;
    match path.len() == len {
        true => Some((path, true)),
        false => Some((b"", false)),
    }
}

/// How many bytes of a request are wanted, as far as those that are there show it.
pub(super) fn wanted_len(message: &[u8]) -> usize {
    let Some(kind) = int(message, 8) else {
        return REQUEST_LEN;
    };
    let opens = int(message, 4) == Some(0);
    match operations::find(kind).filter(|_| !opens) {
        _ if opens => CONNECT_LEN,
        Some(operation) if operation.body == Body::Path => match int(message, REQUEST_LEN) {
            Some(len) => REQUEST_LEN + LENGTH_LEN + (len.max(0) as usize).min(PATH_LIMIT),
            None => REQUEST_LEN + LENGTH_LEN,
        },
        _ => REQUEST_LEN,
    }
}

/// How many bytes of an answer are wanted.
pub(super) fn answer_wanted_len(message: &[u8]) -> usize {
    match opens(message) {
        true => LENGTH_AND_NUMBER,
        false => ANSWER_LEN,
    }
}

/// Whether a message is the answer to what opens a session, as far as it was captured.
fn opens(message: &[u8]) -> bool {
    let whole = length_of(message).unwrap_or(0) as usize + LENGTH_LEN;
    let key_len = int(message, 20).is_none_or(|len| len == PASSWORD_LEN || len == 0);
    (CONNECT_ANSWER_WHOLE..=CONNECT_ANSWER_WHOLE + 1).contains(&whole) && int(message, 4) == Some(0) && key_len
}

/// An answer, as far as it was captured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub number: i64,
    pub result: i32,
    /// It answers no request.
    pub is_aside: bool,
}

impl Answer {
    /// `None` if ZooKeeper has none like it.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let length = length_of(message)? as usize;
        let whole = length + LENGTH_LEN;
        let number = int(message, 4)?;
        if opens(message) {
            return Some(Self {
                number: CONNECT_NUMBER,
                result: SAYS_NOTHING,
                is_aside: false,
            });
        }
        let result = match int(message, ANSWER_LEN - 4) {
            Some(error) => errors::result_of(error)?,
            None => SAYS_NOTHING,
        };
        let is_aside = [NOTIFICATION, PING].contains(&number);
        let is_valid = number >= LOWEST && whole >= ANSWER_LEN && (!is_aside || result <= SUCCESS);
        is_valid.then_some(Self {
            number: number_of(number),
            result,
            is_aside,
        })
    }
}
