//! Divides connections into streams where messages are frames that say which stream they are of: HTTP/2, by the
//! headers of frames alone (RFC 9113 §4.1), Ceph, MongoDB, Kafka, ZooKeeper.
//!
//! A stream is a request and its answer. It begins with the client's first frame, and each side ends its part, so the
//! contents of frames are not needed. What a frame does its protocol says ([`StreamRules`]).
//!
//! # The idea
//! The frames of many streams are interleaved in one stream of bytes. The bytes are put into a new order
//! ([`Streams::reorder`]): those of no stream (settings, windows, pings) first, then all of the first stream, all of
//! the second … Then each HTTP/2 stream is one contiguous range of either direction, and is handled like an exchange of
//! a protocol without frames.
//! ```text
//! sent      [settings][1 HEADERS][3 HEADERS][1 DATA][ping][3 DATA]
//! reordered [settings][ping][1 HEADERS][1 DATA][3 HEADERS][3 DATA]
//! ```
//! Each frame gives the position of the next one. All frames are known only if each begins at the end of the one
//! before, from the connection's first byte (or from the first frame, if the capture began later) to the last byte
//! seen. Otherwise nothing is reported of the connection's streams ([`State::Unread`]), because a missing frame may
//! belong to any of them. Where frames stand alone, as Ceph's messages, only the requests whose answers may be among the
//! missing frames are not reported.
//!
//! Where either end may ask ([`Asker`]), the streams of both are found in the same way. The client of a stream is the
//! end that asks.
//!
//! # Upgrades
//! Where HTTP/1.1 changed the connection to HTTP/2 (h2c), its request is the first stream's, which HTTP/2 answers
//! ([`Streams::add_upgrade`]).
//!
//! # What is no request
//! - A stream on which the client continues after the server has begun to send data, or on which both have sent and
//!   neither has ended: gRPC's bidirectional calls, etcd's watches, WebSockets (RFC 8441).
//! - One whose frames say so: what waits for news, or wants no answer (MongoDB's `moreToCome`, its cursors that wait,
//!   Kafka's `Fetch`).
//! - A stream whose beginning was not captured.
//!
//! # Limits
//! - If a capture begins within a connection, streams that were open before are not measured.
//! - Frames that are of no request, as pushed answers of HTTP/2 (even streams), are bytes of no stream.
//! - The client is the end that sent the preface; without a preface, the client as determined before is kept.
//!
//! Source: RFC 9113 §4.1, §5.1, §6, §6.8 (GOAWAY); RFC 7540 §3.2 (upgrade).

use rustc_hash::{FxHashMap, FxHashSet};
use twintap_protocols::exchanges::{Asker, FrameFields, FrameMeaning, StreamRules};
use twintap_protocols::registry;
use twintap_protocols::results::{DUE, SAYS_NOTHING};

use crate::copies::Copies;
use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range, last_near, partition_point_near};
use crate::{Heads, NO_ROW, UNSEEN};

/// Lower ones are interim (RFC 9110 §15.2).
const FINAL_STATUS: u16 = 200;
const SWITCHING_PROTOCOLS: u16 = 101;
/// The ordinal of what belongs to no stream.
const NO_STREAM: u32 = 0;
/// Pieces for each byte range and each boundary between streams. More occur only in input that is made to exhaust
/// memory.
const MAX_CUTS_PER_RANGE: usize = 16;

/// Whether a connection has frames, and whether all of them are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It has no frames.
    #[default]
    Other,
    /// All frames are known.
    Read,
    /// It has frames, but not all of them are known.
    Unread,
    /// It has frames, and what follows them is encrypted.
    Hidden,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: i64,
    end: i64,
    meaning: FrameMeaning,
    stream: i64,
    /// Ordinal of its stream; [`NO_STREAM`] if it is of none.
    ordinal: u32,
    /// Row of its header among the heads.
    row: u32,
    status: u16,
    has_result: bool,
    is_result_due: bool,
    /// Length of the texts that its row shows, negated: of several rows of one frame the one that shows most counts.
    shortness: i32,
    /// When it was at the server, or a later one, if a frame before it came later.
    server_ns: i64,
    /// When its client sent it, or received it.
    client_ns: i64,
}

