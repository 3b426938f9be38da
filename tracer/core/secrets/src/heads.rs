//! HTTP heads: finds where they end, and overwrites the credentials in them with `x`, without changing any length.
//!
//! [`SecretRules`] determine which values are credentials: headers and parameters by name (in a query, after a `;`, in
//! a form, percent-encoded or not), segments of a path by the segment before, JSON values by key, and `user:password@`
//! in a URL.
//!
//! Each packet is judged by itself, so loss, reordering and retransmission change nothing. Therefore a packet that
//! continues a head from an earlier packet is not recognised: `head_len` is 0 for it, and `redact_unframed` overwrites
//! its whole first line. A body that looks like a head at the start of a packet cannot be distinguished from one.
//!
//! Source: RFC 9112 §2-6 (messages, bodies), RFC 3986 §3 (query, userinfo).

use crate::rules::{SecretRules, begins_with};

/// A control character, which no head contains.
const CONTROL: u8 = 1;
const LINE_FEED: u8 = 2;
/// CR or LF.
const LINE_END: u8 = 4;
const COLON: u8 = 8;
const SLASH: u8 = 16;
/// A parameter may begin after it.
const BEFORE_PARAMETER: u8 = 32;
/// A character of a header's name (RFC 9110 §5.6.2).
const TOKEN: u8 = 64;
const QUOTE: u8 = 128;

/// The classes of each byte, so that one look-up per byte suffices for a line.
static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'\n' => LINE_FEED | LINE_END,
            b'\r' => LINE_END,
            b'\t' => 0,
            0..=0x1F | 0x7F => CONTROL,
            b':' => COLON,
            b'/' => SLASH,
            b'"' => QUOTE,
            b'?' | b';' | b' ' | b',' | b'(' | b'<' => BEFORE_PARAMETER,
            b'&' | b'%' => BEFORE_PARAMETER | TOKEN,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => TOKEN,
            b'!' | b'#' | b'$' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => TOKEN,
            _ => 0,
        };
        byte += 1;
    }
    classes
}

/// Methods of HTTP, WebDAV and Swift's backend. A fixed list, because the end of a method that two packets split must
/// not count as a method.
const METHODS: [&[u8]; 22] = [
    b"GET",
    b"HEAD",
    b"PUT",
    b"POST",
    b"DELETE",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"PATCH",
    b"COPY",
    b"MOVE",
    b"MKCOL",
    b"PROPFIND",
    b"PROPPATCH",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
    b"PURGE",
    b"REPLICATE",
    b"SSYNC",
    b"UPDATE",
];

/// Longest name of a parameter; the limit keeps the search linear.
const LONGEST_PARAMETER_NAME_LEN: usize = 128;

/// Length of the HTTP/1 heads at the start of a payload, without any byte of a body; 0 if it does not begin with one.
///
/// More than one head counts only where the one before it surely has no body (100 Continue, pipelined GETs).
pub fn head_len(payload: &[u8]) -> usize {
    let mut end = 0;
    while let Some(head) = first_head(&payload[end..]) {
        end += head.len;
        if !head.nothing_follows {
            break;
        }
    }
    end
}

impl SecretRules {
    /// Overwrites the credentials in bytes that begin at a line's start.
    pub fn redact(&self, bytes: &mut [u8]) {
        if !self.keeps_all {
            self.redact_lines(bytes, false, true);
        }
    }

    /// As `redact`, for bytes that may begin in the middle of a head: then the first line could be the rest of a
    /// secret.
    ///
    /// It is overwritten whole, unless it holds a control character, which no head does.
    pub fn redact_unframed(&self, bytes: &mut [u8]) {
        if !self.keeps_all {
            self.redact_cut_lines(bytes);
        }
    }

    fn redact_cut_lines(&self, bytes: &mut [u8]) {
        let (first_line_len, seen) = scan(bytes, LINE_END);
        let (first_line, rest) = bytes.split_at_mut(first_line_len);
        if seen & CONTROL != 0 {
            self.redact_lines(bytes, false, false);
        } else {
            first_line.fill(b'x');
            self.redact_lines(rest, true, false);
        }
    }

