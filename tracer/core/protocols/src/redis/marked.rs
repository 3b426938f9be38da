//! Commands that begin a stream, or wait for other clients.

use crate::marks::reach;

/// Commands after which Redis sends without a request.
const SUBSCRIBING: &[&[u8]] = &[b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE", b"MONITOR"];
/// Commands after which the connection carries a replica's copy of the data, in no known form.
const COPYING: &[&[u8]] = &[b"SYNC", b"PSYNC"];
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
/// What a command marks as a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    None,
    /// The rest of the connection.
    Rest,
    /// Its answer.
    Answer,
    /// The rest of the connection, which cannot be read.
    Ends,
}

impl Mark {
    pub fn of_command(name: &[u8]) -> Self {
        let is_one_of = |names: &[&[u8]]| names.contains(&name);
        match name.first() {
            Some(b'B') if is_one_of(BLOCKING) => Self::Answer,
            Some(b'S' | b'P' | b'M') if is_one_of(SUBSCRIBING) => Self::Rest,
            Some(b'S' | b'P') if is_one_of(COPYING) => Self::Ends,
            _ => Self::None,
        }
    }

    /// The reach of the mark that a command is, as the column `status` has it; 0 if it is none.
    pub fn reach(self, name: &[u8]) -> u16 {
        match self {
            Self::None => 0,
            Self::Answer => reach::ANSWER,
            Self::Ends if name.starts_with(b"REPLCONF") => reach::CONNECTION,
            Self::Rest | Self::Ends => reach::REST,
        }
    }
}

/// Length of the word after a command's headers, if it is a command that subscribes or blocks.
pub(super) fn waits_len(command: &[u8]) -> usize {
    let is = |verb: &&&[u8]| {
        let (word, rest) = command.split_at(command.len().min(verb.len()));
        word.eq_ignore_ascii_case(verb) && rest.starts_with(b"\r\n")
    };
    let all = SUBSCRIBING.iter().chain(COPYING).chain(BLOCKING);
    all.clone().find(is).map_or(0, |verb| verb.len() + 2)
}
