//! Assembles exchanges, in order of time, from the parts of each connection, and assigns every hop to an exchange.

use crate::by_stream_id::{self, BrokenBy, State, Streams};
use crate::changes::{Change, take_change};
use crate::clean_turns::{TurnEvidence, crossed_count};
use crate::heads::{Head, collect_heads, is_swapped, time_heads};
use crate::later_messages::describe_by_later;
use crate::numbering::{Message, Messages};
use crate::opened::{OpenedConnections, PlacedTables};
use crate::parts::{Part, PartTimes, Role, time_parts};
use crate::ranges::{ByDirection, Range, byte_ranges, last_at_or_before, last_near, server_ns};
use crate::rare_times::{NO_RARE, RareTimes, RareTimesOfAll};
use crate::silences::{Evidence, LONG_SILENCE_NS, PauseCauses, Silence, SilenceFinder, Silent};
use crate::streams::{
    self, ClientMessage, LateMessage, MIN_PIECES, MessageTimes, Shape, Stream, StreamMeter, StreamReason, Stretch,
    add_frames, by_heads, collect_marks, find_unasked, is_quiet,
};
use crate::tls_handshake::keep_application;
use crate::turns::Turns;
use crate::waiting::Waiting;
use crate::{Crossings, Heads, Hops, NO_ROW, UNSEEN, earlier, first_seen, kind};
use twintap_protocols::http1::flag;
use twintap_protocols::registry::{self, REGISTRY};

/// Registry place of an exchange that was found without reading any protocol's messages.
const UNKNOWN_PROTOCOL: u8 = (REGISTRY.len() - 1) as u8;
/// The method whose answer has no body, whatever length its head declares (RFC 9110 §9.3.2).
const HEAD: &[u8] = b"HEAD";
/// The method that requests a tunnel (RFC 9110 §9.3.6).
const CONNECT: &[u8] = b"CONNECT";

/// A request and its final response. Times are trace times in ns, `UNSEEN` where unknown.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Row of its connection.
    pub connection: u32,
    /// The end that was taken for the connection's server sends the requests.
    pub swapped: bool,
    pub ordinal: usize,
    pub request: PartTimes,
    pub response: PartTimes,
    /// Place of its times among [`BuiltExchanges::rare`].
    pub(crate) rare: u32,
    pub given_up_ns: i64,
    /// The shortest round-trip time that the client's capture shows for the connection, where the server's end was not
    /// captured.
    pub round_trip_ns: i64,
    pub uncertainty_ns: i64,
    pub likely_error_ns: i64,
    /// A message head of it was captured.
    pub readable: bool,
    /// Place of its protocol in the registry.
    pub protocol: u8,
    /// Which side reset the exchange's stream, at `given_up_ns`.
    pub broken_by: BrokenBy,
    /// Rows of the heads that show most of request and response, and of the head that shows the transaction id.
    pub request_row: i64,
    pub response_row: i64,
    pub id_row: i64,
    /// Row of the response's head if that shows another id than the request's.
    pub other_id_row: i64,
    /// Row of the head that shows the protocol's result code.
    pub result_row: i64,
    pub complete: bool,
    /// Its answer declared no length, and ended with the server's FIN.
    pub until_close: bool,
    /// Why it is part of a stream; [`StreamReason::Request`] if it is not.
    pub reason: StreamReason,
    asks_head: bool,
    started_ns: i64,
    /// How often, and for how long in total, the server had nothing to send within its response.
    pieces: u32,
    quiet_ns: i64,
}

/// The output of [`build()`](crate::build).
#[derive(Clone, Debug, Default)]
pub struct BuiltExchanges {
    /// By connection.
    pub exchanges: Vec<Exchange>,
    pub rare: RareTimesOfAll,
    /// Places in `exchanges`, in order of time.
    pub by_time: Vec<u32>,
    /// For each hop the place of its exchange in `by_time`, or `NO_PLACE`.
    pub hop_exchange: Vec<u32>,
    /// Long silences of messages; `exchange` is a place in `by_time`.
    pub silences: Vec<Silence>,
    /// Streams, and connections that may be streams, which is decided later by evidence from their servers' other
    /// connections.
    pub streams: Vec<Stream>,
    /// That evidence: when servers sent after a silence, and when messages of any client reached them.
    pub late: Vec<LateMessage>,
    pub said: Vec<ClientMessage>,
}

impl BuiltExchanges {
    /// The exchanges in order of time.
    pub fn in_order(&self) -> impl ExactSizeIterator<Item = &Exchange> {
        self.by_time.iter().map(|place| &self.exchanges[*place as usize])
    }
}

/// When a connection's client opened and closed it, by the client's clock.
struct HandshakeTimes {
    /// The first SYN left.
    asked_ns: i64,
    syns_count: usize,
    /// The SYN-ACK arrived.
    answered_ns: i64,
    /// The client's first acknowledgement without data.
    acknowledged_ns: i64,
    /// It arrived.
    acknowledged_received_ns: i64,
    /// The first data of the server left, and arrived.
    spoken_sent_ns: i64,
    spoken_ns: i64,
    /// The first data of the client left, and arrived.
    asking_sent_ns: i64,
    asking_received_ns: i64,
    /// The place of the client's first byte that was captured.
    asked_from: i64,
    closed_ns: i64,
    /// Either side closed it.
    ended_ns: i64,
}

