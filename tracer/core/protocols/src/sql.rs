//! The shape of an SQL statement: the statement without the values in it, by which it is named.
//!
//! ```text
//! select id, total from orders where id in (17, 18) -- new  ─▶  SELECT   id, total FROM orders WHERE id IN (?)
//!                                                              (verb)   (rest)
//! ```
//! 1. The text is divided into tokens ([`next_token`]): words, quoted names, literals, comments, spaces, other bytes.
//! 2. Literals and parameters become `?`; lists of them, and the rows of `VALUES`, become one. Comments disappear, and
//!    every stretch of space becomes one.
//! 3. Long lists of columns become `…`, so that what follows them is read; the rest is cut at [`REST_LIMIT`] bytes.
//!
//! A statement may be cut anywhere: what begins as a literal is one, whether or not its end was captured. Where two
//! readings of a text are possible (a backslash before a quote, which only some settings of PostgreSQL escape), the rest
//! counts as a literal. So no value stands in a shape, nor in what [`overwrite_literals`] leaves.
//!
//! Limits: values inside of quoted names and of words (`orders_2026`) are not recognised. In MySQL, text in double
//! quotes counts as a literal (so it is without `ANSI_QUOTES`), and a backslash escapes (as without
//! `NO_BACKSLASH_ESCAPES`).
//!
//! Source: PostgreSQL, "Lexical Structure"; MySQL, "Literal Values", "Comments".

use memchr::memchr2;

use crate::name_index::NameIndex;

/// Longest rest of a shape.
pub const REST_LIMIT: usize = 512;
/// Longest verb.
const VERB_LIMIT: usize = 24;
/// A list of columns longer than this becomes `…`.
const LIST_LIMIT: usize = 40;
const ELLIPSIS: &[u8] = "…".as_bytes();
/// Lists that may be open at one time; those inside of more are not shortened.
const OPEN_LISTS: usize = 8;

/// Words that are written in upper case, however the statement writes them.
const KEYWORDS: &[&[u8]] = &[
    b"ALL",
    b"AND",
    b"AS",
    b"ASC",
    b"BETWEEN",
    b"BY",
    b"CASE",
    b"CONFLICT",
    b"CROSS",
    b"DELETE",
    b"DESC",
    b"DISTINCT",
    b"DO",
    b"DUPLICATE",
    b"ELSE",
    b"END",
    b"EXCEPT",
    b"EXISTS",
    b"FOR",
    b"FROM",
    b"FULL",
    b"GROUP",
    b"HAVING",
    b"IN",
    b"INNER",
    b"INSERT",
    b"INTERSECT",
    b"INTO",
    b"IS",
    b"JOIN",
    b"KEY",
    b"LEFT",
    b"LIKE",
    b"LIMIT",
    b"NOT",
    b"NULL",
    b"OFFSET",
    b"ON",
    b"OR",
    b"ORDER",
    b"OUTER",
    b"RETURNING",
    b"RIGHT",
    b"SELECT",
    b"SET",
    b"TABLE",
    b"THEN",
    b"UNION",
    b"UPDATE",
    b"USING",
    b"VALUES",
    b"WHEN",
    b"WHERE",
    b"WITH",
];
/// Words that stand for a value where they are an element of a list.
const VALUE_WORDS: &[&[u8]] = &[b"NULL", b"TRUE", b"FALSE", b"DEFAULT"];

static KEYWORDS_INDEX: NameIndex<128> = NameIndex::new(KEYWORDS);

/// Whose SQL it is, where that decides what is a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    PostgreSql,
    MySql,
}

/// A statement's shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Its first word, in upper case; empty if it begins with none.
    pub verb: Vec<u8>,
    pub rest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Space,
    Comment,
    Word,
    QuotedName,
    /// A literal with a mark at its beginning and at its end.
    Literal,
    Number,
    /// `?`, `$1`: stands for a value that is sent apart.
    Parameter,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    kind: Kind,
    end: usize,
    /// Bytes at its start and its end that are no part of a literal's value, or a comment's text.
    around: (usize, usize),
}

