//! Results of HTTP/2: the status, `grpc-status`, which counts where there is one, the code of a reset of a stream that
//! was not answered, and that of a GOAWAY by which a server refused one.
//!
//! Source: gRPC, "Status codes and their use in gRPC". OpenTelemetry's conventions for gRPC draw the same line between
//! errors of clients and servers, but for RESOURCE_EXHAUSTED, which is gRPC's 429. RFC 9113 §6.8, §7 (error codes).

use std::borrow::Cow;

use crate::http1;
use crate::results::{DUE, Results, SAYS_NOTHING, StatusClass};

pub const RESULTS: Results = Results { class, name };

/// Name and class of each code, in order.
const CODES: [(&str, StatusClass); 17] = [
    ("OK", StatusClass::Ok),
    ("CANCELLED", StatusClass::ClientError),
    ("UNKNOWN", StatusClass::ServerError),
    ("INVALID_ARGUMENT", StatusClass::ClientError),
    ("DEADLINE_EXCEEDED", StatusClass::ServerError),
    ("NOT_FOUND", StatusClass::ClientError),
    ("ALREADY_EXISTS", StatusClass::ClientError),
    ("PERMISSION_DENIED", StatusClass::ClientError),
    ("RESOURCE_EXHAUSTED", StatusClass::Refused),
    ("FAILED_PRECONDITION", StatusClass::ClientError),
    ("ABORTED", StatusClass::ClientError),
    ("OUT_OF_RANGE", StatusClass::ClientError),
    ("UNIMPLEMENTED", StatusClass::ServerError),
    ("INTERNAL", StatusClass::ServerError),
    ("UNAVAILABLE", StatusClass::ServerError),
    ("DATA_LOSS", StatusClass::ServerError),
    ("UNAUTHENTICATED", StatusClass::ClientError),
];

/// The result code of a stream's reset with the first error code; the others follow.
const FIRST_RESET: i32 = 1_000;

/// The same of a GOAWAY.
const FIRST_GOAWAY: i32 = 1_100;

/// A server resets a stream so behind a whole answer, if it needs no more of the request (RFC 9113 §8.1).
const NO_ERROR: &str = "NO_ERROR";

/// Names of error codes, in order.
const RESETS: [&str; 14] = [
    NO_ERROR,
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// The same of GOAWAYs, whose streams were not processed; then any other.
const GOAWAYS: [&str; 15] = [
    "GOAWAY NO_ERROR",
    "GOAWAY PROTOCOL_ERROR",
    "GOAWAY INTERNAL_ERROR",
    "GOAWAY FLOW_CONTROL_ERROR",
    "GOAWAY SETTINGS_TIMEOUT",
    "GOAWAY STREAM_CLOSED",
    "GOAWAY FRAME_SIZE_ERROR",
    "GOAWAY REFUSED_STREAM",
    "GOAWAY CANCEL",
    "GOAWAY COMPRESSION_ERROR",
    "GOAWAY CONNECT_ERROR",
    "GOAWAY ENHANCE_YOUR_CALM",
    "GOAWAY INADEQUATE_SECURITY",
    "GOAWAY HTTP_1_1_REQUIRED",
    "GOAWAY UNKNOWN",
];

/// The result code of a reset with this error code; [`SAYS_NOTHING`] if it has no name.
pub fn of_reset(error_code: u32) -> i32 {
    code_of(FIRST_RESET, error_code).unwrap_or(SAYS_NOTHING)
}

/// The result code of a GOAWAY with this error code; that of UNKNOWN if it has no name, since the streams above the last
/// one are refused whatever the reason.
pub fn of_goaway(error_code: u32) -> i32 {
    code_of(FIRST_GOAWAY, error_code).unwrap_or(FIRST_GOAWAY + GOAWAYS.len() as i32 - 1)
}

fn code_of(first: i32, error_code: u32) -> Option<i32> {
    let code = i32::try_from(error_code).ok()?;
    (code < RESETS.len() as i32).then_some(first + code)
}

fn reset_name(code: i32) -> Option<&'static str> {
    RESETS
        .get(usize::try_from(code.checked_sub(FIRST_RESET)?).ok()?)
        .copied()
}

