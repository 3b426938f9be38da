//! Messages: their headers, and what their documents say.
//!
//! ```text
//! header (16): length │ id │ id of the request that it answers │ opcode
//! OP_MSG:        flags │ 0, document │ 1, length, name, documents │ … │ checksum
//! OP_QUERY:      flags │ collection, 0 │ skip │ number │ document
//! OP_REPLY:      flags │ cursor │ from │ number │ documents
//! OP_COMPRESSED: opcode │ length │ compressor │ what is compressed
//! ```
//! A document's first element is the command, and its value the collection. `$db`, the database, comes anywhere behind.
//! An answer says by `ok` whether the command succeeded, and by `code` why not. Nothing is read of what a user stores,
//! asks for, or gets, but whether a cursor had anything new.
//!
//! Source: MongoDB's manual, "MongoDB Wire Protocol"; specifications of its drivers, "OP_MSG", "Find, getMore and
//! killCursors commands", "Server Discovery and Monitoring".

use std::ops::Range;

use super::bson::{self, Element, Elements, read_u32};
use super::commands::{self, Names};
use crate::results::{SAYS_NOTHING, SUCCESS};

pub const HEADER_LEN: usize = 16;
/// Longest message of servers and drivers (`maxMessageSizeBytes`).
const LONGEST: u32 = 48_000_000;
const CHECKSUM_LEN: usize = 4;
/// Length of a document's length.
const LENGTH_LEN: usize = 4;
/// Sections of a message that are passed before the one with the command, at most.
const SECTIONS_MOST: usize = 16;
/// Longest name of a database or a collection; both together have 255 bytes at most.
const NAME_MOST: usize = 255;
/// The collection that commands of OP_QUERY are sent to.
const COMMANDS: &[u8] = b".$cmd";
/// An error that says nothing but that it is one.
pub const NO_CODE: i32 = i32::MAX;

/// Kinds of messages.
pub mod opcode {
    pub const REPLY: u32 = 1;
    pub const QUERY: u32 = 2004;
    pub const COMPRESSED: u32 = 2012;
    pub const MSG: u32 = 2013;
    /// Of clients older than MongoDB 3.6: OP_UPDATE, OP_INSERT, OP_GET_MORE, OP_DELETE, OP_KILL_CURSORS.
    pub const OLDER: &[u32] = &[2001, 2002, 2005, 2006, 2007];
}

/// Flags of OP_MSG. Of the lower half, others than these must not be there.
mod message_flag {
    pub const CHECKSUM: u32 = 1;
    pub const MORE_TO_COME: u32 = 2;
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;
    pub const REQUIRED: u32 = 0xffff;
}

/// Flags of OP_QUERY and OP_REPLY.
const QUERY_FLAGS: u32 = 0xfe;
const REPLY_FLAGS: u32 = 0x0f;
const REPLY_FAILURE: u32 = 2;

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub len: u32,
    pub id: u32,
    /// Id of the request that it answers; 0 if it is none.
    pub answers: u32,
    pub opcode: u32,
}

impl Header {
    /// Read a header; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let header = Self {
            len: number(0),
            id: number(4),
            answers: number(8),
            opcode: number(12),
        };
        let shortest = HEADER_LEN + Self::shortest_body(header.opcode)?;
        (header.len as usize >= shortest && header.len <= LONGEST).then_some(header)
    }

    /// Length of the shortest body of a message of this kind; `None` if there is no such kind.
    fn shortest_body(opcode: u32) -> Option<usize> {
        match opcode {
            opcode::MSG => Some(4 + 1 + bson::SHORTEST),
            opcode::COMPRESSED => Some(4 + 4 + 1),
            opcode::QUERY => Some(4 + 2 + 4 + 4 + bson::SHORTEST),
            opcode::REPLY => Some(4 + 8 + 4 + 4),
            _ if opcode::OLDER.contains(&opcode) => Some(4),
            _ => None,
        }
    }

    /// Whether it may be of a request. Some clients say that it answers the request -1.
    pub fn may_ask(&self) -> bool {
        self.opcode != opcode::REPLY && (self.answers == 0 || self.answers == u32::MAX)
    }
}

