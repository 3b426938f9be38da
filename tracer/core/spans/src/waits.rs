//! What a span waited for that no packet of its own says: its server's queue, and the others of its quorum. How either
//! is told is in `collector/waits.py`.

use rustc_hash::FxHashMap;

use crate::UNSEEN;
use crate::children::Children;

/// When each request was probably taken up by its server; `UNSEEN` where nothing tells.
///
/// `began_ns` is when each exchange began, `asked_ns` when its server asked for the body, `arrived_ns` when the first
/// byte of the request had come, `service` a number. The work before a server acts is the quantile `unhurried` of its
/// service, told by at least `fewest`.
///
/// # Panics
/// If the columns differ in length.
pub fn taken_up(
    parent: &[i64],
    began_ns: &[i64],
    asked_ns: &[i64],
    arrived_ns: &[i64],
    service: &[i32],
    (unhurried, fewest): (f64, usize),
) -> Vec<i64> {
    let count = parent.len();
    assert!(
        [began_ns, asked_ns, arrived_ns]
            .iter()
            .all(|column| column.len() == count)
            && service.len() == count,
        "columns differ in length"
    );
    let mut acted_ns: Vec<i64> = asked_ns
        .iter()
        .map(|&at| if at == UNSEEN { i64::MAX } else { at })
        .collect();
    for (row, &began_ns) in began_ns.iter().enumerate().filter(|(_, at)| **at != UNSEEN) {
        if let Some(of) = usize::try_from(parent[row]).ok().filter(|&of| of < count) {
            acted_ns[of] = acted_ns[of].min(began_ns);
        }
    }
    let told = |row: usize| {
        let arrived = arrived_ns[row] != UNSEEN && acted_ns[row] != i64::MAX;
        arrived && acted_ns[row] >= arrived_ns[row]
    };
    let mut gaps: FxHashMap<i32, Vec<i64>> = FxHashMap::default();
    for row in (0..count).filter(|&row| told(row)) {
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
    let taken_up = |row: usize| {
        let work_ns = works.get(&service[row]).filter(|_| told(row));
        work_ns.map_or(UNSEEN, |work_ns| arrived_ns[row].max(acted_ns[row] - work_ns))
    };
    (0..count).map(taken_up).collect()
}

/// When the first of the servers that one parent asked the same at once had answered; `UNSEEN` for one asked alone.
///
/// # Panics
/// If the columns differ in length.
pub fn first_answers(parent: &[i64], began_ns: &[i64], ended_ns: &[i64], service: &[i32]) -> Vec<i64> {
    let count = parent.len();
    assert!(
        [began_ns, ended_ns].iter().all(|column| column.len() == count) && service.len() == count,
        "columns differ in length"
    );
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
            taken_up(
                &parent,
                &began_ns,
                &[UNSEEN; 4],
                &[10, 20, 16, 56],
                &[0, 0, 1, 1],
                (0.05, fewest),
            )
        };
        assert_eq!(taken(2), [10, 50, UNSEEN, UNSEEN]);
        assert_eq!(taken(3), [UNSEEN; 4]);
    }

    #[test]
    fn of_servers_asked_at_once_the_first_answer_counts() {
        let parent = [-1, 0, 0, 0, 0, 0];
        let (began_ns, ended_ns) = ([0, 10, 12, 40, 12, 30], [100, 30, 20, 50, 25, UNSEEN]);
        let first = first_answers(&parent, &began_ns, &ended_ns, &[0, 1, 1, 1, 2, 1]);
        assert_eq!(first, [UNSEEN, 20, 20, UNSEEN, UNSEEN, UNSEEN]);
    }
}
