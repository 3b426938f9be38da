//! Marks in protocols other than HTTP which show that a connection carries no requests: the words that begin a
//! subscription, a session or a blocking read.
//!
//! | protocol | what is read | reach |
//! |---|---|---|
//! | Redis (RESP) | `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`, `MONITOR`, `SYNC`, `PSYNC` | the rest of the connection |
//! | | `BLPOP` and its like; `XREAD` and `XREADGROUP` with `BLOCK` | the answer to that command |
//! | MQTT 3.1, 3.1.1, 5 | the fixed header and protocol name of CONNECT | the connection |
//! | PostgreSQL 3 | `LISTEN`, as a simple query or in a Parse message | the rest of the connection |
//! | SSH 2 | the version exchange | the connection |
//! | WebSocket | a payload that is whole frames, and nothing else | that payload: several make a stream |
//!
//! A mark is stored in the columns of heads: `method` is the word, `target` the protocol, `status` its reach. Marks are
//! searched where a payload begins and, for Redis, also after each whole command in the payload (pipelining).
//!
//! Limits: a command whose words are cut by two segments; inline commands of Redis; a connection that unsubscribes from
//! everything and goes on with requests.
//!
//! Sources: Redis' RESP specification and command reference; MQTT 5.0 §3.1; PostgreSQL's frontend/backend protocol 3;
//! RFC 4253 §4.2; RFC 6455 §5.2 (frames; a client's are masked, a server's are not).

use crate::http::{ByteRange, Head, HeadKind};

/// How far a mark reaches; in the column `status`.
pub mod reach {
    /// From its message on, to the end of the connection.
    pub const REST: u16 = 1;
    /// Its message and the answer to it.
    pub const ANSWER: u16 = 2;
    /// All of the connection.
    pub const CONNECTION: u16 = 3;
    /// None by itself: it is what a WebSocket's client sends, and what its server sends.
    pub const MASKED_FRAMES: u16 = 4;
    pub const PLAIN_FRAMES: u16 = 5;
}

/// Commands after which Redis speaks unasked.
const PUSHED: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"SYNC",
    b"PSYNC",
];
/// Commands that Redis answers when another client gives it something.
const BLOCKING: &[&[u8]] = &[
    b"BLPOP",
    b"BRPOP",
    b"BRPOPLPUSH",
    b"BLMOVE",
    b"BLMPOP",
    b"BZPOPMIN",
    b"BZPOPMAX",
    b"BZMPOP",
];
/// Likewise, where the word `BLOCK` is among the first arguments.
const MAY_BLOCK: &[&[u8]] = &[b"XREAD", b"XREADGROUP"];
/// `XREADGROUP GROUP group consumer COUNT n BLOCK`: no later.
const BLOCK_WITHIN: usize = 7;
/// Most commands of one payload that are looked at.
const COMMAND_LIMIT: usize = 1024;
/// Most frames of one payload that are looked at.
const FRAME_LIMIT: usize = 64;
/// Longest number of a RESP header.
const DIGITS_LIMIT: usize = 10;

/// Whether `payload` may begin with something that is marked; for the hot path.
#[inline(always)]
pub fn may_be_mark(payload: &[u8]) -> bool {
    matches!(
        payload.first(),
        Some(b'*' | b'Q' | b'P' | b'S' | 0x10 | 0x81 | 0x82 | 0x88..=0x8a | 0xc1 | 0xc2)
    )
}

