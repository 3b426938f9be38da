//! Address translation between hosts: a NAT or a layer-4 balancer rewrites addresses and ports, and may shift sequence
//! numbers by a constant, so the two ends of one connection know it by two 4-tuples.
//!
//! A SYN-ACK carries both ISNs (one as `ack` - 1) and both timestamps: a fingerprint of 64 bits each way. Take a
//! SYN-ACK that was only ever received under its 4-tuple, and one that was only ever sent under another 4-tuple. They
//! are the same packet if both ISNs are equal or, failing that, if both timestamps are equal and no third SYN-ACK
//! shares them. The events on the server's side are then rewritten to what the client saw, and pairing continues as if
//! nothing had been translated.
//!
//! If a capture began after the handshake, later packets serve as well: a NAT keeps sequence and acknowledgment
//! numbers, and timestamps. Two 4-tuples, each sent and received under by one host only, are one connection if several
//! of their packets agree in all of these, in both directions, and no third 4-tuple shares any of them.
//!
//! Limits: connections without a captured handshake whose translator shifts sequence numbers are not found. A
//! translator that ends the TCP connection itself is a proxy: it has two connections and is shown so. Shifted SACK
//! blocks are not compared.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{Direction, Events, flag};

/// Client and server of a connection, as one host knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    pub client_addr: u32,
    pub client_port: u16,
    pub server_addr: u32,
    pub server_port: u16,
}

/// One connection known by two 4-tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The 4-tuple at the client's host, and the one at the server's.
    pub outer: FourTuple,
    pub inner: FourTuple,
    /// -1 where the handshake was not captured.
    pub outer_client_isn: i64,
    /// What is added to the server side's sequence numbers to get the client side's: for the client's numbers, and for
    /// the server's.
    pub shifts: [u32; 2],
    server_host: u16,
    /// When the server's host first saw it, on its own clock.
    from_ns: i64,
}

impl Translation {
    /// A translation whose handshake was not captured; sequence numbers are the same at both ends.
    pub(crate) fn without_handshake(outer: FourTuple, inner: FourTuple, server_host: u16) -> Self {
        Self {
            outer,
            inner,
            outer_client_isn: -1,
            shifts: [0, 0],
            server_host,
            from_ns: i64::MIN,
        }
    }
}

/// Columns that replace those of the events where an address was translated.
pub(crate) struct RewrittenColumns {
    pub src_addr: Vec<u32>,
    pub dst_addr: Vec<u32>,
    pub src_port: Vec<u16>,
    pub dst_port: Vec<u16>,
    pub seq: Vec<u32>,
    pub ack: Vec<u32>,
    pub sack_hash: Vec<u32>,
}

impl RewrittenColumns {
    /// `events` with the rewritten columns in place.
    pub fn over<'a>(&'a self, events: &Events<'a>) -> Events<'a> {
        Events {
            src_addr: &self.src_addr,
            dst_addr: &self.dst_addr,
            src_port: &self.src_port,
            dst_port: &self.dst_port,
            seq: &self.seq,
            ack: &self.ack,
            sack_hash: &self.sack_hash,
            ..*events
        }
    }
}

/// One SYN-ACK, at all hosts that captured it.
#[derive(Clone, Copy, Debug)]
struct SynAck {
    tuple: FourTuple,
    client_isn: u32,
    server_isn: u32,
    stamps: Option<(u32, u32)>,
    sent_at: Option<u16>,
    received: bool,
}

/// Connections known by two 4-tuples. Cost: one look at each event's flags; the rest only for SYN-ACKs.
pub(crate) fn find(events: &Events) -> Vec<Translation> {
    let lone: Vec<SynAck> = syn_acks(events)
        .into_values()
        .filter(|a| a.sent_at.is_some() != a.received)
        .collect();
    let by_isns = pairs_by_fingerprint(&lone, |answer| Some((answer.client_isn, answer.server_isn)));
    let settled: FxHashSet<FourTuple> = by_isns
        .iter()
        .flat_map(|(outer, inner)| [outer.tuple, inner.tuple])
        .collect();
    let rest: Vec<SynAck> = lone.iter().filter(|a| !settled.contains(&a.tuple)).copied().collect();
    let by_stamps = pairs_by_fingerprint(&rest, |answer| answer.stamps);
    let pairs = by_isns.iter().chain(&by_stamps);
    let mut found: Vec<Translation> = pairs.map(|(outer, inner)| translation(outer, inner)).collect();
    note_beginnings(
        events,
        &mut found,
        by_isns.iter().chain(&by_stamps).map(|(_, inner)| inner),
    );
    found.sort_by_key(|t| (t.server_host, t.from_ns));
    found
}

