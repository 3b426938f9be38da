//! Numbers of errors, and whose fault they are.
//!
//! Source: MySQL, "Server Error Message Reference"; MariaDB, "Error Codes".

use crate::results::{DUE, Results, SAYS_NOTHING, SUCCESS, StatusClass};

/// Too many connections, of the server or of a user; a host that is blocked; a lock, a statement or a query that took too
/// long or was interrupted; limits of resources.
const REFUSED: &[i32] = &[1040, 1129, 1203, 1205, 1226, 1317, 1969, 3024];
/// Disk, memory and files of the server, its shutdown, engines and tables that are broken, network errors that it
/// reports, connections that it ended.
const SERVERS: &[i32] = &[
    1016, 1020, 1021, 1023, 1024, 1026, 1030, 1037, 1038, 1041, 1053, 1077, 1079, 1080, 1105, 1114, 1135, 1152, 1154,
    1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1194, 1195, 1297, 1927,
];

pub const RESULTS: Results = Results {
    class: |_, code| match code {
        SAYS_NOTHING | DUE => StatusClass::Unknown,
        SUCCESS => StatusClass::Ok,
        _ if REFUSED.contains(&code) => StatusClass::Refused,
        _ if SERVERS.contains(&code) => StatusClass::ServerError,
        _ => StatusClass::ClientError,
    },
    name: |code| (code > SUCCESS).then(|| code.to_string().into()),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_fault_an_error_is() {
        let of = |code| (RESULTS.class)(0, code);
        assert_eq!((of(0), of(1064), of(1146)), {
            (StatusClass::Ok, StatusClass::ClientError, StatusClass::ClientError)
        });
        assert_eq!((of(1040), of(1053), of(-2)), {
            (StatusClass::Refused, StatusClass::ServerError, StatusClass::Unknown)
        });
        assert_eq!(
            ((RESULTS.name)(1146).as_deref(), (RESULTS.name)(0)),
            (Some("1146"), None)
        );
    }
}