impl Token {
    fn new(kind: Kind, end: usize) -> Self {
        Self {
            kind,
            end,
            around: (0, 0),
        }
    }

    /// Whether the end of a literal that ends with a mark of its own was found.
    fn is_finished(&self) -> bool {
        self.kind != Kind::Literal || self.around.1 > 0
    }
}

/// The shape of a statement.
///
/// Arguments: `is_whole`, whether the text ends where the statement does.
pub fn shape(text: &[u8], is_whole: bool, dialect: Dialect) -> Shape {
    let mut writer = Writer::with_room_for(text.len());
    let (mut at, mut is_whole) = (0, is_whole);
    while let Some(token) = next_token(text, at, dialect) {
        is_whole &= token.is_finished();
        if !writer.take(&text[at..token.end], token.kind) {
            break;
        }
        at = token.end;
    }
    writer.finish(is_whole && at == text.len())
}

/// Overwrite the values in a statement, and the text of its comments; its shape stays the same.
pub fn overwrite_literals(text: &mut [u8], dialect: Dialect) {
    overwrite(text, dialect, |inside| inside.fill(b'0'));
}

/// The same, but for numbers.
pub fn overwrite_texts(text: &mut [u8], dialect: Dialect) {
    overwrite(text, dialect, |_| {});
}

fn overwrite(text: &mut [u8], dialect: Dialect, overwrite_number: fn(&mut [u8])) {
    let mut at = 0;
    while let Some(token) = next_token(text, at, dialect) {
        let (before, behind) = token.around;
        let inside = at + before..(token.end - behind).max(at + before);
        match token.kind {
            Kind::Number => overwrite_number(&mut text[inside]),
            Kind::Literal | Kind::Comment => text[inside].fill(b'x'),
            _ => {}
        }
        at = token.end;
    }
}

/// Writes a shape token by token.
#[derive(Debug, Default)]
struct Writer {
    shape: Shape,
    has_verb: bool,
    is_spaced: bool,
    /// The last two tokens, by kind and first byte.
    last: Option<(Kind, u8)>,
    before_last: Option<(Kind, u8)>,
    depth: u32,
    lists: Vec<List>,
    /// Depth of a `VALUES` of which the first row is written; the others are skipped.
    rows_depth: Option<u32>,
    is_after_values: bool,
    /// What follows is the name of a table, and perhaps its columns.
    is_after_into: bool,
}

/// A list of columns that may be shortened.
#[derive(Clone, Copy, Debug)]
struct List {
    depth: u32,
    start: usize,
    /// The word or the parenthesis that ends it.
    until: &'static [u8],
}

impl Writer {
    /// A writer of the shape of so long a statement, few of which are longer than their texts.
    fn with_room_for(len: usize) -> Self {
        let shape = Shape {
            verb: Vec::with_capacity(len.min(VERB_LIMIT)),
            rest: Vec::with_capacity(len.min(REST_LIMIT + ELLIPSIS.len())),
        };
        Self {
            shape,
            ..Self::default()
        }
    }

    /// Add a token; false if no more are wanted.
    #[inline]
    fn take(&mut self, token: &[u8], kind: Kind) -> bool {
        match kind {
            Kind::Space | Kind::Comment => {
                self.is_spaced = true;
                return true;
            }
            Kind::Word if !self.has_verb => self.take_verb(token),
            _ if !self.has_verb => {
                self.has_verb = true;
                self.put(token, kind);
            }
            _ => self.put(token, kind),
        }
        self.shape.rest.len() <= REST_LIMIT || !self.lists.is_empty() && self.shape.rest.len() <= 4 * REST_LIMIT
    }

    fn take_verb(&mut self, word: &[u8]) {
        self.has_verb = true;
        self.is_spaced = false;
        let verb = &word[..word.len().min(VERB_LIMIT)];
        self.shape.verb.extend(verb.iter().map(u8::to_ascii_uppercase));
        let verb = std::mem::take(&mut self.shape.verb);
        self.note_word(&verb);
        self.shape.verb = verb;
        self.remember(Kind::Word, word[0]);
    }

