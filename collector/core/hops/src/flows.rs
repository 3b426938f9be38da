//! Counts of hops for each flow (one direction of one connection), which show how well it was paired.

use std::ops::Range;

use twintap_columns::{input_table, output_table};
use twintap_matching::{Kind, State};

use crate::NO_FRAME;

/// Number of the codes of `state`, which are those of [`State`].
pub const STATES_COUNT: usize = 6;

input_table! {
    /// A flow's hops are one run of rows.
    pub struct Hops {
        connection("connection_id"): i64,
        from_client: bool,
        /// Codes of [`Kind`] and of [`State`].
        kind: u8,
        state: u8,
        send_frame: u32,
        receive_frame: u32,
        stream_start: i64,
        stream_end: i64,
        attempt: u16,
        /// 0 for a packet seen at one end.
        one_way_delay_ns: i64,
    }
}

output_table! {
    /// One row a flow: hops that share a send or a receive with another, retransmissions, hops received before they
    /// were sent, bytes sent, and those of them that were paired.
    pub struct Flows {
        /// Row of the flow's first hop.
        start: i64,
        split: i64,
        retransmitted: i64,
        early: i64,
        bytes: i64,
        matched_bytes: i64,
    } beside {
        states: [Vec<i64>; STATES_COUNT],
    }
}

impl Hops<'_> {
    /// The given rows.
    #[inline]
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        Self {
            connection: &self.connection[rows.clone()],
            from_client: &self.from_client[rows.clone()],
            kind: &self.kind[rows.clone()],
            state: &self.state[rows.clone()],
            send_frame: &self.send_frame[rows.clone()],
            receive_frame: &self.receive_frame[rows.clone()],
            stream_start: &self.stream_start[rows.clone()],
            stream_end: &self.stream_end[rows.clone()],
            attempt: &self.attempt[rows.clone()],
            one_way_delay_ns: &self.one_way_delay_ns[rows],
        }
    }

    /// Whether the next hop of the flow, or the one after it, has the same send or the same receive. Two rows ahead,
    /// because a retransmitted part stands between those of the first attempt. A part sent more than twice hides its
    /// neighbours.
    fn shares_an_end(&self, row: usize) -> bool {
        let near = row.saturating_sub(2)..(row + 3).min(self.connection.len());
        near.into_iter().filter(|&other| other != row).any(|other| {
            let same = |frames: &[u32]| frames[row] != NO_FRAME && frames[row] == frames[other];
            same(self.send_frame) || same(self.receive_frame)
        })
    }
}

impl Flows {
    /// Append a flow, given all of its hops and the row `start` of the first.
    ///
    /// # Panics
    /// If a state's code is not below `STATES_COUNT`.
    pub(crate) fn add(&mut self, start: usize, flow: &Hops) {
        let mut states = [0; STATES_COUNT];
        let (mut split, mut bytes, mut matched_bytes) = (0, 0, 0);
        let (mut retransmitted, mut early) = (0, 0);
        for row in 0..flow.connection.len() {
            let state = flow.state[row];
            let len = flow.stream_end[row] - flow.stream_start[row];
            states[usize::from(state)] += 1;
            if state == State::Matched as u8 {
                matched_bytes += len;
                split += i64::from(flow.kind[row] == Kind::Data as u8 && flow.shares_an_end(row));
            }
            if state != State::OutsideWindow as u8 && state != State::Lost as u8 {
                bytes += len;
            }
            retransmitted += i64::from(flow.attempt[row] > 1);
            early += i64::from(flow.one_way_delay_ns[row] < 0);
        }
        self.start.push(start as i64);
        for (column, count) in self.states.iter_mut().zip(states) {
            column.push(count);
        }
        self.split.push(split);
        self.retransmitted.push(retransmitted);
        self.early.push(early);
        self.bytes.push(bytes);
        self.matched_bytes.push(matched_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_is_one_row_and_only_its_own_hops_share_an_end() {
        let hops = Hops {
            connection: &[1, 1, 1, 1, 2],
            from_client: &[true, true, true, false, false],
            kind: &[2, 2, 2, 1, 2],
            state: &[0, 0, 1, 0, 3],
            send_frame: &[4, 4, 5, 6, 6],
            receive_frame: &[7, 8, NO_FRAME, 9, NO_FRAME],
            stream_start: &[0, 10, 20, 0, 0],
            stream_end: &[10, 20, 25, 0, 3],
            attempt: &[1, 1, 2, 1, 1],
            one_way_delay_ns: &[5, -1, 0, 5, 0],
        };
        let mut flows = Flows::default();
        for (start, end) in [(0, 3), (3, 4), (4, 5)] {
            flows.add(start, &hops.rows(start..end));
        }
        assert_eq!(flows.start, [0, 3, 4]);
        assert_eq!(flows.states[0], [2, 1, 0]);
        assert_eq!(flows.states[1], [1, 0, 0]);
        assert_eq!(flows.states[3], [0, 0, 1]);
        assert_eq!(flows.split, [2, 0, 0]);
        assert_eq!((flows.retransmitted, flows.early), (vec![1, 0, 0], vec![1, 0, 0]));
        assert_eq!((flows.bytes, flows.matched_bytes), (vec![20, 0, 0], vec![20, 0, 0]));
    }
}
