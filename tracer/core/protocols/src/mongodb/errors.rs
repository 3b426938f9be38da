//! Codes of errors, and whose fault they are.
//!
//! Source: MongoDB's `src/mongo/base/error_codes.yml`, whose categories say which errors pass, which come of time that
//! ran out, and which of a server that is not, or no longer, the one to ask. Limits: an error without a name here is
//! shown as its number; most numbers above 10,000 have none (`Location31249`).

use super::messages::NO_CODE;
use crate::results::{DUE, Results, SAYS_NOTHING, SUCCESS, StatusClass};

pub const RESULTS: Results = Results {
    class: |_, code| match code {
        SAYS_NOTHING | DUE => StatusClass::Unknown,
        SUCCESS => StatusClass::Ok,
        _ if REFUSED.contains(&code) => StatusClass::Refused,
        _ if SERVERS.contains(&code) => StatusClass::ServerError,
        _ => StatusClass::ClientError,
    },
    name: |code| match code {
        NO_CODE => Some("error".into()),
        _ => (code > SUCCESS).then(|| name(code).into()),
    },
};

/// Time, locks, memory and other resources that ran out; conflicts with other writes; what was interrupted.
const REFUSED: &[i32] = &[
    24, 46, 50, 64, 112, 146, 202, 208, 237, 257, 261, 262, 264, 290, 292, 365, 402, 433, 449, 462, 11601,
];
/// Servers that are not the one to write to or to read from, shut down, are not reached by another server, or fail.
const SERVERS: &[i32] = &[
    1, 6, 7, 8, 39, 42, 89, 91, 100, 133, 134, 175, 176, 189, 279, 301, 9001, 10058, 10107, 11600, 11602, 13435, 13436,
    14031,
];

/// `11000 DuplicateKey`; the number alone if it has no name here.
fn name(code: i32) -> String {
    match NAMES.binary_search_by_key(&code, |&(known, _)| known) {
        Ok(at) => format!("{code} {}", NAMES[at].1),
        Err(_) => code.to_string(),
    }
}

