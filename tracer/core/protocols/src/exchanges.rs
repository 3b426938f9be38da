//! How a protocol's messages become exchanges: a request and its final response on one connection.

use crate::head::HeadKind;

/// The rule by which a protocol's messages become exchanges.
#[derive(Clone, Copy, Debug)]
pub enum Exchanges {
    /// Messages are not read: what one side sends until the other does is a message.
    Turns,
    /// The same for the content of its records, which is distinguished from the handshake before it.
    TurnsInside,
    /// The i-th final response answers the i-th request.
    Ordered(&'static Order),
    /// Messages contain the id of their stream; each stream is an exchange, and several may run at the same time.
    ByStreamId(&'static StreamRules),
    /// Its messages mark connections, or parts of them, that carry no requests.
    Streams,
}

impl Exchanges {
    /// The name that crosses to Python (`collector.requests.protocols.Exchanges`).
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

/// The role of a message in its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Request,
    /// The server asks for the rest of the request (HTTP 100: for the body).
    Continue,
    /// Any other interim response.
    Interim,
    Response,
    /// The client's message that names the request before it.
    Name,
    /// A later message of the answer, which shows its result or ends it.
    Detail,
    /// It belongs to no exchange; the one before it has ended.
    Aside,
}

/// Rules of a protocol whose responses come in the order of its requests.
#[derive(Debug)]
pub struct Order {
    /// Role of a message, and whether the client sent it; `None` if only the other side may send it.
    pub role: fn(&MessageFields, bool) -> Option<Role>,
    /// Whether a response of this status has no body, whatever length it declares.
    pub is_bodiless: fn(u16) -> bool,
    /// Each direction is followed from message to message, so none is missing but where a message says so.
    pub follows: bool,
    /// Whether messages may be missing before this one.
    pub is_after_gap: fn(&MessageFields) -> bool,
    /// Whether the answer ends with this message. Without such messages an answer reaches to the next one.
    pub is_end: fn(&MessageFields) -> bool,
    /// Messages follow each other without a byte between them, and state their lengths. So a message that is missing is
    /// noticed.
    pub is_seamless: bool,
}

/// A message, as its row of `messages` has it.
#[derive(Clone, Copy, Debug)]
pub struct MessageFields {
    pub head_kind: HeadKind,
    pub status: u16,
    /// Column `head_flags`.
    pub flags: u8,
    /// Something is said of the result.
    pub has_result: bool,
}

/// Flags of heads ([`crate::head::Head::flags`]) of protocols whose order is [`Order::is_seamless`].
pub mod flag {
    /// A request that is a batch: all answers up to the next one with this flag are its answer.
    pub const BATCH: u8 = 0x02;
    /// Where the message ends is not known.
    pub const CUT: u8 = 0x10;
    /// A request that its server does not answer.
    pub const NO_ANSWER: u8 = 0x40;
    /// A server's message that answers no request.
    pub const UNASKED: u8 = 0x80;
}

/// Rules of a protocol whose messages are frames of streams.
#[derive(Debug)]
pub struct StreamRules {
    /// Length of a frame's header. Fewer bytes at the end of the capture may be an unknown frame's beginning.
    pub header_len: i64,
    pub frame: fn(&FrameFields) -> FrameMeaning,
    /// Requests have a method or target, which the row of a stream's first frame has.
    pub shows_requests: bool,
    /// The stream whose request is HTTP/1.1's, where that changed the connection to this protocol.
    pub upgrade_stream: Option<i64>,
    /// Each frame shows by itself which exchange it is part of, so that of frames that are missing nothing else depends.
    pub frames_stand_alone: bool,
}

/// The end of a connection that sent the request of which a frame is part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// The connection's client.
    #[default]
    Client,
    /// The frame's sender: the frame is part of a request.
    Sender,
    /// The frame's receiver: the frame is part of an answer.
    Receiver,
}

/// A frame, as the row of `messages` has it: columns `frame_kind`, `head_flags`, `stream_id`, `head_len`,
/// `content_length`.
#[derive(Clone, Copy, Debug)]
pub struct FrameFields {
    pub kind: u16,
    pub flags: u8,
    pub stream: i64,
    pub len: i64,
    pub content_length: i64,
}

/// What a frame does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeaning {
    /// Length of the frame's header, which precedes its place.
    pub header_len: i64,
    /// Only a client sends it, before all others.
    pub is_preface: bool,
    /// It belongs to a request or its answer.
    pub is_said: bool,
    /// Which end asks.
    pub asker: Asker,
    /// Numbers of streams are unique among the requests of one family.
    pub family: u16,
    /// It may be the first frame of a stream.
    pub opens: bool,
    /// Its sender sends no more in this stream.
    pub ends: bool,
    /// Frames before it may be missing.
    pub follows_gap: bool,
    /// What follows it on the connection is encrypted.
    pub hides_rest: bool,
    /// Its sender resets the stream.
    pub breaks: bool,
    /// Its sender does not answer the receiver's streams above the one in column `content_length`.
    pub refuses: bool,
    pub has_data: bool,
    /// What it is part of is no request: it waits for news, or wants no answer.
    pub is_no_request: bool,
    /// A request of which nothing shows whether it wants an answer.
    pub answer_unsure: bool,
    /// Number of what several requests go on with (a cursor), which their answers name, too; 0 or less if there is none.
    pub series: i64,
    /// Later requests of the series that the answer names wait for news.
    pub opens_wait: bool,
}
