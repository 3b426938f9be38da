//! Finds the words, or parts of words, of a command line that are secrets.
//!
//! A word is judged by the option before it (`--os-password X`, and by program `swift -K X`), by its own name
//! (`PGPASSWORD=X`, `--token=X`), and as text (URLs, headers). A word that holds blanks may be a command line of its
//! own (`sh -c '…'`) and is walked as one.

use crate::rules::SecretRules;

/// What the previous words determine about the next one.
#[derive(Default)]
struct State<'a> {
    /// Names of programs so far: `sudo env swift -K …` is `swift`'s, too.
    programs: Vec<&'a str>,
    next_is_secret: bool,
    /// For each argument rule, how many words ago its word came, if it did.
    since: Vec<Option<usize>>,
}

impl SecretRules {
    /// The words of a command line with `x` for each character of a secret.
    pub fn redact_words(&self, argv: &[String]) -> Vec<String> {
        if self.keeps_all {
            return argv.to_vec();
        }
        let mut state = State {
            since: vec![None; self.arguments.len()],
            ..State::default()
        };
        argv.iter().map(|word| self.redact_word(word, &mut state)).collect()
    }

    fn redact_word<'a>(&self, word: &'a str, state: &mut State<'a>) -> String {
        if std::mem::take(&mut state.next_is_secret) && !word.starts_with("--") {
            return mask(word);
        }
        if self.is_argument(word, state) {
            return mask(word);
        }
        if word.contains(char::is_whitespace) && !word.starts_with('-') {
            return self.redact_shell_line(word, state);
        }
        self.note(word, state);
        self.redact_option(word, state)
            .unwrap_or_else(|| self.redact_plain(word))
    }

    /// Whether this word is secret by an argument rule. Advances the counts of words.
    fn is_argument(&self, word: &str, state: &mut State<'_>) -> bool {
        let mut secret = false;
        for (rule, since) in self.arguments.iter().zip(&mut state.since) {
            match since {
                Some(count) => {
                    *count += 1;
                    secret |= *count >= rule.from;
                }
                None if word == rule.behind && state.programs.contains(&rule.program.as_str()) => *since = Some(0),
                None => {}
            }
        }
        secret
    }

    fn note<'a>(&self, word: &'a str, state: &mut State<'a>) {
        let name = word.rsplit('/').next().unwrap_or(word);
        let options = self.options.iter().map(|rule| &rule.program);
        if options
            .chain(self.arguments.iter().map(|rule| &rule.program))
            .any(|program| program == name)
        {
            state.programs.push(name);
        }
    }

    /// Redacts an option, or `NAME=VALUE`, that contains a secret or precedes one.
    fn redact_option(&self, word: &str, state: &mut State<'_>) -> Option<String> {
        if let Some((name, value)) = word.split_once('=') {
            let is_name = name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            if is_name
                && (self.is_secret_parameter(name.trim_start_matches('-').as_bytes()) || self.announces(name, state))
            {
                return Some(format!("{name}={}", mask(value)));
            }
            return self.redact_attached(word, state);
        }
        let name = word.trim_start_matches('-');
        let is_long = word.starts_with('-') && name.len() > 1 && !name.starts_with("no-");
        if self.announces(word, state) || (is_long && self.is_secret_name(name.as_bytes())) {
            state.next_is_secret = true;
            return Some(word.to_owned());
        }
        self.redact_attached(word, state)
    }

    /// Whether the value of this option is secret.
    fn announces(&self, option: &str, state: &State<'_>) -> bool {
        let of_program = |program: &str| program == "*" || state.programs.contains(&program);
        self.options
            .iter()
            .any(|rule| rule.option == option && of_program(&rule.program))
    }

    /// `-KVALUE`.
    fn redact_attached(&self, word: &str, state: &State<'_>) -> Option<String> {
        let is_short = word.starts_with('-') && !word.starts_with("--") && word.is_char_boundary(2) && word.len() > 2;
        (is_short && self.announces(&word[..2], state)).then(|| format!("{}{}", &word[..2], mask(&word[2..])))
    }

    fn redact_plain(&self, word: &str) -> String {
        let mut bytes = word.as_bytes().to_vec();
        self.redact_text(&mut bytes);
        let is_left = |at: usize, c: char| bytes[at..].starts_with(c.encode_utf8(&mut [0; 4]).as_bytes());
        word.char_indices()
            .map(|(at, c)| if is_left(at, c) { c } else { 'x' })
            .collect()
    }

    /// A word that may be a command line; blanks and quotes stay.
    fn redact_shell_line<'a>(&self, word: &'a str, state: &mut State<'a>) -> String {
        let mut parts = String::with_capacity(word.len());
        for piece in pieces(word) {
            let is_gap =
                piece.starts_with(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ';' | '|' | '(' | ')'));
            if is_gap || piece.is_empty() {
                parts.push_str(piece);
            } else {
                parts.push_str(&self.redact_word_within(piece, state));
            }
        }
        self.redact_plain(&parts)
    }

    fn redact_word_within<'a>(&self, piece: &'a str, state: &mut State<'a>) -> String {
        if std::mem::take(&mut state.next_is_secret) {
            return mask(piece);
        }
        if self.is_argument(piece, state) {
            return mask(piece);
        }
        self.note(piece, state);
        self.redact_option(piece, state).unwrap_or_else(|| piece.to_owned())
    }
}

