//! TCP sequence numbers: u32 on a circle, so order is only between numbers less than 2^31 apart (RFC 9293 §3.4).

use std::ops::{Add, AddAssign, Sub};

/// A sequence or acknowledgment number.
///
/// ```
/// use twintap_wire::seq::SeqNumber;
/// assert!(SeqNumber(u32::MAX).is_before(SeqNumber(3)));
/// assert_eq!(SeqNumber(3) - SeqNumber(u32::MAX), 4);
/// assert_eq!(SeqNumber(u32::MAX) + 4, SeqNumber(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Whether `self` comes before `other` on the shorter way around.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        (self - other) < 0
    }

    /// The stream offset nearest to `near` whose low 32 bits are this number's distance past `zero`.
    ///
    /// Right while `near` is less than 2^31 away from the truth: a stream of any length unwraps if each number is
    /// unwrapped near the one before it. May be negative for numbers before `zero` (a keepalive).
    #[inline]
    pub fn unwrap_near(self, zero: Self, near: i64) -> i64 {
        let expected = zero + (near as u32);
        near + i64::from(self - expected)
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub for SeqNumber {
    type Output = i32;

    /// Signed distance, the shorter way around.
    #[inline]
    fn sub(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_wraps() {
        let cases = [
            (0, 1, true),
            (1, 0, false),
            (5, 5, false),
            (u32::MAX, 0, true),
            (0, u32::MAX, false),
            (0, 0x7fff_ffff, true),
        ];
        for (left, right, expected) in cases {
            assert_eq!(SeqNumber(left).is_before(SeqNumber(right)), expected, "{left} {right}");
        }
    }

    #[test]
    fn unwraps_past_four_gibibytes_and_back() {
        let zero = SeqNumber(0xffff_fff0);
        let mut near = 0;
        for truth in (0..20_000_000_000_i64).step_by(1_234_567_890) {
            let seq = zero + (truth as u32);
            near = seq.unwrap_near(zero, near);
            assert_eq!(near, truth);
        }
        assert_eq!(
            (zero + u32::MAX).unwrap_near(zero, 0),
            -1,
            "a keepalive, one byte before the stream"
        );
    }
}
