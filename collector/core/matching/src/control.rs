//! Pairs zero-length segments: SYN, FIN, RST, pure ACKs, keepalives, window probes.
//!
//! They carry no bytes that identify them, so they are paired on the whole header. Whole headers repeat (duplicate
//! ACKs, up to thousands of times in a capture). Equal headers are distinguished by the IP ID if the path keeps it in
//! this flow, then by causality and order; a header with timestamps that was sent once and received once needs neither
//! of these two. If fewer arrived than were sent and nothing shows which ones, all of them are ambiguous.

use std::cell::OnceCell;

use rustc_hash::FxHashSet;

use crate::flow::{Context, Flow, kind_of};
use crate::output::{Hop, Kind, State};
use crate::packets::{Packet, Rows};
use crate::resolve::{Carrier, Evidence, HeaderKey, IP_ID_AGREEMENT, Partner, resolve, same_ip_id, same_stamp};
use crate::{NO_EVENT, flag};

/// Buffers that are reused for each flow.
#[derive(Default)]
pub(crate) struct Buffers {
    sends: Rows,
    receives: Rows,
    syns: Transmissions,
    fins: Transmissions,
}

/// Rows of one flow's SYNs, or its FINs, with the number of earlier ones; by row.
type Transmissions = Vec<(u32, u16)>;

/// Append the hops of all zero-length segments of `flow`.
pub(crate) fn match_control(context: &Context, flow: &Flow, buffers: &mut Buffers, hops: &mut Vec<Hop>) {
    let Buffers {
        sends,
        receives,
        syns,
        fins,
    } = buffers;
    for (zero_length, all) in [(&mut *sends, &flow.sends), (&mut *receives, &flow.receives)] {
        zero_length.clear();
        zero_length.extend(all.iter().filter(|&&row| !context.packets.at(row).carries_data()));
    }
    let history = History::of(context, flow, syns, fins);
    let packets = context.packets;
    let key = |&row: &u32| HeaderKey::of(packets.at(row));
    if sends.is_empty() || receives.is_empty() {
        sends.sort_by_key(key); // stable: equal headers stay in time order
        receives.sort_by_key(key);
        hops.extend(
            sends
                .iter()
                .map(|&row| history.hop(row, NO_EVENT, unseen_send(context, &history, row))),
        );
        let state = unseen_receive(context);
        hops.extend(receives.iter().map(|&row| history.hop(NO_EVENT, row, state)));
        return;
    }
    let same = sends.len() == receives.len() && sends.iter().zip(&*receives).all(|(s, r)| key(s) == key(r));
    if !same || repeats(context, sends) {
        return match_by_header(context, &history, sends, receives, hops);
    }
    let pairs = sends.iter().zip(&*receives);
    hops.extend(pairs.map(|(&send, &receive)| history.hop(send, receive, State::Matched)));
}

