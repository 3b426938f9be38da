//! Recognises traffic that is not requests and responses: subscriptions, sessions, tunnels, event streams, blocking
//! reads.
//!
//! The duration of a request shows how fast its server is. A stream lasts as long as its client wants, so its duration
//! shows nothing of the kind. Whether an exchange is a stream is decided by evidence, in this order:
//!
//! 1. The content of messages ([`StreamReason::Upgrade`], [`StreamReason::Tunnel`], [`StreamReason::EventStream`],
//!    [`StreamReason::Word`]): HTTP's 101, a CONNECT that was accepted, `text/event-stream`, the marks of other
//!    protocols (`twintap_protocols::marks`), and the frames of a WebSocket whose 101 was not captured.
//! 2. The shape of the traffic, if no HTTP head is visible ([`StreamReason::Unasked`]): in the last turn of a
//!    connection the server sends [`MIN_PIECES`] times or more without another request, each time after
//!    [`QUIET_SILENCE_NS`] in which it had nothing to send; no earlier turn is like that; and neither side ends the
//!    connection after the last piece.
//! 3. Turns of a protocol that is not read, if they overlap ([`StreamReason::Crossed`], [`StreamReason::Several`];
//!    [`crate::clean_turns`]).
//! 4. A server that sends when another client's request reaches it. This needs all connections of the server, so only
//!    the evidence is collected here ([`LateMessage`], [`ClientMessage`]); a later stage judges it.
//!
//! Each HTTP/2 stream is judged by itself: by its frames ([`StreamReason::TwoWay`]) or, if its server never ended it,
//! by its shape as in 2. If frames are missing, the whole connection is [`StreamReason::Unread`]
//! ([`crate::by_stream_id`]).
//!
//! Everything else stays a request: a slow answer, an answer in pieces that ends with its connection or is followed by
//! the next request, a greeting.
//!
//! A message is what one side sends until it sends less than a full segment, or pauses. Where frames cannot be read,
//! several small messages in one segment count as one.
//!
//! # Limits
//! - A streamed answer of many pieces with pauses between them, after which the client keeps its connection idle, looks
//!   like case 2.
//! - If one end of a connection was not captured, there is no evidence for 2 and 4.
//!
//! Source: RFC 9110 §9.3.6, §15.2.2; WHATWG HTML §9.2 (server-sent events); RFC 6455.

use twintap_protocols::http1::flag;
use twintap_protocols::marks::{STREAM_MARK, reach};

use crate::changes;
use crate::parts::Part;
use crate::ranges::{ByDirection, Range, last_at_or_before, last_near};
use crate::silences::{Cause, MIN_SILENCE_NS, Silence};
use crate::{Heads, UNSEEN, first_seen};

/// A server that is silent for this long has nothing to send: most servers continue an answer sooner.
pub const QUIET_SILENCE_NS: i64 = 50_000_000;
/// Pieces that a server must send without another request. A streamed answer mostly has fewer.
pub const MIN_PIECES: u32 = 8;
/// A connection that ends within this fraction (1/4) of the mean pause after the last piece ends because of that piece.
const END_SHARE: i64 = 4;
/// A message that a server sends after such a silence may be caused by another client.
pub const LATE_SILENCE_NS: i64 = 20_000_000;
/// With fewer such messages, chance cannot be ruled out.
const MIN_LATE_MESSAGES: usize = 3;
/// Payloads of both sides together that must begin with a WebSocket frame; by chance, one in thousands does.
const MIN_FRAMES: usize = 4;
/// After such a pause within what one side sends, another message begins.
const MESSAGE_PAUSE_NS: i64 = 1_000_000;
/// A shorter segment ends what an application wrote at once (RFC 9293 §3.7.1).
const FULL_SEGMENT_BYTES: i64 = 1_200;

