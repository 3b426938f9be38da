//! The rules of `rules.txt`, compiled so that one pass over a name decides whether it is secret.

use std::sync::OnceLock;

/// The text of the built-in rules.
pub const BUILT_IN: &str = include_str!("rules.txt");

/// An error in a line of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// From 1.
    pub line: usize,
    pub what: String,
}

/// An option of a program whose value is secret; `*` is any program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRule {
    pub program: String,
    /// With its case: `-p` is not `-P`.
    pub option: String,
}

/// Words of a program's command line that are secret: from the `from`th one after the word `behind` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentRule {
    pub program: String,
    pub behind: String,
    pub from: usize,
}

/// Texts in lower case, by their first byte.
#[derive(Debug, Clone)]
struct ByFirst(Box<[Vec<Box<[u8]>>; 256]>);

/// What is a secret.
#[derive(Debug, Clone)]
pub struct SecretRules {
    parts: ByFirst,
    words: ByFirst,
    headers: Vec<Box<[u8]>>,
    parameters: Vec<Box<[u8]>>,
    pub(crate) paths: Vec<Box<[u8]>>,
    pub(crate) lines: Vec<Box<[u8]>>,
    pub(crate) options: Vec<OptionRule>,
    pub(crate) arguments: Vec<ArgumentRule>,
    kept: Vec<Box<[u8]>>,
    /// Nothing is secret, by the operator's choice.
    pub(crate) keeps_all: bool,
}

impl Default for ByFirst {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Vec::new())))
    }
}

impl ByFirst {
    fn add(&mut self, text: &str) {
        let text = text.to_ascii_lowercase().into_bytes();
        self.0[usize::from(text[0])].push(text.into());
    }

    /// Whether `holds` is so of some text at the begin of `rest`; the second byte decides for most.
    #[inline]
    fn any(&self, rest: &[u8], holds: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        let texts = &self.0[usize::from(rest[0].to_ascii_lowercase())];
        if texts.is_empty() {
            return false;
        }
        let second = rest.get(1).map(u8::to_ascii_lowercase);
        let may_be = |text: &[u8]| text.len() == 1 || text.get(1).copied() == second;
        texts.iter().any(|text| may_be(text) && holds(rest, text))
    }
}

impl SecretRules {
    /// The built-in rules.
    pub fn built_in() -> &'static Self {
        static RULES: OnceLock<SecretRules> = OnceLock::new();
        RULES.get_or_init(|| Self::with("").expect("a test reads them"))
    }

    /// Rules by which nothing is secret.
    pub fn nothing() -> Self {
        Self {
            keeps_all: true,
            ..Self::empty()
        }
    }

    /// Whether nothing is secret.
    pub fn keeps_all(&self) -> bool {
        self.keeps_all
    }

    /// The built-in rules and more, in the form of `rules.txt`.
    ///
    /// # Errors
    /// The first line that is no rule.
    pub fn with(more: &str) -> Result<Self, RuleError> {
        let mut rules = Self::empty();
        for text in [BUILT_IN, more] {
            for (at, line) in text.lines().enumerate() {
                rules.add(line).map_err(|what| RuleError { line: at + 1, what })?;
            }
        }
        Ok(rules)
    }

    fn empty() -> Self {
        Self {
            parts: ByFirst::default(),
            words: ByFirst::default(),
            headers: Vec::new(),
            parameters: Vec::new(),
            paths: Vec::new(),
            lines: Vec::new(),
            options: Vec::new(),
            arguments: Vec::new(),
            kept: Vec::new(),
            keeps_all: false,
        }
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.split('#').next().unwrap_or("").trim();
        let Some((kind, text)) = line.split_once(char::is_whitespace) else {
            return if line.is_empty() {
                Ok(())
            } else {
                Err(format!("{line:?} names no text"))
            };
        };
        let text = text.trim();
        let lower: Box<[u8]> = text.to_ascii_lowercase().into_bytes().into();
        let words: Vec<&str> = text.split_whitespace().collect();
        match (kind, &words[..]) {
            ("part", [one]) => self.parts.add(one),
            ("word", [one]) => self.words.add(one),
            ("header", [_]) => self.headers.push(lower),
            ("parameter", [_]) => self.parameters.push(lower),
            ("path", [_]) => self.paths.push(lower),
            ("line", _) => self.lines.push(lower),
            ("keep", [_]) => self.kept.push(lower),
            ("option", [program, option]) => self.options.push(OptionRule {
                program: (*program).to_owned(),
                option: (*option).to_owned(),
            }),
            ("argument", [program, behind, from]) => self.arguments.push(ArgumentRule {
                program: (*program).to_owned(),
                behind: (*behind).to_owned(),
                from: from.parse().map_err(|_| format!("{from:?} is no number"))?,
            }),
            _ => return Err(format!("{line:?} is no rule")),
        }
        Ok(())
    }

    /// Whether a header of this name holds a secret.
    pub fn is_secret_header(&self, name: &[u8]) -> bool {
        self.is_secret_name(name) || (is_one_of(name, &self.headers) && !self.is_kept(name))
    }

    /// Whether a parameter of this name does.
    pub fn is_secret_parameter(&self, name: &[u8]) -> bool {
        self.is_secret_name(name) || (is_one_of(name, &self.parameters) && !self.is_kept(name))
    }

    /// Whether a value of this name is secret wherever it stands.
    pub fn is_secret_name(&self, name: &[u8]) -> bool {
        let found = (0..name.len()).any(|at| {
            let rest = &name[at..];
            self.parts.any(rest, begins_with) || (begins_word(name, at) && self.words.any(rest, is_word))
        });
        found && !self.is_kept(name)
    }

    fn is_kept(&self, name: &[u8]) -> bool {
        is_one_of(name, &self.kept)
    }
}

