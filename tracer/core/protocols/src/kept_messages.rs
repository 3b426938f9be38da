//! Excerpts of messages that a scanner found: the first bytes of one, by which a connection is recognised, then what was
//! read of it.
//!
//! ```text
//! *1\r\n$3\r\nSET\r\n   00 0000002c 00 03 SET user:*       a request: flags, length, reach, name, shape of its first key
//! -WRONGTYPE\r\n        00 0000002c 00000002              an answer: flags, length, result code
//! ```
//! The first bytes are written anew from what was read, so that no value is among them.

use crate::excerpt::{Emit, Excerpt, Keeper};
use crate::exchanges::flag;
use crate::head::{Head, HeadKind};
use crate::marks::{mark, reach};
use crate::protocol::{OnMessage, ReadFrame};

/// Flags and length.
const FIXED_LEN: usize = 5;

/// A protocol's kinds of rows, and its words.
#[derive(Debug)]
pub(crate) struct Kinds {
    pub request: HeadKind,
    pub answer: HeadKind,
    pub protocol: &'static str,
    /// The word that marks requests without answers.
    pub no_answer: &'static [u8],
    /// Whether an excerpt with these first bytes is of a request.
    pub is_request: fn(&[u8]) -> bool,
}

/// Writes excerpts, in buffers that are reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    /// The first bytes.
    pub solid: Vec<u8>,
    said: Vec<u8>,
}

impl Writer {
    /// Pass a request on, whose first bytes are written. Arguments: `start`, its place; `reach` of the mark that its name
    /// is, 0 if none.
    pub fn pass_request(
        &mut self,
        (flags, len): (u8, Option<u64>),
        start: i64,
        reach: u16,
        name: &[u8],
        shape: &[u8],
        found: OnMessage<'_>,
    ) {
        self.said.clear();
        self.said.extend_from_slice(&flags_and_len(flags, len));
        self.said.extend_from_slice(&[reach as u8, name.len() as u8]);
        self.said.extend_from_slice(name);
        self.said.extend_from_slice(shape);
        self.pass(start, found);
    }

    /// Pass an answer on, whose first bytes are written.
    pub fn pass_answer(&mut self, (flags, len): (u8, Option<u64>), start: i64, code: i32, found: OnMessage<'_>) {
        self.said.clear();
        self.said.extend_from_slice(&flags_and_len(flags, len));
        self.said.extend_from_slice(&code.to_be_bytes());
        self.pass(start, found);
    }

    fn pass(&self, start: i64, found: OnMessage<'_>) {
        found(&ReadFrame {
            header: &self.solid,
            at: start as i32,
            said: &self.said,
        });
    }
}

/// Flags and length of an excerpt, behind the first bytes. Arguments: the message's length, if it is known.
#[inline]
fn flags_and_len(flags: u8, len: Option<u64>) -> [u8; FIXED_LEN] {
    let len = len.and_then(|len| u32::try_from(len).ok());
    let cut = if len.is_none() { flag::CUT } else { 0 };
    let [a, b, c, d] = len.unwrap_or(0).to_be_bytes();
    [flags | cut, a, b, c, d]
}

/// Keep an excerpt.
pub(crate) fn keep(read: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
    if !keeper.has_room() {
        keeper.notes.left_out();
        return;
    }
    let (frame, protocol) = (keeper.frame, keeper.protocol);
    keeper
        .excerpts
        .push_parts(frame, read.at, protocol, [read.header, read.said]);
}

/// Read the messages of an excerpt: a request or an answer, and the mark of a request.
pub(crate) fn read(kinds: &Kinds, excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    let solid_len = (excerpt.stream_len as usize).min(excerpt.bytes.len());
    let (solid, said) = excerpt.bytes.split_at(solid_len);
    let Some((&[flags, len @ ..], said)) = said.split_first_chunk::<FIXED_LEN>() else {
        return;
    };
    let is_request = (kinds.is_request)(solid);
    let head = Head {
        flags,
        len: u32::from_be_bytes(len),
        content_length: if flags & flag::CUT == 0 { 0 } else { -1 },
        ..Head::empty(if is_request { kinds.request } else { kinds.answer })
    };
    if !is_request {
        let result_code = said
            .first_chunk()
            .map_or(head.result_code, |code| i32::from_be_bytes(*code));
        emit(0, &Head { result_code, ..head });
    } else if let [own_reach, name_len, text @ ..] = said {
        let (method, target) = text.split_at(text.len().min(usize::from(*name_len)));
        emit(0, &Head { method, target, ..head });
        if flags & flag::NO_ANSWER != 0 {
            emit(0, &mark(kinds.no_answer, kinds.protocol, reach::ANSWER));
        }
        if *own_reach > 0 {
            emit(0, &mark(method, kinds.protocol, (*own_reach).into()));
        }
    }
}
