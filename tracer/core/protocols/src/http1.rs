//! HTTP/1 message heads: request line or status line, and the headers that the trace keeps, as far as they were
//! captured.
//!
//! A head is searched where a payload begins, and again after a small message that is whole (pipelining, or `100
//! Continue` followed by the answer). Header lines that were cut are not used, because half an id is another id.
//!
//! Not handled: obsolete line folding, HTTP/2, a head that begins within a payload after a body that began earlier.
//! Source: RFC 9112 §2–4 (message format), §6 (body length).

use memchr::memchr;
use twintap_secrets::SecretRules;

use crate::exchanges::{Exchanges, MessageFields, Order, Role};
use crate::head::{ByteRange, Head, HeadKind};
use crate::numbers::number;
use crate::protocol::{AgentKeeps, Docs, Protocol};
use crate::results::{Results, StatusClass};

mod excerpts;
mod s3_evidence;

pub use excerpts::KeptLines;

pub const PROTOCOL: Protocol = Protocol {
    first_bytes: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    head_kinds: &[REQUEST, RESPONSE],
    begins,
    exchanges: Exchanges::Ordered(&ORDER),
    results: Results {
        class: |status, _| status_class(status),
        name: |_| None,
    },
    family: "http",
    keep: excerpts::keep,
    read: excerpts::read,
    agent: AgentKeeps::Head(twintap_secrets::head_len),
    docs: Docs {
        reads: "request and status line; `Content-Length`, `Transfer-Encoding`, `Expect`, `Connection`, `User-Agent`, \
                `Content-Type: text/event-stream`, `Host`, ranges, the transaction id, whether a header is S3's",
        agent_keeps: "heads",
        overwrites: "headers, parameters and segments of paths by name",
    },
    ..Protocol::with_name("http/1.1")
};

const ORDER: Order = Order {
    role,
    is_bodiless: |status| matches!(status, 204 | 304),
    follows: false,
    is_after_gap: |_| true,
    is_end: |_| false,
    is_seamless: false,
};

pub const REQUEST: HeadKind = HeadKind(1);
pub const RESPONSE: HeadKind = HeadKind(2);

/// Bits of [`Head::flags`]; Python has the same in `collector.capture_files.records.HeadFlag`.
pub mod flag {
    pub const CHUNKED: u8 = 0x01;
    pub const EXPECT_CONTINUE: u8 = 0x02;
    pub const CONNECTION_CLOSE: u8 = 0x04;
    pub const CONNECTION_KEEP_ALIVE: u8 = 0x08;
    pub const CUT: u8 = 0x10;
    /// Its body is events without end (`Content-Type: text/event-stream`).
    pub const EVENT_STREAM: u8 = 0x20;
    /// It has a header that only S3 has.
    pub const S3: u8 = 0x40;
    /// It names an object of S3 to copy from (`x-amz-copy-source`).
    pub const S3_COPY: u8 = 0x80;
}

/// Statuses of the class of clients' errors with which the request is not at fault: Request Timeout, Too Many Requests,
/// Client Closed Request (nginx, MinIO).
const REFUSED: [u16; 3] = [408, 429, 499];

/// Class of a status: 0 is none. Any other 4xx is a normal answer, which clients provoke on purpose (Swift's HEAD before a
/// PUT gets 404, a first request without credentials 401, a conditional one 412).
///
/// Source: RFC 9110 §15, RFC 6585 §4.
pub(crate) fn status_class(status: u16) -> StatusClass {
    match status {
        0..100 => StatusClass::Unknown,
        100..400 => StatusClass::Ok,
        _ if REFUSED.contains(&status) => StatusClass::Refused,
        400..500 => StatusClass::ClientError,
        500.. => StatusClass::ServerError,
    }
}

/// Longest text kept of a request target, and of any other value.
pub(crate) const TARGET_LIMIT: usize = 4096;
pub(crate) const VALUE_LIMIT: usize = 512;
const CONTINUE: u16 = 100;
const SWITCHING_PROTOCOLS: u16 = 101;
/// Longest method that is recognised.
const METHOD_LIMIT: usize = 20;
/// Most header lines read of one head.
const HEADER_LIMIT: usize = 256;

