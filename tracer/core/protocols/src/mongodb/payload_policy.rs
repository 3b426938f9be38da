//! What of a payload an agent keeps, and what is overwritten in one that is kept whole, if it begins with a message.
//!
//! | of a message | an agent keeps | in a whole payload |
//! |---|---|---|
//! | header, flags, kinds and lengths of sections | all | stays |
//! | what is read: the command, database, collection, cursor; of an answer success, codes, whether a batch is empty | all, with secrets in names overwritten | likewise |
//! | a command that proves who asks or sets a password, and the elements of others that do | nothing | overwritten with zeros |
//! | the rest | nothing | by the rules for lines of text |
//!
//! Limits: a message in a payload that begins within another one is not found here.

use std::ops::Range;

use twintap_secrets::SecretRules;

use super::may_begin;
use super::messages::{self, Header};
use crate::parts::blank_beside;
use crate::redaction::RedactRest;

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

/// Redact a payload by `redact_lines`, but for what is read of messages that it begins with; overwrite what may prove who
/// asks.
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
        payload[secret].fill(0); // as an agent does, so that what is behind is read all the same
    }
    for (bytes, part) in kept.into_iter().chain(names) {
        payload[part].copy_from_slice(&bytes);
    }
}

fn places(payload: &[u8]) -> Places {
    let mut found = Places::default();
    let mut at = 0_usize;
    while let Some(rest) = payload.get(at..) {
        let header = Header::parse(rest).filter(|header| at > 0 || messages::is_sure(header, rest));
        let Some(header) = header else {
            break;
        };
        let content = messages::read(&header, rest);
        let moved = |part: &Range<usize>| part.start + at..part.end + at;
        found.kept.push(at..at + messages::HEADER_LEN);
        found.kept.extend(content.read.iter().map(moved));
        let names = [&content.database, &content.collection];
        found
            .names
            .extend(names.into_iter().filter(|name| !name.is_empty()).map(moved));
        found.secrets.extend(content.secrets.iter().map(moved));
        at = at.saturating_add(header.len as usize);
    }
    found
}
