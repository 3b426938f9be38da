//! How links look on either side of a call, each by itself: before it, from a request's arrival to the call; after it, from
//! the call's answer to the request's.
//!
//! An action comes so long after its cause where requests do not wait for each other. A server that takes one thing after
//! another is a queue: an action comes so long after its cause or after the action before, whatever was later, and of the
//! causes that wait it is mostly the first one's. How long a request waits there is the same for those that come together,
//! so that the delays of a wrong link are as usual as those of the right one; what a queue adds is not.
//! Both are densities of the same actions, so they can be compared, if it is also counted who is next.
//!
//! Cost: n log n for n links, and for each the requests that wait.

use crate::evidence::{Queued, mean_density};
use crate::problem::{Child, Slot};
use crate::tuning::TUNING;

/// Octaves of places in a queue.
const PLACES: usize = 32;

/// Delays before and after calls, by the class of the request.
pub struct DirectionalDelays(Vec<[Side; 2]>);

impl DirectionalDelays {
    pub fn new<'a>(links: impl Iterator<Item = (&'a Slot, &'a Child)>, classes: usize) -> Self {
        let mut times: Vec<[Vec<Times>; 2]> = vec![Default::default(); classes];
        for (slot, child) in links {
            let [before, after] = &mut times[slot.class as usize];
            before.push([slot.arrival_ns, child.previous_ns, child.start_ns]);
            after.push([child.answered_ns, slot.previous_ns, slot.response_ns]);
        }
        DirectionalDelays(times.into_iter().map(|sides| sides.map(Side::new)).collect())
    }

    /// Where delays are better explained as those of a queue.
    pub fn queued(&self) -> Queued {
        self.0
            .iter()
            .map(|sides| sides.each_ref().map(|side| side.queued > side.independent))
            .collect()
    }

    /// How much better delays of one side are explained as those of a queue, for each link; 0 if worse.
    pub fn queue_gain(&self, class: u32, side: usize) -> f64 {
        let side = &self.0[class as usize][side];
        (side.queued - side.independent)
            .min(side.next + TUNING.next_in_queue_nats)
            .max(0.0)
    }

    /// Mean logarithm of how dense the delays of a link are on both sides.
    pub fn fit(&self) -> f64 {
        let sides = || self.0.iter().flatten();
        let links: usize = sides().map(|side| side.count).sum();
        let sum: f64 = sides()
            .map(|side| side.count as f64 * side.queued.max(side.independent))
            .sum();
        2.0 * sum / links.max(1) as f64
    }
}

/// A cause, the action before, and the action.
type Times = [i64; 3];

/// Mean logarithms of how dense the delays between causes and actions are.
struct Side {
    count: usize,
    /// Each so long after its cause.
    independent: f64,
    /// Each so long after its cause or the action before, whatever is later, and of the causes that wait mostly the first
    /// is next.
    queued: f64,
    /// The part of it that is who is next.
    next: f64,
}

impl Side {
    fn new(mut times: Vec<Times>) -> Self {
        let links = times.len();
        let independent = mean_density(times.iter().map(|[cause, _, action]| action - cause));
        let queued = mean_density(times.iter().map(|[cause, before, action]| action - *cause.max(before)));
        times.retain(|[cause, _, action]| cause <= action);
        times.sort_by_key(|times| times[2]);
        let mut causes: Vec<(i64, usize)> = times
            .iter()
            .enumerate()
            .map(|(place, times)| (times[0], place))
            .collect();
        causes.sort_unstable();
        let (mut waiting, mut next): (Vec<(i64, usize)>, usize) = (vec![], 0);
        let (mut found, count) = ([1.0 / PLACES as f64; PLACES], times.len() as f64);
        for (place, &[cause, _, action]) in times.iter().enumerate() {
            while next < causes.len() && causes[next].0 <= action {
                waiting.push(causes[next]);
                next += 1;
            }
            let own = waiting.partition_point(|other| *other < (cause, place));
            let earlier = waiting.partition_point(|other| other.0 < cause);
            waiting.remove(own);
            found[(earlier + 1).ilog2() as usize] += 1.0;
        }
        // each place of an octave is as likely as the others
        let each = |(octave, found): (i32, &f64)| found * (found / (count + 1.0) / 2f64.powi(octave)).ln();
        let order: f64 = (0..).zip(&found).map(each).sum::<f64>() / (count + 1.0);
        Side {
            count: links,
            independent,
            queued: queued + order,
            next: order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: i64 = 1_000;

    /// Delays that look random, of 100 us on average (Knuth, TAOCP 2, section 3.3.4, line 26).
    fn delays() -> impl Iterator<Item = i64> {
        let next = |state: &u64| {
            Some(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407),
            )
        };
        std::iter::successors(Some(1), next).map(|state| (state >> 33) as i64 % (200 * US))
    }

    fn side_of(mut links: Vec<[i64; 2]>) -> Side {
        links.sort_by_key(|link| link[1]);
        let before = [0].into_iter().chain(links.iter().map(|link| link[1]));
        Side::new(
            before
                .zip(&links)
                .map(|(before, link)| [link[0], before, link[1]])
                .collect(),
        )
    }

    #[test]
    fn one_thing_after_another_is_a_queue_and_each_by_itself_is_none() {
        let arrivals = (0..500).map(|number| 90 * US * number);
        let one_by_one = arrivals.clone().zip(delays()).scan(0, |free, (cause, takes)| {
            *free = cause.max(*free) + takes;
            Some([cause, *free])
        });
        let by_itself = arrivals.zip(delays()).map(|(cause, takes)| [cause, cause + 10 * takes]);
        let (one_by_one, by_itself) = (side_of(one_by_one.collect()), side_of(by_itself.collect()));
        assert!(
            one_by_one.queued > one_by_one.independent,
            "{} {}",
            one_by_one.queued,
            one_by_one.independent
        );
        assert!(
            by_itself.queued < by_itself.independent,
            "{} {}",
            by_itself.queued,
            by_itself.independent
        );
        assert!(
            one_by_one.next > -0.1 && by_itself.next < -1.0,
            "{} {}",
            one_by_one.next,
            by_itself.next
        );
    }
}