fn is_syn_ack(events: &Events, event: u32) -> bool {
    events.has(event, flag::SYN) && events.has(event, flag::ACK)
}

/// Events that are a SYN-ACK, ascending. Most blocks of events have none, so the flags of a block are checked together.
fn syn_ack_events(events: &Events) -> Vec<u32> {
    let both = flag::SYN | flag::ACK;
    let mut found = Vec::new();
    for (run, flags) in (0..).step_by(FLAGS_AT_ONCE).zip(events.flags.chunks(FLAGS_AT_ONCE)) {
        if flags.iter().fold(false, |any, flags| any | (flags & both == both)) {
            let syn_acks = (run..).zip(flags).filter(|(_, flags)| *flags & both == both);
            found.extend(syn_acks.map(|(event, _)| event));
        }
    }
    found
}

/// Events whose flags are checked together.
const FLAGS_AT_ONCE: usize = 32;

/// The SYN-ACKs, each once for all hosts. None if all were sent or all were received where they were captured: two make
/// a pair only if one was sent and the other received. So one end's capture of many connections is passed over.
fn syn_acks(events: &Events) -> FxHashMap<(FourTuple, u32, u32), SynAck> {
    let syn_ack_events = syn_ack_events(events);
    let mut found: FxHashMap<(FourTuple, u32, u32), SynAck> = FxHashMap::default();
    let is_of = |direction| move |&event: &u32| events.direction(event) == direction;
    if syn_ack_events.iter().all(is_of(Direction::Send)) || syn_ack_events.iter().all(is_of(Direction::Receive)) {
        return found;
    }
    found.reserve(syn_ack_events.len() / 2); // seen at both ends
    for event in syn_ack_events {
        let i = event as usize;
        let (client_isn, server_isn) = (events.ack[i].wrapping_sub(1), events.seq[i]);
        let tuple = tuple_of(events, event, true);
        let stamped = events.options[i] & crate::option::TIMESTAMPS != 0;
        let answer = found.entry((tuple, client_isn, server_isn)).or_insert(SynAck {
            tuple,
            client_isn,
            server_isn,
            stamps: stamped.then_some((events.tsval[i], events.tsecr[i])),
            sent_at: None,
            received: false,
        });
        match events.direction(event) {
            Direction::Send => answer.sent_at = Some(events.host[i]),
            Direction::Receive => answer.received = true,
            Direction::Loopback | Direction::Unknown => {
                (answer.sent_at, answer.received) = (Some(events.host[i]), true)
            }
        }
    }
    found
}

fn tuple_of(events: &Events, event: u32, from_server: bool) -> FourTuple {
    let i = event as usize;
    let (src, dst) = (
        (events.src_addr[i], events.src_port[i]),
        (events.dst_addr[i], events.dst_port[i]),
    );
    let (client, server) = if from_server { (dst, src) } else { (src, dst) };
    FourTuple {
        client_addr: client.0,
        client_port: client.1,
        server_addr: server.0,
        server_port: server.1,
    }
}

/// Pairs (received, sent) of SYN-ACKs that share a fingerprint with no third one.
fn pairs_by_fingerprint(lone: &[SynAck], fingerprint: impl Fn(&SynAck) -> Option<(u32, u32)>) -> Vec<(SynAck, SynAck)> {
    let mut groups: FxHashMap<(u32, u32), Vec<SynAck>> = FxHashMap::default();
    for answer in lone {
        if let Some(key) = fingerprint(answer) {
            groups.entry(key).or_default().push(*answer);
        }
    }
    let pair = |group: Vec<SynAck>| match group.as_slice() {
        [a, b] if a.received && b.sent_at.is_some() => Some((*a, *b)),
        [a, b] if b.received && a.sent_at.is_some() => Some((*b, *a)),
        _ => None,
    };
    groups.into_values().filter_map(pair).collect()
}

