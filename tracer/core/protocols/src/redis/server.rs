//! Reads what a Redis server sends: answers of RESP 2 and 3, and messages that nobody asked for (`>`).
//!
//! Of an answer its length is noted, and of an error the first word. Contents are skipped by their lengths. An answer is
//! noted as soon as its length is known, and before that, without it, at the end of a packet that does not complete it.
//!
//! Limits: strings and aggregates whose length is not stated (`$?`, `*?`), which Redis does not send.
//!
//! Source: Redis serialization protocol specification (RESP 2 and RESP3, "RESP protocol description").

use memchr::memchr;

use super::client::write_start;
use super::errors;
use super::line::{Header, header};
use super::marked::Mark;
use crate::exchanges::flag;
use crate::kept_messages::Writer;
use crate::protocol::{OnMessage, Scan, Scanner};

/// Values inside each other, at most.
const DEPTH_LIMIT: usize = 32;
/// Bytes of a line that are kept for the next packet: a header, or the word of an error.
const HELD_LIMIT: usize = 32;
const COPYING: &[u8] = b"REPLCONF";

#[derive(Clone, Debug, Default)]
pub(super) struct ServerScanner {
    /// Bytes of the current answer before those that are scanned.
    len: u64,
    /// The beginning of a line that the next packet continues.
    held: Vec<u8>,
    /// Values that are still to come in each of the values around the next one.
    open: Vec<u32>,
    /// The first byte of the answer; 0 before it.
    kind: u8,
    result_code: i32,
    /// The next bytes continue a line of text.
    is_in_text: bool,
    /// The last byte of that line that was read.
    text_end: u8,
    /// Elements of the answer were read.
    is_past_first: bool,
    is_announced: bool,
    writer: Writer,
}

impl Scanner for ServerScanner {
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan {
        let (mut at, mut start) = (0, -(self.len as i64));
        while at < bytes.len() {
            match self.step(&bytes[at..]) {
                Step::Read(len) => at += len,
                Step::Done(len) => {
                    at += len;
                    self.note(Some((at as i64 - start) as u64), start, found);
                    self.begin();
                    start = at as i64;
                }
                Step::Wait => {
                    at = bytes.len();
                    break;
                }
                Step::Copies => {
                    self.note_copies(start, found);
                    return Scan::End;
                }
                Step::Invalid => return Scan::End,
            }
        }
        if self.kind != 0 && !self.is_announced {
            self.is_announced = true;
            self.note(None, start, found);
        }
        self.len = (at as i64 - start) as u64;
        Scan::Skip((at - bytes.len()) as u32)
    }