    /// Overwrites the credentials in a request's target.
    pub fn redact_target(&self, target: &mut [u8]) {
        if self.keeps_all {
            return;
        }
        let seen = target.iter().fold(0, |seen, &byte| seen | CLASSES[usize::from(byte)]);
        self.redact_paths(target);
        if seen & BEFORE_PARAMETER != 0 {
            self.redact_parameters(target);
        }
        if seen & (BEFORE_PARAMETER | COLON) != 0 {
            redact_userinfo(target, true); // `://`, or the same percent-encoded
        }
    }
}

struct Head {
    len: usize,
    /// The head is complete and its message has no body, so that another message may follow at once.
    nothing_follows: bool,
}

fn first_head(bytes: &[u8]) -> Option<Head> {
    if !bytes.first()?.is_ascii_uppercase() {
        return None; // the common case: a packet in the middle of a body
    }
    let (start_line, seen) = line_at(bytes, 0);
    if seen & CONTROL != 0 || !(is_request_line(bytes, start_line) || is_status_line(start_line)) {
        return None;
    }
    let mut body = BodyRule::from_start_line(start_line);
    let mut at = start_line.len();
    while at < bytes.len() {
        let (line, seen) = line_at(bytes, at);
        if without_line_end(line).is_empty() {
            return Some(Head {
                len: at + line.len(),
                nothing_follows: line.ends_with(b"\n") && body.is_none(),
            });
        }
        if seen & CONTROL != 0 || !is_header_line(line) {
            break;
        }
        body.note(without_line_end(line));
        at += line.len();
    }
    Some(Head {
        len: at,
        nothing_follows: false,
    })
}

/// Whether a body follows a head (RFC 9112 §6.3), where that is sure without the other direction.
struct BodyRule {
    request: bool,
    bodyless_status: bool,
    content_length_zero: Option<bool>,
    transfer_encoding: bool,
}

impl BodyRule {
    fn from_start_line(line: &[u8]) -> Self {
        let request = !line.starts_with(b"HTTP/");
        let status = line.get(9..12).unwrap_or(b"");
        BodyRule {
            request,
            bodyless_status: !request && (status.starts_with(b"1") || status == b"204" || status == b"304"),
            content_length_zero: None,
            transfer_encoding: false,
        }
    }

    fn note(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            return;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length_zero = Some(value.iter().all(|b| *b == b'0'));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") || name.eq_ignore_ascii_case(b"upgrade") {
            self.transfer_encoding = true;
        }
    }

    fn is_none(&self) -> bool {
        let length_is_zero = self.content_length_zero.unwrap_or(self.request);
        !self.transfer_encoding && (self.bodyless_status || length_is_zero)
    }
}

/// `METHOD target HTTP/1.x`, or what the packet's end leaves of it, if that has a method and the begin of a target.
fn is_request_line(bytes: &[u8], line: &[u8]) -> bool {
    let Some(method) = METHODS.iter().find(|method| line.starts_with(method)) else {
        return false;
    };
    let Some((b' ', target)) = line[method.len()..].split_first() else {
        return false;
    };
    if line.ends_with(b"\n") {
        let text = without_line_end(target);
        return text.len() > 9 && text[text.len() - 9..text.len() - 1] == *b" HTTP/1.";
    }
    line.len() == bytes.len() && matches!(target.first(), Some(b'/' | b'*' | b'h'))
}

/// `HTTP/1.x NNN`.
fn is_status_line(line: &[u8]) -> bool {
    line.len() >= 12 && line.starts_with(b"HTTP/1.") && line[8] == b' ' && line[9..12].iter().all(u8::is_ascii_digit)
}