/// Call `note` with each mark of a payload and where it begins there; none unless [`may_be_mark`]. Arguments: `wire_len`: how long it was before it
/// was cut.
pub fn each_mark(payload: &[u8], wire_len: usize, mut note: impl FnMut(usize, Head<'static>)) {
    match payload.first() {
        Some(b'*') => each_of_redis(payload, &mut note),
        Some(b'Q' | b'P') if is_listen(payload) => note(0, mark(b"LISTEN", b"postgresql", reach::REST)),
        Some(b'S') if payload.starts_with(b"SSH-2.0-") => note(0, mark(b"SSH", b"ssh", reach::CONNECTION)),
        Some(0x10) if is_mqtt(payload) => note(0, mark(b"CONNECT", b"mqtt", reach::CONNECTION)),
        Some(0x81 | 0x82 | 0x88..=0x8a | 0xc1 | 0xc2) => {
            if let Some(is_masked) = frames_masked(payload, wire_len) {
                let of = if is_masked {
                    reach::MASKED_FRAMES
                } else {
                    reach::PLAIN_FRAMES
                };
                note(0, mark(b"frames", b"websocket", of));
            }
        }
        _ => {}
    }
}

/// Whether the frames of a WebSocket are masked that a payload is made of; `None` if it is not, or what was captured of
/// it does not show it.
pub fn frames_masked(payload: &[u8], wire_len: usize) -> Option<bool> {
    let (mut at, mut masked) = (0_usize, None);
    for _ in 0..FRAME_LIMIT {
        let (len, is_masked) = websocket_frame(payload.get(at..)?)?;
        if masked.is_some_and(|masked| masked != is_masked) {
            return None;
        }
        masked = Some(is_masked);
        at = at.checked_add(len)?;
        if at >= wire_len {
            return masked.filter(|_| at == wire_len);
        }
    }
    None
}

/// How long the frame at the start of `bytes` is, and whether it is masked (RFC 6455 §5.2); `None` if there can be
/// none.
fn websocket_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    let (opcode, len7, is_masked) = (first & 0x0f, second & 0x7f, second & 0x80 != 0);
    let is_control = opcode >= 8;
    let is_valid = if is_control {
        first & 0xf0 == 0x80 && opcode <= 10 && len7 <= 125
    } else {
        first & 0x30 == 0 && opcode <= 2
    };
    let (more, len) = match len7 {
        126 => (2, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
        127 => (8, u64::from_be_bytes(*rest.first_chunk()?)),
        _ => (0, u64::from(len7)),
    };
    // As short as can be (§5.2: "the minimal number of bytes MUST be used").
    let is_shortest = match more {
        2 => len > 125,
        8 => len > u64::from(u16::MAX),
        _ => true,
    };
    let header = 2 + more + if is_masked { 4 } else { 0 };
    (is_valid && is_shortest).then_some((header + usize::try_from(len).ok()?.min(usize::MAX >> 1), is_masked))
}

fn mark(word: &'static [u8], protocol: &'static [u8], reach: u16) -> Head<'static> {
    Head {
        kind: HeadKind::StreamMark,
        flags: 0,
        status: reach,
        content_length: -1,
        range: ByteRange::NONE,
        len: 0,
        method: word,
        target: protocol,
        transaction_id: b"",
        user_agent: b"",
        host: b"",
    }
}

fn each_of_redis(payload: &[u8], note: &mut impl FnMut(usize, Head<'static>)) {
    let mut at = 0;
    for _ in 0..COMMAND_LIMIT {
        let Some((words_count, begin)) = counted(payload, at, b'*') else {
            return;
        };
        let mut words = Words {
            payload,
            at: begin,
            left: words_count,
        };
        let Some(verb) = words.next() else {
            return;
        };
        if let Some(found) = of_redis(verb, words) {
            note(at, found);
        }
        let Some(end) = words.end() else {
            return;
        };
        at = end;
    }
}

fn of_redis(verb: &[u8], mut arguments: Words<'_>) -> Option<Head<'static>> {
    let known = |verbs: &'static [&'static [u8]]| verbs.iter().find(|known| known.eq_ignore_ascii_case(verb));
    if let Some(verb) = known(PUSHED) {
        return Some(mark(verb, b"redis", reach::REST));
    }
    if let Some(verb) = known(BLOCKING) {
        return Some(mark(verb, b"redis", reach::ANSWER));
    }
    let verb = known(MAY_BLOCK)?;
    let blocks = (0..BLOCK_WITHIN)
        .map_while(|_| arguments.next())
        .any(|word| word.eq_ignore_ascii_case(b"BLOCK"));
    blocks.then(|| mark(verb, b"redis", reach::ANSWER))
}

/// The words of a command, as far as they are in the payload.
#[derive(Clone, Copy)]
struct Words<'a> {
    payload: &'a [u8],
    at: usize,
    left: usize,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (len, begin) = counted(self.payload, self.at, b'$')?;
        let end = begin.checked_add(len)?;
        let word = self.payload.get(begin..end)?;
        self.at = end.checked_add(2)?;
        Some(word)
    }

    /// Where the command ends; `None` if it is not whole.
    fn end(mut self) -> Option<usize> {
        while self.left > 0 {
            self.next()?;
        }
        (self.at <= self.payload.len()).then_some(self.at)
    }
}

/// The number of a header such as `*3\r\n`, and where it ends.
fn counted(payload: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    let rest = payload.get(at..)?.strip_prefix(&[kind])?;
    let digits = rest
        .iter()
        .take(DIGITS_LIMIT)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let is_whole = digits > 0 && rest.get(digits..digits + 2) == Some(b"\r\n");
    let number = rest[..digits]
        .iter()
        .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    is_whole.then_some((number, at + 1 + digits + 2))
}

/// `Q`, or `P` with a statement's name, and `LISTEN` as the query's first word.
fn is_listen(payload: &[u8]) -> bool {
    let Some(text) = payload.get(5..) else {
        return false;
    };
    let name_len = match payload[0] {
        b'P' => text.iter().position(|&byte| byte == 0).map(|len| len + 1),
        _ => Some(0),
    };
    let query = name_len
        .and_then(|len| text.get(len..))
        .unwrap_or(&[])
        .trim_ascii_start();
    let (word, rest) = query.split_at(query.len().min(6));
    payload[1..3] == [0, 0] && word.eq_ignore_ascii_case(b"LISTEN") && matches!(rest.first(), None | Some(b' ' | b'\t'))
}

