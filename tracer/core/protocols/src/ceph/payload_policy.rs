//! What of a payload an agent keeps and what is overwritten in one that is kept whole, if it begins with frames.
//!
//! | of a frame | an agent keeps | in a whole payload |
//! |---|---|---|
//! | preamble, banner, header of a message | all | stays |
//! | of a message what is read: object, operations, result; of data the names of a called class and method | all, with secrets in names overwritten | likewise |
//! | the rest of an operation on an object | nothing | by the rules for lines of text |
//! | the rest of another message: commands may contain keys | nothing | overwritten |
//! | authentication: tickets, challenges | which mode follows | likewise, the rest overwritten |
//!
//! Limits: a frame in a payload that begins within another one is not found here.

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::MODE_END;
use super::frames::{PREAMBLE_LEN, Preamble, banner_len, may_begin, tag};
use super::messages::{self, HEADER_LEN, Header, kind};
use crate::parts::blank_beside;
use crate::redaction::RedactRest;

/// Messages with operations on objects: what they carry besides is a user's data, as a body of HTTP is.
const OF_OBJECTS: [u16; 8] = [
    kind::OSD_OP,
    kind::OSD_OP_REPLY,
    kind::REPOP,
    kind::REPOP_REPLY,
    kind::EC_WRITE,
    kind::EC_WRITE_REPLY,
    kind::EC_READ,
    kind::EC_READ_REPLY,
];

/// Places in a payload.
#[derive(Default)]
struct Places {
    /// Ascending.
    kept: Vec<Range<usize>>,
    /// What a user named, within what is kept.
    names: Vec<Range<usize>>,
    /// What is overwritten whole, but for what is kept.
    secrets: Vec<Range<usize>>,
}

/// Bytes up to the end of the last part that is kept; 0 if there is none. For the hot path.
#[inline]
pub fn kept_len(payload: &[u8], limit: usize) -> usize {
    if !may_begin(payload) {
        return 0;
    }
    let kept = places(&payload[..payload.len().min(limit)]).kept;
    kept.last().map_or(0, |part| part.end)
}

/// Overwrite with zeros what is not kept, and secrets in names by `rules`.
pub fn blank(captured: &mut [u8], rules: &SecretRules) {
    let places = places(captured);
    blank_beside(captured, places.kept);
    for name in places.names {
        rules.redact_target(&mut captured[name]);
    }
}

/// Redact a payload by `redact_lines`, but for what is read of frames that it begins with; overwrite what may be a key.
pub fn redact_around(payload: &mut [u8], rules: &SecretRules, redact_lines: RedactRest<'_>) {
    if !may_begin(payload) {
        redact_lines(payload);
        return;
    }
    let places = places(payload);
    let saved = |part: Range<usize>| (payload[part.clone()].to_vec(), part);
    let kept: Vec<_> = places.kept.into_iter().map(saved).collect();
    let mut names: Vec<_> = places.names.into_iter().map(saved).collect();
    names.iter_mut().for_each(|(name, _)| rules.redact_target(name));
    redact_lines(payload);
    for secret in places.secrets {
        payload[secret].fill(b'x');
    }
    for (bytes, part) in kept.into_iter().chain(names) {
        payload[part].copy_from_slice(&bytes);
    }
}

fn places(payload: &[u8]) -> Places {
    let mut found = Places::default();
    let mut at = banner_len(payload);
    if at > 0 {
        found.kept.push(0..at);
    }
    while let Some(preamble) = payload.get(at..).and_then(Preamble::parse) {
        let body = at + PREAMBLE_LEN;
        found.kept.push(at..body);
        at = preamble
            .body_len()
            .map_or(usize::MAX, |len| body.saturating_add(len as usize));
        found.add_body(&preamble, payload, body..at.min(payload.len()));
    }
    found
}

impl Places {
    fn add_body(&mut self, preamble: &Preamble, payload: &[u8], body: Range<usize>) {
        if preamble.tag == tag::AUTH_DONE {
            self.kept.push(body.start..body.end.min(body.start + MODE_END));
        }
        if preamble.is_secret() {
            self.secrets.push(body);
        } else if preamble.is_message() {
            self.add_message(preamble, &payload[body.clone()], body.start);
        }
    }

    /// Arguments: `body`, which begins at `start`.
    fn add_message(&mut self, preamble: &Preamble, body: &[u8], start: usize) {
        let moved = |part: &Range<usize>, by: usize| part.start + by..part.end + by;
        let places = preamble.places(body.len());
        self.kept.push(moved(&places.header, start));
        let Some(header) = Header::parse(&body[places.header]) else {
            return;
        };
        let content = messages::read(&header, &body[places.front.clone()], &body[places.data.clone()]);
        let in_front = |part: &Range<usize>| moved(part, start + places.front.start);
        self.kept.extend(content.read.iter().map(in_front));
        self.names.extend(content.names.iter().map(in_front));
        let in_data = |part: &Range<usize>| moved(part, start + places.data.start);
        self.kept.extend(content.called.iter().map(in_data));
        if !OF_OBJECTS.contains(&header.kind) {
            self.secrets.push(start + HEADER_LEN..start + body.len());
        }
    }
}