/// What a message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub is_request: bool,
    /// A request that wants no answer, or an answer behind which another follows.
    pub more_to_come: bool,
    /// A request that waits for news; an answer that has none, of a cursor that goes on.
    pub waits: bool,
    /// What it asks for is news: what is asked of its cursor later waits.
    pub opens_wait: bool,
    /// Number of the cursor that it names; 0 if none.
    pub cursor: i64,
    /// As [`crate::results`] has it.
    pub result: i32,
    /// Where the name of the command, the database, and the collection stand; empty if they do not.
    pub method: Range<usize>,
    pub database: Range<usize>,
    pub collection: Range<usize>,
    /// What was read beside the header, ascending.
    pub read: Vec<Range<usize>>,
    /// Where secrets stand.
    pub secrets: Vec<Range<usize>>,
}

impl Content {
    /// Database and collection of a message.
    pub fn target(&self, message: &[u8]) -> Vec<u8> {
        let [database, collection] = [&self.database, &self.collection].map(|place| &message[place.clone()]);
        match (database.is_empty(), collection.is_empty()) {
            (false, false) => [database, b".", collection].concat(),
            _ => [database, collection].concat(),
        }
    }
}

/// Read a message, from its header on as far as it was captured.
pub fn read(header: &Header, message: &[u8]) -> Content {
    let message = &message[..message.len().min(header.len as usize)];
    let mut found = Content {
        is_request: header.may_ask(),
        result: SAYS_NOTHING,
        ..Content::default()
    };
    match header.opcode {
        opcode::MSG => found.read_msg(header, message),
        opcode::QUERY => found.read_query(header, message),
        opcode::REPLY => found.read_reply(header, message),
        opcode::COMPRESSED => found.read_compressed(message),
        _ => found.is_request = false,
    }
    found
}

/// Whether a message begins as its kind does, judged without the bytes before it: its kind, flags and lengths must fit
/// each other, and its document's first element.
pub fn is_sure(header: &Header, message: &[u8]) -> bool {
    let len = header.len as usize;
    let flags = read_u32(message, HEADER_LEN);
    let is_document = |at: usize| {
        let is_valid = |doc: u32| doc as usize >= bson::SHORTEST && at.saturating_add(doc as usize) <= len;
        let first = message.get(at + 4..).unwrap_or_default();
        read_u32(message, at).is_some_and(is_valid) && bson::may_be_first(first)
    };
    match (header.opcode, flags) {
        (opcode::MSG, Some(flags)) if are_valid(flags) => match message.get(HEADER_LEN + 4) {
            Some(0) => is_document(HEADER_LEN + 5),
            Some(1) => {
                let sequence = read_u32(message, HEADER_LEN + 5).map_or(0, |len| len as usize);
                let name = message
                    .get(HEADER_LEN + 9)
                    .is_none_or(|&byte| byte == 0 || byte.is_ascii_lowercase());
                (bson::SHORTEST..len).contains(&sequence) && name
            }
            _ => false,
        },
        (opcode::COMPRESSED, Some(original)) => {
            let compressor = message.get(HEADER_LEN + 8);
            let is_known = [opcode::MSG, opcode::QUERY, opcode::REPLY].contains(&original);
            is_known && compressor.is_some_and(|&compressor| compressor <= 3)
        }
        (opcode::QUERY, Some(flags)) if flags & !QUERY_FLAGS == 0 => {
            let end = name_end(message, HEADER_LEN + 4);
            header.may_ask() && end.is_some_and(|end| is_document(end + 1 + 8))
        }
        (opcode::REPLY, Some(flags)) if flags & !REPLY_FLAGS == 0 => {
            let [from, count] = [28, 32].map(|at| read_u32(message, at));
            header.answers != 0 && from == Some(0) && count == Some(1) && is_document(36)
        }
        _ => false,
    }
}

