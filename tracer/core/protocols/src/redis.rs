//! Redis (RESP 2 and 3): recognises the commands after which the server sends without a request, or answers only when
//! another client acts.
//!
//! | read | reach |
//! |---|---|
//! | `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `MONITOR`, `SYNC`, `PSYNC` | the rest of the connection |
//! | `BLPOP` and its like; `XREAD` and `XREADGROUP` with `BLOCK` | the answer to that command |
//!
//! Commands are searched where a payload begins, and after each command that is whole (pipelining).
//!
//! Limits: a command whose words are cut by two segments; inline commands; a connection that unsubscribes from
//! everything and goes on with requests.
//!
//! Source: Redis' RESP specification and command reference.

use std::ops::Range;

use crate::excerpt::{Emit, Excerpt, Keeper, Payload};
use crate::exchanges::Exchanges;
use crate::head::Head;
use crate::marks::{STREAM_MARK, mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    head_kinds: &[STREAM_MARK],
    begins: |start, from_client| from_client && Words::of(start).is_some(),
    exchanges: Exchanges::Streams,
    keep,
    read,
    first_bytes: b"*",
    fixed_bytes: &[b"*?\r\n$?\r\n", b"*?\r\n$??\r\n"],
    fixed_words_len: waits_len,
    docs: Docs {
        reads: "`SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `MONITOR`, `SYNC`, `PSYNC`; `BLPOP` and its like; `XREAD` and \
                `XREADGROUP` with `BLOCK`",
        agent_keeps: "the lengths before a command's first word, and the word itself if it is one of these",
        overwrites: "the arguments of `AUTH`",
    },
    ..Protocol::with_name(NAME)
};

const NAME: &str = "redis";
/// Commands after which Redis sends without a request.
const SUBSCRIBING: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"SYNC",
    b"PSYNC",
];
/// Commands that Redis answers when another client adds an element.
const BLOCKING: &[&[u8]] = &[
    b"BLPOP",
    b"BRPOP",
    b"BRPOPLPUSH",
    b"BLMOVE",
    b"BLMPOP",
    b"BZPOPMIN",
    b"BZPOPMAX",
    b"BZMPOP",
];
/// Commands that block if the word `BLOCK` is among their first arguments.
const MAY_BLOCK: &[&[u8]] = &[b"XREAD", b"XREADGROUP"];
/// Words among which `BLOCK` is searched: `XREADGROUP GROUP group consumer COUNT n BLOCK`.
const BLOCK_WITHIN: usize = 7;
/// Commands of one payload that are inspected, at most.
const COMMAND_LIMIT: usize = 1024;
/// Longest number of a RESP header.
const DIGITS_LIMIT: usize = 10;

/// Keep the headers and the word of each marked command, and `BLOCK` if that is what marks it.
fn keep(payload: &Payload<'_>, keeper: &mut Keeper<'_>) -> bool {
    let mut at = 0;
    for _ in 0..COMMAND_LIMIT {
        let command = &payload.bytes[at..];
        let Some(words) = Words::of(command) else { break };
        if let Some(found) = find_mark(words).filter(|_| keeper.has_room()) {
            let stream_len = command.len() as u32;
            keeper.keep(command, at, &[0..found.word_end, found.block], stream_len);
        }
        let Some(len) = words.end() else { break };
        at += len;
    }
    false // its first bytes show the software
}

fn read(excerpt: &Excerpt<'_>, emit: Emit<'_>) {
    if let Some(found) = Words::of(excerpt.bytes).and_then(find_mark) {
        emit(0, &found.head);
    }
}

struct MarkedCommand {
    head: Head<'static>,
    /// Offset at which the command's first word ends, and the range of the word `BLOCK`.
    word_end: usize,
    block: Range<usize>,
}

fn find_mark(mut words: Words<'_>) -> Option<MarkedCommand> {
    let verb = words.next()?;
    let word_end = words.at.min(words.payload.len());
    let known = |verbs: &'static [&'static [u8]]| verbs.iter().find(|known| known.eq_ignore_ascii_case(verb));
    let found = |verb, reach, block| MarkedCommand {
        head: mark(verb, NAME, reach),
        word_end,
        block,
    };
    if let Some(verb) = known(SUBSCRIBING) {
        return Some(found(verb, reach::REST, word_end..word_end));
    }
    if let Some(verb) = known(BLOCKING) {
        return Some(found(verb, reach::ANSWER, word_end..word_end));
    }
    let verb = known(MAY_BLOCK)?;
    for _ in 0..BLOCK_WITHIN {
        let start = words.at;
        if words.next()?.eq_ignore_ascii_case(b"BLOCK") {
            return Some(found(verb, reach::ANSWER, start..words.at.min(words.payload.len())));
        }
    }
    None
}

/// The words of a command, as far as they are in the payload.
#[derive(Clone, Copy)]
struct Words<'a> {
    payload: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Words<'a> {
    /// The words of the command at the start of `payload`.
    fn of(payload: &'a [u8]) -> Option<Self> {
        let (left, at) = header_number(payload, 0, b'*')?;
        Some(Self { payload, at, left })
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (len, begin) = header_number(self.payload, self.at, b'$')?;
        let end = begin.checked_add(len)?;
        let word = self.payload.get(begin..end)?;
        self.at = end.checked_add(2)?;
        Some(word)
    }

    /// Offset at which the command ends; `None` if it is not complete.
    fn end(mut self) -> Option<usize> {
        while self.left > 0 {
            self.next()?;
        }
        (self.at <= self.payload.len()).then_some(self.at)
    }
}

/// The number of a header such as `*3\r\n`, and where it ends.
fn header_number(payload: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let rest = payload.get(at..)?.strip_prefix(&[kind])?;
    let digits = rest
        .iter()
        .take(DIGITS_LIMIT)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let is_whole = digits > 0 && rest.get(digits..digits + 2) == Some(b"\r\n");
    let number = rest[..digits]
        .iter()
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    is_whole.then_some((number, at + 1 + digits + 2))
}

/// Length of the word after a command's headers, if it is a command that subscribes or blocks.
fn waits_len(command: &[u8]) -> usize {
    let is = |verb: &&&[u8]| {
        let (word, rest) = command.split_at(command.len().min(verb.len()));
        word.eq_ignore_ascii_case(verb) && rest.starts_with(b"\r\n")
    };
    SUBSCRIBING
        .iter()
        .chain(BLOCKING)
        .find(is)
        .map_or(0, |verb| verb.len() + 2)
}