/// The words of a shell's line and the gaps between them, in order. What is quoted is one word.
fn pieces(line: &str) -> Vec<&str> {
    let (mut found, mut start, mut quote) = (Vec::new(), 0, None);
    let mut in_gap = false;
    for (at, c) in line.char_indices() {
        let is_gap = match quote {
            Some(open) => c == open,
            None => c.is_whitespace() || matches!(c, '\'' | '"' | '`' | ';' | '|' | '(' | ')'),
        };
        if matches!(c, '\'' | '"') && (quote.is_none() || quote == Some(c)) {
            quote = if quote.is_none() { Some(c) } else { None };
        }
        if at > start && is_gap != in_gap {
            found.push(&line[start..at]);
            start = at;
        }
        in_gap = is_gap;
    }
    found.push(&line[start..]);
    found
}

fn mask(value: &str) -> String {
    "x".repeat(value.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact_built_in(argv: &[&str]) -> String {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        SecretRules::built_in().redact_words(&argv).join(" ")
    }

    #[test]
    fn command_lines() {
        let cases: &[(&[&str], &str)] = &[
            (&["swift", "-K", "s3cr", "upload", "c"], "swift -K xxxx upload c"),
            (&["/usr/bin/swift", "-Ks3cr", "stat"], "/usr/bin/swift -Kxxxx stat"),
            (&["swift", "--key", "s3cr", "stat"], "swift --key xxxx stat"),
            (&["swift", "--key=s3cr", "stat"], "swift --key=xxxx stat"),
            (
                &["swift", "-A", "http://h/auth/v1.0", "-U", "test:tester"],
                "swift -A http://h/auth/v1.0 -U test:tester",
            ),
            (
                &["env", "OS_PASSWORD=s3cr", "swift", "list"],
                "env OS_PASSWORD=xxxx swift list",
            ),
            (&["sudo", "-u", "x", "swift", "-K", "s3cr"], "sudo -u x swift -K xxxx"),
            (
                &["sh", "-c", "swift -K 's3 cr' upload c"],
                "sh -c swift -K 'xxxxx' upload c",
            ),
            (
                &["bash", "-c", "X=1 PGPASSWORD=abc psql -h db"],
                "bash -c X=1 PGPASSWORD=xxx psql -h db",
            ),
            (&["curl", "-u", "u:pw", "http://h/"], "curl -u xxxx http://h/"),
            (
                &["curl", "-H", "X-Auth-Token: s3cr", "http://h/"],
                "curl -H X-Auth-Token: xxxx http://h/",
            ),
            (&["curl", "http://u:pw@h/?pass=s3cr"], "curl http://xxxx@h/?pass=xxxx"),
            (
                &["curl", "-d", "{\"password\":\"s3cr\"}", "http://h"],
                "curl -d {\"password\":\"xxxx\"} http://h",
            ),
            (&["mysql", "-uroot", "-ps3cr", "db"], "mysql -uroot -pxxxx db"),
            (
                &["mc", "alias", "set", "n", "http://h", "AK", "SK"],
                "mc alias set n http://h xx xx",
            ),
            (&["psql", "postgresql://u:pw@h/db"], "psql postgresql://xxxx@h/db"),
            (
                &["curl", "http://u:\u{e9}@h/?pass=\u{20ac}"],
                "curl http://xxx@h/?pass=x",
            ),
            (
                &["tracer", "record", "--keep-secrets", "ls"],
                "tracer record --keep-secrets ls",
            ),
            (&["app", "--no-password", "x"], "app --no-password x"),
            (&["app", "--password", "--verbose"], "app --password --verbose"),
            (&["ls", "-p", "x", "-K", "y"], "ls -p x -K y"),
            (&["curl", "-K"], "curl -K"),
            (&["tar", "-é"], "tar -é"),
            (&[], ""),
        ];
        for (argv, expected) in cases {
            assert_eq!(redact_built_in(argv), *expected);
        }
    }

    #[test]
    fn with_nothing_secret_all_words_stay() {
        let argv = vec!["swift".to_owned(), "-K".to_owned(), "s3cr".to_owned()];
        assert_eq!(SecretRules::nothing().redact_words(&argv), argv);
    }
}
