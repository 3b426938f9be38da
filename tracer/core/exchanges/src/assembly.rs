//! From the parts of each connection to exchanges in order of time, and the exchange of every hop.

use crate::heads::{Head, is_swapped, seen_heads, time_heads};
use crate::numbering::{Message, number};
use crate::parts::{Part, PartTimes, Role, time_parts};
use crate::ranges::{Range, Ways, byte_ranges, located, server_ns};
use crate::turns::turn_parts;
use crate::{Heads, Hops, NO_ROW, UNSEEN, earlier, first_seen, kind};

/// A request and its final response. Times are trace times in ns, `UNSEEN` where unknown.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Row of its connection.
    pub connection: u32,
    /// The connection's server is the one who asks.
    pub swapped: bool,
    pub ordinal: usize,
    pub request: PartTimes,
    pub response: PartTimes,
    pub connect_start_ns: i64,
    pub connected_ns: i64,
    pub continue_sent_ns: i64,
    pub continue_received_ns: i64,
    pub body_sent_ns: i64,
    pub given_up_ns: i64,
    pub uncertainty_ns: i64,
    /// It has heads.
    pub readable: bool,
    /// Rows of the heads that show most of request and response, and of that which shows the transaction id.
    pub request_row: i64,
    pub response_row: i64,
    pub id_row: i64,
    pub complete: bool,
    started_ns: i64,
}

/// Exchanges in order of time, and for each hop the place of its exchange there, or `NO_ROW`.
#[derive(Clone, Debug, Default)]
pub struct Built {
    pub exchanges: Vec<Exchange>,
    pub hop_exchange: Vec<i64>,
}

/// When a connection was opened and closed by its client.
struct Shakes {
    asked_ns: i64,
    answered_ns: i64,
    closed_ns: i64,
}

/// Takes connections one by one.
pub struct Builder<'a> {
    hops: &'a Hops<'a>,
    heads: &'a Heads<'a>,
    built: Built,
    ranges: Ways<Vec<Range>>,
}

impl<'a> Builder<'a> {
    pub fn new(hops: &'a Hops<'a>, heads: &'a Heads<'a>) -> Self {
        let hop_exchange = vec![NO_ROW; hops.connection_id.len()];
        Self {
            hops,
            heads,
            built: Built {
                exchanges: Vec::new(),
                hop_exchange,
            },
            ranges: Ways::default(),
        }
    }

    /// Add the exchanges of a connection.
    pub fn add(&mut self, connection: u32, handshake: bool, hop_rows: &[u32], head_rows: &[u32]) {
        let mut heads = seen_heads(self.heads, head_rows);
        let swapped = is_swapped(&heads);
        if swapped {
            heads.iter_mut().for_each(|head| head.from_client = !head.from_client);
        }
        byte_ranges(self.hops, hop_rows, swapped, &mut self.ranges);
        time_heads(&mut heads, &self.ranges);
        let (messages, mut parts) = number(&heads, &self.ranges);
        if parts.is_empty() {
            parts = turn_parts(&self.ranges);
        }
        // What a server says first on a fresh connection answers nothing.
        parts.retain(|part| part.ordinal > 0 || !handshake);
        let parts = by_way(parts, &self.ranges);
        let mut own = gathered(connection, swapped, &parts);
        note_bodies(&mut own, &parts.client, &self.ranges.client);
        describe(&mut own, &messages, self.heads);
        let mut own: Vec<Exchange> = own.into_iter().flatten().collect();
        settle(&mut own, &shakes(self.hops, hop_rows, swapped));
        self.give_hops(hop_rows, swapped, &parts, &own);
        self.built.exchanges.extend(own);
    }

    /// All of them in order of time.
    pub fn finish(mut self) -> Built {
        let exchanges = &self.built.exchanges;
        let mut order: Vec<u32> = (0..exchanges.len() as u32).collect();
        // Connections came by their id, and their exchanges by time and ordinal: a stable sort keeps that.
        order.sort_by_key(|place| exchanges[*place as usize].started_ns);
        let mut new_place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            new_place[*old as usize] = new as i64;
        }
        for hop in self.built.hop_exchange.iter_mut().filter(|hop| **hop != NO_ROW) {
            *hop = new_place[*hop as usize];
        }
        self.built.exchanges = order.into_iter().map(|old| exchanges[old as usize].clone()).collect();
        self.built
    }

    /// Payload goes to the exchange of its place in the stream; other hops to the last whose request had come, or to
    /// the first of the connection.
    fn give_hops(&mut self, rows: &[u32], swapped: bool, parts: &Ways<Vec<Part>>, own: &[Exchange]) {
        let first = self.built.exchanges.len();
        let mut of_ordinal = vec![NO_ROW; own.iter().map(|exchange| exchange.ordinal + 1).max().unwrap_or(0)];
        for (place, exchange) in own.iter().enumerate() {
            of_ordinal[exchange.ordinal] = (first + place) as i64;
        }
        let mut begun: Vec<(i64, i64)> = own
            .iter()
            .map(|one| (one.began_ns(), of_ordinal[one.ordinal]))
            .collect();
        begun.sort_unstable();
        for row in rows.iter().map(|row| *row as usize) {
            let from_client = self.hops.from_client[row] != swapped;
            let (start, end) = (self.hops.stream_start[row], self.hops.stream_end[row]);
            self.built.hop_exchange[row] = if end > start {
                let parts = parts.of(from_client);
                located(parts, start, |part| part.start).map_or(NO_ROW, |place| of_ordinal[parts[place].ordinal])
            } else {
                let at = server_ns(from_client, self.hops.sent_ns[row], self.hops.received_ns[row]);
                let place = located(&begun, at, |(began_ns, _)| *began_ns).filter(|place| begun[*place].0 != UNSEEN);
                begun.get(place.unwrap_or(0)).map_or(NO_ROW, |(_, exchange)| *exchange)
            };
        }
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
            connect_start_ns: UNSEEN,
            connected_ns: UNSEEN,
            continue_sent_ns: UNSEEN,
            continue_received_ns: UNSEEN,
            body_sent_ns: UNSEEN,
            given_up_ns: UNSEEN,
            uncertainty_ns: UNSEEN,
            readable: false,
            request_row: NO_ROW,
            response_row: NO_ROW,
            id_row: NO_ROW,
            complete: true,
            started_ns: UNSEEN,
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

    /// When its request reached the server, or what is nearest to that.
    fn began_ns(&self) -> i64 {
        let asked_ns = first_seen(self.request.first_received_ns, self.request.first_sent_ns);
        first_seen(first_seen(asked_ns, self.response.first_sent_ns), self.started_ns)
    }
}

