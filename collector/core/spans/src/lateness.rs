//! How many requests of each group were late, and by how much.
//!
//! A request is late if it took longer than the limit of its group. The caller derives the limits from the histograms
//! of [`count_bins`]; [`count_late`] then counts the requests beyond them.

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use twintap_columns::{input_table, output_table};

use crate::UNSEEN;

/// By group and bin.
type Counts = FxHashMap<(i32, i32), i64>;

output_table! {
    /// How often each bin of a logarithmic histogram occurs in a group, in order of groups and bins.
    pub struct Bins {
        group: i32,
        bin: i32,
        count: i64,
    }
}

input_table! {
    /// Requests; times in ns, `UNSEEN` where not known.
    pub struct RequestTimes {
        /// Negative for one that is left out.
        group: i32,
        /// The server's own time.
        own_ns: i64,
        /// The part of it on the root's critical path.
        critical_ns: i64,
        asked_ns: i64,
        answered_ns: i64,
    }
}

/// The limit of each group's requests, and the pool in which the group is counted.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    pub limit_ns: &'a [f64],
    /// Negative for a group that is left out.
    pub pool: &'a [i32],
    pub pools_count: usize,
}

output_table! {
    /// One row a pool: late requests, moments with requests and with late ones, medians of what late requests took and
    /// of what is usual, the total cost, the first and the last time, and the row of the slowest request, or -1.
    pub struct Late {
        late_count: i64,
        moments: i64,
        late_moments: i64,
        took_ns("took"): f64,
        usual_ns("usual"): f64,
        cost_ns: f64,
        from_ns("from_trace_ns"): i64,
        to_ns("to_trace_ns"): i64,
        slowest: i64,
    }
}

/// A histogram of the servers' own times for each group, with `bins_per_octave` bins an octave.
///
/// # Panics
/// If the columns differ in length.
pub fn count_bins(group: &[i32], own_ns: &[i64], bins_per_octave: f64) -> Bins {
    assert_eq!(group.len(), own_ns.len(), "columns differ in length");
    let count = |mut counts: Counts, (&group, &own_ns): (&i32, &i64)| {
        let bin = ((own_ns + 1) as f64).log(2.0) * bins_per_octave;
        *counts.entry((group, bin.floor() as i32)).or_default() += 1;
        counts
    };
    let timed = group.par_iter().zip(own_ns).with_min_len(1 << 14);
    let counts = timed.filter(|(group, _)| **group >= 0).fold(Counts::default, count);
    let counts = counts.reduce(Counts::default, |mut one, other| {
        other
            .into_iter()
            .for_each(|(key, count)| *one.entry(key).or_default() += count);
        one
    });
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_unstable();
    let mut bins = Bins::default();
    for ((group, bin), count) in rows {
        bins.group.push(group);
        bins.bin.push(bin);
        bins.count.push(count);
    }
    bins
}

/// Counts of one pool.
#[derive(Clone, Debug, Default)]
struct Pool {
    own_ns: Vec<i64>,
    usual_ns: Vec<f64>,
    cost_ns: f64,
    moments: Vec<i64>,
    late_moments: Vec<i64>,
    times: Option<(i64, i64)>,
    slowest: Option<(i64, usize)>,
}

/// Count by pool the requests that exceed their group's limit. The usual time is half the limit; a moment lasts
/// `moment_ns`.
///
/// # Panics
/// If the columns differ in length, a group has no limit, or `moment_ns` is 0.
pub fn count_late(timed: &RequestTimes, limits: &Limits, moment_ns: i64) -> Late {
    assert!(timed.is_consistent(), "columns differ in length");
    let mut pools = vec![Pool::default(); limits.pools_count];
    for (row, group) in timed.group.iter().enumerate() {
        let Ok(group) = usize::try_from(*group) else { continue };
        let Ok(pool) = usize::try_from(limits.pool[group]) else {
            continue;
        };
        let (pool, own_ns, limit_ns) = (&mut pools[pool], timed.own_ns[row], limits.limit_ns[group]);
        if pool.slowest.is_none_or(|(most_ns, _)| own_ns > most_ns) {
            pool.slowest = Some((own_ns, row));
        }
        let asked_ns = timed.asked_ns[row];
        let moment = if asked_ns == UNSEEN {
            UNSEEN
        } else {
            asked_ns.div_euclid(moment_ns)
        };
        note(&mut pool.moments, moment);
        if own_ns as f64 > limit_ns {
            note(&mut pool.late_moments, moment);
            pool.add_late(own_ns, limit_ns / 2.0, timed.critical_ns[row].max(0));
            pool.extend_times(asked_ns, timed.answered_ns[row]);
        }
    }
    let mut late = Late::default();
    pools.into_iter().for_each(|pool| late.add(pool));
    late
}