    fn put(&mut self, token: &[u8], kind: Kind) {
        let first = token[0];
        if self.skips_row(kind, first) {
            return;
        }
        match kind {
            Kind::Literal | Kind::Number | Kind::Parameter => self.put_value(),
            Kind::Word => self.put_word(token),
            Kind::QuotedName => self.put_plain(token),
            _ => self.put_other(token),
        }
        self.remember(kind, first);
    }

    fn remember(&mut self, kind: Kind, first: u8) {
        self.before_last = self.last.replace((kind, first));
    }

    /// Whether the token belongs to a row of `VALUES` after the first.
    fn skips_row(&mut self, kind: Kind, first: u8) -> bool {
        let Some(depth) = self.rows_depth else {
            return false;
        };
        if kind == Kind::Other {
            match first {
                b'(' => self.depth += 1,
                b')' if self.depth > depth => self.depth -= 1,
                b',' => {}
                _ if self.depth > depth => {}
                _ => self.rows_depth = None,
            }
        } else if self.depth == depth {
            self.rows_depth = None;
        }
        self.rows_depth.is_some()
    }

    /// Write `?`, or nothing if it would follow another in a list.
    fn put_value(&mut self) {
        self.is_after_into = false;
        if self.is_signed() {
            self.shape.rest.pop();
            self.is_spaced = self.shape.rest.pop_if(|byte| *byte == b' ').is_some();
        }
        let rest = &mut self.shape.rest;
        if rest.ends_with(b"?,") {
            rest.pop();
            self.is_spaced = false;
            return;
        }
        self.put_text(b"?");
    }

    /// Whether the last byte is a sign of the value that follows: not between two operands.
    fn is_signed(&self) -> bool {
        let sign = matches!(self.last, Some((Kind::Other, b'-' | b'+')));
        sign && (self.shape.rest.len() == 1 || matches!(self.before_last, Some((Kind::Other, byte)) if byte != b')'))
    }

    fn put_word(&mut self, word: &[u8]) {
        let mut upper = [0; 12];
        let upper = match upper.get_mut(..word.len()) {
            Some(room) => {
                room.copy_from_slice(word);
                room.make_ascii_uppercase();
                &*room
            }
            None => &[],
        };
        let is_element = matches!(self.last, Some((Kind::Other, b'(' | b',')));
        if is_element && VALUE_WORDS.contains(&upper) {
            return self.put_value();
        }
        self.end_list(upper);
        if !upper.is_empty() && KEYWORDS_INDEX.find(KEYWORDS, upper).is_some() {
            self.put_text(upper);
        } else {
            self.put_text(word);
        }
        self.note_word(upper);
    }

