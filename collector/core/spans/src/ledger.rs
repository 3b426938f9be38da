//! Where each root request's time went: walks its critical path backwards and attributes the time to the spans on it.
//!
//! # The idea
//! A *visit* is an interval in which a span is at its server. A *window* is the part of the root's time that a visit on
//! the critical path accounts for.
//! 1. The walk starts at the end of a visit's server time. The visit of a child that gave its first byte before then,
//!    and ended last, is what delayed the answer: it is on the path and gets a window.
//! 2. The same step is repeated from the beginning of that child's visit, and so on back to the arrival of the
//!    parent's request. Where no child's visit runs, the parent itself works.
//! 3. Each window is divided among the stretches of its span (connect, network, queue, work …), clipped to the window,
//!    and the walk continues in the visits of its critical children.
//!
//! A child whose answer came after its parent had answered delayed nothing, so it is not on the path. The stamps
//! compared are of one host: the parent's server is the child's client.
//!
//! # When a span begins and ends
//! `start` is the first byte that the client sent (that the server received, if only the server was captured), or the
//! SYN of a connection that was opened for this request; then `connected` … `sent` is the client's pause, which is no
//! part of the duration. If the server speaks first, the client waits for its greeting, and the pause begins with that.
//! `ended` is the last byte of the response that arrived (that was sent, if only the server was captured), or else the
//! moment at which the client gave up. A root without either has no duration: it and all spans below it get zeros.
//! Callers pass the columns; a test of theirs leaves out every choice of stamps and compares.
//!
//! # Invariant
//! The stretches of a trace add up to its root's duration: the time of a child's window is subtracted from its parent's
//! work.
//!
//! Cost: a sort of a span's children for each of its windows; traces on all cores. Memory: the output columns.

use std::sync::atomic::{AtomicI64, Ordering};

use rayon::prelude::*;
use twintap_columns::{OutputTable, Values, input_table};

use crate::UNSEEN;
use crate::children::Children;
use crate::silences::{HELD, IDLE, Silences};

/// A thread handles the roots among this many rows at a time.
const ROWS_AT_ONCE: usize = 1 << 12;

input_table! {
    /// Spans as a forest; columns of one length, times in ns, `UNSEEN` where not seen.
    pub struct Nodes {
        /// Row of the parent, `NONE` for a root.
        parent: i64,
        /// 0 for a root whose time is divided.
        depth: i64,
        /// `start` … `sent`, `ended`: see "When a span begins and ends".
        start: i64,
        connected: i64,
        /// The server had the client's acknowledgement of its SYN; this and the two below `UNSEEN` without a greeting.
        connected_received: i64,
        greeting_sent: i64,
        /// The client had the greeting.
        greeted: i64,
        tls_start: i64,
        tls_end: i64,
        sent: i64,
        /// The last byte of the request left.
        last_sent: i64,
        head_arrived: i64,
        /// The server asked for the body (100 Continue); `UNSEEN` if it did not.
        continue_sent: i64,
        continue_received: i64,
        /// The client first sent a byte of the body after that.
        body_sent: i64,
        arrived: i64,
        answered: i64,
        /// The first byte of the response arrived at the client.
        first_received: i64,
        /// The same, or the nearest time that was seen.
        response_begin: i64,
        ended: i64,
        /// The server began to work on the request; `UNSEEN` if not known.
        service_start: i64,
        /// The first of parallel calls to several servers was answered; `UNSEEN` for a single call.
        first_answered: i64,
        /// Waits until a lost SYN, a lost part of the request, and of the response, was retransmitted; ns, 0 for none.
        connect_stall: i64,
        request_stall: i64,
        response_stall: i64,
    }
}

/// Declares the stretches of a span: the place and the column of each.
macro_rules! stretches {
    ($($place:ident($column:literal),)+) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place { $($place),+ }
        $(const $place: usize = Place::$place as usize;)+

        /// Columns of the stretches, as `collector.trace.schema.SPANS` has them.
        const STRETCH_COLUMNS: [&str; [$($column),+].len()] = [$($column),+];
    };
}

