//! Decides which of several sends of the same bytes is the one that arrived.
//!
//! The evidence, strongest first. Each kind only removes candidates; none prefers a candidate silently:
//! 1. *Timestamps option*: `tsval` is the sender's clock at that transmission (RFC 7323 §3.2), so it must be equal at
//!    both ends, unless a device on the path rewrites the timestamps of the whole flow.
//! 2. *IP ID*: it must be equal if the transfers of this flow that were sent only once show that the path keeps it. A
//!    super-segment of n MSS uses n consecutive IDs, so the ID at an offset inside it is known.
//! 3. *Causality*: nothing arrives before it was sent. The other flow bounds the clocks' offset ([`CausalBound`]).
//! 4. *Likelihood*, only if several candidates are left: the delay must lie within the range of the flow's certain
//!    transfers, and nothing may overtake in a flow whose certain transfers kept their order.
//! 5. *Count*: if as many receives as sends are left, they are paired in order of time, unless the flow is known to
//!    reorder.
//!
//! A receive that still has several candidates is ambiguous.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use crate::flow::{Context, Flow};
use crate::packets::{Packet, Packets};

/// RFC 5905 §7.2 takes 500 ppm as the tolerance of a host's oscillator.
const MAX_SKEW_PPM: i64 = 500;
/// Transfers of the other flow that are looked at on each side of a moment.
const BOUND_NEIGHBOURS: usize = 32;
/// Above this many (send, receive) candidates the bytes are left ambiguous: hostile input, not TCP.
pub(crate) const MAX_CANDIDATES: usize = 1 << 14;
/// Share of a flow's certain transfers whose IP IDs must agree for IP IDs to be evidence.
pub(crate) const IP_ID_AGREEMENT: f64 = 0.98;
/// Certain transfers that a flow must have before its usual delay and order are judged.
const MIN_CERTAIN_TRANSFERS: usize = 4;

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
    /// Always inline: see `Packet::of`.
    #[inline(always)]
    pub fn of(packet: &Packet) -> Self {
        Self {
            seq: packet.seq,
            ack: packet.ack,
            payload_len: packet.payload_len,
            tsval: packet.tsval,
            tsecr: packet.tsecr,
            sack_hash: packet.sack_hash,
            flags: packet.flags,
            window: packet.window,
        }
    }
}

/// Transfers of one flow whose whole header occurs once at each end, as (send, receive) rows. They are certain, so the
/// others are judged by them. Computed when first needed: most connections never need them.
pub(crate) struct CertainTransfers<'a> {
    packets: Packets<'a>,
    flow: &'a Flow,
    pairs: OnceCell<Vec<(u32, u32)>>,
    by_receive_time: OnceCell<Vec<(i64, i64)>>,
    usual: OnceCell<Usual>,
}

/// Delays and order of a flow's certain transfers.
struct Usual {
    /// (send time, receive time), by send time.
    times: Vec<(i64, i64)>,
    /// Smallest and largest (receive - send), with a margin of half their difference.
    delay_ns: (i64, i64),
    keeps_order: bool,
}

impl Usual {
    fn overtakes_nothing(&self, send_ns: i64, receive_ns: i64) -> bool {
        let before = self.times.partition_point(|&(sent, _)| sent < send_ns);
        let after = self.times.partition_point(|&(sent, _)| sent <= send_ns);
        before
            .checked_sub(1)
            .is_none_or(|index| self.times[index].1 <= receive_ns)
            && self
                .times
                .get(after)
                .is_none_or(|&(_, received)| received >= receive_ns)
    }
}

impl<'a> CertainTransfers<'a> {
    pub fn new(packets: Packets<'a>, flow: &'a Flow) -> Self {
        Self {
            packets,
            flow,
            pairs: OnceCell::new(),
            by_receive_time: OnceCell::new(),
            usual: OnceCell::new(),
        }
    }

    /// (send, receive) rows, in no order.
    pub fn pairs(&self) -> &[(u32, u32)] {
        self.pairs.get_or_init(|| {
            let sends = self.once(&self.flow.sends);
            let receives = self.once(&self.flow.receives);
            let both = receives
                .iter()
                .filter_map(|(key, receive)| Some(((*sends.get(key)?)?, (*receive)?)));
            both.collect()
        })
    }

    fn once(&self, rows: &[u32]) -> FxHashMap<HeaderKey, Option<u32>> {
        let mut seen = FxHashMap::default();
        for &row in rows {
            let key = HeaderKey::of(self.packets.at(row));
            seen.entry(key).and_modify(|known| *known = None).or_insert(Some(row));
        }
        seen
    }

