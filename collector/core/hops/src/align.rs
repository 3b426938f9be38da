//! Converts hosts' stamps to trace times, and computes each hop's delay with its uncertainty.
//!
//! Between two steps a host's clock is a line: trace_ns = host_ns - offset_ns - skew_ppb * (host_ns - from_host_ns) /
//! 1e9. Each pair of hosts has an uncertainty of its own, smaller than the sum of both clocks' error bars, and a likely
//! error; both are given at knots and interpolated linearly between them.

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
        /// Likewise its clock's likely error.
        likely_error_ns: &'a [i64] = &[],
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
    /// Uncertainties and likely errors of pairs of hosts, ascending in time: those from a to b are `starts[a * hosts + b]..` up to the
    /// next start.
    pub struct Knots {
        at_trace_ns: i64,
        uncertainty_ns: f64,
        likely_error_ns: f64,
    } beside {
        starts: &'a [u32] = &[],
    }
}

impl Knots<'_> {
    /// The uncertainty and the likely error at a time, rounded up; `None` for a pair without any.
    fn errors_ns(&self, pair: usize, at_ns: i64) -> Option<Errors> {
        let range = self.starts[pair] as usize..self.starts[pair + 1] as usize;
        let times = &self.at_trace_ns[range.clone()];
        let (bounds, likely) = (&self.uncertainty_ns[range.clone()], &self.likely_error_ns[range]);
        let after = times.partition_point(|&knot| knot <= at_ns);
        let at_knot = |knot: usize| (bounds[knot], likely[knot]);
        let (bound, likely) = match (after.checked_sub(1), times.get(after)) {
            (None, None) => return None,
            (None, Some(_)) => at_knot(0),
            (Some(last), None) => at_knot(last),
            (Some(before), Some(&next_ns)) => {
                let share = (at_ns as f64 - times[before] as f64) / (next_ns as f64 - times[before] as f64);
                let between = |values: &[f64]| (values[after] - values[before]) * share + values[before];
                (between(bounds), between(likely))
            }
        };
        Some(Errors {
            uncertainty_ns: bound.ceil() as i64,
            likely_error_ns: likely.ceil() as i64,
        })
    }
}

/// How far a time or a difference of times may be off, and how far it likely is; -1 where nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Errors {
    uncertainty_ns: i64,
    likely_error_ns: i64,
}

const UNKNOWN: Errors = Errors {
    uncertainty_ns: -1,
    likely_error_ns: -1,
};
const NONE: Errors = Errors {
    uncertainty_ns: 0,
    likely_error_ns: 0,
};

output_table! {
    /// The output of [`align()`]. The time of a missing end, and the delay of a packet seen at one end, are
    /// meaningless.
    pub struct AlignedHops {
        send_trace_ns: i64,
        receive_trace_ns: i64,
        one_way_delay_ns: i64,
        /// -1 where nothing bounds it.
        uncertainty_ns: i64,
        /// -1 where it is not known.
        likely_error_ns: i64,
    }
}

/// Trace times, delays and their errors, of hops. A hop within one host has an error of 0, because both stamps are of
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
    let errors: Vec<Errors> = times()
        .enumerate()
        .map(|(row, (&sent_ns, _))| {
            let (a, b) = (send.number(row), receive.number(row));
            let lone = |host: Option<usize>| {
                host.map_or(UNKNOWN, |host| Errors {
                    uncertainty_ns: lines.uncertainty_ns[host],
                    likely_error_ns: lines.likely_error_ns[host],
                })
            };
            match (send.is_missing(row), receive.is_missing(row), a.zip(b)) {
                (true, _, _) => lone(b),
                (_, true, _) => lone(a),
                (_, _, Some((a, b))) if a == b => NONE,
                (_, _, Some((a, b))) => knots.errors_ns(a * hosts + b, sent_ns).unwrap_or(UNKNOWN),
                (_, _, None) => UNKNOWN,
            }
        })
        .collect();
    AlignedHops {
        uncertainty_ns: errors.iter().map(|of| of.uncertainty_ns).collect(),
        likely_error_ns: errors.iter().map(|of| of.likely_error_ns).collect(),
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
        likely_error_ns: &[0, 3],
    };
    const KNOTS: Knots = Knots {
        starts: &[0, 0, 2, 2, 2],
        at_trace_ns: &[0, 100],
        uncertainty_ns: &[10.0, 20.0],
        likely_error_ns: &[1.0, 2.0],
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
        assert_eq!(aligned.likely_error_ns, [2, 2, 0, 3]);
    }

    #[test]
    fn errors_are_straight_between_knots_and_level_beyond_them() {
        let at = |ns| KNOTS.errors_ns(1, ns).map(|of| (of.uncertainty_ns, of.likely_error_ns));
        assert_eq!(
            [at(-5), at(0), at(1), at(100), at(1_000)],
            [(10, 1), (10, 1), (11, 2), (20, 2), (20, 2)].map(Some)
        );
        assert_eq!(KNOTS.errors_ns(2, 0), None);
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
