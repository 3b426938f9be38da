//! Scans messages each of which is preceded by its length, in four bytes, the highest first.

use std::fmt::Debug;
use std::ops::Range;

use crate::protocol::{OnMessage, Scan, Scanner};

/// Bytes of a length.
pub(crate) const LENGTH_LEN: usize = 4;
/// Longest message.
const MESSAGE_LIMIT: u32 = 1 << 30;

/// Reads the messages of one direction in their order.
pub(crate) trait SizedMessages: Clone + Debug + Send + 'static {
    /// Bytes without which nothing is known of a message, its length among them.
    const LEAST_LEN: usize;

    /// How many bytes of a message are wanted, its length among them, as far as those that are there show it: no more
    /// than are there, if these are enough.
    fn wanted_len(&self, message: &[u8]) -> usize;
    /// Read a message, and pass it on.
    ///
    /// Arguments: `message`, as much of it as is wanted, or as was captured; `start`, its place. Returns false if it cannot
    /// be one.
    fn read(&mut self, message: &[u8], start: i64, found: OnMessage<'_>) -> bool;
    /// Messages are missing between the last one and the next.
    fn lose(&mut self);
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SizedScanner<M> {
    messages: M,
    /// What is there of the current message, up to what is wanted.
    held: Vec<u8>,
}

impl<M: SizedMessages> SizedScanner<M> {
    /// Bytes of the current message that are wanted; `None` if its length is none.
    fn wanted_len(&self) -> Option<usize> {
        match length_of(&self.held) {
            None => Some(LENGTH_LEN),
            Some(length) if length > MESSAGE_LIMIT => None,
            Some(length) => Some(
                self.messages
                    .wanted_len(&self.held)
                    .max(LENGTH_LEN)
                    .min(LENGTH_LEN + length as usize),
            ),
        }
    }
}

impl<M: SizedMessages> Scanner for SizedScanner<M> {
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan {
        let (mut at, mut start) = (0, -(self.held.len() as i64));
        loop {
            let Some(wanted) = self.wanted_len() else {
                return Scan::End;
            };
            if self.held.len() < wanted {
                let more = (wanted - self.held.len()).min(bytes.len() - at);
                if more == 0 {
                    return Scan::Skip(0);
                }
                self.held.extend_from_slice(&bytes[at..at + more]);
                at += more;
                continue;
            }
            if !self.messages.read(&self.held, start, found) {
                return Scan::End;
            }
            start += LENGTH_LEN as i64 + i64::from(length_of(&self.held).unwrap_or(0));
            self.held.clear();
            if start >= bytes.len() as i64 {
                return Scan::Skip((start - bytes.len() as i64) as u32);
            }
            at = start as usize;
        }
    }

    fn lose(&mut self, found: OnMessage<'_>) {
        if self.held.len() >= M::LEAST_LEN {
            self.messages.read(&self.held, -(self.held.len() as i64), found);
        }
        self.held.clear();
        self.messages.lose();
    }

    fn boxed_clone(&self) -> Box<dyn Scanner> {
        Box::new(self.clone())
    }
}

/// The length that a message begins with, without its own four bytes.
pub(crate) fn length_of(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|length| u32::from_be_bytes(*length))
}

/// Bytes of a message, its length among them.
pub(crate) fn whole_len(message: &[u8]) -> u32 {
    length_of(message).unwrap_or(0).saturating_add(LENGTH_LEN as u32)
}

/// The messages that a payload begins with; the last one may end behind it.
pub(crate) fn messages_of(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let length = length_of(rest)? as usize;
        let (message, behind) = rest.split_at(rest.len().min(LENGTH_LEN.saturating_add(length)));
        rest = behind;
        Some(message)
    })
}

/// Where the first bytes of each message stand in a payload: how many, `first_len` says, if it is a message.
pub(crate) fn places(payload: &[u8], first_len: fn(&[u8]) -> Option<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    messages_of(payload).filter_map(move |message| {
        let start = at;
        at += message.len();
        first_len(message).map(|len| start..start + len)
    })
}

/// Where the last of the places within `limit` ends; 0 if there is none.
pub(crate) fn kept_end(places: impl Iterator<Item = Range<usize>>, limit: usize) -> usize {
    let ends = places.map(|place| place.end);
    ends.take_while(|end| *end <= limit).last().unwrap_or(0)
}

/// Whether messages end where a payload does.
pub(crate) fn are_whole(payload: &[u8]) -> bool {
    let ends = messages_of(payload).map(|message| {
        let length = length_of(message).unwrap_or(0) as usize;
        (message.len(), message.len() == LENGTH_LEN + length)
    });
    let (len, is_whole) = ends.fold((0, false), |(len, _), (own, is_whole)| (len + own, is_whole));
    is_whole && len == payload.len()
}

/// Offset of the first message that begins at or behind a payload's end, or of the length that the payload ends within.
pub(crate) fn next_head(payload: &[u8]) -> Option<usize> {
    let mut at = 0_usize;
    while let Some(length) = payload.get(at..).and_then(length_of) {
        at = at.checked_add(LENGTH_LEN + length as usize)?;
    }
    (at > 0).then_some(at)
}
