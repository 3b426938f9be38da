//! Groups the stamps of matched hops by pair of hosts: the evidence about the offset of their clocks.

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
    pub struct PairStamps {
        send_ns: i64,
        receive_ns: i64,
        send_frame: i64,
        receive_frame: i64,
    }
}

/// The hops whose state is `matched` for each pair of hosts (sender times `receivers_count` plus receiver), in their
/// order; nothing for a pair for which `is_different` is false.
///
/// # Panics
/// If the columns differ in length, or a host is beyond the pairs.
pub fn split(
    send: &End,
    receive: &End,
    state: &[i32],
    matched: i32,
    is_different: &[bool],
    receivers_count: usize,
) -> Vec<PairStamps> {
    let n = state.len();
    let lens = [send, receive].map(|end| end.host.len() == n && end.frame.len() == n && end.host_ns.len() == n);
    assert_eq!(lens, [true; 2], "hop columns differ in length");
    let pair_of = |row: usize| {
        let pair = usize::try_from(send.host[row]).ok()? * receivers_count + usize::try_from(receive.host[row]).ok()?;
        (state[row] == matched && is_different[pair]).then_some(pair)
    };
    let mut counts = vec![0; is_different.len()];
    (0..n).filter_map(pair_of).for_each(|pair| counts[pair] += 1);
    let mut stamps_by_pair: Vec<PairStamps> = counts.into_iter().map(PairStamps::with_capacity).collect();
    for row in 0..n {
        if let Some(pair) = pair_of(row) {
            let stamps = &mut stamps_by_pair[pair];
            stamps.send_ns.push(send.host_ns[row]);
            stamps.receive_ns.push(receive.host_ns[row]);
            stamps.send_frame.push(send.frame[row].into());
            stamps.receive_frame.push(receive.frame[row].into());
        }
    }
    stamps_by_pair
}

impl PairStamps {
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
        let stamps_by_pair = split(&send, &receive, &[4, 4, 4, 4, 2, 4], 4, &[false, true, true, false], 2);
        assert_eq!(stamps_by_pair[1].send_ns, [10, 20, 60]);
        assert_eq!(stamps_by_pair[1].receive_ns, [70, 80, 120]);
        assert_eq!(
            (&stamps_by_pair[1].send_frame[..], &stamps_by_pair[1].receive_frame[..]),
            (&[1, 2, 6][..], &[7, 8, 12][..])
        );
        assert_eq!(
            [&stamps_by_pair[0], &stamps_by_pair[2], &stamps_by_pair[3]],
            [&PairStamps::default(); 3]
        );
    }
}