stretches! {
    CLIENT("client_ns"),
    CONNECT("connect_ns"),
    TLS("tls_ns"),
    REQUEST("request_network_ns"),
    QUEUE("queue_ns"),
    WORK("work_ns"),
    FAN_OUT_WAIT("fan_out_wait_ns"),
    SERVER_OR_NETWORK("server_or_network_ns"),
    RESPONSE("response_network_ns"),
    STALL("stall_ns"),
    REQUEST_IDLE("request_idle_ns"),
    RESPONSE_IDLE("response_idle_ns"),
    SEND_HELD("send_held_ns"),
    READER_WAIT("reader_wait_ns"),
}

/// How many stretches a span has.
const STRETCHES: usize = STRETCH_COLUMNS.len();

/// Stretches of each span on its root's critical path, in ns and in the order of `STRETCH_COLUMNS`, their sum, and the
/// span's first and last time on the path; all zero off the path.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub stretches: [Vec<i64>; STRETCHES],
    pub critical: Vec<i64>,
    pub window_start: Vec<i64>,
    pub window_end: Vec<i64>,
}

impl OutputTable for Ledger {
    fn into_columns(self) -> Vec<(&'static str, Values)> {
        let sums = [
            ("critical_ns", self.critical),
            ("window_start", self.window_start),
            ("window_end", self.window_end),
        ];
        let stretches = STRETCH_COLUMNS.into_iter().zip(self.stretches);
        let columns = stretches.chain(sums);
        columns.map(|(name, values)| (name, Values::I64(values))).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Connect,
    Greet,
    Secure,
    Ask,
    Main,
}

const KINDS: [Kind; 5] = [Kind::Connect, Kind::Greet, Kind::Secure, Kind::Ask, Kind::Main];

impl Kind {
    /// Whether the visit only opens the connection.
    fn opens(self) -> bool {
        matches!(self, Kind::Connect | Kind::Greet | Kind::Secure)
    }

    /// The stretch that the whole visit is, if it is one.
    fn only_stretch(self) -> Option<usize> {
        match self {
            Kind::Connect => Some(CONNECT),
            Kind::Secure => Some(TLS),
            _ => None,
        }
    }
}

/// A visit of a span to its server: `begin` … `ended` at the client, the others as in `Nodes`.
#[derive(Clone, Copy, Debug)]
struct Visit {
    begin: i64,
    sent: i64,
    arrived: i64,
    answered: i64,
    returned: i64,
    ended: i64,
}

impl Visit {
    /// A visit that only opens the connection.
    fn opening(begin: i64, ended: i64) -> Self {
        Self {
            begin,
            sent: i64::MAX,
            arrived: i64::MAX,
            answered: i64::MAX,
            returned: ended,
            ended,
        }
    }
}

/// The part of a root's time that a visit accounts for.
#[derive(Clone, Copy, Debug)]
struct Window {
    span: usize,
    kind: Kind,
    /// Its parent waits for the rest of an answer that has begun, so no parallel call counts as waited for.
    streams: bool,
    begin: i64,
    end: i64,
}

/// A child's visit; visits are ordered by when their first bytes returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    returned: i64,
    kind: Kind,
    span: u32,
    begin: i64,
    ended: i64,
}