    fn lose(&mut self, found: OnMessage<'_>) {
        if self.kind != 0 {
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
    /// With so many bytes the answer ends.
    Done(usize),
    /// All bytes were taken; more are needed.
    Wait,
    /// A replica's message to its master.
    Copies,
    Invalid,
}

impl ServerScanner {
    /// Begin an answer.
    #[inline]
    fn begin(&mut self) {
        self.held.clear();
        self.open.clear();
        self.kind = 0;
        self.result_code = 0;
        self.is_in_text = false;
        self.is_past_first = false;
        self.is_announced = false;
    }

    /// Read the next value's line, of which the beginning may be held, and skip what its header announces.
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> Step {
        if self.is_in_text {
            let Some(end) = memchr(b'\n', bytes) else {
                self.text_end = bytes.last().copied().unwrap_or(self.text_end);
                return Step::Wait;
            };
            let before = end.checked_sub(1).map_or(self.text_end, |at| bytes[at]);
            self.is_in_text = false;
            return if before == b'\r' {
                self.end_value(end + 1)
            } else {
                Step::Invalid
            };
        }
        if self.held.is_empty() {
            let step = self.line(bytes);
            if matches!(step, Step::Wait) {
                self.held.extend_from_slice(bytes);
            }
            return step;
        }
        let mut line = std::mem::take(&mut self.held);
        let before = line.len();
        line.extend_from_slice(&bytes[..bytes.len().min(HELD_LIMIT)]);
        match self.line(&line) {
            Step::Read(len) => Step::Read(len.saturating_sub(before)),
            Step::Done(len) => Step::Done(len.saturating_sub(before)),
            Step::Wait => {
                self.held = line;
                Step::Wait
            }
            other => other,
        }
    }

    /// Read a line, of which at least one byte is there. To wait means that fewer than [`HELD_LIMIT`] bytes are.
    #[inline]
    fn line(&mut self, line: &[u8]) -> Step {
        match line[0] {
            b'$' | b'*' | b'%' | b'~' | b'>' | b'=' | b'!' | b'|' => match header(line) {
                Header::Whole(number, len) => self.take_header(line[0], number, len, &line[len..]),
                Header::Partial if line.len() < HELD_LIMIT => Step::Wait,
                _ => Step::Invalid,
            },
            b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => self.text(line),
            _ => Step::Invalid,
        }
    }

    /// Read a value that is a line of text.
    fn text(&mut self, line: &[u8]) -> Step {
        let end = memchr(b'\n', line);
        if end.is_none() && line.len() < HELD_LIMIT {
            return Step::Wait;
        }
        if end.is_some_and(|end| line[end - 1] != b'\r') {
            return Step::Invalid;
        }
        let code = if line[0] == b'-' { errors::code(&line[1..]) } else { 0 };
        self.is_past_first |= !self.open.is_empty();
        self.begin_value(line[0], code);
        match end {
            Some(end) => self.end_value(end + 1),
            None => {
                (self.is_in_text, self.text_end) = (true, line[line.len() - 1]);
                Step::Read(line.len())
            }
        }
    }

    /// Go on behind the header of a value, which has `len` bytes. A replica's command has a name of a known length, which
    /// decides.
    #[inline]
    fn take_header(&mut self, kind: u8, number: i64, len: usize, behind: &[u8]) -> Step {
        let is_first = self.kind == b'*' && self.open.len() == 1 && !self.is_past_first;
        if is_first && kind == b'$' && number == COPYING.len() as i64 {
            let name = &behind[..behind.len().min(COPYING.len())];
            match COPYING.strip_prefix(name) {
                Some(b"") => return Step::Copies,
                Some(_) => return Step::Wait,
                None => {}
            }
        }
        self.is_past_first |= !self.open.is_empty();
        self.begin_value(kind, i32::from(kind == b'!'));
        let Ok(number) = u32::try_from(number) else {
            return self.end_value(len); // null
        };
        match kind {
            b'$' | b'=' | b'!' => return self.end_value(len + number as usize + 2),
            b'|' => return self.take_attributes(number, len),
            _ if number == 0 => return self.end_value(len),
            _ if self.open.len() >= DEPTH_LIMIT => return Step::Invalid,
            b'%' => self.open.push(2 * number),
            _ => self.open.push(number),
        }
        Step::Read(len)
    }

    /// Attributes stand before the value that they are of.
    fn take_attributes(&mut self, number: u32, len: usize) -> Step {
        let more = 2 * number + 1;
        match self.open.last_mut() {
            None => self.open.push(more),
            Some(left) => match left.checked_add(more) {
                Some(sum) => *left = sum,
                None => return Step::Invalid,
            },
        }
        Step::Read(len)
    }

    #[inline]
    fn begin_value(&mut self, kind: u8, code: i32) {
        match self.open.last_mut() {
            Some(left) => *left -= 1,
            None if self.kind == 0 => (self.kind, self.result_code) = (kind, code),
            None => {}
        }
    }

    #[inline]
    fn end_value(&mut self, len: usize) -> Step {
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        if self.open.is_empty() {
            Step::Done(len)
        } else {
            Step::Read(len)
        }
    }

    /// Note the current answer, of which the length is given if it is known.
    fn note(&mut self, len: Option<u64>, start: i64, found: OnMessage<'_>) {
        let flags = if self.kind == b'>' { flag::UNASKED } else { 0 };
        let solid = &mut self.writer.solid;
        solid.clear();
        solid.push(self.kind);
        if self.kind == b'-' {
            solid.extend_from_slice(errors::word(self.result_code).unwrap_or_default().as_bytes());
        }
        solid.extend_from_slice(b"\r\n");
        self.writer.pass_answer((flags, len), start, self.result_code, found);
    }

    /// Note that what was taken for an answer is a replica's, to which its master sends: the connection carries copies.
    fn note_copies(&mut self, start: i64, found: OnMessage<'_>) {
        write_start(COPYING, &mut self.writer.solid);
        let reach = Mark::Ends.reach(COPYING);
        self.writer.pass_request((0, None), start, reach, COPYING, b"", found);
    }
}

/// Whether a payload begins with an answer, as far as it was captured.
pub(super) fn resumes(payload: &[u8]) -> bool {
    let mut found = false;
    let scan = ServerScanner::default().scan(payload, &mut |_| found = true);
    found && scan != Scan::End
}
