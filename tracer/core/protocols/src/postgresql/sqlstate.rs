//! SQLSTATE: the code of an error, five digits or capital letters, as a number of base 36.
//!
//! The first two characters are its class. Errors of a few classes are the server's, all others the request's: a
//! statement that cannot be read, a constraint, a lock that another transaction held.
//!
//! Source: PostgreSQL, "Error and Notice Message Fields", "PostgreSQL Error Codes"; ISO 9075 (classes).

use super::condition_names::condition_name;
use crate::results::{DUE, Results, SAYS_NOTHING, SUCCESS, StatusClass};

const LEN: usize = 5;
const BASE: i32 = 36;
/// `query_canceled`: by a timeout, or since its client asked for it.
const CANCELED: &str = "57014";

pub const RESULTS: Results = Results {
    class: |_, code| match code {
        SAYS_NOTHING | DUE => StatusClass::Unknown,
        SUCCESS => StatusClass::Ok,
        _ => unpack(code).map_or(StatusClass::Unknown, |code| class(&code)),
    },
    name: |code| {
        if code > SUCCESS {
            unpack(code).map(|code| with_name(code).into())
        } else {
            None
        }
    },
};

/// `23505 unique_violation`; the code alone if it has no words.
fn with_name(code: String) -> String {
    match condition_name(&code) {
        Some(name) => format!("{code} {name}"),
        None => code,
    }
}

fn class(code: &str) -> StatusClass {
    match code.split_at(2).0 {
        _ if code == CANCELED => StatusClass::Refused,
        "53" => StatusClass::Refused, // insufficient resources: connections, memory, disk
        "08" | "57" | "58" | "F0" | "XX" => StatusClass::ServerError,
        _ => StatusClass::ClientError,
    }
}

/// What an ErrorResponse says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorFields {
    pub code: i32,
    /// The server closes the connection after it.
    pub is_fatal: bool,
}

/// Read the fields of an ErrorResponse: a letter and a text each, which ends with a zero.
pub fn of_error(body: &[u8]) -> ErrorFields {
    let mut found = ErrorFields {
        code: DUE,
        is_fatal: false,
    };
    for field in body.split(|&byte| byte == 0) {
        match field.split_first() {
            Some((b'V', severity)) => found.is_fatal = matches!(severity, b"FATAL" | b"PANIC"),
            Some((b'C', code)) => found.code = pack(code).unwrap_or(DUE),
            Some((b'M', _)) => break, // the message, and details: not needed
            _ => {}
        }
    }
    found
}

/// A code as a number; `None` if it is none.
pub fn pack(code: &[u8]) -> Option<i32> {
    let digit = |&byte: &u8| match byte {
        b'0'..=b'9' => Some(i32::from(byte - b'0')),
        b'A'..=b'Z' => Some(i32::from(byte - b'A') + 10),
        _ => None,
    };
    (code.len() == LEN).then_some(())?;
    code.iter()
        .try_fold(0, |number, byte| Some(number * BASE + digit(byte)?))
}

/// The code of a number.
pub fn unpack(number: i32) -> Option<String> {
    let mut rest = u32::try_from(number).ok()?;
    let mut code = [b'0'; LEN];
    for place in code.iter_mut().rev() {
        let digit = (rest % BASE as u32) as u8;
        *place = if digit < 10 { b'0' + digit } else { b'A' + digit - 10 };
        rest /= BASE as u32;
    }
    (rest == 0).then(|| String::from_utf8_lossy(&code).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_number_and_back() {
        for code in ["00000", "42P01", "22012", "57014", "XX000", "ZZZZZ"] {
            assert_eq!(pack(code.as_bytes()).and_then(unpack).as_deref(), Some(code));
        }
        assert_eq!(
            (pack(b"42p01"), pack(b"42P0"), pack(b""), pack(b"42P011")),
            (None, None, None, None)
        );
        assert_eq!((pack(b"00000"), unpack(-1), unpack(i32::MAX)), (Some(0), None, None));
    }

    #[test]
    fn whose_fault_it_is_follows_from_the_class() {
        let of = |code: &str| (RESULTS.class)(0, pack(code.as_bytes()).expect("a code"));
        assert_eq!((of("00000"), of("42P01"), of("40001")), {
            (StatusClass::Ok, StatusClass::ClientError, StatusClass::ClientError)
        });
        assert_eq!((of("53300"), of("57014")), (StatusClass::Refused, StatusClass::Refused));
        assert_eq!(
            (of("57P01"), of("XX001")),
            (StatusClass::ServerError, StatusClass::ServerError)
        );
        assert_eq!([-1, -2].map(|code| (RESULTS.class)(0, code)), [StatusClass::Unknown; 2]);
        assert_eq!((RESULTS.name)(0), None);
    }

    #[test]
    fn a_code_is_shown_with_its_words() {
        let of = |code: &str| (RESULTS.name)(pack(code.as_bytes()).expect("a code"));
        assert_eq!(of("23505").as_deref(), Some("23505 unique_violation"));
        assert_eq!(of("P0001").as_deref(), Some("P0001 raise_exception"));
        assert_eq!(of("AB123").as_deref(), Some("AB123")); // an application's own
    }

    #[test]
    fn the_code_is_read_from_an_error_cut_anywhere() {
        let error = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0Fpostgres.c\0\0";
        assert_eq!(
            (of_error(error).code, of_error(error).is_fatal),
            (pack(b"57P01").unwrap_or(0), true)
        );
        for len in 0..error.len() {
            let code = of_error(&error[..len]).code;
            assert!(code == DUE || Some(code) == pack(b"57P01"), "cut at {len}");
        }
        assert!(!of_error(b"SERREUR\0C42601\0Msyntaxe\0\0").is_fatal);
    }
}
