//! Keeps the headers of TLS records and what the hellos ask for and choose, and overwrites everything else.
//!
//! From the types and lengths of records the collector infers where a handshake ends and the application's messages
//! begin (`exchanges/src/tls_handshake.rs`). So these are kept: each record header in the inspected part of a payload,
//! the first byte of a handshake record (the type of its message), alerts in the clear, and of both hellos the parts
//! that [`hellos::kept_parts`] lists: server name, protocols, versions, cipher suite, which extensions there are. No
//! random number of a client, session id, key share, ticket, or identity of a key is kept.
//!
//! Limits: a record whose header is cut by two packets, or lies beyond the inspected part of the payload. A hello that
//! continues in other packets is put together by the agent (`capture/src/cut_hellos.rs`).
//!
//! Source: RFC 8446 §5.1 (records), §4 and §4.1.2–4.1.3 (messages, hellos), §6 (alerts); RFC 5246 §6.2.1.

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::hellos::{self, Keeping};
use super::{HEADER_LEN, may_be_record, record_len, shown_len};
use crate::parts::blank_beside;

/// The parts of a payload that are kept, ascending; none if it does not begin with a record.
///
/// Arguments: `limit`, how many bytes of the payload are inspected.
pub fn kept_parts(payload: &[u8], limit: usize) -> Parts<'_> {
    Parts {
        payload: &payload[..payload.len().min(limit)],
        at: 0,
        hello_end: 0,
        of_hello: Vec::new().into_iter(),
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
    /// Records before this place hold a hello that was read.
    hello_end: usize,
    of_hello: std::vec::IntoIter<Range<usize>>,
}

impl Iterator for Parts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if let Some(part) = self.of_hello.next() {
            return Some(part);
        }
        let start = self.at.max(self.hello_end);
        let record = self.payload.get(start..).filter(|rest| may_be_record(rest))?;
        let len = record_len(record)?;
        self.at = start + len;
        if let Some(hello) = hellos::parts_of_records(record, Keeping::Agent) {
            self.hello_end = start + hello.records_len;
            let parts = hello.parts.iter().map(|part| start + part.start..start + part.end);
            self.of_hello = parts.collect::<Vec<_>>().into_iter();
            return self.of_hello.next();
        }
        Some(start..start + HEADER_LEN + shown_len(record, len))
    }
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
    fn of_a_handshake_message_types_are_kept_and_what_hellos_ask_and_choose() {
        use super::super::hellos::tests::{KEY_SHARE, VERSION_13, client_hello, server_hello};
        let secret = (51, b"\x09\x09\x09\x09".as_slice());
        let hello = |share| server_hello(7, &[VERSION_13, share, KEY_SHARE]);
        let certificate = record(22, &[&[11][..], &[5; 300]].concat());
        let flight = [record(22, &hello(secret)), certificate.clone()].concat();
        let left = captured_bytes(&flight, 2048);
        let mut expected = hello((51, &[0; 4]));
        let len = expected.len();
        expected[len - KEY_SHARE.1.len()..].fill(0);
        assert_eq!(left, [record(22, &expected), certificate[..6].to_vec()].concat());
        let client = record(
            22,
            &client_hello(9, &[secret, (0, b"\0\x04\0\0\x01a"), (41, b"ticket")]),
        );
        let left = captured_bytes(&client, 2048);
        assert_eq!(left.len(), client.len() - 6, "up to the header of the last extension");
        let mut of_message = client_hello(0, &[(51, &[0; 4]), (0, b"\0\x04\0\0\x01a"), (41, b"ticket")]);
        of_message[39..71].fill(0); // the session's id
        of_message[73..77].fill(0); // cipher suites
        of_message[78] = 0; // compression
        let mut expected = record(22, &of_message);
        expected.truncate(client.len() - 6);
        assert_eq!(left, expected);
        let no_hello = record(22, &[2, 9, 9, 9, 5, 5]);
        assert_eq!(captured_bytes(&no_hello, 2048), no_hello[..6]);
    }

    #[test]
    fn alerts_in_the_clear_are_kept_and_no_others() {
        let alerts = [record(21, &[2, 40]), record(21, &[7; 26])].concat();
        assert_eq!(
            captured_bytes(&alerts, 2048),
            b"\x15\x03\x03\0\x02\x02\x28\x15\x03\x03\0\x1a"
        );
    }

    #[test]
    fn a_hello_longer_than_its_record_continues_in_the_next_and_only_of_its_own_kind() {
        use super::super::hellos::tests::client_hello;
        let message = client_hello(0, &[(0, b"\0\x04\0\0\x01a"), (16, b"\0\x03\x02h2")]);
        let (start, end) = message.split_at(84);
        let left = captured_bytes(&[record(22, start), record(22, end)].concat(), 2048);
        assert_eq!(left.len(), message.len() + 10);
        assert!(left.ends_with(b"\x02h2"), "{left:?}");
        let flight = [record(22, &[2, 0, 1, 0]), record(23, b"secret"), record(23, b"secret")].concat();
        let bare = b"\x16\x03\x03\0\x04\x02\0\0\0\x17\x03\x03\0\x06\0\0\0\0\0\0\x17\x03\x03\0\x06";
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
