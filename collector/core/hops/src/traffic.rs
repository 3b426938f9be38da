//! What happened to packets between hosts over time: transfers counted by sender, receiver, time slice and size of
//! delay.

use std::ops::Range;

use rustc_hash::FxHashMap;
use twintap_columns::{input_table, output_table};
use twintap_matching::{Kind, State};

use crate::flows::Hops;

/// The ratio of a bin's edges is 2^(1/4).
const BINS_PER_OCTAVE: i64 = 4;
/// Inner edges of the bins of the octave that begins at 2^63.
const OCTAVE_CUTS: [u64; 3] = [0x9837_f051_8db8_a970, 0xb504_f333_f9de_6485, 0xd744_fcca_d69d_6af5];
/// Bin of hops that never arrived.
const NO_DELAY: i64 = -1;
/// Bins of delays, and `NO_DELAY`.
const BINS_COUNT: usize = 1 + BINS_PER_OCTAVE as usize * i64::BITS as usize;

input_table! {
    /// For each hop its hosts, as places in lists of names (-1: not known), and when it left and arrived (0: not seen).
    pub struct Ends {
        send_host: i32,
        receive_host: i32,
        send_trace_ns: i64,
        receive_trace_ns: i64,
    }
}

/// Which senders and receivers are different hosts: place `sender * receivers_count + receiver`.
#[derive(Clone, Copy, Debug)]
pub struct DifferentHosts<'a> {
    pub is_different: &'a [bool],
    pub receivers_count: usize,
}

output_table! {
    /// One row for each sender, receiver, slice of time and bin of delay that occurs, in this order: hops, their bytes,
    /// those lost, those overtaken by a later one, and those of data.
    pub struct Traffic {
        sender: i64,
        receiver: i64,
        slice: i64,
        bin: i64,
        hops: i64,
        bytes: i64,
        lost: i64,
        overtaken: i64,
        data: i64,
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    hops: i64,
    bytes: i64,
    lost: i64,
    overtaken: i64,
    data: i64,
}

impl Ends<'_> {
    /// The given rows.
    #[inline]
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        Self {
            send_host: &self.send_host[rows.clone()],
            receive_host: &self.receive_host[rows.clone()],
            send_trace_ns: &self.send_trace_ns[rows.clone()],
            receive_trace_ns: &self.receive_trace_ns[rows],
        }
    }
}

impl DifferentHosts<'_> {
    /// The place of a pair in `is_different`; none if both are the same host, or one is not known.
    ///
    /// # Panics
    /// If a host is beyond the pairs.
    #[inline]
    pub(crate) fn pair(&self, sender: i32, receiver: i32) -> Option<usize> {
        let (Ok(sender), Ok(receiver)) = (usize::try_from(sender), usize::try_from(receiver)) else {
            return None;
        };
        let pair = sender * self.receivers_count + receiver;
        self.is_different[pair].then_some(pair)
    }
}

/// Counts hops between different hosts that arrived or were lost, by slices of time.
pub(crate) struct TrafficCounts<'a> {
    different_hosts: DifferentHosts<'a>,
    places: Places,
}

impl<'a> TrafficCounts<'a> {
    pub(crate) fn new(different_hosts: DifferentHosts<'a>, slice_ns: i64) -> Self {
        Self {
            different_hosts,
            places: Places::new(different_hosts.is_different.len(), slice_ns),
        }
    }

    /// Add all hops of a flow, in the order of the stream, in which first transmissions were also sent. One of these is
    /// overtaken if a later row arrived before it.
    #[inline]
    pub(crate) fn add(&mut self, flow: &Hops, ends: &Ends) {
        let mut least_frame = u32::MAX;
        for row in (0..flow.connection.len()).rev() {
            let (data, matched) = (
                flow.kind[row] == Kind::Data as u8,
                flow.state[row] == State::Matched as u8,
            );
            let mut overtaken = false;
            if data && matched && flow.attempt[row] == 1 {
                overtaken = flow.receive_frame[row] > least_frame;
                least_frame = least_frame.min(flow.receive_frame[row]);
            }
            let lost = flow.state[row] == State::Lost as u8;
            if !(matched || lost) {
                continue;
            }
            let Some(pair) = self.different_hosts.pair(ends.send_host[row], ends.receive_host[row]) else {
                continue;
            };
            let at_ns = ends.send_trace_ns[row].max(ends.receive_trace_ns[row]);
            let bin = if matched {
                bin(flow.one_way_delay_ns[row])
            } else {
                NO_DELAY
            };
            let counts = self.places.at(pair, at_ns).of_bin(bin);
            counts.hops += 1;
            counts.bytes += flow.stream_end[row] - flow.stream_start[row];
            counts.lost += i64::from(lost);
            counts.overtaken += i64::from(overtaken);
            counts.data += i64::from(data);
        }
    }

