//! Assembles exchanges, in order of time, from the parts of each connection, and assigns every hop to an exchange.

use crate::by_stream_id::{self, By, State, Streams};
use crate::heads::{Head, is_swapped, seen_heads, time_heads};
use crate::numbering::{Message, Messages};
use crate::parts::{Part, PartTimes, Role, time_parts};
use crate::ranges::{Range, Ways, byte_ranges, last_at_or_before, server_ns};
use crate::secured::keep_application;
use crate::silences::{Evidence, Finder, Held, LONG_NS, Pauses, Silence, Silent};
use crate::streams::{
    self, FEWEST_PIECES, Late, Meter, Said, Shape, Stream, Stretch, Talk, Why, add_frames, by_heads, collect_marks,
    find_unasked, is_quiet,
};
use crate::turns::Turns;
use crate::{Heads, Hops, NO_ROW, UNSEEN, earlier, first_seen, kind};
use twintap_protocols::http1::flag;
use twintap_protocols::registry::{self, REGISTRY};

/// Of an exchange that no protocol's messages made.
const UNKNOWN: u8 = (REGISTRY.len() - 1) as u8;
/// Asks for an answer without its body, whatever length that declares (RFC 9110 §9.3.2).
const HEAD: &[u8] = b"HEAD";
/// Asks for a tunnel (RFC 9110 §9.3.6).
const CONNECT: &[u8] = b"CONNECT";

/// A request and its final response. Times are trace times in ns, `UNSEEN` where unknown.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Row of its connection.
    pub connection: u32,
    /// The connection's server is the one who asks.
    pub swapped: bool,
    pub ordinal: usize,
    pub request: PartTimes,
    pub response: PartTimes,
    /// When none of its bytes was on the way, of the request and of the response.
    pub request_silent: Silent,
    pub response_silent: Silent,
    pub connect_start_ns: i64,
    pub connected_ns: i64,
    pub tls_start_ns: i64,
    pub tls_end_ns: i64,
    pub continue_sent_ns: i64,
    pub continue_received_ns: i64,
    pub body_sent_ns: i64,
    pub given_up_ns: i64,
    /// The fastest round trip on the connection that its client saw, where its server's end did not show.
    pub round_trip_ns: i64,
    pub uncertainty_ns: i64,
    /// It has heads.
    pub readable: bool,
    /// Place in the registry of the protocol whose messages made it an exchange.
    pub protocol: u8,
    /// Who broke that off, at `given_up_ns`.
    pub broken_by: By,
    /// Rows of the heads that show most of request and response, and of that which shows the transaction id.
    pub request_row: i64,
    pub response_row: i64,
    pub id_row: i64,
    /// Likewise, of the response where it shows another id than the request.
    pub other_id_row: i64,
    pub complete: bool,
    /// Its answer promised no length, and ended with the server's FIN.
    pub until_close: bool,
    /// Why it is part of a stream, or that it is none.
    pub why: Why,
    asks_head: bool,
    started_ns: i64,
    /// How often, and for how long in all, the server had nothing to send within its response.
    pieces: u32,
    quiet_ns: i64,
}

/// Exchanges, by connection.
#[derive(Clone, Debug, Default)]
pub struct Built {
    pub exchanges: Vec<Exchange>,
    /// Their places there, in order of time.
    pub by_time: Vec<u32>,
    /// For each hop the place of its exchange in `by_time`, or `NOWHERE`.
    pub hop_exchange: Vec<u32>,
    /// Long silences of messages; `exchange` is a place in `by_time`.
    pub silences: Vec<Silence>,
    /// Streams, and connections that may be one by what their servers' other connections show.
    pub streams: Vec<Stream>,
    /// What shows that: when these servers spoke late, and when messages of any client came.
    pub late: Vec<Late>,
    pub said: Vec<Said>,
}

impl Built {
    /// The exchanges in order of time.
    pub fn in_order(&self) -> impl ExactSizeIterator<Item = &Exchange> {
        self.by_time.iter().map(|place| &self.exchanges[*place as usize])
    }
}

/// When a connection was opened and closed by its client, by its client's clock.
struct Shakes {
    asked_ns: i64,
    syns_count: usize,
    /// The SYN-ACK arrived.
    answered_ns: i64,
    /// The client's first acknowledgement without data.
    acknowledged_ns: i64,
    /// The first data of the server arrived.
    spoken_ns: i64,
    closed_ns: i64,
    /// Either side closed it.
    ended_ns: i64,
}

