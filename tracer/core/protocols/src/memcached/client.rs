//! Reads what a memcached client sends: commands in lines, some with data of a length that the line states.
//!
//! Of a command its name, the shape of its first key and its length are noted. Data are skipped by their length, so they
//! need not be captured.

use memchr::memchr;

use super::words;
use crate::exchanges::flag;
use crate::kept_messages::Writer;
use crate::key_shape::push_shape;
use crate::marks::reach;
use crate::name_index::NameIndex;
use crate::protocol::{OnMessage, Scan, Scanner};

/// Bytes of a line that are kept: more than any command needs but for the keys of a `get`, of which the first counts.
const LINE_KEPT: usize = 512;
/// Longest line.
const LINE_LIMIT: u64 = 1 << 20;
/// Longest data (`-I` of memcached allows 1 GiB).
const DATA_LIMIT: u64 = 1 << 30;

/// How the line of a command is read. A number of a word counts from 0, the command's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    name: &'static [u8],
    key_at: usize,
    /// Word with the length of its data, 0 if it has none.
    data_at: usize,
    /// Number of words, with and without `noreply`; 0 if it is never followed by it.
    words: (usize, usize),
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another protocol may begin with the same word.
    Weak,
    Text,
    /// Its flags follow its key, or its data's length.
    Meta,
    /// It is answered last, after whatever quiet commands before it leave to be answered.
    Noop,
    /// The server sends from then on.
    Watch,
    /// The server closes the connection.
    Quit,
}

const fn text(name: &'static [u8], key_at: usize, words: (usize, usize)) -> Command {
    Command {
        name,
        key_at,
        data_at: 0,
        words,
        kind: Kind::Text,
    }
}

const fn with_data(name: &'static [u8], data_at: usize, words: (usize, usize)) -> Command {
    Command {
        data_at,
        ..text(name, 1, words)
    }
}

const fn of_kind(kind: Kind, name: &'static [u8], key_at: usize) -> Command {
    Command {
        kind,
        ..text(name, key_at, (0, 0))
    }
}

/// A command that other protocols have as well (beanstalkd's `delete`).
const fn weak(name: &'static [u8], key_at: usize, words: (usize, usize)) -> Command {
    Command {
        kind: Kind::Weak,
        ..text(name, key_at, words)
    }
}

/// By name, ascending.
const COMMANDS: &[Command] = &[
    with_data(b"add", 4, (6, 5)),
    with_data(b"append", 4, (6, 5)),
    weak(b"cache_memlimit", 0, (3, 2)),
    with_data(b"cas", 4, (7, 6)),
    text(b"decr", 1, (4, 3)),
    weak(b"delete", 1, (3, 2)),
    weak(b"flush_all", 0, (3, 1)),
    text(b"gat", 2, (0, 0)),
    text(b"gats", 2, (0, 0)),
    text(b"get", 1, (0, 0)),
    text(b"gets", 1, (0, 0)),
    text(b"incr", 1, (4, 3)),
    weak(b"lru", 0, (0, 0)),
    weak(b"lru_crawler", 0, (0, 0)),
    of_kind(Kind::Meta, b"ma", 1),
    of_kind(Kind::Meta, b"md", 1),
    weak(b"me", 1, (0, 0)),
    of_kind(Kind::Meta, b"mg", 1),
    of_kind(Kind::Noop, b"mn", 0),
    Command {
        data_at: 2,
        ..of_kind(Kind::Meta, b"ms", 1)
    },
    with_data(b"prepend", 4, (6, 5)),
    of_kind(Kind::Quit, b"quit", 0),
    with_data(b"replace", 4, (6, 5)),
    with_data(b"set", 4, (6, 5)),
    weak(b"shutdown", 0, (0, 0)),
    weak(b"slabs", 0, (0, 0)),
    weak(b"stats", 0, (0, 0)),
    text(b"touch", 1, (4, 3)),
    weak(b"verbosity", 0, (3, 2)),
    weak(b"version", 0, (0, 0)),
    of_kind(Kind::Watch, b"watch", 0),
];

