//! Changes of protocol by HTTP/1.1: a `101`, or a CONNECT that was accepted (RFC 9110 §7.8, §9.3.6).
//!
//! ```text
//! client   [GET /chat]            [frame]     [frame]
//! server              [101]  [frame]   [frame]
//! ordinal   1          1     2    2    2      2
//! ```
//! The request and the head that answers it are an exchange as any other. All bytes behind them, in both directions, are
//! one exchange more, which is a stream ([`crate::streams`]): heads among them belong to what is inside.

use twintap_protocols::http1;
use twintap_protocols::registry;

use crate::heads::Head;
use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range};
use crate::streams::StreamReason;
use crate::{Heads, UNSEEN};

const SWITCHING_PROTOCOLS: u16 = 101;
const CONNECT: &[u8] = b"CONNECT";

/// Why an answer changes its connection's protocol; `None` if it does not. Arguments: its status, the request's method.
pub(crate) fn reason_of(status: u16, method: &[u8]) -> Option<StreamReason> {
    if status == SWITCHING_PROTOCOLS {
        Some(StreamReason::Upgrade)
    } else if (200..300).contains(&status) && method == CONNECT {
        Some(StreamReason::Tunnel)
    } else {
        None
    }
}

/// A change whose request and answer were captured whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Where the new protocol begins in each direction.
    pub starts: ByDirection<i64>,
    /// Ordinal of what follows; 0 until the messages before are numbered.
    pub ordinal: usize,
}

/// Find a connection's change, and remove the heads behind it. Arguments: heads by direction, the server's first, and
/// place.
pub(crate) fn take_change(own: &mut Vec<Head>, heads: &Heads) -> Option<Change> {
    let change = find(own, heads)?;
    own.retain(|head| head.offset < *change.starts.of(head.from_client));
    Some(change)
}

/// The first CONNECT that was accepted, whose i-th answer is that of the i-th request; else the first `101`, whose request
/// is the last one, since its client waits for it.
fn find(own: &[Head], heads: &Heads) -> Option<Change> {
    let of_role = |role: Role| own.iter().filter(move |head| head.role() == Some(role));
    let (requests, answers) = (|| of_role(Role::Request), || of_role(Role::Response));
    let is_http = |answer: &&Head| heads.head_kind[answer.row as usize] == http1::RESPONSE.0;
    let reason = |request: &Head, answer: &Head| reason_of(answer.status(), heads.method.text(request.row as usize));
    let tunnel = requests()
        .zip(answers().filter(is_http))
        .find(|(request, answer)| reason(request, answer) == Some(StreamReason::Tunnel));
    let upgrade = || {
        let answer = answers()
            .filter(is_http)
            .find(|answer| answer.status() == SWITCHING_PROTOCOLS)?;
        Some((requests().next_back()?, answer))
    };
    let (request, answer) = tunnel.or_else(upgrade)?;
    let asked_end = if request.due() == UNSEEN {
        request.end()
    } else {
        request.offset.saturating_add(request.due())
    };
    let starts = ByDirection {
        server: answer.end(),
        client: asked_end,
    };
    let is_whole = starts.server != UNSEEN && starts.client != UNSEEN;
    is_whole.then_some(Change { starts, ordinal: 0 })
}

impl Change {
    /// Append the parts of what follows, as far as it was seen; it gets the next ordinal.
    pub fn mark_parts(&mut self, ranges: &ByDirection<Vec<Range>>, parts: &mut ByDirection<Vec<Part>>) {
        let every = parts.server.iter().chain(&parts.client);
        self.ordinal = every.map(|part| part.ordinal).max().unwrap_or(0) + 1;
        for (from_client, role) in [(false, Role::Response), (true, Role::Request)] {
            let start = *self.starts.of(from_client);
            if ranges.of(from_client).iter().any(|range| range.end > start) {
                parts.of_mut(from_client).push(Part::new(start, self.ordinal, role));
            }
        }
    }

    /// The place in the registry of the protocol of what follows, if a message of it was read: that of the first.
    ///
    /// Arguments: the connection's heads' rows; `swapped`: they have its client and server the wrong way round.
    pub fn protocol(&self, heads: &Heads, rows: impl Iterator<Item = usize>, swapped: bool) -> Option<u8> {
        let is_inside = |row: &usize| {
            let from_client = heads.from_client[*row] != swapped;
            heads.stream_offset[*row] >= *self.starts.of(from_client)
        };
        let first = rows.filter(is_inside).min_by_key(|&row| {
            let from_client = heads.from_client[row] != swapped;
            heads.stream_offset[row] - self.starts.of(from_client)
        });
        first.map(|row| registry::place_of_head_kind(heads.head_kind[row]))
    }
}
