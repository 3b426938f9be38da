//! Reads what a memcached server sends: answers of one line, with data of a stated length after `VALUE` and `VA`, or of
//! several lines up to `END`.

use memchr::memchr;

use super::{ERRORS, words};
use crate::exchanges::flag;
use crate::kept_messages::Writer;
use crate::name_index::NameIndex;
use crate::protocol::{OnMessage, Scan, Scanner};

/// Bytes of a line that are read.
const LINE_KEPT: usize = 512;
const LINE_LIMIT: u64 = 1 << 20;
const DATA_LIMIT: u64 = 1 << 30;

/// First words of answers of one line that are no errors, ascending.
const WORDS: &[&[u8]] = &[
    b"BADCLASS",
    b"DELETED",
    b"EN",
    b"END",
    b"EXISTS",
    b"HD",
    b"ME",
    b"MN",
    b"NF",
    b"NOSPARE",
    b"NOTFULL",
    b"NOT_FOUND",
    b"NOT_STORED",
    b"NS",
    b"OK",
    b"RESET",
    b"SAME",
    b"STORED",
    b"TOUCHED",
    b"UNSAFE",
    b"VERSION",
];
static WORDS_INDEX: NameIndex<64> = NameIndex::new(WORDS);

#[derive(Clone, Debug, Default)]
pub(super) struct ServerScanner {
    /// Bytes of the current answer before those that are scanned.
    len: u64,
    /// The beginning of a line that the next packet continues, and the length of all of it so far.
    held: Vec<u8>,
    held_len: u64,
    /// The last byte of that.
    held_end: u8,
    /// A line of the current answer was read.
    is_begun: bool,
    is_announced: bool,
    writer: Writer,
}

/// What a line of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// The answer ends with it and with so many bytes of data.
    Last { code: i32, data_len: u64, is_noop: bool },
    /// The answer goes on after so many bytes of data, up to `END`.
    More { data_len: u64 },
}

impl Scanner for ServerScanner {
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan {
        let (mut at, mut start) = (0, -(self.len as i64));
        while at < bytes.len() {
            let Some(end) = memchr(b'\n', &bytes[at..]) else {
                self.hold(&bytes[at..]);
                at = bytes.len();
                if self.held_len > LINE_LIMIT {
                    return Scan::End;
                }
                break;
            };
            let (rest, behind) = (&bytes[at..at + end], at + end + 1);
            let line = if self.held_len == 0 {
                read(rest)
            } else {
                self.hold(rest);
                self.read_held()
            };
            match line {
                None => return Scan::End,
                Some(Line::More { data_len }) => {
                    self.is_begun = true;
                    at = behind + data_len as usize;
                }
                Some(Line::Last {
                    code,
                    data_len,
                    is_noop,
                }) => {
                    at = behind + data_len as usize;
                    self.note(Some((at as i64 - start) as u64), start, (code, is_noop), found);
                    (self.is_begun, self.is_announced) = (false, false);
                    start = at as i64;
                }
            }
        }
        if self.is_begun && !self.is_announced {
            self.is_announced = true;
            self.note(None, start, (0, false), found);
        }
        self.len = (at as i64 - start) as u64;
        Scan::Skip((at - bytes.len()) as u32)
    }

    fn lose(&mut self, found: OnMessage<'_>) {
        if self.is_begun {
            self.note(None, -(self.len as i64), (0, false), found);
        }
        self.held.clear();
        (self.len, self.held_len, self.is_begun, self.is_announced) = (0, 0, false, false);
    }

    fn boxed_clone(&self) -> Box<dyn Scanner> {
        Box::new(self.clone())
    }
}

impl ServerScanner {
    fn hold(&mut self, bytes: &[u8]) {
        let room = LINE_KEPT - self.held.len().min(LINE_KEPT);
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.held_len += bytes.len() as u64;
        self.held_end = bytes.last().copied().unwrap_or(self.held_end);
    }

    /// What the line is that is held, of which the end may not be.
    fn read_held(&mut self) -> Option<Line> {
        let held = std::mem::take(&mut self.held);
        let len = std::mem::take(&mut self.held_len) - 1;
        (self.held_end == b'\r').then(|| read_words(&held[..held.len().min(len as usize)]))?
    }

    /// Note the current answer, of which the length is given if it is known.
    fn note(&mut self, len: Option<u64>, start: i64, (code, is_noop): (i32, bool), found: OnMessage<'_>) {
        let flags = if is_noop { flag::BATCH } else { 0 };
        let (word, _) = ERRORS[code as usize];
        let solid = &mut self.writer.solid;
        solid.clear();
        solid.extend_from_slice(word.as_bytes());
        solid.extend_from_slice(b"\r\n");
        self.writer.pass_answer((flags, len), start, code, found);
    }
}

/// Length of the data after an answer's line, with the end of its last line.
pub(super) fn data_len(line: &[u8]) -> Option<usize> {
    match read_words(line)? {
        Line::Last { data_len, .. } | Line::More { data_len } => Some(data_len as usize),
    }
}

/// What a line is; `None` if it is of no answer.
#[inline]
fn read(line: &[u8]) -> Option<Line> {
    let line = line.strip_suffix(b"\r")?;
    read_words(&line[..line.len().min(LINE_KEPT)])
}

/// The same of a line without its end.
fn read_words(line: &[u8]) -> Option<Line> {
    let mut words = words(line);
    let first = words.next().filter(|first| line.starts_with(first))?;
    let data_len = |word: Option<&[u8]>| number(word?).filter(|len| *len <= DATA_LIMIT).map(|len| len + 2);
    let last = |code: usize, data_len: u64| Line::Last {
        code: code as i32,
        data_len,
        is_noop: first == b"MN",
    };
    match first {
        b"VALUE" => Some(Line::More {
            data_len: data_len(words.nth(2))?,
        }),
        b"VA" => Some(last(0, data_len(words.next())?)),
        b"ITEM" | b"STAT" => Some(Line::More { data_len: 0 }),
        _ if WORDS_INDEX.find(WORDS, first).is_some() || number(first).is_some() => Some(last(0, 0)),
        _ => {
            let code = ERRORS.iter().position(|(word, _)| word.as_bytes() == first)?;
            Some(last(code, 0))
        }
    }
}

/// A number, as `incr` answers it.
fn number(word: &[u8]) -> Option<u64> {
    let is_number = !word.is_empty() && word.len() <= 20 && word.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        word.iter().fold(0, |number: u64, digit| {
            number.saturating_mul(10).saturating_add((digit - b'0').into())
        })
    })
}

/// Whether a payload begins with an answer, as far as it was captured.
pub(super) fn resumes(payload: &[u8]) -> bool {
    let mut found = false;
    let scan = ServerScanner::default().scan(payload, &mut |_| found = true);
    found && scan != Scan::End
}

/// Whether an excerpt with these first bytes is of an answer.
pub(super) fn is_kept_answer(start: &[u8]) -> bool {
    let len = start
        .iter()
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_')
        .count();
    let is_word = ERRORS.iter().any(|(known, _)| known.as_bytes() == &start[..len]);
    is_word && start[len..].starts_with(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_order() {
        assert!(WORDS.is_sorted());
    }
}
