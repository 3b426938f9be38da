//! Numbers and lines of RESP.

/// Longest number of a header, with its sign.
const DIGITS_LIMIT: usize = 19;
/// Most that a header may announce, of bytes (Redis' own default limit is 2^29) or of elements.
pub(super) const MOST: i64 = 1 << 30;

/// What the beginning of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// A header such as `*3\r\n`: its number, and its length.
    Whole(i64, usize),
    /// The beginning of one.
    Partial,
    Invalid,
}

/// The header that bytes begin with; its type is their first byte.
#[inline]
pub(super) fn header(bytes: &[u8]) -> Header {
    let (mut at, mut number) = (1, 0_i64);
    let is_negative = bytes.get(1) == Some(&b'-');
    at += usize::from(is_negative);
    let first = at;
    loop {
        match bytes.get(at) {
            None => return Header::Partial,
            Some(digit @ b'0'..=b'9') if at < DIGITS_LIMIT => number = number * 10 + i64::from(digit - b'0'),
            Some(b'\r') if at > first => break,
            Some(_) => return Header::Invalid,
        }
        at += 1;
    }
    match bytes.get(at + 1) {
        None => Header::Partial,
        Some(b'\n') if number <= MOST => Header::Whole(if is_negative { -number } else { number }, at + 2),
        Some(_) => Header::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_its_type_a_number_and_the_end_of_a_line() {
        let cases: &[(&[u8], Header)] = &[
            (b"*3\r\n$3", Header::Whole(3, 4)),
            (b"$-1\r\n", Header::Whole(-1, 5)),
            (b"$", Header::Partial),
            (b"$12", Header::Partial),
            (b"$12\r", Header::Partial),
            (b"$\r\n", Header::Invalid),
            (b"$1x\r\n", Header::Invalid),
            (b"$1\rx", Header::Invalid),
            (b"$1073741824\r\n", Header::Whole(MOST, 13)),
            (b"$1073741825\r\n", Header::Invalid),
            (b"$99999999999999999999999\r\n", Header::Invalid),
            (b"", Header::Partial),
        ];
        for (bytes, expected) in cases {
            assert_eq!(header(bytes), *expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
