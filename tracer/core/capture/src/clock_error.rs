//! Simulates a wrong host clock for tests: converts stamps to those of such a clock.

/// From `since_ns` (the true clock) on, the simulated clock is `offset_ns` ahead and gains `drift_ppb`. Before that
/// moment it is right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SkewedClock {
    pub offset_ns: i64,
    pub drift_ppb: i64,
    pub since_ns: u64,
}

impl SkewedClock {
    /// The stamp of the wrong clock at the true time `host_ns`.
    pub fn stamp(&self, host_ns: u64) -> u64 {
        let Some(elapsed_ns) = host_ns.checked_sub(self.since_ns) else {
            return host_ns;
        };
        let gained_ns = i128::from(elapsed_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        let wrong = i128::from(host_ns) + i128::from(self.offset_ns) + gained_ns;
        wrong.clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::SkewedClock;

    const SINCE: u64 = 1_700_000_000_000_000_000;

    #[test]
    fn stamps_are_off_by_offset_and_drift_from_the_given_moment() {
        let wrong = |offset_ns, drift_ppb, host_ns| {
            let error = SkewedClock {
                offset_ns,
                drift_ppb,
                since_ns: SINCE,
            };
            error.stamp(host_ns)
        };
        assert_eq!(SkewedClock::default().stamp(SINCE), SINCE);
        assert_eq!(wrong(7, 0, SINCE + 5), SINCE + 12);
        assert_eq!(wrong(-7, 0, SINCE + 5), SINCE - 2);
        assert_eq!(wrong(7, 0, SINCE - 1), SINCE - 1);
        assert_eq!(wrong(0, 100_000, SINCE + 1_000_000_000), SINCE + 1_000_100_000);
        assert_eq!(wrong(5, -100_000, SINCE + 2_000_000_000), SINCE + 1_999_800_005);
        assert_eq!(wrong(i64::MIN, 0, SINCE), 0);
    }
}
