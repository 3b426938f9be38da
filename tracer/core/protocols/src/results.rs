//! What the status and the result code of an answer mean, as its protocol defines them.
//!
//! An answer has a status (0 if its protocol has none), and a result code beside it: [`SAYS_NOTHING`], [`DUE`], or what
//! the protocol packed into a number. Outcomes, colours and searches use the class and the name, never the numbers.

use std::borrow::Cow;

/// The result code of an answer that says nothing beside its status.
pub const SAYS_NOTHING: i32 = -1;
/// The result code of an answer that must say more and was not seen to: its status alone proves nothing.
pub const DUE: i32 = -2;
/// The result code of success in every protocol.
pub const SUCCESS: i32 = 0;

/// How a request ended, by its answer. The names cross to Python (`collector.requests.results.StatusClass`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// The answer does not show it.
    Unknown,
    Ok,
    /// The request is at fault: the server did its part.
    ClientError,
    /// The server did not serve a request that is not at fault: too many, too late, too much.
    Refused,
    ServerError,
}

impl StatusClass {
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
        }
    }
}

/// A protocol's rules for answers.
#[derive(Clone, Copy, Debug)]
pub struct Results {
    /// Class of an answer by its status and its result code.
    pub class: fn(u16, i32) -> StatusClass,
    /// An error's result code in the protocol's own words (`UNAVAILABLE`, `42P01 undefined_table`); `None` for success
    /// and for numbers that are no code.
    pub name: fn(i32) -> Option<Cow<'static, str>>,
}

impl Results {
    /// Of a protocol whose answers are not read.
    pub const NONE: Self = Self {
        class: |_, _| StatusClass::Unknown,
        name: |_| None,
    };
}
