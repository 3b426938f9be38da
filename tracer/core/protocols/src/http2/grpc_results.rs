//! Results of HTTP/2: the status, and `grpc-status`, which counts where there is one.
//!
//! Source: gRPC, "Status codes and their use in gRPC". OpenTelemetry's conventions for gRPC draw the same line between
//! errors of clients and servers, but for RESOURCE_EXHAUSTED, which is gRPC's 429.

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

fn class(status: u16, code: i32) -> StatusClass {
    let by_status = http1::status_class(status);
    match (by_status, code) {
        (StatusClass::Refused | StatusClass::ServerError, _) | (_, SAYS_NOTHING) => by_status,
        (_, DUE) => StatusClass::Unknown,
        _ => entry(code).map_or(StatusClass::Unknown, |(_, class)| *class),
    }
}

fn name(code: i32) -> Option<Cow<'static, str>> {
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
        ];
        for ((status, code), expected) in cases {
            assert_eq!(class(status, code), expected, "{status} {code}");
        }
        let names = [14, 0, DUE, 17].map(|code| name(code).map(Cow::into_owned));
        assert_eq!(names, [Some("UNAVAILABLE".to_owned()), None, None, None]);
    }
}
