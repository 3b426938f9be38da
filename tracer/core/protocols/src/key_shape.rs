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

use std::ops::Range;

/// Words of this length are rarely a programmer's.
const LONG_WORD: usize = 20;
/// Hexadecimal words of this length, with a decimal digit among them, are ids.
const HEX_WORD: usize = 4;
/// Bytes of a key that are read; its shape ends with `*` if it is longer.
pub(crate) const KEY_LIMIT: usize = 128;
const UUID_LEN: usize = 36;
const MASK: u8 = b'*';

/// Classes of bytes, as bits.
const WORD: u8 = 1;
const DIGIT: u8 = 2;
const HEX: u8 = 4;
const VISIBLE: u8 = 8;

static CLASSES: [u8; 256] = {
    let (mut classes, mut at) = ([0; 256], 0);
    while at < 256 {
        let byte = at as u8;
        classes[at] = (byte.is_ascii_alphanumeric() as u8 * WORD)
            | (byte.is_ascii_digit() as u8 * DIGIT)
            | (byte.is_ascii_hexdigit() as u8 * HEX)
            | (byte.is_ascii_graphic() as u8 * VISIBLE);
        at += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// What a key's shape leaves out of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// Its one run of digits.
    Digits,
    All,
}

/// Overwrite with `*` what a key's shape leaves out.
pub(crate) fn mask(key: &mut [u8]) {
    let mut at = 0;
    while at < key.len() {
        let rest = &mut key[at..];
        if class(rest[0]) & WORD == 0 {
            if class(rest[0]) & VISIBLE == 0 {
                rest[0] = MASK;
            }
            at += 1;
            continue;
        }
        let (len, left_out) = next_word(rest);
        let word = &mut rest[..len];
        match left_out {
            LeftOut::Nothing => {}
            LeftOut::Digits => {
                let digits = digits(word);
                word[digits].fill(MASK);
            }
            LeftOut::All => word.fill(MASK),
        }
        at += len;
    }
}

/// The length of the word that a text begins with, or of a UUID (RFC 9562 §4), and what is left out of it.
#[inline]
fn next_word(text: &[u8]) -> (usize, LeftOut) {
    let (mut len, mut runs, mut of_all, mut last) = (0, 0, HEX, 0);
    for &byte in text {
        let class = class(byte);
        if class & WORD == 0 {
            break;
        }
        runs += u32::from(class & !last & DIGIT != 0);
        of_all &= class;
        last = class;
        len += 1;
    }
    let is_hex = of_all == HEX;
    if is_hex && len == 8 && is_uuid(text) {
        return (UUID_LEN, LeftOut::All);
    }
    let left_out = match runs {
        _ if len >= LONG_WORD => LeftOut::All,
        0 => LeftOut::Nothing,
        1 if !is_hex || len < HEX_WORD => LeftOut::Digits,
        _ => LeftOut::All,
    };
    (len, left_out)
}

/// Whether a UUID begins here.
fn is_uuid(text: &[u8]) -> bool {
    text.get(..UUID_LEN).is_some_and(|text| {
        text.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    })
}

/// Where the digits of a word with one run of them are.
fn digits(word: &[u8]) -> Range<usize> {
    let start = word.iter().take_while(|byte| !byte.is_ascii_digit()).count();
    let len = word[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    start..start + len
}

/// Append the shape of a key. Arguments: its first bytes, and whether there are more.
pub(crate) fn push_shape(key: &[u8], is_cut: bool, shape: &mut Vec<u8>) {
    let begun = shape.len();
    let mut rest = &key[..key.len().min(KEY_LIMIT)];
    while let Some(&first) = rest.first() {
        if class(first) & WORD == 0 {
            match first {
                MASK => push_mask(begun, shape),
                _ if class(first) & VISIBLE == 0 => push_mask(begun, shape),
                _ => shape.push(first),
            }
            rest = &rest[1..];
            continue;
        }
        let (len, left_out) = next_word(rest);
        let (word, behind) = rest.split_at(len);
        match left_out {
            LeftOut::Nothing => shape.extend_from_slice(word),
            LeftOut::Digits => {
                let digits = digits(word);
                shape.extend_from_slice(&word[..digits.start]);
                push_mask(begun, shape);
                shape.extend_from_slice(&word[digits.end..]);
            }
            LeftOut::All => push_mask(begun, shape),
        }
        rest = behind;
    }
    if (is_cut || key.len() > KEY_LIMIT) && shape[begun..].last() != Some(&MASK) {
        shape.push(MASK);
    }
}

/// Append `*` to a shape that begins at `begun`, unless it ends with one; a dash between the two is dropped.
fn push_mask(begun: usize, shape: &mut Vec<u8>) {
    match shape[begun..] {
        [.., MASK] => {}
        [.., MASK, b'-'] => {
            shape.pop();
        }
        _ => shape.push(MASK),
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
    fn a_shape_is_the_masked_key_with_one_asterisk_for_several() {
        const BYTES: &[u8] = b"g1a*-:\x01";
        for number in 0..BYTES.len().pow(6) {
            let byte = |at| BYTES[number / BYTES.len().pow(at) % BYTES.len()];
            let key: Vec<u8> = (0..6).map(byte).collect();
            let mut masked = key.clone();
            mask(&mut masked);
            let mut expected = Vec::new();
            for (at, &byte) in masked.iter().enumerate() {
                let joins = byte == MASK || (byte == b'-' && masked.get(at + 1) == Some(&MASK));
                if !(joins && expected.last() == Some(&MASK)) {
                    expected.push(byte);
                }
            }
            assert_eq!(shape(&key, false).as_bytes(), expected, "{key:?}");
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
