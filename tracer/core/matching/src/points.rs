//! One packet seen at several points of one host: bridge and its ports, bond and its members, `-i any`.
//!
//! For each flow and direction one point speaks: the one that saw most of it and, of equals, the one nearest to the
//! wire (the last to see what is sent, the first to see what is received). What another point saw of the same bytes, or
//! the same header, is a duplicate: it stays in `events` and takes part in no hop. What only another point saw stays.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Events;
use crate::connections::Placed;
use crate::flow::{carries_data, data_range};
use crate::resolve::HeaderKey;

/// Which of two points that saw the same is nearer to the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearest {
    First,
    Last,
}

/// Keep of `list` (one host's, in time order) what its main point saw and what only others did; append the rest to
/// `duplicates`.
pub(crate) fn keep_one_point(events: &Events, list: &mut Vec<Placed>, nearest: Nearest, duplicates: &mut Vec<u32>) {
    let point = |placed: &Placed| events.point[placed.event as usize];
    if list.windows(2).all(|pair| point(&pair[0]) == point(&pair[1])) {
        return;
    }
    let main = main_point(events, list, nearest);
    let seen = Seen::by(events, list.iter().filter(|p| point(p) == main));
    list.retain(|placed| {
        let again = point(placed) != main && seen.has(events, placed);
        if again {
            duplicates.push(placed.event);
        }
        !again
    });
}

fn main_point(events: &Events, list: &[Placed], nearest: Nearest) -> u16 {
    let mut points: Vec<(u16, usize, i64)> = Vec::new();
    let mut places: FxHashMap<u16, usize> = FxHashMap::default();
    for placed in list {
        let point = events.point[placed.event as usize];
        let place = *places.entry(point).or_insert(points.len());
        if place == points.len() {
            points.push((point, 0, events.host_ns[placed.event as usize]));
        }
        points[place].1 += 1;
    }
    let by_count_then_place = |&&(_, count, first_ns): &&(u16, usize, i64)| match nearest {
        Nearest::Last => (count, first_ns),
        Nearest::First => (count, first_ns.saturating_neg()),
    };
    points
        .iter()
        .max_by_key(by_count_then_place)
        .map_or(0, |&(point, _, _)| point)
}

/// What the main point saw: whole headers, and bytes of the stream as disjoint ascending ranges.
struct Seen {
    headers: FxHashSet<HeaderKey>,
    bytes: Vec<(i64, i64)>,
}

impl Seen {
    fn by<'a>(events: &Events, placed: impl Iterator<Item = &'a Placed>) -> Self {
        let mut headers = FxHashSet::default();
        let mut ranges = Vec::new();
        for p in placed {
            headers.insert(HeaderKey::of(events, p.event));
            if carries_data(events, p) {
                ranges.push(data_range(events, p));
            }
        }
        ranges.sort_unstable();
        let mut bytes: Vec<(i64, i64)> = Vec::new();
        for (start, end) in ranges {
            match bytes.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => bytes.push((start, end)),
            }
        }
        Self { headers, bytes }
    }

    fn has(&self, events: &Events, placed: &Placed) -> bool {
        if self.headers.contains(&HeaderKey::of(events, placed.event)) {
            return true;
        }
        let (start, end) = data_range(events, placed);
        let at = self.bytes.partition_point(|&(_, known_end)| known_end < end);
        start < end
            && self
                .bytes
                .get(at)
                .is_some_and(|&(known_start, known_end)| known_start <= start && end <= known_end)
    }
}
