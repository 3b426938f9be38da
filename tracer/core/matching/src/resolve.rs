//! Which of several sends of the same bytes is the one that arrived?
//!
//! Evidence, strongest first; each only removes candidates, none prefers one silently:
//! 1. *Timestamps option*: `tsval` is the sender's clock at that transmission (RFC 7323 §3.2), so it must be equal.
//! 2. *IP ID*: where this flow's lone transfers show that it is kept on the way, it must be equal. A super-segment of n
//!    MSS takes n of them, so the ID at an offset inside it is known.
//! 3. *Causality*: nothing arrives before it was sent. The other flow bounds the clocks' offset ([`CausalBound`]).
//! 4. *Order*: as many receives as sends are left: paired in order of time. Fewer: ambiguous.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use crate::flow::Flow;
use crate::{Events, option};

/// RFC 5905 §7.2 takes 500 ppm as the tolerance of a host's oscillator.
const MAX_SKEW_PPM: i64 = 500;
/// Transfers of the other flow that are looked at on each side of a moment.
const NEIGHBOURS: usize = 32;
/// Above this many (send, receive) candidates the bytes are left ambiguous: hostile input, not TCP.
const MAX_CANDIDATES: usize = 1 << 14;

/// Everything of a header that a network keeps; equal at both ends of an unsplit transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct HeaderKey {
    seq: u32,
    ack: u32,
    payload_len: u32,
    tsval: u32,
    tsecr: u32,
    sack_hash: u32,
    flags: u16,
    window: u16,
}

impl HeaderKey {
    pub fn of(events: &Events, event: u32) -> Self {
        let i = event as usize;
        Self {
            seq: events.seq[i],
            ack: events.ack[i],
            payload_len: events.payload_len[i],
            tsval: events.tsval[i],
            tsecr: events.tsecr[i],
            sack_hash: events.sack_hash[i],
            flags: events.flags[i],
            window: events.window[i],
        }
    }
}

/// A lower bound on (receive - send) of one flow's hops, from the other flow: if a packet from B to A took `d` by their
/// two clocks, then B's clock is ahead of A's by at least `-d`, and so a packet from A to B takes at least `-d`.
///
/// Built when first asked: most connections never need it.
pub(crate) struct CausalBound<'a, 'e> {
    events: &'a Events<'e>,
    other: &'a Flow,
    transfers: OnceCell<Vec<(i64, i64)>>,
}

impl<'a, 'e> CausalBound<'a, 'e> {
    /// `other` is the flow against the one that is bounded.
    pub fn new(events: &'a Events<'e>, other: &'a Flow) -> Self {
        Self {
            events,
            other,
            transfers: OnceCell::new(),
        }
    }

    /// Could a packet sent at `send_ns` (sender's clock) have been received at `receive_ns` (receiver's clock)?
    pub fn allows(&self, send_ns: i64, receive_ns: i64) -> bool {
        let transfers = self
            .transfers
            .get_or_init(|| identified_transfers(self.events, self.other));
        let middle = transfers.partition_point(|&(at_ns, _)| at_ns < send_ns);
        let near = &transfers[middle.saturating_sub(NEIGHBOURS)..transfers.len().min(middle + NEIGHBOURS)];
        near.iter().all(|&(at_ns, delay_ns)| {
            let drift_ns = i128::from(at_ns)
                .abs_diff(i128::from(send_ns))
                .min(u128::from(u64::MAX)) as i128
                * i128::from(MAX_SKEW_PPM)
                / 1_000_000;
            i128::from(receive_ns) - i128::from(send_ns) >= -i128::from(delay_ns) - drift_ns
        })
    }
}

/// Transfers of a flow whose header occurs once at each end: (receive time, receive - send), by receive time.
fn identified_transfers(events: &Events, flow: &Flow) -> Vec<(i64, i64)> {
    let mut sends: FxHashMap<HeaderKey, Option<u32>> = FxHashMap::default();
    for placed in &flow.sends {
        let repeated = sends.insert(HeaderKey::of(events, placed.event), Some(placed.event));
        if repeated.is_some() {
            sends.insert(HeaderKey::of(events, placed.event), None);
        }
    }
    let mut receives: FxHashMap<HeaderKey, Option<u32>> = FxHashMap::default();
    for placed in &flow.receives {
        receives
            .entry(HeaderKey::of(events, placed.event))
            .and_modify(|e| *e = None)
            .or_insert(Some(placed.event));
    }
    let time = |event: u32| events.host_ns[event as usize];
    let mut transfers: Vec<(i64, i64)> = receives
        .iter()
        .filter_map(|(key, receive)| receive.zip(sends.get(key).copied().flatten()))
        .map(|(receive, send)| (time(receive), time(receive).saturating_sub(time(send))))
        .collect();
    transfers.sort_unstable();
    transfers
}

