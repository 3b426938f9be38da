//! Messages of protocols whose answers come in the order of requests, where a request and an answer may each consist of
//! several messages: SQL's.
//!
//! Only messages that begin, name or end something become rows of `messages`; a bit of `head_flags` says which
//! ([`flag`]). A module's reader sets them as it follows a direction.

use crate::excerpt::{Excerpt, Keeper};
use crate::exchanges::{MessageFields, Order, Role};
use crate::head::{FrameId, Head, HeadKind};
use crate::protocol::ReadFrame;

/// Bits of the column `head_flags`. None is that of HTTP's cut head, 0x10, which lies in the same column.
pub mod flag {
    /// A request begins.
    pub const REQUEST: u8 = 0x01;
    /// An answer begins.
    pub const ANSWER: u8 = 0x02;
    /// It belongs to no exchange: the exchange before it has ended.
    pub const ASIDE: u8 = 0x04;
    /// The answer ends with it.
    pub const END: u8 = 0x08;
    /// Of a client: its text names the request that began before it.
    pub const NAME: u8 = 0x20;
    /// Of a server: it asks for the rest of the request, which the client sends only then.
    pub const CONTINUE: u8 = 0x20;
    /// Messages may be missing before it.
    pub const GAP: u8 = 0x40;
    /// Its text is a prepared statement's. In an answer: `stream_id` is the number that the server gave to the statement
    /// of the request; a request with such a number executes it.
    pub const STATEMENT: u8 = 0x80;
}

pub const ORDER: Order = Order {
    role,
    is_bodiless: |_| false,
    follows: true,
    is_after_gap: |message| message.flags & flag::GAP != 0,
    is_end: |message| message.flags & flag::END != 0,
    is_seamless: false,
};

fn role(message: &MessageFields, from_client: bool) -> Option<Role> {
    let has = |bit: u8| message.flags & bit != 0;
    match from_client {
        true if has(flag::REQUEST) => Some(Role::Request),
        true if has(flag::NAME) => Some(Role::Name),
        false if has(flag::ANSWER) => Some(Role::Response),
        false if has(flag::CONTINUE) => Some(Role::Continue),
        false if has(flag::END) || message.has_result => Some(Role::Detail),
        _ if has(flag::ASIDE) => Some(Role::Aside),
        _ => None,
    }
}

/// What a reader says of a message; what is empty is not said.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub flags: u8,
    /// -1 if nothing is said of it, -2 if it cannot be known.
    pub result_code: i32,
    /// The number of a prepared statement; -1 if none.
    pub stream: i64,
    pub verb: &'a [u8],
    pub rest: &'a [u8],
}

const FIXED_LEN: usize = 1 + 4 + 8 + 1;

impl Row<'_> {
    /// Append it to what a reader says of a frame.
    pub fn say(&self, said: &mut Vec<u8>) {
        said.push(self.flags);
        said.extend_from_slice(&self.result_code.to_be_bytes());
        said.extend_from_slice(&self.stream.to_be_bytes());
        let verb = &self.verb[..self.verb.len().min(u8::MAX.into())];
        said.push(verb.len() as u8);
        said.extend_from_slice(verb);
        said.extend_from_slice(self.rest);
    }

    pub(crate) fn parse(said: &[u8]) -> Option<Row<'_>> {
        let (fixed, text) = said.split_first_chunk::<FIXED_LEN>()?;
        let &[flags, r0, r1, r2, r3, ref stream @ .., verb_len] = fixed;
        let (verb, rest) = text.split_at_checked(verb_len.into())?;
        Some(Row {
            flags,
            result_code: i32::from_be_bytes([r0, r1, r2, r3]),
            stream: i64::from_be_bytes(*stream),
            verb,
            rest,
        })
    }
}

/// Keep a frame of which its reader said something.
pub fn keep(frame: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
    if frame.said.is_empty() {
        return;
    }
    if !keeper.has_room() {
        keeper.notes.left_out();
        return;
    }
    let (number, protocol) = (keeper.frame, keeper.protocol);
    keeper.excerpts.bytes.bytes.extend_from_slice(frame.header);
    keeper
        .excerpts
        .push_frame(number, frame.at, protocol, frame.said, frame.header.len());
}

/// The message of an excerpt.
///
/// Arguments: `message`, of a frame's header, its type and its length.
pub fn head<'a>(
    excerpt: &Excerpt<'a>,
    kind: HeadKind,
    header_len: usize,
    message: fn(&[u8]) -> (u16, u32),
) -> Option<Head<'a>> {
    let (header, said) = excerpt.bytes.split_at_checked(header_len)?;
    let row = Row::parse(said)?;
    let (number, len) = message(header);
    Some(Head {
        flags: row.flags,
        len,
        method: row.verb,
        target: row.rest,
        result_code: row.result_code,
        frame: FrameId {
            kind: number,
            stream: row.stream,
        },
        ..Head::empty(kind)
    })
}
