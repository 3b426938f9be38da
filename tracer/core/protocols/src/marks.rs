//! Marks: words which show that a connection carries no requests: the words that begin a
//! subscription, a session or a blocking read.
//!
//! A mark is stored in the columns of heads: `method` is the word, `target` the protocol, `status` its reach. Each
//! protocol searches for its own where a payload begins.

use crate::head::{Head, HeadKind};

/// How far a mark reaches; in the column `status`.
pub mod reach {
    /// From its message on, to the end of the connection.
    pub const REST: u16 = 1;
    /// Its message and the answer to it.
    pub const ANSWER: u16 = 2;
    /// All of the connection.
    pub const CONNECTION: u16 = 3;
    /// No reach by itself: frames as a WebSocket's client sends them, and as its server does.
    pub const MASKED_FRAMES: u16 = 4;
    pub const PLAIN_FRAMES: u16 = 5;
}

/// A word that shows that a connection, or a part of it, carries no requests.
pub const STREAM_MARK: HeadKind = HeadKind(4);

pub(crate) fn mark<'a>(word: &'a [u8], protocol: &'static str, reach: u16) -> Head<'a> {
    Head {
        status: reach,
        method: word,
        target: protocol.as_bytes(),
        ..Head::empty(STREAM_MARK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::excerpt::{Payload, read_kept};
    use crate::http1::IdHeaders;

    fn marks(payload: &[u8]) -> Vec<(i64, String, u16)> {
        let (mut found, wire_len) = (Vec::new(), payload.len());
        let payload = Payload {
            bytes: payload,
            wire_len,
        };
        read_kept(&payload, &IdHeaders::default(), &mut |at, head| {
            if head.kind == STREAM_MARK {
                found.push((at, String::from_utf8_lossy(head.method).into_owned(), head.status));
            }
        });
        found
    }

    #[test]
    fn what_begins_a_stream_is_marked_with_its_reach() {
        type Case = &'static [(i64, &'static str, u16)];
        let cases: &[(&[u8], Case)] = &[
            (
                b"\x10\x1c\0\x04MQTT\x04\x02\0\x3c",
                &[(0, "CONNECT", reach::CONNECTION)],
            ),
            (b"AMQP\0\0\x09\x01", &[(0, "protocol header", reach::CONNECTION)]),
            (b"AMQP\x03\x01\0\0", &[(0, "protocol header", reach::CONNECTION)]),
            (b"AMQPS\0", &[]),
            (
                b"\x10\x9c\x01\0\x04MQTT\x05\x02\0\x3c",
                &[(0, "CONNECT", reach::CONNECTION)],
            ),
            (b"\x10\xff\xff\xff\xff", &[]),
            (b"PUT /x HTTP/1.1\r\n", &[]),
            (
                b"CONNECT {\"verbose\":false,\"pass\":\"x\"}\r\n",
                &[(0, "CONNECT", reach::CONNECTION)],
            ),
            (b"CONNECT web:443 HTTP/1.1\r\n\r\n", &[]),
            (b"INFO {\"server_id\":\"N\"}\r\n", &[]),
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
            let expected: Vec<_> = expected
                .iter()
                .map(|&(at, word, reach)| (at, word.to_owned(), reach))
                .collect();
            assert_eq!(marks(payload), expected, "{:?}", String::from_utf8_lossy(payload));
        }
    }

    #[test]
    fn no_prefix_of_a_payload_panics() {
        let all: &[&[u8]] = &[
            b"\x10\x9c\x01\0\x04MQTT\x05\x02\0\x3c",
            b"\x81\x7e\0\x7ehello",
            b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff",
        ];
        for payload in all {
            (0..=payload.len()).for_each(|len| drop(marks(&payload[..len])));
        }
    }
}
