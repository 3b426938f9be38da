//! Errors of ZooKeeper, negated: a result code is positive.
//!
//! Source: ZooKeeper 3.9, `KeeperException.Code`.

use std::borrow::Cow;

use crate::results::{Results, StatusClass};

pub const RESULTS: Results = Results {
    class: |_, code| class(code),
    name: |code| find(code).map(|(_, name, _)| Cow::Borrowed(*name)),
};

use StatusClass::{ClientError, Refused, ServerError};

/// A client's, if the tree is not as the request expects, which clients provoke on purpose (NONODE, NODEEXISTS, BADVERSION).
const ERRORS: &[(i32, &str, StatusClass)] = &[
    (1, "SYSTEMERROR", ServerError),
    (2, "RUNTIMEINCONSISTENCY", ServerError),
    (3, "DATAINCONSISTENCY", ServerError),
    (4, "CONNECTIONLOSS", ServerError),
    (5, "MARSHALLINGERROR", ServerError),
    (6, "UNIMPLEMENTED", ClientError),
    (7, "OPERATIONTIMEOUT", ServerError),
    (8, "BADARGUMENTS", ClientError),
    (12, "UNKNOWNSESSION", Refused),
    (13, "NEWCONFIGNOQUORUM", Refused),
    (14, "RECONFIGINPROGRESS", Refused),
    (100, "APIERROR", ClientError),
    (101, "NONODE", ClientError),
    (102, "NOAUTH", ClientError),
    (103, "BADVERSION", ClientError),
    (108, "NOCHILDRENFOREPHEMERALS", ClientError),
    (110, "NODEEXISTS", ClientError),
    (111, "NOTEMPTY", ClientError),
    (112, "SESSIONEXPIRED", Refused),
    (113, "INVALIDCALLBACK", ClientError),
    (114, "INVALIDACL", ClientError),
    (115, "AUTHFAILED", ClientError),
    (118, "SESSIONMOVED", Refused),
    (119, "NOTREADONLY", Refused),
    (120, "EPHEMERALONLOCALSESSION", ClientError),
    (121, "NOWATCHER", ClientError),
    (122, "REQUESTTIMEOUT", ServerError),
    (123, "RECONFIGDISABLED", ClientError),
    (124, "SESSIONCLOSEDREQUIRESASLAUTH", ClientError),
    (125, "QUOTAEXCEEDED", Refused),
    (127, "THROTTLEDOP", Refused),
];

fn find(code: i32) -> Option<&'static (i32, &'static str, StatusClass)> {
    ERRORS.iter().find(|(number, ..)| *number == code)
}

fn class(code: i32) -> StatusClass {
    match find(code) {
        _ if code == 0 => StatusClass::Ok,
        Some((.., class)) => *class,
        None => StatusClass::Unknown,
    }
}

/// The result code of the error in an answer; `None` if ZooKeeper has none like it.
pub(super) fn result_of(error: i32) -> Option<i32> {
    let code = error.checked_neg()?;
    (code == 0 || find(code).is_some()).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_name_and_says_who_must_act() {
        let named = |code| ((RESULTS.name)(code), (RESULTS.class)(0, code));
        assert_eq!(named(101), (Some("NONODE".into()), ClientError));
        assert_eq!(named(112), (Some("SESSIONEXPIRED".into()), Refused));
        assert_eq!(named(0), (None, StatusClass::Ok));
        assert_eq!(named(99), (None, StatusClass::Unknown));
        assert_eq!([-101, 0, -99, 5].map(result_of), [Some(101), Some(0), None, None]);
        assert_eq!(result_of(i32::MIN), None);
    }
}