/// Why an exchange is part of a stream. The codes are those of the table's column, in the order of
/// `collector.trace.schema.StreamReason`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamReason {
    /// It is not part of a stream, as far as its own connection shows.
    #[default]
    Request,
    Upgrade,
    Tunnel,
    EventStream,
    Word,
    Unasked,
    TwoWay,
    /// The connection may hold several requests and streams at once: not all of its HTTP/2 frames are known.
    Unread,
    /// The same for HTTP/2 inside TLS.
    Hidden,
    /// Turns of a protocol that is not read are no requests: both sides sent at one time.
    Crossed,
    /// The same: both sides went on again and again without having received anything.
    Several,
}

/// A stream; with [`StreamReason::Request`], the figures that a connection would have if a later stage decides that it
/// is one. Times are trace times in ns, `UNSEEN` where unknown.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Row of its connection.
    pub connection: u32,
    pub reason: StreamReason,
    /// Row of the head or mark that shows it; `NO_ROW` if none does.
    pub row: i64,
    /// How often its server sent without a request; of turns that are no requests, how many show it.
    pub pieces: u32,
    /// Turns in which its client sends and its server answers.
    pub turns: u32,
    pub messages: ByDirection<Messages>,
    pub begin_ns: i64,
    pub end_ns: i64,
    pub longest_idle_ns: i64,
    pub delay_median_ns: i64,
    pub delay_p99_ns: i64,
    pub uncertainty_ns: i64,
    pub likely_error_ns: i64,
}

impl Stream {
    /// A stream without figures.
    pub(crate) fn of(connection: u32, reason: StreamReason, row: i64) -> Self {
        Self {
            connection,
            reason,
            row,
            pieces: 0,
            turns: 0,
            messages: ByDirection::default(),
            begin_ns: UNSEEN,
            end_ns: UNSEEN,
            longest_idle_ns: 0,
            delay_median_ns: UNSEEN,
            delay_p99_ns: UNSEEN,
            uncertainty_ns: UNSEEN,
            likely_error_ns: UNSEEN,
        }
    }
}

/// What one side sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    pub count: i64,
    pub bytes: i64,
}

/// A server sent again after a silence of [`LATE_SILENCE_NS`]; `asked` if its client had sent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateMessage {
    pub connection: u32,
    pub at_ns: i64,
    pub asked: bool,
}

/// A client's message reached its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMessage {
    pub connection: u32,
    pub at_ns: i64,
}

/// The exchanges with ordinals `first..=last` of a connection are part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub reason: StreamReason,
    pub row: i64,
    pub first: usize,
    pub last: usize,
}

/// The figures of an exchange by which [`find_unasked`] judges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub ordinal: usize,
    pub pieces: u32,
    pub quiet_ns: i64,
    pub last_sent_ns: i64,
}

/// Whether a server had nothing to send during a silence, and for long enough to count.
pub(crate) fn is_quiet(in_response: bool, silence: &Silence) -> bool {
    in_response && silence.cause == Cause::Source && silence.to_ns.saturating_sub(silence.from_ns) >= QUIET_SILENCE_NS
}

/// Whether a row is a mark that shows a stream.
fn is_mark(heads: &Heads, row: usize) -> bool {
    heads.head_kind[row] == STREAM_MARK.0
}

/// Collect the stretches that the marks of a connection show. Arguments: its heads' rows; `swapped` as for the parts,
/// which are ascending.
pub(crate) fn collect_marks(
    heads: &Heads,
    rows: impl Iterator<Item = usize>,
    swapped: bool,
    parts: &ByDirection<Vec<Part>>,
    stretches: &mut Vec<Stretch>,
) {
    stretches.clear();
    for row in rows.filter(|&row| is_mark(heads, row)) {
        let from_client = heads.from_client[row] != swapped;
        let (first, last) = match heads.status[row] {
            reach::CONNECTION => (0, usize::MAX),
            reach::MASKED_FRAMES | reach::PLAIN_FRAMES => continue, // no evidence by themselves
            _ if !from_client => continue,
            reach => {
                let own = parts.of(true);
                let Some(place) = last_at_or_before(own, heads.stream_offset[row], |part| part.start) else {
                    continue;
                };
                let ordinal = own[place].ordinal;
                (ordinal, if reach == reach::ANSWER { ordinal } else { usize::MAX })
            }
        };
        stretches.push(Stretch {
            reason: StreamReason::Word,
            row: row as i64,
            first,
            last,
        });
    }
}