impl HandshakeTimes {
    /// When the client acknowledged the SYN-ACK, or when that arrived, if its acknowledgement cannot be distinguished
    /// from later ones.
    fn connected_ns(&self, first_sent_ns: i64) -> i64 {
        let is_later = |bound_ns: i64| bound_ns != UNSEEN && self.acknowledged_ns > bound_ns;
        let is_seen = self.acknowledged_ns >= self.answered_ns && !is_later(self.spoken_ns) && !is_later(first_sent_ns);
        if is_seen && self.acknowledged_ns != UNSEEN {
            self.acknowledged_ns
        } else {
            self.answered_ns
        }
    }

    /// Whether the connection was seen to begin, and its server spoke first: before the client sent anything.
    fn is_greeted(&self) -> bool {
        let precedes =
            |one_ns: i64, other_ns: i64| (one_ns != UNSEEN && other_ns != UNSEEN).then_some(one_ns <= other_ns);
        let at_client = precedes(self.spoken_ns, self.asking_sent_ns);
        let is_first = at_client.or_else(|| precedes(self.spoken_sent_ns, self.asking_received_ns));
        self.syns_count > 0 && self.asked_from == 0 && is_first == Some(true)
    }
}

/// Assembles exchanges one connection at a time.
pub struct Builder<'a> {
    /// Hops with their places on the wire, and which connections were opened.
    wire: (&'a Hops<'a>, &'a OpenedConnections),
    /// Of opened connections, places are those of clear bytes.
    hops: &'a Hops<'a>,
    heads: &'a Heads<'a>,
    crossings: &'a Crossings<'a>,
    /// What held senders back, by place in the stream.
    held: PauseCauses,
    built: BuiltExchanges,
    own: ConnectionBuffers,
}

/// Intermediate results of one connection, in buffers that are reused for the next.
#[derive(Default)]
struct ConnectionBuffers {
    heads: Vec<Head>,
    ranges: ByDirection<Vec<Range>>,
    messages: Messages,
    /// Which answer is whose, if messages follow each other without a gap.
    waiting: Waiting,
    turns: Turns,
    /// The connection is divided by turn-taking.
    are_turns: bool,
    /// How many turns show that they are no requests.
    overlapping: usize,
    crossed: Vec<usize>,
    /// Frames that carry stream ids, and the streams found in them.
    streams: Streams,
    state: State,
    /// Where the connection changed its protocol.
    change: Option<Change>,
    parts: ByDirection<Vec<Part>>,
    /// By ordinal, the place of the exchange among the connection's, or `NO_PLACE`.
    place: Vec<u32>,
    /// When each request arrived at the server, and the place of its exchange; ascending.
    request_arrivals: Vec<(i64, u32)>,
    silence_finder: SilenceFinder,
    stretches: Vec<Stretch>,
    /// By ordinal, why the exchange is part of a stream.
    reason: Vec<StreamReason>,
    message_times: MessageTimes,
    stream_meter: StreamMeter,
    /// The last answer ended with the server's FIN.
    ends_with_connection: bool,
}

/// Stands for a place where there is none.
pub const NO_PLACE: u32 = u32::MAX;

