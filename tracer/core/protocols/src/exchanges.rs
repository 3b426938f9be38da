//! How a protocol's messages become exchanges: a request and its final response on one connection.

use crate::head::HeadKind;

/// What makes exchanges of a protocol's messages.
#[derive(Clone, Copy, Debug)]
pub enum Exchanges {
    /// Its messages show none: what each side says until the other does is a message.
    Turns,
    /// Likewise of what is inside its records, distinguished from the handshake before them.
    TurnsInside,
    /// The i-th final response answers the i-th request.
    Ordered(&'static Order),
    /// Messages say which stream they are of; each stream is an exchange, however many are under way at once.
    ByStreamId(&'static StreamRules),
    /// Its messages mark what is no request at all.
    Streams,
}

impl Exchanges {
    /// As `collector.requests.protocols.Exchanges`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::TurnsInside => "turns_inside",
            Self::Ordered(_) => "ordered",
            Self::ByStreamId(_) => "by_stream_id",
            Self::Streams => "streams",
        }
    }
}

/// What a message is to its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Request,
    /// The server asks for the body (HTTP 100).
    Continue,
    /// Any other interim response.
    Interim,
    Response,
}

/// Of messages whose responses come in the order of requests.
#[derive(Debug)]
pub struct Order {
    /// By kind, status, and whether the client sent it; `None` for what only the other side may send.
    pub role: fn(HeadKind, u16, bool) -> Option<Role>,
    /// Whether a response of this status has no body, whatever length it declares.
    pub is_bodiless: fn(u16) -> bool,
}

/// Of messages that are frames of streams.
#[derive(Debug)]
pub struct StreamRules {
    /// Length of a frame's header: so much of the next may be there without being known.
    pub header_len: i64,
    pub frame: fn(&FrameFields) -> FrameMeaning,
    /// Requests have a method or target, which the row of a stream's first frame has.
    pub shows_requests: bool,
}

/// A frame, as the row of `messages` has it: columns `status`, `head_flags`, `content_length`, `head_len`.
#[derive(Clone, Copy, Debug)]
pub struct FrameFields {
    pub kind: u16,
    pub flags: u8,
    pub stream: i64,
    pub len: i64,
}

/// What a frame does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeaning {
    /// Length of what stands before the frame's place: its header.
    pub header_len: i64,
    /// Only a client sends it, before all others.
    pub is_preface: bool,
    /// It belongs to a request or its answer.
    pub is_said: bool,
    /// The client's first frame of a stream is such a one.
    pub opens: bool,
    /// Its sender says no more in this stream.
    pub ends: bool,
    /// Its sender breaks the stream off.
    pub breaks: bool,
    pub has_data: bool,
}
