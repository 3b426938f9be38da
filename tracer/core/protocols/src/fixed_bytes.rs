//! The fixed first bytes of messages of common protocols. They show which software answers, and contain nothing that a
//! user sent.
//!
//! Only bytes that the protocol itself fixes, and lengths, counts, numbers and checksums between them, are ever kept;
//! bytes that no pattern covers are not written to disk. The collector recognises software by them
//! (`collector/services/services.toml`).
//!
//! Sources: PostgreSQL's frontend/backend protocol 3 (message formats), MySQL's handshake v10, RESP, memcached's
//! `protocol.txt`, AMQP 0-9-1 §2.2.4, RFC 4253 §4.2 (SSH), RFC 8446 §5.1 (TLS records), RFC 9113 §3.4, Ceph's msgr2.1,
//! MongoDB's wire protocol, NATS' client protocol.

/// `?` is any byte.
type Pattern = &'static [u8];

/// A Ceph message up to its type: the frame's preamble (32 bytes), and the header's sequence and transaction numbers.
const CEPH_MESSAGE: Pattern = b"\x11?\x29\0\0\0\x08\0??????????????????????????????????????????";

/// By the first byte of the payload. Of several that fit, the first is kept.
fn patterns(first: u8) -> &'static [Pattern] {
    match first {
        0x00 => &[
            b"\0\0??\0\x03\0\0",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\0\0\x08\x04\xd2\x16\x30",
        ],
        0x08 => &[b"\x08\0\0\0\0\0\0\xce"],
        0x10 => &[
            b"\x10?\0\x04MQTT",
            b"\x10??\0\x04MQTT",
            b"\x10?\0\x06MQIsdp",
            b"\x10??\0\x06MQIsdp",
        ],
        0x11 => &[CEPH_MESSAGE, b"\x11?\x29\0\0\0\x08\0"],
        0x16 => &[b"\x16\x03\x01??\x01", b"\x16\x03\x03??\x01"],
        b'*' => &[b"*?\r\n$?\r\n", b"*?\r\n$??\r\n"],
        b'1' => &[b"1\0\0\0\x042\0\0"],
        b'A' => &[b"AMQP\0"],
        b'D' => &[b"DELETED\r\n"],
        b'E' => &[b"END\r\n"],
        b'I' => &[b"INFO {\"server"],
        b'N' => &[b"NOT_STORED\r\n", b"NOT_FOUND\r\n"],
        b'P' => &[
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"P\0\0??\0LISTEN",
            b"P\0\0??\0listen",
        ],
        b'Q' => &[
            b"Q\0\0??SEL",
            b"Q\0\0??sel",
            b"Q\0\0??INS",
            b"Q\0\0??UPD",
            b"Q\0\0??BEG",
            b"Q\0\0??COM",
            b"Q\0\0??LISTEN",
            b"Q\0\0??listen",
        ],
        b'R' => &[b"R\0\0\0?\0\0\0"],
        b'S' => &[b"SSH-2.0-", b"STORED\r\n"],
        b'V' => &[b"VALUE "],
        b'Z' => &[b"Z\0\0\0\x05I", b"Z\0\0\0\x05T"],
        b'a' => &[b"add "],
        b'c' => &[b"ceph v2\n", b"ceph v027"],
        b'd' => &[b"delete "],
        b'g' => &[b"get ", b"gets "],
        b'i' => &[b"incr "],
        b's' => &[b"set "],
        b't' => &[b"touch "],
        _ => &[],
    }
}

/// Commands of Redis by which a connection, or an answer, waits for what another client does (`wire/src/marks.rs`).
const REDIS_WAITS: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"PSUBSCRIBE",
    b"SSUBSCRIBE",
    b"MONITOR",
    b"SYNC",
    b"PSYNC",
    b"BLPOP",
    b"BRPOP",
    b"BRPOPLPUSH",
    b"BLMOVE",
    b"BLMPOP",
    b"BZPOPMIN",
    b"BZPOPMAX",
    b"BZMPOP",
];

