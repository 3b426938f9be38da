//! Divides each server's time, from a request's arrival to its answer, into the time in which calls of the server ran
//! and the server's own time.
//!
//! Input: times of all requests with their parents. Output: both times of each request. Calls that run at the same time
//! count once.

use rayon::prelude::*;
use twintap_columns::{input_table, output_table};

use crate::UNSEEN;
use crate::children::Children;

/// Rows for each thread, at least.
const ROWS_AT_ONCE: usize = 1 << 12;

input_table! {
    /// When each request began and ended at its client and at its server; `UNSEEN` where not known.
    pub struct CallTimes {
        parent: i64,
        began_ns: i64,
        ended_ns: i64,
        /// The request had arrived at the server.
        heard_ns: i64,
        answered_ns: i64,
    }
}

output_table! {
    /// How each server spent its time until it answered, one value for each request; `UNSEEN` where this is not known.
    pub struct ServerTime {
        /// Time between the request and the answer in which at least one call of the server ran; `UNSEEN` if none did.
        asking_ns: i64,
        /// The rest of the time from the request to the answer.
        own_ns: i64,
    }
}

/// The time of each server until it answered. A child whose times were not captured is ignored.
///
/// # Panics
/// If the columns differ in length.
pub fn server_time(asked: &CallTimes) -> ServerTime {
    assert!(asked.is_consistent(), "columns differ in length");
    let children = Children::new(asked.parent);
    let rows = (0..asked.parent.len()).into_par_iter().with_min_len(ROWS_AT_ONCE);
    let of_row = |stretches: &mut Vec<(i64, i64)>, row: usize| {
        let asking_ns = asking_ns(asked, children.of(row), row, stretches);
        let (heard_ns, answered_ns) = (asked.heard_ns[row], asked.answered_ns[row]);
        if heard_ns == UNSEEN || answered_ns == UNSEEN {
            return (asking_ns, UNSEEN);
        }
        (asking_ns, (answered_ns - heard_ns - asking_ns.max(0)).max(0))
    };
    let (asking_ns, own_ns) = rows.map_init(Vec::new, of_row).unzip();
    ServerTime { asking_ns, own_ns }
}

fn asking_ns(asked: &CallTimes, children: &[u32], row: usize, stretches: &mut Vec<(i64, i64)>) -> i64 {
    stretches.clear();
    stretches.extend(children.iter().filter_map(|&child| {
        let start = asked.began_ns[child as usize].max(asked.heard_ns[row]);
        let end = earlier(asked.ended_ns[child as usize], asked.answered_ns[row]);
        (start != UNSEEN && end > start).then_some((start, end))
    }));
    stretches.sort_unstable();
    if stretches.is_empty() {
        return UNSEEN;
    }
    let (mut waited_ns, mut reached_ns) = (0, UNSEEN);
    for &(start, end) in stretches.iter() {
        waited_ns += (end - start.max(reached_ns)).max(0);
        reached_ns = reached_ns.max(end);
    }
    waited_ns
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
        let asked = CallTimes {
            parent: &[-1, 0, 0, 0, -1, 4, 4],
            began_ns: &[0, 15, 18, 40, 0, 10, UNSEEN],
            ended_ns: &[99, 20, 25, 70, 99, 30, 50],
            heard_ns: &[17, 16, 19, 41, UNSEEN, 12, 12],
            answered_ns: &[60, 19, 24, 69, UNSEEN, 29, 49],
        };
        let none = UNSEEN;
        let server_time = server_time(&asked);
        assert_eq!(server_time.asking_ns, [28, none, none, none, 20, none, none]);
        assert_eq!(server_time.own_ns, [15, 3, 5, 28, none, 17, 37]);
    }
}