    pub(crate) fn in_order(mut self) -> Traffic {
        let receivers_count = self.different_hosts.receivers_count;
        let mut traffic = Traffic::default();
        // Pairs are in the order of their senders, then of their receivers.
        self.places
            .every
            .sort_unstable_by_key(|place| (place.pair, place.slice));
        for place in self.places.every {
            for (bin, slot) in (NO_DELAY..).zip(place.slots) {
                let Some(counts) = usize::from(slot).checked_sub(1).map(|slot| &place.counts[slot]) else {
                    continue;
                };
                traffic.sender.push((place.pair / receivers_count) as i64);
                traffic.receiver.push((place.pair % receivers_count) as i64);
                traffic.slice.push(place.slice);
                traffic.bin.push(bin);
                traffic.hops.push(counts.hops);
                traffic.bytes.push(counts.bytes);
                traffic.lost.push(counts.lost);
                traffic.overtaken.push(counts.overtaken);
                traffic.data.push(counts.data);
            }
        }
        traffic
    }
}

/// Counts of a pair of hosts in a slice of time, by bin.
struct Place {
    pair: usize,
    slice: i64,
    /// For each bin, from `NO_DELAY` on, its place in `counts`, counted from 1; 0 for none.
    slots: [u8; BINS_COUNT],
    counts: Vec<Counts>,
}

impl Place {
    #[inline]
    fn of_bin(&mut self, bin: i64) -> &mut Counts {
        let slot = &mut self.slots[(bin - NO_DELAY) as usize];
        if *slot == 0 {
            self.counts.push(Counts::default());
            *slot = self.counts.len() as u8;
        }
        &mut self.counts[usize::from(*slot) - 1]
    }
}

/// Pairs and slices that occur.
struct Places {
    slice_ns: i64,
    every: Vec<Place>,
    numbers: FxHashMap<(usize, i64), usize>,
    /// The slice of each pair that was used last: when it begins, and its number in `every`.
    last: Vec<Option<(i64, usize)>>,
}

impl Places {
    fn new(pairs_count: usize, slice_ns: i64) -> Self {
        Self {
            slice_ns,
            every: Vec::new(),
            numbers: FxHashMap::default(),
            last: vec![None; pairs_count],
        }
    }

    /// The counts of a pair in the slice at a time.
    #[inline]
    fn at(&mut self, pair: usize, at_ns: i64) -> &mut Place {
        let last = self.last[pair].filter(|(begin_ns, _)| (0..self.slice_ns).contains(&(at_ns - begin_ns)));
        let number = last.map_or_else(|| self.number_slow(pair, at_ns), |(_, number)| number);
        &mut self.every[number]
    }

    fn number_slow(&mut self, pair: usize, at_ns: i64) -> usize {
        let slice = at_ns.div_euclid(self.slice_ns);
        let next = self.every.len();
        let number = *self.numbers.entry((pair, slice)).or_insert(next);
        if number == next {
            self.every.push(Place {
                pair,
                slice,
                slots: [0; BINS_COUNT],
                counts: Vec::new(),
            });
        }
        self.last[pair] = Some((slice * self.slice_ns, number));
        number
    }
}

/// The integer part of `BINS_PER_OCTAVE * log2(value)`; 0 for values below 1.
pub(crate) fn bin(value: i64) -> i64 {
    let value = value.max(1).unsigned_abs();
    let in_octave = value << value.leading_zeros();
    let cuts = OCTAVE_CUTS.iter().filter(|&&cut| in_octave >= cut).count();
    BINS_PER_OCTAVE * i64::from(value.ilog2()) + cuts as i64
}

