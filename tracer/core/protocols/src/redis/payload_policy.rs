//! Keeps what names a Redis command and where messages end: lengths, commands' names, keys of which the digits are
//! masked, the words of errors; and overwrites everything else.
//!
//! | message | kept |
//! |---|---|
//! | command | all lengths; its name and subcommand; its first key, masked; `BLOCK`, `STREAMS` and numbers of keys; as a line of text, a name without arguments |
//! | answer | types and lengths of all values; the first word of an error |
//!
//! Of payloads that are kept whole, on the operator's demand, only the arguments of commands that hold secrets are
//! overwritten ([`overwrite_secrets`]).
//!
//! Limits: nothing is kept of a payload that begins within a message, nor of what lies beyond the inspected part of the
//! payload: the collector then knows that messages are missing. An answer whose first element is the name of a command
//! is taken for that command, and its second element for a key.

use std::ops::Range;

use super::client::{Kind, NAME_LIMIT, Words, begins};
use super::commands;
use super::errors;
use super::line::{Header, header};
use super::server;
use crate::kept_parts::{self, Part};

/// Commands whose arguments may be secrets; of the last ones all but the subcommand.
const SECRET: &[&[u8]] = &[
    b"AUTH",
    b"HELLO",
    b"MIGRATE",
    b"ACL SETUSER",
    b"CONFIG SET",
    b"SENTINEL SET",
];
/// Words of options that are kept.
const OPTIONS: &[&[u8]] = &[b"BLOCK", b"STREAMS", b"ON", b"OFF", b"SKIP"];

/// Bytes up to the end of the last part that is kept; 0 if there is none.
pub(super) fn kept_len(payload: &[u8], limit: usize) -> usize {
    kept_parts::end_of(&parts(&payload[..payload.len().min(limit)]))
}

/// Overwrite what is not kept.
pub(super) fn blank(captured: &mut [u8]) {
    let parts = parts(captured);
    kept_parts::blank(captured, &parts);
}

/// Offset of the first command, or the first value of an answer, that begins at or behind the payload's end; `None` if
/// the payload does not show it.
pub(super) fn next_head(payload: &[u8]) -> Option<usize> {
    let is_client = begins(payload);
    let (mut at, mut words_left) = (0, 0);
    while let Some(&kind) = payload.get(at) {
        let rest = &payload[at..];
        let may_come = match kind {
            _ if !is_client => true,
            b'$' => words_left > 0,
            b'*' => words_left <= 0,
            kind => words_left <= 0 && kind.is_ascii_alphabetic(),
        };
        if !may_come {
            return None;
        }
        if !b"$=!*%~>|".contains(&kind) {
            at += memchr::memchr(b'\n', rest)? + 1;
            continue;
        }
        let Header::Whole(number, len) = header(rest) else {
            return None;
        };
        at += len;
        if !b"$=!".contains(&kind) {
            words_left = number;
        } else if number >= 0 {
            at += number as usize + 2;
            words_left -= 1;
        }
    }
    (!is_client || words_left <= 0).then_some(at)
}

/// Overwrite the arguments of commands that hold secrets.
pub(super) fn overwrite_secrets(payload: &mut [u8]) {
    if !begins(payload) {
        return;
    }
    let mut secrets = Vec::new();
    let mut at = 0;
    while let Some(end) = visit_command(payload, at, &mut |words, kind, _, word| {
        let is_argument = matches!(kind, Kind::Value | Kind::Key | Kind::Option);
        if is_argument && SECRET.contains(&words.name()) {
            secrets.push(word);
        }
    }) {
        at = end;
    }
    secrets.into_iter().for_each(|word| payload[word].fill(b'x'));
}

fn parts(payload: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    if begins(payload) {
        let mut at = 0;
        loop {
            if let Some(end) = end_of_bare_name(payload, at) {
                parts.push(Part::AsIs(at..end));
                at = end;
                continue;
            }
            let end = visit_command(payload, at, &mut |words, kind, header, word| {
                parts.push(Part::AsIs(header));
                if is_kept(words, kind, &payload[word.clone()]) {
                    parts.push(if kind == Kind::Key {
                        Part::Key(word)
                    } else {
                        Part::AsIs(word)
                    });
                }
            });
            let Some(end) = end else { break };
            at = end;
        }
    } else if server::resumes(payload) {
        push_answers(payload, &mut parts);
    }
    parts
}

/// Where the line at `at` ends if it is a known command without arguments, sent as text.
fn end_of_bare_name(payload: &[u8], at: usize) -> Option<usize> {
    let rest = payload
        .get(at..)
        .filter(|rest| rest.first().is_some_and(u8::is_ascii_alphabetic))?;
    let len = memchr::memchr(b'\n', &rest[..rest.len().min(NAME_LIMIT)])? + 1;
    let name = rest[..len].strip_suffix(b"\r\n")?.to_ascii_uppercase();
    commands::find(&name).map(|_| at + len)
}