/// Whether flags of OP_MSG are among those that a message may have.
fn are_valid(flags: u32) -> bool {
    flags & message_flag::REQUIRED & !(message_flag::CHECKSUM | message_flag::MORE_TO_COME) == 0
}

/// Where the text that begins at `start` ends in a 0, if it may name a collection.
fn name_end(message: &[u8], start: usize) -> Option<usize> {
    let text = message.get(start..)?;
    let len = text.iter().take(NAME_MOST + 1).position(|&byte| byte == 0)?;
    is_shown(&text[..len]).then_some(start + len)
}

/// Whether a name can be shown.
fn is_shown(name: &[u8]) -> bool {
    let text = std::str::from_utf8(name);
    (1..=NAME_MOST).contains(&name.len()) && text.is_ok_and(|text| !text.chars().any(char::is_control))
}

impl Content {
    fn read_msg(&mut self, header: &Header, message: &[u8]) {
        let Some(flags) = read_u32(message, HEADER_LEN).filter(|&flags| are_valid(flags)) else {
            return;
        };
        self.more_to_come = flags & message_flag::MORE_TO_COME != 0;
        let checksum = if flags & message_flag::CHECKSUM != 0 {
            CHECKSUM_LEN
        } else {
            0
        };
        let end = (header.len as usize).saturating_sub(checksum);
        let mut at = HEADER_LEN + 4;
        self.read.push(HEADER_LEN..at);
        for _ in 0..SECTIONS_MOST {
            let Some(len) = read_u32(message, at + 1).map(|len| len as usize) else {
                return;
            };
            self.read.push(at..at + 5);
            match message[at] {
                0 => return self.read_command_or_answer(message, at + 1, end, flags),
                1 if len >= bson::SHORTEST => at = at.saturating_add(1 + len),
                _ => return,
            }
        }
    }

    fn read_query(&mut self, header: &Header, message: &[u8]) {
        let name = HEADER_LEN + 4;
        let Some(name_end) = name_end(message, name) else {
            return;
        };
        let start = name_end + 1 + 8;
        self.read.push(HEADER_LEN..(start + 4).min(message.len()));
        let Some(database_len) = message[name..name_end].strip_suffix(COMMANDS).map(<[u8]>::len) else {
            // A query of a client older than MongoDB 3.2: what it says is a user's.
            self.collection = name..name_end;
            return;
        };
        self.database = name..name + database_len;
        self.read_command_or_answer(message, start, header.len as usize, 0);
    }

    fn read_reply(&mut self, header: &Header, message: &[u8]) {
        let Some(flags) = read_u32(message, HEADER_LEN) else {
            return;
        };
        self.read.push(HEADER_LEN..40.min(message.len()));
        let Some(elements) = Elements::of(message, 36, header.len as usize) else {
            return;
        };
        // To a query, a document is a user's: an error shows by more than a number in it.
        let mut answer = Answer::default();
        let mut is_error = flags & REPLY_FAILURE != 0;
        for element in elements {
            is_error |= element.name == b"errmsg";
            if element.name == b"errmsg" {
                self.read.push(element.head());
            }
            self.take_of_answer(message, &element, &mut answer);
            self.take_secret(&element, message.len());
        }
        answer.ok = answer.ok.filter(|&ok| ok != 0 || is_error);
        if flags & REPLY_FAILURE != 0 {
            answer.ok = Some(0);
        }
        self.result = answer.result();
    }

    /// Nothing is read of what is compressed.
    fn read_compressed(&mut self, message: &[u8]) {
        self.read.push(HEADER_LEN..(HEADER_LEN + 9).min(message.len()));
    }

