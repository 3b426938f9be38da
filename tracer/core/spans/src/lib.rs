//! From exchanges to traces: who made which by its transaction id, what waited for what, and where each root's time
//! went.
//!
//! The thresholds and the meaning of every column are Python's (`collector.requests.parents`,
//! `collector.requests.waits`, `collector.requests.critical_path`, `collector.findings`); here are the loops over all
//! exchanges. Each is local: to the exchanges that show one id, to the children of one parent, to one trace. So each
//! costs a pass, and what it keeps for an exchange is a few numbers.
//!
//! Rows are exchanges, in any order. A parent is a row, or `NONE`.
//!
//! Source: docs/architecture.md.
#![forbid(unsafe_code)]

mod asking;
mod children;
mod forest;
mod groups;
mod identified;
mod lateness;
mod ledger;
mod pieces;
mod places;
mod silences;
mod waits;
mod words;

pub use asking::{Asked, Took, took};
pub use forest::{Forest, forest};
pub use groups::{Groups, Sums, groups, sums};
pub use identified::{Exchanges, Links, link};
pub use lateness::{Bins, Late, Limits, Timed, count_bins, count_late};
pub use ledger::{Ledger, Nodes, STRETCHES, share_out};
pub use pieces::{Piece, first_known, text_numbers};
pub use places::places;
pub use silences::Silences;
pub use waits::{Waiting, Waits, waits};
pub use words::{Shape, Texts, Words, distinct, words};

/// A time that was not seen. Less than every time.
pub const UNSEEN: i64 = i64::MIN;
/// No parent, or a host or service that is not known.
pub const NONE: i64 = -1;
