//! How long each server waited for those that it asked itself, before it answered.

use crate::UNSEEN;
use crate::children::Children;

/// When each request was asked and answered, at its own ends and at its server; `UNSEEN` where not known.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub parent: &'a [i64],
    pub began_ns: &'a [i64],
    pub ended_ns: &'a [i64],
    /// The server had the request.
    pub heard_ns: &'a [i64],
    pub answered_ns: &'a [i64],
}

impl Asked<'_> {
    /// Whether all columns have one length.
    pub fn is_consistent(&self) -> bool {
        let times = [self.began_ns, self.ended_ns, self.heard_ns, self.answered_ns];
        times.iter().all(|column| column.len() == self.parent.len())
    }
}

/// For how long at least one of a row's children ran, between its request and its answer; `UNSEEN` where none did. What
/// was not seen of these bounds nothing.
///
/// # Panics
/// If the columns differ in length.
pub fn asking_ns(asked: &Asked) -> Vec<i64> {
    assert!(asked.is_consistent(), "columns differ in length");
    let children = Children::new(asked.parent);
    let mut stretches: Vec<(i64, i64)> = Vec::new();
    let of_row = |row: usize| {
        stretches.clear();
        stretches.extend(children.of(row).iter().filter_map(|&child| {
            let start = asked.began_ns[child as usize].max(asked.heard_ns[row]);
            let end = earlier(asked.ended_ns[child as usize], asked.answered_ns[row]);
            (start != UNSEEN && end > start).then_some((start, end))
        }));
        stretches.sort_unstable();
        if stretches.is_empty() {
            return UNSEEN;
        }
        let (mut waited_ns, mut reached_ns) = (0, UNSEEN);
        for &(start, end) in &stretches {
            waited_ns += (end - start.max(reached_ns)).max(0);
            reached_ns = reached_ns.max(end);
        }
        waited_ns
    };
    (0..asked.parent.len()).map(of_row).collect()
}

/// The earlier of two times, of which either may be unseen.
fn earlier(one: i64, other: i64) -> i64 {
    match (one, other) {
        (UNSEEN, _) => other,
        (_, UNSEEN) => one,
        _ => one.min(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_children_share_counts_once_and_only_until_the_answer() {
        let asked = Asked {
            parent: &[-1, 0, 0, 0, -1, 4, 4],
            began_ns: &[0, 15, 18, 40, 0, 10, UNSEEN],
            ended_ns: &[99, 20, 25, 70, 99, 30, 50],
            heard_ns: &[17, 16, 19, 41, UNSEEN, 12, 12],
            answered_ns: &[60, 19, 24, 69, UNSEEN, 29, 49],
        };
        let none = UNSEEN;
        assert_eq!(asking_ns(&asked), [28, none, none, none, 20, none, none]);
    }
}