/// Methods that are recognised even if the end of the line was not captured: RFC 9110 §9, WebDAV, and Swift's own.
const KNOWN_METHODS: &[&[u8]] = &[
    b"GET",
    b"PUT",
    b"POST",
    b"HEAD",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"COPY",
    b"TRACE",
    b"CONNECT",
    b"MOVE",
    b"PROPFIND",
    b"REPLICATE",
    b"SSYNC",
    b"UPDATE",
];

/// The default of [`IdHeaders`].
const ID_HEADERS: [&str; 5] = [
    "x-trans-id",
    "x-openstack-request-id",
    "x-amz-request-id",
    "traceparent",
    "x-request-id",
];
/// The header of which only the trace id is the transaction id.
const TRACEPARENT: &[u8] = b"traceparent";

/// Headers that hold a transaction id, the most specific first.
#[derive(Clone, Debug)]
pub struct IdHeaders {
    names: Vec<Vec<u8>>,
    /// Shortest and longest name.
    lengths: (usize, usize),
}

impl IdHeaders {
    /// Headers of these names, in any case.
    pub fn new<Name: AsRef<str>>(names: &[Name]) -> Self {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_ref().as_bytes().to_vec()).collect();
        let of_names = || names.iter().map(Vec::len);
        let lengths = (of_names().min().unwrap_or(usize::MAX), of_names().max().unwrap_or(0));
        Self { names, lengths }
    }

    /// The same without headers that hold secrets: a secret is no id, and overwritten secrets are all equal.
    pub fn without_secrets(mut self, rules: &SecretRules) -> Self {
        self.names.retain(|name| !rules.is_secret_header(name));
        self
    }

    /// A header's place in the order of preference, 0 the first; `None` if it holds no id.
    fn rank(&self, name: &[u8]) -> Option<usize> {
        let may_be = self.lengths.0 <= name.len() && name.len() <= self.lengths.1;
        may_be.then(|| self.names.iter().position(|id| name.eq_ignore_ascii_case(id)))?
    }
}

impl Default for IdHeaders {
    fn default() -> Self {
        Self::new(&ID_HEADERS)
    }
}

/// Headers whose presence, with a value that begins with a given text, is noted as a bit; `twintap_wire::clues` uses
/// them.
#[derive(Clone, Debug, Default)]
pub struct HeaderMarks {
    names: Vec<MarkedName>,
    /// A bit for each length of a name.
    lengths: u64,
    /// Bits so far.
    count: u32,
}

/// The marks of the headers of one name.
#[derive(Clone, Debug)]
struct MarkedName {
    name: Vec<u8>,
    /// How a value begins, and the bit of that.
    values: Vec<(Vec<u8>, u64)>,
}

impl HeaderMarks {
    /// Add headers of this name (in any case) whose value begins with `value`, and return their bit; `None` if there
    /// are too many.
    pub fn add(&mut self, name: &str, value: &str) -> Option<u64> {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let known = self.place_of(name);
        if let Some(place) = known
            && let Some((_, bit)) = self.names[place].values.iter().find(|(begin, _)| begin == value)
        {
            return Some(*bit);
        }
        let bit = 1_u64.checked_shl(self.count)?;
        self.count += 1;
        self.lengths |= 1 << name.len().min(63);
        let mark = (value.to_vec(), bit);
        match known {
            Some(place) => self.names[place].values.push(mark),
            None => self.names.push(MarkedName {
                name: name.to_vec(),
                values: vec![mark],
            }),
        }
        Some(bit)
    }

    fn place_of(&self, name: &[u8]) -> Option<usize> {
        self.names
            .iter()
            .position(|known| known.name.eq_ignore_ascii_case(name))
    }