const NAMES: [&[u8]; COMMANDS.len()] = {
    let (mut names, mut at) = ([b"" as &[u8]; COMMANDS.len()], 0);
    while at < names.len() {
        names[at] = COMMANDS[at].name;
        at += 1;
    }
    names
};

static INDEX: NameIndex<128> = NameIndex::new(&NAMES);

pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    INDEX.find(&NAMES, name).map(|place| &COMMANDS[place])
}

impl Command {
    /// Whether a word of it is a key.
    pub fn is_key(&self, number: usize) -> bool {
        let has_several = self.data_at == 0 && self.kind == Kind::Text && self.words.0 == 0;
        number == self.key_at || (has_several && number > self.key_at)
    }

    /// Whether a word of it is a number that says how it is stored: flags, a time, the length of its data.
    pub fn is_kept(&self, number: usize) -> bool {
        (self.key_at + 1..=self.data_at).contains(&number) || number < self.key_at
    }
}

/// Length of the data after a command's line, with the end of its last line.
pub(super) fn data_len(line: &[u8]) -> Option<usize> {
    let mut words = words(line);
    let known = find(words.next()?)?;
    if known.data_at == 0 {
        return Some(0);
    }
    Some(number(words.nth(known.data_at - 1)?)? as usize + 2)
}

/// A command's line.
#[derive(Clone, Copy, Debug)]
struct Line {
    command: &'static Command,
    data_len: u64,
    is_answered: bool,
    is_quiet: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClientScanner {
    /// Bytes of the current request before those that are scanned.
    len: u64,
    /// The beginning of a line that the next packet continues, and the length of all of it so far.
    held: Vec<u8>,
    held_len: u64,
    /// The last byte of that.
    held_end: u8,
    /// Name and shape of the first quiet command of the current batch.
    batch: Option<(&'static [u8], Vec<u8>)>,
    shape: Vec<u8>,
    writer: Writer,
}

impl Scanner for ClientScanner {
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
                self.read(rest.strip_suffix(b"\r").unwrap_or(rest))
            } else {
                self.hold(rest);
                self.read_held()
            };
            let Some(line) = line else {
                return Scan::End;
            };
            at = behind + line.data_len as usize;
            match (line.command.kind, line.is_quiet) {
                (_, true) => continue, // its batch goes on
                (Kind::Noop, _) => {}
                _ if self.batch.is_some() => return Scan::End,
                _ => {}
            }
            self.note(&line, (at as i64 - start) as u64, start, found);
            start = at as i64;
        }
        self.len = (at as i64 - start) as u64;
        Scan::Skip((at - bytes.len()) as u32)
    }

    fn lose(&mut self, _: OnMessage<'_>) {
        self.held.clear();
        (self.len, self.held_len, self.batch) = (0, 0, None);
    }

    fn boxed_clone(&self) -> Box<dyn Scanner> {
        Box::new(self.clone())
    }
}

impl ClientScanner {
    fn hold(&mut self, bytes: &[u8]) {
        let room = LINE_KEPT - self.held.len().min(LINE_KEPT);
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.held_len += bytes.len() as u64;
        self.held_end = bytes.last().copied().unwrap_or(self.held_end);
    }

    /// Read the line that is held, of which the end may not be.
    fn read_held(&mut self) -> Option<Line> {
        let held = std::mem::take(&mut self.held);
        let len = std::mem::take(&mut self.held_len) - u64::from(self.held_end == b'\r');
        self.read(&held[..held.len().min(len as usize)])
    }