/// By number: all that are refusals or the servers', and common ones of requests.
#[rustfmt::skip]
const NAMES: &[(i32, &str)] = &[
    (1, "InternalError"),
    (2, "BadValue"),
    (4, "NoSuchKey"),
    (6, "HostUnreachable"),
    (7, "HostNotFound"),
    (8, "UnknownError"),
    (9, "FailedToParse"),
    (11, "UserNotFound"),
    (13, "Unauthorized"),
    (14, "TypeMismatch"),
    (15, "Overflow"),
    (17, "ProtocolError"),
    (18, "AuthenticationFailed"),
    (20, "IllegalOperation"),
    (22, "InvalidBSON"),
    (24, "LockTimeout"),
    (26, "NamespaceNotFound"),
    (27, "IndexNotFound"),
    (28, "PathNotViable"),
    (31, "RoleNotFound"),
    (39, "FileStreamFailed"),
    (40, "ConflictingUpdateOperators"),
    (42, "LogWriteFailed"),
    (43, "CursorNotFound"),
    (46, "LockBusy"),
    (48, "NamespaceExists"),
    (50, "MaxTimeMSExpired"),
    (52, "DollarPrefixedFieldName"),
    (53, "InvalidIdField"),
    (56, "EmptyFieldName"),
    (57, "DottedFieldName"),
    (59, "CommandNotFound"),
    (61, "ShardKeyNotFound"),
    (64, "WriteConcernTimeout"),
    (65, "MultipleErrorsOccurred"),
    (66, "ImmutableField"),
    (67, "CannotCreateIndex"),
    (68, "IndexAlreadyExists"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (76, "NoReplicationEnabled"),
    (79, "UnknownReplWriteConcern"),
    (85, "IndexOptionsConflict"),
    (86, "IndexKeySpecsConflict"),
    (89, "NetworkTimeout"),
    (91, "ShutdownInProgress"),
    (94, "NotYetInitialized"),
    (96, "OperationFailed"),
    (100, "UnsatisfiableWriteConcern"),
    (112, "WriteConflict"),
    (115, "CommandNotSupported"),
    (117, "ConflictingOperationInProgress"),
    (121, "DocumentValidationFailure"),
    (133, "FailedToSatisfyReadPreference"),
    (134, "ReadConcernMajorityNotAvailableYet"),
    (136, "CappedPositionLost"),
    (143, "CursorInUse"),
    (146, "ExceededMemoryLimit"),
    (166, "CommandNotSupportedOnView"),
    (168, "InvalidPipelineOperator"),
    (171, "CannotIndexParallelArrays"),
    (175, "QueryPlanKilled"),
    (176, "FileOpenFailed"),
    (186, "ClientMetadataCannotBeMutated"),
    (189, "PrimarySteppedDown"),
    (197, "InvalidIndexSpecificationOption"),
    (202, "NetworkInterfaceExceededTimeLimit"),
    (206, "NoSuchSession"),
    (208, "TooManyLocks"),
    (211, "KeyNotFound"),
    (225, "TransactionTooOld"),
    (237, "CursorKilled"),
    (238, "NotImplemented"),
    (241, "ConversionFailure"),
    (251, "NoSuchTransaction"),
    (256, "TransactionCommitted"),
    (257, "TransactionTooLarge"),
    (261, "TooManyLogicalSessions"),
    (262, "ExceededTimeLimit"),
    (263, "OperationNotSupportedInTransaction"),
    (264, "TooManyFilesOpen"),
    (279, "ClientDisconnect"),
    (280, "ChangeStreamFatalError"),
    (286, "ChangeStreamHistoryLost"),
    (290, "TransactionExceededLifetimeLimitSeconds"),
    (292, "QueryExceededMemoryLimitNoDiskUseAllowed"),
    (301, "DataCorruptionDetected"),
    (322, "APIVersionError"),
    (323, "APIStrictError"),
    (334, "MechanismUnavailable"),
    (352, "UnsupportedOpQueryCommand"),
    (365, "TemporarilyUnavailable"),
    (391, "ReauthenticationRequired"),
    (402, "ResourceExhausted"),
    (433, "AdmissionQueueOverflow"),
    (449, "RateLimitExceeded"),
    (462, "IngressRequestRateLimitExceeded"),
    (9001, "SocketException"),
    (10058, "LegacyNotPrimary"),
    (10107, "NotWritablePrimary"),
    (10334, "BSONObjectTooLarge"),
    (11000, "DuplicateKey"),
    (11600, "InterruptedAtShutdown"),
    (11601, "Interrupted"),
    (11602, "InterruptedDueToReplStateChange"),
    (12586, "BackgroundOperationInProgressForDatabase"),
    (12587, "BackgroundOperationInProgressForNamespace"),
    (13388, "StaleConfig"),
    (13435, "NotPrimaryNoSecondaryOk"),
    (13436, "NotPrimaryOrSecondary"),
    (14031, "OutOfDiskSpace"),
    (40414, "IDLFailedToParse"),
    (40415, "IDLUnknownField"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_fault_an_error_is() {
        let cases = [
            (0, StatusClass::Ok, None),
            (-1, StatusClass::Unknown, None),
            (11_000, StatusClass::ClientError, Some("11000 DuplicateKey")),
            (26, StatusClass::ClientError, Some("26 NamespaceNotFound")),
            (50, StatusClass::Refused, Some("50 MaxTimeMSExpired")),
            (10_107, StatusClass::ServerError, Some("10107 NotWritablePrimary")),
            (31_249, StatusClass::ClientError, Some("31249")),
            (NO_CODE, StatusClass::ClientError, Some("error")),
        ];
        for (code, class, name) in cases {
            assert_eq!((RESULTS.class)(0, code), class, "{code}");
            assert_eq!((RESULTS.name)(code).as_deref(), name);
        }
    }

    #[test]
    fn errors_that_are_no_requests_own_have_names() {
        assert!(NAMES.is_sorted_by(|a, b| a.0 < b.0));
        for code in REFUSED.iter().chain(SERVERS) {
            assert!(name(*code).contains(' '), "{code}");
        }
    }
}