impl Frame {
    fn place(&self) -> (i64, i64) {
        (self.start, self.end)
    }

    /// Whether it concerns a request: carries a part of it, or resets it.
    fn is_of_request(&self) -> bool {
        self.meaning.is_said || self.meaning.breaks
    }

    /// Whether the connection's client sent the request that it is part of.
    fn is_asked_by_client(&self, from_client: bool) -> bool {
        match self.meaning.asker {
            Asker::Client => true,
            Asker::Sender => from_client,
            Asker::Receiver => !from_client,
        }
    }
}

/// Which side reset a stream, by RST_STREAM, or that its server refused it, by GOAWAY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokenBy {
    #[default]
    Nobody,
    Client,
    Server,
    Refusal,
}

/// A stream, from 1 in the order in which they begin. Its client is the end that asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// The end that was taken for the connection's server asks.
    pub is_asked_by_server: bool,
    /// Its answer was not seen, and frames that followed its beginning are missing.
    pub is_unread: bool,
    /// Place of its first frame among all frames in the order of time.
    begun_in_time: usize,
    /// Its beginning was seen.
    is_begun: bool,
    /// Whether each side has ended its part.
    is_ended: ByDirection<bool>,
    server_spoke: bool,
    server_sent_data: bool,
    /// The client sent data after the server had begun to.
    goes_on: bool,
    /// Which side reset it, or that it was refused, and when the client sent or received the frame that says so.
    broken: Option<(BrokenBy, i64)>,
    /// Row of the client's first frame, if that was seen.
    request_row: Option<u32>,
    /// Row of the server's frame that shows the final status.
    response_row: Option<u32>,
    /// Row of the server's last frame that shows a result code, or of the reset of a stream whose answer shows none.
    result_row: Option<u32>,
    /// That row shows that a code comes later.
    is_result_due: bool,
    /// Its frames say that it is no request.
    pub is_no_request: bool,
    /// Later requests of the series that its answer names wait for news.
    opens_wait: bool,
    /// Nothing shows whether it wants an answer.
    is_answer_unsure: bool,
}

impl Stream {
    /// Whether it is no request, by the order of its frames.
    pub fn is_two_way(&self) -> bool {
        let is_open = self.server_spoke && !self.is_ended.client && !self.is_ended.server;
        !self.is_begun || self.goes_on || is_open
    }

    /// Rows of the heads that show what the client requests, the final status, and the result code; `NO_ROW` where none
    /// does.
    pub fn rows(&self) -> [i64; 3] {
        [self.request_row, self.response_row, self.result_row].map(|row| row.map_or(NO_ROW, i64::from))
    }

    /// Whether its answer was seen to its end.
    pub fn is_answered(&self) -> bool {
        self.is_ended.server
    }

    /// Who reset or refused the stream before its answer was whole, and when its client sent or received that.
    pub fn breaker(&self) -> (BrokenBy, i64) {
        self.broken
            .filter(|_| !self.is_ended.server)
            .unwrap_or((BrokenBy::Nobody, UNSEEN))
    }

    /// Its answerer said that it did not process the stream, in the frame of this row. A reset says more.
    fn refuse(&mut self, row: u32, at_ns: i64) {
        if !self.server_spoke && self.broken.is_none() {
            self.broken = Some((BrokenBy::Refusal, at_ns));
            self.result_row = Some(row);
        }
    }