/// What identifies a transmission in one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// Payload bytes of a full packet on the wire, to know the IP ID inside a super-segment.
    pub full_payload_len: i64,
    pub ip_id_is_kept: bool,
}

/// A send or a receive of the bytes in question: its event, and where its own bytes begin in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub event: u32,
    pub start: i64,
}

/// IP ID of the packet that carries the byte at `offset`, if there is one.
fn ip_id_at(events: &Events, evidence: &Evidence, carrier: Carrier, offset: i64) -> Option<u16> {
    let id = u16::try_from(events.ip_id[carrier.event as usize]).ok()?;
    let packets = (offset - carrier.start) / evidence.full_payload_len.max(1);
    Some(id.wrapping_add((packets & 0xFFFF) as u16))
}

/// Do the two agree on the IP ID at `offset`? `None` where one has none.
pub(crate) fn same_ip_id(
    events: &Events,
    evidence: &Evidence,
    send: Carrier,
    receive: Carrier,
    offset: i64,
) -> Option<bool> {
    let a = ip_id_at(events, evidence, send, offset)?;
    let b = ip_id_at(events, evidence, receive, offset)?;
    Some(a == b)
}

fn compatible(
    events: &Events,
    evidence: &Evidence,
    bound: &CausalBound,
    pair: (Carrier, Carrier),
    offset: i64,
) -> bool {
    let (send, receive) = pair;
    let (s, r) = (send.event as usize, receive.event as usize);
    let both_stamped = events.options[s] & events.options[r] & option::TIMESTAMPS != 0;
    if both_stamped && events.tsval[s] != events.tsval[r] {
        return false;
    }
    if evidence.ip_id_is_kept && same_ip_id(events, evidence, send, receive, offset) == Some(false) {
        return false;
    }
    bound.allows(events.host_ns[s], events.host_ns[r])
}

/// For each send and each receive, what it was paired with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Index into the other list.
    Of(usize),
    /// No candidate is left.
    None,
    /// Several are left and nothing tells them apart.
    Ambiguous,
}

/// Pair `sends` with `receives` (each in time order) of the byte at `offset`. Returns a partner for each.
pub(crate) fn resolve(
    events: &Events,
    evidence: &Evidence,
    bound: &CausalBound,
    sends: &[Carrier],
    receives: &[Carrier],
    offset: i64,
) -> (Vec<Partner>, Vec<Partner>) {
    let mut of_sends = vec![Partner::None; sends.len()];
    let mut of_receives = vec![Partner::None; receives.len()];
    if sends.len() * receives.len() > MAX_CANDIDATES {
        of_sends.fill(Partner::Ambiguous);
        of_receives.fill(Partner::Ambiguous);
        return (of_sends, of_receives);
    }
    let mut candidates: Vec<Vec<usize>> = receives
        .iter()
        .map(|&r| {
            (0..sends.len())
                .filter(|&s| compatible(events, evidence, bound, (sends[s], r), offset))
                .collect()
        })
        .collect();
    pair_the_certain(&mut candidates, &mut of_sends, &mut of_receives);
    pair_by_order(&candidates, &mut of_sends, &mut of_receives);
    (of_sends, of_receives)
}

/// While a receive has one candidate, it is that one.
fn pair_the_certain(candidates: &mut [Vec<usize>], of_sends: &mut [Partner], of_receives: &mut [Partner]) {
    while let Some(receive) = candidates.iter().position(|left| left.len() == 1) {
        let send = candidates[receive][0];
        of_sends[send] = Partner::Of(receive);
        of_receives[receive] = Partner::Of(send);
        candidates[receive].clear();
        for left in candidates.iter_mut() {
            left.retain(|&candidate| candidate != send);
        }
    }
}

/// Receives that still have candidates: in order if all those sends arrived, else ambiguous.
fn pair_by_order(candidates: &[Vec<usize>], of_sends: &mut [Partner], of_receives: &mut [Partner]) {
    let receives: Vec<usize> = (0..candidates.len()).filter(|&r| !candidates[r].is_empty()).collect();
    let mut sends: Vec<usize> = candidates.iter().flatten().copied().collect();
    sends.sort_unstable();
    sends.dedup();
    let in_order =
        sends.len() == receives.len() && receives.iter().zip(&sends).all(|(&r, s)| candidates[r].contains(s));
    if in_order {
        for (&r, &s) in receives.iter().zip(&sends) {
            of_sends[s] = Partner::Of(r);
            of_receives[r] = Partner::Of(s);
        }
    } else {
        receives.iter().for_each(|&r| of_receives[r] = Partner::Ambiguous);
        sends.iter().for_each(|&s| of_sends[s] = Partner::Ambiguous);
    }
}
