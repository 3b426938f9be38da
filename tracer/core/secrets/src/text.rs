//! Overwrites secrets in lines for people: log lines, output, error messages.

use crate::heads::{first_in_line, is_token};
use crate::rules::SecretRules;

impl SecretRules {
    /// Overwrites the secrets in lines of text: in URLs, parameters, JSON, and behind names of headers.
    pub fn redact_text(&self, text: &mut [u8]) {
        if self.keeps_all {
            return;
        }
        for line in text.split_mut(|byte| matches!(byte, b'\n' | b'\r')) {
            self.redact_named(line);
            self.redact_line(line);
        }
    }

    /// Overwrites what stands behind `X-Some-Name:`; a plain word before a colon is prose, no name.
    fn redact_named(&self, line: &mut [u8]) {
        let mut at = 0;
        while let Some(colon) = first_in_line(line, at, b':') {
            at = colon + 1;
            let start = line[..colon]
                .iter()
                .rposition(|b| !is_token(*b) || *b == b'\'')
                .map_or(0, |before| before + 1);
            let name = &line[start..colon];
            let is_header = name.contains(&b'-') || name.contains(&b'_');
            let is_well_known = [&b"authorization"[..], b"cookie"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known));
            if (is_header || is_well_known) && self.is_secret_header(name) {
                let blanks = line[at..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
                line[at + blanks..].fill(b'x');
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact_built_in(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        SecretRules::built_in().redact_text(&mut bytes);
        String::from_utf8(bytes).expect("whole characters are kept or overwritten by ASCII")
    }

    #[test]
    fn lines() {
        let cases = [
            (
                "cannot reach http://u:pw@h:80/x; try again",
                "cannot reach http://xxxx@h:80/x; try again",
            ),
            (
                "collecting at http://127.0.0.1:8710",
                "collecting at http://127.0.0.1:8710",
            ),
            ("sent X-Auth-Token: abc", "sent X-Auth-Token: xxx"),
            (
                "the token is missing: give --token-file",
                "the token is missing: give --token-file",
            ),
            ("GET /?token=abc&a=b 200\nnext", "GET /?token=xxx&a=b 200\nnext"),
            ("password=abc", "password=xxx"),
            (
                "{\"a\": 1, \"password\": \"a\\\"b\", \"c\": \"d\"}",
                "{\"a\": 1, \"password\": \"xxxx\", \"c\": \"d\"}",
            ),
            ("s3://KEY:SECRET@bucket/trace", "s3://xxxxxxxxxx@bucket/trace"),
            ("é ?pass=é", "é ?pass=xx"),
        ];
        for (text, expected) in cases {
            assert_eq!(redact_built_in(text), expected);
        }
    }
}