    /// Read the document at `start`, which ends at `end` or before.
    fn read_command_or_answer(&mut self, message: &[u8], start: usize, end: usize, flags: u32) {
        let Some(elements) = Elements::of(message, start, end) else {
            return;
        };
        if !self.is_request {
            let mut answer = Answer::default();
            for element in elements {
                self.take_of_answer(message, &element, &mut answer);
                self.take_secret(&element, message.len());
            }
            self.result = answer.result();
            return;
        }
        let mut answer = Answer::default();
        for element in elements {
            if element.at == start + LENGTH_LEN {
                self.take_command(message, &element);
            } else if element.name == b"ok" {
                self.take_of_answer(message, &element, &mut answer);
            } else {
                self.take_of_command(message, &element);
            }
            self.take_secret(&element, message.len());
        }
        let method = &message[self.method.clone()];
        self.waits |= flags & message_flag::EXHAUST_ALLOWED != 0 && commands::is_hello(method);
        if answer.ok.is_some() && self.database.is_empty() {
            // It answers the request with the number 0: every command names its database, and none is `ok`.
            (self.is_request, self.method, self.collection) = (false, 0..0, 0..0);
            self.result = answer.result();
        } else if commands::carries_secrets(method) {
            self.secrets.push(start + LENGTH_LEN..message.len());
        }
    }

    /// Take the first element of a command.
    fn take_command(&mut self, message: &[u8], element: &Element<'_>) {
        if element.name == b"$query" {
            self.read.push(element.head());
            let own = Elements::of_value(message, element).and_then(|mut own| own.next());
            own.into_iter().for_each(|own| self.take_command(message, &own));
            return;
        }
        if !commands::is_name(element.name) {
            return;
        }
        self.read.push(element.head());
        self.method = element.at + 1..element.at + 1 + element.name.len();
        match commands::names(element.name) {
            Names::Collection => self.collection = self.take_name(message, element),
            Names::Namespace => {
                let name = self.take_name(message, element);
                let dot = message[name.clone()].iter().position(|&byte| byte == b'.');
                if let Some(dot) = dot.map(|dot| name.start + dot) {
                    (self.database, self.collection) = (name.start..dot, dot + 1..name.end);
                }
            }
            Names::Command => {
                let own = Elements::of_value(message, element).and_then(|mut own| own.next());
                if let Some(own) = own.filter(|own| commands::names(own.name) == Names::Collection) {
                    self.read.push(own.head());
                    self.collection = self.take_name(message, &own);
                }
            }
            Names::Cursor => {
                if let Some(number) = element.number(message) {
                    self.read.push(element.value.clone());
                    self.cursor = cursor(number);
                }
            }
            Names::Nothing => {}
        }
    }

    /// Take another element of a command.
    fn take_of_command(&mut self, message: &[u8], element: &Element<'_>) {
        let method = &message[self.method.clone()];
        let is_of = |name: &[u8], command: &[u8]| element.name == name && method == command;
        if element.name == b"$db" && self.database.is_empty() {
            self.read.push(element.head());
            self.database = self.take_name(message, element);
        } else if is_of(b"collection", commands::GET_MORE) {
            self.read.push(element.head());
            self.collection = self.take_name(message, element);
        } else if is_of(b"maxTimeMS", commands::GET_MORE)
            || (element.name == b"maxAwaitTimeMS" && commands::is_hello(method))
        {
            // A server takes this of cursors that await data alone.
            self.waits |= self.take_number(message, element).is_some();
        } else if is_of(b"awaitData", commands::FIND) {
            self.opens_wait |= self.take_number(message, element).is_some_and(|number| number != 0);
        } else if is_of(b"pipeline", commands::AGGREGATE) {
            self.opens_wait |= self.is_change_stream(message, element);
        }
    }

    /// Whether the first stage of a pipeline watches for changes.
    fn is_change_stream(&mut self, message: &[u8], pipeline: &Element<'_>) -> bool {
        let first = |element: &Element<'_>| Elements::of_value(message, element).and_then(|mut own| own.next());
        let Some(stage) = first(pipeline) else {
            return false;
        };
        let Some(name) = first(&stage).filter(|name| name.name == b"$changeStream") else {
            return false;
        };
        self.read.extend([pipeline, &stage, &name].map(Element::head));
        true
    }