/// `name: value`, a folded line, or what the packet's end leaves of one.
fn is_header_line(line: &[u8]) -> bool {
    if matches!(line[0], b' ' | b'\t') {
        return true;
    }
    match line.iter().position(|b| *b == b':') {
        Some(colon) => colon > 0 && line[..colon].trim_ascii_end().iter().all(|b| is_token(*b)),
        None => !line.ends_with(b"\n") && line.iter().all(|b| is_token(*b) || *b == b'\r'),
    }
}

impl SecretRules {
    /// Redacts lines one by one. `in_secret`: the line before the first one may be a secret that is folded into it.
    /// `framed`: the lines are a head, not another protocol's bytes.
    fn redact_lines(&self, bytes: &mut [u8], mut in_secret: bool, framed: bool) {
        let (mut start, mut in_arguments) = (0, false);
        while start < bytes.len() {
            let (len, seen) = scan(&bytes[start..], LINE_END);
            let line = &mut bytes[start..start + len];
            start += len + 1;
            match line.first() {
                None => continue, // the gap within CR LF, or the empty line
                Some(b' ' | b'\t') if in_secret => {
                    line.fill(b'x');
                    continue;
                }
                Some(b' ' | b'\t') => {}
                Some(_) => in_secret = self.redact_header(line, seen),
            }
            if !framed && (self.redact_command(line, &mut in_arguments) || in_secret) {
                continue;
            }
            self.redact_within(line, seen, true);
        }
    }

    /// Overwrites secrets anywhere in a line.
    fn redact_within(&self, line: &mut [u8], seen: u8, may_be_cut: bool) {
        // A parameter has a `=`, as it is or percent-encoded; most lines have neither.
        if seen & BEFORE_PARAMETER != 0 && line.iter().any(|b| matches!(b, b'=' | b'%')) {
            self.redact_parameters(line);
        }
        if seen & SLASH != 0 || seen & BEFORE_PARAMETER != 0 && line.contains(&b'%') {
            self.redact_paths(line);
            redact_userinfo(line, may_be_cut);
        }
        if seen & (QUOTE | COLON) == QUOTE | COLON {
            self.redact_json(line);
        }
    }

    /// The same for a line of any text.
    pub(crate) fn redact_line(&self, line: &mut [u8]) {
        let (_, seen) = scan(line, 0);
        self.redact_parameter(line);
        self.redact_within(line, seen, false);
    }

    /// Overwrites the value of a header, or of a form's first parameter, if the name is secret. Returns whether it was.
    fn redact_header(&self, line: &mut [u8], seen: u8) -> bool {
        let colon = (seen & COLON != 0).then(|| line.iter().position(|b| *b == b':'));
        let Some(colon) = colon.flatten() else {
            self.redact_parameter(line);
            return false;
        };
        let (name, rest) = line.split_at_mut(colon);
        let name = name.trim_ascii();
        if !name.iter().all(|b| is_token(*b) || matches!(b, b' ' | b'\t')) || !self.is_secret_header(name) {
            return false;
        }
        let value = &mut rest[1..];
        let blanks = value.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        value[blanks..].fill(b'x');
        true
    }

    /// Overwrites the arguments of a text protocol's command that takes a secret. Returns whether it did.
    ///
    /// In Redis' protocol each argument is a line of its own, after a line with its length.
    fn redact_command(&self, line: &mut [u8], in_arguments: &mut bool) -> bool {
        if *in_arguments && !matches!(line.first(), Some(b'*' | b'$')) {
            line.fill(b'x');
            return true;
        }
        if line.first() == Some(&b'*') {
            *in_arguments = false;
        }
        let words = line.iter().position(|b| *b == b' ').map_or(0, |tag| tag + 1);
        for start in [0, words] {
            let Some(command) = self.lines.iter().find(|command| begins_with(&line[start..], command)) else {
                continue;
            };
            let end = start + command.len();
            match line.get(end) {
                None => *in_arguments = true,
                Some(b' ') => line[end + 1..].fill(b'x'),
                Some(_) => continue,
            }
            return true;
        }
        false
    }

