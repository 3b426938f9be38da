//! The fixed first bytes of messages. They show which software answers, and contain nothing that a user sent.
//!
//! Only bytes that the protocol itself fixes, and lengths, counts, numbers and checksums between them, are ever kept by
//! an agent; bytes that no pattern covers are not written to disk. The collector recognises software by them
//! (`collector/services/services.toml`).

use std::sync::LazyLock;

use crate::protocol::Protocol;
use crate::registry::REGISTRY;

/// First bytes of a message, in which `?` stands for any byte.
pub type Pattern = &'static [u8];

/// By the first byte of a payload: the patterns that may fit, with their protocols, in the order of the registry; those
/// that begin with any byte last.
static BY_FIRST: LazyLock<Vec<Vec<(Pattern, &Protocol)>>> = LazyLock::new(|| {
    let every = || {
        REGISTRY
            .iter()
            .flat_map(|one| one.fixed_bytes.iter().map(move |pattern| (*pattern, *one)))
    };
    let beginning_with = |byte: u8| every().filter(move |(pattern, _)| pattern[0] == byte);
    (0..=u8::MAX)
        .map(|byte| {
            beginning_with(byte)
                .chain(every().filter(|(pattern, _)| pattern[0] == b'?'))
                .collect()
        })
        .collect()
});

/// Number of bytes at the start of a payload that its protocol fixes; 0 if no pattern fits. The first pattern that fits
/// counts.
#[inline]
pub fn fixed_len(payload: &[u8]) -> usize {
    let Some(&first) = payload.first() else {
        return 0;
    };
    let found = BY_FIRST[usize::from(first)]
        .iter()
        .find(|(pattern, _)| fits(pattern, payload));
    found.map_or(0, |(pattern, protocol)| {
        pattern.len() + (protocol.fixed_words_len)(&payload[pattern.len()..])
    })
}

fn fits(pattern: Pattern, payload: &[u8]) -> bool {
    payload.len() >= pattern.len()
        && pattern
            .iter()
            .zip(payload)
            .all(|(wanted, byte)| *wanted == b'?' || wanted == byte)
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
            assert_eq!(&payload[..fixed_len(payload)], *kept, "{payload:?}");
        }
    }

    #[test]
    fn of_a_ceph_message_its_type_is_kept_and_nothing_of_the_object() {
        let mut payload = b"\x11\x04\x29\0\0\0\x08\0".to_vec();
        payload.extend([7; 40]);
        payload.extend(b"\x2a\0secret");
        assert_eq!(fixed_len(&payload), 50);
        assert_eq!(fixed_len(&payload[..49]), 8);
    }
}
