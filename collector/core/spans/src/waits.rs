//! Infers waits that none of a span's own packets show: in its server's queue, and for parallel calls.
//!
//! - *Queue.* A server shows that it has begun to work on a request by its first call to another server, or by asking
//!   for the body (100 Continue). The time from the request's arrival to that act is work and, before it, queueing. A
//!   low quantile of this time over a service's requests is taken as the work alone; the rest is the wait in the queue.
//! - *Parallel calls.* If a parent calls several servers of one service at the same time, the first answer shows how
//!   long the call itself takes. What the parent waits longer, it waits for the slower ones.
//!
//! Limits: a server that calls nobody shows no queue, and a queue that never empties while the trace lasts is taken for
//! work.

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use twintap_columns::{input_table, output_table};

use crate::UNSEEN;
use crate::children::Children;

input_table! {
    /// Exchanges, one value each; times in ns, `UNSEEN` where not seen.
    pub struct Waiting {
        /// A row, `NONE` for a root; beyond the last for a parent that is no row.
        parent: i64,
        began_ns: i64,
        ended_ns: i64,
        /// The server asked for the body.
        asked_ns: i64,
        /// The first byte of the request had arrived.
        arrived_ns: i64,
        /// The number of its service.
        service: i32,
    }
}

output_table! {
    /// When each request's server probably began to work on it, and when the first of its parent's parallel calls to
    /// the same service was answered. `UNSEEN` where this is not known, or if there were no parallel calls.
    pub struct Waits {
        service_start: i64,
        first_answered: i64,
    }
}

/// The waits of requests. The work before a server's first act is the quantile `unhurried` over its service's requests;
/// it is not computed from fewer than `fewest` requests.
///
/// # Panics
/// If the columns differ in length.
pub fn waits(exchanges: &Waiting, unhurried: f64, fewest: usize) -> Waits {
    assert!(exchanges.is_consistent(), "columns differ in length");
    let (service_start, first_answered) = rayon::join(
        || service_start(exchanges, unhurried, fewest),
        || first_answers(exchanges),
    );
    Waits {
        service_start,
        first_answered,
    }
}

fn service_start(exchanges: &Waiting, unhurried: f64, fewest: usize) -> Vec<i64> {
    let Waiting {
        parent,
        began_ns,
        asked_ns,
        arrived_ns,
        service,
        ..
    } = *exchanges;
    let count = parent.len();
    let mut acted_ns: Vec<i64> = asked_ns
        .iter()
        .map(|&at| if at == UNSEEN { i64::MAX } else { at })
        .collect();
    for (row, &began_ns) in began_ns.iter().enumerate().filter(|(_, at)| **at != UNSEEN) {
        if let Some(of) = usize::try_from(parent[row]).ok().filter(|&of| of < count) {
            acted_ns[of] = acted_ns[of].min(began_ns);
        }
    }
    let shows_act = |row: usize| {
        let arrived = arrived_ns[row] != UNSEEN && acted_ns[row] != i64::MAX;
        arrived && acted_ns[row] >= arrived_ns[row]
    };
    let mut gaps: FxHashMap<i32, Vec<i64>> = FxHashMap::default();
    for row in (0..count).filter(|&row| shows_act(row)) {
        gaps.entry(service[row])
            .or_default()
            .push(acted_ns[row] - arrived_ns[row]);
    }
    gaps.retain(|_, gaps| gaps.len() >= fewest);
    let works: FxHashMap<i32, i64> = gaps
        .into_iter()
        .map(|(service, mut gaps)| {
            let place = ((gaps.len() - 1) as f64 * unhurried) as usize;
            (service, *gaps.select_nth_unstable(place).1)
        })
        .collect();
    let service_start = |row: usize| {
        let work_ns = works.get(&service[row]).filter(|_| shows_act(row));
        work_ns.map_or(UNSEEN, |work_ns| arrived_ns[row].max(acted_ns[row] - work_ns))
    };
    (0..count).into_par_iter().map(service_start).collect()
}

fn first_answers(exchanges: &Waiting) -> Vec<i64> {
    let Waiting {
        parent,
        began_ns,
        ended_ns,
        service,
        ..
    } = *exchanges;
    let count = parent.len();
    let children = Children::new(parent);
    let mut first = vec![UNSEEN; count];
    let mut asked: Vec<(i32, i64, u32)> = Vec::new();
    for row in 0..count {
        let of_row = children.of(row);
        if of_row.len() < 2 {
            continue;
        }
        asked.clear();
        asked.extend(of_row.iter().filter_map(|&child| {
            let at = child as usize;
            (began_ns[at] != UNSEEN && ended_ns[at] != UNSEEN).then_some((service[at], began_ns[at], child))
        }));
        asked.sort_unstable();
        for of_service in asked.chunk_by(|one, other| one.0 == other.0) {
            let mut reached_ns = UNSEEN;
            let mut start = 0;
            for place in 1..=of_service.len() {
                reached_ns = reached_ns.max(ended_ns[of_service[place - 1].2 as usize]);
                if of_service
                    .get(place)
                    .is_some_and(|&(_, began_ns, _)| began_ns < reached_ns)
                {
                    continue;
                }
                let at_once = &of_service[start..place];
                let answered_ns = at_once.iter().map(|&(_, _, child)| ended_ns[child as usize]).min();
                if let Some(answered_ns) = answered_ns.filter(|_| at_once.len() > 1) {
                    at_once
                        .iter()
                        .for_each(|&(_, _, child)| first[child as usize] = answered_ns);
                }
                start = place;
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_what_is_beyond_the_work_of_the_unhurried() {
        // Roots 0 and 1 serve at 10 and 20; their children began 5 and 35 later.
        let (parent, began_ns) = ([-1, -1, 0, 1], [0, 0, 15, 55]);
        let taken = |fewest| {
            let exchanges = Waiting {
                parent: &parent,
                began_ns: &began_ns,
                ended_ns: &[UNSEEN; 4],
                asked_ns: &[UNSEEN; 4],
                arrived_ns: &[10, 20, 16, 56],
                service: &[0, 0, 1, 1],
            };
            waits(&exchanges, 0.05, fewest).service_start
        };
        assert_eq!(taken(2), [10, 50, UNSEEN, UNSEEN]);
        assert_eq!(taken(3), [UNSEEN; 4]);
    }

    #[test]
    fn of_servers_asked_at_once_the_first_answer_counts() {
        let exchanges = Waiting {
            parent: &[-1, 0, 0, 0, 0, 0],
            began_ns: &[0, 10, 12, 40, 12, 30],
            ended_ns: &[100, 30, 20, 50, 25, UNSEEN],
            asked_ns: &[UNSEEN; 6],
            arrived_ns: &[UNSEEN; 6],
            service: &[0, 1, 1, 1, 2, 1],
        };
        let first = waits(&exchanges, 0.05, 1).first_answered;
        assert_eq!(first, [UNSEEN, 20, 20, UNSEEN, UNSEEN, UNSEEN]);
    }
}