    /// Read a line without its end, of which at least the first [`LINE_KEPT`] bytes are there.
    #[inline]
    fn read(&mut self, line: &[u8]) -> Option<Line> {
        let mut words = words(&line[..line.len().min(LINE_KEPT)]);
        let command = find(words.next()?)?;
        self.shape.clear();
        let (mut count, mut data_len, mut last, mut is_quiet) = (1, None, &b""[..], false);
        for word in words {
            if count == command.key_at {
                push_shape(word, false, &mut self.shape);
            }
            if count == command.data_at {
                data_len = number(word);
            }
            let is_flag = command.kind == Kind::Meta && count > command.key_at.max(command.data_at);
            is_quiet |= is_flag && word == b"q";
            (last, count) = (word, count + 1);
        }
        if command.key_at > 0 && self.shape.is_empty() {
            return None;
        }
        if is_quiet && self.batch.is_none() {
            self.batch = Some((command.name, self.shape.clone()));
        }
        Some(Line {
            command,
            // What follows a line without a valid length is not known.
            data_len: if command.data_at == 0 { 0 } else { data_len? + 2 },
            is_answered: !(last == b"noreply" && command.words.0 > 0 && count > command.words.1),
            is_quiet,
        })
    }

    /// Note the request that ends with a line.
    fn note(&mut self, line: &Line, len: u64, start: i64, found: OnMessage<'_>) {
        let batch = self.batch.take();
        let (name, shape) = match &batch {
            Some((name, shape)) => (*name, shape.as_slice()),
            None => (line.command.name, self.shape.as_slice()),
        };
        if line.command.kind == Kind::Quit {
            return; // a farewell is no request
        }
        let mut flags = if line.is_answered { 0 } else { flag::NO_ANSWER };
        if batch.is_some() {
            flags |= flag::BATCH;
        }
        let is_watch = line.command.kind == Kind::Watch;
        let reach = if is_watch { reach::REST } else { 0 };
        let solid = &mut self.writer.solid;
        solid.clear();
        solid.extend_from_slice(name);
        solid.extend_from_slice(b"\r\n");
        self.writer
            .pass_request((flags, Some(len)), start, reach, name, shape, found);
    }
}

/// A length of data.
fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 10 {
        return None;
    }
    let mut number = 0;
    for digit in word {
        number = number * 10 + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    (number <= DATA_LIMIT).then_some(number)
}

/// Whether a payload begins with a command that no other protocol sends, and that is whole.
pub(super) fn begins(payload: &[u8]) -> bool {
    let name_len = payload
        .iter()
        .take(8)
        .take_while(|byte| byte.is_ascii_lowercase())
        .count();
    let known = find(&payload[..name_len]).filter(|known| known.key_at > 0 && known.kind != Kind::Weak);
    known.is_some_and(|known| payload[name_len..].starts_with(b" ") && is_line_of(known, payload))
}

/// Whether a payload begins with a command; whatever follows it was read as one before.
pub(super) fn resumes(payload: &[u8]) -> bool {
    let end = memchr(b'\n', payload);
    let name_len = payload
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_')
        .count();
    end.is_some() && find(&payload[..name_len]).is_some_and(|known| is_line_of(known, payload))
}

/// Whether the first line has the words that the command needs, and no others.
fn is_line_of(known: &Command, payload: &[u8]) -> bool {
    let Some(end) = memchr(b'\n', payload) else {
        return false;
    };
    let Some(line) = payload[..end].strip_suffix(b"\r") else {
        return false;
    };
    if !line.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        return false;
    }
    let words: Vec<&[u8]> = words(line).collect();
    let has_key = known.key_at == 0 || words.len() > known.key_at;
    let has_data = known.data_at == 0 || words.get(known.data_at).is_some_and(|word| number(word).is_some());
    let is_long_enough = words.len() >= known.words.1 && (known.words.0 == 0 || words.len() <= known.words.0);
    has_key && has_data && is_long_enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_a_number_of_at_most_ten_digits() {
        let cases: &[(&[u8], Option<u64>)] = &[
            (b"0", Some(0)),
            (b"1073741824", Some(DATA_LIMIT)),
            (b"1073741825", None),
            (b"", None),
            (b"1x", None),
            (b"-1", None),
            (b"99999999999999999999999999", None),
            (b"a-word-of-many-bytes-that-is-no-number", None),
        ];
        for (word, expected) in cases {
            assert_eq!(number(word), *expected, "{:?}", String::from_utf8_lossy(word));
        }
    }

    #[test]
    fn commands_are_in_order() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
    }
}
