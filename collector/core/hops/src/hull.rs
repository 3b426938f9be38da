//! The lower convex hull of points in time: the few of many delays that bound a clock's line.
//!
//! Source: A. M. Andrew, "Another efficient algorithm for convex hulls in two dimensions" (1979): the monotone chain's
//! lower half. Cost: linear for points in order of time, else that of sorting them.

use twintap_columns::input_table;

/// Places of the points on the lower hull, by time. Of several points at one time the lowest counts, of equal ones the
/// first.
///
/// # Panics
/// If the columns differ in length.
pub fn lower_hull(times_s: &[f64], values: &[f64]) -> Vec<i64> {
    assert_eq!(times_s.len(), values.len(), "each point has a time and a value");
    if times_s.is_sorted() {
        return chain(times_s, values, 0..times_s.len());
    }
    let mut order: Vec<usize> = (0..times_s.len()).collect();
    order.sort_by(|&a, &b| times_s[a].total_cmp(&times_s[b]));
    chain(times_s, values, order.into_iter())
}

fn chain(times_s: &[f64], values: &[f64], by_time: impl Iterator<Item = usize>) -> Vec<i64> {
    let mut hull: Vec<usize> = Vec::new();
    for place in by_time {
        if hull.last().is_some_and(|&last| times_s[last] == times_s[place]) {
            if hull.last().is_some_and(|&last| values[last] <= values[place]) {
                continue;
            }
            hull.pop();
        }
        while let [.., first, last] = hull[..] {
            let (run, rise) = (times_s[last] - times_s[first], values[last] - values[first]);
            if run * (values[place] - values[first]) - rise * (times_s[place] - times_s[first]) > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(place);
    }
    hull.into_iter().map(|place| place as i64).collect()
}

input_table! {
    /// Hops from one host to another: stamps and the sender's frame, of one length.
    pub struct PairStamps {
        send_ns: i64,
        receive_ns: i64,
        send_frame: i64,
    }
}

/// Places of the hops on the lower hulls of (send time, delay): one hull for each of `spans` equal stretches of the
/// sender's `frames_count` frames, in order of stretch and time.
///
/// # Panics
/// If the columns differ in length, or a frame is not in `0..=frames_count`.
pub fn hulls(stamps: &PairStamps, frames_count: usize, spans: usize) -> Vec<i64> {
    let n = stamps.send_ns.len();
    assert!(
        stamps.receive_ns.len() == n && stamps.send_frame.len() == n,
        "columns differ in length"
    );
    let span_of = |place: usize| stamps.send_frame[place] as usize * spans / (frames_count + 1);
    let mut starts = vec![0; spans + 1];
    (0..n).for_each(|place| starts[span_of(place) + 1] += 1);
    (0..spans).for_each(|span| starts[span + 1] += starts[span]);
    let (mut next, mut by_span) = (starts.clone(), vec![0; n]);
    for place in 0..n {
        let slot = &mut next[span_of(place)];
        by_span[*slot] = place;
        *slot += 1;
    }
    let mut kept = Vec::new();
    for edges in starts.windows(2) {
        let places = &mut by_span[edges[0]..edges[1]];
        places.sort_by_key(|&place| stamps.send_ns[place]);
        kept.extend(hull_of(stamps, places));
    }
    kept
}

/// The hull of some hops. Times are floats relative to the stretch's smallest, so that no nanosecond is rounded away.
fn hull_of<'a>(stamps: &PairStamps, places: &'a [usize]) -> impl Iterator<Item = i64> + 'a {
    let delay = |&place: &usize| stamps.receive_ns[place].wrapping_sub(stamps.send_ns[place]);
    let (first_ns, least) = (
        places.first().map_or(0, |&p| stamps.send_ns[p]),
        places.iter().map(delay).min().unwrap_or(0),
    );
    let times_s: Vec<f64> = places
        .iter()
        .map(|&p| stamps.send_ns[p].wrapping_sub(first_ns) as f64 / 1e9)
        .collect();
    let delays: Vec<f64> = places.iter().map(|p| delay(p).wrapping_sub(least) as f64).collect();
    chain(&times_s, &delays, 0..places.len())
        .into_iter()
        .map(|at| places[at as usize] as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hull_is_below_all_points_and_turns_one_way() {
        let times = [0.0, 1.0, 2.0, 3.0, 4.0];
        assert_eq!(lower_hull(&times, &[3.0, 1.0, 2.0, 1.5, 4.0]), [0, 1, 3, 4]);
        assert_eq!(
            lower_hull(&times, &[0.0; 5]),
            [0, 4],
            "points on a straight line bound nothing more"
        );
        assert_eq!(lower_hull(&[], &[]), [0_i64; 0]);
    }

    #[test]
    fn points_out_of_order_or_at_one_time_give_the_same_hull() {
        assert_eq!(lower_hull(&[2.0, 0.0, 1.0], &[0.0, 2.0, 0.0]), [1, 2, 0]);
        assert_eq!(
            lower_hull(&[0.0, 0.0, 1.0, 1.0, 1.0], &[5.0, 4.0, 3.0, 2.0, 2.0]),
            [1, 3]
        );
    }

    #[test]
    fn each_stretch_of_the_senders_frames_has_its_own_hull() {
        let stamps = PairStamps {
            send_ns: &[400, 100, 200, 300, 500],
            receive_ns: &[407, 101, 205, 302, 501],
            send_frame: &[4, 1, 2, 3, 5],
        };
        assert_eq!(hulls(&stamps, 5, 1), [1, 4]);
        assert_eq!(hulls(&stamps, 5, 2), [1, 2, 3, 4], "frames 1 and 2, then 3 to 5");
        assert_eq!(hulls(&stamps, 5, 6), [1, 2, 3, 0, 4]);
    }
}
