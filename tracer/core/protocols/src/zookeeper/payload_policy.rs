//! What an agent keeps of ZooKeeper's messages, and what is overwritten in packets that are kept whole.
//!
//! | message | an agent keeps | in a whole payload |
//! |---|---|---|
//! | request | length, number, type; its path, which is redacted as a target | stays |
//! | what opens a session | up to how long it may be silent | its id and password are overwritten |
//! | `auth`, `sasl` | length, number, type | the rest is overwritten |
//! | answer | length, number, zxid, error, where its client's requests were recognised | stays |
//! | the answer to what opens a session | length | its id and password are overwritten |

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::messages::{ANSWER_LEN, Answer, CONNECT_NUMBER, LENGTH_AND_NUMBER, REQUEST_LEN, Request};
use super::operations::Body;
use super::{is_of_client, is_of_server};
use crate::parts::blank_beside;
use crate::sized_messages::{self, kept_end, places};

/// Bytes up to the end of what is kept of the last request; 0 if a payload is none.
#[inline]
pub(super) fn kept_len_of_requests(payload: &[u8], limit: usize) -> usize {
    match is_of_client(payload) {
        true => kept_end(places(payload, request_len), limit),
        false => 0,
    }
}

/// The same where a request is known to begin: it may have no path, and be cut anywhere.
pub(super) fn kept_len_of_next(payload: &[u8], limit: usize) -> usize {
    let is_request = |message: &[u8]| message.len() < REQUEST_LEN || Request::parse(message).is_some();
    match sized_messages::messages_of(payload).all(is_request) {
        true => kept_end(places(payload, request_len), limit),
        false => 0,
    }
}

/// Overwrite with zeros what is not kept, and secrets in paths by `rules`.
pub(super) fn blank_requests(captured: &mut [u8], rules: &SecretRules) {
    let kept: Vec<_> = places(captured, request_len).collect();
    for place in &kept {
        let path_len = Request::parse(&captured[place.clone()]).map_or(0, |request| request.path.len());
        rules.redact_target(&mut captured[place.end - path_len..place.end]);
    }
    blank_beside(captured, kept);
}

/// Bytes up to the end of what is kept of the last answer; 0 if a payload is none.
pub(super) fn kept_len_of_answers(payload: &[u8], limit: usize) -> usize {
    match is_of_server(payload) {
        true => kept_end(places(payload, answer_len), limit),
        false => 0,
    }
}

/// Overwrite with zeros what is not kept.
pub(super) fn blank_answers(captured: &mut [u8]) {
    let kept = places(captured, answer_len).collect();
    blank_beside(captured, kept);
}

/// Overwrite passwords of sessions and what proves who a client is.
pub(super) fn overwrite_secrets(payload: &mut [u8]) {
    let secrets: Vec<Range<usize>> = if is_of_client(payload) {
        let secret_len = |message: &[u8]| {
            let request = Request::parse(message)?;
            (request.operation?.body == Body::Secret).then(|| request.header_len())
        };
        behind(payload, secret_len).collect()
    } else if is_of_server(payload) {
        behind(payload, |message| {
            is_open_answer(message).then_some(LENGTH_AND_NUMBER + 4)
        })
        .collect()
    } else {
        Vec::new()
    };
    secrets.into_iter().for_each(|place| payload[place].fill(b'x'));
}

fn request_len(message: &[u8]) -> Option<usize> {
    let request = Request::parse(message)?;
    Some(request.read_len().min(message.len()))
}

/// Of the answer to what opens a session the length of the password is kept, by which it is known; not its id.
fn answer_len(message: &[u8]) -> Option<usize> {
    Answer::parse(message)?;
    Some(match is_open_answer(message) {
        true => LENGTH_AND_NUMBER,
        false => ANSWER_LEN.min(message.len()),
    })
}

fn is_open_answer(message: &[u8]) -> bool {
    Answer::parse(message).is_some_and(|answer| answer.number == CONNECT_NUMBER)
}

/// What stands behind the first bytes of some messages: how many, `first_len` says.
fn behind(payload: &[u8], first_len: impl Fn(&[u8]) -> Option<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    sized_messages::messages_of(payload).filter_map(move |message| {
        let start = at;
        at += message.len();
        first_len(message).map(|len| start + len.min(message.len())..at)
    })
}
