//! Head-of-line blocking: finds requests that had arrived completely at their server while it was still answering the
//! previous request on their connection.

use rustc_hash::FxHashMap;
use twintap_columns::input_table;

use crate::UNSEEN;

input_table! {
    /// Exchanges in order of time: when the last byte of each request arrived at the server (`came_ns`), and when the
    /// last byte of its answer left there (`free_ns`).
    pub struct ServerTimes {
        connection_id: i64,
        came_ns: i64,
        free_ns: i64,
    }
}

/// Rows of the requests that arrived `least_ns` or more before the previous answer on their connection had left, and
/// the rows of these previous exchanges. The columns must be consistent.
pub fn rows_behind(exchanges: &ServerTimes, least_ns: i64) -> (Vec<i64>, Vec<i64>) {
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
        let exchanges = ServerTimes {
            connection_id: &[7, 8, 7, 7, 8, 8],
            came_ns: &[0, 0, 10, 50, UNSEEN, 30],
            free_ns: &[20, 90, 59, 99, 40, UNSEEN],
        };
        assert_eq!(rows_behind(&exchanges, 10), (vec![2, 5], vec![0, 4]));
        assert_eq!(rows_behind(&exchanges, 9), (vec![2, 3, 5], vec![0, 2, 4]));
    }
}