impl Nodes<'_> {
    /// Whether the server's time cannot be distinguished from the network's: the server's stamp is missing for the
    /// request, or for an answer that the client received.
    fn shows_one_end(&self, span: usize) -> bool {
        let is_asked = self.sent[span] != UNSEEN;
        let is_heard = self.first_received[span] != UNSEEN;
        is_asked && (self.arrived[span] == UNSEEN || (self.answered[span] == UNSEEN && is_heard))
    }

    fn visit(&self, span: usize, kind: Kind) -> Option<Visit> {
        let connects = rising([self.start[span], self.connected[span], self.sent[span]]);
        let asked_from = seen_or(self.sent[span], self.start[span]);
        let continue_received = seen_or(self.continue_received[span], self.continue_sent[span]);
        let body_sent = seen_or(self.body_sent[span], continue_received);
        let asks = || {
            let head = [self.sent[span], self.head_arrived[span], self.continue_sent[span]];
            self.continue_sent[span] != UNSEEN
                && rising(head)
                && rising([head[2], continue_received, body_sent, self.arrived[span]])
        };
        match kind {
            Kind::Connect => connects.then(|| Visit::opening(self.start[span], self.connected[span])),
            Kind::Greet => {
                let greets = [self.connected[span], self.greeted[span], self.sent[span]];
                rising(greets).then(|| Visit {
                    begin: greets[0],
                    sent: greets[0],
                    arrived: self.connected_received[span],
                    answered: self.greeting_sent[span],
                    returned: greets[1],
                    ended: greets[1],
                })
            }
            Kind::Secure => {
                let secures = [self.tls_start[span], self.tls_end[span], self.sent[span]];
                rising(secures).then(|| Visit::opening(secures[0], secures[1]))
            }
            Kind::Ask => asks().then(|| Visit {
                begin: asked_from,
                sent: self.sent[span],
                arrived: self.head_arrived[span],
                answered: self.continue_sent[span],
                returned: continue_received,
                ended: continue_received,
            }),
            Kind::Main => Some(Visit {
                begin: if asks() { body_sent } else { asked_from },
                sent: self.sent[span],
                arrived: self.arrived[span],
                answered: self.answered[span],
                returned: seen_or(self.response_begin[span], self.ended[span]),
                ended: self.ended[span],
            }),
        }
    }
}

/// The columns of a ledger while threads fill them. Each row is written only by the thread that handles its trace, so
/// writes need no ordering. All are first written once: the kernel provides a page faster if it is not read first.
struct SharedColumns {
    stretches: [Vec<AtomicI64>; STRETCHES],
    critical: Vec<AtomicI64>,
    window_start: Vec<AtomicI64>,
    window_end: Vec<AtomicI64>,
}

impl SharedColumns {
    fn new(count: usize, with_windows: bool) -> Self {
        let zeros = |count: usize| (0..count).into_par_iter().map(|_| AtomicI64::new(0)).collect();
        let windows = if with_windows { count } else { 0 };
        Self {
            stretches: std::array::from_fn(|_| zeros(count)),
            critical: zeros(count),
            window_start: zeros(windows),
            window_end: zeros(windows),
        }
    }

    fn add(&self, stretch: usize, span: usize, amount: i64) {
        add(&self.stretches[stretch][span], amount);
    }

    fn note(&self, window: Window) {
        let (Some(start), Some(end)) = (self.window_start.get(window.span), self.window_end.get(window.span)) else {
            return;
        };
        let (first, last) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        let is_new = (first, last) == (0, 0);
        start.store(
            if is_new { window.begin } else { window.begin.min(first) },
            Ordering::Relaxed,
        );
        end.store(
            if is_new { window.end } else { window.end.max(last) },
            Ordering::Relaxed,
        );
    }

    fn into_ledger(self, nodes: &Nodes, silences: &Silences) -> Ledger {
        let plain = |column: Vec<AtomicI64>| column.into_iter().map(AtomicI64::into_inner).collect::<Vec<_>>();
        let mut stretches = self.stretches.map(plain);
        take_out_stalls(&mut stretches, nodes);
        take_out_short_silences(&mut stretches, silences);
        Ledger {
            stretches,
            critical: plain(self.critical),
            window_start: plain(self.window_start),
            window_end: plain(self.window_end),
        }
    }
}