impl Shakes {
    /// When the client acknowledged the SYN-ACK, as far as that was seen apart from what it says later.
    fn connected_ns(&self, first_sent_ns: i64) -> i64 {
        let is_later = |bound_ns: i64| bound_ns != UNSEEN && self.acknowledged_ns > bound_ns;
        let is_seen = self.acknowledged_ns >= self.answered_ns && !is_later(self.spoken_ns) && !is_later(first_sent_ns);
        if is_seen && self.acknowledged_ns != UNSEEN {
            self.acknowledged_ns
        } else {
            self.answered_ns
        }
    }
}

/// Takes connections one by one.
pub struct Builder<'a> {
    hops: &'a Hops<'a>,
    heads: &'a Heads<'a>,
    /// What held senders, by place.
    held: Held,
    built: Built,
    own: Own,
}

/// What is made of one connection, in buffers that the next one uses again.
#[derive(Default)]
struct Own {
    heads: Vec<Head>,
    ranges: Ways<Vec<Range>>,
    messages: Messages,
    turns: Turns,
    /// Of frames, and what these say.
    streams: Streams,
    state: State,
    parts: Ways<Vec<Part>>,
    /// Where the exchange of each ordinal stands among the connection's, or `NOWHERE`.
    place: Vec<u32>,
    /// When the request of each exchange was there, and the exchange's place, ascending.
    begun: Vec<(i64, u32)>,
    finder: Finder,
    stretches: Vec<Stretch>,
    /// Of each ordinal why it is part of a stream.
    why: Vec<Why>,
    talk: Talk,
    meter: Meter,
    /// Its last answer ended with the server's FIN.
    closing: bool,
}

/// In place of a place where there is none.
pub const NOWHERE: u32 = u32::MAX;

impl<'a> Builder<'a> {
    /// For so many connections.
    pub fn new(hops: &'a Hops<'a>, heads: &'a Heads<'a>, pauses: &Pauses, connections_count: usize) -> Self {
        Self {
            hops,
            heads,
            held: pauses.by_place(),
            built: Built {
                exchanges: Vec::with_capacity(connections_count),
                by_time: Vec::new(),
                hop_exchange: vec![NOWHERE; hops.connection_id.len()],
                ..Built::default()
            },
            own: Own::default(),
        }
    }

    /// Add the exchanges of a connection: its row, its id.
    pub fn add(
        &mut self,
        (connection, connection_id): (u32, i64),
        handshake: bool,
        hop_rows: impl Iterator<Item = usize> + Clone,
        head_rows: impl Iterator<Item = usize> + Clone,
    ) {
        let own = &mut self.own;
        seen_heads(self.heads, head_rows.clone(), &mut own.heads);
        let swapped = is_swapped(&own.heads)
            || by_stream_id::is_swapped(self.heads, head_rows.clone())
            || (own.heads.is_empty() && !handshake && streams::is_swapped(self.heads, head_rows.clone()));
        if swapped {
            own.heads
                .iter_mut()
                .for_each(|head| head.from_client = !head.from_client);
        }
        byte_ranges(self.hops, hop_rows.clone(), swapped, &mut own.ranges);
        let seen = (handshake, swapped);
        own.state = own.streams.read(self.heads, head_rows.clone(), seen, &mut own.ranges);
        own.forget_heads_in_frames();
        let secured = if own.heads.is_empty() && !swapped && own.state == State::Other {
            keep_application(self.heads, head_rows.clone(), &mut own.ranges)
        } else {
            None
        };
        own.closing = closing(&own.heads, self.heads, &own.state);
        if own.closing {
            own.closing = add_closing(self.hops, hop_rows.clone(), swapped, &mut own.ranges.server);
        }
        time_heads(&mut own.heads, &own.ranges);
        own.mark_parts(handshake);
        let shakes = shakes(self.hops, hop_rows.clone(), swapped);
        own.drop_goodbye(shakes.closed_ns);
        let first = self.built.exchanges.len();
        own.gather(connection, swapped, &mut self.built.exchanges);
        let exchanges = &mut self.built.exchanges[first..];
        own.settle_closing(exchanges);
        own.note_bodies(exchanges);
        own.describe(exchanges, self.heads);
        settle(exchanges, &shakes);
        own.settle_streams(exchanges);
        if let (Some(first), Some(shake)) = (exchanges.first_mut(), secured) {
            (first.tls_start_ns, first.tls_end_ns) = (shake.start_ns, shake.end_ns);
        }
        note_round_trips(exchanges, &shakes, self.hops, hop_rows.clone(), swapped);
        own.give_hops(
            self.hops,
            hop_rows.clone(),
            (swapped, secured.is_some()),
            exchanges,
            |row, place| {
                self.built.hop_exchange[row] = first as u32 + place;
            },
        );
        let evidence = Evidence {
            hops: self.hops,
            held: &self.held,
            connection_id,
            swapped,
        };
        own.note_silences(&evidence, hop_rows, exchanges, |place, silence| {
            let exchange = first as u32 + place;
            self.built.silences.push(Silence { exchange, ..silence });
        });
        collect_marks(self.heads, head_rows.clone(), swapped, &own.parts, &mut own.stretches);
        if own.heads.is_empty() && own.state == State::Other && secured.is_none() {
            add_frames(self.heads, head_rows, swapped, &own.ranges, &mut own.stretches);
        }
        if secured.is_some_and(|shake| shake.hides_http2) {
            own.stretches.push(Stretch {
                why: Why::Hidden,
                row: NO_ROW,
                first: 0,
                last: usize::MAX,
            });
        }
        own.find_stretches(exchanges, self.heads, shakes.ended_ns);
        own.note_streams(connection, exchanges, &mut self.built.streams);
        own.note_talk(connection, &mut self.built);
    }