    fn take(&mut self, frame: &Frame, from_asker: bool) {
        if frame.meaning.breaks {
            let by = if from_asker { BrokenBy::Client } else { BrokenBy::Server };
            self.broken = self.broken.or(Some((by, frame.client_ns)));
            if frame.has_result && (self.result_row.is_none() || self.is_result_due) {
                self.result_row = Some(frame.row);
            }
            return;
        }
        if from_asker {
            self.request_row = self.request_row.or(Some(frame.row));
            self.goes_on |= frame.meaning.has_data && self.server_sent_data && !self.is_ended.server;
        } else {
            self.server_spoke = true;
            self.server_sent_data |= frame.meaning.has_data;
            if frame.status >= FINAL_STATUS {
                self.response_row = self.response_row.or(Some(frame.row));
            }
            if frame.has_result {
                self.result_row = Some(frame.row);
                self.is_result_due = frame.is_result_due;
            }
        }
        self.is_no_request |= frame.meaning.is_no_request;
        self.opens_wait |= frame.meaning.opens_wait;
        self.is_answer_unsure |= frame.meaning.answer_unsure;
        *self.is_ended.of_mut(from_asker) |= frame.meaning.ends;
    }

    /// Take what a frame says of the series that it is part of. Arguments: `waits`, the series of which requests wait for
    /// news.
    fn take_series(&mut self, series: i64, from_asker: bool, waits: &mut FxHashSet<i64>) {
        if series <= 0 {
            return;
        }
        if from_asker {
            self.is_no_request |= waits.contains(&series);
        } else if self.opens_wait {
            waits.insert(series);
        }
    }
}

/// Bytes `start..end` of a direction belong to the stream `ordinal`, and are moved to `to`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: i64,
    end: i64,
    ordinal: u32,
    to: i64,
}

impl Piece {
    /// The bytes of a range that are in the piece, where they are moved to.
    fn cut(&self, range: &Range) -> Range {
        let to = |at: i64| self.to + (at - self.start);
        Range {
            start: to(range.start.max(self.start)),
            end: to(range.end.min(self.end)),
            ..*range
        }
    }
}

/// What distinguishes the streams of a connection: whether its client asks, the family, and the stream's id.
type StreamKey = (bool, u16, i64);

/// Ordinals of streams. Most streams begin in the order of their ids, and frames are mostly of those that began last: of
/// these an ordinal is found among the newest keys, which the processor's caches hold.
#[derive(Default)]
struct Ordinals {
    ascending: Vec<(StreamKey, u32)>,
    others: FxHashMap<StreamKey, usize>,
}

impl Ordinals {
    fn clear(&mut self) {
        self.ascending.clear();
        self.others.clear();
    }

    fn get(&self, key: &StreamKey) -> Option<usize> {
        let newest = self.ascending.len();
        let place = partition_point_near(&self.ascending, newest, |(known, _)| known < key);
        let found = self.ascending.get(place).filter(|(known, _)| known == key);
        self.others
            .get(key)
            .copied()
            .or(found.map(|(_, ordinal)| *ordinal as usize))
    }

