//! How often the sequence numbers of a long stream went round before a capture joined it.
//!
//! They come round every 4 GiB. A capture that joins without the handshake, more than 2 GiB after another one did, is
//! placed some rounds short by its numbers alone. The timestamps option tells: the same number with the same timestamp
//! is the same segment, for a sender's clock does not stand still for 4 GiB (RFC 7323 §5.4).
//!
//! Limit: a stream without timestamps stays where its numbers put it.

use rustc_hash::FxHashMap;

use crate::connections::Placed;
use crate::{Events, option};

const ROUND: i64 = 1 << 32;
/// A stream shorter than that has one place only.
const AMBIGUOUS_FROM: i64 = 1 << 31;

/// Move the events of one side that were placed whole rounds short.
///
/// Arguments: `placed`, host by host; `ends`, of each host where its events end there; `anchor`, which host's are right.
pub(crate) fn settle(events: &Events, placed: &mut [Placed], ends: &[usize], anchor: usize) {
    let start = |host: usize| if host == 0 { 0 } else { ends[host - 1] };
    let known = &placed[start(anchor)..ends[anchor]];
    if ends.len() < 2 || known.iter().all(|one| one.offset < AMBIGUOUS_FROM) {
        return;
    }
    let stamped = |one: &&Placed| events.options[one.event as usize] & option::TIMESTAMPS != 0;
    let key = |one: &Placed| (events.seq[one.event as usize], events.tsval[one.event as usize]);
    let offsets: FxHashMap<_, _> = known.iter().filter(stamped).map(|one| (key(one), one.offset)).collect();
    for host in (0..ends.len()).filter(|host| *host != anchor) {
        let own = &mut placed[start(host)..ends[host]];
        let shift = |one: &Placed| offsets.get(&key(one)).map(|offset| offset - one.offset);
        let found = own.iter().filter(stamped).find_map(shift).unwrap_or(0);
        if found % ROUND == 0 {
            own.iter_mut().for_each(|one| one.offset += found);
        }
    }
}
