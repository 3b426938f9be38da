//! Parts of a byte stream: which transfers carry them, when their first and last bytes left and arrived.
//!
//! Packet boundaries are not message boundaries, so a transfer can touch several parts; it is split here. The times of
//! a part of bytes `start..end`:
//! - first and last sent: when byte `start` and byte `end - 1` were first sent, whatever became of that attempt;
//! - first received: when byte `start` first arrived;
//! - last received: when the last missing byte arrived (so after a loss, when the hole was filled);
//! - head received: when the last byte of its message head first arrived.

pub use twintap_protocols::exchanges::Role;

use crate::ranges::{Range, last_near};
use crate::{UNSEEN, earlier};

/// A stretch of one direction that belongs to the exchange `ordinal` of its connection; it ends where the next begins.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub start: i64,
    /// Where the message's head ends and its body begins; `UNSEEN` if that is not known.
    pub head_end: i64,
    pub ordinal: usize,
    pub role: Role,
    /// The last of its bytes arrived.
    pub end_arrived: bool,
    pub times: PartTimes,
    /// The largest of its transfers.
    pub uncertainty_ns: i64,
    pub likely_error_ns: i64,
}

impl Part {
    pub fn new(start: i64, ordinal: usize, role: Role) -> Self {
        Self {
            start,
            head_end: UNSEEN,
            ordinal,
            role,
            end_arrived: false,
            times: PartTimes::default(),
            uncertainty_ns: UNSEEN,
            likely_error_ns: UNSEEN,
        }
    }

    /// Add the bytes `start..end` of a range; all of them lie in the part, whose bytes are `whole`.
    fn add(&mut self, range: &Range, (start, end): (i64, i64), whole: (i64, i64)) {
        self.uncertainty_ns = self.uncertainty_ns.max(range.uncertainty_ns);
        self.likely_error_ns = self.likely_error_ns.max(range.likely_error_ns);
        let times = &mut self.times;
        times.bytes = whole.1 - whole.0;
        times.last_received_ns = times.last_received_ns.max(range.new_ns());
        if start == whole.0 {
            times.first_sent_ns = earlier(times.first_sent_ns, range.sent_ns);
            times.first_received_ns = earlier(times.first_received_ns, range.received_ns);
        }
        if end == whole.1 {
            times.last_sent_ns = earlier(times.last_sent_ns, range.sent_ns);
            self.end_arrived |= range.received_ns != UNSEEN;
        }
        if start < self.head_end && self.head_end <= end {
            times.head_received_ns = earlier(times.head_received_ns, range.received_ns);
        }
    }

    /// Set when the last missing byte arrived, after all ranges were added.
    fn end(&mut self) {
        // A range that began before the first part may have brought the bytes; then no range has new ones.
        self.times.last_received_ns = if self.end_arrived {
            self.times.last_received_ns.max(self.times.first_received_ns)
        } else {
            UNSEEN
        };
    }
}

/// Trace times in ns, and the part's length; `UNSEEN` where nothing of it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartTimes {
    pub first_sent_ns: i64,
    pub first_received_ns: i64,
    pub last_sent_ns: i64,
    pub last_received_ns: i64,
    pub head_received_ns: i64,
    pub bytes: i64,
}

impl Default for PartTimes {
    fn default() -> Self {
        Self {
            first_sent_ns: UNSEEN,
            first_received_ns: UNSEEN,
            last_sent_ns: UNSEEN,
            last_received_ns: UNSEEN,
            head_received_ns: UNSEEN,
            bytes: UNSEEN,
        }
    }
}

/// Set the times of the parts of one direction, which are ascending, from its ranges.
pub fn time_parts(parts: &mut [Part], ranges: &[Range]) {
    let Some(flow_end) = ranges.iter().map(|range| range.end).max() else {
        return;
    };
    let mut near = 0;
    for range in ranges {
        let Some(mut place) = last_near(parts, &mut near, range.start, |part| part.start) else {
            continue;
        };
        while place < parts.len() && parts[place].start < range.end {
            let bounds = (
                parts[place].start,
                parts.get(place + 1).map_or(flow_end, |next| next.start),
            );
            let piece = (range.start.max(bounds.0), range.end.min(bounds.1));
            parts[place].add(range, piece, bounds);
            place += 1;
        }
    }
    parts.iter_mut().for_each(Part::end);
}
