//! Hops grouped by the pair of hosts that they are between: the evidence about the clocks of these two.

use twintap_columns::{input_table, output_table};

input_table! {
    /// One end of each hop: its host (negative if not known), frame and stamp.
    pub struct End {
        host: i32,
        frame: u32,
        host_ns: i64,
    }
}

output_table! {
    /// Stamps and frames of the hops from one host to another.
    pub struct Way {
        send_ns: i64,
        receive_ns: i64,
        send_frame: i64,
        receive_frame: i64,
    }
}

/// The hops whose state is `matched`, for each pair of hosts (sender times `receivers_count` plus receiver), in their
/// order; nothing for a pair that `is_apart` does not hold for.
///
/// # Panics
/// If the columns differ in length, or a host is beyond the pairs.
pub fn split(
    send: &End,
    receive: &End,
    state: &[i32],
    matched: i32,
    is_apart: &[bool],
    receivers_count: usize,
) -> Vec<Way> {
    let n = state.len();
    let lens = [send, receive].map(|end| end.host.len() == n && end.frame.len() == n && end.host_ns.len() == n);
    assert_eq!(lens, [true; 2], "hop columns differ in length");
    let pair_of = |row: usize| {
        let pair = usize::try_from(send.host[row]).ok()? * receivers_count + usize::try_from(receive.host[row]).ok()?;
        (state[row] == matched && is_apart[pair]).then_some(pair)
    };
    let mut counts = vec![0; is_apart.len()];
    (0..n).filter_map(pair_of).for_each(|pair| counts[pair] += 1);
    let mut ways: Vec<Way> = counts.into_iter().map(Way::with_capacity).collect();
    for row in 0..n {
        if let Some(pair) = pair_of(row) {
            let way = &mut ways[pair];
            way.send_ns.push(send.host_ns[row]);
            way.receive_ns.push(receive.host_ns[row]);
            way.send_frame.push(send.frame[row].into());
            way.receive_frame.push(receive.frame[row].into());
        }
    }
    ways
}

impl Way {
    fn with_capacity(n: usize) -> Self {
        Self {
            send_ns: Vec::with_capacity(n),
            receive_ns: Vec::with_capacity(n),
            send_frame: Vec::with_capacity(n),
            receive_frame: Vec::with_capacity(n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matched_hops_between_two_hosts_are_evidence_about_clocks() {
        let send = End {
            host: &[0, 0, 1, -1, 0, 0],
            frame: &[1, 2, 3, 0, 5, 6],
            host_ns: &[10, 20, 30, 0, 50, 60],
        };
        let receive = End {
            host: &[1, 1, 1, 0, 1, 1],
            frame: &[7, 8, 9, 10, 0, 12],
            host_ns: &[70, 80, 90, 100, 0, 120],
        };
        let ways = split(&send, &receive, &[4, 4, 4, 4, 2, 4], 4, &[false, true, true, false], 2);
        assert_eq!(ways[1].send_ns, [10, 20, 60]);
        assert_eq!(ways[1].receive_ns, [70, 80, 120]);
        assert_eq!(
            (&ways[1].send_frame[..], &ways[1].receive_frame[..]),
            (&[1, 2, 6][..], &[7, 8, 12][..])
        );
        assert_eq!([&ways[0], &ways[2], &ways[3]], [&Way::default(); 3]);
    }
}
