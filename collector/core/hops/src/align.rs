//! Converts hosts' stamps to trace times, and computes each hop's delay with its uncertainty.
//!
//! Between two steps a host's clock is a line: trace_ns = host_ns - offset_ns - skew_ppb * (host_ns - from_host_ns) /
//! 1e9. Each pair of hosts has an uncertainty of its own, smaller than the sum of both clocks' error bars, given at
//! knots and interpolated linearly between them.

use twintap_columns::{input_table, output_table};

use crate::NO_FRAME;

input_table! {
    /// One end of each hop: its host (index into `numbers`, negative if not known), frame and stamp.
    pub struct End {
        host: i32,
        frame: u32,
        host_ns: i64,
    } beside {
        /// Number of the host behind each index, as the clocks count hosts.
        numbers: &'a [u16] = &[],
    }
}

impl End<'_> {
    fn number(&self, row: usize) -> Option<usize> {
        let index = usize::try_from(self.host[row]).ok()?;
        self.numbers.get(index).map(|&number| usize::from(number))
    }

    fn is_missing(&self, row: usize) -> bool {
        self.frame[row] == NO_FRAME
    }
}

input_table! {
    /// Lines of each host's clock: those of host h are `starts[h]..starts[h + 1]`, ascending by frame.
    pub struct Lines {
        from_frame: u32,
        from_host_ns: i64,
        offset_ns: i64,
        skew_ppb: i64,
    } beside {
        starts: &'a [u32] = &[],
        /// Of each host: its clock's error bar; negative where there is none.
        uncertainty_ns: &'a [i64] = &[],
    }
}

impl Lines<'_> {
    /// The trace time of a stamp. A host without a line keeps its stamps.
    fn trace_ns(&self, host: Option<usize>, frame: u32, host_ns: i64) -> i64 {
        let Some(line) = host.and_then(|host| self.line(host, frame)) else {
            return host_ns;
        };
        let elapsed_s = host_ns.wrapping_sub(self.from_host_ns[line]) as f64 / 1e9;
        let drift_ns = (self.skew_ppb[line] as f64 * elapsed_s).round_ties_even() as i64;
        host_ns.wrapping_sub(self.offset_ns[line]).wrapping_sub(drift_ns)
    }

    fn line(&self, host: usize, frame: u32) -> Option<usize> {
        let (start, end) = (self.starts[host] as usize, self.starts[host + 1] as usize);
        if end - start == 1 {
            return Some(start);
        }
        let begun = self.from_frame[start..end].partition_point(|&from| from <= frame);
        begun.checked_sub(1).map(|index| start + index)
    }
}

input_table! {
    /// Uncertainties of pairs of hosts, ascending in time: those from a to b are `starts[a * hosts + b]..` up to the
    /// next start.
    pub struct Knots {
        at_trace_ns: i64,
        uncertainty_ns: f64,
    } beside {
        starts: &'a [u32] = &[],
    }
}

impl Knots<'_> {
    /// The bound at a time, rounded up; `None` for a pair without any.
    fn bound_ns(&self, pair: usize, at_ns: i64) -> Option<i64> {
        let range = self.starts[pair] as usize..self.starts[pair + 1] as usize;
        let (times, bounds) = (&self.at_trace_ns[range.clone()], &self.uncertainty_ns[range]);
        let after = times.partition_point(|&knot| knot <= at_ns);
        let bound = match (after.checked_sub(1), times.get(after)) {
            (None, None) => return None,
            (None, Some(_)) => bounds[0],
            (Some(last), None) => bounds[last],
            (Some(before), Some(&next_ns)) => {
                let slope = (bounds[after] - bounds[before]) / (next_ns as f64 - times[before] as f64);
                slope * (at_ns as f64 - times[before] as f64) + bounds[before]
            }
        };
        Some(bound.ceil() as i64)
    }
}

output_table! {
    /// The output of [`align()`]. The time of a missing end, and the delay of a packet seen at one end, are
    /// meaningless.
    pub struct AlignedHops {
        send_trace_ns: i64,
        receive_trace_ns: i64,
        one_way_delay_ns: i64,
        /// -1 where nothing bounds it.
        uncertainty_ns: i64,
    }
}

