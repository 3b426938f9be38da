//! What is kept of the head that a header block says: the columns of the table that it fills.
//!
//! An excerpt holds them one behind the other, so that a head is read from it without another look at its fields:
//! ```text
//! +-----------+------------------------------------------------------------------+
//! | parts (8) | status (16), length (64), range (128), texts, each behind its    |
//! |           | length (16): method, target, id, span that asks, agent, authority |
//! +-----------+------------------------------------------------------------------+
//! ```
//! A bit of `parts` says which of them are there (`part`). Little-endian; only processes of the same version read it.

use std::iter;
use std::ops::Range;

use twintap_secrets::SecretRules;

use crate::excerpt::Keeper;
use crate::head::{ByteRange, Head};
use crate::http1::{self, IdChoice, REQUEST, RESPONSE, TARGET_LIMIT, VALUE_LIMIT};

/// Bits of the first byte.
mod part {
    pub const STATUS: u8 = 0x01;
    pub const CONTENT_LENGTH: u8 = 0x02;
    pub const RANGE: u8 = 0x04;
    pub const REQUEST: u8 = 0x08;
    pub const ID: u8 = 0x10;
    pub const USER_AGENT: u8 = 0x20;
    pub const AUTHORITY: u8 = 0x40;
}

/// Append a field: the lengths of its name and its value, and both; bytes that end a line are replaced.
pub fn push_field(fields: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u16::try_from(value.len())) else {
        return; // no string is so long (`hpack`)
    };
    fields.extend_from_slice(&name_len.to_le_bytes());
    fields.extend_from_slice(&value_len.to_le_bytes());
    let safe = |byte: &u8| if matches!(byte, b'\r' | b'\n' | 0) { b'?' } else { *byte };
    fields.extend(name.iter().map(safe));
    fields.extend(value.iter().map(safe));
}

/// Name and value of each field that [`push_field`] appended.
fn each_field(mut fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    iter::from_fn(move || {
        let [name_len, value_len] = [take_u16(&mut fields)?, take_u16(&mut fields)?];
        Some((
            take_bytes(&mut fields, name_len.into())?,
            take_bytes(&mut fields, value_len.into())?,
        ))
    })
}

/// The pseudo-headers of a block (RFC 9113 §8.3); empty where there is none.
#[derive(Clone, Copy, Debug, Default)]
struct FirstLine<'a> {
    method: &'a [u8],
    path: &'a [u8],
    authority: &'a [u8],
    status: &'a [u8],
}

impl<'a> FirstLine<'a> {
    /// Take a pseudo-header.
    fn take(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b":method" => self.method = value,
            b":path" => self.path = value,
            b":authority" => self.authority = value,
            b":status" => self.status = value,
            _ => {}
        }
    }

    /// What is requested: a tunnel has no path.
    fn target(&self) -> &'a [u8] {
        if self.path.is_empty() {
            self.authority
        } else {
            self.path
        }
    }

    fn is_request(&self) -> bool {
        !self.method.is_empty() && !self.target().is_empty()
    }

    /// The status of an answer.
    fn status(&self) -> Option<u16> {
        let is_status = self.status.len() == 3 && self.status.iter().all(u8::is_ascii_digit);
        let digits = self.status.iter().map(|digit| u16::from(digit - b'0'));
        is_status.then(|| digits.fold(0, |status, digit| status * 10 + digit))
    }
}

/// Append to the bytes of excerpts what is kept of the head that `fields` are; nothing if they are no beginning of a
/// message.
pub fn keep(fields: &[u8], keeper: &mut Keeper<'_>) {
    let (mut line, mut head) = (FirstLine::default(), Head::empty(RESPONSE));
    let (mut marks, mut best_id) = (0, usize::MAX);
    for (name, value) in each_field(fields) {
        if name.starts_with(b":") {
            line.take(name, value);
            continue;
        }
        let value = http1::up_to(value.trim_ascii(), VALUE_LIMIT);
        marks |= keeper.marks.of(name, value);
        http1::take_header(&mut head, name, value, IdChoice::Of(keeper.ids), &mut best_id);
    }
    if line.is_request() {
        if !http1::is_method(line.method) {
            return;
        }
        (head.kind, head.method, head.target) = (REQUEST, line.method, http1::up_to(line.target(), TARGET_LIMIT));
    } else if let Some(status) = line.status() {
        head.status = status;
    } else {
        return;
    }
    let kept = &mut keeper.excerpts.bytes.bytes;
    let target = put(&head, keeper.secrets, kept);
    let shown = Head {
        target: &kept[target],
        ..head
    };
    keeper.notes.head(&shown, marks, true);
}

