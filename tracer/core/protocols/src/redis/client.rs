//! Reads what a Redis client sends: commands, as arrays of bulk strings or as lines (inline commands).
//!
//! Of a command its name, the shape of its first key and its length are noted. Other words are skipped by their lengths,
//! so they need not be captured. A command is noted as soon as its length is known, and before that, without it, at the
//! end of a packet that does not complete it.
//!
//! Source: Redis serialization protocol specification, "Sending commands to a Redis server", "Inline commands"; command
//! reference, `CLIENT REPLY`.

use memchr::memchr;

use super::commands::{self, Command, KeyPlace};
use super::line::{Header, header};
use super::marked::Mark;
use crate::exchanges::flag;
use crate::kept_messages::Writer;
use crate::key_shape::{KEY_LIMIT, push_shape};
use crate::protocol::{OnMessage, Scan, Scanner};

/// Longest name of a command or a subcommand that is known.
pub(super) const NAME_LIMIT: usize = 32;
/// Words of `XREAD` and `XREADGROUP` in which `BLOCK` and `STREAMS` are searched: `GROUP group consumer COUNT n BLOCK ms
/// NOACK STREAMS`.
const OPTIONS_LIMIT: u32 = 12;
/// Longest inline command (`PROTO_INLINE_MAX_SIZE` of Redis).
const INLINE_LIMIT: usize = 1 << 16;
/// Bytes of an inline command that are read.
const INLINE_KEPT: usize = 256;
/// Longest header of which a part is kept for the next packet.
const HEADER_LIMIT: usize = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct ClientScanner {
    /// Bytes of the current command before those that are scanned.
    len: u64,
    state: State,
    /// The beginning of a header, a wanted word, or an inline command, which the next packet continues.
    held: Vec<u8>,
    command: Words,
    replies: Replies,
    is_announced: bool,
    writer: Writer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    /// The header of a word comes next.
    WordHeader,
    /// Bytes of a wanted word, and bytes after the wanted ones, with the end of its line.
    Wanted {
        left: usize,
        behind: u32,
    },
    Inline,
}

/// What a word of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Name,
    Subcommand,
    Key,
    /// It says where the key is, or how the command is answered.
    Option,
    Value,
}

/// What is known of the current command.
#[derive(Clone, Debug)]
pub(super) struct Words {
    /// Words that come next, and the number of the next one.
    left: u32,
    next: u32,
    name: Vec<u8>,
    command: Command,
    key_at: u32,
    has_key: bool,
    shape: Vec<u8>,
    mark: Mark,
    /// Length of the next word.
    next_len: u32,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            left: 0,
            next: 0,
            name: Vec::new(),
            command: commands::UNKNOWN,
            key_at: 0,
            has_key: false,
            shape: Vec::new(),
            mark: Mark::None,
            next_len: 0,
        }
    }
}

/// Whether the server answers (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replies {
    #[default]
    On,
    Off,
    /// Neither this command nor the next one is answered.
    Skip,
    /// This command is not answered.
    SkipThis,
}

impl Scanner for ClientScanner {
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan {
        let (mut at, mut start) = (0, -(self.len as i64));
        let skip = loop {
            if at >= bytes.len() {
                break (at - bytes.len()) as u32;
            }
            match self.step(&bytes[at..]) {
                Step::Read(len) => at += len,
                Step::Done(len) => {
                    at += len;
                    self.note(Some((at as i64 - start) as u64), start, found);
                    if self.command.mark == Mark::Ends {
                        return Scan::End;
                    }
                    self.begin();
                    start = at as i64;
                }
                Step::Wait => break 0,
                Step::Invalid => return Scan::End,
            }
        };
        let is_open = self.state != State::Start;
        if is_open && !self.is_announced && !self.command.name.is_empty() {
            self.is_announced = true;
            self.note(None, start, found);
        }
        self.len = ((bytes.len() as i64).saturating_add(skip.into()) - start) as u64;
        Scan::Skip(skip)
    }

