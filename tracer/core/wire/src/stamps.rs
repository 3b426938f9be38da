//! Decides which stamps of a capture are plausible, and replaces the others.
//!
//! A damaged stamp is decades off. The difference of two such stamps can overflow 64 bits, and a single one makes a
//! capture of a second seem to last for years. Stamps within the 32 bits of seconds of pcap (1970 to 2106) keep every
//! difference and sum of two within int64; a caller that has seen the whole capture gives narrower ranges. A packet
//! whose stamp is outside of them gets the stamp of the packet before it and is counted. Its frame is recorded, so that
//! no conclusion is drawn from its time.

const NS_PER_SECOND: i64 = 1_000_000_000;
/// The stamps that pcap can hold: from 1970 on, below 2^32 s.
pub const ALL: (i64, i64) = (0, (1 << 32) * NS_PER_SECOND - 1);
/// Frames noted, at most; bounds the memory for a file in which no stamp is plausible.
const MAX_NOTED_FRAMES: usize = 1 << 20;

/// The plausible ranges of stamps, and the frames whose stamps were replaced so far.
#[derive(Debug)]
pub struct StampFilter {
    /// Inclusive; never empty.
    ranges: Vec<(i64, i64)>,
    /// The range of the last plausible stamp; at first the first range.
    near: (i64, i64),
    last_ns: Option<i64>,
    frames: Vec<u32>,
}

impl Default for StampFilter {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl StampFilter {
    /// Accept only stamps in these ranges; without ranges, those in [`ALL`].
    pub fn new(mut ranges: Vec<(i64, i64)>) -> Self {
        if ranges.is_empty() {
            ranges.push(ALL);
        }
        let near = ranges[0];
        Self {
            ranges,
            near,
            last_ns: None,
            frames: Vec::new(),
        }
    }

    /// The stamp to use for a packet, and whether it is the packet's own.
    #[inline]
    pub fn take(&mut self, frame: u32, host_ns: i64) -> (i64, bool) {
        if self.near.0 <= host_ns && host_ns <= self.near.1 {
            self.last_ns = Some(host_ns);
            return (host_ns, true);
        }
        self.take_slow(frame, host_ns)
    }

    #[cold]
    fn take_slow(&mut self, frame: u32, host_ns: i64) -> (i64, bool) {
        let holds = |range: &&(i64, i64)| range.0 <= host_ns && host_ns <= range.1;
        if let Some(&range) = self.ranges.iter().find(holds) {
            self.near = range;
            self.last_ns = Some(host_ns);
            return (host_ns, true);
        }
        if self.frames.len() < MAX_NOTED_FRAMES {
            self.frames.push(frame);
        }
        (self.last_ns.unwrap_or(self.near.0), false)
    }

    /// Frames whose stamps were replaced, in order; the first million of them.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_believed_has_the_time_of_the_packet_before() {
        let mut stamp_filter = StampFilter::new(vec![(100, 200), (900, 990)]);
        let stamps = [99, 100, 201, 150, 900, 200, i64::MAX, i64::MIN, 990];
        let taken: Vec<i64> = (1..)
            .zip(stamps)
            .map(|(frame, ns)| stamp_filter.take(frame, ns).0)
            .collect();
        assert_eq!(taken, [100, 100, 100, 150, 900, 200, 200, 200, 990]);
        assert_eq!(stamp_filter.frames(), [1, 3, 7, 8]);
    }

    #[test]
    fn differences_and_sums_of_all_stamps_stay_within_64_bits() {
        let mut stamp_filter = StampFilter::default();
        for stamp in [i64::MIN, -1, 0, ALL.1, ALL.1 + 1, i64::MAX] {
            let (taken, own) = stamp_filter.take(1, stamp);
            assert!(taken.checked_add(taken).is_some());
            assert!((ALL.0 - taken).checked_sub(ALL.1).is_some());
            assert_eq!(own, taken == stamp);
        }
    }
}