    /// Store the ordinal of a stream, in place of an earlier stream's with the same key.
    fn insert(&mut self, key: StreamKey, ordinal: usize) {
        if self.ascending.last().is_none_or(|(last, _)| *last < key) {
            self.ascending.push((key, ordinal as u32));
        } else {
            self.others.insert(key, ordinal);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (StreamKey, usize)> {
        let ascending = self.ascending.iter().filter(|(key, _)| !self.others.contains_key(key));
        let ascending = ascending.map(|(key, ordinal)| (*key, *ordinal as usize));
        ascending.chain(self.others.iter().map(|(key, ordinal)| (*key, *ordinal)))
    }
}

/// The frames and streams of one connection, in buffers that are reused for the next.
#[derive(Default)]
pub(crate) struct Streams {
    /// Kind of the frames' heads.
    head_kind: u8,
    frames: ByDirection<Vec<Frame>>,
    /// Where the first frame of each direction begins.
    begin: ByDirection<Option<i64>>,
    /// Stream `ordinal` is at index `ordinal - 1`.
    pub streams: Vec<Stream>,
    ordinals: Ordinals,
    pieces: ByDirection<Vec<Piece>>,
    /// Where each stream of a direction begins in the new order of bytes, by ordinal.
    starts: ByDirection<Vec<i64>>,
    reordered: Vec<Range>,
    /// Of each stream, where its next range goes among the reordered ones.
    next: Vec<usize>,
    /// Of each direction, the piece that a hop's bytes were found in last.
    near: ByDirection<usize>,
}

/// Whether the preface shows that the connection's client was taken for its server.
pub(crate) fn is_swapped(heads: &Heads, mut rows: impl Iterator<Item = usize>) -> bool {
    rows.any(|row| !heads.from_client[row] && is_preface(heads, row))
}

fn is_preface(heads: &Heads, row: usize) -> bool {
    registry::streams_of_head_kind(heads.head_kind[row]).is_some_and(|rules| meaning(heads, row, rules).is_preface)
}

impl Streams {
    /// Read the frames of a connection, and if all of them are known, put `ranges` into the new order, in which each
    /// stream's bytes are contiguous.
    ///
    /// Arguments: its heads' rows; `handshake`: it was seen from its first byte on; `swapped` as for the ranges, which
    /// are ascending.
    pub fn read(
        &mut self,
        heads: &Heads,
        mut rows: impl Iterator<Item = usize> + Clone,
        (handshake, swapped): (bool, bool),
        ranges: &mut ByDirection<Vec<Range>>,
    ) -> State {
        self.frames.server.clear();
        self.frames.client.clear();
        let all = rows.clone();
        let own = |row: usize| Some((row, registry::streams_of_head_kind(heads.head_kind[row])?));
        let Some((first, rules)) = rows.clone().find_map(own) else {
            return State::Other;
        };
        self.head_kind = heads.head_kind[first];
        let (mut has_preface, mut is_hidden) = (false, false);
        let mut copies = ByDirection {
            server: Copies::behind(&self.frames.server),
            client: Copies::behind(&self.frames.client),
        };
        for row in rows.by_ref().filter(|&row| heads.head_kind[row] == self.head_kind) {
            let frame = frame(heads, row, rules);
            has_preface |= frame.meaning.is_preface;
            is_hidden |= frame.meaning.hides_rest;
            let from_client = heads.from_client[row] != swapped;
            let frames = self.frames.of_mut(from_client);
            copies.of_mut(from_client).add(frames, frame, Frame::place, take_copy);
        }
        for from_client in [false, true] {
            let starts = self.frames.of(from_client).iter().map(|frame| frame.start);
            *self.begin.of_mut(from_client) = starts.min();
        }
        let has_both = !self.frames.client.is_empty() && !self.frames.server.is_empty();
        if !has_preface && !has_both && !rules.frames_stand_alone {
            return State::Other;
        }
        if is_hidden {
            return State::Hidden;
        }
        if let Some(stream) = rules.upgrade_stream {
            self.add_upgrade(heads, all, swapped, stream);
        }
        let is_whole = [false, true].map(|from_client| {
            let frames = self.frames.of_mut(from_client);
            frames.sort_by_key(|frame| (frame.start, frame.end, frame.shortness)); // mostly in order
            keep_chain(frames, (handshake, from_client), ranges.of(from_client), rules)
        });
        if is_whole != [true, true] && !rules.frames_stand_alone {
            return State::Unread;
        }
        self.follow(heads, rules);
        if self.reorder(ranges) {
            State::Read
        } else {
            State::Unread
        }
    }

    /// Add the head of HTTP/1.1's `101` and the request before it, if the frames begin behind these and nothing else is
    /// before them: the request as a frame that is all that its client says in the stream `stream`.
    fn add_upgrade(&mut self, heads: &Heads, rows: impl Iterator<Item = usize> + Clone, swapped: bool, stream: i64) {
        let (Some(server_begin), Some(client_begin)) = (self.begin.server, self.begin.client) else {
            return;
        };
        let ahead = |from_client: bool, begin: i64| {
            let is_ahead = move |row: &usize| {
                heads.stream_offset[*row] < begin
                    && (heads.from_client[*row] != swapped) == from_client
                    && registry::order_of_head_kind(heads.head_kind[*row]).is_some()
            };
            rows.clone().filter(is_ahead)
        };
        let is_first = |row: &usize| heads.stream_offset[*row] == 0;
        let switches = |row: &usize| {
            is_first(row)
                && heads.status[*row] == SWITCHING_PROTOCOLS
                && i64::from(heads.head_len[*row]) == server_begin
        };
        let shown = |row: &usize| heads.target.text_len(*row as u32);
        let Some(answer) = ahead(false, server_begin).find(switches) else {
            return;
        };
        let Some(request) = ahead(true, client_begin).max_by_key(shown) else {
            return;
        };
        if !ahead(true, client_begin).all(|row| is_first(&row)) {
            return;
        }
        let frame = |row: usize, end: i64| Frame {
            start: 0,
            end,
            meaning: FrameMeaning::default(),
            stream,
            ordinal: NO_STREAM,
            row: row as u32,
            status: 0,
            has_result: false,
            is_result_due: false,
            shortness: 0,
            server_ns: UNSEEN,
            client_ns: UNSEEN,
        };
        self.frames.server.push(frame(answer, server_begin));
        self.frames.client.push(Frame {
            meaning: FrameMeaning {
                is_said: true,
                opens: true,
                ends: true,
                ..FrameMeaning::default()
            },
            ..frame(request, client_begin)
        });
    }

    /// Find the streams, from the frames in the order in which the server's host saw them.
    fn follow(&mut self, heads: &Heads, rules: &StreamRules) {
        let Self {
            frames,
            streams,
            ordinals,
            ..
        } = self;
        streams.clear();
        ordinals.clear();
        let mut newest = 0;
        let mut last_gap: ByDirection<usize> = ByDirection::default();
        let mut refusals: Vec<(bool, i64, u32, i64)> = Vec::new();
        let mut waits = FxHashSet::default();
        let mut next: ByDirection<usize> = ByDirection::default();
        while let Some(from_client) = is_next_from_client(frames, &next) {
            let place_in_time = next.client + next.server;
            let frame = &mut frames.of_mut(from_client)[*next.of(from_client)];
            *next.of_mut(from_client) += 1;
            let last = heads.content_length[frame.row as usize];
            if frame.meaning.refuses && last >= 0 {
                refusals.push((from_client, last, frame.row, frame.client_ns));
            }
            if frame.meaning.follows_gap {
                *last_gap.of_mut(from_client) = place_in_time;
            }
            if !frame.is_of_request() {
                continue;
            }
            let by_client = frame.is_asked_by_client(from_client);
            let from_asker = by_client == from_client;
            let key = (by_client, frame.meaning.family, frame.stream);
            let begins = from_asker && frame.meaning.opens;
            let known = ordinals.get(&key);
            let ordinal = match known {
                Some(known) if !(rules.frames_stand_alone && begins && streams[known - 1].is_answered()) => known,
                None if rules.frames_stand_alone && !begins => continue, // of a request that was not captured
                _ => {
                    streams.push(Stream {
                        is_asked_by_server: !by_client,
                        is_begun: begins && (rules.frames_stand_alone || frame.stream > newest),
                        begun_in_time: place_in_time,
                        ..Stream::default()
                    });
                    ordinals.insert(key, streams.len());
                    streams.len()
                }
            };
            newest = newest.max(frame.stream);
            frame.ordinal = ordinal as u32;
            streams[ordinal - 1].take(frame, from_asker);
            streams[ordinal - 1].take_series(frame.meaning.series, from_asker, &mut waits);
        }
        for stream in streams.iter_mut() {
            let answers_from_client = stream.is_asked_by_server;
            stream.is_unread = !stream.is_answered() && *last_gap.of(answers_from_client) > stream.begun_in_time;
        }
        mark_unwanted_answers(streams);
        let asked = ordinals.iter().filter(|_| !refusals.is_empty());
        for ((by_client, _, id), ordinal) in asked {
            let refuses = |refusal: &&(bool, i64, u32, i64)| refusal.0 != by_client && id > refusal.1;
            if let Some(&(_, _, row, at_ns)) = refusals.iter().find(refuses) {
                streams[ordinal - 1].refuse(row, at_ns);
            }
        }
    }

    /// Put `ranges` into the new order; false if that would take too much memory.
    fn reorder(&mut self, ranges: &mut ByDirection<Vec<Range>>) -> bool {
        for from_client in [false, true] {
            let pieces = self.pieces.of_mut(from_client);
            cut(self.frames.of(from_client), ranges.of(from_client), pieces);
            place(pieces, self.streams.len(), self.starts.of_mut(from_client));
        }
        let is_modest = |from_client| {
            let (pieces, ranges) = (self.pieces.of(from_client), ranges.of(from_client));
            let cuts_count: usize = pieces_of_ranges(pieces, ranges).map(|(_, own)| own.len()).sum();
            cuts_count <= MAX_CUTS_PER_RANGE * (pieces.len() + ranges.len())
        };
        if !is_modest(false) || !is_modest(true) {
            return false;
        }
        for from_client in [false, true] {
            self.reorder_direction(from_client, ranges.of_mut(from_client));
        }
        self.near = ByDirection::default();
        true
    }

    /// Cut ranges at the bounds of pieces, and put the cuts in order: first by their streams, of which each one's are
    /// nearly always in order.
    fn reorder_direction(&mut self, from_client: bool, ranges: &mut Vec<Range>) {
        let Self {
            pieces,
            streams,
            reordered,
            next,
            ..
        } = self;
        let cuts = || {
            let own = pieces_of_ranges(pieces.of(from_client), ranges);
            own.flat_map(|(range, pieces)| pieces.iter().map(|piece| (piece.ordinal as usize, piece.cut(range))))
        };
        next.clear();
        next.resize(streams.len() + 2, 0);
        cuts().for_each(|(ordinal, _)| next[ordinal + 1] += 1);
        (1..next.len()).for_each(|ordinal| next[ordinal] += next[ordinal - 1]);
        reordered.clear();
        reordered.resize(next.last().copied().unwrap_or(0), Range::default());
        for (ordinal, cut) in cuts() {
            reordered[next[ordinal]] = cut;
            next[ordinal] += 1;
        }
        reordered.sort_by_key(|range| (range.start, range.end));
        std::mem::swap(ranges, reordered);
    }

    /// The place of the frames' protocol in the registry.
    pub fn protocol(&self) -> u8 {
        registry::place_of_head_kind(self.head_kind)
    }

    /// Whether a request's first frame shows what is requested.
    pub fn shows_requests(&self) -> bool {
        registry::streams_of_head_kind(self.head_kind).is_some_and(|rules| rules.shows_requests)
    }

    /// Append a part for each stream and direction, in the new order of bytes.
    pub fn mark_parts(&self, parts: &mut ByDirection<Vec<Part>>) {
        for from_client in [false, true] {
            let role = |ordinal: usize| match self.streams[ordinal - 1].is_asked_by_server == from_client {
                true => Role::Response,
                false => Role::Request,
            };
            let bounds = self
                .starts
                .of(from_client)
                .windows(2)
                .enumerate()
                .skip(NO_STREAM as usize + 1);
            let own = bounds.filter(|(_, bounds)| bounds[0] < bounds[1]);
            let part = |(ordinal, bounds): (usize, &[i64])| Part::new(bounds[0], ordinal, role(ordinal));
            parts.of_mut(from_client).extend(own.map(part));
        }
    }

    /// The first stream to which the bytes `start..end` of a direction, in the order sent, belong. Quick if hops are in
    /// about that order.
    pub fn ordinal_of(&mut self, from_client: bool, start: i64, end: i64) -> Option<usize> {
        let within = pieces_of(self.pieces.of(from_client), self.near.of_mut(from_client), start, end).iter();
        let said = within.map(|piece| piece.ordinal).find(|ordinal| *ordinal != NO_STREAM);
        said.map(|ordinal| ordinal as usize)
    }

    /// Whether a byte precedes all frames: it was sent before the connection changed its protocol.
    pub fn is_before(&self, from_client: bool, at: i64) -> bool {
        self.begin.of(from_client).is_some_and(|begin| at < begin)
    }
}

/// Mark the streams that wanted no answer, of those of which nothing shows it: one that began later was answered. Streams
/// are in the order in which they begin.
fn mark_unwanted_answers(streams: &mut [Stream]) {
    let mut is_answered_later = ByDirection::<bool>::default();
    for stream in streams.iter_mut().rev() {
        let later = is_answered_later.of_mut(stream.is_asked_by_server);
        stream.is_no_request |= stream.is_answer_unsure && !stream.server_spoke && *later;
        *later |= stream.is_answered();
    }
}

/// Keep the frames each of which begins where the previous one ends, with their times. False if they do not reach from
/// the first byte (without `handshake`, from the first frame) to the last byte of `ranges`. Frames are ascending.
fn keep_chain(
    frames: &mut Vec<Frame>,
    (handshake, from_client): (bool, bool),
    ranges: &[Range],
    rules: &StreamRules,
) -> bool {
    let first = frames.first().map_or(0, |frame| frame.start);
    let mut reach = if handshake { 0 } else { first };
    if rules.frames_stand_alone {
        keep_apart(frames, &mut reach);
    } else {
        frames.retain(|frame| {
            let is_next = frame.start == reach;
            reach = if is_next { frame.end } else { reach };
            is_next
        });
    }
    // A direction's frames are in the order of their bytes, whatever order they were seen in.
    let (mut latest_ns, mut near) = (UNSEEN, 0);
    for frame in frames.iter_mut() {
        if let Some(place) = last_near(ranges, &mut near, frame.start, |range| range.start) {
            latest_ns = latest_ns.max(ranges[place].server_ns(from_client));
            frame.client_ns = ranges[place].client_ns(from_client);
        }
        frame.server_ns = latest_ns;
    }
    let seen = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    if let Some(last) = frames.last_mut().filter(|last| last.end > seen) {
        last.meaning.ends = false; // its end was not captured
    }
    // The header that comes next may not have been captured whole.
    seen.saturating_sub(reach) < rules.header_len
}

/// Keep the frames that do not overlap with those before, and set which follow a gap: all copies of the frame do, and
/// the frame before does not end where it begins. `reach` is where the first one is expected, then where the last ends.
fn keep_apart(frames: &mut Vec<Frame>, reach: &mut i64) {
    frames.dedup_by(|copy, best| {
        let is_same = copy.start == best.start;
        best.meaning.follows_gap &= !is_same || copy.meaning.follows_gap;
        is_same
    });
    frames.retain_mut(|frame| {
        let is_apart = frame.start >= *reach;
        frame.meaning.follows_gap &= frame.start != *reach;
        *reach = frame.end.max(*reach);
        is_apart
    });
}

/// Cut the bytes that `ranges` carry into `pieces` at the boundaries between frames of different streams.
fn cut(frames: &[Frame], ranges: &[Range], pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut add = |start: i64, end: i64, ordinal: u32| match pieces.last_mut() {
        _ if start >= end => {}
        Some(last) if last.ordinal == ordinal => last.end = end,
        _ => pieces.push(Piece {
            start,
            end,
            ordinal,
            to: 0,
        }),
    };
    let mut reach = ranges.first().map_or(0, |range| range.start);
    for frame in frames {
        add(reach, frame.start, NO_STREAM);
        let ordinal = if frame.meaning.is_said {
            frame.ordinal
        } else {
            NO_STREAM
        };
        add(frame.start, frame.end, ordinal);
        reach = frame.end;
    }
    let seen = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    add(reach, seen, NO_STREAM);
}

/// Compute the new place of each piece: `starts` of each ordinal, and the end of the last one.
fn place(pieces: &mut [Piece], streams_count: usize, starts: &mut Vec<i64>) {
    starts.clear();
    starts.resize(streams_count + 2, 0);
    for piece in pieces.iter() {
        starts[piece.ordinal as usize + 1] += piece.end - piece.start;
    }
    (1..starts.len()).for_each(|ordinal| starts[ordinal] += starts[ordinal - 1]);
    let mut next = starts.clone();
    for piece in pieces.iter_mut() {
        let next = &mut next[piece.ordinal as usize];
        piece.to = *next;
        *next += piece.end - piece.start;
    }
}

/// Each range, and the pieces that its bytes lie in.
fn pieces_of_ranges<'a>(pieces: &'a [Piece], ranges: &'a [Range]) -> impl Iterator<Item = (&'a Range, &'a [Piece])> {
    let mut near = 0;
    ranges
        .iter()
        .map(move |range| (range, pieces_of(pieces, &mut near, range.start, range.end)))
}

/// The pieces that the bytes `start..end` lie in; `near` as for [`last_near`].
fn pieces_of<'a>(pieces: &'a [Piece], near: &mut usize, start: i64, end: i64) -> &'a [Piece] {
    let first = partition_point_near(pieces, *near, |piece| piece.end <= start);
    let behind = partition_point_near(pieces, first, |piece| piece.start < end);
    *near = first;
    &pieces[first..behind.max(first)]
}

