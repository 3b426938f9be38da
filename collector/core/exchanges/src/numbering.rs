//! Which response answers which request (RFC 9112 §9.3): the i-th final response answers the i-th request.
//!
//! 1xx responses are interim (RFC 9110 §15.2), except 101, after which the connection carries another protocol. If the
//! numbers of requests and final responses differ (the capture began or ended in between, or missed a head), they are
//! counted within turns, so that one missing head cannot shift all that follow. A turn begins with a request that
//! reached the server after the server had sent something since the request before. In a turn with bytes but no head
//! from the server, these bytes are the answer.
//!
//! Where each direction was followed from message to message (`Order::follows`), none is missing unless a message says
//! so. Then each answer is that of the oldest request that had arrived and was not yet answered, however many are under
//! way; an answer without such a request (to one from before the capture, or none at all) belongs to no exchange.
//!
//! HTTP/2 shows no heads: see [`crate::by_stream_id`]. What follows a change of protocol is no message: see
//! [`crate::changes`].

use rustc_hash::FxHashSet;

use crate::UNSEEN;
use crate::heads::Head;
use crate::parts::{Part, Role};
use crate::ranges::{ByDirection, Range, last_at_or_before};
use crate::waiting::MORE;

/// A request, or a final response. The `ordinal` of its exchange counts from 1. A message without a head is one whose
/// beginning was not captured.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub ordinal: usize,
    pub role: Role,
    pub start: i64,
    /// Its place among the heads.
    pub head: Option<u32>,
    server_ns: i64,
    turn: usize,
}

/// The requests and final responses of a connection, numbered, and its interim responses.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    pub numbered: Vec<Message>,
    interims: Vec<Message>,
}

impl Message {
    fn new((place, head): (usize, &Head), role: Role) -> Self {
        Self {
            ordinal: 0,
            role,
            start: head.offset,
            head: Some(place as u32),
            server_ns: head.server_ns,
            turn: 0,
        }
    }
}

impl Messages {
    /// Number the messages of a connection; none if it has no heads.
    ///
    /// Arguments: `heads` as `heads::collect_heads` gives them, with their times and true directions.
    pub fn number(&mut self, heads: &[Head], ranges: &ByDirection<Vec<Range>>) {
        self.numbered.clear();
        self.interims.clear();
        let with = |role: Role| move |(_, head): &(usize, &Head)| head.role() == Some(role);
        let of = |role: Role| {
            let own = heads.iter().enumerate().filter(with(role));
            own.map(move |head| Message::new(head, role))
        };
        self.numbered.extend(of(Role::Request));
        let requests_count = self.numbered.len();
        self.numbered.extend(of(Role::Response));
        let interim = |head: &Head| {
            head.role()
                .filter(|role| matches!(role, Role::Continue | Role::Interim))
        };
        let interims = heads.iter().enumerate();
        self.interims
            .extend(interims.filter_map(|(place, head)| Some(Message::new((place, head), interim(head)?))));
        let shows_gaps = heads.iter().any(|head| head.order.follows);
        if shows_gaps && !has_gaps(heads) {
            number_by_arrival(&mut self.numbered, requests_count);
        } else if !shows_gaps && is_in_order(self.numbered.split_at(requests_count)) {
            for (place, message) in self.numbered.iter_mut().enumerate() {
                message.ordinal = place % requests_count + 1;
            }
        } else {
            number_by_turns(&mut self.numbered, &self.interims, &ranges.server);
            if shows_gaps {
                drop_unasked(&mut self.numbered);
            }
        }
    }

    /// Number the messages of a connection whose pairs are known. Arguments: of each head the ordinal of its exchange; 0
    /// if it belongs to none, [`MORE`] if it continues the message before it.
    pub fn number_as(&mut self, heads: &[Head], ordinals: &[usize]) {
        self.numbered.clear();
        self.interims.clear();
        let own = heads.iter().zip(ordinals).enumerate();
        let own = own.filter(|(_, (_, ordinal))| !matches!(**ordinal, 0 | MORE));
        self.numbered.extend(own.filter_map(|(place, (head, &ordinal))| {
            let message = Message::new((place, head), head.role()?);
            Some(Message { ordinal, ..message })
        }));
    }