    /// All of them.
    pub fn finish(mut self) -> Built {
        // Connections came by their id, and their exchanges by time and ordinal, which orders those of one time.
        let started = |(place, one): (usize, &Exchange)| (one.started_ns, place as u32);
        let mut order: Vec<(i64, u32)> = self.built.exchanges.iter().enumerate().map(started).collect();
        order.sort_unstable();
        let mut new_place = vec![0; order.len()];
        for (new, &(_, old)) in order.iter().enumerate() {
            new_place[old as usize] = new as u32;
        }
        for hop in self.built.hop_exchange.iter_mut().filter(|hop| **hop != NOWHERE) {
            *hop = new_place[*hop as usize];
        }
        for silence in &mut self.built.silences {
            silence.exchange = new_place[silence.exchange as usize];
        }
        self.built.by_time = order.into_iter().map(|(_, place)| place).collect();
        self.built
    }
}

impl Own {
    /// Fill in the parts of both directions, ascending, with their times.
    fn mark_parts(&mut self, handshake: bool) {
        let Self {
            heads,
            ranges,
            messages,
            turns,
            streams,
            state,
            parts,
            ..
        } = self;
        parts.server.clear();
        parts.client.clear();
        messages.number(heads, ranges);
        messages.mark_parts(heads, parts);
        if *state == State::Read {
            streams.mark_parts(parts);
        } else if messages.numbered.is_empty() {
            turns.mark_parts(ranges, parts);
        }
        for from_client in [false, true] {
            let parts = parts.of_mut(from_client);
            // What a server says first on a fresh connection answers nothing.
            parts.retain(|part| part.ordinal > 0 || !handshake);
            parts.sort_by_key(|part| part.start);
            time_parts(parts, ranges.of(from_client));
        }
    }

    /// Of HTTP/2, heads are those of what was said before it; others are of what frames hold.
    fn forget_heads_in_frames(&mut self) {
        let Self {
            heads, streams, state, ..
        } = self;
        match state {
            State::Other => {}
            State::Read => heads.clear(),
            State::Unread => heads.retain(|head| streams.is_before(head.from_client, head.offset)),
        }
    }

    /// Leave out what a client says and then closes the connection, sooner than it ever had an answer on it: it expects
    /// none (PostgreSQL's Terminate, MySQL's COM_QUIT). Where heads are visible they say what is a request.
    fn drop_goodbye(&mut self, closed_ns: i64) {
        let Ways { server, client } = &self.parts;
        let (Some(last), Some(answered)) = (client.last(), server.last()) else {
            return;
        };
        let is_open = last.ordinal > answered.ordinal && last.times.last_sent_ns != UNSEEN;
        if self.state == State::Read
            || !self.messages.numbered.is_empty()
            || !is_open
            || closed_ns < last.times.last_sent_ns
        {
            return;
        }
        let answer_of = |part: &Part| {
            let place = server
                .binary_search_by_key(&part.ordinal, |answer| answer.ordinal)
                .ok()?;
            let (asked_ns, heard_ns) = (part.times.last_sent_ns, server[place].times.first_received_ns);
            (asked_ns != UNSEEN && heard_ns != UNSEEN).then(|| heard_ns.saturating_sub(asked_ns))
        };
        let quickest_ns = client.iter().filter_map(answer_of).min();
        if quickest_ns.is_some_and(|quickest_ns| closed_ns - last.times.last_sent_ns < quickest_ns) {
            self.parts.client.pop();
        }
    }

    /// Add the exchanges that the parts belong to, by ordinal.
    fn gather(&mut self, connection: u32, swapped: bool, exchanges: &mut Vec<Exchange>) {
        let every = || self.parts.server.iter().chain(&self.parts.client);
        self.place.clear();
        let ordinals_count = every().map(|part| part.ordinal + 1).max().unwrap_or(0);
        self.place.resize(ordinals_count, NOWHERE);
        every().for_each(|part| self.place[part.ordinal] = 0);
        let first = exchanges.len();
        for (ordinal, place) in self.place.iter_mut().enumerate().filter(|(_, place)| **place == 0) {
            *place = (exchanges.len() - first) as u32;
            exchanges.push(Exchange::new(connection, swapped, ordinal));
        }
        for part in every() {
            exchanges[first + self.place[part.ordinal] as usize].add(part);
        }
    }