/// Whether two segments have the same header; if so, order alone must not decide.
fn repeats(context: &Context, sends: &[u32]) -> bool {
    if only_advances(context, sends) {
        return false;
    }
    let mut keys: Vec<HeaderKey> = context.packets.of(sends).map(HeaderKey::of).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

/// Whether each segment differs from the previous one in `seq` or `ack`, and all these steps together stay below 2^32,
/// so that no number wraps to an earlier value.
fn only_advances(context: &Context, sends: &[u32]) -> bool {
    let mut numbers = context.packets.of(sends).map(|packet| (packet.seq, packet.ack));
    let Some(mut before) = numbers.next() else { return true };
    let mut way = 0_u64;
    numbers.all(|(seq, ack)| {
        let step = u64::from(seq.wrapping_sub(before.0)) + u64::from(ack.wrapping_sub(before.1));
        before = (seq, ack);
        way += step;
        step > 0 && way < 1 << 32
    })
}

fn match_by_header(context: &Context, history: &History, sends: &[u32], receives: &[u32], hops: &mut Vec<Hop>) {
    let sorted = |rows: &[u32]| {
        let mut keyed: Vec<HeaderRow> = rows
            .iter()
            .map(|&row| (HeaderKey::of(context.packets.at(row)), row))
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

type HeaderRow = (HeaderKey, u32);

fn take_equal<'a>(list: &mut &'a [HeaderRow], key: HeaderKey) -> &'a [HeaderRow] {
    let (equal, rest) = list.split_at(list.partition_point(|(k, _)| *k <= key));
    *list = rest;
    equal
}

fn match_equal_headers(
    context: &Context,
    history: &History,
    evidence: &Evidence,
    sent: &[HeaderRow],
    received: &[HeaderRow],
    hops: &mut Vec<Hop>,
) {
    let packets = context.packets;
    let carriers = |list: &[HeaderRow]| {
        let carrier = |&(_, row): &HeaderRow| Carrier {
            row,
            start: packets.at(row).offset,
        };
        list.iter().map(carrier).collect::<Vec<_>>()
    };
    let (sends, receives) = (carriers(sent), carriers(received));
    let Some(first) = sends.first().or(receives.first()) else {
        return;
    };
    let (of_sends, of_receives) = if is_one_packet(context, evidence, &sends, &receives) {
        (vec![Partner::Of(0)], vec![Partner::Of(0)])
    } else {
        resolve(context, evidence, &sends, &receives, first.start)
    };
    for (&(_, row), partner) in sent.iter().zip(&of_sends) {
        hops.push(match partner {
            Partner::Of(receive) => history.hop(row, receives[*receive].row, State::Matched),
            Partner::Ambiguous => history.hop(row, NO_EVENT, State::Ambiguous),
            Partner::None => history.hop(row, NO_EVENT, unseen_send(context, history, row)),
        });
    }
    for (&(_, row), partner) in received.iter().zip(&of_receives) {
        let state = match partner {
            Partner::Of(_) => continue,
            Partner::Ambiguous => State::Ambiguous,
            Partner::None if !sent.is_empty() => State::Unmatched,
            Partner::None => unseen_receive(context),
        };
        hops.push(history.hop(NO_EVENT, row, state));
    }
}

/// Whether a header that was sent once and received once is one packet's. With timestamps it is, even against
/// causality, which proves nothing around a clock's step.
fn is_one_packet(context: &Context, evidence: &Evidence, sends: &[Carrier], receives: &[Carrier]) -> bool {
    let ([send], [receive]) = (sends, receives) else {
        return false;
    };
    let other_id = evidence.ip_id_is_kept && same_ip_id(context, evidence, *send, *receive, send.start) == Some(false);
    same_stamp(context.packets, send.row, receive.row) == Some(true) && !other_id
}

/// State of a send without a receive. A SYN or FIN takes a sequence number: if it was acknowledged and sent only once,
/// it arrived although its arrival was not captured.
fn unseen_send(context: &Context, history: &History, row: u32) -> State {
    if !context.receiver_is_captured {
        return State::OutsideWindow;
    }
    let packet = context.packets.at(row);
    let sent_count = match kind_of(packet) {
        Kind::Syn | Kind::SynAck => history.syns.len(),
        Kind::Fin => history.fins.len(),
        _ => return State::Lost,
    };
    if sent_count == 1 && context.acknowledged_end() > packet.offset {
        State::CaptureDropped
    } else {
        State::Lost
    }
}

/// State of a receive of which no send was captured.
fn unseen_receive(context: &Context) -> State {
    if context.sender_is_captured {
        State::CaptureDropped
    } else {
        State::OutsideWindow
    }
}

/// What is known of a flow around one segment.
struct History<'a> {
    context: &'a Context<'a, 'a>,
    /// Its sends, in time order; its receives if no send was captured.
    rows: &'a [u32],
    syns: &'a [(u32, u16)],
    fins: &'a [(u32, u16)],
    /// Where the stream ends; `None` if nothing was sent.
    end: Option<i64>,
    /// No packet ends before an earlier packet's end, so each packet's end is the stream's end at that time.
    only_grows: bool,
    /// End of the stream at each packet, computed only if `only_grows` is false.
    running_end: OnceCell<Vec<i64>>,
}

