//! Counts hops in one pass: by flow, by pair of hosts and by rate; and finds connections with losses, retransmissions,
//! resets or unpaired packets.

use rustc_hash::FxHashMap;
use twintap_columns::output_table;
use twintap_matching::{Kind, State};

use crate::flows::{Flows, Hops};
use crate::rates::{RateCounts, Rates};
use crate::traffic::{DifferentHosts, Ends, Traffic, TrafficCounts};

/// The output of [`count()`].
#[derive(Clone, Debug, Default)]
pub struct HopCounts {
    /// Empty if not requested.
    pub flows: Flows,
    /// Rows of connections with a loss, a retransmission, a reset, an unpaired packet or no answer, ascending. A packet
    /// whose other end nobody captured is none of these: where one end was captured alone, all are such.
    pub notable_rows: Vec<i64>,
    pub sent: SentCounts,
    pub traffic: Traffic,
    pub rates: Rates,
}

output_table! {
    /// Hops of data for each sender and receiver (-1: not known) between which data was sent, in this order.
    pub struct SentCounts {
        sender: i64,
        receiver: i64,
        hops("sent"): i64,
    }
}

/// Count hops of whole connections, each in one run of rows: flows if `by_flow`, traffic by slices of `slice_ns`, rates
/// of hops that took `late_ns` or more.
///
/// # Panics
/// If the columns differ in length, `slice_ns` is 0, a state's code is not below `STATES_COUNT`, or a host's place is
/// not in `different_hosts`.
pub fn count(
    hops: &Hops,
    ends: &Ends,
    different_hosts: DifferentHosts,
    slice_ns: i64,
    late_ns: i64,
    by_flow: bool,
) -> HopCounts {
    assert!(
        hops.is_consistent() && ends.is_consistent() && ends.send_host.len() == hops.connection.len(),
        "hop columns differ in length"
    );
    let (mut flows, mut notable_rows) = (Flows::default(), Vec::new());
    let (mut traffic, mut rates) = (
        TrafficCounts::new(different_hosts, slice_ns),
        RateCounts::new(different_hosts, late_ns),
    );
    let mut sent: FxHashMap<(i32, i32), i64> = FxHashMap::default();
    let mut start = 0;
    for connection in hops.connection.chunk_by(|one, next| one == next) {
        let (first, end) = (start, start + connection.len());
        let (mut wrong, mut answered) = (false, false);
        for flow in hops.from_client[first..end].chunk_by(|one, next| one == next) {
            let rows = start..start + flow.len();
            let (own, own_ends) = (hops.rows(rows.clone()), ends.rows(rows));
            let outcome = Outcome::of(&own);
            if by_flow {
                flows.add(start, &own);
            }
            wrong |= outcome.wrong;
            answered |= outcome.answered;
            *sent
                .entry((own_ends.send_host[0], own_ends.receive_host[0]))
                .or_default() += outcome.data;
            traffic.add(&own, &own_ends);
            if outcome.most_ns >= late_ns {
                rates.add(&own, &own_ends);
            }
            start += flow.len();
        }
        if wrong || !answered {
            notable_rows.extend(first as i64..end as i64);
        }
    }
    HopCounts {
        flows,
        notable_rows,
        sent: in_order(sent),
        traffic: traffic.in_order(),
        rates: rates.in_order(),
    }
}

/// What a flow shows about its connection.
struct Outcome {
    /// Something was lost, not paired, retransmitted or reset.
    wrong: bool,
    /// There was data, or a SYN was answered.
    answered: bool,
    /// Hops of data.
    data: i64,
    /// The longest delay.
    most_ns: i64,
}

impl Outcome {
    /// The outcome of a flow, given all of its hops.
    #[inline]
    fn of(flow: &Hops) -> Self {
        let mut found = Self {
            wrong: false,
            answered: false,
            data: 0,
            most_ns: i64::MIN,
        };
        let mut syns = 0;
        for row in 0..flow.connection.len() {
            let (kind, state) = (flow.kind[row], flow.state[row]);
            let (data, syn_ack) = (kind == Kind::Data as u8, kind == Kind::SynAck as u8);
            let as_usual = state == State::Matched as u8 || state == State::OutsideWindow as u8;
            found.wrong |= !as_usual || flow.attempt[row] > 1 || kind == Kind::Rst as u8;
            found.answered |= data || syn_ack;
            found.data += i64::from(data);
            found.most_ns = found.most_ns.max(flow.one_way_delay_ns[row]);
            syns += u32::from(syn_ack || kind == Kind::Syn as u8);
        }
        found.wrong |= syns > 1; // where one was outside a capture's window, it may not count as an attempt
        found
    }
}

fn in_order(counts: FxHashMap<(i32, i32), i64>) -> SentCounts {
    let mut rows: Vec<_> = counts.into_iter().filter(|&(_, hops)| hops > 0).collect();
    rows.sort_unstable();
    let mut sent = SentCounts::default();
    for ((sender, receiver), hops) in rows {
        sent.sender.push(sender.into());
        sent.receiver.push(receiver.into());
        sent.hops.push(hops);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NO_FRAME;

    #[test]
    fn connections_with_trouble_are_listed_and_data_is_counted_by_its_hosts() {
        // 1: plain; 2: no answer; 3: a loss; 4: a reset; 5: sent twice; 6: an answer to a SYN only;
        // 7: of one end's capture; 8: two answers to a SYN, one of them outside a capture's window
        let hops = Hops {
            connection: &[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 7, 8, 8],
            from_client: &[
                true, false, true, false, true, false, true, false, true, false, false, true, false, false, false,
            ],
            kind: &[2, 2, 0, 3, 2, 2, 2, 5, 2, 2, 1, 0, 1, 1, 1],
            state: &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 3, 0, 3],
            send_frame: &[1; 15],
            receive_frame: &[NO_FRAME; 15],
            stream_start: &[0; 15],
            stream_end: &[0; 15],
            attempt: &[1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1],
            one_way_delay_ns: &[0; 15],
        };
        let ends = Ends {
            send_host: &[0, 1, 0, 1, 0, 1, -1, 1, 0, 1, 1, 0, 1, 1, 1],
            receive_host: &[1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0],
            send_trace_ns: &[5; 15],
            receive_trace_ns: &[7; 15],
        };
        let different_hosts = DifferentHosts {
            is_different: &[false, true, true, false],
            receivers_count: 2,
        };
        let counts = count(&hops, &ends, different_hosts, 10, 10, true);
        assert_eq!(counts.notable_rows, [2, 3, 4, 5, 6, 7, 8, 9, 13, 14]);
        let expected = SentCounts {
            sender: vec![-1, 0, 1],
            receiver: vec![1, 1, 0],
            hops: vec![1, 3, 3],
        };
        assert_eq!(counts.sent, expected);
        assert_eq!(counts.flows.start.len(), 14);
        assert!(
            count(&hops, &ends, different_hosts, 10, 10, false)
                .flows
                .start
                .is_empty()
        );
    }
}
