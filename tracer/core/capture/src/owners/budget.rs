//! The share of a processor that looking for owners may take.

use std::time::{Duration, Instant};

/// One part in so many, if nothing else is wanted: 2 %.
pub const PARTS: u32 = 50;
/// Saved up while nothing is to be done, for a burst of connections.
const MOST_SAVED: Duration = Duration::from_millis(20);

/// Time that may be spent: it grows with the clock and shrinks with work.
pub struct Budget {
    saved: Duration,
    owed: Duration,
    last: Instant,
    /// One part in so many may be spent.
    parts: u32,
}

impl Budget {
    pub fn new(now: Instant, parts: u32) -> Self {
        Budget {
            parts: parts.max(1),
            saved: MOST_SAVED,
            owed: Duration::ZERO,
            last: now,
        }
    }

    /// Whether work may begin.
    pub fn allows(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.last) / self.parts;
        self.last = now;
        let paid = earned.min(self.owed);
        self.owed -= paid;
        self.saved = (self.saved + (earned - paid)).min(MOST_SAVED);
        self.owed.is_zero()
    }

    /// Takes what work cost; a debt is paid before other work begins.
    pub fn spend(&mut self, cost: Duration) {
        let taken = cost.min(self.saved);
        self.saved -= taken;
        self.owed += cost - taken;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_earned_before_more_is() {
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let mut budget = Budget::new(begin, PARTS);
        budget.spend(MOST_SAVED);
        assert!(budget.allows(after(0)));
        budget.spend(Duration::from_millis(10));
        assert!(!budget.allows(after(499)));
        assert!(budget.allows(after(500)));
        assert!(budget.allows(after(100_000)));
        budget.spend(MOST_SAVED);
        assert!(budget.allows(after(100_000)), "no more than a burst is saved");
        budget.spend(Duration::from_millis(1));
        assert!(!budget.allows(after(100_001)));
    }
}