    /// Note what a word, in upper case, says of the tokens after it.
    fn note_word(&mut self, upper: &[u8]) {
        let until: &'static [u8] = match upper {
            b"SELECT" => b"FROM",
            b"SET" => b"WHERE",
            _ => b"",
        };
        if !until.is_empty() {
            self.begin_list(until);
        }
        self.is_after_values = upper == b"VALUES";
        self.is_after_into = upper == b"INTO" || (self.is_after_into && upper != b"VALUES" && upper != b"SELECT");
    }

    fn begin_list(&mut self, until: &'static [u8]) {
        let (depth, start) = (self.depth, self.shape.rest.len());
        if self.lists.len() < OPEN_LISTS {
            self.lists.push(List { depth, start, until });
        }
    }

    /// End the list that this word ends, if any is open at this depth.
    fn end_list(&mut self, word: &[u8]) {
        if let Some(list) = self
            .lists
            .last()
            .filter(|list| list.until == word && list.depth == self.depth)
        {
            let list = *list;
            self.lists.pop();
            if self.shape.rest.len() - list.start.min(self.shape.rest.len()) > LIST_LIMIT {
                self.shape.rest.truncate(list.start);
                if list.start > 0 && list.until != b")" {
                    self.shape.rest.push(b' ');
                }
                self.shape.rest.extend_from_slice(ELLIPSIS);
            }
        }
    }

    fn put_other(&mut self, token: &[u8]) {
        match token {
            b"(" => {
                self.put_plain(token);
                self.depth += 1;
                if std::mem::take(&mut self.is_after_into) {
                    self.begin_list(b")");
                }
            }
            b")" => {
                while self
                    .lists
                    .last()
                    .is_some_and(|list| list.depth == self.depth && list.until != b")")
                {
                    self.lists.pop();
                }
                self.end_list(b")");
                self.depth = self.depth.saturating_sub(1);
                self.is_spaced = false;
                self.put_plain(token);
                if std::mem::take(&mut self.is_after_values) {
                    self.rows_depth = Some(self.depth);
                }
            }
            b"," | b";" | b"." => {
                self.is_spaced = false;
                self.put_plain(token);
                self.is_spaced = token != b".";
            }
            _ => self.put_plain(token),
        }
    }

    /// Append a token, after a space if any stood before it. Control bytes in it become spaces.
    fn put_plain(&mut self, token: &[u8]) {
        let begun = self.shape.rest.len();
        self.put_text(token);
        let added = &mut self.shape.rest[begun..];
        added.iter_mut().for_each(|byte| *byte = (*byte).max(b' '));
    }

    /// The same of a token without control bytes.
    fn put_text(&mut self, token: &[u8]) {
        let rest = &mut self.shape.rest;
        let is_close = rest.is_empty() || matches!(rest.last(), Some(b'(' | b'.'));
        if std::mem::take(&mut self.is_spaced) && !is_close {
            rest.push(b' ');
        }
        rest.extend_from_slice(token);
    }

    fn finish(self, is_whole: bool) -> Shape {
        let mut shape = self.shape;
        if shape.rest.len() > REST_LIMIT {
            let is_continued = |byte: &u8| byte & 0xc0 == 0x80;
            let end = (0..=REST_LIMIT).rev().find(|&at| !is_continued(&shape.rest[at]));
            shape.rest.truncate(end.unwrap_or(0));
            shape.rest.extend_from_slice(ELLIPSIS);
        } else if !is_whole && !shape.rest.ends_with(ELLIPSIS) {
            shape.rest.extend_from_slice(ELLIPSIS);
        }
        if is_whole && shape.rest.ends_with(b";") {
            shape.rest.pop();
        }
        shape
    }
}

/// The token at `at`; `None` at the end of the text.
#[inline]
fn next_token(text: &[u8], at: usize, dialect: Dialect) -> Option<Token> {
    let first = *text.get(at)?;
    let second = text.get(at + 1).copied().unwrap_or(0);
    let is_mysql = dialect == Dialect::MySql;
    let token = match first {
        b'\'' => string(text, at, 1, is_mysql.into()),
        b'"' if is_mysql => string(text, at, 1, Escapes::Always),
        b'"' | b'`' => Token::new(Kind::QuotedName, end_of_quoted(text, at + 1, first)),
        b'-' if second == b'-' => line_comment(text, at, 2),
        b'#' if is_mysql => line_comment(text, at, 1),
        b'/' if second == b'*' => block_comment(text, at, !is_mysql),
        b'$' if second.is_ascii_digit() => Token::new(Kind::Parameter, run_end(text, at + 1, is_digit)),
        b'$' if !is_mysql => dollar_string(text, at),
        b'?' => Token::new(Kind::Parameter, at + 1),
        b'.' if second.is_ascii_digit() => number(text, at),
        b'0'..=b'9' => number(text, at),
        _ if is_space(first) => Token::new(Kind::Space, run_end(text, at, is_space)),
        _ if is_word(first) => word(text, at, is_mysql),
        _ => Token::new(Kind::Other, at + 1),
    };
    Some(token)
}

/// When a backslash in a string escapes the byte after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escapes {
    Always,
    /// Depends on a setting that is not known.
    Perhaps,
}

