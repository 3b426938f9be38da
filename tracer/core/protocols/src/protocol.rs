//! What a protocol states of itself.

use crate::fixed_bytes::Pattern;
use crate::marks::{self, FindMarks};
use crate::redaction::RedactRest;

/// An entry of the registry. What a module does not state is as in [`Protocol::named`].
#[derive(Debug)]
pub struct Protocol {
    /// As in tables and documents.
    pub name: &'static str,
    /// First bytes of payloads that are looked into; no others are.
    pub first_bytes: &'static [u8],
    /// Finds what shows that a connection carries no requests.
    pub find_marks: FindMarks,
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
    pub const fn named(name: &'static str) -> Self {
        Self {
            name,
            first_bytes: &[],
            find_marks: marks::none,
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