/// Whether WebSocket frames show that the connection's client was taken for its server: only a client masks its frames.
pub(crate) fn is_swapped(heads: &Heads, rows: impl Iterator<Item = usize>) -> bool {
    let (mut right, mut wrong) = (0, 0);
    for row in rows.filter(|&row| is_mark(heads, row)) {
        match (heads.status[row], heads.from_client[row]) {
            (reach::MASKED_FRAMES, true) | (reach::PLAIN_FRAMES, false) => right += 1,
            (reach::MASKED_FRAMES, false) | (reach::PLAIN_FRAMES, true) => wrong += 1,
            _ => {}
        }
    }
    right == 0 && wrong >= MIN_FRAMES
}

/// Add the stretch of a WebSocket whose beginning was not captured: most payloads of either side begin with frames, a
/// client's masked and a server's not. Arguments: `ranges`, ascending; otherwise as for [`collect_marks`].
pub(crate) fn add_frames(
    heads: &Heads,
    rows: impl Iterator<Item = usize>,
    swapped: bool,
    ranges: &ByDirection<Vec<Range>>,
    stretches: &mut Vec<Stretch>,
) {
    let mut places: ByDirection<Vec<(i64, usize)>> = ByDirection::default();
    for row in rows.filter(|&row| is_mark(heads, row)) {
        let from_client = heads.from_client[row] != swapped;
        match heads.status[row] {
            reach::MASKED_FRAMES | reach::PLAIN_FRAMES
                if (heads.status[row] == reach::MASKED_FRAMES) != from_client =>
            {
                return;
            }
            reach::MASKED_FRAMES | reach::PLAIN_FRAMES => {
                places.of_mut(from_client).push((heads.stream_offset[row], row));
            }
            _ => {}
        }
    }
    let mostly_frames = |from_client: bool, places: &mut Vec<(i64, usize)>| {
        places.sort_unstable();
        places.dedup_by_key(|place| place.0);
        let is_begun = |range: &&Range| places.binary_search_by_key(&range.start, |place| place.0).is_ok();
        let request_arrivals = ranges.of(from_client).iter().filter(is_begun).count();
        2 * request_arrivals >= ranges.of(from_client).len()
    };
    let is_framed = mostly_frames(true, &mut places.client) & mostly_frames(false, &mut places.server);
    let (asked, answered) = (places.client.len(), places.server.len());
    if is_framed && asked >= 1 && answered >= 1 && asked + answered >= MIN_FRAMES {
        stretches.push(Stretch {
            reason: StreamReason::Word,
            row: places.client[0].1 as i64,
            first: 0,
            last: usize::MAX,
        });
    }
}

/// The stretch that the heads of an exchange show. Arguments: rows of its request's and of its response's head; the
/// ordinal of what follows its connection's change of protocol, if that is known.
pub(crate) fn by_heads(
    heads: &Heads,
    ordinal: usize,
    (request_row, response_row): (i64, i64),
    changed: Option<usize>,
) -> Option<Stretch> {
    let response = usize::try_from(response_row)
        .ok()
        .filter(|row| heads.frame_kind[*row] == 0)?;
    let status = heads.status[response];
    let method = usize::try_from(request_row).map_or(&[][..], |row| heads.method.text(row));
    let (reason, first, last) = if let Some(reason) = changes::reason_of(status, method) {
        (reason, changed.unwrap_or(ordinal), usize::MAX)
    } else if heads.flags[response] & flag::EVENT_STREAM != 0 && (200..300).contains(&status) {
        (StreamReason::EventStream, ordinal, ordinal)
    } else {
        return None;
    };
    Some(Stretch {
        reason,
        row: response_row,
        first,
        last,
    })
}