    /// The FIN that ended the last answer stands among its bytes, and is none.
    fn settle_closing(&self, exchanges: &mut [Exchange]) {
        let Some(last) = self.parts.server.last().filter(|_| self.closing) else {
            return;
        };
        let exchange = &mut exchanges[self.place[last.ordinal] as usize];
        exchange.until_close = true;
        exchange.response.bytes -= 1;
    }

    /// What frames say of the end of each exchange.
    fn settle_streams(&self, exchanges: &mut [Exchange]) {
        if self.state != State::Read {
            return;
        }
        for exchange in exchanges {
            let stream = &self.streams.streams[exchange.ordinal - 1];
            exchange.protocol = self.streams.protocol();
            if self.streams.shows_requests() {
                exchange.request_row = stream.request_row();
            }
            exchange.complete &= stream.is_answered();
            let (by, at_ns) = stream.breaker();
            if at_ns != UNSEEN {
                (exchange.broken_by, exchange.given_up_ns) = (by, at_ns);
            }
        }
    }

    /// When the client sent on, where the server had asked for the body.
    fn note_bodies(&self, exchanges: &mut [Exchange]) {
        if !exchanges.iter().any(Exchange::is_continued) {
            return;
        }
        let place = |part: &Part| self.place[part.ordinal] as usize;
        let waits = |part: &&Part| part.role == Role::Request && exchanges[place(part)].is_continued();
        let asked: Vec<Part> = self.parts.client.iter().filter(waits).copied().collect();
        for range in &self.ranges.client {
            let Some(part) = last_at_or_before(&asked, range.start, |part| part.start) else {
                continue;
            };
            let exchange = &mut exchanges[place(&asked[part])];
            if exchange.continue_received_ns != UNSEEN && range.sent_ns >= exchange.continue_received_ns {
                exchange.body_sent_ns = earlier(exchange.body_sent_ns, range.sent_ns);
            }
        }
    }

    /// The protocol of the connection's heads.
    fn ordered_protocol(&self, heads: &Heads) -> u8 {
        let first = self.heads.first();
        first.map_or(UNKNOWN, |head| {
            registry::place_of_head_kind(heads.head_kind[head.row as usize])
        })
    }

    /// What heads say of exchanges; fewer bytes than they declare make one incomplete.
    fn describe(&self, exchanges: &mut [Exchange], heads: &Heads) {
        let of_role = |role| move |message: &&Message| message.role == role;
        let place = |message: &Message| self.place.get(message.ordinal).filter(|place| **place != NOWHERE);
        let messages = || self.messages.numbered.iter();
        for message in messages().filter(of_role(Role::Request)) {
            let (Some(head), Some(place)) = (message.head, place(message)) else {
                continue;
            };
            let (head, exchange) = (&self.heads[head as usize], &mut exchanges[*place as usize]);
            exchange.request_row = head.row.into();
            exchange.id_row = id_row(head, heads);
            exchange.complete &= is_enough(exchange.request.bytes, head.due());
            exchange.asks_head = heads.method.text(head.row as usize) == HEAD;
        }
        for message in messages() {
            let Some(place) = place(message) else {
                continue;
            };
            let exchange = &mut exchanges[*place as usize];
            exchange.readable = true;
            exchange.protocol = self.ordered_protocol(heads);
            if let (Role::Response, Some(head)) = (message.role, message.head) {
                let head = &self.heads[head as usize];
                exchange.response_row = head.row.into();
                if exchange.id_row == NO_ROW {
                    exchange.id_row = id_row(head, heads);
                }
                exchange.other_id_row = exchange.other_id_row(heads);
                let bodiless = head.bodiless() || exchange.asks_head;
                exchange.complete &= bodiless || is_enough(exchange.response.bytes, head.due());
            }
        }
    }