    fn lose(&mut self, found: OnMessage<'_>) {
        if self.state != State::Start && !self.command.name.is_empty() {
            self.note(None, -(self.len as i64), found);
        }
        self.begin();
        self.len = 0;
    }

    fn boxed_clone(&self) -> Box<dyn Scanner> {
        Box::new(self.clone())
    }
}

/// What the next bytes are.
enum Step {
    /// So many bytes were read, or are not needed.
    Read(usize),
    /// With so many bytes the command ends.
    Done(usize),
    /// All bytes were taken; more are needed.
    Wait,
    Invalid,
}

impl ClientScanner {
    /// Begin a command.
    fn begin(&mut self) {
        self.state = State::Start;
        self.held.clear();
        self.command.left = 0;
        self.command.name.clear();
        self.command.shape.clear();
        self.is_announced = false;
    }

    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Step {
        match self.state {
            State::Start if self.held.is_empty() && bytes[0] != b'*' => {
                self.state = State::Inline;
                self.inline(bytes)
            }
            State::Start => self.header(bytes, b'*'),
            State::WordHeader => self.header(bytes, b'$'),
            State::Wanted { left, behind } => self.rest_of_word(bytes, left, behind),
            State::Inline => self.inline(bytes),
        }
    }

    /// Read a header, of which the beginning may be held.
    #[inline]
    fn header(&mut self, bytes: &[u8], kind: u8) -> Step {
        if self.held.is_empty() {
            return match header(bytes) {
                Header::Whole(number, len) if bytes[0] == kind => self.take_header(&bytes[len..], kind, number, len),
                Header::Partial if bytes[0] == kind && bytes.len() < HEADER_LIMIT => {
                    self.held.extend_from_slice(bytes);
                    Step::Wait
                }
                _ => Step::Invalid,
            };
        }
        let before = self.held.len();
        self.held.extend_from_slice(&bytes[..bytes.len().min(HEADER_LIMIT)]);
        match header(&self.held) {
            Header::Whole(number, len) => {
                self.held.clear();
                let len = len.saturating_sub(before);
                self.take_header(&bytes[len..], kind, number, len)
            }
            Header::Partial if self.held.len() < HEADER_LIMIT => Step::Wait,
            _ => Step::Invalid,
        }
    }

    /// Go on behind a header of `len` bytes.
    #[inline]
    fn take_header(&mut self, behind: &[u8], kind: u8, number: i64, len: usize) -> Step {
        if kind == b'*' {
            if number > 0 {
                self.command = Words {
                    left: number as u32,
                    name: std::mem::take(&mut self.command.name),
                    shape: std::mem::take(&mut self.command.shape),
                    ..Words::default()
                };
                self.state = State::WordHeader;
            } // a command without words is not answered
            return Step::Read(len);
        }
        let (Ok(word_len), true) = (u32::try_from(number), self.command.left > 0) else {
            return Step::Invalid;
        };
        self.command.next_len = word_len;
        let wanted = self.command.wanted_len().min(word_len as usize);
        let whole = word_len as usize + 2;
        if wanted == 0 {
            return self.end_word(len + whole);
        }
        if let Some(word) = behind.get(..wanted) {
            self.command.take_word(word);
            return self.end_word(len + whole);
        }
        self.state = State::Wanted {
            left: wanted,
            behind: (whole - wanted) as u32,
        };
        Step::Read(len)
    }

    /// Read on in a wanted word that began in an earlier packet, or that is not whole in this one.
    fn rest_of_word(&mut self, bytes: &[u8], left: usize, behind: u32) -> Step {
        let len = bytes.len().min(left);
        self.held.extend_from_slice(&bytes[..len]);
        if len < left {
            let left = left - len;
            self.state = State::Wanted { left, behind };
            return Step::Wait;
        }
        let word = std::mem::take(&mut self.held);
        self.command.take_word(&word);
        self.end_word(len + behind as usize)
    }