impl<'a> History<'a> {
    /// `syns` and `fins` are buffers.
    fn of(context: &'a Context, flow: &'a Flow, syns: &'a mut Transmissions, fins: &'a mut Transmissions) -> Self {
        let rows = if flow.sends.is_empty() {
            &flow.receives
        } else {
            &flow.sends
        };
        syns.clear();
        fins.clear();
        let (mut end, mut only_grows) = (i64::MIN, true);
        for &row in rows {
            let packet = context.packets.at(row);
            let own_end = stream_end(packet);
            only_grows &= own_end >= end;
            end = end.max(own_end);
            if packet.has(flag::SYN | flag::FIN) {
                match kind_of(packet) {
                    Kind::Syn | Kind::SynAck => note_transmission(syns, row),
                    Kind::Fin => note_transmission(fins, row),
                    _ => {}
                }
            }
        }
        syns.sort_unstable();
        fins.sort_unstable();
        Self {
            context,
            rows,
            syns,
            fins,
            end: (!rows.is_empty()).then_some(end),
            only_grows,
            running_end: OnceCell::new(),
        }
    }

    /// The hop of a segment, of which at least one end has a row.
    fn hop(&self, send: u32, receive: u32, state: State) -> Hop {
        let own = if send == NO_EVENT { receive } else { send };
        let packet = self.context.packets.at(own);
        Hop {
            kind: self.kind(packet),
            send,
            receive,
            stream_start: packet.offset,
            stream_end: packet.offset,
            attempt: self.attempt(own, packet),
            state,
        }
    }

    /// 1 + earlier transmissions of the same SYN or FIN; ACKs are not transmitted again (RFC 9293 §3.8).
    fn attempt(&self, row: u32, packet: &Packet) -> u16 {
        let earlier = match kind_of(packet) {
            Kind::Syn | Kind::SynAck => self.syns,
            Kind::Fin => self.fins,
            _ => return 1,
        };
        let found = earlier.binary_search_by_key(&row, |&(row, _)| row);
        found.map_or(1, |at| earlier[at].1 + 1)
    }

    /// Kind of a packet. As [`kind_of`], but a bare ACK one byte before the stream's end is a window probe if the
    /// peer's window is zero (RFC 9293 §3.8.6.1), otherwise a keepalive (§3.8.4).
    fn kind(&self, packet: &Packet) -> Kind {
        let kind = kind_of(packet);
        if kind != Kind::Ack || self.end.is_none_or(|end| packet.offset >= end) {
            return kind; // no later byte was sent
        }
        match self.end_before(packet.host_ns) {
            Some(end) if packet.offset == end - 1 && end > 0 => {
                if self.context.receiver_window_closed(packet.host_ns) {
                    Kind::WindowProbe
                } else {
                    Kind::Keepalive
                }
            }
            _ => Kind::Ack,
        }
    }

    /// Where the stream ended just before a moment; `None` if nothing was sent until then.
    fn end_before(&self, at_ns: i64) -> Option<i64> {
        let packet = |&row: &u32| self.context.packets.at(row);
        let last = self
            .rows
            .partition_point(|row| packet(row).host_ns < at_ns)
            .checked_sub(1)?;
        if self.only_grows {
            return Some(stream_end(packet(&self.rows[last])));
        }
        let ends = self.running_end.get_or_init(|| {
            let grown = self.rows.iter().scan(i64::MIN, |end, row| {
                *end = stream_end(packet(row)).max(*end);
                Some(*end)
            });
            grown.collect()
        });
        Some(ends[last])
    }
}

/// Stream offset after the last byte that a packet carries.
fn stream_end(packet: &Packet) -> i64 {
    packet.offset + i64::from(packet.payload_len)
}

/// Append a row, given in time order.
fn note_transmission(transmissions: &mut Transmissions, row: u32) {
    let earlier = transmissions.len().min(usize::from(u16::MAX - 1));
    transmissions.push((row, earlier as u16));
}

/// Judge this flow's IP IDs. They are evidence if segments arrived with the IDs that they were sent with, and the IDs
/// differ. Repeated headers suffice to decide this.
fn weigh_evidence(context: &Context, sends: &[HeaderRow], receives: &[HeaderRow]) -> Evidence {
    let id = |(key, row): &HeaderRow| (*key, context.ip_id(*row));
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