fn add(held: &AtomicI64, amount: i64) {
    if amount != 0 {
        held.store(held.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}

/// Move the waits for retransmissions out of their stretches, at most what each stretch has.
fn take_out_stalls(stretches: &mut [Vec<i64>; STRETCHES], nodes: &Nodes) {
    let stalls = [
        (CONNECT, nodes.connect_stall),
        (REQUEST, nodes.request_stall),
        (RESPONSE, nodes.response_stall),
    ];
    for (stretch, stalls) in stalls {
        for (span, &stall) in stalls.iter().enumerate().filter(|(_, stall)| **stall != 0) {
            let waited = stall.min(stretches[stretch][span]);
            stretches[stretch][span] -= waited;
            stretches[STALL][span] += waited;
        }
    }
}

/// The stretch that a silence of this cause belongs to.
fn stretch_of(in_response: bool, cause: u8) -> usize {
    match (cause, in_response) {
        (IDLE, false) => REQUEST_IDLE,
        (IDLE, true) => RESPONSE_IDLE,
        (HELD, _) => SEND_HELD,
        _ => READER_WAIT,
    }
}

/// Move short silences, which have no place in time, out of their stretches, at most what is left of each.
fn take_out_short_silences(stretches: &mut [Vec<i64>; STRETCHES], silences: &Silences) {
    for (place, &row) in silences.short.row.iter().enumerate() {
        let (span, in_response) = (row as usize, silences.short.in_response[place]);
        let stretch = if in_response { RESPONSE } else { REQUEST };
        let silent = silences.short.sum_ns[place].min(stretches[stretch][span]);
        stretches[stretch][span] -= silent;
        stretches[stretch_of(in_response, silences.short.cause[place])][span] += silent;
    }
}

/// Divide each root's time among the spans on its critical path. A root without a beginning or an end has no time.
/// Without `with_windows` the columns of windows are empty.
///
/// # Panics
/// If the columns differ in length, or silences are of no span.
pub fn share_out(nodes: &Nodes, silences: &Silences, with_windows: bool) -> Ledger {
    let count = nodes.parent.len();
    assert!(nodes.is_consistent(), "columns differ in length");
    assert!(silences.is_consistent(count), "silences of no span");
    let (children, shared) = (Children::new(nodes.parent), SharedColumns::new(count, with_windows));
    (0..count.div_ceil(ROWS_AT_ONCE)).into_par_iter().for_each(|range| {
        let mut walk = Walk {
            nodes,
            silences,
            children: &children,
            ledger: &shared,
            windows: Vec::new(),
            answers: Vec::new(),
            latest: Vec::new(),
        };
        let rows = range * ROWS_AT_ONCE..count.min((range + 1) * ROWS_AT_ONCE);
        rows.filter(|&span| nodes.depth[span] == 0)
            .for_each(|root| walk.follow_root(root));
    });
    shared.into_ledger(nodes, silences)
}

struct Walk<'a> {
    nodes: &'a Nodes<'a>,
    silences: &'a Silences<'a>,
    children: &'a Children,
    ledger: &'a SharedColumns,
    /// Windows that are not yet divided.
    windows: Vec<Window>,
    /// Visits of the current span's children.
    answers: Vec<Answer>,
    /// For each place in `answers`, the place of the visit that ended last among those up to it.
    latest: Vec<usize>,
}

impl Walk<'_> {
    /// Divide a root's time. Its own visits tile it: one lasts until the next begins. The time between a handshake and
    /// the next visit is no part of it.
    fn follow_root(&mut self, span: usize) {
        let (start, ended) = (self.nodes.start[span], self.nodes.ended[span]);
        if start == UNSEEN || ended == UNSEEN || ended <= start {
            return;
        }
        let mut end = ended;
        for kind in KINDS.into_iter().rev() {
            if let Some(visit) = self.nodes.visit(span, kind) {
                let begin = visit.begin.min(ended);
                if kind.opens() {
                    end = end.min(visit.ended);
                }
                self.windows.push(Window {
                    span,
                    kind,
                    streams: false,
                    begin,
                    end,
                });
                end = begin;
            }
        }
        let mut done = 0;
        while done < self.windows.len() {
            self.share(self.windows[done]);
            done += 1;
        }
        self.windows.clear();
    }

    /// Divide a window among its span's stretches, and append the windows of its critical children.
    fn share(&mut self, window: Window) {
        let Window { span, kind, begin, .. } = window;
        let nodes = self.nodes;
        let Some(visit) = nodes.visit(span, kind) else {
            return;
        };
        self.ledger.note(window);
        add(&self.ledger.critical[span], window.end - begin);
        let end = match kind {
            Kind::Main if !window.streams => inside(nodes.first_answered[span], window.end, begin, window.end),
            _ => window.end,
        };
        self.ledger.add(FAN_OUT_WAIT, span, window.end - end);
        if let Some(opening) = kind.only_stretch() {
            self.ledger.add(opening, span, end - begin);
            return;
        }
        if kind == Kind::Greet && nodes.greeting_sent[span] == UNSEEN {
            self.ledger.add(SERVER_OR_NETWORK, span, end - begin);
            return;
        }
        let sent = inside(visit.sent, begin, begin, end);
        if kind == Kind::Main && nodes.shows_one_end(span) {
            return self.share_at_one_end(span, sent, end);
        }
        let answered = inside(visit.answered, end, sent, end);
        let arrived = inside(visit.arrived, sent, sent.min(answered), answered);
        let returned = inside(visit.returned, end, answered, end);
        let taken_up = if kind == Kind::Greet {
            arrived
        } else {
            nodes.service_start[span]
        };
        let queued = inside(taken_up, arrived, arrived, answered) - arrived;
        let add = |stretch: usize, amount: i64| self.ledger.add(stretch, span, amount);
        add(REQUEST, arrived - sent);
        add(QUEUE, queued);
        add(WORK, answered - arrived - queued);
        if kind == Kind::Ask {
            add(REQUEST, returned - answered);
            add(CLIENT, end - returned);
        } else {
            add(RESPONSE, end - answered);
        }
        self.follow(span, WORK, arrived, answered);
        let streams_from = if kind == Kind::Main { answered } else { end };
        for (from, to) in self.share_silences(span, (sent, arrived), (streams_from, end)) {
            self.follow(span, RESPONSE_IDLE, from, to);
        }
    }

    /// Divide a window of which only one end was captured: the transfers of request and answer, as far as that end
    /// shows them, and between them the server's and the network's time together.
    fn share_at_one_end(&mut self, span: usize, sent: i64, end: i64) {
        let nodes = self.nodes;
        // The server asked for the body before the last byte was sent, and worked before it asked.
        let is_asked = nodes.continue_received[span] != UNSEEN && nodes.continue_sent[span] == UNSEEN;
        let last_sent = if is_asked { sent } else { nodes.last_sent[span] };
        let from = inside(seen_or(nodes.arrived[span], last_sent), sent, sent, end);
        let until = inside(
            seen_or(nodes.answered[span], nodes.first_received[span]),
            end,
            from,
            end,
        );
        let add = |stretch: usize, amount: i64| self.ledger.add(stretch, span, amount);
        add(REQUEST, from - sent);
        add(SERVER_OR_NETWORK, until - from);
        add(RESPONSE, end - until);
        self.follow(span, SERVER_OR_NETWORK, from, until);
        for (from, to) in self.share_silences(span, (sent, from), (until, end)) {
            self.follow(span, RESPONSE_IDLE, from, to);
        }
    }

    /// Move the long silences of a span out of its network time, as far as they lie in these parts of its window.
    /// Returns those in which the server had nothing to send.
    fn share_silences(&self, span: usize, request: (i64, i64), response: (i64, i64)) -> Vec<(i64, i64)> {
        let mut idle = Vec::new();
        for silence in self.silences.of(span) {
            let (within, network) = if silence.in_response {
                (response, RESPONSE)
            } else {
                (request, REQUEST)
            };
            let (from, to) = (silence.from_ns.max(within.0), silence.to_ns.min(within.1));
            if to > from {
                let stretch = stretch_of(silence.in_response, silence.cause);
                self.ledger.add(network, span, from - to);
                self.ledger.add(stretch, span, to - from);
                if stretch == RESPONSE_IDLE {
                    idle.push((from, to));
                }
            }
        }
        idle
    }

    /// Append windows for the children's visits on the critical path from `cursor` back to `floor`, and subtract them
    /// from their parent's `stretch`.
    fn follow(&mut self, span: usize, stretch: usize, floor: i64, mut cursor: i64) {
        if cursor <= floor || self.children.of(span).is_empty() {
            return;
        }
        self.collect_answers(span);
        loop {
            let by_then = self.answers.partition_point(|answer| answer.returned <= cursor);
            let Some(place) = by_then.checked_sub(1) else {
                return;
            };
            let answer = self.answers[self.latest[place]];
            let end = answer.ended.min(cursor);
            if end <= floor {
                return;
            }
            cursor = answer.begin.max(floor);
            self.ledger.add(stretch, span, cursor - end);
            add(&self.ledger.critical[span], cursor - end);
            self.windows.push(Window {
                span: answer.span as usize,
                kind: answer.kind,
                streams: stretch == RESPONSE_IDLE,
                begin: cursor,
                end,
            });
        }
    }

    fn collect_answers(&mut self, span: usize) {
        self.answers.clear();
        for &child in self.children.of(span) {
            for kind in KINDS {
                if let Some(visit) = self.nodes.visit(child as usize, kind) {
                    let (begin, returned, ended) = (visit.begin, visit.returned, visit.ended);
                    if begin != UNSEEN && ended != UNSEEN && returned > begin && ended >= returned {
                        self.answers.push(Answer {
                            returned,
                            kind,
                            span: child,
                            begin,
                            ended,
                        });
                    }
                }
            }
        }
        self.answers.sort_unstable();
        self.latest.clear();
        let mut best = 0;
        for (place, answer) in self.answers.iter().enumerate() {
            if answer.ended >= self.answers[best].ended {
                best = place;
            }
            self.latest.push(best);
        }
    }
}