    /// Payload goes to the exchange of its place in the stream; other hops to the last whose request had come, or to
    /// the first of the connection. `give` is called with each hop's row and its exchange's index in `exchanges`.
    fn give_hops(
        &mut self,
        hops: &Hops,
        rows: impl Iterator<Item = usize>,
        (swapped, is_secured): (bool, bool),
        exchanges: &[Exchange],
        mut give: impl FnMut(usize, u32),
    ) {
        let Self {
            place,
            begun,
            parts,
            streams,
            state,
            ..
        } = self;
        for (number, exchange) in exchanges.iter().enumerate() {
            place[exchange.ordinal] = number as u32;
        }
        begun.clear();
        begun.extend(exchanges.iter().map(|one| (one.began_ns(), place[one.ordinal])));
        begun.sort_unstable();
        for row in rows {
            let from_client = hops.from_client[row] != swapped;
            let (start, end) = (hops.stream_start[row], hops.stream_end[row]);
            let found = if end > start && *state == State::Read {
                let ordinal = streams.ordinal_of(from_client, start, end);
                ordinal.map(|ordinal| place[ordinal])
            } else if end > start {
                let parts = parts.of(from_client);
                // What is ahead of the first part is a handshake of TLS, and belongs to the first exchange as well.
                let ahead = || begun.first().map(|(_, place)| *place).filter(|_| is_secured);
                last_at_or_before(parts, start, |part| part.start)
                    .map(|at| place[parts[at].ordinal])
                    .or_else(ahead)
            } else {
                let at = server_ns(from_client, hops.sent_ns[row], hops.received_ns[row]);
                let last =
                    last_at_or_before(begun, at, |(began_ns, _)| *began_ns).filter(|last| begun[*last].0 != UNSEEN);
                begun.get(last.unwrap_or(0)).map(|(_, place)| *place)
            };
            if let Some(place) = found {
                give(row, place);
            }
        }
    }
}

impl Own {
    /// When none of a message was on the way; `keep` is given the long silences, with the place of their exchange among
    /// `exchanges`. What comes before a body that the server was asked for is no silence: the client waits for the 100.
    fn note_silences(
        &mut self,
        evidence: &Evidence,
        rows: impl Iterator<Item = usize>,
        exchanges: &mut [Exchange],
        mut keep: impl FnMut(u32, Silence),
    ) {
        let Self {
            parts,
            ranges,
            place,
            finder,
            ..
        } = self;
        finder.find(parts, ranges, evidence, rows, |ordinal, in_response, silence| {
            let exchange = &mut exchanges[place[ordinal] as usize];
            let waits_to_go_on =
                exchange.is_continued() && (exchange.body_sent_ns == UNSEEN || silence.from_ns < exchange.body_sent_ns);
            if !in_response && waits_to_go_on {
                return;
            }
            let silent = if in_response {
                &mut exchange.response_silent
            } else {
                &mut exchange.request_silent
            };
            silent.add(silence.cause, silence.to_ns.saturating_sub(silence.from_ns));
            if is_quiet(in_response, &silence) {
                exchange.pieces += 1;
                exchange.quiet_ns = exchange
                    .quiet_ns
                    .saturating_add(silence.to_ns.saturating_sub(silence.from_ns));
            }
            if silence.to_ns.saturating_sub(silence.from_ns) >= LONG_NS {
                keep(place[ordinal], silence);
            }
        });
    }
}

impl Own {
    /// What of the connection is a stream, beside what its marks have said; `stretches` are in order of evidence.
    fn find_stretches(&mut self, exchanges: &mut [Exchange], heads: &Heads, ended_ns: i64) {
        let of_heads = exchanges
            .iter()
            .filter_map(|one| by_heads(heads, one.ordinal, one.request_row, one.response_row));
        self.stretches.extend(of_heads);
        if self.state != State::Other {
            self.find_stretches_of_frames(exchanges);
        } else if self.stretches.is_empty() && !exchanges.iter().any(|one| one.readable) {
            let shapes = exchanges.iter().map(|one| Shape {
                ordinal: one.ordinal,
                pieces: one.pieces,
                quiet_ns: one.quiet_ns,
                last_sent_ns: first_seen(one.response.last_sent_ns, one.response.last_received_ns),
            });
            self.stretches.extend(find_unasked(shapes, ended_ns));
        }
        self.mark_exchanges(exchanges);
    }

    /// Likewise of HTTP/2, of which each stream is judged alone.
    fn find_stretches_of_frames(&mut self, exchanges: &[Exchange]) {
        let Self {
            stretches,
            streams,
            state,
            ..
        } = self;
        let row = NO_ROW;
        if *state == State::Unread {
            let first = stretches.iter().filter(|stretch| stretch.why == Why::Upgrade);
            let first = first.map(|stretch| stretch.first).min().unwrap_or(0);
            stretches.clear();
            stretches.push(Stretch {
                why: Why::Unread,
                row,
                first,
                last: usize::MAX,
            });
            return;
        }
        for one in exchanges {
            let (stream, ordinal) = (&streams.streams[one.ordinal - 1], one.ordinal);
            let why = if stream.is_two_way() {
                Why::TwoWay
            } else if !stream.is_answered() && one.pieces >= FEWEST_PIECES {
                Why::Unasked
            } else {
                continue;
            };
            stretches.push(Stretch {
                why,
                row,
                first: ordinal,
                last: ordinal,
            });
        }
    }