/// Parts by direction and place, with their times.
fn by_way(parts: Vec<Part>, ranges: &Ways<Vec<Range>>) -> Ways<Vec<Part>> {
    let mut ways: Ways<Vec<Part>> = Ways::default();
    for part in parts {
        ways.of_mut(part.from_client).push(part);
    }
    for from_client in [false, true] {
        let own = ways.of_mut(from_client);
        own.sort_by_key(|part| part.start);
        time_parts(own, ranges.of(from_client));
    }
    ways
}

/// The exchanges that parts belong to, by ordinal.
fn gathered(connection: u32, swapped: bool, parts: &Ways<Vec<Part>>) -> Vec<Option<Exchange>> {
    let every = || parts.server.iter().chain(&parts.client);
    let mut own = vec![None; every().map(|part| part.ordinal + 1).max().unwrap_or(0)];
    for part in every() {
        own[part.ordinal]
            .get_or_insert_with(|| Exchange::new(connection, swapped, part.ordinal))
            .add(part);
    }
    own
}

/// When the client sent on, where the server had asked for the body.
fn note_bodies(own: &mut [Option<Exchange>], parts: &[Part], ranges: &[Range]) {
    let waits = |part: &&Part| part.role == Role::Request && is_continued(&own[part.ordinal]);
    let asked: Vec<Part> = parts.iter().filter(waits).cloned().collect();
    if asked.is_empty() {
        return;
    }
    for range in ranges {
        let Some(place) = located(&asked, range.start, |part| part.start) else {
            continue;
        };
        if let Some(exchange) = &mut own[asked[place].ordinal]
            && exchange.continue_received_ns != UNSEEN
            && range.sent_ns >= exchange.continue_received_ns
        {
            exchange.body_sent_ns = earlier(exchange.body_sent_ns, range.sent_ns);
        }
    }
}

fn is_continued(exchange: &Option<Exchange>) -> bool {
    exchange
        .as_ref()
        .is_some_and(|one| one.continue_sent_ns != UNSEEN || one.continue_received_ns != UNSEEN)
}

/// What heads say of exchanges; fewer bytes than they declare make one incomplete.
fn describe(own: &mut [Option<Exchange>], messages: &[Message], heads: &Heads) {
    let mut asks_head = vec![false; own.len()];
    for message in messages.iter().filter(|message| message.role == Role::Request) {
        let (Some(head), Some(exchange)) = (&message.head, &mut own[message.ordinal]) else {
            continue;
        };
        exchange.request_row = head.row.into();
        exchange.id_row = id_row(head, heads);
        exchange.complete &= is_enough(exchange.request.bytes, head.due());
        asks_head[message.ordinal] = head.asks_head;
    }
    for message in messages {
        let Some(exchange) = &mut own[message.ordinal] else {
            continue;
        };
        exchange.readable = true;
        if let (Role::Response, Some(head)) = (message.role, &message.head) {
            exchange.response_row = head.row.into();
            if exchange.id_row == NO_ROW {
                exchange.id_row = id_row(head, heads);
            }
            let bodiless = head.bodiless() || asks_head[message.ordinal];
            exchange.complete &= bodiless || is_enough(exchange.response.bytes, head.due());
        }
    }
}

fn id_row(head: &Head, heads: &Heads) -> i64 {
    if heads.id(head.id_row as usize).is_empty() {
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
        (first.connect_start_ns, first.connected_ns) = (shakes.asked_ns, shakes.answered_ns);
    }
    own.sort_by_key(|exchange| exchange.started_ns);
}

/// Whether its first and last bytes were seen, at either end.
fn is_seen(part: &PartTimes) -> bool {
    first_seen(part.first_sent_ns, part.first_received_ns) != UNSEEN
        && first_seen(part.last_sent_ns, part.last_received_ns) != UNSEEN
}

fn shakes(hops: &Hops, rows: &[u32], swapped: bool) -> Shakes {
    let mut found = Shakes {
        asked_ns: UNSEEN,
        answered_ns: UNSEEN,
        closed_ns: UNSEEN,
    };
    for row in rows.iter().map(|row| *row as usize) {
        match (hops.kind[row], hops.from_client[row] != swapped) {
            (kind::SYN, true) => found.asked_ns = earlier(found.asked_ns, hops.sent_ns[row]),
            (kind::SYN_ACK, false) => found.answered_ns = earlier(found.answered_ns, hops.received_ns[row]),
            (kind::FIN | kind::RST, true) => found.closed_ns = earlier(found.closed_ns, hops.sent_ns[row]),
            _ => {}
        }
    }
    found
}