/// Whether a word of `name` begins at `at`: behind a sign, or as in `userPass`.
fn begins_word(name: &[u8], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|at| name[at]) else {
        return true;
    };
    !before.is_ascii_alphanumeric() || (before.is_ascii_lowercase() && name[at].is_ascii_uppercase())
}

fn is_word(bytes: &[u8], word: &[u8]) -> bool {
    begins_with(bytes, word)
        && bytes.get(word.len()).is_none_or(|next| {
            !next.is_ascii_alphanumeric() || (next.is_ascii_uppercase() && bytes[word.len() - 1].is_ascii_lowercase())
        })
}

fn is_one_of(name: &[u8], texts: &[Box<[u8]>]) -> bool {
    texts.iter().any(|text| name.eq_ignore_ascii_case(text))
}

/// Whether the bytes begin with this, whatever the case.
pub(crate) fn begins_with(bytes: &[u8], begin: &[u8]) -> bool {
    bytes
        .get(..begin.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_are_rules() {
        assert_eq!(SecretRules::with("").err(), None);
    }

    #[test]
    fn names() {
        let rules = SecretRules::built_in();
        let cases = [
            ("X-Auth-Token", true),
            ("X-Storage-Pass", true),
            ("X-Session-Id", true),
            ("JSESSIONID", true),
            ("userPass", true),
            ("passThrough", true), // a value too many
            ("OS_PASSWORD", true),
            ("X-Trans-Id", false),
            ("X-Request-Id", false),
            ("X-Openstack-Request-Id", false),
            ("x-amz-request-id", false),
            ("x-amz-id-2", false),
            ("traceparent", false),
            ("Content-Length", false),
            ("Compass", false),
            ("Author", false),
            ("Monkey", false),
            ("monKey", true),
            ("prefix", false),
            ("marker", false),
            ("Keep-Alive", false),
            ("WWW-Authenticate", false),
            ("--keep-secrets", false),
        ];
        for (name, secret) in cases {
            assert_eq!(
                rules.is_secret_name(name.trim_start_matches('-').as_bytes()),
                secret,
                "{name}"
            );
        }
        assert!(rules.is_secret_parameter(b"SAMLResponse"));
        assert!(!rules.is_secret_header(b"code"));
    }

    #[test]
    fn an_operators_rules_add_and_take_away() {
        let rules = SecretRules::with("# ours\nheader X-Employee\nkeep X-Session-Id # an id here\n").expect("rules");
        assert!(rules.is_secret_header(b"x-employee"));
        assert!(!rules.is_secret_header(b"X-Session-Id"));
        assert!(rules.is_secret_header(b"X-Auth-Token"));
    }

    #[test]
    fn what_is_no_rule_is_refused_with_its_line() {
        for (text, line) in [
            ("part", 1),
            ("\nsecret x", 2),
            ("part a b", 1),
            ("argument mc alias four", 1),
        ] {
            assert_eq!(
                SecretRules::with(text).err().map(|error| error.line),
                Some(line),
                "{text}"
            );
        }
    }
}