/// The direction of the frame that the server's host saw next, the client's before the server's of one time; `None` if
/// all of both were followed. Arguments: `next`, the place of the next one of each direction.
fn is_next_from_client(frames: &ByDirection<Vec<Frame>>, next: &ByDirection<usize>) -> Option<bool> {
    let at = |from_client| {
        frames
            .of(from_client)
            .get(*next.of(from_client))
            .map(|frame| frame.server_ns)
    };
    match (at(true), at(false)) {
        (Some(client_ns), Some(server_ns)) => Some(client_ns <= server_ns),
        (None, None) => None,
        (client, _) => Some(client.is_some()),
    }
}

/// Take another copy of a frame if it shows more.
fn take_copy(best: &mut Frame, copy: Frame) {
    let follows_gap = best.meaning.follows_gap && copy.meaning.follows_gap;
    if copy.shortness < best.shortness {
        *best = copy;
    }
    best.meaning.follows_gap = follows_gap;
}

fn frame(heads: &Heads, row: usize, rules: &StreamRules) -> Frame {
    let meaning = meaning(heads, row, rules);
    let start = heads.stream_offset[row].saturating_sub(meaning.header_len);
    Frame {
        start,
        end: start.saturating_add(heads.head_len[row].into()),
        meaning,
        stream: heads.stream_id[row],
        ordinal: NO_STREAM,
        row: row as u32,
        status: heads.status[row],
        has_result: heads.result_code[row] != SAYS_NOTHING,
        is_result_due: heads.result_code[row] == DUE,
        shortness: -(heads.target.text_len(row as u32) + heads.method.text_len(row as u32))
            - i32::from(heads.status[row] > 0 || heads.result_code[row] != SAYS_NOTHING),
        server_ns: UNSEEN,
        client_ns: UNSEEN,
    }
}

/// Offset of a row's place from the first byte of its frame; 0 if it is no frame.
pub(crate) fn place_in_frame(heads: &Heads, row: usize) -> i64 {
    let rules = registry::streams_of_head_kind(heads.head_kind[row]);
    rules.map_or(0, |rules| meaning(heads, row, rules).header_len)
}

fn meaning(heads: &Heads, row: usize, rules: &StreamRules) -> FrameMeaning {
    (rules.frame)(&FrameFields {
        kind: heads.frame_kind[row],
        flags: heads.flags[row],
        stream: heads.stream_id[row],
        len: heads.head_len[row].into(),
        content_length: heads.content_length[row],
    })
}
