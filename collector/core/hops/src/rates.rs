//! The rate at which a path carries a train of packets. Packets in a queue leave it one after the other, each later
//! than the previous one by the time that the path's narrowest link takes to carry it.
//!
//! ```text
//! sent      ─▮▮▮▮──────────────────
//! received  ──────▮───▮───▮───▮────   bytes / gap: the rate of the narrowest link on the way
//! ```
//! Source: Dovrolis, Ramanathan, Moore, "What do packet dispersion techniques measure?", INFOCOM 2001.

use rustc_hash::FxHashMap;
use twintap_columns::output_table;
use twintap_matching::{Kind, State};

use crate::flows::Hops;
use crate::traffic::{DifferentHosts, Ends, bin};

/// Ignore smaller packets: other traffic between two of them takes as long as they do.
const MIN_PACKET_BYTES: i64 = 500;
/// Packets count as spread by a queue if they arrive at least this many times as far apart as they were sent.
const MIN_GAP_GROWTH: i64 = 4;
/// Bits of a byte times nanoseconds of a second: bytes a nanosecond to bits a second.
const BITS_PER_BYTE_NS: i64 = 8_000_000_000;

output_table! {
    /// One row for each sender, receiver and rate that occurs, in this order; `bin` is the logarithmic bin of the rate
    /// in bits per second.
    pub struct Rates {
        sender: i64,
        receiver: i64,
        bin: i64,
        hops: i64,
    }
}

/// Counts by rate the data between different hosts that took `late_ns` or more and was spread on the way.
pub(crate) struct RateCounts<'a> {
    different_hosts: DifferentHosts<'a>,
    late_ns: i64,
    counts: FxHashMap<(i32, i32, i64), i64>,
}

impl<'a> RateCounts<'a> {
    pub(crate) fn new(different_hosts: DifferentHosts<'a>, late_ns: i64) -> Self {
        Self {
            different_hosts,
            late_ns,
            counts: FxHashMap::default(),
        }
    }

    /// Add all hops of a flow, in the order of the stream; retransmissions are left out.
    pub(crate) fn add(&mut self, flow: &Hops, ends: &Ends) {
        let mut before: Option<usize> = None;
        for row in 0..flow.connection.len() {
            let first_copy = flow.kind[row] == Kind::Data as u8 && flow.attempt[row] == 1;
            if !first_copy || flow.state[row] != State::Matched as u8 {
                continue;
            }
            let last = before.replace(row);
            let length = flow.stream_end[row] - flow.stream_start[row];
            let (Some(last), true, true) = (
                last,
                flow.one_way_delay_ns[row] >= self.late_ns,
                length >= MIN_PACKET_BYTES,
            ) else {
                continue;
            };
            let gap_ns = ends.receive_trace_ns[row] - ends.receive_trace_ns[last];
            let sent_ns = ends.send_trace_ns[row] - ends.send_trace_ns[last];
            let (sender, receiver) = (ends.send_host[row], ends.receive_host[row]);
            if gap_ns > 0 && gap_ns / MIN_GAP_GROWTH >= sent_ns && self.different_hosts.pair(sender, receiver).is_some()
            {
                let rate = bin(length.saturating_mul(BITS_PER_BYTE_NS) / gap_ns);
                *self.counts.entry((sender, receiver, rate)).or_default() += 1;
            }
        }
    }

    pub(crate) fn in_order(self) -> Rates {
        let mut rows: Vec<_> = self.counts.into_iter().collect();
        rows.sort_unstable();
        let mut rates = Rates::default();
        for ((sender, receiver, bin), hops) in rows {
            rates.sender.push(sender.into());
            rates.receiver.push(receiver.into());
            rates.bin.push(bin);
            rates.hops.push(hops);
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::count;

    /// Packets of one flow, 1,250 bytes each: when they were sent and received, in µs.
    fn rates_of(packets: &[(i64, i64)], kinds: Kind, different_hosts: bool) -> Vec<(i64, i64)> {
        let len = packets.len();
        let sent: Vec<i64> = packets.iter().map(|&(sent_us, _)| sent_us * 1000).collect();
        let received: Vec<i64> = packets.iter().map(|&(_, received_us)| received_us * 1000).collect();
        let delays: Vec<i64> = received
            .iter()
            .zip(&sent)
            .map(|(received, sent)| received - sent)
            .collect();
        let starts: Vec<i64> = (0..len as i64).map(|place| 1250 * place).collect();
        let stops: Vec<i64> = starts.iter().map(|start| start + 1250).collect();
        let hops = Hops {
            connection: &vec![1; len],
            from_client: &vec![true; len],
            kind: &vec![kinds as u8; len],
            state: &vec![State::Matched as u8; len],
            send_frame: &vec![1; len],
            receive_frame: &vec![1; len],
            stream_start: &starts,
            stream_end: &stops,
            attempt: &vec![1; len],
            one_way_delay_ns: &delays,
        };
        let ends = Ends {
            send_host: &vec![0; len],
            receive_host: &vec![1; len],
            send_trace_ns: &sent,
            receive_trace_ns: &received,
        };
        let different_hosts = DifferentHosts {
            is_different: &[false, different_hosts, different_hosts, false],
            receivers_count: 2,
        };
        let rates = count(&hops, &ends, different_hosts, 250_000_000, 300_000, false).rates;
        rates.bin.into_iter().zip(rates.hops).collect()
    }

    #[test]
    fn packets_that_leave_a_queue_one_behind_the_other_show_its_rate() {
        let train = [(0, 1000), (1, 2000), (2, 3000), (3, 4000)]; // 1,250 bytes in 1 ms: 10 Mbit/s
        assert_eq!(rates_of(&train, Kind::Data, true), [(bin(10_000_000), 3)]);
        assert_eq!(rates_of(&train, Kind::Data, false), []);
        assert_eq!(rates_of(&train, Kind::Ack, true), []);
    }

    #[test]
    fn packets_sent_far_apart_received_at_once_or_in_time_show_no_rate() {
        assert_eq!(rates_of(&[(0, 1000), (500, 2000)], Kind::Data, true), []);
        assert_eq!(rates_of(&[(0, 1000), (1, 1000)], Kind::Data, true), []);
        assert_eq!(rates_of(&[(0, 100), (1, 250)], Kind::Data, true), []);
        assert_eq!(rates_of(&[(0, 900), (1, 250)], Kind::Data, true), []);
    }
}