    /// Take an element of an answer.
    fn take_of_answer(&mut self, message: &[u8], element: &Element<'_>, answer: &mut Answer) {
        match element.name {
            b"ok" if answer.ok.is_none() => answer.ok = self.take_number(message, element),
            b"code" if answer.code.is_none() => answer.code = self.take_number(message, element),
            b"cursor" => answer.has_cursor |= self.take_cursor_of_answer(message, element),
            b"writeConcernError" => answer.write_concern = self.take_code(message, element),
            b"writeErrors" => {
                let first = Elements::of_value(message, element).and_then(|mut own| own.next());
                if let Some(first) = first.filter(Element::is_document) {
                    self.read.push(element.head());
                    answer.write = self.take_code(message, &first);
                }
            }
            _ => {}
        }
    }

    /// Take the number of the cursor of an answer, and whether there is anything in this batch. Returns whether it is one.
    fn take_cursor_of_answer(&mut self, message: &[u8], element: &Element<'_>) -> bool {
        let Some(elements) = Elements::of_value(message, element) else {
            return false;
        };
        self.read.push(element.head());
        let mut is_empty = false;
        for own in elements {
            match own.name {
                b"nextBatch" | b"firstBatch" if own.is_document() => {
                    self.read.push(own.head());
                    is_empty = own.name == b"nextBatch" && own.value.len() == bson::SHORTEST;
                }
                b"id" => self.take_cursor(message, &own),
                _ => {}
            }
        }
        self.waits = is_empty && self.cursor != 0;
        true
    }

    fn take_cursor(&mut self, message: &[u8], element: &Element<'_>) {
        if let Some(number) = self.take_number(message, element) {
            self.cursor = cursor(number);
        }
    }

    /// Take the number `code` of an error in a document; [`NO_CODE`] if it has none.
    fn take_code(&mut self, message: &[u8], element: &Element<'_>) -> Option<i64> {
        let elements = Elements::of_value(message, element)?;
        self.read.push(element.head());
        for own in elements {
            if own.name == b"code" {
                let code = self.take_number(message, &own);
                return code.or(Some(NO_CODE.into()));
            }
        }
        Some(NO_CODE.into())
    }

    /// Take a number that is an element's value.
    fn take_number(&mut self, message: &[u8], element: &Element<'_>) -> Option<i64> {
        let number = element.number(message)?;
        self.read.push(element.at..element.value.end);
        Some(number)
    }

    /// Take a name that is an element's value; empty if there is none that can be shown.
    fn take_name(&mut self, message: &[u8], element: &Element<'_>) -> Range<usize> {
        let name = element.text(message).filter(|name| is_shown(&message[name.clone()]));
        if name.is_some() {
            self.read.push(element.head().end..element.value.end);
        }
        name.unwrap_or_default()
    }

    fn take_secret(&mut self, element: &Element<'_>, message_len: usize) {
        if commands::is_secret_element(element.name) {
            let start = element.head().end;
            self.secrets.push(start..element.value.end.clamp(start, message_len));
        }
    }
}

/// The number of a cursor, without the sign that some have.
fn cursor(number: i64) -> i64 {
    number & i64::MAX
}

/// What an answer says of its success.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    ok: Option<i64>,
    code: Option<i64>,
    /// Codes of the first write that failed, and of a write that was not confirmed as was asked.
    write: Option<i64>,
    write_concern: Option<i64>,
    /// Only a command that succeeded has a cursor; `ok` may come behind what that returns.
    has_cursor: bool,
}

impl Answer {
    fn result(&self) -> i32 {
        let code = |code: Option<i64>| match code.and_then(|code| i32::try_from(code).ok()) {
            Some(code) if code > 0 => code,
            _ => NO_CODE,
        };
        match (self.ok, self.write.or(self.write_concern)) {
            (Some(0), _) => code(self.code),
            (_, Some(error)) => code(Some(error)),
            (Some(_), None) => SUCCESS,
            (None, None) if self.has_cursor => SUCCESS,
            (None, None) => SAYS_NOTHING,
        }
    }
}