impl From<bool> for Escapes {
    fn from(always: bool) -> Self {
        if always { Self::Always } else { Self::Perhaps }
    }
}

/// A string from `at`, whose opening quote ends `before` bytes behind it.
fn string(text: &[u8], at: usize, before: usize, escapes: Escapes) -> Token {
    let quote = text[at + before - 1];
    let mut place = at + before;
    let unfinished = Token {
        kind: Kind::Literal,
        end: text.len(),
        around: (before, 0),
    };
    while let Some(found) = text.get(place..).and_then(|rest| memchr2(quote, b'\\', rest)) {
        place += found;
        let next = text.get(place + 1).copied();
        place += match text[place] {
            b'\\' if escapes == Escapes::Always => 2,
            b'\\' if next == Some(quote) => return unfinished,
            b'\\' => 1,
            _ if next == Some(quote) => 2,
            _ => {
                return Token {
                    end: place + 1,
                    around: (before, 1),
                    ..unfinished
                };
            }
        };
    }
    unfinished
}

/// Offset after the quote that ends a name.
fn end_of_quoted(text: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(&byte) = text.get(at) {
        let is_doubled = byte == quote && text.get(at + 1) == Some(&quote);
        at += if is_doubled { 2 } else { 1 };
        if byte == quote && !is_doubled {
            break;
        }
    }
    at
}

/// `$tag$ … $tag$`; another `$` is no literal.
fn dollar_string(text: &[u8], at: usize) -> Token {
    let tag_end = run_end(text, at + 1, |byte| is_word(byte) && byte != b'$');
    if text.get(tag_end) != Some(&b'$') {
        let cut = Token {
            kind: Kind::Literal, // perhaps: the mark at its beginning may go on
            end: tag_end,
            around: (1, 0),
        };
        return if tag_end == text.len() {
            cut
        } else {
            Token::new(Kind::Other, at + 1)
        };
    }
    let tag = &text[at..=tag_end];
    let body = &text[tag_end + 1..];
    let found = body.windows(tag.len()).position(|window| window == tag);
    Token {
        kind: Kind::Literal,
        end: found.map_or(text.len(), |found| tag_end + 1 + found + tag.len()),
        around: (tag.len(), if found.is_some() { tag.len() } else { 0 }),
    }
}

fn number(text: &[u8], at: usize) -> Token {
    let around = (usize::from(text[at] == b'.'), 0); // which stays, since a digit would continue a word before it
    let mut end = at;
    loop {
        end = run_end(text, end, |byte| class(byte) & NUMBER != 0);
        let is_exponent = matches!(text[end - 1], b'e' | b'E') && matches!(text.get(end), Some(b'-' | b'+'));
        if !is_exponent || !text.get(end + 1).is_some_and(u8::is_ascii_digit) {
            return Token {
                kind: Kind::Number,
                end,
                around,
            };
        }
        end += 1;
    }
}

/// A word, or a string with a prefix (`E'…'`).
fn word(text: &[u8], at: usize, is_mysql: bool) -> Token {
    let end = run_end(text, at, is_word);
    let prefix = &text[at..end];
    let is_short = prefix.len() == 1 && matches!(prefix[0].to_ascii_uppercase(), b'E' | b'B' | b'X' | b'N');
    if is_short && text.get(end) == Some(&b'\'') {
        let escapes = is_mysql || prefix.eq_ignore_ascii_case(b"E");
        return string(text, at, 2, escapes.into());
    }
    let is_unicode = prefix.eq_ignore_ascii_case(b"U") && text.get(end..end + 2) == Some(b"&'");
    if is_unicode {
        return string(text, at, 3, is_mysql.into());
    }
    Token::new(Kind::Word, end)
}

fn line_comment(text: &[u8], at: usize, before: usize) -> Token {
    Token {
        kind: Kind::Comment,
        end: run_end(text, at, |byte| byte != b'\n'),
        around: (before, 0),
    }
}

