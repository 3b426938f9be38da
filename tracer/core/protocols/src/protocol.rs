//! What a protocol states of itself.

use twintap_secrets::SecretRules;

use crate::excerpt::{Keep, Read};
use crate::exchanges::Exchanges;
use crate::fixed_bytes::Pattern;
use crate::head::HeadKind;
use crate::redaction::RedactRest;

/// An entry of the registry. What a module does not state is as in [`Protocol::named`].
#[derive(Debug)]
pub struct Protocol {
    /// As in tables and documents.
    pub name: &'static str,
    /// First bytes of payloads that are looked into; no others are.
    pub first_bytes: &'static [u8],
    /// Kinds of the rows of `messages` that its messages are.
    pub head_kinds: &'static [HeadKind],
    /// Decoder: what is kept of a payload that begins with a message.
    pub keep: Keep,
    /// Decoder: where frames stand in packets, of a protocol that has them.
    pub framing: Option<&'static Framing>,
    /// After matching: the messages that an excerpt shows.
    pub read: Read,
    /// After matching: whether the first bytes of a direction are its own; and whether a client sent them.
    pub begins: fn(&[u8], bool) -> bool,
    pub exchanges: Exchanges,
    /// Beginnings of messages that the protocol fixes, whatever a user sends: an agent keeps them.
    pub fixed_bytes: &'static [Pattern],
    /// How many more bytes behind such a beginning are a word of the protocol's.
    pub fixed_words_len: fn(&[u8]) -> usize,
    /// What else an agent keeps.
    pub agent: AgentKeeps,
    /// Overwrites a message that is a secret as a whole, and says whether it did.
    pub overwrite: fn(&mut [u8]) -> bool,
    /// Redacts a payload by the rules of lines of text, but restores what these must not change, and overwrites what
    /// they do not find.
    pub redact_around: Option<fn(&mut [u8], RedactRest<'_>)>,
    pub docs: Docs,
}

/// Messages in frames, which may begin anywhere in a packet: a header of fixed length says how long each is, so a
/// direction is followed from one to the next.
#[derive(Debug)]
pub struct Framing {
    pub header_len: usize,
    /// What a client says before its first frame; empty if nothing.
    pub preface: &'static [u8],
    /// Whether a payload may begin with a frame or the preface; a quick look, for the hot path.
    pub may_begin: fn(&[u8]) -> bool,
    /// Whether a payload, of so many bytes on the wire, begins with a frame or the preface, although nothing is known of
    /// what came before.
    pub begins: fn(&[u8], usize) -> bool,
    /// Likewise, where frames were followed before, and some are missing.
    pub resumes: fn(&[u8], usize) -> bool,
    /// How long the frame with this header is; `None` if no such header may be sent.
    pub frame_len: fn(&[u8]) -> Option<FrameLen>,
    /// Overwrites secrets in what is kept of a frame.
    pub overwrite: fn(&SecretRules, &mut [u8]),
}

/// Lengths of a frame's parts behind its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLen {
    pub body_len: u32,
    /// How many bytes of the body are kept with the header; at most `body_len`, and [`MOST_KEPT_LEN`].
    pub kept_len: u32,
}

/// Bounds what waits for the rest of a frame's kept bytes, of each direction.
pub const MOST_KEPT_LEN: u32 = 1024;

/// What an agent keeps of a payload, beside fixed first bytes.
#[derive(Clone, Copy, Debug)]
pub enum AgentKeeps {
    Nothing,
    /// A head in lines of text, whose secrets are overwritten by the rules: its length, 0 where there is none.
    Head(fn(&[u8]) -> usize),
    Parts(Parts),
}

/// Parts of a payload; all between them is overwritten with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// How many bytes hold all of them, of a payload of which so many bytes are looked at; 0 if there is none.
    pub kept_len: fn(&[u8], usize) -> usize,
    /// Overwrites what lies between them.
    pub blank: fn(&mut [u8]),
}

/// Cells of the table of protocols in docs/decoding.md.
#[derive(Clone, Copy, Debug)]
pub struct Docs {
    pub reads: &'static str,
    pub agent_keeps: &'static str,
    pub overwrites: &'static str,
}

impl Protocol {
    /// One that is only known by its name.
    pub const fn with_name(name: &'static str) -> Self {
        Self {
            name,
            first_bytes: &[],
            head_kinds: &[],
            keep: |_, _| false,
            framing: None,
            read: |_, _| {},
            begins: |_, _| false,
            exchanges: Exchanges::Turns,
            fixed_bytes: &[],
            fixed_words_len: |_| 0,
            agent: AgentKeeps::Nothing,
            overwrite: |_| false,
            redact_around: None,
            docs: Docs::NONE,
        }
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