impl<'a> Builder<'a> {
    /// A builder for `connections_count` connections.
    pub fn new(
        wire: (&'a Hops<'a>, &'a OpenedConnections),
        placed: &'a PlacedTables<'a>,
        connections_count: usize,
    ) -> Self {
        let PlacedTables {
            hops,
            heads,
            pauses,
            crossings,
        } = placed;
        Self {
            wire,
            hops,
            heads,
            crossings,
            held: pauses.by_place(),
            built: BuiltExchanges {
                // Each head of a request and of its response is seen at two hosts.
                exchanges: Vec::with_capacity(connections_count.max(heads.connection_id.len() / 4)),
                by_time: Vec::new(),
                hop_exchange: vec![NO_PLACE; hops.connection_id.len()],
                ..BuiltExchanges::default()
            },
            own: ConnectionBuffers::default(),
        }
    }

    /// Add the exchanges of a connection, given by its row and its id.
    pub fn add(
        &mut self,
        (connection, connection_id): (u32, i64),
        handshake: bool,
        hop_rows: impl Iterator<Item = usize> + Clone,
        head_rows: impl Iterator<Item = usize> + Clone,
        crossing_rows: impl Iterator<Item = usize>,
    ) {
        let own = &mut self.own;
        collect_heads(self.heads, head_rows.clone(), &mut own.heads);
        let swapped = is_swapped(&own.heads)
            || by_stream_id::is_swapped(self.heads, head_rows.clone())
            || (own.heads.is_empty() && !handshake && streams::is_swapped(self.heads, head_rows.clone()));
        if swapped {
            own.heads
                .iter_mut()
                .for_each(|head| head.from_client = !head.from_client);
        }
        byte_ranges(self.hops, hop_rows.clone(), swapped, &mut own.ranges);
        let is_silent = own.ranges.client.is_empty() && own.ranges.server.is_empty();
        if is_silent && head_rows.clone().next().is_none() {
            return; // only packets without data: of a flood, nearly all connections
        }
        let seen = (handshake, swapped);
        own.state = own.streams.read(self.heads, head_rows.clone(), seen, &mut own.ranges);
        own.forget_heads_in_frames();
        own.change = take_change(&mut own.heads, self.heads);
        let opened = self
            .wire
            .1
            .handshake(connection_id, self.wire.0, hop_rows.clone(), swapped);
        let tls_handshake = if opened.is_some() {
            opened
        } else if own.heads.is_empty() && !swapped && own.state == State::Other {
            keep_application(self.heads, head_rows.clone(), &mut own.ranges)
        } else {
            None
        };
        own.ends_with_connection = ends_with_connection(&own.heads, self.heads, &own.state);
        if own.ends_with_connection {
            own.ends_with_connection = add_fin_byte(self.hops, hop_rows.clone(), swapped, &mut own.ranges.server);
        }
        time_heads(&mut own.heads, &own.ranges);
        own.pair_seamless(handshake);
        own.mark_parts(handshake);
        let handshake_times = handshake_times(self.wire.0, hop_rows.clone(), swapped);
        let is_greeted = own.state == State::Other && handshake_times.is_greeted();
        own.drop_farewell(handshake_times.closed_ns);
        let first = self.built.exchanges.len();
        let rare = &mut self.built.rare;
        own.collect_exchanges(connection, swapped, &mut self.built.exchanges, rare);
        let exchanges = &mut self.built.exchanges[first..];
        own.remove_closing_byte(exchanges);
        own.note_bodies(exchanges, rare);
        own.describe(exchanges, self.heads);
        own.describe_changed(exchanges, self.heads, head_rows.clone(), swapped);
        apply_connection_times(exchanges, rare, &handshake_times, swapped);
        own.apply_stream_ends(exchanges, self.heads);
        if is_greeted {
            apply_greeting(exchanges, rare, &handshake_times, swapped);
        }
        if let (Some(first), Some(shake)) = (exchanges.first_mut(), tls_handshake) {
            let first = rare.of_mut(first);
            (first.tls_start_ns, first.tls_end_ns) = (shake.start_ns, shake.end_ns);
        }
        note_round_trips(exchanges, &handshake_times, self.hops, hop_rows.clone(), swapped);
        own.assign_hops(
            self.hops,
            hop_rows.clone(),
            (swapped, tls_handshake.is_some() || is_greeted),
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
        own.note_silences(&evidence, hop_rows, exchanges, rare, |place, silence| {
            let exchange = first as u32 + place;
            self.built.silences.push(Silence { exchange, ..silence });
        });
        collect_marks(self.heads, head_rows.clone(), swapped, &own.parts, &mut own.stretches);
        if own.heads.is_empty() && own.state == State::Other && tls_handshake.is_none() {
            add_frames(self.heads, head_rows, swapped, &own.ranges, &mut own.stretches);
        }
        if tls_handshake.is_some_and(|shake| shake.hides_http2) {
            own.stretches.push(Stretch {
                reason: StreamReason::Hidden,
                row: NO_ROW,
                first: 0,
                last: usize::MAX,
            });
        }
        if own.are_turns && own.stretches.is_empty() {
            own.add_overlapping((exchanges, rare), self.crossings, crossing_rows, swapped);
        }
        own.add_unknown();
        own.find_stretches(exchanges, self.heads, handshake_times.ended_ns);
        own.note_streams(connection, exchanges, &mut self.built.streams);
        own.note_message_times(connection, &mut self.built);
    }

    /// Sort the exchanges of all connections by time.
    pub fn finish(mut self) -> BuiltExchanges {
        // Connections came by their id, and their exchanges by time and ordinal, which orders those of one time.
        let started = |(place, one): (usize, &Exchange)| (one.started_ns, place as u32);
        let mut order: Vec<(i64, u32)> = self.built.exchanges.iter().enumerate().map(started).collect();
        order.sort(); // each connection's are in order, which a stable sort only merges
        let mut new_place = vec![0; order.len()];
        for (new, &(_, old)) in order.iter().enumerate() {
            new_place[old as usize] = new as u32;
        }
        for hop in self.built.hop_exchange.iter_mut().filter(|hop| **hop != NO_PLACE) {
            *hop = new_place[*hop as usize];
        }
        for silence in &mut self.built.silences {
            silence.exchange = new_place[silence.exchange as usize];
        }
        self.built.by_time = order.into_iter().map(|(_, place)| place).collect();
        self.built
    }
}

impl ConnectionBuffers {
    /// Fill in the parts of both directions, ascending, with their times.
    fn mark_parts(&mut self, handshake: bool) {
        let Self {
            heads,
            ranges,
            messages,
            waiting,
            turns,
            are_turns,
            streams,
            state,
            change,
            parts,
            ..
        } = self;
        *are_turns = false;
        parts.server.clear();
        parts.client.clear();
        if is_seamless(heads) {
            messages.number_as(heads, &waiting.ordinals);
            waiting.mark_asides(heads, parts);
        } else {
            messages.number(heads, ranges);
        }
        messages.mark_parts(heads, parts);
        if let Some(change) = change {
            change.mark_parts(ranges, parts);
        }
        if *state == State::Read {
            streams.mark_parts(parts);
        } else if messages.numbered.is_empty() && !heads.iter().any(|head| head.order.follows && head.from_client) {
            turns.mark_parts(ranges, parts);
            *are_turns = true;
        }
        for from_client in [false, true] {
            let parts = parts.of_mut(from_client);
            // What a server sends before any request on a new connection (a greeting) is no answer.
            parts.retain(|part| part.ordinal > 0 || !handshake);
            parts.sort_by_key(|part| part.start);
            time_parts(parts, ranges.of(from_client));
        }
    }

    /// Pair the messages of a protocol in which they follow each other without a gap. If too many are missing, or other
    /// protocols' heads are among them, they are forgotten.
    fn pair_seamless(&mut self, handshake: bool) {
        let is_other = |head: &Head| !head.order.is_seamless;
        if self.heads.iter().any(is_other) {
            self.heads.retain(is_other);
        } else if !self.heads.is_empty() && !self.waiting.pair(&self.heads, &self.ranges, handshake) {
            self.heads.clear();
        }
    }

    /// Add the stretches of requests whose answers are not known, since messages are missing.
    fn add_unknown(&mut self) {
        if !is_seamless(&self.heads) {
            return;
        }
        self.stretches
            .extend(self.waiting.unknown.iter().map(|&ordinal| Stretch {
                reason: StreamReason::Unread,
                row: NO_ROW,
                first: ordinal,
                last: ordinal,
            }));
    }

    /// Add the stretch of a connection whose turns are no requests.
    fn add_overlapping(
        &mut self,
        (exchanges, rare): (&[Exchange], &RareTimesOfAll),
        crossings: &Crossings,
        rows: impl Iterator<Item = usize>,
        swapped: bool,
    ) {
        let times = || exchanges.iter().map(|one| rare.of(one));
        let count = |of: fn(&RareTimes) -> &Silent| times().filter(|one| of(one).source_ns > 0).count();
        let evidence = TurnEvidence {
            turns: exchanges.len(),
            crossed: crossed_count(crossings, rows, swapped, &self.ranges, &self.parts, &mut self.crossed),
            resumed: ByDirection {
                client: count(|one| &one.request_silent),
                server: count(|one| &one.response_silent),
            },
        };
        let Some((reason, count)) = evidence.judge() else {
            return;
        };
        self.overlapping = count;
        self.stretches.push(Stretch {
            reason,
            row: NO_ROW,
            first: 0,
            last: usize::MAX,
        });
    }

    /// On a connection with frames, keep only the heads from before its first frame (an upgrade); any other head lies
    /// inside of a frame's content.
    fn forget_heads_in_frames(&mut self) {
        let Self {
            heads, streams, state, ..
        } = self;
        match state {
            State::Other => {}
            State::Read => heads.clear(),
            State::Unread | State::Hidden => heads.retain(|head| streams.is_before(head.from_client, head.offset)),
        }
    }

    /// Drop the client's last message if the client closed the connection sooner afterwards than any answer on it took:
    /// it expects none (PostgreSQL's Terminate, MySQL's COM_QUIT). Not used where message heads show what is a request.
    fn drop_farewell(&mut self, closed_ns: i64) {
        let ByDirection { server, client } = &self.parts;
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

    /// Append the exchanges that the parts belong to, by ordinal.
    fn collect_exchanges(
        &mut self,
        connection: u32,
        swapped: bool,
        exchanges: &mut Vec<Exchange>,
        rare: &mut RareTimesOfAll,
    ) {
        let every = || self.parts.server.iter().chain(&self.parts.client);
        self.place.clear();
        let ordinals_count = every().map(|part| part.ordinal + 1).max().unwrap_or(0);
        self.place.resize(ordinals_count, NO_PLACE);
        every().for_each(|part| self.place[part.ordinal] = 0);
        let first = exchanges.len();
        for (ordinal, place) in self.place.iter_mut().enumerate().filter(|(_, place)| **place == 0) {
            *place = (exchanges.len() - first) as u32;
            let is_asked_by_server = self.state == State::Read && self.streams.streams[ordinal - 1].is_asked_by_server;
            exchanges.push(Exchange::new(connection, swapped != is_asked_by_server, ordinal));
        }
        for part in every() {
            exchanges[first + self.place[part.ordinal] as usize].add(part, rare);
        }
    }

    /// Subtract the FIN that ended the last answer, which [`add_fin_byte`] counted as a byte of it.
    fn remove_closing_byte(&self, exchanges: &mut [Exchange]) {
        let Some(last) = self.parts.server.last().filter(|_| self.ends_with_connection) else {
            return;
        };
        let exchange = &mut exchanges[self.place[last.ordinal] as usize];
        exchange.until_close = true;
        exchange.response.bytes -= 1;
    }

    /// Set how each exchange ended, as its frames show.
    fn apply_stream_ends(&self, exchanges: &mut [Exchange], heads: &Heads) {
        if self.state == State::Hidden {
            exchanges
                .iter_mut()
                .for_each(|exchange| exchange.protocol = self.streams.protocol());
        }
        if self.state != State::Read {
            return;
        }
        for exchange in exchanges {
            let stream = &self.streams.streams[exchange.ordinal - 1];
            exchange.protocol = self.streams.protocol();
            if self.streams.shows_requests() {
                [exchange.request_row, exchange.response_row, exchange.result_row] = stream.rows();
                let has_id = |row: &i64| usize::try_from(*row).is_ok_and(|row| !heads.id.text(row).is_empty());
                let shown = [exchange.request_row, exchange.response_row];
                exchange.id_row = shown.into_iter().find(has_id).unwrap_or(NO_ROW);
                exchange.other_id_row = exchange.other_id_row(heads);
            }
            exchange.complete &= stream.is_answered();
            let (by, at_ns) = stream.breaker();
            if at_ns != UNSEEN {
                let asked_ns = first_seen(exchange.request.last_sent_ns, exchange.request.last_received_ns);
                (exchange.broken_by, exchange.given_up_ns) = (by, at_ns.max(asked_ns));
            }
        }
    }

    /// Set when the client began to send the body that the server had asked for (100 Continue).
    fn note_bodies(&self, exchanges: &mut [Exchange], rare: &mut RareTimesOfAll) {
        if !self.parts.server.iter().any(|part| part.role == Role::Continue) {
            return;
        }
        let place = |part: &Part| self.place[part.ordinal] as usize;
        let waits = |part: &&Part| part.role == Role::Request && rare.of(&exchanges[place(part)]).is_continued();
        let asked: Vec<Part> = self.parts.client.iter().filter(waits).copied().collect();
        for range in &self.ranges.client {
            let Some(part) = last_at_or_before(&asked, range.start, |part| part.start) else {
                continue;
            };
            let times = rare.of_mut(&mut exchanges[place(&asked[part])]);
            if times.continue_received_ns != UNSEEN && range.sent_ns >= times.continue_received_ns {
                times.body_sent_ns = earlier(times.body_sent_ns, range.sent_ns);
            }
        }
    }

    /// The protocol of the connection's heads, as a place in the registry.
    fn ordered_protocol(&self, heads: &Heads) -> u8 {
        let first = self.heads.first();
        first.map_or(UNKNOWN_PROTOCOL, |head| {
            registry::place_of_head_kind(heads.head_kind[head.row as usize])
        })
    }

    /// Set what message heads show of exchanges. An exchange with fewer bytes than its heads declare is incomplete.
    fn describe(&self, exchanges: &mut [Exchange], heads: &Heads) {
        let of_role = |role| move |message: &&Message| message.role == role;
        let place = |message: &Message| self.place.get(message.ordinal).filter(|place| **place != NO_PLACE);
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
                if head.status() > 0 || head.order.is_seamless {
                    exchange.response_row = head.row.into();
                }
                if head.order.is_seamless && head.has_result() {
                    exchange.result_row = head.row.into();
                }
                if exchange.id_row == NO_ROW {
                    exchange.id_row = id_row(head, heads);
                }
                exchange.other_id_row = exchange.other_id_row(heads);
                let bodiless = head.bodiless() || exchange.asks_head;
                exchange.complete &= bodiless || is_enough(exchange.response.bytes, head.due());
            }
        }
        if self.heads.iter().any(|head| head.order.follows) {
            describe_by_later(&self.heads, heads, &self.messages.numbered, &self.place, exchanges);
        }
    }

    /// Set the protocol of what follows the connection's change, as far as a message of it was read.
    fn describe_changed(
        &self,
        exchanges: &mut [Exchange],
        heads: &Heads,
        rows: impl Iterator<Item = usize>,
        swapped: bool,
    ) {
        let Some(change) = &self.change else {
            return;
        };
        let own = exchanges.iter_mut().find(|one| one.ordinal == change.ordinal);
        if let (Some(exchange), Some(protocol)) = (own, change.protocol(heads, rows, swapped)) {
            exchange.protocol = protocol;
        }
    }

    /// Assign payload to the exchange at its place in the stream, and any other hop to the last exchange whose request
    /// had arrived, or else to the first of the connection. Calls `give` with each hop's row and its exchange's index
    /// in `exchanges`.
    fn assign_hops(
        &mut self,
        hops: &Hops,
        rows: impl Iterator<Item = usize>,
        (swapped, is_opened_by_data): (bool, bool),
        exchanges: &[Exchange],
        mut give: impl FnMut(usize, u32),
    ) {
        let Self {
            place,
            request_arrivals,
            parts,
            streams,
            state,
            ..
        } = self;
        for (number, exchange) in exchanges.iter().enumerate() {
            place[exchange.ordinal] = number as u32;
        }
        request_arrivals.clear();
        request_arrivals.extend(exchanges.iter().map(|one| (one.began_ns(), place[one.ordinal])));
        request_arrivals.sort_unstable();
        let (mut near_part, mut near_arrival) = (ByDirection::default(), 0);
        for row in rows {
            let from_client = hops.from_client[row] != swapped;
            let (start, end) = (hops.stream_start[row], hops.stream_end[row]);
            let found = if end > start && *state == State::Read {
                let ordinal = streams.ordinal_of(from_client, start, end);
                ordinal.map(|ordinal| place[ordinal])
            } else if end > start {
                let parts = parts.of(from_client);
                // Bytes before the first part are a greeting or a TLS handshake, which belong to the first exchange as
                // well.
                let ahead = || {
                    request_arrivals
                        .first()
                        .map(|(_, place)| *place)
                        .filter(|_| is_opened_by_data)
                };
                last_near(parts, near_part.of_mut(from_client), start, |part| part.start)
                    .map(|at| place[parts[at].ordinal])
                    .or_else(ahead)
            } else {
                let at = server_ns(from_client, hops.sent_ns[row], hops.received_ns[row]);
                let last = last_near(request_arrivals, &mut near_arrival, at, |(began_ns, _)| *began_ns)
                    .filter(|last| request_arrivals[*last].0 != UNSEEN);
                request_arrivals.get(last.unwrap_or(0)).map(|(_, place)| *place)
            };
            if let Some(place) = found {
                give(row, place);
            }
        }
    }
}

impl ConnectionBuffers {
    /// Add up the silences of each message, and call `keep` with each long silence and the place of its exchange in
    /// `exchanges`. The time before a body for which the client awaits `100 Continue` is no silence.
    fn note_silences(
        &mut self,
        evidence: &Evidence,
        rows: impl Iterator<Item = usize>,
        exchanges: &mut [Exchange],
        rare: &mut RareTimesOfAll,
        mut keep: impl FnMut(u32, Silence),
    ) {
        let Self {
            parts,
            ranges,
            place,
            silence_finder,
            ..
        } = self;
        silence_finder.find(parts, ranges, evidence, rows, |ordinal, in_response, silence| {
            let exchange = &mut exchanges[place[ordinal] as usize];
            let times = rare.of_mut(exchange);
            let waits_to_go_on =
                times.is_continued() && (times.body_sent_ns == UNSEEN || silence.from_ns < times.body_sent_ns);
            if !in_response && waits_to_go_on {
                return;
            }
            let silent = if in_response {
                &mut times.response_silent
            } else {
                &mut times.request_silent
            };
            silent.add(silence.cause, silence.to_ns.saturating_sub(silence.from_ns));
            if is_quiet(in_response, &silence) {
                exchange.pieces += 1;
                exchange.quiet_ns = exchange
                    .quiet_ns
                    .saturating_add(silence.to_ns.saturating_sub(silence.from_ns));
            }
            if silence.to_ns.saturating_sub(silence.from_ns) >= LONG_SILENCE_NS {
                keep(place[ordinal], silence);
            }
        });
    }
}

impl ConnectionBuffers {
    /// Append the exchanges that are streams by their heads or the shape of their traffic to `stretches`, which hold
    /// those that marks show; in order of evidence, strongest first.
    fn find_stretches(&mut self, exchanges: &mut [Exchange], heads: &Heads, ended_ns: i64) {
        let changed = self.change.map(|change| change.ordinal);
        let of_heads = exchanges
            .iter()
            .filter_map(|one| by_heads(heads, one.ordinal, (one.request_row, one.response_row), changed));
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

    /// The same for a connection with frames, of which each stream is judged by itself.
    fn find_stretches_of_frames(&mut self, exchanges: &[Exchange]) {
        let Self {
            stretches,
            streams,
            state,
            ..
        } = self;
        let row = NO_ROW;
        if *state == State::Hidden {
            stretches.clear();
            stretches.push(Stretch {
                reason: StreamReason::Hidden,
                row,
                first: 0,
                last: usize::MAX,
            });
            return;
        }
        if *state == State::Unread {
            let first = stretches
                .iter()
                .filter(|stretch| stretch.reason == StreamReason::Upgrade);
            let first = first.map(|stretch| stretch.first).min().unwrap_or(0);
            stretches.clear();
            stretches.push(Stretch {
                reason: StreamReason::Unread,
                row,
                first,
                last: usize::MAX,
            });
            return;
        }
        for one in exchanges {
            let (stream, ordinal) = (&streams.streams[one.ordinal - 1], one.ordinal);
            let (reason, row) = if stream.is_no_request {
                (StreamReason::Word, stream.rows()[0])
            } else if stream.is_unread {
                (StreamReason::Unread, NO_ROW)
            } else if stream.is_two_way() {
                (StreamReason::TwoWay, NO_ROW)
            } else if !stream.is_answered() && one.pieces >= MIN_PIECES {
                (StreamReason::Unasked, NO_ROW)
            } else {
                continue;
            };
            stretches.push(Stretch {
                reason,
                row,
                first: ordinal,
                last: ordinal,
            });
        }
    }

    /// Set why each exchange is part of a stream. Of the stretches that reach to the connection's end only the one that
    /// begins first counts, so that each exchange is visited once, however many stretches there are.
    fn mark_exchanges(&mut self, exchanges: &mut [Exchange]) {
        let Self { stretches, reason, .. } = self;
        reason.clear();
        if stretches.is_empty() {
            return;
        }
        let ordinals_count = exchanges.iter().map(|one| one.ordinal + 1).max().unwrap_or(0);
        reason.resize(ordinals_count, StreamReason::Request);
        for stretch in stretches.iter().filter(|stretch| stretch.last < ordinals_count) {
            reason[stretch.first..=stretch.last].fill(stretch.reason);
        }
        let rest = stretches.iter().filter(|stretch| stretch.last == usize::MAX);
        if let Some(rest) = rest.min_by_key(|stretch| stretch.first) {
            let behind = reason.iter_mut().skip(rest.first);
            behind
                .filter(|reason| **reason == StreamReason::Request)
                .for_each(|reason| *reason = rest.reason);
        }
        exchanges.iter_mut().for_each(|one| one.reason = reason[one.ordinal]);
    }

    /// Append the streams of a connection: one for each reason.
    fn note_streams(&mut self, connection: u32, exchanges: &[Exchange], streams: &mut Vec<Stream>) {
        if self.stretches.is_empty() {
            return;
        }
        let (http, shown) = (
            [StreamReason::Upgrade, StreamReason::Tunnel, StreamReason::EventStream],
            [StreamReason::Word, StreamReason::Unasked],
        );
        for kind in http
            .into_iter()
            .chain(shown)
            .chain([StreamReason::TwoWay, StreamReason::Unread, StreamReason::Hidden])
            .chain([StreamReason::Crossed, StreamReason::Several])
        {
            let own = exchanges.iter().filter(|one| one.reason == kind);
            let first = self
                .stretches
                .iter()
                .filter(|stretch| stretch.reason == kind)
                .min_by_key(|stretch| stretch.first);
            let (Some(first), true) = (first, own.clone().next().is_some()) else {
                continue;
            };
            let overlap = matches!(kind, StreamReason::Crossed | StreamReason::Several);
            let turns_count = own.clone().count();
            let pieces = if overlap {
                self.overlapping as u32
            } else {
                own.map(|one| one.pieces).sum()
            };
            let known = Stream {
                pieces,
                turns: if overlap { turns_count as u32 } else { 0 },
                ..Stream::of(connection, kind, first.row)
            };
            let is_own = |ordinal| self.reason.get(ordinal) == Some(&kind);
            streams.push(self.stream_meter.measure(&self.parts, &self.ranges, is_own, known));
        }
    }

    /// Note when the client's messages reached the server, and when the server sent after a silence.
    fn note_message_times(&mut self, connection: u32, built: &mut BuiltExchanges) {
        if self.state != State::Other {
            return; // messages of several streams are interleaved
        }
        self.message_times.listen(&self.ranges);
        let came = self.message_times.came.iter();
        built
            .said
            .extend(came.map(|&at_ns| ClientMessage { connection, at_ns }));
        if !self.stretches.is_empty() || !self.message_times.has_late_messages() {
            return;
        }
        let late = self.message_times.late.iter();
        built.late.extend(late.map(|&(at_ns, asked)| LateMessage {
            connection,
            at_ns,
            asked,
        }));
        let whole = Stream::of(connection, StreamReason::Request, NO_ROW);
        let stream = self.stream_meter.measure(&self.parts, &self.ranges, |_| true, whole);
        built.streams.push(Stream {
            turns: self.message_times.turns,
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
            rare: NO_RARE,
            given_up_ns: UNSEEN,
            round_trip_ns: UNSEEN,
            uncertainty_ns: UNSEEN,
            likely_error_ns: UNSEEN,
            readable: false,
            protocol: UNKNOWN_PROTOCOL,
            broken_by: BrokenBy::Nobody,
            request_row: NO_ROW,
            response_row: NO_ROW,
            id_row: NO_ROW,
            other_id_row: NO_ROW,
            result_row: NO_ROW,
            complete: true,
            until_close: false,
            reason: StreamReason::Request,
            asks_head: false,
            started_ns: UNSEEN,
            pieces: 0,
            quiet_ns: 0,
        }
    }

    fn add(&mut self, part: &Part, rare: &mut RareTimesOfAll) {
        self.uncertainty_ns = self.uncertainty_ns.max(part.uncertainty_ns);
        self.likely_error_ns = self.likely_error_ns.max(part.likely_error_ns);
        match part.role {
            Role::Request => self.request = part.times,
            Role::Response => self.response = part.times,
            Role::Continue => {
                let times = rare.of_mut(self);
                times.continue_sent_ns = earlier(times.continue_sent_ns, part.times.first_sent_ns);
                times.continue_received_ns = earlier(times.continue_received_ns, part.times.first_received_ns);
            }
            Role::Interim | Role::Name | Role::Detail | Role::Aside => {}
        }
    }

    fn other_id_row(&self, heads: &Heads) -> i64 {
        let ids =
            [self.id_row, self.response_row].map(|row| usize::try_from(row).map_or(&[][..], |row| heads.id.text(row)));
        let is_other = ids.iter().all(|id| !id.is_empty()) && ids[0] != ids[1];
        if is_other { self.response_row } else { NO_ROW }
    }

    /// When its request reached the server, or the nearest time that was seen.
    fn began_ns(&self) -> i64 {
        let asked_ns = first_seen(self.request.first_received_ns, self.request.first_sent_ns);
        first_seen(first_seen(asked_ns, self.response.first_sent_ns), self.started_ns)
    }
}

/// Whether the messages of a connection follow each other without a gap; of one protocol all do, or none.
fn is_seamless(heads: &[Head]) -> bool {
    heads.first().is_some_and(|head| head.order.is_seamless)
}

/// Whether the last answer of a connection declares no length, so that it ends with the connection (RFC 9112 §6.3).
fn ends_with_connection(own: &[Head], heads: &Heads, state: &State) -> bool {
    let last = |from_client| {
        let of_side = own.iter().filter(move |head: &&Head| head.from_client == from_client);
        of_side.max_by_key(|head| head.offset)
    };
    let Some(answer) = last(false).filter(|_| *state == State::Other) else {
        return false;
    };
    let row = answer.row as usize;
    let says_length = answer.due() != UNSEEN || heads.flags[row] & (flag::CHUNKED | flag::EVENT_STREAM) != 0;
    let is_final = answer.role() == Some(Role::Response) && answer.status() >= 200 && !answer.bodiless();
    let method = last(true).map_or(&[][..], |head| heads.method.text(head.row as usize));
    is_final && answer.end() != UNSEEN && !heads.is_cut(row) && !says_length && ![HEAD, CONNECT].contains(&method)
}

/// Append the server's FIN after its last byte as one more byte, unless the client had left before. Returns whether it
/// was appended.
fn add_fin_byte(
    hops: &Hops,
    rows: impl Iterator<Item = usize> + Clone,
    swapped: bool,
    server: &mut Vec<Range>,
) -> bool {
    let reach = server.iter().map(|range| range.end).max();
    let of_side = |row: &usize, from_client: bool| (hops.from_client[*row] != swapped) == from_client;
    let fins = rows
        .clone()
        .filter(|row| hops.kind[*row] == kind::FIN && of_side(row, false));
    let copies = fins.filter(|row| Some(hops.stream_start[*row]) == reach);
    let ended = copies.map(|row| (hops.sent_ns[row], hops.received_ns[row], errors_of(hops, row)));
    let first = ended.reduce(|one, other| {
        let errors = (one.2.0.max(other.2.0), one.2.1.max(other.2.1));
        (earlier(one.0, other.0), earlier(one.1, other.1), errors)
    });
    let (Some((sent_ns, received_ns, (uncertainty_ns, likely_error_ns))), Some(reach)) = (first, reach) else {
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
        likely_error_ns,
        is_repeat: false,
    });
    true
}

/// How far the delay of a hop may be off, and how far it likely is.
fn errors_of(hops: &Hops, row: usize) -> (i64, i64) {
    (hops.uncertainty_ns[row], hops.likely_error_ns[row])
}

/// Whether a client's FIN closed only its own direction: it still received bytes later and sent no RST (RFC 9293 §3.6).
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

/// Sort a connection's exchanges by their start, give the first one the connection's handshake, and set which were
/// given up and which were captured completely.
fn apply_connection_times(
    own: &mut [Exchange],
    rare: &mut RareTimesOfAll,
    handshake_times: &HandshakeTimes,
    swapped: bool,
) {
    for exchange in own.iter_mut() {
        let times = [exchange.request, exchange.response].map(|part| {
            let sent_ns = earlier(part.first_sent_ns, part.last_sent_ns);
            earlier(sent_ns, earlier(part.first_received_ns, part.last_received_ns))
        });
        exchange.started_ns = earlier(times[0], times[1]);
        exchange.complete &= is_seen(&exchange.request) && is_seen(&exchange.response);
        let asked_ns = exchange.request.first_sent_ns;
        let is_asked_by_client = exchange.swapped == swapped;
        let is_closed = is_asked_by_client && asked_ns != UNSEEN && handshake_times.closed_ns >= asked_ns;
        if exchange.response.bytes == UNSEEN && is_closed {
            exchange.given_up_ns = handshake_times.closed_ns;
        }
    }
    let is_clients = |one: &&mut Exchange| one.swapped == swapped;
    if let Some(first) = own.first_mut().filter(is_clients) {
        let times = rare.of_mut(first);
        times.connect_start_ns = handshake_times.asked_ns;
        times.connected_ns = handshake_times.connected_ns(first.request.first_sent_ns);
    }
    own.sort_by_key(|exchange| exchange.started_ns);
}

/// Give the first exchange of a connection the server's greeting, for which its client waited.
fn apply_greeting(own: &mut [Exchange], rare: &mut RareTimesOfAll, handshake_times: &HandshakeTimes, swapped: bool) {
    if let Some(first) = own.first_mut().filter(|one| one.swapped == swapped) {
        let first = rare.of_mut(first);
        first.connected_received_ns = handshake_times.acknowledged_received_ns;
        first.greeting_sent_ns = handshake_times.spoken_sent_ns;
        first.greeting_received_ns = handshake_times.spoken_ns;
    }
}

/// Set the shortest round-trip time of a connection of which only the client's end was captured: from its handshake, or
/// from a request in one segment to an acknowledgement before its answer. A retransmitted SYN is not used, because it
/// is unknown which copy was answered.
fn note_round_trips(
    own: &mut [Exchange],
    handshake_times: &HandshakeTimes,
    hops: &Hops,
    rows: impl Iterator<Item = usize>,
    swapped: bool,
) {
    let shows_one_end = |one: &Exchange| one.request.first_sent_ns != UNSEEN && one.request.first_received_ns == UNSEEN;
    if own.is_empty() || !own.iter().all(shows_one_end) {
        return;
    }
    let mut fastest_ns = UNSEEN;
    if handshake_times.syns_count == 1
        && handshake_times.asked_ns != UNSEEN
        && handshake_times.answered_ns >= handshake_times.asked_ns
    {
        fastest_ns = handshake_times.answered_ns - handshake_times.asked_ns;
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

fn handshake_times(hops: &Hops, rows: impl Iterator<Item = usize>, swapped: bool) -> HandshakeTimes {
    let mut found = HandshakeTimes {
        asked_ns: UNSEEN,
        syns_count: 0,
        answered_ns: UNSEEN,
        acknowledged_ns: UNSEEN,
        acknowledged_received_ns: UNSEEN,
        spoken_sent_ns: UNSEEN,
        spoken_ns: UNSEEN,
        asking_sent_ns: UNSEEN,
        asking_received_ns: UNSEEN,
        asked_from: i64::MAX,
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
            (kind::ACK, true) => {
                found.acknowledged_ns = earlier(found.acknowledged_ns, hops.sent_ns[row]);
                found.acknowledged_received_ns = earlier(found.acknowledged_received_ns, hops.received_ns[row]);
            }
            (kind::DATA, false) => {
                found.spoken_sent_ns = earlier(found.spoken_sent_ns, hops.sent_ns[row]);
                found.spoken_ns = earlier(found.spoken_ns, hops.received_ns[row]);
            }
            (kind::DATA, true) => {
                found.asking_sent_ns = earlier(found.asking_sent_ns, hops.sent_ns[row]);
                found.asking_received_ns = earlier(found.asking_received_ns, hops.received_ns[row]);
                found.asked_from = found.asked_from.min(hops.stream_start[row]);
            }
            (kind::FIN | kind::RST, true) => found.closed_ns = earlier(found.closed_ns, hops.sent_ns[row]),
            _ => {}
        }
    }
    found
}