    /// The bits of a header.
    #[inline]
    pub(crate) fn of(&self, name: &[u8], value: &[u8]) -> u64 {
        if self.lengths & 1 << name.len().min(63) == 0 {
            return 0;
        }
        let begins = |begin: &[u8]| {
            value
                .get(..begin.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(begin))
        };
        let values = self.place_of(name).map_or(&[][..], |place| &self.names[place].values);
        let held = values.iter().filter(|(begin, _)| begins(begin));
        held.fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// Of a message with several ranges: from the first byte of the first range to the last byte of the last.
///
/// Source: RFC 9110 §14.1.2 (`Range`), §14.4 (`Content-Range`).
impl ByteRange {
    /// Read a header's value: `bytes=0-99,200-299`, `bytes=-500`, `bytes 0-99/1234`.
    fn parse(value: &[u8]) -> Self {
        let unit = value.get(..5).is_some_and(|unit| unit.eq_ignore_ascii_case(b"bytes"));
        let Some(b'=' | b' ') = value.get(5).filter(|_| unit) else {
            return Self::NONE;
        };
        let ranges = value[6..].split(|&byte| byte == b'/').next().unwrap_or_default();
        let mut each = ranges.split(|&byte| byte == b',').map(Self::one);
        let Some(Some(begin)) = each.next() else {
            return Self::NONE;
        };
        match each.next_back() {
            None => begin,
            Some(Some(end)) => Self {
                first: begin.first,
                last: end.last,
            },
            Some(None) => Self::NONE,
        }
    }

    /// `0-99`, `100-`, `-500`.
    fn one(range: &[u8]) -> Option<Self> {
        let range = range.trim_ascii();
        let dash = memchr(b'-', range)?;
        let (first, last) = (&range[..dash], &range[dash + 1..]);
        let found = Self {
            first: number(first),
            last: number(last),
        };
        let is_read = |text: &[u8], end: i64| text.is_empty() || end >= 0;
        (found != Self::NONE && is_read(first, found.first) && is_read(last, found.last)).then_some(found)
    }
}

/// Whether `payload` may begin with a head; for the hot path.
#[inline(always)]
pub fn may_be_head(payload: &[u8]) -> bool {
    payload.len() >= 5 && payload[0].is_ascii_uppercase() && payload[1].is_ascii_uppercase()
}

/// How the header with the transaction id is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IdChoice<'a> {
    Of(&'a IdHeaders),
    /// The last one that has no other meaning.
    LastOther,
}

/// Read the head at the start of `payload`; `ids` say where its transaction id stands.
pub fn parse<'a>(payload: &'a [u8], ids: &IdHeaders) -> Option<Head<'a>> {
    parse_marked(payload, ids, &HeaderMarks::default()).map(|(head, _)| head)
}

/// As [`parse`], with the bits of `marks` that its headers have.
pub fn parse_marked<'a>(payload: &'a [u8], ids: &IdHeaders, marks: &HeaderMarks) -> Option<(Head<'a>, u64)> {
    parse_lines(payload, IdChoice::Of(ids), marks, None)
}

/// As [`parse_marked`]; also notes in `kept` each line that is needed to read the same head again.
fn parse_lines<'a>(
    payload: &'a [u8],
    ids: IdChoice<'_>,
    marks: &HeaderMarks,
    mut kept: Option<&mut KeptLines>,
) -> Option<(Head<'a>, u64)> {
    let (line, mut at) = first_line(payload);
    let mut head = if line.starts_with(b"HTTP/1.") {
        status_line(line)?
    } else {
        request_line(line, at.is_some())?
    };
    if let Some(kept) = &mut kept {
        kept.note_start_line(&head, payload, at);
    }
    let (mut best_id, mut bits) = (usize::MAX, 0);
    for _ in 0..HEADER_LIMIT {
        let Some(start) = at else { break };
        let Some((line, next)) = whole_line(payload, start) else {
            break;
        };
        if line.is_empty() {
            head.len = u32::try_from(next).unwrap_or(0);
            if let Some(kept) = &mut kept {
                kept.note_end(start..next);
            }
            return Some((head, bits));
        }
        if let Some((name, value)) = header_of(line) {
            bits |= marks.of(name, value);
            let meaning = take_header(&mut head, name, value, ids, &mut best_id);
            let evidence =
                s3_evidence::of_header(name, value, head.flags).filter(|found| found.flags & !head.flags != 0);
            head.flags |= evidence.as_ref().map_or(0, |found| found.flags);
            if let Some(kept) = &mut kept {
                match evidence {
                    Some(found) if meaning == Meaning::Nothing => {
                        kept.note_parts(payload, start..next, value, found.shown)
                    }
                    _ => kept.note_header(meaning, payload, start..next, value),
                }
            }
        }
        at = Some(next);
    }
    head.flags |= flag::CUT;
    Some((head, bits))
}

