//! Timestamps of capture files, to int64 nanoseconds since 1970.
//!
//! pcapng counts ticks of any decimal or binary fraction of a second, with an offset in seconds (`if_tsresol`,
//! `if_tsoffset`: draft-ietf-opsawg-pcapng §4.2). Finer than a nanosecond is cut off, as Wireshark does.

const NS_PER_SECOND: u64 = 1_000_000_000;

/// A host's own stamp: ns since 1970 by its clock, right or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HostTime(pub i64);

impl HostTime {
    /// From pcap's two fields, `fraction` in units of `fraction_ns`. A fraction over a second carries, as in Wireshark.
    #[inline]
    pub fn from_seconds(seconds: u32, fraction: u32, fraction_ns: u32) -> Self {
        // Below 2^32 * 1e9 + 2^32 * 1e3 < 2^63.
        Self((u64::from(seconds) * NS_PER_SECOND + u64::from(fraction) * u64::from(fraction_ns)) as i64)
    }
}

/// How long one tick of an interface's clock is, and where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    unit: Unit,
    offset_seconds: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// A tick is this many ns.
    Nanoseconds(u64),
    /// A ns is this many ticks.
    PerNanosecond(u64),
    /// A tick is 2^-n s.
    Binary(u32),
    /// A tick is so short that 2^64 of them are below a ns.
    Nothing,
}

impl Resolution {
    /// pcapng's default: microseconds.
    pub const MICROSECONDS: Self = Self {
        unit: Unit::Nanoseconds(1_000),
        offset_seconds: 0,
    };
    /// What our own agent writes.
    pub const NANOSECONDS: Self = Self {
        unit: Unit::Nanoseconds(1),
        offset_seconds: 0,
    };

    /// From the value byte of `if_tsresol`: a negative power of 10, or of 2 if the high bit is set.
    pub fn from_option(value: u8) -> Self {
        let power = u32::from(value & 0x7f);
        let unit = match power {
            _ if value & 0x80 != 0 => Unit::Binary(power),
            0..=9 => Unit::Nanoseconds(10u64.pow(9 - power)),
            10..=28 => Unit::PerNanosecond(10u64.pow(power - 9)),
            _ => Unit::Nothing,
        };
        Self {
            unit,
            offset_seconds: 0,
        }
    }

    /// The same ticks, counted from `offset_seconds` after 1970 (`if_tsoffset`).
    pub fn with_offset(self, offset_seconds: i64) -> Self {
        Self { offset_seconds, ..self }
    }

    /// Length of a tick in ns, 0 if shorter than that; for display.
    pub fn tick_ns(self) -> u64 {
        match self.unit {
            Unit::Nanoseconds(ns) => ns,
            Unit::Binary(power) if power < 64 => NS_PER_SECOND >> power,
            _ => 0,
        }
    }

    /// The time of `ticks`, or nothing if int64 ns cannot hold it.
    #[inline]
    pub fn time(self, ticks: u64) -> Option<HostTime> {
        if self == Self::NANOSECONDS {
            return i64::try_from(ticks).ok().map(HostTime);
        }
        self.time_slow(ticks)
    }

    fn time_slow(self, ticks: u64) -> Option<HostTime> {
        let since = match self.unit {
            Unit::Nanoseconds(ns) => i128::from(ticks) * i128::from(ns),
            Unit::PerNanosecond(count) => i128::from(ticks / count),
            Unit::Binary(power) => ((u128::from(ticks) * u128::from(NS_PER_SECOND)) >> power) as i128,
            Unit::Nothing => 0,
        };
        let offset = i128::from(self.offset_seconds) * i128::from(NS_PER_SECOND);
        i64::try_from(since + offset).ok().map(HostTime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions() {
        let cases: &[(&str, u8, i64, u64, Option<i64>)] = &[
            ("seconds", 0, 0, 7, Some(7_000_000_000)),
            ("microseconds", 6, 0, 1_500_000, Some(1_500_000_000)),
            (
                "nanoseconds",
                9,
                0,
                1_700_000_000_123_456_789,
                Some(1_700_000_000_123_456_789),
            ),
            ("picoseconds", 12, 0, 1_999, Some(1)),
            ("10^-28 s", 28, 0, u64::MAX, Some(1)),
            ("10^-127 s", 127, 0, u64::MAX, Some(0)),
            ("2^0 s", 0x80, 0, 3, Some(3_000_000_000)),
            ("2^-10 s", 0x8a, 0, 1025, Some(1_000_976_562)),
            ("2^-32 s (NTP)", 0xa0, 0, (5 << 32) + (1 << 31), Some(5_500_000_000)),
            ("2^-127 s", 0xff, 0, u64::MAX, Some(0)),
            ("offset", 9, 10, 5, Some(10_000_000_005)),
            ("negative offset", 6, -1, 0, Some(-1_000_000_000)),
            ("past 2262", 9, 0, u64::MAX, None),
            ("past 2262 by offset", 9, i64::MAX, 0, None),
            ("seconds beyond", 0, 0, u64::MAX, None),
            ("first ns that does not fit", 9, 0, 1 << 63, None),
            ("last ns that fits", 9, 0, (1 << 63) - 1, Some(i64::MAX)),
        ];
        for &(name, option, offset, ticks, expected) in cases {
            let resolution = Resolution::from_option(option).with_offset(offset);
            assert_eq!(resolution.time(ticks), expected.map(HostTime), "{name}");
        }
    }

    #[test]
    fn tick_lengths() {
        for (option, expected) in [
            (6, 1_000),
            (9, 1),
            (12, 0),
            (0x80, 1_000_000_000),
            (0x81, 500_000_000),
            (0xff, 0),
        ] {
            assert_eq!(Resolution::from_option(option).tick_ns(), expected, "{option}");
        }
    }

    #[test]
    fn pcap_seconds_are_unsigned() {
        assert_eq!(
            HostTime::from_seconds(u32::MAX, 999_999_999, 1),
            HostTime(4_294_967_295_999_999_999)
        );
        assert_eq!(HostTime::from_seconds(1, 1_500_000, 1_000), HostTime(2_500_000_000));
    }
}
