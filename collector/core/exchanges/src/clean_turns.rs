//! Whether the turns of a connection whose messages are not read are requests and their answers.
//!
//! They are where a client sends one request, awaits the whole answer, and asks again. If a connection carries several
//! requests at once, or a server speaks when it likes, then a turn begins and ends wherever two messages happen to meet,
//! and neither its number nor its duration is that of a request. Evidence that is free of clock error:
//!
//! 1. Crossings ([`Crossings`]): one side sent before what the other had sent reached it. With one request at a time
//!    nothing crosses, so a share of turns of [`LEAST_CROSSED_SHARE`] is enough.
//! 2. Silences ([`crate::silences`]): a client that goes on after a silence, although it has received nothing since, may
//!    be sending the next request, or the rest of a slow one; a server that goes on may be sending the next answer, or
//!    more of the same. Where both occur again and again, several requests are under way
//!    ([`LEAST_SILENT_SHARE`] of requests, and of answers).
//!
//! # Limits
//! - Requests that a client writes at once and gets answered at once look like one: such a turn is a batch.
//! - A few requests at once, each asked when another is answered, look like one at a time if the network's delay is
//!   short against the times at which server and client read.
//! - Silences are known only if both ends were captured.
//! - A client of slow uploads that gets slowly streamed answers on one connection is mistaken for a multiplexed one.
//!
//! Cost: for each crossing a search among the connection's ranges. Source: RFC 9293 §3.4.

use crate::Crossings;
use crate::parts::Part;
use crate::ranges::{ByDirection, Range, last_at_or_before};
use crate::streams::StreamReason;

/// Least share of turns with a crossing: 0.83 over NBD with 16 reads at once (0.44 with the server's capture alone); none
/// of 2,400 turns of NBD, DNS, LDAP, IMAP, FTP, and of HTTP/1.1, PostgreSQL and Redis inside TLS, one request at a time.
pub const LEAST_CROSSED_SHARE: f64 = 0.01;
/// Fewest turns of a connection that are judged by silences, and the least share of requests, and of answers, that go on
/// after one: 0.54 to 0.69 between Ceph's servers, 0.14 to 0.39 over MinIO's websockets with 8 requests at once; at most
/// 0.06 between Ceph's gateway and servers with one, 0.01 over LDAP, though 0.78 of its answers go on.
pub const LEAST_TURNS: usize = 20;
pub const LEAST_SILENT_SHARE: f64 = 0.1;

/// How many turns of a connection show what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnEvidence {
    pub turns: usize,
    pub crossed: usize,
    /// The client, or the server, went on after a silence.
    pub resumed: ByDirection<usize>,
}

impl TurnEvidence {
    /// Why the turns are not requests, and how many show it; `None` if nothing shows that.
    pub fn judge(&self) -> Option<(StreamReason, usize)> {
        let share = |count: usize| count as f64 / self.turns.max(1) as f64;
        let resumed = self.resumed.client.min(self.resumed.server);
        if self.crossed > 0 && share(self.crossed) >= LEAST_CROSSED_SHARE {
            Some((StreamReason::Crossed, self.crossed))
        } else if self.turns >= LEAST_TURNS && share(resumed) >= LEAST_SILENT_SHARE {
            Some((StreamReason::Several, resumed))
        } else {
            None
        }
    }
}

/// How many turns have a packet that crossed with one of the other side. Arguments: rows of the connection's crossings;
/// `swapped` as for the ranges; `ordinals`, a buffer.
pub(crate) fn crossed_count(
    crossings: &Crossings,
    rows: impl Iterator<Item = usize>,
    swapped: bool,
    ranges: &ByDirection<Vec<Range>>,
    parts: &ByDirection<Vec<Part>>,
    ordinals: &mut Vec<usize>,
) -> usize {
    ordinals.clear();
    for row in rows {
        let (from_client, offset) = (crossings.from_client[row] != swapped, crossings.stream_offset[row]);
        // What is no part of a turn (a TLS handshake, a session ticket, an alert) is in no range.
        let crossed = (crossings.crossed_start[row], crossings.crossed_end[row]);
        let is_said = holds_any(ranges.of(from_client), (offset, offset.saturating_add(1)))
            && holds_any(ranges.of(!from_client), crossed);
        let parts = parts.of(from_client);
        let place = last_at_or_before(parts, offset, |part| part.start).filter(|_| is_said);
        ordinals.extend(place.map(|place| parts[place].ordinal));
    }
    ordinals.sort_unstable();
    ordinals.dedup();
    ordinals.len()
}

/// Whether any of the bytes `start..end` is in one of the ranges, which are ascending.
fn holds_any(ranges: &[Range], (start, end): (i64, i64)) -> bool {
    last_at_or_before(ranges, end.saturating_sub(1), |range| range.start).is_some_and(|at| ranges[at].end > start)
}