    /// Go on behind a word.
    #[inline]
    fn end_word(&mut self, len: usize) -> Step {
        self.command.left -= 1;
        self.command.next += 1;
        if self.command.left == 0 {
            return Step::Done(len);
        }
        self.state = State::WordHeader;
        Step::Read(len)
    }

    /// Read an inline command. A blank line before it is part of it.
    fn inline(&mut self, bytes: &[u8]) -> Step {
        let end = memchr(b'\n', bytes);
        let line = &bytes[..end.unwrap_or(bytes.len())];
        let room = INLINE_KEPT.saturating_sub(self.held.len());
        self.held.extend_from_slice(&line[..line.len().min(room)]);
        let Some(end) = end else {
            return if self.len as usize > INLINE_LIMIT {
                Step::Invalid
            } else {
                Step::Wait
            };
        };
        let line = std::mem::take(&mut self.held);
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(name) = words.next() else {
            self.state = State::Start;
            return Step::Read(end + 1);
        };
        self.command = Words::default();
        self.command.take_word(&name[..name.len().min(NAME_LIMIT)]);
        if !self.command.is_known() {
            return Step::Invalid;
        }
        self.command.next = 1;
        for word in words {
            self.command.take_next(word, word.len() as u32);
        }
        Step::Done(end + 1)
    }

    /// Note the current command, of which the length is given if it is known.
    fn note(&mut self, len: Option<u64>, start: i64, found: OnMessage<'_>) {
        let is_answered = if len.is_some() {
            self.is_answered()
        } else {
            self.replies == Replies::On
        };
        let flags = if is_answered { 0 } else { flag::NO_ANSWER };
        let Words { name, shape, mark, .. } = &self.command;
        write_start(name, &mut self.writer.solid);
        let reach = mark.reach(name);
        self.writer.pass_request((flags, len), start, reach, name, shape, found);
    }

    /// Whether the current command, which is whole, is answered.
    fn is_answered(&mut self) -> bool {
        match (self.command.name.as_slice(), self.replies) {
            (b"CLIENT REPLY ON", _) => self.replies = Replies::On,
            (b"CLIENT REPLY OFF", _) => self.replies = Replies::Off,
            (b"CLIENT REPLY SKIP", Replies::On) => self.replies = Replies::Skip,
            (_, Replies::Skip) => self.replies = Replies::SkipThis,
            (_, Replies::SkipThis) => self.replies = Replies::On,
            _ => {}
        }
        self.replies == Replies::On
    }
}

impl Words {
    fn is_known(&self) -> bool {
        commands::find(&self.name).is_some()
    }

    /// What the next word is.
    #[inline]
    pub fn kind_of_next(&self) -> Kind {
        match self.next {
            0 => Kind::Name,
            1 if self.command.has_subcommand => Kind::Subcommand,
            next if self.has_key => {
                if next == self.key_at {
                    Kind::Key
                } else {
                    Kind::Value
                }
            }
            next => self.kind_of_option(next),
        }
    }

    fn kind_of_option(&self, next: u32) -> Kind {
        match self.command.key {
            KeyPlace::Counted(place) if next == place => Kind::Option,
            KeyPlace::Streams if next <= OPTIONS_LIMIT => Kind::Option,
            KeyPlace::None if next == 2 && self.name == b"CLIENT REPLY" => Kind::Option,
            _ => Kind::Value,
        }
    }

    /// How many bytes of the next word are wanted.
    #[inline]
    fn wanted_len(&self) -> usize {
        match self.kind_of_next() {
            Kind::Value => 0,
            Kind::Key => KEY_LIMIT,
            Kind::Name | Kind::Subcommand | Kind::Option => NAME_LIMIT,
        }
    }

    /// The name of the command, with its subcommand; `?` if it may not be shown.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether a word says how many keys follow it.
    pub fn counts_keys(&self) -> bool {
        matches!(self.command.key, KeyPlace::Counted(_))
    }