/// What a header contributes to a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Nothing,
    Field,
    TransactionId,
}

fn begins(start: &[u8], from_client: bool) -> bool {
    let head = parse_lines(start, IdChoice::LastOther, &HeaderMarks::default(), None);
    head.is_some_and(|(head, _)| (head.kind == REQUEST) == from_client)
}

/// 1xx responses are interim (RFC 9110 §15.2), except 101, after which the connection carries another protocol.
fn role(message: &MessageFields, from_client: bool) -> Option<Role> {
    let status = message.status;
    match (message.head_kind, from_client) {
        (REQUEST, true) => Some(Role::Request),
        (RESPONSE, false) if status == CONTINUE => Some(Role::Continue),
        (RESPONSE, false) if status < 200 && status != SWITCHING_PROTOCOLS => Some(Role::Interim),
        (RESPONSE, false) => Some(Role::Response),
        _ => None,
    }
}

/// Offset at which the next head begins in a payload that begins with `head`, if the message certainly ends within it.
pub fn end_of_message(head: &Head<'_>) -> Option<usize> {
    if head.flags & (flag::CUT | flag::CHUNKED) != 0 {
        return None;
    }
    let has_no_body = match head.kind {
        REQUEST => head.content_length < 0,
        RESPONSE => matches!(head.status, 100..=199 | 204 | 304),
        _ => true,
    };
    let body_len = if has_no_body {
        0
    } else {
        usize::try_from(head.content_length).ok()?
    };
    (head.len as usize).checked_add(body_len)
}

/// The first line without its line break, and where the next line begins; all captured bytes if the line is cut.
fn first_line(payload: &[u8]) -> (&[u8], Option<usize>) {
    match whole_line(payload, 0) {
        Some((line, next)) => (line, Some(next)),
        None => (payload, None),
    }
}

/// The line at `start` without CR LF, and where the next begins.
fn whole_line(payload: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let rest = payload.get(start..)?;
    let end = memchr(b'\n', rest)?;
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Some((line, start + end + 1))
}

/// `HTTP/1.1 201 Created`; the reason may be missing or cut.
fn status_line(line: &[u8]) -> Option<Head<'_>> {
    let rest = line.get(8..)?;
    let (space, digits) = (rest.first()?, rest.get(1..4)?);
    let is_number = line[7].is_ascii_digit() && *space == b' ' && digits.iter().all(u8::is_ascii_digit);
    if !is_number || rest.get(4).is_some_and(|&next| next != b' ') {
        return None;
    }
    let status = digits
        .iter()
        .fold(0, |value, digit| value * 10 + u16::from(digit - b'0'));
    Some(Head {
        status,
        ..Head::empty(RESPONSE)
    })
}

/// `PUT /v1/a/c/o HTTP/1.1`; of a cut line, as much of the target as was captured.
fn request_line(line: &[u8], is_whole: bool) -> Option<Head<'_>> {
    let window = &line[..line.len().min(METHOD_LIMIT + 1)];
    let space = memchr(b' ', window)?;
    let (method, rest) = (&line[..space], &line[space + 1..]);
    if !is_method(method) {
        return None;
    }
    let target = match memchr(b' ', rest) {
        Some(end) if rest[end + 1..].starts_with(b"HTTP/1.") => &rest[..end],
        Some(end) if !is_whole && b"HTTP/1.".starts_with(&rest[end + 1..]) => &rest[..end],
        None if !is_whole && KNOWN_METHODS.contains(&method) => rest,
        _ => return None,
    };
    // Without an early exit the compiler processes 16 bytes at a time.
    let is_bad = target
        .iter()
        .fold(false, |bad, &byte| bad | (byte <= b' ') | (byte == 0x7f));
    if is_bad || target.is_empty() {
        return None;
    }
    let target = up_to(target, TARGET_LIMIT);
    Some(Head {
        method,
        target,
        flags: s3_evidence::of_target(target),
        ..Head::empty(REQUEST)
    })
}

/// Whether a request line may begin with this word.
pub(crate) fn is_method(word: &[u8]) -> bool {
    let is_of_method = |byte: &u8| byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_');
    word.len() <= METHOD_LIMIT && word.iter().all(is_of_method)
}