    /// Append the parts that begin with each message; an interim response belongs to the exchange of the final response
    /// after it.
    pub fn mark_parts(&self, heads: &[Head], parts: &mut ByDirection<Vec<Part>>) {
        self.mark_messages(heads, parts);
        mark_asides(heads, parts);
    }

    fn mark_messages(&self, heads: &[Head], parts: &mut ByDirection<Vec<Part>>) {
        let mut mark = |message: &Message, ordinal| {
            let from_client = message.role == Role::Request;
            parts.of_mut(from_client).push(Part {
                head_end: message.head.map_or(UNSEEN, |place| heads[place as usize].body_start()),
                ..Part::new(message.start, ordinal, message.role)
            });
        };
        self.numbered.iter().for_each(|message| mark(message, message.ordinal));
        let Some(last) = self.numbered.iter().map(|message| message.ordinal).max() else {
            return;
        };
        if self.interims.is_empty() {
            return;
        }
        let finals = self.numbered.iter().filter(|message| message.role == Role::Response);
        let mut finals: Vec<(i64, usize)> = finals.map(|message| (message.start, message.ordinal)).collect();
        finals.sort_unstable();
        for interim in &self.interims {
            let after = finals.partition_point(|(start, _)| *start < interim.start);
            mark(interim, finals.get(after).map_or(last, |(_, ordinal)| *ordinal));
        }
    }
}

/// Mark what belongs to no exchange: what a message says is none of it, and what follows the end of an answer. It is a
/// part of its own, with the ordinal of the exchange before it, so that it lengthens no message.
fn mark_asides(heads: &[Head], parts: &mut ByDirection<Vec<Part>>) {
    for from_client in [false, true] {
        let mut starts: Vec<i64> = Vec::new();
        let mut end = None;
        for head in heads.iter().filter(|head| head.from_client == from_client) {
            match head.role() {
                Some(Role::Aside) => starts.push(head.offset),
                Some(Role::Response) => starts.extend(end.take()),
                _ => {}
            }
            end = head.answer_end().or(end); // of several, the last
        }
        starts.extend(end);
        if starts.is_empty() {
            continue;
        }
        let parts = parts.of_mut(from_client);
        parts.sort_by_key(|part| part.start);
        starts.dedup();
        let marked = parts.len();
        for start in starts {
            let before = parts[..marked]
                .partition_point(|part| part.start <= start)
                .checked_sub(1);
            if let Some(before) = before.filter(|&before| parts[before].start < start) {
                let ordinal = parts[before].ordinal;
                parts.push(Part::new(start, ordinal, Role::Aside));
            }
        }
    }
}

/// Whether messages may be missing after the first one of a direction that was captured.
fn has_gaps(heads: &[Head]) -> bool {
    let is_first = |place: usize| place == 0 || heads[place - 1].from_client != heads[place].from_client;
    heads
        .iter()
        .enumerate()
        .any(|(place, head)| head.is_after_gap && !is_first(place))
}

/// Number `messages`, of which the first `requests_count` are requests, each answer as the oldest unanswered request
/// that had arrived; other answers are removed.
fn number_by_arrival(messages: &mut Vec<Message>, requests_count: usize) {
    let (requests, responses) = messages.split_at_mut(requests_count);
    (1..)
        .zip(requests.iter_mut())
        .for_each(|(ordinal, request)| request.ordinal = ordinal);
    let mut waiting = requests.iter().peekable();
    for response in responses {
        let answered = waiting.next_if(|request| request.server_ns <= response.server_ns);
        response.ordinal = answered.map_or(0, |request| request.ordinal);
    }
    messages.retain(|message| message.ordinal > 0);
}

