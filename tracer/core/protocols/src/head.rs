//! A message head, as far as it was captured: a row of the table `messages`. Protocols without heads fill one in as
//! well.

use crate::results::SAYS_NOTHING;

/// Kind of a head, as the column `head_kind`: each protocol has its own, which its entry of the registry lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeadKind(pub u8);

/// The byte range that a message requests or carries, both ends included; -1 where an end is not given. The last n
/// bytes are (-1, n).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub first: i64,
    pub last: i64,
}

impl ByteRange {
    pub const NONE: Self = Self { first: -1, last: -1 };
}

/// A message head; its text borrows from the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    pub kind: HeadKind,
    /// Bits that the protocol defines.
    pub flags: u8,
    /// 0 for a request.
    pub status: u16,
    /// -1 if not given, not seen, or not a number.
    pub content_length: i64,
    pub range: ByteRange,
    /// Bytes with the empty line; 0 if cut.
    pub len: u32,
    pub method: &'a [u8],
    pub target: &'a [u8],
    pub transaction_id: &'a [u8],
    /// The span that asks, where the transaction id is the trace of a `traceparent`: 16 hexadecimal digits.
    pub client_span_id: &'a [u8],
    pub user_agent: &'a [u8],
    /// The name of several labels that a request asks for (HTTP's `Host`).
    pub authority: &'a [u8],
    /// What the protocol says of the result beside the status (`results`).
    pub result_code: i32,
    pub frame: FrameId,
}

/// Which frame a message is, in a protocol with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    /// As the protocol numbers them; 0 if it has no frames.
    pub kind: u16,
    /// -1 if it has none.
    pub stream: i64,
}

impl FrameId {
    pub const NONE: Self = Self { kind: 0, stream: -1 };
}

impl Head<'static> {
    /// A head of which only the kind is known.
    pub const fn empty(kind: HeadKind) -> Self {
        Self {
            kind,
            flags: 0,
            status: 0,
            content_length: -1,
            range: ByteRange::NONE,
            len: 0,
            method: b"",
            target: b"",
            transaction_id: b"",
            client_span_id: b"",
            user_agent: b"",
            authority: b"",
            result_code: SAYS_NOTHING,
            frame: FrameId::NONE,
        }
    }
}
