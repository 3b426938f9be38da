//! Zero-length segments: SYN, FIN, RST, pure ACKs, keepalives, window probes. They carry no bytes to tell them by, so they
//! pair on the whole header.
//!
//! Whole headers repeat (up to thousands of times in a capture: duplicate ACKs): among equal headers the IP ID decides
//! where the flow keeps it, then causality and order; if fewer arrived than were sent and nothing tells which, all of
//! them are ambiguous.

use rustc_hash::FxHashSet;

use crate::connections::Placed;
use crate::flow::{Context, Flow, carries_data, kind_of};
use crate::output::{Hop, Kind, State};
use crate::resolve::{Carrier, Evidence, HeaderKey, IP_ID_AGREEMENT, Partner, resolve};

/// Used again for each flow.
#[derive(Default)]
pub(crate) struct Buffers {
    sends: Vec<Placed>,
    receives: Vec<Placed>,
    running_end: Vec<(i64, i64)>,
}

/// Append the hops of all zero-length segments of `flow`.
pub(crate) fn match_control(context: &Context, flow: &Flow, buffers: &mut Buffers, hops: &mut Vec<Hop>) {
    let Buffers {
        sends,
        receives,
        running_end,
    } = buffers;
    for (zero_length, all) in [(&mut *sends, &flow.sends), (&mut *receives, &flow.receives)] {
        zero_length.clear();
        zero_length.extend(all.iter().filter(|p| !carries_data(context.events, p)));
    }
    let history = History::of(context, flow, running_end);
    let key = |p: &Placed| HeaderKey::of(context.events, p.event);
    let same = sends.len() == receives.len() && sends.iter().zip(&*receives).all(|(s, r)| key(s) == key(r));
    if !same || repeats(context, sends) {
        return match_by_header(context, &history, sends, receives, hops);
    }
    hops.extend(sends.iter().zip(receives).map(|(s, r)| {
        let (kind, attempt) = (history.kind(context, s), history.attempt(context, s));
        Hop::both(kind, s.event, r.event, (s.offset, s.offset), attempt)
    }));
}

/// Do two segments have the same header? Then order alone must not decide.
fn repeats(context: &Context, sends: &[Placed]) -> bool {
    if only_advances(context, sends) {
        return false;
    }
    let mut keys: Vec<HeaderKey> = sends.iter().map(|p| HeaderKey::of(context.events, p.event)).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Does each segment differ from the one before in `seq` or `ack`, and do all these steps together stay below 2^32, so
/// that no number comes round to where it was?
fn only_advances(context: &Context, sends: &[Placed]) -> bool {
    let number = |p: &Placed| {
        let i = p.event as usize;
        (context.events.seq[i], context.events.ack[i])
    };
    let steps = sends.windows(2).map(|pair| {
        let ((seq, ack), (next_seq, next_ack)) = (number(&pair[0]), number(&pair[1]));
        u64::from(next_seq.wrapping_sub(seq)) + u64::from(next_ack.wrapping_sub(ack))
    });
    let mut way = 0_u64;
    steps.into_iter().all(|step| {
        way += step;
        step > 0 && way < 1 << 32
    })
}

fn match_by_header(context: &Context, history: &History, sends: &[Placed], receives: &[Placed], hops: &mut Vec<Hop>) {
    let sorted = |list: &[Placed]| {
        let mut keyed: Vec<(HeaderKey, Placed)> = list
            .iter()
            .map(|p| (HeaderKey::of(context.events, p.event), *p))
            .collect();
        keyed.sort_by_key(|(key, _)| *key); // stable: equal headers stay in time order
        keyed
    };
    let (sends, receives) = (sorted(sends), sorted(receives));
    let evidence = weigh_evidence(context, &sends, &receives);
    let (mut s, mut r) = (sends.as_slice(), receives.as_slice());
    while let Some(key) = s
        .first()
        .map(|(k, _)| *k)
        .into_iter()
        .chain(r.first().map(|(k, _)| *k))
        .min()
    {
        let sent = take_equal(&mut s, key);
        let received = take_equal(&mut r, key);
        match_equal_headers(context, history, &evidence, sent, received, hops);
    }
}

type Keyed = (HeaderKey, Placed);

fn take_equal<'a>(list: &mut &'a [Keyed], key: HeaderKey) -> &'a [Keyed] {
    let (equal, rest) = list.split_at(list.partition_point(|(k, _)| *k <= key));
    *list = rest;
    equal
}

fn match_equal_headers(
    context: &Context,
    history: &History,
    evidence: &Evidence,
    sent: &[Keyed],
    received: &[Keyed],
    hops: &mut Vec<Hop>,
) {
    let carriers = |list: &[Keyed]| {
        list.iter()
            .map(|(_, p)| Carrier {
                event: p.event,
                start: p.offset,
            })
            .collect::<Vec<_>>()
    };
    let (sends, receives) = (carriers(sent), carriers(received));
    let Some((_, first)) = sent.first().or(received.first()) else {
        return;
    };
    let (of_sends, of_receives) = resolve(context, evidence, &sends, &receives, first.offset);
    for ((_, placed), partner) in sent.iter().zip(&of_sends) {
        let (kind, attempt) = (history.kind(context, placed), history.attempt(context, placed));
        let range = (placed.offset, placed.offset);
        hops.push(match partner {
            Partner::Of(receive) => Hop::both(kind, placed.event, receives[*receive].event, range, attempt),
            Partner::Ambiguous => Hop::lone_send(kind, placed.event, range, attempt, State::Ambiguous),
            Partner::None => Hop::lone_send(
                kind,
                placed.event,
                range,
                attempt,
                unseen_send(context, history, placed, kind),
            ),
        });
    }
    for ((_, placed), partner) in received.iter().zip(&of_receives) {
        let state = match partner {
            Partner::Of(_) => continue,
            Partner::Ambiguous => State::Ambiguous,
            Partner::None if !sent.is_empty() => State::Unmatched,
            Partner::None if context.sender_is_captured => State::CaptureDropped,
            Partner::None => State::OutsideWindow,
        };
        let kind = history.kind(context, placed);
        hops.push(Hop::lone_receive(
            kind,
            placed.event,
            (placed.offset, placed.offset),
            history.attempt(context, placed),
            state,
        ));
    }
}

