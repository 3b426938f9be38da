//! The words that begin Redis' errors, and whose errors they report.
//!
//! A word's number is an answer's result code; 0 is an answer that is no error. An error is the server's, or its refusal,
//! if the same command, sent again later, may succeed without a change: Redis is loading, busy or full; it cannot write,
//! or lacks its master, its replicas or its cluster. `READONLY` is among them, since a failover made a replica of the
//! server that the client knew as master. `MOVED` and `ASK` lead a client to another node, as a redirection of HTTP does,
//! and are no errors. All others are the client's: what it sent cannot be done as it is. `NOSCRIPT` is among them
//! although clients expect it, and then send the script.
//!
//! Source: Redis' `src/server.c` (`createSharedObjects`), `src/cluster.c`, `src/script.c`, `src/t_stream.c` (7.0).

use std::borrow::Cow;

use crate::results::{Results, SUCCESS, StatusClass};

use StatusClass::{ClientError as Client, Ok as Fine, Refused, ServerError as Server};

pub(super) const RESULTS: Results = Results {
    class: |_, code| entry(code).map_or(StatusClass::Unknown, |(_, class)| *class),
    name: |code| (code != SUCCESS).then(|| entry(code).map(|(word, _)| Cow::Borrowed(*word)))?,
};

/// Appended to only: the numbers are in traces.
const WORDS: &[(&str, StatusClass)] = &[
    ("OK", Fine),
    ("ERR", Client),
    ("WRONGTYPE", Client),
    ("MOVED", Fine),
    ("ASK", Fine),
    ("NOAUTH", Client),
    ("WRONGPASS", Client),
    ("NOPERM", Client),
    ("NOSCRIPT", Client),
    ("EXECABORT", Client),
    ("CROSSSLOT", Client),
    ("BUSYKEY", Client),
    ("BUSYGROUP", Client),
    ("NOGROUP", Client),
    ("NOPROTO", Client),
    ("DENIED", Client),
    ("NOTBUSY", Client),
    ("UNBLOCKED", Client),
    ("INVALIDOBJ", Client),
    ("OOM", Refused),
    ("LOADING", Refused),
    ("BUSY", Refused),
    ("MISCONF", Server),
    ("READONLY", Server),
    ("MASTERDOWN", Server),
    ("NOREPLICAS", Server),
    ("CLUSTERDOWN", Server),
    ("TRYAGAIN", Refused),
    ("UNKILLABLE", Server),
    ("NOMASTERLINK", Server),
    ("NOGOODSLAVE", Server),
    ("INPROG", Refused),
    ("IOERR", Server),
];
/// The code of a word that is not known.
const OTHER: i32 = 1;

/// The result code of an error's text, without the byte before it.
pub(super) fn code(text: &[u8]) -> i32 {
    let len = text.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let found = WORDS.iter().position(|(word, _)| word.as_bytes() == &text[..len]);
    found.filter(|place| *place > 0).map_or(OTHER, |place| place as i32)
}

/// Length of the word that an error begins with, if it is known.
pub(super) fn known_word_len(text: &[u8]) -> usize {
    let len = text.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_known = WORDS.iter().any(|(word, _)| word.as_bytes() == &text[..len]);
    if is_known { len } else { 0 }
}

/// The word of a result code.
pub(super) fn word(code: i32) -> Option<&'static str> {
    entry(code).map(|(word, _)| *word)
}

fn entry(code: i32) -> Option<&'static (&'static str, StatusClass)> {
    WORDS.get(usize::try_from(code).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_known_by_its_first_word() {
        let cases: &[(&[u8], &str, StatusClass)] = &[
            (b"ERR unknown command", "ERR", Client),
            (b"WRONGTYPE Operation against", "WRONGTYPE", Client),
            (b"MOVED 3999 127.0.0.1:6381", "MOVED", Fine),
            (b"OOM command not allowed", "OOM", Refused),
            (b"READONLY You can't write", "READONLY", Server),
            (b"OK of a script", "ERR", Client),
            (b"mine own", "ERR", Client),
            (b"", "ERR", Client),
        ];
        for (text, expected, of) in cases {
            let code = code(text);
            assert_eq!(
                (word(code), (RESULTS.class)(0, code)),
                (Some(*expected), *of),
                "{text:?}"
            );
        }
        assert_eq!((word(-1), word(99), word(0)), (None, None, Some("OK")));
        assert_eq!((RESULTS.name)(SUCCESS), None);
        assert_eq!((RESULTS.name)(2), Some("WRONGTYPE".into()));
    }
}
