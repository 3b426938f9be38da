//! The checksums of IPv4 and TCP (RFC 1071, RFC 9293 §3.1), as far as they follow from what is kept of a packet.

/// The sum of 16-bit words, not folded.
pub(crate) fn words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let whole: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    whole + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
