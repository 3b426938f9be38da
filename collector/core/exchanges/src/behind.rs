//! Finds requests that had arrived whole at their server while it was still answering the one before on their
//! connection.

use rustc_hash::FxHashMap;
use twintap_columns::input_table;

use crate::UNSEEN;

input_table! {
    /// Exchanges in order of time: when each request was whole at the server, and when its answer had left there.
    pub struct Answered {
        connection_id: i64,
        came_ns: i64,
        free_ns: i64,
    }
}

/// Rows of those that came `least_ns` or more before the answer to the one before them on their connection had left,
/// and the rows of these. The columns must be consistent.
pub fn behind(exchanges: &Answered, least_ns: i64) -> (Vec<i64>, Vec<i64>) {
    let mut last = FxHashMap::with_capacity_and_hasher(exchanges.connection_id.len(), Default::default());
    let (mut waiting, mut answered) = (Vec::new(), Vec::new());
    for (row, id) in exchanges.connection_id.iter().enumerate() {
        let Some(before) = last.insert(id, row) else {
            continue;
        };
        let (came_ns, free_ns) = (exchanges.came_ns[row], exchanges.free_ns[before]);
        let seen = came_ns != UNSEEN && free_ns != UNSEEN;
        if seen && free_ns.saturating_sub(came_ns) >= least_ns {
            waiting.push(row as i64);
            answered.push(before as i64);
        }
    }
    (waiting, answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_waits_for_the_one_before_on_its_connection_is_behind() {
        let exchanges = Answered {
            connection_id: &[7, 8, 7, 7, 8, 8],
            came_ns: &[0, 0, 10, 50, UNSEEN, 30],
            free_ns: &[20, 90, 59, 99, 40, UNSEEN],
        };
        assert_eq!(behind(&exchanges, 10), (vec![2, 5], vec![0, 4]));
        assert_eq!(behind(&exchanges, 9), (vec![2, 3, 5], vec![0, 2, 4]));
    }
}
