//! Flows that lack bytes: nobody captured them, though later bytes of the flow were captured.

use twintap_columns::input_table;
use twintap_matching::Kind;

input_table! {
    /// A flow's hops are one run of rows.
    pub struct Hops {
        connection("connection_id"): i64,
        from_client: bool,
        /// Code of [`Kind`].
        kind: u8,
        stream_start: i64,
        stream_end: i64,
        attempt: u16,
    }
}

/// Rows of all flows whose captured bytes, each once, are fewer by `least_bytes` or more than those between the first
/// and the last place in the stream that data, an ACK or a FIN of theirs shows; ascending.
///
/// # Panics
/// If the columns differ in length.
pub fn gapped_rows(hops: &Hops, least_bytes: i64) -> Vec<i64> {
    assert!(hops.is_consistent(), "hop columns differ in length");
    let (mut found, mut first) = (Vec::new(), 0);
    for connection in hops.connection.chunk_by(|one, next| one == next) {
        for flow in hops.from_client[first..first + connection.len()].chunk_by(|one, next| one == next) {
            let end = first + flow.len();
            if lacking_bytes(hops, first..end) >= least_bytes {
                found.extend(first as i64..end as i64);
            }
            first = end;
        }
    }
    found
}

/// How many bytes a flow lacks; negative if some were captured more than once as different ones.
fn lacking_bytes(hops: &Hops, rows: std::ops::Range<usize>) -> i64 {
    let (mut low, mut high, mut seen) = (i64::MAX, i64::MIN, 0);
    for row in rows {
        let kind = hops.kind[row];
        if ![Kind::Data, Kind::Ack, Kind::Fin]
            .map(|kind| kind as u8)
            .contains(&kind)
        {
            continue;
        }
        let (start, end) = (hops.stream_start[row], hops.stream_end[row]);
        high = high.max(end);
        if end > start {
            low = low.min(start);
        }
        if hops.attempt[row] == 1 {
            seen += end - start;
        }
    }
    if low < high { high - low.max(0) - seen } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_lacks_what_lies_between_its_first_and_last_place() {
        // 1: whole, and an answer of which 40..60 is missing; 2: sent twice; 3: only an ACK shows what is missing
        let hops = Hops {
            connection: &[1, 1, 1, 1, 2, 2, 3, 3],
            from_client: &[true, true, false, false, true, true, true, true],
            kind: &[2, 2, 2, 2, 2, 2, 2, 3],
            stream_start: &[0, 10, 0, 60, 0, 0, 0, 30],
            stream_end: &[10, 20, 40, 80, 50, 50, 10, 30],
            attempt: &[1, 1, 1, 1, 1, 2, 1, 1],
        };
        assert_eq!(gapped_rows(&hops, 2), [2, 3, 6, 7]);
        assert_eq!(gapped_rows(&hops, 21), [0; 0]);
        let syns = Hops { kind: &[0; 8], ..hops };
        assert_eq!(gapped_rows(&syns, 1), [0; 0]);
    }
}
