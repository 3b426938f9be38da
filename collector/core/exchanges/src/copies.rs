//! Collects what was captured at two hosts, each thing once.
//!
//! Rows are those of one host after the other's. The first host's are ascending, but for what was sent again or out of
//! order; the second host's are mostly copies in the same order, so each is looked up next to the one before. Then
//! nothing needs to be sorted, and no memory is taken for copies.

use crate::ranges::partition_point_near;

/// Things of a list from some place on, to which further ones are added.
pub(crate) struct Copies {
    begin: usize,
    /// Things up to here are ascending, each once; those behind were added out of order.
    end: usize,
    near: usize,
}

impl Copies {
    /// Those behind all of `things`.
    pub fn behind<T>(things: &[T]) -> Self {
        Self {
            begin: things.len(),
            end: things.len(),
            near: 0,
        }
    }

    /// Add `new`, or merge it with the thing of the same place, if that is there.
    pub fn add<T, K: Ord>(&mut self, things: &mut Vec<T>, new: T, place: fn(&T) -> K, merge: impl FnOnce(&mut T, T)) {
        let own = &mut things[self.begin..self.end];
        let at = place(&new);
        if own.last().is_none_or(|last| place(last) < at) {
            self.end += usize::from(self.is_ascending(things));
            things.push(new);
            return;
        }
        self.near = partition_point_near(own, self.near, |known| place(known) < at);
        match own.get_mut(self.near) {
            Some(known) if place(known) == at => merge(known, new),
            _ => things.push(new),
        }
    }

    /// Whether the things are ascending, each once.
    pub fn is_ascending<T>(&self, things: &[T]) -> bool {
        self.end == things.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with how often each was added, and whether they are ascending.
    fn collect(numbers: &[u32]) -> (Vec<(u32, u32)>, bool) {
        let mut found = vec![(0, 1)];
        let mut copies = Copies::behind(&found);
        for &number in numbers {
            copies.add(&mut found, (number, 1), |one| one.0, |known, new| known.1 += new.1);
        }
        (found[1..].to_vec(), copies.is_ascending(&found))
    }

    #[test]
    fn copies_are_merged_and_what_is_out_of_order_is_kept_behind() {
        assert_eq!(collect(&[]), (vec![], true));
        assert_eq!(collect(&[3, 5, 5, 7, 3, 5, 7, 5]), (vec![(3, 2), (5, 4), (7, 2)], true));
        // What the first host did not capture, and what follows it, is out of order.
        assert_eq!(collect(&[3, 7, 3, 5, 7]), (vec![(3, 2), (7, 2), (5, 1)], false));
        assert_eq!(
            collect(&[3, 7, 3, 5, 7, 9, 5, 9]),
            (vec![(3, 2), (7, 2), (5, 1), (9, 1), (5, 1), (9, 1)], false)
        );
    }
}
