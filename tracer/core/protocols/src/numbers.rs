//! Numbers in texts.

/// A decimal number that fits, or -1.
pub(crate) fn number(value: &[u8]) -> i64 {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return -1;
    }
    value
        .iter()
        .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}
