//! Compares two models of the delays around calls. A delay before a call lasts from its request's arrival to its start,
//! a delay after it from its answer to the request's response.
//!
//! Where requests are independent, an *action* (the call, or the response) follows its *cause* (the arrival, or the
//! answer) after a usual time. A server that works on one item at a time is a queue: an action follows the later of its
//! cause and the previous action, and of the waiting causes mostly the first is next. Requests that arrive together
//! wait equally long in a queue, so a wrong link has as usual a delay as the right one; the time that the queue adds to
//! the previous action does not have this fault. Both models are log densities of the same actions, so they can be
//! compared, once the choice of the next cause is counted too.
//!
//! Input: links. Output: for each class of requests and each direction, which model fits better and by how much.
//!
//! Cost: n log n for n links, and for each the requests that wait.

use crate::evidence::{QueuedSides, mean_density};
use crate::problem::{Child, Slot};
use crate::tuning::TUNING;

/// Octaves of places in a queue. Structural: the length of arrays, enough for 2^32 requests.
const QUEUE_PLACE_OCTAVES: usize = 32;

/// Delays before and after calls, by class of the request.
pub struct DirectionalDelays(Vec<[SideDelays; 2]>);

impl DirectionalDelays {
    pub fn new<'a>(links: impl Iterator<Item = (&'a Slot, &'a Child)>, classes: usize) -> Self {
        let mut times: Vec<[Vec<Times>; 2]> = vec![Default::default(); classes];
        for (slot, child) in links {
            let [before, after] = &mut times[slot.class as usize];
            before.push([slot.arrival_ns, child.previous_ns, child.start_ns]);
            after.push([child.answered_ns, slot.previous_ns, slot.response_ns]);
        }
        DirectionalDelays(times.into_iter().map(|sides| sides.map(SideDelays::new)).collect())
    }

    /// In which directions a queue explains delays better.
    pub fn queue_directions(&self) -> QueuedSides {
        self.0
            .iter()
            .map(|sides| sides.each_ref().map(|side| side.queued > side.independent))
            .collect()
    }

    /// Nats for each link by which a queue explains the delays of a direction better; 0 if worse.
    pub fn queue_gain(&self, class: u32, side: usize) -> f64 {
        let side = &self.0[class as usize][side];
        (side.queued - side.independent)
            .min(side.next + TUNING.next_in_queue_nats)
            .max(0.0)
    }

    /// Mean log density of the delays of a link, over both directions.
    pub fn fit(&self) -> f64 {
        let sides = || self.0.iter().flatten();
        let links: usize = sides().map(|side| side.count).sum();
        let sum: f64 = sides()
            .map(|side| side.count as f64 * side.queued.max(side.independent))
            .sum();
        2.0 * sum / links.max(1) as f64
    }
}

/// Cause, previous action, action.
type Times = [i64; 3];

/// Mean log densities of the delays from causes to actions.
struct SideDelays {
    count: usize,
    /// If actions are independent.
    independent: f64,
    /// If they are those of a queue, the choice of the next cause included.
    queued: f64,
    /// The part of it that is the choice of the next cause.
    next: f64,
}

impl SideDelays {
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
        let (mut found, count) = (
            [1.0 / QUEUE_PLACE_OCTAVES as f64; QUEUE_PLACE_OCTAVES],
            times.len() as f64,
        );
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
        // all places of an octave are equally likely
        let each = |(octave, found): (i32, &f64)| found * (found / (count + 1.0) / 2f64.powi(octave)).ln();
        let order: f64 = (0..).zip(&found).map(each).sum::<f64>() / (count + 1.0);
        SideDelays {
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

    fn side_of(mut links: Vec<[i64; 2]>) -> SideDelays {
        links.sort_by_key(|link| link[1]);
        let before = [0].into_iter().chain(links.iter().map(|link| link[1]));
        SideDelays::new(
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