/// Note a moment. Requests come nearly in order of time, so hardly more entries are kept than there are moments.
fn note(moments: &mut Vec<i64>, moment: i64) {
    if moments.last() != Some(&moment) {
        moments.push(moment);
    }
}

fn distinct(mut moments: Vec<i64>) -> i64 {
    moments.sort_unstable();
    moments.dedup();
    moments.len() as i64
}

impl Pool {
    fn add_late(&mut self, own_ns: i64, usual_ns: f64, critical_ns: i64) {
        self.cost_ns += (own_ns as f64 - usual_ns).min(critical_ns as f64);
        self.own_ns.push(own_ns);
        self.usual_ns.push(usual_ns);
    }

    fn extend_times(&mut self, asked_ns: i64, answered_ns: i64) {
        let (from_ns, to_ns) = self.times.unwrap_or((i64::MAX, UNSEEN));
        let asked_ns = if asked_ns == UNSEEN { i64::MAX } else { asked_ns };
        self.times = Some((from_ns.min(asked_ns), to_ns.max(answered_ns)));
    }
}

impl Late {
    fn add(&mut self, mut pool: Pool) {
        self.late_count.push(pool.own_ns.len() as i64);
        self.moments.push(distinct(pool.moments));
        self.late_moments.push(distinct(pool.late_moments));
        pool.own_ns.sort_unstable();
        pool.usual_ns.sort_unstable_by(f64::total_cmp);
        self.took_ns.push(median(&pool.own_ns, |value| value as f64));
        self.usual_ns.push(median(&pool.usual_ns, |value| value));
        self.cost_ns.push(pool.cost_ns);
        let (from_ns, to_ns) = pool.times.unwrap_or((i64::MAX, UNSEEN));
        self.from_ns.push(if from_ns == i64::MAX { UNSEEN } else { from_ns });
        self.to_ns.push(to_ns);
        self.slowest.push(pool.slowest.map_or(-1, |(_, row)| row as i64));
    }
}

/// The median of ascending values; NaN if there are none.
fn median<T: Copy>(values: &[T], as_float: impl Fn(T) -> f64) -> f64 {
    let (half, odd) = (values.len() / 2, values.len() % 2 == 1);
    match (values.get(half), half.checked_sub(1)) {
        (Some(&middle), _) if odd => as_float(middle),
        (Some(&middle), Some(before)) => (as_float(values[before]) + as_float(middle)) / 2.0,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_equal_parts_of_an_octave() {
        // None lies at the edge of a bin, where a logarithm's last bit would decide.
        let bins = count_bins(&[1, 0, 1, -1, 1], &[0, 4, 6, 9, 8], 8.0);
        assert_eq!(
            (bins.group, bins.bin, bins.count),
            (vec![0, 1, 1, 1], vec![18, 0, 22, 25], vec![1; 4])
        );
    }

    #[test]
    fn late_is_what_is_beyond_its_group_and_pools_add_up() {
        let timed = RequestTimes {
            group: &[0, 1, 0, 0, 1, -1, 2],
            own_ns: &[10, 50, 30, 40, 60, 900, 70],
            critical_ns: &[10, 3, 30, UNSEEN, 60, 900, 70],
            asked_ns: &[5, 12, 14, 22, UNSEEN, 1, 1],
            answered_ns: &[15, 62, 44, UNSEEN, 99, 901, 71],
        };
        let limits = Limits {
            limit_ns: &[20.0, 50.0, 1.0],
            pool: &[1, 1, -1],
            pools_count: 2,
        };
        let late = count_late(&timed, &limits, 10);
        assert_eq!((late.late_count, late.slowest), (vec![0, 3], vec![-1, 4]));
        assert_eq!((late.moments, late.late_moments), (vec![0, 4], vec![0, 3]));
        assert_eq!(
            (late.took_ns[1], late.usual_ns[1], late.cost_ns[1]),
            (40.0, 10.0, 20.0 + 35.0)
        );
        assert_eq!((late.from_ns, late.to_ns), (vec![UNSEEN, 14], vec![UNSEEN, 99]));
        assert!(late.took_ns[0].is_nan());
        assert_eq!(median(&[1, 2, 4, 9], f64::from), 3.0);
    }
}
