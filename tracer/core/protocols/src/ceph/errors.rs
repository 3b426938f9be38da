//! Results of operations: the numbers of Linux's errors, negated, whichever system a daemon runs on.
//!
//! Which class an error has depends on who must act. Clients provoke many on purpose: to stat an object that may not
//! exist (ENOENT), to create one exclusively (EEXIST), to write one only if its version is as expected (ECANCELED,
//! ERANGE).
//!
//! Source: Ceph's `include/rados.h`, `osd/PrimaryLogPG.cc`; Linux's `asm-generic/errno.h`.

use std::borrow::Cow;

use crate::results::{Results, StatusClass};

pub const RESULTS: Results = Results {
    class: |_, code| class(code),
    name: |code| name(code).map(Cow::Borrowed),
};

const NAMES: &[(i32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (22, "EINVAL"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (34, "ERANGE"),
    (36, "ENAMETOOLONG"),
    (39, "ENOTEMPTY"),
    (61, "ENODATA"),
    (75, "EOVERFLOW"),
    (85, "EOLDSNAPC"),
    (90, "EMSGSIZE"),
    (95, "EOPNOTSUPP"),
    (107, "ENOTCONN"),
    (108, "EBLOCKLISTED"),
    (110, "ETIMEDOUT"),
    (122, "EDQUOT"),
    (125, "ECANCELED"),
];

fn name(code: i32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == code).map(|(_, name)| *name)
}

fn class(code: i32) -> StatusClass {
    match name(code) {
        _ if code == 0 => StatusClass::Ok,
        // Storage that fails, is full or not reachable.
        Some("EIO" | "ENXIO" | "ENOMEM" | "ENOSPC" | "EROFS" | "ENOTCONN" | "ETIMEDOUT") => StatusClass::ServerError,
        // To be tried again.
        Some("EAGAIN" | "EBUSY" | "EDQUOT") => StatusClass::Refused,
        Some(_) => StatusClass::ClientError,
        None => StatusClass::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_class_and_a_name() {
        let cases = [
            (0, StatusClass::Ok, None),
            (2, StatusClass::ClientError, Some("ENOENT")),
            (5, StatusClass::ServerError, Some("EIO")),
            (11, StatusClass::Refused, Some("EAGAIN")),
            (125, StatusClass::ClientError, Some("ECANCELED")),
            (-1, StatusClass::Unknown, None),
            (-2, StatusClass::Unknown, None),
            (4321, StatusClass::Unknown, None),
        ];
        for (code, class, name) in cases {
            assert_eq!((RESULTS.class)(0, code), class, "{code}");
            assert_eq!((RESULTS.name)(code).as_deref(), name);
        }
    }
}
