//! Overwrites the secrets in a packet's payload, by the rules for lines of text and by rules of each protocol.

use twintap_secrets::SecretRules;

use crate::protocol::Protocol;
use crate::registry::{self, REGISTRY};

/// Overwrites a payload by the remaining rules. A protocol calls it after noting the bytes that it restores afterwards.
pub type RedactRest<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Length of the text head that a payload begins with; 0 if it begins with none.
pub fn head_len(payload: &[u8]) -> usize {
    let mut lens = registry::of_payload(payload).map(|protocol| protocol.agent.head_len(payload));
    lens.find(|len| *len > 0).unwrap_or(0)
}

/// Overwrite the secrets in a captured payload.
pub fn redact(rules: &SecretRules, payload: &mut [u8]) {
    if head_len(payload) > 0 {
        redact_head(rules, payload);
    } else {
        redact_unframed(rules, payload);
    }
}

/// Overwrite the secrets in bytes that begin with a text head.
pub fn redact_head(rules: &SecretRules, payload: &mut [u8]) {
    if !rules.keeps_all() {
        around(REGISTRY, payload, rules, &mut |bytes| rules.redact(bytes));
    }
}

/// Overwrite the secrets in bytes that do not begin with a head: the middle of one, or another protocol's.
pub fn redact_unframed(rules: &SecretRules, payload: &mut [u8]) {
    if !rules.keeps_all() {
        around(REGISTRY, payload, rules, &mut |bytes| {
            if !REGISTRY.iter().any(|protocol| (protocol.overwrite)(bytes)) {
                rules.redact_unframed(bytes);
            }
        });
    }
}

/// Redact `payload` by `rest`, nested in what each of `protocols` does before and after it.
fn around(protocols: &[&Protocol], payload: &mut [u8], rules: &SecretRules, rest: RedactRest<'_>) {
    match protocols.split_first() {
        Some((protocol, others)) => match protocol.redact_around {
            Some(redact) => redact(payload, rules, &mut |bytes| around(others, bytes, rules, rest)),
            None => around(others, payload, rules, rest),
        },
        None => rest(payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact_payload(payload: &[u8]) -> Vec<u8> {
        let mut bytes = payload.to_vec();
        redact(SecretRules::built_in(), &mut bytes);
        let mut kept = payload.to_vec();
        redact(&SecretRules::nothing(), &mut kept);
        assert_eq!(kept, payload, "by rules that call nothing secret all stays");
        bytes
    }

    #[test]
    fn what_a_protocol_knows_of_its_messages_is_overwritten() {
        let cases: &[(&[u8], &[u8])] = &[
            (b"p\0\0\0\x0bsecret\0", b"p\0\0\0\x0bxxxxxxx"),
            (b"p\0\0\0\x0csecret\0", b"p\0\0\0\x0csecret\0"),
            (
                b"\0\0\x06\x01\x04\0\0\0\x01secret\0\0\x04\0\x01\0\0\0\x01body",
                b"\0\0\x06\x01\x04\0\0\0\x01\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0\x01body",
            ),
            (
                b"GET / HTTP/1.1\r\nCookie: secret\r\n\r\n",
                b"GET / HTTP/1.1\r\nCookie: xxxxxx\r\n\r\n",
            ),
            (b"of a head\r\nCookie: secret\r\n", b"xxxxxxxxx\r\nCookie: xxxxxx\r\n"),
        ];
        for (payload, expected) in cases {
            assert_eq!(
                redact_payload(payload),
                *expected,
                "{:?}",
                String::from_utf8_lossy(payload)
            );
        }
    }
}