fn block_comment(text: &[u8], at: usize, is_nested: bool) -> Token {
    let (mut place, mut depth) = (at + 2, 1_u32);
    while place < text.len() {
        match text[place..] {
            [b'*', b'/', ..] => {
                (place, depth) = (place + 2, depth - 1);
                if depth == 0 {
                    let around = (2, 2);
                    return Token {
                        kind: Kind::Comment,
                        end: place,
                        around,
                    };
                }
            }
            [b'/', b'*', ..] if is_nested => (place, depth) = (place + 2, depth + 1),
            _ => place += 1,
        }
    }
    let around = (2, 0);
    Token {
        kind: Kind::Comment,
        end: text.len(),
        around,
    }
}

#[inline]
fn run_end(text: &[u8], at: usize, is_of: impl Fn(u8) -> bool) -> usize {
    let rest = text.get(at..).unwrap_or(&[]);
    at + rest.iter().position(|&byte| !is_of(byte)).unwrap_or(rest.len())
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

fn is_space(byte: u8) -> bool {
    byte <= b' '
}

fn is_word(byte: u8) -> bool {
    class(byte) & WORD != 0
}

/// Classes of bytes, as bits: what a word consists of, and what follows the first digit of a number.
const WORD: u8 = 1;
const NUMBER: u8 = 2;

static CLASSES: [u8; 256] = {
    let (mut classes, mut at) = ([0; 256], 0);
    while at < 256 {
        let byte = at as u8;
        let is_common = byte.is_ascii_alphanumeric() || byte == b'_';
        let is_word = is_common || byte == b'$' || byte >= 0x80;
        let is_number = is_common || byte == b'.';
        classes[at] = (is_word as u8 * WORD) | (is_number as u8 * NUMBER);
        at += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(text: &str, dialect: Dialect) -> String {
        let shape = shape(text.as_bytes(), true, dialect);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a shape of UTF-8 is UTF-8");
        format!("{}|{}", text(shape.verb), text(shape.rest))
    }

    const POSTGRESQL: &[(&str, &str)] = &[
        ("select 1", "SELECT|?"),
        (
            "SELECT id, total FROM orders WHERE id = 17;",
            "SELECT|id, total FROM orders WHERE id = ?",
        ),
        (
            "  select\n\tid from  orders\nwhere id in ( 1 , 2,3 )",
            "SELECT|id FROM orders WHERE id IN (?)",
        ),
        (
            "select * from t where name = 'it''s' and note = E'a\\'b'",
            "SELECT|* FROM t WHERE name = ? AND note = ?",
        ),
        ("select $tag$ a $$ 'b' $tag$, $$x$$ from t", "SELECT|? FROM t"),
        (
            "select * from t where a = $1 and b = $12::int",
            "SELECT|* FROM t WHERE a = ? AND b = ?::int",
        ),
        ("select /* secret /* nested */ */ 1 -- secret", "SELECT|?"),
        ("select U&'d\\0061t', X'1f', B'01', N'x' from t", "SELECT|? FROM t"),
        (
            "select -1, +2.5e-3, .5, 1e10 from t where a=-5 and b - 5 > 0",
            "SELECT|? FROM t WHERE a=? AND b - ? > ?",
        ),
        (
            "SELECT first_column, second_column, third_column, fourth FROM t",
            "SELECT|… FROM t",
        ),
        (
            "SELECT a, (SELECT first_column, second_column, third_column_of_it FROM u) FROM t",
            "SELECT|a, (SELECT … FROM u) FROM t",
        ),
        (
            "SELECT a FROM (SELECT first_column, second_column, third_column_of_it FROM u) v",
            "SELECT|a FROM (SELECT … FROM u) v",
        ),
        (
            "insert into t (a, b) values (1, 'x'), (2, 'y') returning id",
            "INSERT|INTO t (a, b) VALUES (?) RETURNING id",
        ),
        (
            "insert into t values (1, NULL, default), ($1, now(), 'y'),\n(3,4,5)",
            "INSERT|INTO t VALUES (?)",
        ),
        (
            "insert into s.t (first_column, second_column, third_column_of_it) select 1",
            "INSERT|INTO s.t (…) SELECT ?",
        ),
        (
            "update t set a = 1, b = 'x', c = c + 1, first_column = ?, second_column = ? where id = 5",
            "UPDATE|t SET … WHERE id = ?",
        ),
        (
            "select \"Na'me\", 'v' from \"Ta\"\"ble\"",
            "SELECT|\"Na'me\", ? FROM \"Ta\"\"ble\"",
        ),
        (
            "BEGIN; UPDATE t SET a = 1; COMMIT",
            "BEGIN|; UPDATE t SET a = ?; COMMIT",
        ),
        ("copy t (a, b) from stdin", "COPY|t (a, b) FROM stdin"),
        ("select 'C:\\' from t where a = 'secret'", "SELECT|?…"),
        ("select 'a\\'secret' from t", "SELECT|?…"),
        ("", "|"),
        ("(select 1)", "|(SELECT ?)"),
        (
            "select data->>'key' from t where a is null",
            "SELECT|data->>? FROM t WHERE a IS NULL",
        ),
        (
            "SELECT abalance FROM pgbench_accounts WHERE aid = 4711",
            "SELECT|abalance FROM pgbench_accounts WHERE aid = ?",
        ),
    ];

    #[test]
    fn a_statement_is_named_without_its_values() {
        for (text, expected) in POSTGRESQL {
            assert_eq!(text_of(text, Dialect::PostgreSql), *expected, "{text}");
        }
    }

    #[test]
    fn mysql_quotes_with_two_marks() {
        let cases = [
            (
                "select \"it\\\"s\", 'it\\'s', `a'b` from t # secret",
                "SELECT|?, `a'b` FROM t",
            ),
            (
                "select * from t where a = ? and b = 0x1f",
                "SELECT|* FROM t WHERE a = ? AND b = ?",
            ),
            (
                "INSERT INTO judge.t VALUES (1, 'www'), (2, 'x')",
                "INSERT|INTO judge.t VALUES (?)",
            ),
            ("select @@version_comment limit 1", "SELECT|@@version_comment LIMIT ?"),
        ];
        for (text, expected) in cases {
            assert_eq!(text_of(text, Dialect::MySql), expected, "{text}");
        }
    }

    #[test]
    fn a_statement_cut_anywhere_shows_no_value_and_overwritten_values_change_no_name() {
        let secret = "S3cr3t";
        let texts = [
            "select a, 'S3cr3t''S3cr3t' from t where b = E'\\'S3cr3t' and c = $q$S3cr3t$q$ -- S3cr3t",
            "insert into t values ('S3cr3t', 1, \"n\"), (N'S3cr3t', 2, 3) /* S3cr3t */ returning 'S3cr3t'",
            "select 'x\\', 'S3cr3t' from t",
        ];
        for text in texts {
            for len in 0..=text.len() {
                let cut = &text.as_bytes()[..len];
                let before = shape(cut, len == text.len(), Dialect::PostgreSql);
                let shown = String::from_utf8_lossy(&before.rest).into_owned();
                assert!(!shown.contains(secret), "{shown}");
                let mut bytes = cut.to_vec();
                overwrite_literals(&mut bytes, Dialect::PostgreSql);
                assert!(
                    !String::from_utf8_lossy(&bytes).contains(secret),
                    "{}",
                    String::from_utf8_lossy(&bytes)
                );
                assert_eq!(
                    shape(&bytes, len == text.len(), Dialect::PostgreSql),
                    before,
                    "{text} cut at {len}"
                );
            }
        }
    }

    #[test]
    fn a_shape_is_bounded() {
        let long = format!("select {} from t where x = 1", "column_name, ".repeat(10_000));
        assert!(text_of(&long, Dialect::PostgreSql).len() <= VERB_LIMIT + 2 + REST_LIMIT + ELLIPSIS.len());
    }
}