    fn usual(&self) -> &Usual {
        self.usual.get_or_init(|| {
            let time = |row: u32| self.packets.at(row).host_ns;
            let mut times: Vec<(i64, i64)> = self.pairs().iter().map(|&(s, r)| (time(s), time(r))).collect();
            times.sort_unstable();
            let delays = times.iter().map(|&(sent, received)| received.saturating_sub(sent));
            let (least, most) = (
                delays.clone().min().unwrap_or(i64::MIN),
                delays.max().unwrap_or(i64::MAX),
            );
            let margin = most.saturating_sub(least) / 2;
            let keeps_order = times.is_sorted_by_key(|&(_, received)| received);
            Usual {
                delay_ns: (least.saturating_sub(margin), most.saturating_add(margin)),
                keeps_order,
                times,
            }
        })
    }

    /// Whether a transfer at these times is like the flow's certain ones. True if these are too few to judge.
    fn likely(&self, send_ns: i64, receive_ns: i64) -> bool {
        let usual = self.usual();
        if usual.times.len() < MIN_CERTAIN_TRANSFERS {
            return true;
        }
        let delay_ns = receive_ns.saturating_sub(send_ns);
        (usual.delay_ns.0..=usual.delay_ns.1).contains(&delay_ns)
            && (!usual.keeps_order || usual.overtakes_nothing(send_ns, receive_ns))
    }

    /// (receive time, receive - send), by receive time.
    fn delays(&self) -> &[(i64, i64)] {
        self.by_receive_time.get_or_init(|| {
            let time = |row: u32| self.packets.at(row).host_ns;
            let delay = |&(send, receive): &(u32, u32)| (time(receive), time(receive).saturating_sub(time(send)));
            let mut delays: Vec<(i64, i64)> = self.pairs().iter().map(delay).collect();
            delays.sort_unstable();
            delays
        })
    }
}

/// A lower bound on (receive - send) of one flow's hops, from the other flow: if a packet from B to A took `d` by their
/// two clocks, then B's clock is ahead of A's by at least `-d`, and so a packet from A to B takes at least `-d`.
pub(crate) struct CausalBound<'a> {
    /// Certain transfers of the opposite flow.
    pub other: &'a CertainTransfers<'a>,
}

impl CausalBound<'_> {
    /// Whether a packet sent at `send_ns` (sender's clock) can have been received at `receive_ns` (receiver's clock).
    pub fn allows(&self, send_ns: i64, receive_ns: i64) -> bool {
        let delays = self.other.delays();
        let middle = delays.partition_point(|&(at_ns, _)| at_ns < send_ns);
        let near = &delays[middle.saturating_sub(BOUND_NEIGHBOURS)..delays.len().min(middle + BOUND_NEIGHBOURS)];
        near.iter().all(|&(at_ns, delay_ns)| {
            let apart_ns = (i128::from(at_ns) - i128::from(send_ns)).abs();
            let drift_ns = apart_ns * i128::from(MAX_SKEW_PPM) / 1_000_000;
            i128::from(receive_ns) - i128::from(send_ns) >= -i128::from(delay_ns) - drift_ns
        })
    }
}

/// What identifies a transmission in one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// Payload bytes of a full packet on the wire, to know the IP ID inside a super-segment.
    pub full_payload_len: i64,
    pub ip_id_is_kept: bool,
    /// Some transfer bears the same timestamp at both ends, so no device on the path rewrites timestamps.
    pub stamps_are_kept: bool,
}

/// One certain transfer: its carriers, and the offset of a byte that both carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certain {
    pub send: Carrier,
    pub receive: Carrier,
    pub offset: i64,
}

impl Evidence {
    /// Learn from certain transfers whether the path keeps IP IDs and whether these differ, and whether it keeps
    /// timestamps.
    pub fn weigh(
        context: &Context,
        flow: &Flow,
        full_payload_len: i64,
        certain: impl IntoIterator<Item = Certain>,
    ) -> Self {
        let mut evidence = Self {
            full_payload_len,
            ip_id_is_kept: false,
            stamps_are_kept: false,
        };
        let (mut agreed, mut compared) = (0_u64, 0_u64);
        for transfer in certain {
            let (send, receive) = (transfer.send.row, transfer.receive.row);
            evidence.stamps_are_kept |= same_stamp(context.packets, send, receive) == Some(true);
            if let Some(same) = same_ip_id(context, &evidence, transfer.send, transfer.receive, transfer.offset) {
                agreed += u64::from(same);
                compared += 1;
            }
        }
        let distinct = flow
            .sends
            .windows(2)
            .any(|pair| context.ip_id(pair[0]) != context.ip_id(pair[1]));
        evidence.ip_id_is_kept = compared > 0 && distinct && agreed as f64 >= IP_ID_AGREEMENT * compared as f64;
        evidence
    }

