//! Excerpts of messages with the number of the request that they are part of: the header's bytes, then what was read.

use crate::excerpt::{Emit, Excerpt, Keeper};
use crate::head::{FrameId, Head, HeadKind};
use crate::protocol::{OnMessage, ReadFrame};

/// Kind of the messages of servers, in the column `frame_kind`; those of clients have the protocol's own numbers.
pub(crate) const ANSWER: u16 = u16::MAX;

/// The bit of the column `head_flags` of a message before which others may be missing; a protocol may have others.
pub(crate) const AFTER_GAP: u8 = 1;

/// What a message says; what is empty is not said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedMessage<'a> {
    pub flags: u8,
    pub kind: u16,
    pub number: i64,
    /// Of the whole message.
    pub len: u32,
    pub result: i32,
    pub target: &'a [u8],
    /// Who asks, in its own words.
    pub client: &'a [u8],
}

/// Passes the messages of one direction on.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberedWriter {
    /// No message is missing before the next one.
    is_followed: bool,
    said: Vec<u8>,
}

/// How a protocol names its messages.
#[derive(Debug)]
pub(crate) struct Naming {
    pub head_kind: HeadKind,
    /// The word for a kind of request; empty for what is none.
    pub method: fn(u16) -> &'static str,
}

/// Bytes before the target: flags, kind, number, length, result, the target's length.
const FIXED_LEN: usize = 1 + 2 + 8 + 4 + 4 + 2;

impl NumberedWriter {
    /// Pass a message on. Arguments: its `header`, which is kept as it is; `start`, its place.
    pub fn pass(&mut self, message: NumberedMessage<'_>, header: &[u8], start: i64, found: OnMessage<'_>) {
        let is_followed = std::mem::replace(&mut self.is_followed, true);
        self.said.clear();
        NumberedMessage {
            flags: message.flags | if is_followed { 0 } else { AFTER_GAP },
            ..message
        }
        .write(&mut self.said);
        found(&ReadFrame {
            header,
            at: start as i32,
            said: &self.said,
        });
    }

    /// Messages are missing between the last one and the next.
    pub fn lose(&mut self) {
        self.is_followed = false;
    }
}

impl<'a> NumberedMessage<'a> {
    /// Append it, as [`Self::parse`] reads it.
    fn write(&self, said: &mut Vec<u8>) {
        let target = &self.target[..self.target.len().min(usize::from(u16::MAX))];
        said.push(self.flags);
        said.extend(self.kind.to_be_bytes());
        said.extend(self.number.to_be_bytes());
        said.extend(self.len.to_be_bytes());
        said.extend(self.result.to_be_bytes());
        said.extend((target.len() as u16).to_be_bytes());
        said.extend(target);
        said.extend(self.client);
    }

    fn parse(said: &'a [u8]) -> Option<Self> {
        let (fixed, texts) = said.split_first_chunk::<FIXED_LEN>()?;
        let &[flags, k0, k1, ref rest @ ..] = fixed;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (result, rest) = rest.split_first_chunk::<4>()?;
        let target_len = u16::from_be_bytes(*rest.first_chunk()?);
        let (target, client) = texts.split_at_checked(target_len.into())?;
        Some(Self {
            flags,
            kind: u16::from_be_bytes([k0, k1]),
            number: i64::from_be_bytes(*number),
            len: u32::from_be_bytes(*len),
            result: i32::from_be_bytes(*result),
            target,
            client,
        })
    }
}

impl Naming {
    /// Keep a message, with the secrets in its target overwritten.
    pub fn keep(&self, read: &ReadFrame<'_>, keeper: &mut Keeper<'_>) {
        let Some(message) = NumberedMessage::parse(read.said) else {
            return;
        };
        if !keeper.has_room() {
            keeper.notes.left_out();
            return;
        }
        let mut said = read.said.to_vec();
        let target = FIXED_LEN..FIXED_LEN + message.target.len();
        keeper.secrets.redact_target(&mut said[target.clone()]);
        if !(self.method)(message.kind).is_empty() {
            let head = Head {
                method: (self.method)(message.kind).as_bytes(),
                target: &said[target],
                ..Head::empty(self.head_kind)
            };
            keeper.notes.head(&head, 0, true);
        }
        let (frame, protocol) = (keeper.frame, keeper.protocol);
        keeper
            .excerpts
            .push_parts(frame, read.at, protocol, [read.header, &said]);
    }

    /// Read the message of an excerpt; its place is its first byte.
    pub fn read(&self, excerpt: &Excerpt<'_>, emit: Emit<'_>) {
        let solid_len = (excerpt.stream_len as usize).min(excerpt.bytes.len());
        let Some(message) = NumberedMessage::parse(&excerpt.bytes[solid_len..]) else {
            return;
        };
        emit(
            0,
            &Head {
                flags: message.flags,
                len: message.len,
                method: (self.method)(message.kind).as_bytes(),
                target: message.target,
                user_agent: message.client,
                result_code: message.result,
                frame: FrameId {
                    kind: message.kind,
                    stream: message.number,
                },
                ..Head::empty(self.head_kind)
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_cut_of_it() {
        let message = NumberedMessage {
            flags: 1,
            kind: 300,
            number: 1 << 40,
            len: 900,
            result: -2,
            target: b"orders",
            client: b"shop",
        };
        let mut said = Vec::new();
        message.write(&mut said);
        let read = NumberedMessage::parse(&said).expect("it is whole");
        assert_eq!((read.flags, read.kind, read.number, read.len), (1, 300, 1 << 40, 900));
        assert_eq!(
            (read.result, read.target, read.client),
            (-2, &b"orders"[..], &b"shop"[..])
        );
        assert!((0..FIXED_LEN + 6).all(|len| NumberedMessage::parse(&said[..len]).is_none()));
    }
}
