//! Keeps the headers of TLS records and the server's hello, and overwrites everything else.
//!
//! From the types and lengths of records the collector infers where a handshake ends and the application's messages
//! begin (`exchanges/src/tls_handshake.rs`). So these are kept: each record header in the inspected part of a payload,
//! the first byte of a handshake record (the type of its message), and the whole server hello, which contains the
//! chosen version and nothing that a user sent.
//!
//! Limits: a record whose header is cut by two packets, or lies beyond the inspected part of the payload.
//!
//! Source: RFC 8446 §5.1 (records), §4 and §4.1.3 (messages, the server's hello); RFC 5246 §6.2.1.

use std::ops::Range;

use twintap_secrets::SecretRules;

use crate::parts::blank_beside;

const HEADER_LEN: usize = 5;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
/// Length of a handshake message's header: type and length.
const MESSAGE_HEADER_LEN: usize = 4;
/// Longest content of a record: 2^14 bytes and what encryption may add (RFC 5246 §6.2.3).
const MAX_CONTENT_LEN: usize = (1 << 14) + 2048;
/// Longest server hello that is kept. One is about 120 bytes long; a message that claims to be longer is no hello.
const MAX_HELLO_LEN: usize = 512;

/// The parts of a payload that are kept, ascending; none if it does not begin with a record.
///
/// Arguments: `limit`, how many bytes of the payload are inspected.
pub fn kept_parts(payload: &[u8], limit: usize) -> Parts<'_> {
    Parts {
        payload: &payload[..payload.len().min(limit)],
        at: 0,
    }
}

/// Bytes up to the end of the last part that is kept; 0 if there is none. For the hot path.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !may_be_record(payload) {
        return 0;
    }
    kept_parts(payload, limit).last().map_or(0, |part| part.end)
}

/// Overwrite with zeros what is not kept.
pub fn blank(captured: &mut [u8], _: &SecretRules) {
    let parts = kept_parts(captured, captured.len()).collect();
    blank_beside(captured, parts);
}

/// See [`kept_parts`].
pub struct Parts<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Iterator for Parts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let record = self.payload.get(self.at..)?;
        if !may_be_record(record) {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
        if len > MAX_CONTENT_LEN {
            return None;
        }
        let start = self.at;
        self.at += HEADER_LEN + len;
        let body = &record[HEADER_LEN..record.len().min(HEADER_LEN + len)];
        Some(start..start + HEADER_LEN + shown_len(record[0], body))
    }
}

/// How many bytes of a record's content are kept. A hello that claims to be longer than its record is kept up to the
/// record's end, because other records follow.
fn shown_len(kind: u8, message: &[u8]) -> usize {
    if kind != HANDSHAKE || message.is_empty() {
        return 0;
    }
    let hello_len = match message {
        [SERVER_HELLO, 0, high, low, ..] => MESSAGE_HEADER_LEN + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return 1,
    };
    if hello_len > MAX_HELLO_LEN {
        1
    } else {
        hello_len.min(message.len())
    }
}

#[inline(always)]
fn may_be_record(payload: &[u8]) -> bool {
    payload.len() >= HEADER_LEN && (20..=23).contains(&payload[0]) && payload[1] == 3 && payload[2] <= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    /// What is left of a payload.
    fn captured_bytes(payload: &[u8], limit: usize) -> Vec<u8> {
        let mut captured = payload[..kept_len(payload, limit)].to_vec();
        blank(&mut captured, SecretRules::built_in());
        captured
    }

    #[test]
    fn headers_are_kept_and_nothing_that_was_encrypted() {
        let request = record(23, b"secret");
        assert_eq!(captured_bytes(&request, 2048), b"\x17\x03\x03\0\x06");
        let flight = [record(20, b"\x01"), record(23, &[7; 53]), request.clone()].concat();
        let left = captured_bytes(&flight, 2048);
        assert_eq!(left.len(), flight.len() - 6);
        let bare = [record(20, b"\0"), record(23, &[0; 53]), request[..5].to_vec()].concat();
        assert_eq!(left, bare);
    }

    #[test]
    fn of_a_handshake_its_message_type_is_kept_and_the_servers_hello() {
        let hello = [&[2, 0, 0, 40, 3, 3][..], &[9; 38]].concat();
        let certificate = record(22, &[&[11][..], &[5; 300]].concat());
        let flight = [record(22, &hello), certificate.clone()].concat();
        let left = captured_bytes(&flight, 2048);
        assert_eq!(left, [record(22, &hello), certificate[..6].to_vec()].concat());
        let client = record(22, &[&[1][..], b"server name"].concat());
        assert_eq!(captured_bytes(&client, 2048), b"\x16\x03\x03\0\x0c\x01");
        let no_hello = record(22, &[2, 9, 9, 9, 5, 5]);
        assert_eq!(captured_bytes(&no_hello, 2048), no_hello[..6]);
    }

    #[test]
    fn a_hello_longer_than_its_record_keeps_nothing_of_the_next_one() {
        let flight = [record(22, &[2, 0, 1, 0]), record(23, b"secret"), record(23, b"secret")].concat();
        let bare = b"\x16\x03\x03\0\x04\x02\0\x01\0\x17\x03\x03\0\x06\0\0\0\0\0\0\x17\x03\x03\0\x06";
        assert_eq!(captured_bytes(&flight, 2048), bare);
    }

    #[test]
    fn what_is_cut_or_is_no_record_is_kept_that_far_or_not_at_all() {
        let two = [record(23, &[7; 100]), record(23, &[7; 100])].concat();
        assert_eq!(captured_bytes(&two, 107).len(), 5); // the second header is not whole
        assert_eq!(captured_bytes(&two, 110).len(), 110);
        assert_eq!(captured_bytes(b"\x17\x03\x03\xff\xff secret", 2048), b"");
        assert_eq!(captured_bytes(b"password=secret", 2048), b"");
        assert_eq!(captured_bytes(b"\x17\x03", 2048), b"");
    }
}