/// For each group the lowest bin up to which at least this share of its hops lies.
///
/// Arguments: rows of a histogram, in any order; groups are numbered from 0, each has a row.
///
/// # Panics
/// If the columns differ in length, or a group is negative.
pub fn quantile_bins(group: &[i32], bin: &[i64], hops: &[i64], share: f64) -> Vec<i64> {
    assert!(
        group.len() == bin.len() && group.len() == hops.len(),
        "columns differ in length"
    );
    let mut rows: Vec<(u32, i64, i64)> = (group.iter().zip(bin).zip(hops))
        .map(|((&group, &bin), &hops)| (u32::try_from(group).expect("a group is negative"), bin, hops))
        .collect();
    rows.sort_unstable();
    let quantile = |of_group: &[(u32, i64, i64)]| {
        let least = share * of_group.iter().map(|row| row.2).sum::<i64>() as f64;
        let mut upto = 0;
        let reaches = |row: &&(u32, i64, i64)| {
            upto += row.2;
            upto as f64 >= least
        };
        of_group.iter().find(reaches).map_or(NO_DELAY, |row| row.1)
    };
    rows.chunk_by(|one, other| one.0 == other.0).map(quantile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::count;

    #[test]
    fn a_quantile_is_the_first_bin_that_reaches_the_share_of_its_group() {
        let (group, bin, hops) = ([1, 0, 0, 0, 1], [9, 7, 3, 5, 2], [1, 2, 1, 1, 1]);
        assert_eq!(quantile_bins(&group, &bin, &hops, 0.5), [5, 2]);
        assert_eq!(quantile_bins(&group, &bin, &hops, 0.51), [7, 9]);
        assert_eq!(quantile_bins(&group, &bin, &hops, 0.02), [3, 2]);
    }

    #[test]
    fn a_bin_is_a_quarter_of_an_octave() {
        for (delay_ns, expected) in [(-5, 0), (0, 0), (1, 0), (2, 4), (3, 6), (4, 8), (1023, 39), (1024, 40)] {
            assert_eq!(bin(delay_ns), expected, "{delay_ns}");
        }
        let of_power = |delay_ns: i64| i64::from(i128::from(delay_ns).pow(4).ilog2());
        (1..100_000).for_each(|delay_ns| assert_eq!(bin(delay_ns), of_power(delay_ns), "{delay_ns}"));
        assert_eq!(bin(i64::MAX), 251);
    }

    #[test]
    fn what_arrived_or_was_lost_between_hosts_is_counted_and_what_was_overtaken() {
        let (matched, lost) = (State::Matched as u8, State::Lost as u8);
        let hops = Hops {
            connection: &[1, 1, 1, 1, 1, 2],
            from_client: &[true, true, true, true, false, true],
            kind: &[2, 2, 2, 3, 2, 2],
            state: &[matched, matched, lost, matched, matched, matched],
            send_frame: &[1, 2, 3, 4, 5, 6],
            receive_frame: &[9, 7, 0, 8, 1, 2],
            stream_start: &[0, 10, 20, 30, 0, 0],
            stream_end: &[10, 20, 30, 30, 7, 9],
            attempt: &[1, 1, 1, 1, 1, 1],
            one_way_delay_ns: &[2, 2, 0, 2, 2, 2],
        };
        let ends = Ends {
            send_host: &[0, 0, 0, 0, 1, 0],
            receive_host: &[1, 1, 1, 1, 0, 0],
            send_trace_ns: &[5, 5, 5, 12, 5, 5],
            receive_trace_ns: &[7, 7, 0, 14, 7, 7],
        };
        let different_hosts = DifferentHosts {
            is_different: &[false, true, true, false],
            receivers_count: 2,
        };
        let expected = Traffic {
            sender: vec![0, 0, 0, 1],
            receiver: vec![1, 1, 1, 0],
            slice: vec![0, 0, 1, 0],
            bin: vec![NO_DELAY, 4, 4, 4],
            hops: vec![1, 2, 1, 1],
            bytes: vec![10, 20, 0, 7],
            lost: vec![1, 0, 0, 0],
            overtaken: vec![0, 1, 0, 0],
            data: vec![1, 2, 0, 1],
        };
        assert_eq!(
            count(&hops, &ends, different_hosts, 10, i64::MAX, false).traffic,
            expected
        );
    }
}