/// Drop the answers that have no request: after a gap, an answer's later message looks like the beginning of another.
fn drop_unasked(messages: &mut Vec<Message>) {
    let asked: FxHashSet<usize> = messages
        .iter()
        .filter(|message| message.role == Role::Request)
        .map(|message| message.ordinal)
        .collect();
    messages.retain(|message| asked.contains(&message.ordinal));
}

/// Whether there are as many final responses as requests, none of them before its request.
fn is_in_order((requests, responses): (&[Message], &[Message])) -> bool {
    let answers = |(request, response): (&Message, &Message)| {
        request.server_ns != UNSEEN && response.server_ns >= request.server_ns
    };
    !requests.is_empty() && requests.len() == responses.len() && requests.iter().zip(responses).all(answers)
}

fn number_by_turns(messages: &mut Vec<Message>, interims: &[Message], said: &[Range]) {
    take_turns(messages, said);
    let headless = headless_answers(messages, interims, said);
    messages.extend(headless);
    messages.sort_by_key(|message| (message.turn, message.role, message.start));
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(messages.len());
    let mut rank = 0;
    for (place, message) in messages.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &messages[before]);
        let goes_on = before.is_some_and(|before| (before.turn, before.role) == (message.turn, message.role));
        rank = if goes_on { rank + 1 } else { 0 };
        places.push((message.turn, rank));
    }
    let mut ordinals = places.clone();
    ordinals.sort_unstable();
    ordinals.dedup();
    for (message, place) in messages.iter_mut().zip(places) {
        message.ordinal = ordinals.partition_point(|other| *other <= place);
    }
}

/// Sort messages by the server's time, and number the turn of each.
fn take_turns(messages: &mut [Message], said: &[Range]) {
    let mut spoke: Vec<i64> = said.iter().map(|range| range.server_ns(false)).collect();
    spoke.sort_unstable();
    messages.sort_by_key(|message| (message.server_ns, message.role, message.start));
    let (mut turn, mut last_asked) = (0, UNSEEN);
    for message in messages {
        if message.role == Role::Request {
            let heard =
                last_at_or_before(&spoke, message.server_ns, |at| *at).is_some_and(|place| spoke[place] > last_asked);
            turn += usize::from(last_asked == UNSEEN || heard);
            last_asked = message.server_ns;
        }
        message.turn = turn;
    }
}

/// A response for each turn in which the server sent bytes but no final head was captured; it begins with the server's
/// first byte of that turn.
fn headless_answers(messages: &[Message], interims: &[Message], said: &[Range]) -> Vec<Message> {
    let turns = messages.last().map_or(0, |message| message.turn);
    let mut request_arrivals = vec![(UNSEEN, false); turns];
    for message in messages.iter().filter(|message| message.turn > 0).rev() {
        let (at, answered) = &mut request_arrivals[message.turn - 1];
        *at = message.server_ns;
        *answered |= message.role == Role::Response;
    }
    let mut first: Vec<Option<(i64, i64)>> = vec![None; turns];
    for range in said {
        let at_ns = range.server_ns(false);
        let Some(turn) = last_at_or_before(&request_arrivals, at_ns, |(at, _)| *at) else {
            continue;
        };
        if request_arrivals[turn].0 != UNSEEN && !request_arrivals[turn].1 {
            let known = first[turn].get_or_insert((range.start, at_ns));
            *known = (known.0.min(range.start), known.1.min(at_ns));
        }
    }
    let mut starts: Vec<i64> = interims.iter().map(|interim| interim.start).collect();
    starts.sort_unstable();
    let answer = |(turn, found): (usize, &Option<(i64, i64)>)| {
        let (start, server_ns) = (*found)?;
        let interim = starts.binary_search(&start).is_ok();
        let role = Role::Response;
        (!interim).then_some(Message {
            ordinal: 0,
            role,
            start,
            head: None,
            server_ns,
            turn: turn + 1,
        })
    };
    first.iter().enumerate().filter_map(answer).collect()
}