/// What begins with any byte.
const OF_ANY: &[Pattern] = &[
    b"?\0\0\0\x0a5.",
    b"?\0\0\0\x0a8.",
    b"?\0\0\0\x0a9.",
    b"?\0\0\0\x0a1?.",
    b"????????\0\0\0\0\xdd\x07\0\0",
];

/// How many bytes at the start of a payload are such a preamble; 0 if it begins otherwise.
#[inline]
pub fn preamble_len(payload: &[u8]) -> usize {
    let Some(&first) = payload.first() else {
        return 0;
    };
    let fits = |pattern: &&Pattern| {
        payload.len() >= pattern.len()
            && pattern
                .iter()
                .zip(payload)
                .all(|(wanted, byte)| *wanted == b'?' || wanted == byte)
    };
    let found = patterns(first).iter().chain(OF_ANY).find(fits);
    found.map_or(0, |pattern| pattern.len() + waits_len(first, &payload[pattern.len()..]))
}

/// Of a command of Redis, behind its headers: how long its word is, if it is one of [`REDIS_WAITS`].
fn waits_len(first: u8, command: &[u8]) -> usize {
    let is = |verb: &&&[u8]| {
        let (word, rest) = command.split_at(command.len().min(verb.len()));
        word.eq_ignore_ascii_case(verb) && rest.starts_with(b"\r\n")
    };
    if first != b'*' {
        return 0;
    }
    REDIS_WAITS.iter().find(is).map_or(0, |verb| verb.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_protocol_fixes_is_kept() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"\0\0\0\x29\0\x03\0\0user\0alice\0", b"\0\0\0\x29\0\x03\0\0"),
            (b"*3\r\n$3\r\nSET\r\n$6\r\nsecret\r\n", b"*3\r\n$3\r\n"),
            (
                b"*2\r\n$9\r\nSUBSCRIBE\r\n$6\r\nsecret\r\n",
                b"*2\r\n$9\r\nSUBSCRIBE\r\n",
            ),
            (b"*3\r\n$5\r\nblpop\r\n$6\r\nsecret\r\n", b"*3\r\n$5\r\nblpop\r\n"),
            (b"\x10\x1c\0\x04MQTT\x05\x02secret", b"\x10\x1c\0\x04MQTT"),
            (b"\x10\x9c\x01\0\x04MQTT\x05\x02secret", b"\x10\x9c\x01\0\x04MQTT"),
            (b"Q\0\0\0\x20LISTEN secret", b"Q\0\0\0\x20LISTEN"),
            (b"Q\0\0\0\x20SELECT 'secret'", b"Q\0\0\0\x20SEL"),
            (b"Q\0\0\0\x20VALUES ('secret')", b""),
            (b"get secret\r\n", b"get "),
            (b"VALUE secret 0 5\r\n", b"VALUE "),
            (b"\x4a\0\0\0\x0a8.0.36\0", b"\x4a\0\0\0\x0a8."),
            (b"SSH-2.0-OpenSSH_9.2", b"SSH-2.0-"),
            (b"\x16\x03\x01\x02\0\x01\0\x01\xfc", b"\x16\x03\x01\x02\0\x01"),
            (b"\x17\x03\x03\0\x20secret", b""),
            (b"a body, or the middle of one", b""),
            (b"password=secret", b""),
            (b"*3", b""),
            (b"", b""),
        ];
        for (payload, kept) in cases {
            assert_eq!(&payload[..preamble_len(payload)], *kept, "{payload:?}");
        }
    }

    #[test]
    fn of_a_ceph_message_its_type_is_kept_and_nothing_of_the_object() {
        let mut payload = b"\x11\x04\x29\0\0\0\x08\0".to_vec();
        payload.extend([7; 40]);
        payload.extend(b"\x2a\0secret");
        assert_eq!(preamble_len(&payload), 50);
        assert_eq!(preamble_len(&payload[..49]), 8);
    }
}
