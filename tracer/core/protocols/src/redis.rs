//! Redis (RESP 2 and 3): of its commands those after which the server speaks unasked, or answers when another client
//! lets it.
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

use crate::head::Head;
use crate::marks::{mark, reach};
use crate::protocol::{Docs, Protocol};

pub const PROTOCOL: Protocol = Protocol {
    find_marks,
    first_bytes: b"*",
    fixed_bytes: &[b"*?\r\n$?\r\n", b"*?\r\n$??\r\n"],
    fixed_words_len: waits_len,
    docs: Docs {
        reads: "`SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `MONITOR`, `SYNC`, `PSYNC`; `BLPOP` and its like; `XREAD` and \
                `XREADGROUP` with `BLOCK`",
        agent_keeps: "the lengths before a command's first word, and the word itself if it is one of these",
        overwrites: "the arguments of `AUTH`",
    },
    ..Protocol::named(NAME)
};

const NAME: &str = "redis";
/// Commands after which Redis speaks unasked.
const PUSHED: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"SYNC",
    b"PSYNC",
];
/// Commands that Redis answers when another client gives it something.
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
/// Likewise, where the word `BLOCK` is among the first arguments.
const MAY_BLOCK: &[&[u8]] = &[b"XREAD", b"XREADGROUP"];
/// `XREADGROUP GROUP group consumer COUNT n BLOCK`: no later.
const BLOCK_WITHIN: usize = 7;
/// Most commands of one payload that are looked at.
const COMMAND_LIMIT: usize = 1024;
/// Longest number of a RESP header.
const DIGITS_LIMIT: usize = 10;

/// Call `note` with each command of a payload that is marked.
fn find_marks(payload: &[u8], _wire_len: usize, note: &mut dyn FnMut(usize, Head<'static>)) {
    let mut at = 0;
    for _ in 0..COMMAND_LIMIT {
        let Some((words_count, begin)) = counted(payload, at, b'*') else {
            return;
        };
        let mut words = Words {
            payload,
            at: begin,
            left: words_count,
        };
        let Some(verb) = words.next() else {
            return;
        };
        if let Some(found) = mark_of(verb, words) {
            note(at, found);
        }
        let Some(end) = words.end() else {
            return;
        };
        at = end;
    }
}

fn mark_of(verb: &[u8], mut arguments: Words<'_>) -> Option<Head<'static>> {
    let known = |verbs: &'static [&'static [u8]]| verbs.iter().find(|known| known.eq_ignore_ascii_case(verb));
    if let Some(verb) = known(PUSHED) {
        return Some(mark(verb, NAME, reach::REST));
    }
    if let Some(verb) = known(BLOCKING) {
        return Some(mark(verb, NAME, reach::ANSWER));
    }
    let verb = known(MAY_BLOCK)?;
    let blocks = (0..BLOCK_WITHIN)
        .map_while(|_| arguments.next())
        .any(|word| word.eq_ignore_ascii_case(b"BLOCK"));
    blocks.then(|| mark(verb, NAME, reach::ANSWER))
}

/// The words of a command, as far as they are in the payload.
#[derive(Clone, Copy)]
struct Words<'a> {
    payload: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (len, begin) = counted(self.payload, self.at, b'$')?;
        let end = begin.checked_add(len)?;
        let word = self.payload.get(begin..end)?;
        self.at = end.checked_add(2)?;
        Some(word)
    }

    /// Where the command ends; `None` if it is not whole.
    fn end(mut self) -> Option<usize> {
        while self.left > 0 {
            self.next()?;
        }
        (self.at <= self.payload.len()).then_some(self.at)
    }
}

/// The number of a header such as `*3\r\n`, and where it ends.
fn counted(payload: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
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

/// Behind a command's headers: how long its word is, if it is one after which others are waited for.
fn waits_len(command: &[u8]) -> usize {
    let is = |verb: &&&[u8]| {
        let (word, rest) = command.split_at(command.len().min(verb.len()));
        word.eq_ignore_ascii_case(verb) && rest.starts_with(b"\r\n")
    };
    PUSHED.iter().chain(BLOCKING).find(is).map_or(0, |verb| verb.len() + 2)
}
