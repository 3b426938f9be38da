//! HTTP heads: where they end, and overwriting the credentials in them with `x`, length kept.
//!
//! The rule is by name, wide on purpose: a value too many overwritten costs nothing, one too few is a leak. It covers what
//! Swift, Keystone and S3 use (`Authorization`, `X-Auth-Token`, `X-Storage-Token`, `X-Auth-Key`, `X-Subject-Token`, `Cookie`,
//! `Set-Cookie`, `X-…-Temp-URL-Key`; `Signature=`, `X-Amz-Signature=`, `X-Amz-Security-Token=`, `X-Amz-Credential=`,
//! `temp_url_sig=`, `AWSAccessKeyId=` in a query, percent-encoded or not) and any name of that kind.
//!
//! Each packet is judged alone, so it holds whatever is lost, reordered or sent again. The price: a packet that goes on
//! with a head begun in another is not known as such, so `head_len` is 0 there, and `redact_unframed` overwrites its whole
//! first line. A body that itself looks like a head at the start of a packet cannot be told from one.
//!
//! Source: RFC 9112 §2-6 (messages, bodies), RFC 3986 §3 (query, userinfo).

/// A name holding one of these is secret; by their first letter, in lower case.
fn secret_parts(first: u8) -> &'static [&'static [u8]] {
    match first {
        b'a' => &[b"authorization", b"accesskey", b"apikey"],
        b'c' => &[b"cookie", b"credential"],
        b'p' => &[b"password", b"passwd"],
        b's' => &[b"secret", b"signature"],
        b't' => &[b"token"],
        _ => &[],
    }
}

/// A name with one of these as a word of its own is secret (`X-Auth-Key`, `temp_url_sig`).
fn secret_word(first: u8) -> Option<&'static [u8]> {
    match first {
        b'a' => Some(b"auth"),
        b'k' => Some(b"key"),
        b's' => Some(b"sig"),
        _ => None,
    }
}

/// No head holds such a byte.
const CONTROL: u8 = 1;
const LINE_FEED: u8 = 2;
/// CR or LF.
const LINE_END: u8 = 4;
const COLON: u8 = 8;
const SLASH: u8 = 16;
/// A parameter may begin behind it.
const BEFORE_PARAMETER: u8 = 32;
/// A character of a header's name (RFC 9110 §5.6.2).
const TOKEN: u8 = 64;

/// Every byte's classes: one look at a byte answers all questions of a line.
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
            b'?' | b';' => BEFORE_PARAMETER,
            b'&' | b'%' => BEFORE_PARAMETER | TOKEN,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => TOKEN,
            b'!' | b'#' | b'$' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => TOKEN,
            _ => 0,
        };
        byte += 1;
    }
    classes
}

/// Of HTTP, WebDAV and Swift's backend. Only these: the tail of a split method must not pass for one.
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

/// A longer one is no parameter; the bound keeps the search linear.
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

/// Overwrites the credentials in bytes that begin at a line's start.
pub fn redact(bytes: &mut [u8]) {
    redact_lines(bytes, false);
}

/// As `redact`, for bytes that may begin in the middle of a head: then the first line could be the rest of a secret.
///
/// It is overwritten whole, unless it holds a control character, which no head does.
pub fn redact_unframed(bytes: &mut [u8]) {
    let (first_line_len, seen) = scan(bytes, LINE_END);
    let (first_line, rest) = bytes.split_at_mut(first_line_len);
    if seen & CONTROL != 0 {
        redact_lines(bytes, false);
    } else {
        first_line.fill(b'x');
        redact_lines(rest, true);
    }
}

struct Head {
    len: usize,
    /// The head is complete and its message has no body, so that another message may follow at once.
    nothing_follows: bool,
}