/// The last turn of a connection without heads, if its traffic has the shape of a stream. Arguments: `ended_ns`: when
/// either side closed the connection; `UNSEEN` if neither did.
pub(crate) fn find_unasked(shapes: impl Iterator<Item = Shape> + Clone, ended_ns: i64) -> Option<Stretch> {
    let last = shapes.clone().max_by_key(|shape| shape.ordinal)?;
    let is_usual = shapes
        .filter(|shape| shape.ordinal != last.ordinal)
        .any(|shape| shape.pieces > 1);
    if last.pieces < MIN_PIECES || is_usual {
        return None;
    }
    let usual_ns = last.quiet_ns / i64::from(last.pieces);
    let is_end = ended_ns != UNSEEN && ended_ns.saturating_sub(last.last_sent_ns) < usual_ns / END_SHARE;
    (!is_end).then_some(Stretch {
        reason: StreamReason::Unasked,
        row: crate::NO_ROW,
        first: last.ordinal,
        last: usize::MAX,
    })
}

/// When the server of one connection sent after a silence, and when its client's messages arrived, if the server was
/// captured.
#[derive(Default)]
pub(crate) struct MessageTimes {
    /// Of each range, by the server's clock: time, first byte, whether the client sent it, end.
    said: Vec<(i64, i64, bool, i64)>,
    pub late: Vec<(i64, bool)>,
    pub came: Vec<i64>,
    pub turns: u32,
}

impl MessageTimes {
    pub fn listen(&mut self, ranges: &ByDirection<Vec<Range>>) {
        let Self {
            said,
            late,
            came,
            turns,
        } = self;
        (*turns, _) = (0, (said.clear(), late.clear(), came.clear()));
        let sent = ranges
            .server
            .iter()
            .map(|range| (range.sent_ns, range.start, false, range.end));
        let heard = ranges
            .client
            .iter()
            .map(|range| (range.received_ns, range.start, true, range.end));
        said.extend(sent.chain(heard).filter(|one| one.0 != UNSEEN));
        said.sort(); // two runs about in order, which a stable sort only merges
        let mut reach = ByDirection { server: -1, client: -1 };
        let mut before: Option<(i64, bool)> = None;
        for &(at, _, from_client, end) in said.iter() {
            if end <= *reach.of(from_client) {
                continue;
            }
            *reach.of_mut(from_client) = end;
            let pause_ns = before.map_or(i64::MAX, |(before_ns, _)| at.saturating_sub(before_ns));
            let asked = before.is_some_and(|(_, by_client)| by_client);
            if from_client && (!asked || pause_ns >= MESSAGE_PAUSE_NS) {
                came.push(at);
            }
            *turns += u32::from(!from_client && asked);
            if !from_client && before.is_some() && pause_ns >= LATE_SILENCE_NS {
                late.push((at, asked));
            }
            before = Some((at, from_client));
        }
    }

    pub fn has_late_messages(&self) -> bool {
        self.late.len() >= MIN_LATE_MESSAGES
    }
}

/// Measures streams, in buffers that are reused for the next.
#[derive(Default)]
pub(crate) struct StreamMeter {
    /// When each message began and ended, as far as captured.
    spoken: Vec<(i64, i64)>,
    delays: Vec<i64>,
}

impl StreamMeter {
    /// Measure the messages of a stream's exchanges. Arguments: `is_own`: whether an ordinal belongs to the stream;
    /// parts and ranges ascending; `stream`: its figures so far.
    pub fn measure(
        &mut self,
        parts: &ByDirection<Vec<Part>>,
        ranges: &ByDirection<Vec<Range>>,
        is_own: impl Fn(usize) -> bool,
        mut stream: Stream,
    ) -> Stream {
        self.spoken.clear();
        self.delays.clear();
        for from_client in [false, true] {
            let own = own_ranges(parts.of(from_client), ranges.of(from_client), &is_own);
            let messages = self.add(own, &mut stream);
            *stream.messages.of_mut(from_client) = messages;
        }
        self.spoken.sort_unstable();
        stream.begin_ns = self.spoken.first().map_or(UNSEEN, |one| one.0);
        stream.end_ns = self.spoken.iter().map(|one| one.1).max().unwrap_or(UNSEEN);
        let mut reach = stream.begin_ns;
        for &(from_ns, to_ns) in &self.spoken {
            stream.longest_idle_ns = stream.longest_idle_ns.max(from_ns.saturating_sub(reach));
            reach = reach.max(to_ns);
        }
        self.delays.sort_unstable();
        stream.delay_median_ns = quantile(&self.delays, 50);
        stream.delay_p99_ns = quantile(&self.delays, 99);
        stream
    }

