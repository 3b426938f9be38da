//! Bodies of the targets of secrets: whatever is overwritten, lengths stay, and what a rule names is gone.
//!
//! Run by cargo-fuzz (`fuzz_targets/`) and, over the committed corpus and mutations of it, by
//! `protocols/tests/fuzz_bodies.rs`.

use twintap_protocols::redaction::{head_len, redact_head, redact_unframed};
use twintap_secrets::SecretRules;

const SECRET: &[u8] = b"Zq7-planted-0";
const PLANTED: &[u8] = b"\r\nX-Auth-Token: Zq7-planted-0\r\n";
/// Redacts bytes in place.
type Redact = fn(&SecretRules, &mut [u8]);
const WAYS: [Redact; 4] = [
    redact_head,
    redact_unframed,
    SecretRules::redact_target,
    SecretRules::redact_text,
];

/// Invariant: each way of redacting keeps the length, writes nothing but `x` in text and leaves it valid UTF-8 (frames of
/// HTTP/2 hold control characters, and are none), and does nothing by the rules that call nothing secret. A header with a
/// secret is redacted wherever in a message a line begins.
pub fn secret_bytes(data: &[u8]) {
    assert!(head_len(data) <= data.len());
    for redact in WAYS {
        check_overwritten(data, redact);
    }
    let (before, after) = data.split_at(data.len() / 2);
    let planted = [before, PLANTED, after].concat();
    for redact in [redact_head, redact_unframed, SecretRules::redact_text] {
        let left = check_overwritten(&planted, redact);
        let at = before.len() + PLANTED.len() - 2 - SECRET.len();
        let same = left[at..]
            .iter()
            .zip(SECRET)
            .filter(|(left, given)| left == given && **given != b'-');
        assert_eq!(same.count(), 0, "a planted secret is left");
    }
}

/// What is left of `data`.
fn check_overwritten(data: &[u8], redact: Redact) -> Vec<u8> {
    let mut left = data.to_vec();
    redact(SecretRules::built_in(), &mut left);
    assert_eq!(left.len(), data.len());
    if is_text(data) {
        let is_overwritten = |(left, given): (&u8, &u8)| left == given || *left == b'x';
        assert!(left.iter().zip(data).all(is_overwritten));
        assert!(std::str::from_utf8(&left).is_ok(), "half a character is left");
    }
    let mut kept = data.to_vec();
    redact(&SecretRules::nothing(), &mut kept);
    assert_eq!(kept, data);
    left
}

fn is_text(data: &[u8]) -> bool {
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    std::str::from_utf8(data).is_ok_and(|text| !text.contains(is_control))
}

/// Invariant: a command line keeps its words and their lengths, and what an option announces is gone. Words end at a NUL.
pub fn secret_words(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let given: Vec<String> = text.split('\0').map(str::to_owned).collect();
    let secret = String::from_utf8_lossy(SECRET).into_owned();
    let argv = [&given[..], &["--os-password".to_owned(), secret.clone()]].concat();
    let left = SecretRules::built_in().redact_words(&argv);
    assert_eq!(left.len(), argv.len());
    for (left, given) in left.iter().zip(&argv) {
        assert_eq!(left.chars().count(), given.chars().count(), "{given:?} became {left:?}");
    }
    assert_eq!(left.last(), Some(&"x".repeat(secret.len())));
}

/// Invariant: an operator's file gives rules or the number of a line in it, and rules only add to what is secret unless they
/// keep a name.
pub fn secret_rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match SecretRules::with(&text) {
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line)),
        Ok(rules) if !text.contains("keep") => {
            let mut left = PLANTED.to_vec();
            rules.redact(&mut left);
            assert!(!left.windows(SECRET.len()).any(|part| part == SECRET));
        }
        Ok(_) => {}
    }
}