/// Trace times, delays and uncertainties of hops. A hop within one host has uncertainty 0, because both stamps are of
/// one clock; a packet seen at one end has that of its host's clock.
///
/// # Panics
/// If the ends' columns differ in length, or a host's number is not below the number of hosts.
pub fn align(send: &End, receive: &End, lines: &Lines, knots: &Knots) -> AlignedHops {
    let n = send.frame.len();
    let columns = [
        send.host.len(),
        send.host_ns.len(),
        receive.host.len(),
        receive.frame.len(),
    ];
    assert!(columns.iter().all(|&len| len == n) && receive.host_ns.len() == n);
    let hosts = lines.uncertainty_ns.len();
    let trace_ns = |end: &End, row: usize| lines.trace_ns(end.number(row), end.frame[row], end.host_ns[row]);
    let send_trace_ns: Vec<i64> = (0..n).map(|row| trace_ns(send, row)).collect();
    let receive_trace_ns: Vec<i64> = (0..n).map(|row| trace_ns(receive, row)).collect();
    let times = || send_trace_ns.iter().zip(&receive_trace_ns);
    let uncertainty_ns = times().enumerate().map(|(row, (&sent_ns, _))| {
        let (a, b) = (send.number(row), receive.number(row));
        let lone = |host: Option<usize>| host.map_or(-1, |host| lines.uncertainty_ns[host]);
        match (send.is_missing(row), receive.is_missing(row), a.zip(b)) {
            (true, _, _) => lone(b),
            (_, true, _) => lone(a),
            (_, _, Some((a, b))) if a == b => 0,
            (_, _, Some((a, b))) => knots.bound_ns(a * hosts + b, sent_ns).unwrap_or(-1),
            (_, _, None) => -1,
        }
    });
    AlignedHops {
        uncertainty_ns: uncertainty_ns.collect(),
        one_way_delay_ns: times().map(|(sent, received)| received.wrapping_sub(*sent)).collect(),
        send_trace_ns,
        receive_trace_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: Lines = Lines {
        starts: &[0, 1, 3],
        from_frame: &[1, 1, 50],
        from_host_ns: &[0, 0, 5_000],
        offset_ns: &[0, 1_000, -1_000],
        skew_ppb: &[0, 0, 0],
        uncertainty_ns: &[0, 7],
    };
    const KNOTS: Knots = Knots {
        starts: &[0, 0, 2, 2, 2],
        at_trace_ns: &[0, 100],
        uncertainty_ns: &[10.0, 20.0],
    };

    fn end<'a>(host: &'a [i32], frame: &'a [u32], host_ns: &'a [i64]) -> End<'a> {
        let numbers = &[0, 1];
        End {
            host,
            numbers,
            frame,
            host_ns,
        }
    }

    #[test]
    fn each_stamp_is_put_on_its_own_line_and_bounded_by_its_pair() {
        let send = end(&[0, 0, 0, -1], &[1, 2, 3, NO_FRAME], &[50, 60, 200, 0]);
        let receive = end(&[1, 1, 1, 1], &[9, 50, NO_FRAME, 9], &[1_080, -900, 0, 1_300]);
        let aligned = align(&send, &receive, &LINES, &KNOTS);
        assert_eq!(aligned.send_trace_ns[..3], [50, 60, 200]);
        assert_eq!(aligned.receive_trace_ns[0], 80);
        assert_eq!(aligned.receive_trace_ns[1], 100);
        assert_eq!(aligned.one_way_delay_ns[..2], [30, 40]);
        assert_eq!(aligned.uncertainty_ns, [15, 16, 0, 7]);
    }

    #[test]
    fn a_bound_is_straight_between_knots_and_level_beyond_them() {
        let at = |ns| KNOTS.bound_ns(1, ns);
        assert_eq!(
            [at(-5), at(0), at(1), at(100), at(1_000)],
            [10, 10, 11, 20, 20].map(Some)
        );
        assert_eq!(KNOTS.bound_ns(2, 0), None);
    }

    #[test]
    fn a_skewed_clock_drifts_from_its_lines_beginning() {
        let lines = Lines {
            from_host_ns: &[1_000_000_000, 0, 0],
            skew_ppb: &[2_000, 0, 0],
            ..LINES
        };
        assert_eq!(lines.trace_ns(Some(0), 1, 3_000_000_000), 3_000_000_000 - 4_000);
    }
}