    /// Whether two packets' timestamps show different transmissions.
    pub fn other_stamps(&self, packets: Packets, send: u32, receive: u32) -> bool {
        self.stamps_are_kept && same_stamp(packets, send, receive) == Some(false)
    }
}

/// A send or a receive of the bytes in question: its row, and where its own bytes begin in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub row: u32,
    pub start: i64,
}

/// IP ID of the packet that carries the byte at `offset`, if there is one.
fn ip_id_at(context: &Context, evidence: &Evidence, carrier: Carrier, offset: i64) -> Option<u16> {
    let id = u16::try_from(context.ip_id(carrier.row)).ok()?;
    let packets = (offset - carrier.start) / evidence.full_payload_len.max(1);
    Some(id.wrapping_add((packets & 0xFFFF) as u16))
}

/// Whether two packets agree on the IP ID at `offset`; `None` where one has none.
pub(crate) fn same_ip_id(
    context: &Context,
    evidence: &Evidence,
    send: Carrier,
    receive: Carrier,
    offset: i64,
) -> Option<bool> {
    let a = ip_id_at(context, evidence, send, offset)?;
    let b = ip_id_at(context, evidence, receive, offset)?;
    Some(a == b)
}

/// Whether two packets bear the same timestamp; `None` where one has none.
pub(crate) fn same_stamp(packets: Packets, send: u32, receive: u32) -> Option<bool> {
    let (sent, received) = (packets.at(send), packets.at(receive));
    let both_stamped = sent.is_stamped() && received.is_stamped();
    both_stamped.then_some(sent.tsval == received.tsval)
}

fn compatible(context: &Context, evidence: &Evidence, pair: (Carrier, Carrier), offset: i64) -> bool {
    let (send, receive) = pair;
    if evidence.other_stamps(context.packets, send.row, receive.row) {
        return false;
    }
    if evidence.ip_id_is_kept && same_ip_id(context, evidence, send, receive, offset) == Some(false) {
        return false;
    }
    let time = |carrier: Carrier| context.packets.at(carrier.row).host_ns;
    context.bound.allows(time(send), time(receive))
}

/// What a send or a receive was paired with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// The item at this index of the other list.
    Of(usize),
    /// No candidate is left.
    None,
    /// Several candidates are left and nothing distinguishes them.
    Ambiguous,
}

/// Pair `sends` with `receives` (each in time order) of the byte at `offset`. Returns a partner for each.
pub(crate) fn resolve(
    context: &Context,
    evidence: &Evidence,
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
                .filter(|&s| compatible(context, evidence, (sends[s], r), offset))
                .collect()
        })
        .collect();
    pair_certain(&mut candidates, &mut of_sends, &mut of_receives);
    keep_likely(context, sends, receives, &mut candidates);
    pair_certain(&mut candidates, &mut of_sends, &mut of_receives);
    pair_remaining(
        context.certain_transfers.usual().keeps_order,
        &candidates,
        &mut of_sends,
        &mut of_receives,
    );
    (of_sends, of_receives)
}

/// Pair receives that have a single candidate, repeatedly, since each pair removes a candidate from other receives.
fn pair_certain(candidates: &mut [Vec<usize>], of_sends: &mut [Partner], of_receives: &mut [Partner]) {
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

/// Where a receive has several candidates, keep those that are like the flow's certain transfers; all if none is.
fn keep_likely(context: &Context, sends: &[Carrier], receives: &[Carrier], candidates: &mut [Vec<usize>]) {
    let time = |carrier: &Carrier| context.packets.at(carrier.row).host_ns;
    for (receive, left) in receives.iter().zip(candidates).filter(|(_, left)| left.len() > 1) {
        let likely = |&send: &usize| context.certain_transfers.likely(time(&sends[send]), time(receive));
        if left.iter().any(likely) {
            left.retain(likely);
        }
    }
}

/// Pair the receives that still have candidates in order of time, if the flow keeps its order and all those sends
/// arrived; otherwise they are ambiguous.
fn pair_remaining(keeps_order: bool, candidates: &[Vec<usize>], of_sends: &mut [Partner], of_receives: &mut [Partner]) {
    let receives: Vec<usize> = (0..candidates.len()).filter(|&r| !candidates[r].is_empty()).collect();
    let mut sends: Vec<usize> = candidates.iter().flatten().copied().collect();
    sends.sort_unstable();
    sends.dedup();
    let in_order = keeps_order
        && sends.len() == receives.len()
        && receives.iter().zip(&sends).all(|(&r, s)| candidates[r].contains(s));
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