/// Whether all of the times were seen, in this order.
fn rising<const COUNT: usize>(times: [i64; COUNT]) -> bool {
    times[0] != UNSEEN && times.is_sorted() && times[1..].iter().all(|&at| at != UNSEEN)
}

fn seen_or(at: i64, other: i64) -> i64 {
    if at == UNSEEN { other } else { at }
}

/// A time, or `unseen` where it was not seen, clamped to `low..=high`.
fn inside(at: i64, unseen: i64, low: i64, high: i64) -> i64 {
    seen_or(at, unseen).max(low).min(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silences::{LongSilences, ShortSilences};

    const COLUMNS: usize = 25;

    /// Rows of the columns of `Nodes`, in their order.
    fn shared_out(rows: &[[i64; COLUMNS]]) -> Ledger {
        shared_with(rows, &Silences::default())
    }

    fn shared_with(rows: &[[i64; COLUMNS]], silences: &Silences) -> Ledger {
        let column = |place: usize| rows.iter().map(|row| row[place]).collect::<Vec<i64>>();
        let columns: [Vec<i64>; COLUMNS] = std::array::from_fn(column);
        let nodes = Nodes {
            parent: &columns[0],
            depth: &columns[1],
            start: &columns[2],
            connected: &columns[3],
            tls_start: &columns[4],
            tls_end: &columns[5],
            sent: &columns[6],
            last_sent: &columns[7],
            head_arrived: &columns[8],
            continue_sent: &columns[9],
            continue_received: &columns[10],
            body_sent: &columns[11],
            arrived: &columns[12],
            answered: &columns[13],
            first_received: &columns[14],
            response_begin: &columns[15],
            ended: &columns[16],
            service_start: &columns[17],
            first_answered: &columns[18],
            connect_stall: &columns[19],
            request_stall: &columns[20],
            response_stall: &columns[21],
            connected_received: &columns[22],
            greeting_sent: &columns[23],
            greeted: &columns[24],
        };
        let without = share_out(&nodes, silences, false);
        assert!(without.window_start.is_empty() && without.window_end.is_empty());
        let ledger = share_out(&nodes, silences, true);
        assert_eq!(without.stretches, ledger.stretches);
        ledger
    }

    /// A span of which only the main visit is known.
    fn plain(parent: i64, depth: i64, sent: i64, arrived: i64, answered: i64, ended: i64) -> [i64; COLUMNS] {
        let mut row = [UNSEEN; COLUMNS];
        (row[0], row[1], row[2]) = (parent, depth, sent);
        (row[6], row[7], row[8], row[12]) = (sent, sent, arrived, arrived);
        (row[13], row[15], row[16]) = (answered, answered, ended);
        row[19..22].fill(0);
        row
    }

    #[test]
    fn a_child_takes_its_time_out_of_its_parents_work() {
        let mut rows = [plain(-1, 0, 100, 110, 190, 200), plain(0, 1, 120, 122, 158, 160)];
        rows[1][21] = 1;
        let ledger = shared_out(&rows);
        let of = |span: usize| ledger.stretches.each_ref().map(|stretch| stretch[span]);
        assert_eq!(of(0)[..10], [0, 0, 0, 10, 0, 40, 0, 0, 10, 0]);
        assert_eq!(of(1)[..10], [0, 0, 0, 2, 0, 36, 0, 0, 1, 1]);
        assert_eq!((ledger.window_start[1], ledger.window_end[1]), (120, 160));
        assert_eq!(ledger.stretches.iter().flatten().sum::<i64>(), 100);
        assert_eq!(ledger.critical, [60, 40]);
    }

    #[test]
    fn what_ended_after_the_answer_is_off_the_path() {
        let ledger = shared_out(&[plain(-1, 0, 100, 110, 150, 200), plain(0, 1, 120, 122, 158, 160)]);
        assert!(ledger.stretches.iter().all(|stretch| stretch[1] == 0));
        assert_eq!((ledger.window_start[1], ledger.window_end[1]), (0, 0));
    }

    /// A span that the client of `plain(0, 1, …)` opens its connection for: SYN at 112, up at 114, greeted at 135.
    fn greeted_child() -> [i64; COLUMNS] {
        let mut row = plain(0, 1, 140, 142, 158, 160);
        (row[2], row[3]) = (112, 114);
        (row[22], row[23], row[24]) = (115, 133, 135);
        row
    }

    #[test]
    fn the_wait_for_a_greeting_is_the_work_of_the_server_that_speaks_first() {
        let rows = [plain(-1, 0, 100, 110, 190, 200), greeted_child()];
        let ledger = shared_out(&rows);
        let of = |span: usize| ledger.stretches.each_ref().map(|stretch| stretch[span]);
        assert_eq!(of(0)[..10], [0, 0, 0, 10, 0, 80 - 43, 0, 0, 10, 0]);
        assert_eq!(of(1)[..10], [0, 2, 0, 1 + 2, 0, 18 + 16, 0, 0, 2 + 2, 0]);
        assert_eq!(ledger.critical, [57, 43]);
        let root = shared_out(&[[&[-1, 0][..], &greeted_child()[2..]]
            .concat()
            .try_into()
            .expect("a row")]);
        let of_root = root.stretches.each_ref().map(|stretch| stretch[0]);
        assert_eq!((of_root[..10].to_vec(), root.critical[0]), (of(1)[..10].to_vec(), 43));
    }

    #[test]
    fn without_the_servers_stamp_a_greeting_is_the_servers_and_the_networks() {
        let mut row = greeted_child();
        (row[0], row[1], row[22], row[23]) = (-1, 0, UNSEEN, UNSEEN);
        let ledger = shared_out(&[row]);
        assert_eq!((ledger.stretches[SERVER_OR_NETWORK][0], ledger.critical[0]), (21, 43));
    }

    #[test]
    fn one_end_shows_the_server_and_the_network_together() {
        let mut row = plain(-1, 0, 100, UNSEEN, UNSEEN, 200);
        (row[7], row[14], row[15]) = (105, 180, 180);
        let mut child = plain(0, 1, 120, 122, 158, 160);
        child[4] = 110;
        child[5] = 115;
        let of = |ledger: &Ledger, span: usize| ledger.stretches.each_ref().map(|stretch| stretch[span]);
        assert_eq!(of(&shared_out(&[row]), 0)[..10], [0, 0, 0, 5, 0, 0, 0, 75, 20, 0]);
        let ledger = shared_out(&[row, child]);
        assert_eq!(of(&ledger, 0)[..10], [0, 0, 0, 5, 0, 0, 0, 30, 20, 0]);
        assert_eq!(of(&ledger, 1)[..10], [0, 0, 5, 2, 0, 36, 0, 0, 2, 0]);
    }

    #[test]
    fn one_end_shows_that_the_client_had_nothing_to_send() {
        let mut row = plain(-1, 0, 100, UNSEEN, UNSEEN, 200);
        (row[7], row[14], row[15]) = (150, 180, 180);
        let silent = Silences {
            long: LongSilences {
                row: &[0],
                in_response: &[false],
                cause: &[IDLE],
                from_ns: &[110],
                to_ns: &[140],
            },
            ..Silences::default()
        };
        let ledger = shared_with(&[row], &silent);
        let of = |stretch: usize| ledger.stretches[stretch][0];
        assert_eq!(
            [of(REQUEST), of(REQUEST_IDLE), of(SERVER_OR_NETWORK), of(RESPONSE)],
            [20, 30, 30, 20]
        );
    }

    /// A parent that streams what its child sends: 100 … 300, first byte at 150; the child is silent from 160 to 260.
    fn streaming() -> [[i64; COLUMNS]; 2] {
        let mut rows = [plain(-1, 0, 100, 110, 150, 300), plain(0, 1, 120, 122, 140, 290)];
        (rows[0][15], rows[1][15]) = (155, 145);
        rows
    }

    fn silences<'a>(row: &'a [i64], from_ns: &'a [i64], to_ns: &'a [i64]) -> Silences<'a> {
        Silences {
            long: LongSilences {
                row,
                in_response: &[true; 2][..row.len()],
                cause: &[IDLE; 2][..row.len()],
                from_ns,
                to_ns,
            },
            ..Silences::default()
        }
    }

    #[test]
    fn a_parent_with_nothing_to_send_waited_for_what_its_child_did_not_send() {
        let ledger = shared_with(&streaming(), &silences(&[0, 1], &[170, 160], &[270, 260]));
        let of = |stretch: usize| [ledger.stretches[stretch][0], ledger.stretches[stretch][1]];
        assert_eq!(of(RESPONSE_IDLE), [0, 90]); // 170 … 260: the child's
        assert_eq!(of(RESPONSE), [50, 20]); // the child's: 140 … 150, and 260 … 270
        assert_eq!(ledger.stretches.iter().flatten().sum::<i64>(), 200);
        assert_eq!(ledger.critical.iter().sum::<i64>(), 200);
    }

    #[test]
    fn who_streams_on_waits_for_no_slower_one_of_several() {
        let mut rows = streaming();
        rows[1][18] = 200; // of those that the child asked at once, the first had answered
        let ledger = shared_with(&rows, &silences(&[0, 1], &[170, 160], &[270, 260]));
        assert_eq!(ledger.stretches[FAN_OUT_WAIT][1], 0);
        assert_eq!(ledger.stretches[RESPONSE_IDLE][1], 90);
    }

    #[test]
    fn a_server_with_nothing_to_send_and_no_child_is_idle_itself() {
        let rows = [plain(-1, 0, 100, 110, 150, 300)];
        let ledger = shared_with(&rows, &silences(&[0], &[140], &[270]));
        assert_eq!(
            (ledger.stretches[RESPONSE_IDLE][0], ledger.stretches[RESPONSE][0]),
            (120, 30)
        );
    }

    #[test]
    fn short_silences_are_no_more_than_their_stretch() {
        let short = Silences {
            short: ShortSilences {
                row: &[0, 0],
                in_response: &[true, false],
                cause: &[HELD, IDLE],
                sum_ns: &[1_000, 4],
            },
            ..Silences::default()
        };
        let ledger = shared_with(&[plain(-1, 0, 100, 110, 150, 300)], &short);
        let of = |stretch: usize| ledger.stretches[stretch][0];
        assert_eq!(
            [of(REQUEST), of(REQUEST_IDLE), of(RESPONSE), of(SEND_HELD)],
            [6, 4, 0, 150]
        );
    }
}