    /// Why each exchange is part of a stream. Of stretches to the end of the connection the first counts, so that
    /// however many there are each exchange is looked at once.
    fn mark_exchanges(&mut self, exchanges: &mut [Exchange]) {
        let Self { stretches, why, .. } = self;
        why.clear();
        if stretches.is_empty() {
            return;
        }
        let ordinals_count = exchanges.iter().map(|one| one.ordinal + 1).max().unwrap_or(0);
        why.resize(ordinals_count, Why::Request);
        for stretch in stretches.iter().filter(|stretch| stretch.last < ordinals_count) {
            why[stretch.first..=stretch.last].fill(stretch.why);
        }
        let rest = stretches.iter().filter(|stretch| stretch.last == usize::MAX);
        if let Some(rest) = rest.min_by_key(|stretch| stretch.first) {
            let behind = why.iter_mut().skip(rest.first);
            behind
                .filter(|why| **why == Why::Request)
                .for_each(|why| *why = rest.why);
        }
        exchanges.iter_mut().for_each(|one| one.why = why[one.ordinal]);
    }

    /// The streams of a connection: one of each kind.
    fn note_streams(&mut self, connection: u32, exchanges: &[Exchange], streams: &mut Vec<Stream>) {
        if self.stretches.is_empty() {
            return;
        }
        let (http, shown) = ([Why::Upgrade, Why::Tunnel, Why::EventStream], [Why::Word, Why::Unasked]);
        for kind in http
            .into_iter()
            .chain(shown)
            .chain([Why::TwoWay, Why::Unread, Why::Hidden])
        {
            let own = exchanges.iter().filter(|one| one.why == kind);
            let first = self
                .stretches
                .iter()
                .filter(|stretch| stretch.why == kind)
                .min_by_key(|stretch| stretch.first);
            let (Some(first), true) = (first, own.clone().next().is_some()) else {
                continue;
            };
            let known = Stream {
                pieces: own.map(|one| one.pieces).sum(),
                ..Stream::of(connection, kind, first.row)
            };
            let is_own = |ordinal| self.why.get(ordinal) == Some(&kind);
            streams.push(self.meter.measure(&self.parts, &self.ranges, is_own, known));
        }
    }

    /// When the connection's server spoke late, and its client spoke at all.
    fn note_talk(&mut self, connection: u32, built: &mut Built) {
        if self.state != State::Other {
            return; // what is said on it is of several at once
        }
        self.talk.listen(&self.ranges);
        let came = self.talk.came.iter();
        built.said.extend(came.map(|&at_ns| Said { connection, at_ns }));
        if !self.stretches.is_empty() || !self.talk.has_late_messages() {
            return;
        }
        let late = self.talk.late.iter();
        built.late.extend(late.map(|&(at_ns, asked)| Late {
            connection,
            at_ns,
            asked,
        }));
        let whole = Stream::of(connection, Why::Request, NO_ROW);
        let stream = self.meter.measure(&self.parts, &self.ranges, |_| true, whole);
        built.streams.push(Stream {
            turns: self.talk.turns,
            ..stream
        });
    }
}

impl Exchange {
    fn new(connection: u32, swapped: bool, ordinal: usize) -> Self {
        Self {
            connection,
            swapped,
            ordinal,
            request: PartTimes::default(),
            response: PartTimes::default(),
            request_silent: Silent::default(),
            response_silent: Silent::default(),
            connect_start_ns: UNSEEN,
            connected_ns: UNSEEN,
            tls_start_ns: UNSEEN,
            tls_end_ns: UNSEEN,
            continue_sent_ns: UNSEEN,
            continue_received_ns: UNSEEN,
            body_sent_ns: UNSEEN,
            given_up_ns: UNSEEN,
            round_trip_ns: UNSEEN,
            uncertainty_ns: UNSEEN,
            readable: false,
            protocol: UNKNOWN,
            broken_by: By::Nobody,
            request_row: NO_ROW,
            response_row: NO_ROW,
            id_row: NO_ROW,
            other_id_row: NO_ROW,
            complete: true,
            until_close: false,
            why: Why::Request,
            asks_head: false,
            started_ns: UNSEEN,
            pieces: 0,
            quiet_ns: 0,
        }
    }

    fn add(&mut self, part: &Part) {
        self.uncertainty_ns = self.uncertainty_ns.max(part.times.uncertainty_ns);
        match part.role {
            Role::Request => self.request = part.times,
            Role::Response => self.response = part.times,
            Role::Continue => {
                self.continue_sent_ns = earlier(self.continue_sent_ns, part.times.first_sent_ns);
                self.continue_received_ns = earlier(self.continue_received_ns, part.times.first_received_ns);
            }
            Role::Interim => {}
        }
    }