fn translation(outer: &SynAck, inner: &SynAck) -> Translation {
    Translation {
        outer: outer.tuple,
        inner: inner.tuple,
        outer_client_isn: outer.client_isn.into(),
        shifts: [
            outer.client_isn.wrapping_sub(inner.client_isn),
            outer.server_isn.wrapping_sub(inner.server_isn),
        ],
        server_host: inner.sent_at.unwrap_or(crate::NO_HOST),
        from_ns: i64::MIN,
    }
}

/// Set when the server's host first saw each translated connection: the first packet of its handshake there. `inner`
/// are the translations' SYN-ACKs, in the same order.
fn note_beginnings<'a>(events: &Events, translations: &mut [Translation], inner: impl Iterator<Item = &'a SynAck>) {
    if translations.is_empty() {
        return; // nearly always
    }
    let mut first_ns: FxHashMap<(u16, FourTuple, u32), Option<i64>> = FxHashMap::default();
    let keys: Vec<_> = translations
        .iter()
        .zip(inner)
        .map(|(translation, answer)| (translation.server_host, translation.inner, answer.client_isn))
        .collect();
    first_ns.extend(keys.iter().map(|&key| (key, None)));
    for event in (0..)
        .take(events.flags.len())
        .filter(|&event| events.has(event, flag::SYN))
    {
        let i = event as usize;
        let from_server = is_syn_ack(events, event);
        let client_isn = if from_server {
            events.ack[i].wrapping_sub(1)
        } else {
            events.seq[i]
        };
        let key = (events.host[i], tuple_of(events, event, from_server), client_isn);
        if let Some(known) = first_ns.get_mut(&key) {
            *known = Some(known.map_or(events.host_ns[i], |ns| ns.min(events.host_ns[i])));
        }
    }
    for (translation, key) in translations.iter_mut().zip(&keys) {
        translation.from_ns = first_ns[key].unwrap_or(i64::MIN);
    }
}

/// The columns of `events` with the server's side of each translated connection as the client's side knows it.
pub(crate) fn undo_translations(events: &Events, translations: &[Translation]) -> RewrittenColumns {
    let mut rewritten = RewrittenColumns {
        src_addr: events.src_addr.to_vec(),
        dst_addr: events.dst_addr.to_vec(),
        src_port: events.src_port.to_vec(),
        dst_port: events.dst_port.to_vec(),
        seq: events.seq.to_vec(),
        ack: events.ack.to_vec(),
        sack_hash: events.sack_hash.to_vec(),
    };
    let mut inner: FxHashMap<(u16, FourTuple), Vec<&Translation>> = FxHashMap::default();
    let mut shifted_outer: FxHashMap<FourTuple, ()> = FxHashMap::default();
    for translation in translations {
        inner
            .entry((translation.server_host, translation.inner))
            .or_default()
            .push(translation);
        if translation.shifts != [0, 0] {
            shifted_outer.insert(translation.outer, ());
        }
    }
    for event in (0..).take(events.host.len()) {
        let host = events.host[event as usize];
        for from_server in [false, true] {
            let tuple = tuple_of(events, event, from_server);
            if let Some(known) = inner.get(&(host, tuple)) {
                let translation_without_handshake =
                    known.partition_point(|t| t.from_ns <= events.host_ns[event as usize]);
                let acknowledges = events.has(event, flag::ACK);
                rewritten.rewrite(
                    event,
                    known[translation_without_handshake.saturating_sub(1)],
                    from_server,
                    acknowledges,
                );
            } else if shifted_outer.contains_key(&tuple) {
                rewritten.sack_hash[event as usize] = 0;
            }
        }
    }
    rewritten
}

impl RewrittenColumns {
    fn rewrite(&mut self, event: u32, translation: &Translation, from_server: bool, acknowledges: bool) {
        let i = event as usize;
        let outer = &translation.outer;
        let (client, server) = (
            (outer.client_addr, outer.client_port),
            (outer.server_addr, outer.server_port),
        );
        let [client_shift, server_shift] = translation.shifts;
        let (src, dst, of_seq, of_ack) = if from_server {
            (server, client, server_shift, client_shift)
        } else {
            (client, server, client_shift, server_shift)
        };
        (self.src_addr[i], self.src_port[i]) = src;
        (self.dst_addr[i], self.dst_port[i]) = dst;
        self.seq[i] = self.seq[i].wrapping_add(of_seq);
        if acknowledges {
            self.ack[i] = self.ack[i].wrapping_add(of_ack);
        }
        if translation.shifts != [0, 0] {
            self.sack_hash[i] = 0;
        }
    }
}
