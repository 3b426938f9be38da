//! The shape of a key: what keys of one kind have in common, without what distinguishes one from another.
//!
//! ```text
//! user:1234                                     user:*
//! session:550e8400-e29b-41d4-a716-446655440000  session:*
//! cart:{17}:items                               cart:{*}:items
//! lock:orders                                   lock:orders
//! ```
//! A word is a run of letters and digits. Of a word with one run of digits these are replaced by `*`. A word is replaced
//! as a whole if it looks like an id or a token: hexadecimal digits with a decimal one among them, two runs of digits or
//! more, [`LONG_WORD`] characters or more. So are bytes that are no visible ASCII. Dashes within a replaced part belong
//! to it.
//!
//! An agent masks keys in place, `*` for each byte, which does not change their shape.
//!
//! Limits: a key that consists of a user's own words (`user:alice`) keeps them.

/// Words of this length are rarely a programmer's.
const LONG_WORD: usize = 20;
/// Hexadecimal words of this length,, with a decimal digit among them, are ids.
const HEX_WORD: usize = 4;
/// Bytes of a key that are read; its shape ends with `*` if it is longer.
pub(crate) const KEY_LIMIT: usize = 128;
const UUID_LEN: usize = 36;
const MASK: u8 = b'*';

/// Overwrite with `*` what a key's shape leaves out.
pub(crate) fn mask(key: &mut [u8]) {
    let mut at = 0;
    while at < key.len() {
        if !key[at].is_ascii_alphanumeric() {
            if !key[at].is_ascii_graphic() {
                key[at] = MASK;
            }
            at += 1;
            continue;
        }
        let rest = &mut key[at..];
        let len = if is_uuid(rest) {
            rest[..UUID_LEN].fill(MASK);
            UUID_LEN
        } else {
            let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
            mask_word(&mut rest[..len]);
            len
        };
        at += len;
    }
}

/// Whether a UUID begins here (RFC 9562 §4).
fn is_uuid(text: &[u8]) -> bool {
    text.get(..UUID_LEN).is_some_and(|text| {
        text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

fn mask_word(word: &mut [u8]) {
    let (mut runs, mut was_digit, mut is_hex) = (0, false, true);
    for byte in word.iter() {
        let is_digit = byte.is_ascii_digit();
        runs += usize::from(is_digit && !was_digit);
        was_digit = is_digit;
        is_hex &= byte.is_ascii_hexdigit();
    }
    if runs > 1 || word.len() >= LONG_WORD || (is_hex && runs == 1 && word.len() >= HEX_WORD) {
        word.fill(MASK);
    } else if runs == 1 {
        word.iter_mut()
            .filter(|byte| byte.is_ascii_digit())
            .for_each(|byte| *byte = MASK);
    }
}

/// Append the shape of a key. Arguments: its first bytes, and whether there are more.
pub(crate) fn push_shape(key: &[u8], is_cut: bool, shape: &mut Vec<u8>) {
    let mut masked = [0; KEY_LIMIT];
    let len = key.len().min(KEY_LIMIT);
    let masked = &mut masked[..len];
    masked.copy_from_slice(&key[..len]);
    mask(masked);
    let begun = shape.len();
    for (at, &byte) in masked.iter().enumerate() {
        let joins = byte == b'-' && masked.get(at + 1) == Some(&MASK);
        let follows = shape[begun..].last() == Some(&MASK);
        if !(follows && (byte == MASK || joins)) {
            shape.push(byte);
        }
    }
    if (is_cut || key.len() > KEY_LIMIT) && shape[begun..].last() != Some(&MASK) {
        shape.push(MASK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(key: &[u8], is_cut: bool) -> String {
        let mut found = Vec::new();
        push_shape(key, is_cut, &mut found);
        String::from_utf8(found).expect("ASCII")
    }

    #[test]
    fn what_distinguishes_keys_of_one_kind_is_left_out() {
        let cases: &[(&[u8], &str)] = &[
            (b"user:1234", "user:*"),
            (b"user:1234:name", "user:*:name"),
            (b"cart:{17}:items", "cart:{*}:items"),
            (b"session:550e8400-e29b-41d4-a716-446655440000", "session:*"),
            (b"abcdefab-abcd-abcd-abcd-abcdefabcdef:x", "*:x"),
            (b"550E8400e29b41d4a716446655440000", "*"),
            (b"sess:kX93jd8Zq", "sess:*"),
            (b"t:eyJhbGciOiJIUzIabcdefgh.x", "t:*.x"),
            (b"lock:orders", "lock:orders"),
            (b"v2:page3", "v*:page*"),
            (b"key:__rand_int__", "key:__rand_int__"),
            (b"key:000000004711", "key:*"),
            (b"feed", "feed"),
            (b"rate:10.68.0.10", "rate:*.*.*.*"),
            (b"\x00\xff\x80bin", "*bin"),
            (b"two words", "two*words"),
            (b"a-b-c", "a-b-c"),
            (b"2026-11-25", "*"),
            (b"", ""),
        ];
        for (key, expected) in cases {
            assert_eq!(shape(key, false), *expected, "{:?}", String::from_utf8_lossy(key));
            let mut masked = key.to_vec();
            mask(&mut masked);
            assert_eq!(masked.len(), key.len());
            assert_eq!(shape(&masked, false), *expected, "a masked key has the same shape");
        }
    }

    #[test]
    fn a_long_key_is_cut_and_says_so() {
        let long = b"ab:".repeat(100);
        assert!(shape(&long, false).ends_with('*'));
        assert_eq!(shape(&long, false).len(), KEY_LIMIT + 1);
        assert_eq!(shape(b"user:", true), "user:*");
        assert_eq!(shape(b"user:1", true), "user:*");
    }
}
