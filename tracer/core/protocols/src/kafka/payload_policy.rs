//! What an agent keeps of Kafka's messages, and what is overwritten in packets that are kept whole.
//!
//! | message | an agent keeps | in a whole payload |
//! |---|---|---|
//! | request | length, kind, version, number, who asks | stays |
//! | `Produce` | up to the end of its first topic, which is redacted as a target | stays |
//! | requests with passwords | likewise nothing of their body | the body is overwritten |
//! | answer | length and number, where its client's requests were recognised | stays |

use twintap_secrets::SecretRules;

use super::requests::{self, HEADER_LEN, Request};
use super::{ANSWER_LEN, is_of_broker, is_of_client};
use crate::parts::blank_beside;
use crate::sized_messages::{self, kept_end, places};

/// Bytes up to the end of what is kept of the last request; 0 if a payload is none.
#[inline]
pub(super) fn kept_len_of_requests(payload: &[u8], limit: usize) -> usize {
    if !is_of_client(payload) {
        return 0;
    }
    kept_end(places(payload, kept_of), limit)
}

/// The same where a request is known to begin: it may be cut anywhere.
pub(super) fn kept_len_of_next(payload: &[u8], limit: usize) -> usize {
    let is_request = |message: &[u8]| message.len() < HEADER_LEN || Request::parse(message).is_some();
    match sized_messages::messages_of(payload).all(is_request) {
        true => kept_end(places(payload, kept_of), limit),
        false => 0,
    }
}

/// Overwrite with zeros what is not kept, and secrets in topics by `rules`.
pub(super) fn blank_requests(captured: &mut [u8], rules: &SecretRules) {
    let kept: Vec<_> = places(captured, kept_of).collect();
    for place in &kept {
        let topic_len = Request::parse(&captured[place.clone()])
            .and_then(|request| request.produce())
            .map_or(0, |produce| produce.topic.len());
        rules.redact_target(&mut captured[place.end - topic_len..place.end]);
    }
    blank_beside(captured, kept);
}

/// Bytes up to the end of the number of the last answer; 0 if a payload is none.
pub(super) fn kept_len_of_answers(payload: &[u8], limit: usize) -> usize {
    if !is_of_broker(payload) {
        return 0;
    }
    kept_end(places(payload, answer_read_len), limit)
}

/// Overwrite with zeros what is not kept.
pub(super) fn blank_answers(captured: &mut [u8]) {
    let kept = places(captured, answer_read_len).collect();
    blank_beside(captured, kept);
}

/// Bytes that are kept of a request: what is read of it, of one that is cut before that its header.
fn kept_of(message: &[u8]) -> Option<usize> {
    Request::parse(message)?;
    Some(requests::read_len(message).unwrap_or(HEADER_LEN))
}

fn answer_read_len(message: &[u8]) -> Option<usize> {
    (message.len() >= ANSWER_LEN).then_some(ANSWER_LEN)
}

/// Overwrite what requests hold that may contain a password.
pub(super) fn overwrite_secrets(payload: &mut [u8]) {
    if !requests::is_sure(payload) {
        return;
    }
    let (mut at, mut secrets) = (0, Vec::new());
    for message in sized_messages::messages_of(payload) {
        let request = Request::parse(message).filter(|request| request.api.is_secret());
        secrets.extend(request.map(|request| at + message.len() - request.body.len()..at + message.len()));
        at += message.len();
    }
    secrets.into_iter().for_each(|place| payload[place].fill(b'x'));
}