    /// Take the next word of `len` bytes, as far as it is there.
    pub fn take_next(&mut self, word: &[u8], len: u32) {
        self.next_len = len;
        let wanted = self.wanted_len().min(word.len());
        if wanted > 0 {
            self.take_word(&word[..wanted]);
        }
        self.next += 1;
    }

    /// Take the next word, as much of it as is wanted.
    fn take_word(&mut self, word: &[u8]) {
        match self.kind_of_next() {
            Kind::Name => self.take_name(word),
            Kind::Subcommand => self.take_subcommand(word),
            Kind::Key => push_shape(word, (self.next_len as usize) > word.len(), &mut self.shape),
            Kind::Option => self.take_option(self.next, word),
            Kind::Value => {}
        }
    }

    fn take_name(&mut self, word: &[u8]) {
        self.name.clear();
        self.name.extend(word.iter().map(u8::to_ascii_uppercase));
        let known = commands::find(&self.name);
        if known.is_none() && !commands::may_be_shown(&self.name) {
            self.name.splice(.., *b"?");
        }
        self.command = known.unwrap_or(commands::UNKNOWN);
        if let KeyPlace::At(place) = self.command.key {
            (self.key_at, self.has_key) = (place, true);
        }
        self.mark = Mark::of_command(&self.name);
    }

    fn take_subcommand(&mut self, word: &[u8]) {
        if word.iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'-') {
            self.name.push(b' ');
            self.name.extend(word.iter().map(u8::to_ascii_uppercase));
        }
        if matches!(self.name.as_slice(), b"REPLCONF ACK" | b"REPLCONF GETACK") {
            self.mark = Mark::Ends;
        }
    }

    fn take_option(&mut self, next: u32, word: &[u8]) {
        match self.command.key {
            KeyPlace::Counted(_) => (self.key_at, self.has_key) = (next + 1, word != b"0"),
            KeyPlace::Streams if word.eq_ignore_ascii_case(b"STREAMS") => {
                (self.key_at, self.has_key) = (next + 1, true);
            }
            KeyPlace::Streams if word.eq_ignore_ascii_case(b"BLOCK") => self.mark = Mark::Answer,
            KeyPlace::None => {
                let known = [&b" ON"[..], b" OFF", b" SKIP"];
                let said = known.iter().find(|known| known[1..].eq_ignore_ascii_case(word));
                self.name.extend_from_slice(said.copied().unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// Write the beginning of a command of this name: its own word, with its length.
pub(super) fn write_start(name: &[u8], start: &mut Vec<u8>) {
    let word_len = name.iter().take_while(|byte| **byte != b' ').count();
    start.clear();
    start.extend_from_slice(b"*1\r\n$");
    if word_len >= 10 {
        start.push(b'0' + (word_len / 10 % 10) as u8);
    }
    start.push(b'0' + (word_len % 10) as u8);
    start.extend_from_slice(b"\r\n");
    start.extend_from_slice(&name[..word_len]);
    start.extend_from_slice(b"\r\n");
}

/// Whether a payload begins with a command whose name is known; so does nothing else.
pub(super) fn begins(payload: &[u8]) -> bool {
    name_of(payload).is_some_and(|name| {
        let mut capitals = [0; NAME_LIMIT];
        let Some(capitals) = capitals.get_mut(..name.len()) else {
            return false;
        };
        capitals.copy_from_slice(name);
        capitals.make_ascii_uppercase();
        commands::find(capitals).is_some()
    })
}

/// The name of the command that a payload begins with.
pub(super) fn name_of(payload: &[u8]) -> Option<&[u8]> {
    if payload.first() != Some(&b'*') {
        return None;
    }
    let Header::Whole(1.., len) = header(payload) else {
        return None;
    };
    let rest = &payload[len..];
    let (Some(b'$'), Header::Whole(name_len @ 1.., len)) = (rest.first(), header(rest)) else {
        return None;
    };
    rest.get(len..len.saturating_add(name_len as usize))
}