    fn other_id_row(&self, heads: &Heads) -> i64 {
        let ids =
            [self.id_row, self.response_row].map(|row| usize::try_from(row).map_or(&[][..], |row| heads.id.text(row)));
        let is_other = ids.iter().all(|id| !id.is_empty()) && ids[0] != ids[1];
        if is_other { self.response_row } else { NO_ROW }
    }

    /// Whether the server asked for the body.
    fn is_continued(&self) -> bool {
        self.continue_sent_ns != UNSEEN || self.continue_received_ns != UNSEEN
    }

    /// When its request reached the server, or what is nearest to that.
    fn began_ns(&self) -> i64 {
        let asked_ns = first_seen(self.request.first_received_ns, self.request.first_sent_ns);
        first_seen(first_seen(asked_ns, self.response.first_sent_ns), self.started_ns)
    }
}

/// Whether the last answer of a connection promises no length, so that it ends as the connection does (RFC 9112 §6.3).
fn closing(own: &[Head], heads: &Heads, state: &State) -> bool {
    let last = |from_client| {
        let of_side = own.iter().filter(move |head: &&Head| head.from_client == from_client);
        of_side.max_by_key(|head| head.offset)
    };
    let Some(answer) = last(false).filter(|_| *state == State::Other) else {
        return false;
    };
    let row = answer.row as usize;
    let says_length = answer.due() != UNSEEN || heads.flags[row] & (flag::CHUNKED | flag::EVENT_STREAM) != 0;
    let is_final = answer.role() == Some(Role::Response) && answer.status >= 200 && !answer.bodiless();
    let method = last(true).map_or(&[][..], |head| heads.method.text(head.row as usize));
    is_final && answer.end() != UNSEEN && !heads.is_cut(row) && !says_length && ![HEAD, CONNECT].contains(&method)
}

/// Add the server's FIN behind its last byte, as a byte of its own, unless its client had left before.
fn add_closing(hops: &Hops, rows: impl Iterator<Item = usize> + Clone, swapped: bool, server: &mut Vec<Range>) -> bool {
    let reach = server.iter().map(|range| range.end).max();
    let of_side = |row: &usize, from_client: bool| (hops.from_client[*row] != swapped) == from_client;
    let fins = rows
        .clone()
        .filter(|row| hops.kind[*row] == kind::FIN && of_side(row, false));
    let copies = fins.filter(|row| Some(hops.stream_start[*row]) == reach);
    let ended = copies.map(|row| (hops.sent_ns[row], hops.received_ns[row], hops.uncertainty_ns[row]));
    let first = ended.reduce(|one, other| (earlier(one.0, other.0), earlier(one.1, other.1), one.2.max(other.2)));
    let (Some((sent_ns, received_ns, uncertainty_ns)), Some(reach)) = (first, reach) else {
        return false;
    };
    let leaves = |row: &usize| matches!(hops.kind[*row], kind::FIN | kind::RST) && of_side(row, true);
    let is_before = |row: usize| {
        let (at_client, at_server) = (hops.sent_ns[row], hops.received_ns[row]);
        let first_there = at_client != UNSEEN && received_ns != UNSEEN && at_client < received_ns;
        first_there || (at_client == UNSEEN && at_server != UNSEEN && sent_ns != UNSEEN && at_server < sent_ns)
    };
    let left = rows.clone().filter(leaves).find(|row| is_before(*row));
    if left.is_some_and(|row| !goes_on_listening(hops, rows, swapped, row)) {
        return false;
    }
    server.push(Range {
        start: reach,
        end: reach.saturating_add(1),
        origin: reach,
        sent_ns,
        received_ns,
        uncertainty_ns,
        server_ns: first_seen(sent_ns, received_ns),
        new_ns: received_ns,
    });
    true
}

/// Whether a client's FIN ended only what it says: bytes reached it later, and it reset nothing (RFC 9293 §3.6).
fn goes_on_listening(hops: &Hops, mut rows: impl Iterator<Item = usize> + Clone, swapped: bool, fin: usize) -> bool {
    let is_from = |row: &usize, from_client: bool| (hops.from_client[*row] != swapped) == from_client;
    let came_later = |row: usize| {
        let later = |at: &[i64], from: &[i64]| from[fin] != UNSEEN && at[row] > from[fin];
        later(hops.received_ns, hops.sent_ns) || later(hops.sent_ns, hops.received_ns)
    };
    let resets = rows
        .clone()
        .any(|row| hops.kind[row] == kind::RST && is_from(&row, true));
    !resets && rows.any(|row| hops.kind[row] == kind::DATA && is_from(&row, false) && came_later(row))
}

