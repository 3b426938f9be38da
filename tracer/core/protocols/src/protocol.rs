//! The properties that a protocol's module states.

use twintap_secrets::SecretRules;

use crate::excerpt::{Keep, Keeper, Read};
use crate::exchanges::Exchanges;
use crate::fixed_bytes::Pattern;
use crate::head::HeadKind;
use crate::redaction::RedactRest;
use crate::results::Results;

/// An entry of the registry. Fields that a module does not state are as in [`Protocol::with_name`].
#[derive(Debug)]
pub struct Protocol {
    /// As in tables and documents.
    pub name: &'static str,
    /// First bytes of the payloads that are read; others are not.
    pub first_bytes: &'static [u8],
    /// Kinds of the rows of `messages` that its messages are.
    pub head_kinds: &'static [HeadKind],
    /// Decoder: what is kept of a payload that begins with a message.
    pub keep: Keep,
    /// Decoder: how frames are found in packets, if the protocol has frames.
    pub framing: Option<&'static Framing>,
    /// Decoder: how messages without such frames are found anywhere in packets.
    pub scanning: Option<&'static Scanning>,
    /// How HTTP/1.1 changes a connection to it, if that is how it begins or may begin.
    pub upgrade: Option<Upgrade>,
    /// After matching: the messages that an excerpt shows.
    pub read: Read,
    /// After matching: whether these first bytes of a direction are of this protocol, given whether the client sent
    /// them.
    pub begins: fn(&[u8], bool) -> bool,
    pub exchanges: Exchanges,
    /// Its transaction ids are made by its own clients, and never those of a request of another protocol.
    pub ids_are_own: bool,
    /// What the status and the result code of its answers mean.
    pub results: Results,
    /// Word before the colon of a search for its requests (`sql:select`), if not its name. Several protocols may share one.
    pub family: &'static str,
    /// Beginnings of messages that the protocol fixes, whatever a user sends; an agent keeps them.
    pub fixed_bytes: &'static [Pattern],
    /// Length of the protocol's own word that may follow such a beginning.
    pub fixed_words_len: fn(&[u8]) -> usize,
    /// What an agent keeps besides.
    pub agent: AgentKeeps,
    /// The same where a client's message is known to begin, if there less is asked of it than where nothing is known.
    pub agent_followed: Option<Parts>,
    /// What it keeps of a server's messages, if these do not show by themselves that they are this protocol's: only of
    /// connections on which a client's were recognised.
    pub agent_answers: Option<Parts>,
    /// Overwrites a message that is a secret as a whole; returns whether it did.
    pub overwrite: fn(&mut [u8]) -> bool,
    /// Redacts a payload by the rules for lines of text, then restores the bytes that these must not change, and
    /// overwrites the secrets that they do not find.
    pub redact_around: Option<fn(&mut [u8], &SecretRules, RedactRest<'_>)>,
    pub docs: Docs,
}

/// Rules of a protocol whose messages are frames, which may begin anywhere in a packet. A header of fixed length
/// contains the length of each frame, so a direction is followed from one to the next.
#[derive(Debug)]
pub struct Framing {
    pub header_len: usize,
    /// Length of what a side sends before its first frame, if a payload begins with that; else 0.
    pub preface_len: fn(&[u8]) -> usize,
    /// Whether a payload may begin with a frame or the preface; a fast check for the hot path.
    pub may_begin: fn(&[u8]) -> bool,
    /// Whether a payload of the given length on the wire begins with a frame or the preface, judged without the bytes
    /// before it.
    pub begins: fn(&[u8], usize) -> bool,
    /// The same on a direction whose frames were followed before and of which some are missing.
    pub resumes: fn(&[u8], usize) -> bool,
    /// Whether a payload shows that the connection has changed to another protocol (STARTTLS).
    pub is_other: fn(&[u8]) -> bool,
    /// Length of the frame with this header; `None` if such a header is invalid.
    pub frame_len: fn(&[u8]) -> Option<FrameLen>,
    /// A reader of a direction's frames, given whether it begins behind the preface.
    pub reader: fn(bool) -> Box<dyn FrameReader>,
    /// Keeps a frame.
    pub keep: fn(&ReadFrame<'_>, &mut Keeper<'_>),
}

/// Reads the frames of one direction in their order, since what one says may depend on those before it.
pub trait FrameReader: std::fmt::Debug + Send {
    /// Read a frame: its header, and as much of what is wanted of its body as was captured. Appends to `said` what is
    /// to be kept of it beside the header.
    fn read(&mut self, frame: &[u8], said: &mut Vec<u8>);
    /// Frames are missing between the last one and the next.
    fn lose(&mut self);
    /// A copy, which reads on from here by itself.
    fn boxed_clone(&self) -> Box<dyn FrameReader>;
}

impl Clone for Box<dyn FrameReader> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// A frame that was read.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrame<'a> {
    /// Its header, or the preface.
    pub header: &'a [u8],
    /// Offset of its first byte in the packet's payload; below 0 if it begins in an earlier packet.
    pub at: i32,
    /// What its reader said of it, with secrets.
    pub said: &'a [u8],
}

