//! Which response answers which request (RFC 9112 §9.3): the i-th final response answers the i-th request.
//!
//! 1xx responses are interim (RFC 9110 §15.2), except 101, after which the connection speaks something else. Where the
//! counts differ (the capture began or ended in between, or missed a head) the order is taken within turns, so that one
//! missing head cannot shift all that follow. A turn begins with a request that reached the server after the server had
//! said something since the request before; a turn with bytes but no head from the server is answered by these bytes.
//!
//! Limits: after an upgrade or CONNECT all bytes belong to that exchange. HTTP/2 shows no heads: see [`crate::turns`].

use crate::UNSEEN;
use crate::heads::Head;
use crate::parts::{Part, Role};
use crate::ranges::{Range, Ways, located};

/// A request, or a final response: the `ordinal` of its exchange counts from 1. Without a head: it began unseen.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub ordinal: usize,
    pub role: Role,
    pub start: i64,
    pub head: Option<Head>,
    server_ns: i64,
    turn: usize,
}

impl Message {
    fn new(head: Head, role: Role) -> Self {
        Self {
            ordinal: 0,
            role,
            start: head.offset,
            head: Some(head),
            server_ns: head.server_ns,
            turn: 0,
        }
    }
}

/// The requests and final responses of a connection, numbered, and the parts that its heads mark, interim responses
/// too; both empty if there are none.
///
/// Arguments: `heads` as `heads::seen_heads` gives them, timed and with true directions.
pub fn number(heads: &[Head], ranges: &Ways<Vec<Range>>) -> (Vec<Message>, Vec<Part>) {
    let (mut requests, mut responses, mut interims) = (Vec::new(), Vec::new(), Vec::new());
    for head in heads {
        match head.role() {
            Some(Role::Request) => requests.push(Message::new(*head, Role::Request)),
            Some(Role::Response) => responses.push(Message::new(*head, Role::Response)),
            Some(role) => interims.push(Message::new(*head, role)),
            None => {}
        }
    }
    let in_order = in_order(&requests, &responses);
    let mut messages: Vec<Message> = requests.into_iter().chain(responses).collect();
    if in_order {
        let count = messages.len() / 2;
        for (place, message) in messages.iter_mut().enumerate() {
            message.ordinal = place % count + 1;
        }
    } else {
        number_by_turns(&mut messages, &interims, &ranges.server);
    }
    let parts = marked_parts(&messages, &interims);
    (messages, parts)
}

/// As many final responses as requests, none before its request.
fn in_order(requests: &[Message], responses: &[Message]) -> bool {
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

/// Sort messages by the server's time, and give each its turn.
fn take_turns(messages: &mut [Message], said: &[Range]) {
    let mut spoke: Vec<i64> = said.iter().map(|range| range.server_ns).collect();
    spoke.sort_unstable();
    messages.sort_by_key(|message| (message.server_ns, message.role, message.start));
    let (mut turn, mut last_asked) = (0, UNSEEN);
    for message in messages {
        if message.role == Role::Request {
            let heard = located(&spoke, message.server_ns, |at| *at).is_some_and(|place| spoke[place] > last_asked);
            turn += usize::from(last_asked == UNSEEN || heard);
            last_asked = message.server_ns;
        }
        message.turn = turn;
    }
}

/// A response for each turn in which the server spoke but showed no final head: it begins with its first byte.
fn headless_answers(messages: &[Message], interims: &[Message], said: &[Range]) -> Vec<Message> {
    let turns = messages.last().map_or(0, |message| message.turn);
    let mut begun = vec![(UNSEEN, false); turns];
    for message in messages.iter().filter(|message| message.turn > 0).rev() {
        let (at, answered) = &mut begun[message.turn - 1];
        *at = message.server_ns;
        *answered |= message.role == Role::Response;
    }
    let mut first: Vec<Option<(i64, i64)>> = vec![None; turns];
    for range in said {
        let Some(turn) = located(&begun, range.server_ns, |(at, _)| *at) else {
            continue;
        };
        if begun[turn].0 != UNSEEN && !begun[turn].1 {
            let known = first[turn].get_or_insert((range.start, range.server_ns));
            *known = (known.0.min(range.start), known.1.min(range.server_ns));
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

/// Parts of all messages; an interim response belongs to the exchange of the final one after it.
fn marked_parts(messages: &[Message], interims: &[Message]) -> Vec<Part> {
    let Some(last) = messages.iter().map(|message| message.ordinal).max() else {
        return Vec::new();
    };
    let part = |message: &Message, ordinal| Part {
        head_end: message.head.map_or(UNSEEN, |head| head.end()),
        ..Part::new(message.role == Role::Request, message.start, ordinal, message.role)
    };
    let mut parts: Vec<Part> = messages.iter().map(|message| part(message, message.ordinal)).collect();
    let mut finals: Vec<(i64, usize)> = messages
        .iter()
        .filter(|message| message.role == Role::Response)
        .map(|message| (message.start, message.ordinal))
        .collect();
    finals.sort_unstable();
    parts.extend(interims.iter().map(|interim| {
        let after = finals.partition_point(|(start, _)| *start < interim.start);
        part(interim, finals.get(after).map_or(last, |(_, ordinal)| *ordinal))
    }));
    parts
}