fn goaway_name(code: i32) -> Option<&'static str> {
    GOAWAYS
        .get(usize::try_from(code.checked_sub(FIRST_GOAWAY)?).ok()?)
        .copied()
}

fn class_of_reset(name: &str) -> StatusClass {
    match name {
        "REFUSED_STREAM" | "ENHANCE_YOUR_CALM" => StatusClass::Refused,
        "INTERNAL_ERROR" | "CONNECT_ERROR" => StatusClass::ServerError,
        _ => StatusClass::Unknown, // whose fault it is depends on who reset it
    }
}

fn class(status: u16, code: i32) -> StatusClass {
    let by_status = http1::status_class(status);
    match (by_status, code) {
        (StatusClass::Refused | StatusClass::ServerError, _) | (_, SAYS_NOTHING) => by_status,
        (_, DUE) => StatusClass::Unknown,
        _ if goaway_name(code).is_some() => StatusClass::Refused,
        _ => match (entry(code), reset_name(code)) {
            (Some((_, class)), _) => *class,
            (_, Some(NO_ERROR)) => by_status, // the answer is whole, and no more of the request is wanted
            (_, Some(name)) => class_of_reset(name),
            _ => StatusClass::Unknown,
        },
    }
}

fn name(code: i32) -> Option<Cow<'static, str>> {
    if let Some(name) = reset_name(code).or_else(|| goaway_name(code)) {
        return (name != NO_ERROR).then_some(Cow::Borrowed(name));
    }
    let (name, class) = entry(code)?;
    (*class != StatusClass::Ok).then_some(Cow::Borrowed(*name))
}

fn entry(code: i32) -> Option<&'static (&'static str, StatusClass)> {
    CODES.get(usize::try_from(code).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_grpc_counts_more_than_a_status_that_reports_no_failure() {
        let cases = [
            ((200, SAYS_NOTHING), StatusClass::Ok),
            ((404, SAYS_NOTHING), StatusClass::ClientError),
            ((429, SAYS_NOTHING), StatusClass::Refused),
            ((200, DUE), StatusClass::Unknown),
            ((503, DUE), StatusClass::ServerError),
            ((200, 0), StatusClass::Ok),
            ((503, 0), StatusClass::ServerError),
            ((200, 5), StatusClass::ClientError),
            ((200, 8), StatusClass::Refused),
            ((200, 14), StatusClass::ServerError),
            ((200, 17), StatusClass::Unknown),
            ((0, SAYS_NOTHING), StatusClass::Unknown),
            ((0, of_reset(0)), StatusClass::Unknown),
            ((204, of_reset(0)), StatusClass::Ok),
            ((413, of_reset(0)), StatusClass::ClientError),
            ((0, of_reset(7)), StatusClass::Refused),
            ((200, of_reset(2)), StatusClass::ServerError),
            ((200, of_reset(8)), StatusClass::Unknown),
            ((0, of_goaway(0)), StatusClass::Refused),
            ((0, of_goaway(99)), StatusClass::Refused),
        ];
        for ((status, code), expected) in cases {
            assert_eq!(class(status, code), expected, "{status} {code}");
        }
        let names = [14, 0, DUE, 17].map(|code| name(code).map(Cow::into_owned));
        assert_eq!(names, [Some("UNAVAILABLE".to_owned()), None, None, None]);
        assert_eq!(name(of_reset(8)).as_deref(), Some("CANCEL"));
        assert_eq!(name(of_reset(0)), None);
        assert_eq!(name(of_goaway(11)).as_deref(), Some("GOAWAY ENHANCE_YOUR_CALM"));
        assert_eq!(name(of_goaway(u32::MAX)).as_deref(), Some("GOAWAY UNKNOWN"));
        assert_eq!([of_reset(14), of_reset(u32::MAX)], [SAYS_NOTHING; 2]);
    }
}
