//! Numbers of errors, the words for those that applications meet, and whose fault they are.
//!
//! Source: MySQL, "Server Error Message Reference"; MariaDB, "Error Codes" (words as `perror` of MariaDB 10.11 prints them;
//! 3024 is MySQL's). Limits: an error that has no words here is shown as its number.

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
    name: |code| (code > SUCCESS).then(|| name(code).into()),
};

/// `1062 ER_DUP_ENTRY`; the number alone if it has no words here.
fn name(code: i32) -> String {
    match NAMES.binary_search_by_key(&code, |&(known, _)| known) {
        Ok(at) => format!("{code} {}", NAMES[at].1),
        Err(_) => code.to_string(),
    }
}

/// By number: all that are refusals or the server's, and common ones of requests.
#[rustfmt::skip]
const NAMES: &[(i32, &str)] = &[
    (1005, "ER_CANT_CREATE_TABLE"),
    (1016, "ER_CANT_OPEN_FILE"),
    (1020, "ER_CHECKREAD"),
    (1021, "ER_DISK_FULL"),
    (1023, "ER_ERROR_ON_CLOSE"),
    (1024, "ER_ERROR_ON_READ"),
    (1026, "ER_ERROR_ON_WRITE"),
    (1030, "ER_GET_ERRNO"),
    (1037, "ER_OUTOFMEMORY"),
    (1038, "ER_OUT_OF_SORTMEMORY"),
    (1040, "ER_CON_COUNT_ERROR"),
    (1041, "ER_OUT_OF_RESOURCES"),
    (1044, "ER_DBACCESS_DENIED_ERROR"),
    (1045, "ER_ACCESS_DENIED_ERROR"),
    (1046, "ER_NO_DB_ERROR"),
    (1048, "ER_BAD_NULL_ERROR"),
    (1049, "ER_BAD_DB_ERROR"),
    (1050, "ER_TABLE_EXISTS_ERROR"),
    (1051, "ER_BAD_TABLE_ERROR"),
    (1053, "ER_SERVER_SHUTDOWN"),
    (1054, "ER_BAD_FIELD_ERROR"),
    (1060, "ER_DUP_FIELDNAME"),
    (1061, "ER_DUP_KEYNAME"),
    (1062, "ER_DUP_ENTRY"),
    (1064, "ER_PARSE_ERROR"),
    (1065, "ER_EMPTY_QUERY"),
    (1077, "ER_NORMAL_SHUTDOWN"),
    (1079, "ER_SHUTDOWN_COMPLETE"),
    (1080, "ER_FORCING_CLOSE"),
    (1091, "ER_CANT_DROP_FIELD_OR_KEY"),
    (1105, "ER_UNKNOWN_ERROR"),
    (1114, "ER_RECORD_FILE_FULL"),
    (1129, "ER_HOST_IS_BLOCKED"),
    (1130, "ER_HOST_NOT_PRIVILEGED"),
    (1135, "ER_CANT_CREATE_THREAD"),
    (1136, "ER_WRONG_VALUE_COUNT_ON_ROW"),
    (1142, "ER_TABLEACCESS_DENIED_ERROR"),
    (1143, "ER_COLUMNACCESS_DENIED_ERROR"),
    (1146, "ER_NO_SUCH_TABLE"),
    (1152, "ER_ABORTING_CONNECTION"),
    (1153, "ER_NET_PACKET_TOO_LARGE"),
    (1154, "ER_NET_READ_ERROR_FROM_PIPE"),
    (1155, "ER_NET_FCNTL_ERROR"),
    (1156, "ER_NET_PACKETS_OUT_OF_ORDER"),
    (1157, "ER_NET_UNCOMPRESS_ERROR"),
    (1158, "ER_NET_READ_ERROR"),
    (1159, "ER_NET_READ_INTERRUPTED"),
    (1160, "ER_NET_ERROR_ON_WRITE"),
    (1161, "ER_NET_WRITE_INTERRUPTED"),
    (1184, "ER_NEW_ABORTING_CONNECTION"),
    (1194, "ER_CRASHED_ON_USAGE"),
    (1195, "ER_CRASHED_ON_REPAIR"),
    (1203, "ER_TOO_MANY_USER_CONNECTIONS"),
    (1205, "ER_LOCK_WAIT_TIMEOUT"),
    (1213, "ER_LOCK_DEADLOCK"),
    (1216, "ER_NO_REFERENCED_ROW"),
    (1217, "ER_ROW_IS_REFERENCED"),
    (1226, "ER_USER_LIMIT_REACHED"),
    (1227, "ER_SPECIFIC_ACCESS_DENIED_ERROR"),
    (1241, "ER_OPERAND_COLUMNS"),
    (1264, "ER_WARN_DATA_OUT_OF_RANGE"),
    (1265, "WARN_DATA_TRUNCATED"),
    (1290, "ER_OPTION_PREVENTS_STATEMENT"),
    (1292, "ER_TRUNCATED_WRONG_VALUE"),
    (1297, "ER_GET_TEMPORARY_ERRMSG"),
    (1305, "ER_SP_DOES_NOT_EXIST"),
    (1317, "ER_QUERY_INTERRUPTED"),
    (1364, "ER_NO_DEFAULT_FOR_FIELD"),
    (1365, "ER_DIVISION_BY_ZERO"),
    (1366, "ER_TRUNCATED_WRONG_VALUE_FOR_FIELD"),
    (1390, "ER_PS_MANY_PARAM"),
    (1406, "ER_DATA_TOO_LONG"),
    (1451, "ER_ROW_IS_REFERENCED_2"),
    (1452, "ER_NO_REFERENCED_ROW_2"),
    (1461, "ER_MAX_PREPARED_STMT_COUNT_REACHED"),
    (1644, "ER_SIGNAL_EXCEPTION"),
    (1690, "ER_DATA_OUT_OF_RANGE"),
    (1927, "ER_CONNECTION_KILLED"),
    (1969, "ER_STATEMENT_TIMEOUT"),
    (3024, "ER_QUERY_TIMEOUT"),
];

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
            (Some("1146 ER_NO_SUCH_TABLE"), None)
        );
        assert_eq!((RESULTS.name)(65_000).as_deref(), Some("65000"));
    }

    #[test]
    fn errors_that_are_no_requests_own_have_words() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        for code in REFUSED.iter().chain(SERVERS) {
            assert!(name(*code).contains(" ER_"), "{code}");
        }
    }
}
