//! Keeps what names a memcached command and where messages end: names, lengths, keys of which the digits are masked,
//! `noreply` and flags of one letter; of answers the first word, and where data begin and end. All other words become
//! `x`, data zeros, and the value of a counter zeros in digits.
//!
//! Limits: nothing is kept of a payload that begins within a message, nor of what lies beyond the inspected part of the
//! payload: the collector then knows that messages are missing.

use std::ops::Range;

use memchr::memchr;

use super::client::{self, Command};
use super::{server, word_places};
use crate::key_shape::mask;

/// Bytes up to the end of the last line that is kept; 0 if there is none.
pub(super) fn kept_len(payload: &[u8], limit: usize) -> usize {
    let inspected = &payload[..payload.len().min(limit)];
    side_of(inspected).map_or(0, |side| lines(inspected, side).last().map_or(0, |(line, _)| line.end))
}

/// Offset of the first line of a message that begins at or behind the payload's end; `None` if the payload does not show
/// it.
pub(super) fn next_head(payload: &[u8]) -> Option<usize> {
    let (line, data_len) = lines(payload, side_of(payload)?).last()?;
    let next = line.end.saturating_add(data_len);
    (next >= payload.len()).then_some(next)
}

/// Overwrite what is not kept.
pub(super) fn blank(captured: &mut [u8]) {
    let Some(side) = side_of(captured) else {
        captured.fill(0);
        return;
    };
    let found: Vec<(Range<usize>, usize)> = lines(captured, side).collect();
    let mut done = 0;
    for (line, data_len) in found {
        match side {
            Side::Client => blank_command(&mut captured[line.clone()]),
            Side::Server => blank_answer(&mut captured[line.clone()]),
        }
        done = line.end.saturating_add(data_len).min(captured.len());
        captured[line.end..done].fill(0);
    }
    captured[done..].fill(0);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Which side sends such a payload, if memcached's text protocol has it.
fn side_of(payload: &[u8]) -> Option<Side> {
    if client::resumes(payload) {
        Some(Side::Client)
    } else {
        server::resumes(payload).then_some(Side::Server)
    }
}

/// The lines of a payload, each with the length of the data after it, as far as they are valid.
fn lines(payload: &[u8], side: Side) -> impl Iterator<Item = (Range<usize>, usize)> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        let line = at..at + memchr(b'\n', payload.get(at..)?)? + 1;
        let text = payload[line.clone()].trim_ascii_end();
        let data_len = match side {
            Side::Client => client::data_len(text)?,
            Side::Server => server::data_len(text)?,
        };
        at = line.end.saturating_add(data_len);
        Some((line, data_len))
    })
}

fn blank_command(line: &mut [u8]) {
    let places: Vec<Range<usize>> = word_places(line.trim_ascii_end()).collect();
    let known: Option<&Command> = places.first().and_then(|place| client::find(&line[place.clone()]));
    let Some(known) = known else { return };
    for (number, place) in places.into_iter().enumerate().skip(1) {
        let word = &mut line[place];
        if known.is_key(number) {
            mask(word);
        } else if !(known.is_kept(number) || word == b"noreply" || (word.len() == 1 && word[0].is_ascii_lowercase())) {
            word.fill(b'x');
        }
    }
}

fn blank_answer(line: &mut [u8]) {
    let places: Vec<Range<usize>> = word_places(line.trim_ascii_end()).collect();
    let Some(first) = places.first().cloned() else { return };
    let kept = match &line[first.clone()] {
        b"VALUE" => 4,
        b"VA" => 2,
        _ => 1,
    };
    if line[first.clone()].iter().all(u8::is_ascii_digit) {
        line[first].fill(b'0');
    }
    for (number, place) in places.into_iter().enumerate().skip(1) {
        let word = &mut line[place];
        match number {
            1 if kept == 4 => mask(word),
            _ if number < kept => {}
            _ => word.fill(b'x'),
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
            (b"set user:7 0 60 6\r\nsecret\r\n", "set user:* 0 60 6\r\n"),
            (
                b"set a 0 0 6 noreply\r\nsecret\r\nget b1 c2\r\n",
                "set a 0 0 6 noreply\r\n........get b* c*\r\n",
            ),
            (b"incr hits 17\r\n", "incr hits xx\r\n"),
            (b"mg a1 v q Osecret\r\nmn\r\n", "mg a* v q xxxxxxx\r\nmn\r\n"),
            (
                b"VALUE user:7 0 6\r\nsecret\r\nEND\r\n",
                "VALUE user:* 0 6\r\n........END\r\n",
            ),
            (b"VA 6 t60\r\nsecret\r\nHD\r\n", "VA 6 xxx\r\n........HD\r\n"),
            (b"1234\r\nSTORED\r\n", "0000\r\nSTORED\r\n"),
            (b"CLIENT_ERROR secret\r\n", "CLIENT_ERROR xxxxxx\r\n"),
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
    fn what_is_kept_is_overwritten_once_whatever_spaces_divide_it() {
        let cases: &[(&[u8], &str)] = &[
            (b"STORED\r\nVALUE   05\r\nh\n^A 94a", ""),
            (b"STORED\r\n STORED\r\n", ""),
            (
                b"VALUE  user:7 0  6\r\nsecret\r\nEND\r\n",
                "VALUE  user:* 0  6\r\n........END\r\n",
            ),
            (b"VA  6\r\nsecret\r\n", "VA  6\r\n"),
            (b"set  user:7 0   60 6\r\nsecret\r\n", "set  user:* 0   60 6\r\n"),
        ];
        for (payload, expected) in cases {
            let once = captured_text(payload);
            assert_eq!(once, *expected, "{:?}", String::from_utf8_lossy(payload));
            let mut again = once.replace('.', "\0").into_bytes();
            blank(&mut again);
            assert_eq!(String::from_utf8(again).expect("ASCII").replace('\0', "."), once);
        }
    }
}