/// Rules of a protocol whose messages have no header of fixed length with their lengths: where one ends, only reading it
/// shows. Each direction is read from its first byte on; bytes whose number a message states need not be seen.
#[derive(Debug)]
pub struct Scanning {
    /// Whether a payload begins with what only a client sends, judged without the bytes before it. Both directions are
    /// followed from there.
    pub begins: fn(&[u8]) -> bool,
    /// Whether a payload of a connection that is followed begins with a message, given whether its client sent it.
    pub resumes: fn(&[u8], bool) -> bool,
    /// A reader of one direction, given whether it is the client's.
    pub scanner: fn(bool) -> Box<dyn Scanner>,
    /// See [`Protocol::next_head`].
    pub next_head: fn(&[u8]) -> Option<usize>,
    /// Keeps a message.
    pub keep: fn(&ReadFrame<'_>, &mut Keeper<'_>),
}

/// A protocol to which HTTP/1.1 changes a connection: behind the head of a `101`, both directions are of it.
#[derive(Debug)]
pub struct Upgrade {
    /// In the header `Upgrade`, in any case.
    pub token: &'static [u8],
    pub finder: Finder,
}

/// How a protocol's messages are found anywhere in packets.
#[derive(Clone, Copy, Debug)]
pub enum Finder {
    Frames(&'static Framing),
    Scanner(&'static Scanning),
}

/// Reads the bytes of one direction in their order, however packets cut them.
pub trait Scanner: std::fmt::Debug + Send {
    /// Read bytes that continue those read or skipped before. Calls `found` with each message; the place of its first
    /// byte counts from the first of `bytes`, and is below 0 if that was in an earlier packet. A message may be found
    /// again later, when more of it is known.
    fn scan(&mut self, bytes: &[u8], found: OnMessage<'_>) -> Scan;
    /// The bytes that continue those read before are missing, and so may be others: another message comes next.
    fn lose(&mut self, found: OnMessage<'_>);
    /// A copy, which reads on from here by itself.
    fn boxed_clone(&self) -> Box<dyn Scanner>;
}

impl Clone for Box<dyn Scanner> {
    fn clone(&self) -> Self {
        (**self).boxed_clone()
    }
}

/// Called with each message that was found.
pub type OnMessage<'a> = &'a mut dyn FnMut(&ReadFrame<'_>);

/// Result of scanning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// All bytes were read, and this many after them are not needed.
    Skip(u32),
    /// Nothing that follows on this connection, in either direction, can be read.
    End,
}

/// Lengths of a frame's parts after its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLen {
    pub body_len: u32,
    /// How many bytes of the body are kept with the header; at most `body_len`, and [`MAX_KEPT_LEN`].
    pub kept_len: u32,
}

/// Limits the bytes of each direction that await the rest of a frame.
pub const MAX_KEPT_LEN: u32 = 8192;

/// What an agent keeps of a payload, beside fixed first bytes.
#[derive(Clone, Copy, Debug)]
pub enum AgentKeeps {
    Nothing,
    /// A head in lines of text, whose secrets the rules overwrite. The function returns its length, 0 if there is none.
    Head(fn(&[u8]) -> usize),
    Parts(Parts),
}

/// Parts of a payload that are kept; the bytes between them are overwritten with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Bytes up to the end of the last part, of a payload of which the given number of bytes is inspected; 0 if there
    /// is none.
    pub kept_len: fn(&[u8], usize) -> usize,
    /// Overwrites the bytes between them, and the secrets in them.
    pub blank: fn(&mut [u8], &SecretRules),
}

/// Cells of the table of protocols in docs/decoding.md.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    pub reads: &'static str,
    pub agent_keeps: &'static str,
    pub overwrites: &'static str,
}

impl Protocol {
    /// A protocol of which only the name is stated.
    pub const fn with_name(name: &'static str) -> Self {
        Self {
            name,
            first_bytes: &[],
            head_kinds: &[],
            keep: |_, _| false,
            framing: None,
            scanning: None,
            upgrade: None,
            read: |_, _| {},
            begins: |_, _| false,
            exchanges: Exchanges::Turns,
            ids_are_own: false,
            results: Results::NONE,
            family: name,
            fixed_bytes: &[],
            fixed_words_len: |_| 0,
            agent: AgentKeeps::Nothing,
            agent_followed: None,
            agent_answers: None,
            overwrite: |_| false,
            redact_around: None,
            docs: Docs::NONE,
        }
    }

    /// Offset of the first message that begins at or behind the end of a payload which itself begins with a message, or of
    /// the frame's header that the payload ends within; `None` if the payload does not show it.
    pub fn next_head(&self, payload: &[u8]) -> Option<usize> {
        match (self.framing, self.scanning) {
            (Some(framing), _) => framing.next_head(payload),
            (None, Some(scanning)) => (scanning.next_head)(payload),
            (None, None) => None,
        }
    }
}

impl Framing {
    fn next_head(&self, payload: &[u8]) -> Option<usize> {
        let mut at = (self.preface_len)(payload);
        while let Some(header) = payload.get(at..).and_then(|rest| rest.get(..self.header_len)) {
            let body_len = (self.frame_len)(header)?.body_len as usize;
            at = at.checked_add(self.header_len)?.checked_add(body_len)?;
        }
        Some(at)
    }
}

impl AgentKeeps {
    /// Length of the text head that a payload begins with; 0 if none is kept.
    pub fn head_len(&self, payload: &[u8]) -> usize {
        match self {
            Self::Head(head_len) => head_len(payload),
            Self::Nothing | Self::Parts(_) => 0,
        }
    }

    /// The parts that are kept.
    pub fn parts(&self) -> Option<Parts> {
        match self {
            Self::Parts(parts) => Some(*parts),
            Self::Nothing | Self::Head(_) => None,
        }
    }
}

impl Docs {
    pub const NONE: Self = Self {
        reads: "",
        agent_keeps: "",
        overwrites: "",
    };
}