/// Whether a header's value may hold a parameter, a path or a URL, in which a secret may stand.
pub(crate) fn may_hold_secret(value: &[u8]) -> bool {
    value.iter().any(|byte| matches!(byte, b'=' | b'%' | b'/' | b':'))
}

/// Name and value of a header's line.
fn header_of(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr(b':', line)?;
    Some((&line[..colon], up_to(line[colon + 1..].trim_ascii(), VALUE_LIMIT)))
}

/// Take a header into a head: what it means, the best id so far in `best_id`.
pub(crate) fn take_header<'a>(
    head: &mut Head<'a>,
    name: &[u8],
    value: &'a [u8],
    ids: IdChoice<'_>,
    best_id: &mut usize,
) -> Meaning {
    // The length and first letter decide for most lines.
    match name.len() {
        4 if name.eq_ignore_ascii_case(b"host") => {
            if !is_name_with_dots(value) {
                return Meaning::Nothing;
            }
            head.authority = value;
        }
        6 if name.eq_ignore_ascii_case(b"expect") => {
            set_if(
                &mut head.flags,
                flag::EXPECT_CONTINUE,
                value.eq_ignore_ascii_case(b"100-continue"),
            );
        }
        10 if name.eq_ignore_ascii_case(b"user-agent") => head.user_agent = value,
        10 if name.eq_ignore_ascii_case(b"connection") => {
            set_if(&mut head.flags, flag::CONNECTION_CLOSE, has_token(value, b"close"));
            set_if(
                &mut head.flags,
                flag::CONNECTION_KEEP_ALIVE,
                has_token(value, b"keep-alive"),
            );
        }
        12 if name.eq_ignore_ascii_case(b"content-type") => {
            let media_type = value.split(|&byte| byte == b';').next().unwrap_or(value);
            let is_stream = media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream");
            set_if(&mut head.flags, flag::EVENT_STREAM, is_stream);
            if !is_stream {
                return Meaning::Nothing;
            }
        }
        14 if name.eq_ignore_ascii_case(b"content-length") => head.content_length = number(value),
        17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
            set_if(&mut head.flags, flag::CHUNKED, has_token(value, b"chunked"));
        }
        5 if name.eq_ignore_ascii_case(b"range") => head.range = ByteRange::parse(value),
        11 if name.eq_ignore_ascii_case(b"x-amz-range") => head.range = ByteRange::parse(value),
        13 if name.eq_ignore_ascii_case(b"content-range") => head.range = ByteRange::parse(value),
        13 if name.eq_ignore_ascii_case(b"authorization") => return Meaning::Nothing,
        23 if name.eq_ignore_ascii_case(b"x-amz-copy-source-range") => head.range = ByteRange::parse(value),
        _ => return take_id(head, name, value, ids, best_id),
    }
    Meaning::Field
}

fn take_id<'a>(head: &mut Head<'a>, name: &[u8], value: &'a [u8], ids: IdChoice<'_>, best_id: &mut usize) -> Meaning {
    let rank = match ids {
        IdChoice::Of(ids) => ids.rank(name),
        IdChoice::LastOther => Some(best_id.saturating_sub(1)),
    };
    let Some(rank) = rank.filter(|rank| rank < best_id) else {
        return Meaning::Nothing;
    };
    let is_traceparent = name.eq_ignore_ascii_case(TRACEPARENT);
    let (value, span) = if is_traceparent {
        trace_and_span(value)
    } else {
        (value, &b""[..])
    };
    let is_overwritten = value.iter().all(|byte| *byte == b'x'); // by an agent with more rules
    if is_overwritten {
        return Meaning::Nothing;
    }
    (head.transaction_id, head.client_span_id, *best_id) = (value, span, rank);
    Meaning::TransactionId
}

/// Whether a host is named by a domain name of several labels: an address, or one label, says no more than the
/// connection does.
fn is_name_with_dots(host: &[u8]) -> bool {
    host.contains(&b'.') && host.iter().any(u8::is_ascii_alphabetic) && !host.starts_with(b"[")
}