    /// Overwrites the values of secret parameters, also in a URL that is itself percent-encoded.
    fn redact_parameters(&self, line: &mut [u8]) {
        let mut at = 0;
        while let Some(found) = line[at..]
            .iter()
            .position(|b| CLASSES[usize::from(*b)] & BEFORE_PARAMETER != 0)
        {
            at += found + 1;
            if line[at - 1] == b'%' {
                while begins_with(&line[at..], b"25") {
                    at += 2; // encoded more than once
                }
                if !starts_with_any(&line[at..], &[b"3f", b"26", b"3b"]) {
                    continue;
                }
                at += 2;
            }
            self.redact_parameter(&mut line[at..]);
        }
    }

    /// Overwrites the value of one parameter, whose name begins here, if the name is secret.
    fn redact_parameter(&self, from_name: &mut [u8]) {
        let ahead = &from_name[..from_name.len().min(LONGEST_PARAMETER_NAME_LEN)];
        let ends = |b: &u8| {
            matches!(
                b,
                b'=' | b'&' | b' ' | b'\t' | b'/' | b'?' | b';' | b',' | b'<' | b'(' | b'"'
            )
        };
        let plain = ahead.iter().position(ends);
        let encoded = encoded_equals(&ahead[..plain.unwrap_or(ahead.len())]);
        let (name_len, separator_len) = match (plain, encoded) {
            (_, Some(encoded)) => encoded,
            (Some(plain), None) if ahead[plain] == b'=' => (plain, 1),
            _ => return,
        };
        if self.is_secret_parameter(&percent_decoded(&ahead[..name_len])) {
            let value = &mut from_name[name_len + separator_len..];
            let value_len = value
                .iter()
                .position(|b| matches!(b, b'&' | b' ' | b'\t'))
                .unwrap_or(value.len());
            value[..value_len].fill(b'x');
        }
    }

    /// Overwrites the segment of a path after one that the rules name.
    fn redact_paths(&self, line: &mut [u8]) {
        let mut at = 0;
        while let Some(start) = next_segment(line, at) {
            at = start;
            let first = line.get(start).map(u8::to_ascii_lowercase);
            let mut begun = self.paths.iter().filter(|path| path.first().copied() == first);
            let before = begun.find(|path| begins_with(&line[start..], path));
            let Some(secret) = before.and_then(|path| slash_at(line, start + path.len())) else {
                continue;
            };
            let is_encoded = line[secret - 1] != b'/';
            let rest = &line[secret..];
            let ends = |at: &usize| {
                matches!(rest[*at], b'/' | b'?' | b' ' | b'\t' | b'"' | b'>' | b'&' | b';')
                    || (is_encoded && starts_with_any(&rest[*at..], &[b"%2f", b"%3f", b"%3b"]))
            };
            let secret_len = (0..rest.len()).find(ends).unwrap_or(rest.len());
            line[secret..secret + secret_len].fill(b'x');
        }
    }

    /// Overwrites JSON values that are in the same line as their secret key.
    fn redact_json(&self, line: &mut [u8]) {
        let mut at = 0;
        while let Some((name, value)) = next_json_value(line, at) {
            at = value.start;
            if self.is_secret_name(&line[name]) {
                at = value.end;
                line[value].fill(b'x');
            }
        }
    }
}

/// Ranges of the name and the value of the next `"name": value` from `at` on; that of an object or a list is empty.
fn next_json_value(line: &[u8], mut at: usize) -> Option<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    loop {
        let open = at + line[at..].iter().position(|b| *b == b'"')? + 1;
        let close = open + string_len(&line[open..]);
        at = (close + 1).min(line.len());
        let blanks = |from: usize| from + line[from..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let colon = blanks(at);
        if line.get(colon) != Some(&b':') {
            at = close; // which may as well open the next
            continue;
        }
        let start = blanks(colon + 1);
        let value = match line.get(start) {
            Some(b'"') => start + 1..start + 1 + string_len(&line[start + 1..]),
            Some(b'{' | b'[') | None => start..start,
            Some(_) => {
                let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ');
                start..start + line[start..].iter().position(ends).unwrap_or(line.len() - start)
            }
        };
        return Some((open..close, value));
    }
}