fn id_row(head: &Head, heads: &Heads) -> i64 {
    if heads.id.text(head.id_row as usize).is_empty() {
        NO_ROW
    } else {
        head.id_row.into()
    }
}

fn is_enough(bytes: i64, due: i64) -> bool {
    bytes == UNSEEN || due == UNSEEN || bytes >= due
}

/// What takes all of a connection's exchanges: their order, the first and the one that was given up, what was seen.
fn settle(own: &mut [Exchange], shakes: &Shakes) {
    for exchange in own.iter_mut() {
        let times = [exchange.request, exchange.response].map(|part| {
            let sent_ns = earlier(part.first_sent_ns, part.last_sent_ns);
            earlier(sent_ns, earlier(part.first_received_ns, part.last_received_ns))
        });
        exchange.started_ns = earlier(times[0], times[1]);
        exchange.complete &= is_seen(&exchange.request) && is_seen(&exchange.response);
        let asked_ns = exchange.request.first_sent_ns;
        if exchange.response.bytes == UNSEEN && asked_ns != UNSEEN && shakes.closed_ns >= asked_ns {
            exchange.given_up_ns = shakes.closed_ns;
        }
    }
    if let Some(first) = own.first_mut() {
        first.connect_start_ns = shakes.asked_ns;
        first.connected_ns = shakes.connected_ns(first.request.first_sent_ns);
    }
    own.sort_by_key(|exchange| exchange.started_ns);
}

/// Where a connection shows its client's end only: the fastest round trip there, of its handshake, or of a request in
/// one segment and the acknowledgement that came before its answer. A SYN sent again does not show which one was
/// answered.
fn note_round_trips(
    own: &mut [Exchange],
    shakes: &Shakes,
    hops: &Hops,
    rows: impl Iterator<Item = usize>,
    swapped: bool,
) {
    let shows_one_end = |one: &Exchange| one.request.first_sent_ns != UNSEEN && one.request.first_received_ns == UNSEEN;
    if own.is_empty() || !own.iter().all(shows_one_end) {
        return;
    }
    let mut fastest_ns = UNSEEN;
    if shakes.syns_count == 1 && shakes.asked_ns != UNSEEN && shakes.answered_ns >= shakes.asked_ns {
        fastest_ns = shakes.answered_ns - shakes.asked_ns;
    }
    for row in rows.filter(|&row| hops.kind[row] == kind::ACK && hops.from_client[row] == swapped) {
        let heard_ns = hops.received_ns[row];
        let Some(place) =
            last_at_or_before(own, heard_ns, |one| one.request.first_sent_ns).filter(|_| heard_ns != UNSEEN)
        else {
            continue;
        };
        let (request, response) = (own[place].request, own[place].response);
        let in_time = response.first_received_ns == UNSEEN || heard_ns <= response.first_received_ns;
        if in_time && request.last_sent_ns == request.first_sent_ns {
            fastest_ns = earlier(fastest_ns, heard_ns - request.first_sent_ns);
        }
    }
    own.iter_mut().for_each(|one| one.round_trip_ns = fastest_ns);
}

/// Whether its first and last bytes were seen, at either end.
fn is_seen(part: &PartTimes) -> bool {
    first_seen(part.first_sent_ns, part.first_received_ns) != UNSEEN
        && first_seen(part.last_sent_ns, part.last_received_ns) != UNSEEN
}

fn shakes(hops: &Hops, rows: impl Iterator<Item = usize>, swapped: bool) -> Shakes {
    let mut found = Shakes {
        asked_ns: UNSEEN,
        syns_count: 0,
        answered_ns: UNSEEN,
        acknowledged_ns: UNSEEN,
        spoken_ns: UNSEEN,
        closed_ns: UNSEEN,
        ended_ns: UNSEEN,
    };
    for row in rows {
        if matches!(hops.kind[row], kind::FIN | kind::RST) {
            found.ended_ns = earlier(found.ended_ns, first_seen(hops.sent_ns[row], hops.received_ns[row]));
        }
        match (hops.kind[row], hops.from_client[row] != swapped) {
            (kind::SYN, true) => {
                found.asked_ns = earlier(found.asked_ns, hops.sent_ns[row]);
                found.syns_count += 1;
            }
            (kind::SYN_ACK, false) => found.answered_ns = earlier(found.answered_ns, hops.received_ns[row]),
            (kind::ACK, true) => found.acknowledged_ns = earlier(found.acknowledged_ns, hops.sent_ns[row]),
            (kind::DATA, false) => found.spoken_ns = earlier(found.spoken_ns, hops.received_ns[row]),
            (kind::FIN | kind::RST, true) => found.closed_ns = earlier(found.closed_ns, hops.sent_ns[row]),
            _ => {}
        }
    }
    found
}