fn first_head(bytes: &[u8]) -> Option<Head> {
    if !bytes.first()?.is_ascii_uppercase() {
        return None; // most packets are the middle of a body: out at once
    }
    let (start_line, seen) = line_at(bytes, 0);
    if seen & CONTROL != 0 || !(is_request_line(bytes, start_line) || is_status_line(start_line)) {
        return None;
    }
    let mut body = BodyRule::from_start_line(start_line);
    let mut at = start_line.len();
    while at < bytes.len() {
        let (line, seen) = line_at(bytes, at);
        if trimmed(line).is_empty() {
            return Some(Head {
                len: at + line.len(),
                nothing_follows: line.ends_with(b"\n") && body.is_none(),
            });
        }
        if seen & CONTROL != 0 || !is_header_line(line) {
            break;
        }
        body.note(trimmed(line));
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
        let text = trimmed(target);
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

/// Walks the lines; `in_secret`: the line before, not seen here, may have been a secret that is folded into these.
fn redact_lines(bytes: &mut [u8], mut in_secret: bool) {
    let mut start = 0;
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
            Some(_) => in_secret = redact_header(line),
        }
        if seen & BEFORE_PARAMETER != 0 {
            redact_parameters(line);
        }
        if seen & (COLON | SLASH) == COLON | SLASH {
            redact_userinfo(line);
        }
    }
}

/// Overwrites the value if the name is secret, and says whether it was.
fn redact_header(line: &mut [u8]) -> bool {
    let Some(colon) = line.iter().position(|b| *b == b':') else {
        return false;
    };
    let (name, rest) = line.split_at_mut(colon);
    if !name.iter().all(|b| is_token(*b) || *b == b' ') || !is_secret_name(name) {
        return false;
    }
    let value = &mut rest[1..];
    let blanks = value.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    value[blanks..].fill(b'x');
    true
}

/// Overwrites the values of secret query parameters, also in a URL that is itself percent-encoded.
fn redact_parameters(line: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = line[at..].iter().position(|b| matches!(b, b'?' | b'&' | b';' | b'%')) {
        at += found + 1;
        if line[at - 1] == b'%' {
            if !starts_with_any(&line[at..], &[b"3f", b"26", b"3b"]) {
                continue;
            }
            at += 2;
        }
        redact_parameter(&mut line[at..]);
    }
}

/// Overwrites the value of one parameter, whose name begins here, if the name is secret.
fn redact_parameter(from_name: &mut [u8]) {
    let ahead = &from_name[..from_name.len().min(LONGEST_PARAMETER_NAME_LEN)];
    let plain = ahead.iter().position(|b| matches!(b, b'=' | b'&' | b' ' | b'\t'));
    let encoded = ahead[..plain.unwrap_or(ahead.len())]
        .windows(3)
        .position(|w| w.eq_ignore_ascii_case(b"%3d"));
    let (name_len, separator_len) = match (plain, encoded) {
        (_, Some(encoded)) => (encoded, 3),
        (Some(plain), None) if ahead[plain] == b'=' => (plain, 1),
        _ => return,
    };
    if is_secret_name(&percent_decoded(&ahead[..name_len])) {
        let value = &mut from_name[name_len + separator_len..];
        let value_len = value
            .iter()
            .position(|b| matches!(b, b'&' | b' ' | b'\t'))
            .unwrap_or(value.len());
        value[..value_len].fill(b'x');
    }
}

/// Overwrites `user:password` in `scheme://user:password@host`, and an authority that ends with the line, which may be cut in it.
fn redact_userinfo(line: &mut [u8]) {
    let mut from = 0;
    while let Some(colon) = line[from..].iter().position(|b| *b == b':') {
        from += colon + 1;
        if !line[from..].starts_with(b"//") {
            continue;
        }
        from += 2;
        let rest = &mut line[from..];
        let authority_end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b' '));
        let authority = &rest[..authority_end.unwrap_or(rest.len())];
        let userinfo_len = match authority_end {
            Some(_) => authority.iter().rposition(|b| *b == b'@').unwrap_or(0),
            None => authority.len(),
        };
        rest[..userinfo_len].fill(b'x');
    }
}

fn is_secret_name(name: &[u8]) -> bool {
    (0..name.len()).any(|at| {
        let rest = &name[at..];
        let first = rest[0].to_ascii_lowercase();
        starts_with_any(rest, secret_parts(first))
            || (secret_word(first).is_some_and(|word| is_word(rest, word))
                && (at == 0 || !name[at - 1].is_ascii_alphanumeric()))
    })
}

fn is_word(bytes: &[u8], word: &[u8]) -> bool {
    starts_with_any(bytes, &[word]) && !bytes.get(word.len()).is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether the bytes begin with one of these, whatever the case.
fn starts_with_any(bytes: &[u8], beginnings: &[&[u8]]) -> bool {
    let begins = |with: &&[u8]| {
        bytes
            .get(..with.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    beginnings.iter().any(begins)
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

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn is_token(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & TOKEN != 0
}

#[cfg(test)]
mod tests;