/// Length of a JSON string's text, up to its closing quote or the line's end.
fn string_len(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().position(|&b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    });
    end.unwrap_or(text.len())
}

/// Where the next segment of a path begins, from `at` on: behind `/` or `%2F`.
fn next_segment(line: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += line[at..].iter().position(|b| matches!(b, b'/' | b'%'))?;
        if let Some(start) = slash_at(line, at) {
            return Some(start);
        }
        at += 1;
    }
}

/// Behind the slash at `at`, if one is there.
fn slash_at(line: &[u8], at: usize) -> Option<usize> {
    let rest = line.get(at..)?;
    if rest.first() == Some(&b'/') {
        return Some(at + 1);
    }
    begins_with(rest, b"%2f").then_some(at + 3)
}

/// Where a percent-encoded `=` is, and its length: it may have been encoded more than once.
fn encoded_equals(ahead: &[u8]) -> Option<(usize, usize)> {
    ahead
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .find_map(|(at, _)| {
            let mut end = at + 1;
            while begins_with(&ahead[end..], b"25") {
                end += 2;
            }
            begins_with(&ahead[end..], b"3d").then_some((at, end + 2 - at))
        })
}

/// Overwrites `user:password` in `scheme://user:password@host`, and an authority without an end where it may be cut in
/// it.
fn redact_userinfo(line: &mut [u8], may_be_cut: bool) {
    let mut from = 0;
    while let Some(found) = line[from..].iter().position(|b| matches!(b, b':' | b'%')) {
        from += found;
        let (begin, at): (&[u8], &[u8]) = if line[from] == b':' {
            (b"://", b"@")
        } else {
            (b"%3a%2f%2f", b"%40")
        };
        if !begins_with(&line[from..], begin) {
            from += 1;
            continue;
        }
        from += begin.len();
        let is_plain = at.len() == 1;
        let rest = &mut line[from..];
        let ends = |b: &u8| matches!(b, b'/' | b'?' | b' ' | b'\t' | b'"' | b'>') || (!is_plain && matches!(b, b'&'));
        let mut authority_end = rest.iter().position(ends);
        if !is_plain {
            let slash = rest.windows(3).position(|w| w.eq_ignore_ascii_case(b"%2f"));
            authority_end = slash.into_iter().chain(authority_end).min();
        }
        let authority = &rest[..authority_end.unwrap_or(rest.len())];
        let info = authority.windows(at.len()).rposition(|w| w == at);
        let userinfo_len = match authority_end {
            None if may_be_cut && info.is_none() => authority.len(),
            _ => info.unwrap_or(0),
        };
        rest[..userinfo_len].fill(b'x');
    }
}

/// Whether the bytes begin with one of these, whatever the case.
fn starts_with_any(bytes: &[u8], beginnings: &[&[u8]]) -> bool {
    beginnings.iter().any(|begin| begins_with(bytes, begin))
}

fn percent_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut at = 0;
    while at < name.len() {
        let digits = name.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if name[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(name[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// The line that begins at `at`, with its LF if that was captured, and the classes of the bytes in it.
fn line_at(bytes: &[u8], at: usize) -> (&[u8], u8) {
    let rest = &bytes[at..];
    let (len, seen) = scan(rest, LINE_FEED);
    (&rest[..rest.len().min(len + 1)], seen)
}

/// Number of bytes before the first one of class `end`, and all classes among them.
fn scan(bytes: &[u8], end: u8) -> (usize, u8) {
    let mut seen = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let class = CLASSES[usize::from(*byte)];
        if class & end != 0 {
            return (at, seen);
        }
        seen |= class;
    }
    (bytes.len(), seen)
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Where `byte` is next, from `at` on.
pub(crate) fn first_in_line(line: &[u8], at: usize, byte: u8) -> Option<usize> {
    line[at..].iter().position(|b| *b == byte).map(|found| at + found)
}

pub(crate) fn is_token(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

#[cfg(test)]
mod tests;