/// A SYN or FIN takes a sequence number, so it is acknowledged; it arrived unseen if it was, and only one was sent.
fn unseen_send(context: &Context, history: &History, placed: &Placed, kind: Kind) -> State {
    if !context.receiver_is_captured {
        return State::OutsideWindow;
    }
    let sent_count = match kind {
        Kind::Syn | Kind::SynAck => history.syn_count,
        Kind::Fin => history.fin_count,
        _ => return State::Lost,
    };
    if sent_count == 1 && context.acknowledged() > placed.offset {
        State::CaptureDropped
    } else {
        State::Lost
    }
}

/// What the flow did before and besides one segment.
struct History<'b> {
    syn_count: usize,
    fin_count: usize,
    /// (event, how many went before), by event.
    syns: Vec<(u32, u16)>,
    fins: Vec<(u32, u16)>,
    /// Sends in time order: (event index order is not time order across files, so by position) running end of the stream.
    running_end: &'b [(i64, i64)],
}

impl<'b> History<'b> {
    fn of(context: &Context, flow: &Flow, running_end: &'b mut Vec<(i64, i64)>) -> Self {
        let list = if flow.sends.is_empty() {
            &flow.receives
        } else {
            &flow.sends
        };
        let kind = |p: &Placed| kind_of(context.events, p);
        let of_kind = |wanted: &[Kind]| {
            list.iter()
                .filter(|p| wanted.contains(&kind(p)))
                .map(|p| p.event)
                .zip((0..u16::MAX).chain(std::iter::repeat(u16::MAX - 1)))
                .collect::<Vec<_>>()
        };
        let (mut syns, mut fins) = (of_kind(&[Kind::Syn, Kind::SynAck]), of_kind(&[Kind::Fin]));
        syns.sort_unstable();
        fins.sort_unstable();
        let mut end = i64::MIN;
        running_end.clear();
        running_end.extend(list.iter().map(|p| {
            end = end.max(p.offset + i64::from(context.events.payload_len[p.event as usize]));
            (context.events.host_ns[p.event as usize], end)
        }));
        Self {
            syn_count: syns.len(),
            fin_count: fins.len(),
            syns,
            fins,
            running_end,
        }
    }

    /// 1 + earlier transmissions of the same SYN or FIN; ACKs are not transmitted again (RFC 9293 §3.8).
    fn attempt(&self, context: &Context, placed: &Placed) -> u16 {
        let earlier = match kind_of(context.events, placed) {
            Kind::Syn | Kind::SynAck => &self.syns,
            Kind::Fin => &self.fins,
            _ => return 1,
        };
        let found = earlier.binary_search_by_key(&placed.event, |&(event, _)| event);
        found.map_or(1, |at| earlier[at].1 + 1)
    }

    /// As `kind_of`, and a bare ACK one byte before the stream's end is a probe: of the window if the other's is zero
    /// (RFC 9293 §3.8.6.1), else a keepalive (§3.8.4).
    fn kind(&self, context: &Context, placed: &Placed) -> Kind {
        let kind = kind_of(context.events, placed);
        if kind != Kind::Ack {
            return kind;
        }
        if self.running_end.last().is_none_or(|&(_, end)| placed.offset >= end) {
            return kind; // nothing was ever sent past it
        }
        let at = context.events.host_ns[placed.event as usize];
        let before = self.running_end.partition_point(|&(time, _)| time < at);
        match before.checked_sub(1).map(|index| self.running_end[index].1) {
            Some(end) if placed.offset == end - 1 && end > 0 => {
                if context.receiver_window_closed(at) {
                    Kind::WindowProbe
                } else {
                    Kind::Keepalive
                }
            }
            _ => Kind::Ack,
        }
    }
}

/// IP ID is evidence if what arrived was sent with that very ID, and IDs differ: repeated headers can tell this too.
fn weigh_evidence(context: &Context, sends: &[Keyed], receives: &[Keyed]) -> Evidence {
    let id = |(key, placed): &Keyed| (*key, context.events.ip_id[placed.event as usize]);
    let sent: FxHashSet<(HeaderKey, i32)> = sends.iter().map(id).collect();
    let known = receives.iter().filter(|received| sent.contains(&id(received))).count();
    let distinct = sends.windows(2).any(|pair| id(&pair[0]).1 != id(&pair[1]).1);
    let ip_id_is_kept = distinct && known > 1 && known as f64 >= IP_ID_AGREEMENT * receives.len() as f64;
    Evidence {
        full_payload_len: 1,
        ip_id_is_kept,
        stamps_are_kept: true, // of whole headers that are equal
    }
}
