//! Finds secrets in what is stored, shown or logged, by the names that stand before them, and overwrites them with `x`.
//!
//! The rules are data ([`rules`], `rules.txt`); an operator's file adds to them. One set of rules serves packets
//! ([`heads`]; what single protocols add is in the crate `protocols`), targets of requests, lines of text ([`text`])
//! and command lines ([`words`]). A value is overwritten, never removed, so that lengths, and with them sequence
//! numbers, stay true.
//!
//! Limits: a secret without a name before it is not found: in a body other than a form or JSON, in a database's
//! messages, in a request's path where no `path` rule applies.
#![forbid(unsafe_code)]

pub mod heads;
pub mod rules;
pub mod text;
pub mod words;

pub use heads::head_len;
pub use rules::{RuleError, SecretRules};