/// Whether a word that was taken is kept.
fn is_kept(words: &Words, kind: Kind, word: &[u8]) -> bool {
    match kind {
        Kind::Name => words.name() != b"?",
        Kind::Subcommand => word.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-'),
        Kind::Key => true,
        Kind::Option => {
            let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
            (is_number && words.counts_keys()) || OPTIONS.iter().any(|known| known.eq_ignore_ascii_case(word))
        }
        Kind::Value => false,
    }
}

/// Called with the words so far, the kind of the last one, its header with those before it, and its place.
type Visit<'a> = &'a mut dyn FnMut(&Words, Kind, Range<usize>, Range<usize>);

/// Visit the words of the command at `at`, as far as they are there. Returns where it ends, which may be behind the
/// payload; `None` if that is not known.
fn visit_command(payload: &[u8], at: usize, visit: Visit<'_>) -> Option<usize> {
    let rest = payload.get(at..).filter(|rest| rest.first() == Some(&b'*'))?;
    let Header::Whole(count @ 1.., len) = header(rest) else {
        return None;
    };
    let mut words = Words::default();
    let (mut from, mut at) = (at, at + len);
    for _ in 0..count {
        let rest = payload.get(at..).filter(|rest| rest.first() == Some(&b'$'))?;
        let Header::Whole(word_len @ 0.., len) = header(rest) else {
            return None;
        };
        let begin = at + len;
        let end = begin.saturating_add(word_len as usize);
        let kind = words.kind_of_next();
        let word = begin..end.min(payload.len());
        words.take_next(&payload[word.clone()], word_len as u32);
        visit(&words, kind, from..begin, word);
        at = end.checked_add(2)?;
        from = at;
    }
    Some(at)
}

/// Append the parts of answers, which are valid.
fn push_answers(payload: &[u8], parts: &mut Vec<Part>) {
    let mut at = 0;
    while let Some(&kind) = payload.get(at) {
        let rest = &payload[at..];
        if b"$=!*%~>|".contains(&kind) {
            let Header::Whole(number, len) = header(rest) else {
                return;
            };
            parts.push(Part::AsIs(at..at + len));
            let is_string = b"$=!".contains(&kind) && number >= 0;
            at += len + if is_string { number as usize + 2 } else { 0 };
        } else {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return;
            };
            let word_len = if kind == b'-' {
                errors::known_word_len(&rest[1..])
            } else {
                0
            };
            parts.push(Part::AsIs(at..at + 1 + word_len));
            parts.push(Part::AsIs((at + end).saturating_sub(1)..at + end + 1));
            at += end + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured_text(payload: &[u8]) -> String {
        let mut captured = payload[..kept_len(payload, 2048)].to_vec();
        blank(&mut captured);
        String::from_utf8(captured).expect("ASCII").replace('\0', ".")
    }

    #[test]
    fn names_lengths_and_masked_keys_are_kept_and_no_value() {
        let cases: &[(&[u8], &str)] = &[
            (
                b"*3\r\n$3\r\nSET\r\n$6\r\nuser:7\r\n$6\r\nsecret\r\n",
                "*3\r\n$3\r\nSET..$6\r\nuser:*..$6\r\n",
            ),
            (
                b"*2\r\n$3\r\nget\r\n$6\r\nuser:7\r\n*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n",
                "*2\r\n$3\r\nget..$6\r\nuser:*..*2\r\n$4\r\nAUTH..$6\r\n",
            ),
            (
                b"*3\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$6\r\nsecret\r\n",
                "*3\r\n$6\r\nCONFIG..$3\r\nSET..$6\r\n",
            ),
            (
                b"*4\r\n$4\r\nEVAL\r\n$6\r\nsecret\r\n$1\r\n1\r\n$3\r\na:1\r\n",
                "*4\r\n$4\r\nEVAL..$6\r\n........$1\r\n1..$3\r\na:*",
            ),
            (b"*2\r\n$6\r\nsecret\r\n$6\r\nsecret\r\n", "*2\r\n$6\r\n........$6\r\n"),
            (b"+secret\r\n:12\r\n", "+......\r\n:..\r\n"),
            (b"-WRONGTYPE secret\r\n-secret\r\n", "-WRONGTYPE.......\r\n-......\r\n"),
            (b"$6\r\nsecret\r\n$6\r\nsec", "$6\r\n........$6\r\n"),
            (
                b"*1\r\n$4\r\nPING\r\nping\r\n*1\r\n$4\r\nPING\r\nAUTH secret\r\n",
                "*1\r\n$4\r\nPING..ping\r\n*1\r\n$4\r\nPING",
            ),
            (b"secret\r\n", ""),
            (b"GET /secret HTTP/1.1\r\n", ""),
        ];
        for (payload, expected) in cases {
            assert_eq!(
                captured_text(payload),
                *expected,
                "{:?}",
                String::from_utf8_lossy(payload)
            );
            (0..payload.len()).for_each(|len| drop(captured_text(&payload[..len])));
        }
    }

    #[test]
    fn arguments_that_are_secrets_are_overwritten() {
        let mut bytes = b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nkept\r\n".to_vec();
        overwrite_secrets(&mut bytes);
        assert_eq!(
            bytes,
            b"*2\r\n$4\r\nAUTH\r\n$6\r\nxxxxxx\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nkept\r\n"
        );
    }
}