/// CONNECT: the type, a remaining length of one to four bytes, and the protocol's name (`MQIsdp` is 3.1's).
fn is_mqtt(payload: &[u8]) -> bool {
    let length = payload[1..].iter().take(4);
    let more = length.take_while(|&&byte| byte & 0x80 != 0).count();
    let name = payload.get(2 + more..).unwrap_or(&[]);
    name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(payload: &[u8]) -> Vec<(usize, &'static str, u16)> {
        let mut found = Vec::new();
        if may_be_mark(payload) {
            let text = |bytes: &'static [u8]| std::str::from_utf8(bytes).expect("ASCII");
            each_mark(payload, payload.len(), |at, head| {
                found.push((at, text(head.method), head.status))
            });
        }
        found
    }

    #[test]
    fn what_begins_a_stream_is_marked_with_its_reach() {
        type Found = &'static [(usize, &'static str, u16)];
        let cases: &[(&[u8], Found)] = &[
            (
                b"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n",
                &[(0, "SUBSCRIBE", reach::REST)],
            ),
            (b"*2\r\n$9\r\nsubscribe\r\n", &[(0, "SUBSCRIBE", reach::REST)]),
            (
                b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n",
                &[(0, "BLPOP", reach::ANSWER)],
            ),
            (
                b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n",
                &[(21, "SUBSCRIBE", reach::REST)],
            ),
            (
                b"*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n$\r\n",
                &[(0, "XREAD", reach::ANSWER)],
            ),
            (b"*4\r\n$5\r\nXREAD\r\n$7\r\nSTREAMS\r\n$1\r\ns\r\n$1\r\n0\r\n", &[]),
            (b"*2\r\n$3\r\nGET\r\n$9\r\nSUBSCRIBE\r\n", &[]),
            (b"*1\r\n$9999999999\r\n", &[]),
            (b"*3\r\n$5\r\nBLP", &[]),
            (
                b"\x10\x1c\0\x04MQTT\x04\x02\0\x3c",
                &[(0, "CONNECT", reach::CONNECTION)],
            ),
            (
                b"\x10\x9c\x01\0\x04MQTT\x05\x02\0\x3c",
                &[(0, "CONNECT", reach::CONNECTION)],
            ),
            (b"\x10\xff\xff\xff\xff", &[]),
            (b"Q\0\0\0\x0dLISTEN jobs\0", &[(0, "LISTEN", reach::REST)]),
            (b"Q\0\0\0\x0d listen \"a\"\0", &[(0, "LISTEN", reach::REST)]),
            (b"P\0\0\0\x13s1\0LISTEN jobs\0\0\0", &[(0, "LISTEN", reach::REST)]),
            (b"Q\0\0\0\x13SELECT 'LISTEN x'\0", &[]),
            (b"Q\0\0\0\x10LISTENERS\0", &[]),
            (b"PUT /x HTTP/1.1\r\n", &[]),
            (b"SSH-2.0-OpenSSH_9.2\r\n", &[(0, "SSH", reach::CONNECTION)]),
            (b"SELECT", &[]),
            (b"\x81\x05hello", &[(0, "frames", reach::PLAIN_FRAMES)]),
            (b"\xc1\x85maskhello", &[(0, "frames", reach::MASKED_FRAMES)]),
            (b"\x81\x02hi\x89\x00\x02\x01!", &[(0, "frames", reach::PLAIN_FRAMES)]),
            (b"\x88\x82mask\x03\xe8", &[(0, "frames", reach::MASKED_FRAMES)]),
            (b"\x81\x05hell", &[]),
            (b"\x81\x05hello!", &[]),
            (b"\x81\x02hi\x81\x82maskhi", &[]),
            (b"\x89\x7e\0\x7e", &[]),
            (b"\x81\x7e\0\x02hi", &[]),
            (b"\xc9\x00", &[]),
            (b"\x83\x00", &[]),
            (b"\x82\x07\0\x01\0\x02a/\0\0", &[]), // MQTT's SUBSCRIBE, which is a byte longer
            (b"", &[]),
        ];
        for (payload, expected) in cases {
            assert_eq!(marks(payload), *expected, "{:?}", String::from_utf8_lossy(payload));
        }
    }

    #[test]
    fn no_prefix_of_a_payload_panics() {
        let all: &[&[u8]] = &[
            b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n",
            b"\x10\x9c\x01\0\x04MQTT\x05\x02\0\x3c",
            b"P\0\0\0\x13s1\0LISTEN jobs\0\0\0",
            b"\x81\x7e\0\x7ehello",
            b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
        ];
        for payload in all {
            (0..=payload.len()).for_each(|len| drop(marks(&payload[..len])));
        }
    }
}