/// The ids of the trace and of the span that asks, of `00-<32 hex>-<16 hex>-01` (W3C Trace Context §3.2); each empty if
/// it is none.
fn trace_and_span(value: &[u8]) -> (&[u8], &[u8]) {
    let is_shaped = value.len() >= 55 && value[2] == b'-' && value[35] == b'-' && value[52] == b'-';
    let hex = |part: std::ops::Range<usize>| {
        let digits = value
            .get(part)
            .filter(|digits| is_shaped && digits.iter().all(u8::is_ascii_hexdigit));
        digits.unwrap_or_default()
    };
    let (trace, span) = (hex(3..35), hex(36..52));
    (trace, if trace.is_empty() { b"" } else { span })
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn set_if(flags: &mut u8, bit: u8, condition: bool) {
    if condition {
        *flags |= bit;
    }
}

pub(crate) fn up_to(value: &[u8], limit: usize) -> &[u8] {
    &value[..value.len().min(limit)]
}

#[cfg(test)]
#[allow(clippy::type_complexity)] // tables of cases
mod tests {
    use super::*;

    fn parse(payload: &[u8]) -> Option<Head<'_>> {
        super::parse(payload, &IdHeaders::default())
    }

    const PUT: &[u8] = b"PUT /v1/AUTH_a/c/o HTTP/1.1\r\nHost: 10.77.0.20:8080\r\nX-Trans-Id: tx1\r\n\
        User-Agent: proxy-server 1\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";

    #[test]
    fn marks_have_a_bit_for_each_value_of_a_name_and_the_same_bit_twice() {
        let mut marks = HeaderMarks::default();
        let wanted = [
            ("server", "nginx"),
            ("server", "ng"),
            ("x-a", ""),
            ("Server", "nginx"),
            ("x-a", ""),
        ];
        assert_eq!(
            wanted.map(|(name, value)| marks.add(name, value)),
            [1, 2, 4, 1, 4].map(Some)
        );
        let cases = [
            ("Server", "Nginx/1.2", 3),
            ("server", "ngx", 2),
            ("X-A", "b", 4),
            ("x-b", "", 0),
        ];
        for (name, value, bits) in cases {
            assert_eq!(marks.of(name.as_bytes(), value.as_bytes()), bits, "{name}: {value}");
        }
    }

    #[test]
    fn byte_ranges() {
        let of = |header: &str| {
            let payload = format!("GET /o HTTP/1.1\r\n{header}\r\n\r\n");
            let range = parse(payload.as_bytes()).expect("a head").range;
            (range.first, range.last)
        };
        let cases: &[(&str, (i64, i64))] = &[
            ("Range: bytes=100-199", (100, 199)),
            ("range:  Bytes=0-0", (0, 0)),
            ("Range: bytes=100-", (100, -1)),
            ("Range: bytes=-500", (-1, 500)),
            ("Range: bytes=0-1, 5-6,8-9", (0, 9)),
            ("Content-Range: bytes 100-199/1234", (100, 199)),
            ("Content-Range: bytes 100-199/*", (100, 199)),
            ("x-amz-range: bytes=7-8", (7, 8)),
            ("x-amz-copy-source-range: bytes=7-8", (7, 8)),
        ];
        for (header, range) in cases {
            assert_eq!(of(header), *range, "{header}");
        }
        for header in [
            "Host: bytes=1-2",
            "Range: items=0-5",
            "Range: bytes=",
            "Range: bytes=-",
            "Range: bytes=a-b",
        ] {
            assert_eq!(of(header), (-1, -1), "{header}");
        }
        for value in [
            "bytes */1234",
            "bytes=1-x",
            "bytes=0-1,x",
            "byt",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(of(&format!("Content-Range: {value}")), (-1, -1), "{value}");
        }
    }

    #[test]
    fn a_request() {
        let head = parse(PUT).expect("a head");
        let expected = Head {
            flags: flag::EXPECT_CONTINUE | flag::CONNECTION_CLOSE,
            content_length: 3,
            len: PUT.len() as u32,
            method: b"PUT",
            target: b"/v1/AUTH_a/c/o",
            transaction_id: b"tx1",
            user_agent: b"proxy-server 1",
            ..Head::empty(REQUEST)
        };
        assert_eq!(head, expected);
        assert_eq!(end_of_message(&head), Some(PUT.len() + 3));
    }

    #[test]
    fn first_lines() {
        let request = |method: &'static str, target: &'static str| Some((REQUEST, 0, method, target));
        let response = |status| Some((RESPONSE, status, "", ""));
        let cases: &[(&str, &[u8], Option<(HeadKind, u16, &str, &str)>)] = &[
            ("status", b"HTTP/1.1 201 Created\r\n\r\n", response(201)),
            ("no reason", b"HTTP/1.0 204\r\n\r\n", response(204)),
            ("cut behind the status", b"HTTP/1.1 404", response(404)),
            ("cut within the status", b"HTTP/1.1 40", None),
            ("not a number", b"HTTP/1.1 4x4 No\r\n\r\n", None),
            ("four digits", b"HTTP/1.1 2000 No\r\n\r\n", None),
            ("HTTP/2", b"HTTP/2 200\r\n\r\n", None),
            ("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None),
            ("bare LF", b"GET / HTTP/1.1\n\n", request("GET", "/")),
            ("unknown method", b"BREW /pot HTTP/1.1\r\n\r\n", request("BREW", "/pot")),
            ("lower case", b"get / HTTP/1.1\r\n\r\n", None),
            ("cut target", b"GET /v1/AUTH_te", request("GET", "/v1/AUTH_te")),
            ("cut version", b"GET /v1 HTT", request("GET", "/v1")),
            ("cut behind the target", b"BREW /v1 ", request("BREW", "/v1")),
            ("cut line of an unknown method", b"BREW /v1", None),
            ("text", b"THE END of it\r\n\r\n", None),
            ("binary", b"GET \x00\x01\x02\x03", None),
            ("no target", b"GET  HTTP/1.1\r\n\r\n", None),
            (
                "absolute",
                b"GET http://h/x?y=1 HTTP/1.1\r\n\r\n",
                request("GET", "http://h/x?y=1"),
            ),
            ("IPP", b"OPTIONS * HTTP/1.1\r\n\r\n", request("OPTIONS", "*")),
            ("empty", b"", None),
        ];
        for (name, payload, expected) in cases {
            let text = |bytes| std::str::from_utf8(bytes).expect("ASCII");
            let read = parse(payload).map(|head| (head.kind, head.status, text(head.method), text(head.target)));
            assert_eq!(read, *expected, "{name}");
        }
    }

    #[test]
    fn headers() {
        let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let cases: &[(&str, &str, (&str, i64, u8))] = &[
            ("case and space", "CONTENT-LENGTH:\t 12 ", ("", 12, 0)),
            ("not a number", "Content-Length: -1", ("", -1, 0)),
            ("overlong number", "Content-Length: 99999999999999999999", ("", -1, 0)),
            ("chunked", "Transfer-Encoding: gzip, chunked", ("", -1, flag::CHUNKED)),
            (
                "keep-alive",
                "Connection: Keep-Alive, Upgrade",
                ("", -1, flag::CONNECTION_KEEP_ALIVE),
            ),
            ("not a token", "Connection: closed", ("", -1, 0)),
            ("first of ids", "X-Request-Id: r\r\nX-Trans-Id: t", ("t", -1, 0)),
            (
                "first of ids, other order",
                "X-Trans-Id: t\r\nX-Request-Id: r",
                ("t", -1, 0),
            ),
            ("S3", "x-amz-request-id: 17A", ("17A", -1, flag::S3)),
            ("OpenStack", "X-Openstack-Request-Id: tx2", ("tx2", -1, 0)),
            ("traceparent", trace, ("0af7651916cd43dd8448eb211c80319c", -1, 0)),
            ("not a traceparent", "traceparent: 00-xyz", ("", -1, 0)),
            ("no colon", "nonsense", ("", -1, 0)),
        ];
        for (name, lines, (id, content_length, flags)) in cases {
            let payload = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
            let head = parse(payload.as_bytes()).expect(name);
            let read = (head.transaction_id, head.content_length, head.flags, head.len as usize);
            assert_eq!(read, (id.as_bytes(), *content_length, *flags, payload.len()), "{name}");
        }
    }

    #[test]
    fn the_span_that_asks_belongs_to_the_id() {
        let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let better = format!("{trace}\r\nX-Trans-Id: t");
        let other = format!("X-Trans-Id: t\r\n{trace}");
        let worse = format!("{trace}\r\nX-Request-Id: r");
        let no_hex = trace.replace("b7ad", "x7ad");
        let cases: &[(&str, (&str, &str))] = &[
            (trace, ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")),
            (&worse, ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")),
            (&better, ("t", "")),
            (&other, ("t", "")),
            (&no_hex, ("0af7651916cd43dd8448eb211c80319c", "")),
            ("traceparent: 00-xyz", ("", "")),
        ];
        for (lines, (id, span)) in cases {
            let payload = format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n");
            let head = parse(payload.as_bytes()).expect(lines);
            assert_eq!(
                (head.transaction_id, head.client_span_id),
                (id.as_bytes(), span.as_bytes()),
                "{lines}"
            );
        }
    }

    #[test]
    fn headers_are_marked() {
        let mut marks = HeaderMarks::default();
        let server = marks.add("server", "min");
        let any = marks.add("X-Thing", "");
        assert_eq!((server, any, marks.add("server", "min")), (Some(1), Some(2), Some(1)));
        let cases: &[(&str, u64)] = &[
            ("Server: MinIO", 1),
            ("SERVER:minimal", 1),
            ("Server: mi", 0),
            ("Servers: MinIO", 0),
            ("x-thing:", 2),
            ("x-thing: 1\r\nServer: nginx\r\nserver: MinIO", 3),
        ];
        for (lines, expected) in cases {
            let payload = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
            let (_, bits) = parse_marked(payload.as_bytes(), &IdHeaders::default(), &marks).expect("a head");
            assert_eq!(bits, *expected, "{lines}");
        }
    }

    #[test]
    fn headers_of_ids_are_a_choice() {
        let payload = b"GET / HTTP/1.1\r\nX-Trans-Id: t\r\nX-Correlation-Identifier-Of-Ours: c\r\nid: i\r\n\r\n";
        let cases: &[(&[&str], &[u8])] = &[
            (&["x-correlation-identifier-of-ours", "X-Trans-Id"], b"c"),
            (&["ID", "x-trans-id"], b"i"),
            (&["x-request-id"], b""),
            (&[], b""),
        ];
        for (names, expected) in cases {
            let head = super::parse(payload, &IdHeaders::new(names)).expect("a head");
            assert_eq!(head.transaction_id, *expected, "{names:?}");
        }
    }

    #[test]
    fn every_prefix_keeps_whole_lines_only() {
        for len in 0..PUT.len() {
            let Some(head) = parse(&PUT[..len]) else {
                assert!(len <= 4, "{len}");
                continue;
            };
            assert_eq!((head.flags & flag::CUT, head.len), (flag::CUT, 0));
            assert!(b"/v1/AUTH_a/c/o".starts_with(head.target));
            for (value, whole) in [(head.transaction_id, &b"tx1"[..]), (head.user_agent, b"proxy-server 1")] {
                assert!(value.is_empty() || value == whole, "{len}");
            }
            assert!(matches!(head.content_length, -1 | 3), "{len}");
            assert_eq!(end_of_message(&head), None);
        }
    }

    #[test]
    fn ends_of_messages() {
        let cases: &[(&str, &str, Option<usize>)] = &[
            ("GET", "GET / HTTP/1.1\r\n\r\n", Some(18)),
            ("continue", "HTTP/1.1 100 Continue\r\n\r\n", Some(25)),
            (
                "no content",
                "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
                Some(46),
            ),
            ("until close", "HTTP/1.1 200 OK\r\n\r\n", None),
            ("body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Some(43)),
            ("chunked", "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        ];
        for (name, payload, expected) in cases {
            assert_eq!(
                end_of_message(&parse(payload.as_bytes()).expect(name)),
                *expected,
                "{name}"
            );
        }
    }

    #[test]
    fn long_text_is_limited() {
        let payload = format!(
            "GET /{} HTTP/1.1\r\nUser-Agent: {}\r\n\r\n",
            "a".repeat(9_000),
            "b".repeat(9_000)
        );
        let head = parse(payload.as_bytes()).expect("a head");
        assert_eq!((head.target.len(), head.user_agent.len()), (TARGET_LIMIT, VALUE_LIMIT));
    }
}