/// Append a head, its secrets overwritten. Returns where its target is.
fn put(head: &Head<'_>, secrets: &SecretRules, kept: &mut Vec<u8>) -> Range<usize> {
    let parts = [
        (part::STATUS, head.status > 0),
        (part::CONTENT_LENGTH, head.content_length >= 0),
        (part::RANGE, head.range != ByteRange::NONE),
        (part::REQUEST, !head.method.is_empty()),
        (part::ID, !head.transaction_id.is_empty()),
        (part::USER_AGENT, !head.user_agent.is_empty()),
        (part::AUTHORITY, !head.authority.is_empty()),
    ];
    let parts = parts
        .into_iter()
        .fold(0, |bits, (bit, is_there)| if is_there { bits | bit } else { bits });
    let has = |bit: u8| parts & bit != 0;
    kept.push(parts);
    if has(part::STATUS) {
        kept.extend_from_slice(&head.status.to_le_bytes());
    }
    if has(part::CONTENT_LENGTH) {
        kept.extend_from_slice(&head.content_length.to_le_bytes());
    }
    if has(part::RANGE) {
        kept.extend_from_slice(&head.range.first.to_le_bytes());
        kept.extend_from_slice(&head.range.last.to_le_bytes());
    }
    let mut target_end = kept.len();
    if has(part::REQUEST) {
        put_text(head.method, kept);
        let target = put_text(head.target, kept);
        let is_of_target = |byte: u8| byte.is_ascii_graphic() || !byte.is_ascii();
        target
            .iter_mut()
            .filter(|byte| !is_of_target(**byte))
            .for_each(|byte| *byte = b'?');
        secrets.redact_target(target);
        target_end = kept.len();
    }
    if has(part::ID) {
        put_text(head.transaction_id, kept);
        put_text(head.client_span_id, kept);
    }
    for (bit, text) in [(part::USER_AGENT, head.user_agent), (part::AUTHORITY, head.authority)] {
        if has(bit) {
            let text = put_text(text, kept);
            if http1::may_hold_secret(text) {
                secrets.redact_target(text);
            }
        }
    }
    target_end - head.target.len()..target_end
}

/// Append a text behind its length. Returns its copy.
fn put_text<'a>(text: &[u8], kept: &'a mut Vec<u8>) -> &'a mut [u8] {
    kept.extend_from_slice(&(text.len() as u16).to_le_bytes()); // limited (`http1`)
    let start = kept.len();
    kept.extend_from_slice(text);
    &mut kept[start..]
}

/// The head of a frame with what [`keep`] kept of its block; `None` if it kept nothing.
pub fn read<'a>(frame: Head<'a>, mut kept: &'a [u8]) -> Option<Head<'a>> {
    let (&parts, rest) = kept.split_first()?;
    kept = rest;
    let has = |bit: u8| parts & bit != 0;
    let mut head = frame;
    if has(part::STATUS) {
        head.status = take_u16(&mut kept)?;
    }
    if has(part::CONTENT_LENGTH) {
        head.content_length = take_i64(&mut kept)?;
    }
    if has(part::RANGE) {
        head.range = ByteRange {
            first: take_i64(&mut kept)?,
            last: take_i64(&mut kept)?,
        };
    }
    if has(part::REQUEST) {
        (head.method, head.target) = (take_text(&mut kept)?, take_text(&mut kept)?);
    }
    if has(part::ID) {
        (head.transaction_id, head.client_span_id) = (take_text(&mut kept)?, take_text(&mut kept)?);
    }
    if has(part::USER_AGENT) {
        head.user_agent = take_text(&mut kept)?;
    }
    if has(part::AUTHORITY) {
        head.authority = take_text(&mut kept)?;
    }
    Some(head)
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_le_bytes(*number))
}

fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(i64::from_le_bytes(*number))
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_u16(bytes)?;
    take_bytes(bytes, len.into())
}

fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::FRAME;

    fn head() -> Head<'static> {
        Head {
            status: 206,
            content_length: 70,
            range: ByteRange { first: -1, last: 9 },
            method: b"GET",
            target: b"/a b?token=planted&c=d",
            transaction_id: b"tx1",
            client_span_id: b"b7ad6b7169203331",
            user_agent: b"http://u:planted@h/",
            authority: b"a.example:80",
            ..Head::empty(FRAME)
        }
    }

    #[test]
    fn a_head_comes_back_with_its_secrets_overwritten_and_no_prefix_panics() {
        let mut kept = b"before".to_vec();
        let target = put(&head(), SecretRules::built_in(), &mut kept);
        let expected = Head {
            target: b"/a?b?token=xxxxxxx&c=d",
            user_agent: b"http://xxxxxxxxx@h/",
            ..head()
        };
        assert_eq!(&kept[target], expected.target);
        let kept = &kept[6..];
        assert_eq!(read(Head::empty(FRAME), kept), Some(expected));
        assert!((0..kept.len()).all(|len| read(Head::empty(FRAME), &kept[..len]).is_none()));
    }

    #[test]
    fn what_a_head_lacks_takes_no_room() {
        let answer = Head {
            status: 200,
            ..Head::empty(FRAME)
        };
        let mut kept = Vec::new();
        assert_eq!(put(&answer, SecretRules::built_in(), &mut kept), 3..3);
        assert_eq!(kept.len(), 3);
        assert_eq!(read(Head::empty(FRAME), &kept), Some(answer));
    }

    #[test]
    fn fields_are_visited_as_they_were_appended_but_for_line_breaks() {
        let mut fields = Vec::new();
        push_field(&mut fields, b"a", b"b\r\nc");
        push_field(&mut fields, b":path", b"");
        let found: Vec<_> = each_field(&fields).collect();
        assert_eq!(found, [(&b"a"[..], &b"b??c"[..]), (b":path", b"")]);
        assert_eq!(each_field(&fields[..fields.len() - 1]).count(), 1);
    }
}
