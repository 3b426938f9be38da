//! Hops counted by flow (one direction of one connection): how well each was paired, and whether anything happened in it.

use twintap_matching::{Kind, State};

use crate::NO_FRAME;

/// Of the codes of `state`, which are in the order of [`State`].
pub const STATES_COUNT: usize = 6;

/// A flow's hops are one run of rows.
#[derive(Clone, Copy, Debug)]
pub struct Hops<'a> {
    pub connection: &'a [i64],
    pub from_client: &'a [bool],
    /// Codes of [`Kind`] and of [`State`].
    pub kind: &'a [u8],
    pub state: &'a [u8],
    pub send_frame: &'a [u32],
    pub receive_frame: &'a [u32],
    pub stream_start: &'a [i64],
    pub stream_end: &'a [i64],
    pub attempt: &'a [u16],
    /// 0 for a lone packet.
    pub one_way_delay_ns: &'a [i64],
}

/// One row a flow; what each column counts is said in `collector.schema.QUALITY`.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// Row of the flow's first hop.
    pub start: Vec<i64>,
    pub states: [Vec<i64>; STATES_COUNT],
    pub split: Vec<i64>,
    pub retransmitted: Vec<i64>,
    pub early: Vec<i64>,
    pub bytes: Vec<i64>,
    pub matched_bytes: Vec<i64>,
    pub data: Vec<i64>,
    pub resets: Vec<i64>,
    pub syn_acks: Vec<i64>,
}

impl Hops<'_> {
    /// Whether all columns are of one length.
    pub fn lens_agree(&self) -> bool {
        let lens = [
            self.from_client.len(),
            self.kind.len(),
            self.state.len(),
            self.send_frame.len(),
            self.receive_frame.len(),
            self.stream_start.len(),
            self.stream_end.len(),
            self.attempt.len(),
            self.one_way_delay_ns.len(),
        ];
        lens.iter().all(|&len| len == self.connection.len())
    }

    /// One past the last row of the flow that begins at `start`.
    fn end_of_flow(&self, start: usize) -> usize {
        let same = |row: &usize| {
            self.connection[*row] == self.connection[start] && self.from_client[*row] == self.from_client[start]
        };
        (start..self.connection.len())
            .find(|row| !same(row))
            .unwrap_or(self.connection.len())
    }

    /// Is the next hop of the flow, or the next but one, of the same send or of the same receive? Two apart, since a part
    /// that was sent again stands between those of the first attempt. A part sent more than twice hides its neighbours.
    fn shares_an_end(&self, row: usize, start: usize, end: usize) -> bool {
        let near = row.saturating_sub(2).max(start)..(row + 3).min(end);
        near.into_iter().filter(|&other| other != row).any(|other| {
            let same = |frames: &[u32]| frames[row] != NO_FRAME && frames[row] == frames[other];
            same(self.send_frame) || same(self.receive_frame)
        })
    }
}

/// Count `hops` by flow.
///
/// # Panics
/// If the columns differ in length, or a state's code is not below `STATES_COUNT`.
pub fn count(hops: &Hops) -> Flows {
    assert!(hops.lens_agree(), "hop columns differ in length");
    let mut flows = Flows::default();
    let mut start = 0;
    while start < hops.connection.len() {
        let end = hops.end_of_flow(start);
        flows.add(hops, start, end);
        start = end;
    }
    flows
}

impl Flows {
    fn add(&mut self, hops: &Hops, start: usize, end: usize) {
        let mut states = [0; STATES_COUNT];
        let (mut split, mut bytes, mut matched_bytes) = (0, 0, 0);
        let (mut retransmitted, mut early) = (0, 0);
        let (mut data, mut resets, mut syn_acks) = (0, 0, 0);
        for row in start..end {
            let (state, kind) = (hops.state[row], hops.kind[row]);
            let len = hops.stream_end[row] - hops.stream_start[row];
            states[usize::from(state)] += 1;
            let is_data = kind == Kind::Data as u8;
            if state == State::Matched as u8 {
                matched_bytes += len;
                split += i64::from(is_data && hops.shares_an_end(row, start, end));
            }
            if state != State::OutsideWindow as u8 && state != State::Lost as u8 {
                bytes += len;
            }
            retransmitted += i64::from(hops.attempt[row] > 1);
            early += i64::from(hops.one_way_delay_ns[row] < 0);
            data += i64::from(is_data);
            resets += i64::from(kind == Kind::Rst as u8);
            syn_acks += i64::from(kind == Kind::SynAck as u8);
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
        self.data.push(data);
        self.resets.push(resets);
        self.syn_acks.push(syn_acks);
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
        let flows = count(&hops);
        assert_eq!(flows.start, [0, 3, 4]);
        assert_eq!(flows.states[0], [2, 1, 0]);
        assert_eq!(flows.states[1], [1, 0, 0]);
        assert_eq!(flows.states[3], [0, 0, 1]);
        assert_eq!(flows.split, [2, 0, 0]);
        assert_eq!((flows.retransmitted, flows.early), (vec![1, 0, 0], vec![1, 0, 0]));
        assert_eq!((flows.bytes, flows.matched_bytes), (vec![20, 0, 0], vec![20, 0, 0]));
        assert_eq!(
            (flows.data, flows.syn_acks, flows.resets),
            (vec![3, 0, 1], vec![0, 1, 0], vec![0, 0, 0])
        );
    }
}