    /// Add the messages of one direction, whose new bytes these are.
    fn add(&mut self, ranges: impl Iterator<Item = Range>, stream: &mut Stream) -> Messages {
        let mut found = Messages::default();
        let mut message: Option<Message> = None;
        for range in ranges {
            found.bytes += range.end - range.start;
            let goes_on = message.as_mut().is_some_and(|message| message.take(&range));
            if !goes_on {
                found.count += 1;
                self.put(message.replace(Message::of(&range)), stream);
            }
        }
        self.put(message, stream);
        found
    }

    fn put(&mut self, message: Option<Message>, stream: &mut Stream) {
        let Some(message) = message else {
            return;
        };
        let began_ns = first_seen(message.sent_ns, message.received_ns);
        self.spoken
            .push((began_ns, began_ns.max(message.received_ns).max(message.last_ns)));
        if message.sent_ns != UNSEEN && message.received_ns != UNSEEN {
            self.delays.push(message.received_ns.saturating_sub(message.sent_ns));
            stream.uncertainty_ns = stream.uncertainty_ns.max(message.uncertainty_ns);
            stream.likely_error_ns = stream.likely_error_ns.max(message.likely_error_ns);
        }
    }
}

/// A message: what one side sends at once.
#[derive(Clone, Copy, Debug)]
struct Message {
    sent_ns: i64,
    /// When the last of it was sent, or else arrived.
    last_ns: i64,
    received_ns: i64,
    uncertainty_ns: i64,
    likely_error_ns: i64,
    is_over: bool,
}

impl Message {
    fn of(range: &Range) -> Self {
        Self {
            sent_ns: range.sent_ns,
            last_ns: first_seen(range.sent_ns, range.received_ns),
            received_ns: range.received_ns,
            uncertainty_ns: range.uncertainty_ns,
            likely_error_ns: range.likely_error_ns,
            is_over: range.end - range.start < FULL_SEGMENT_BYTES,
        }
    }

    /// Extend the message by the next range; false if that begins another message.
    fn take(&mut self, range: &Range) -> bool {
        let at = first_seen(range.sent_ns, range.received_ns);
        let reach = self.last_ns.max(self.received_ns);
        if self.is_over || at.saturating_sub(reach) >= MESSAGE_PAUSE_NS.max(MIN_SILENCE_NS) {
            return false;
        }
        self.last_ns = self.last_ns.max(at);
        self.received_ns = self.received_ns.max(range.received_ns);
        self.uncertainty_ns = self.uncertainty_ns.max(range.uncertainty_ns);
        self.likely_error_ns = self.likely_error_ns.max(range.likely_error_ns);
        self.is_over = range.end - range.start < FULL_SEGMENT_BYTES;
        true
    }
}

/// The ranges of a direction that belong to a stream, without retransmitted bytes and without the message head of its
/// exchange.
fn own_ranges<'a>(
    parts: &'a [Part],
    ranges: &'a [Range],
    is_own: &'a impl Fn(usize) -> bool,
) -> impl Iterator<Item = Range> + 'a {
    let (mut reach, mut near) = (i64::MIN, 0);
    ranges.iter().filter_map(move |range| {
        let part = parts.get(last_near(parts, &mut near, range.start, |part| part.start)?)?;
        let start = range.start.max(reach).max(part.head_end);
        reach = reach.max(range.end);
        (is_own(part.ordinal) && start < range.end).then_some(Range { start, ..*range })
    })
}

/// The given percentile of ascending values; `UNSEEN` if there are none.
fn quantile(values: &[i64], percent: usize) -> i64 {
    let place = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(place).copied().unwrap_or(UNSEEN)
}
