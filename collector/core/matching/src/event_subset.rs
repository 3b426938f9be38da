//! A subset of the events, with the index of each event in that subset.

const WORD_BITS: usize = u64::BITS as usize;

/// A bit for each event, and how many bits are set before each word. A look-up is two loads; memory is a fifth of a
/// byte for each event.
#[derive(Debug)]
pub(crate) struct EventSubset {
    bits: Vec<u64>,
    before: Vec<u32>,
}

impl EventSubset {
    /// The subset `events` of `n` events, in any order, possibly with repetitions.
    pub fn of(n: usize, events: &[u32]) -> Self {
        let mut bits = vec![0_u64; n.div_ceil(WORD_BITS)];
        for &event in events {
            bits[event as usize / WORD_BITS] |= 1 << (event as usize % WORD_BITS);
        }
        let counts = bits.iter().scan(0, |before, word| {
            let count = *before;
            *before += word.count_ones();
            Some(count)
        });
        let before = counts.collect();
        Self { bits, before }
    }

    /// Number of events in the subset.
    pub fn len(&self) -> usize {
        let last = self.before.last().zip(self.bits.last());
        last.map_or(0, |(before, word)| (before + word.count_ones()) as usize)
    }

    /// Index of `event` in the subset; `None` if it is not in it.
    #[inline]
    pub fn place(&self, event: u32) -> Option<usize> {
        let (word, bit) = (event as usize / WORD_BITS, event as usize % WORD_BITS);
        let below = (1_u64 << bit) - 1;
        let found = self.bits[word];
        (found >> bit & 1 == 1).then(|| (self.before[word] + (found & below).count_ones()) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_among_those_that_are_wanted() {
        let event_subset = EventSubset::of(200, &[199, 0, 63, 64, 64, 130]);
        let found: Vec<_> = (0..200)
            .filter_map(|event| Some((event, event_subset.place(event)?)))
            .collect();
        assert_eq!(found, [(0, 0), (63, 1), (64, 2), (130, 3), (199, 4)]);
        assert_eq!(event_subset.len(), 5);
        assert_eq!(EventSubset::of(0, &[]).len(), 0);
        assert_eq!(EventSubset::of(64, &[]).place(5), None);
    }
}
