//! From exchanges to traces: parents by transaction id, what each span waited for, and where each root's time went.
//!
//! This crate has the loops over all exchanges; thresholds are arguments. Each loop is local to the exchanges of one
//! id, to the children of one parent, or to one trace, so it costs one pass and keeps a few numbers for each exchange.
//!
//! Rows are exchanges, in any order. A parent is a row, or `NONE`.
//!
//! Source: docs/architecture.md.
#![forbid(unsafe_code)]

mod children;
mod forest;
mod groups;
mod lateness;
mod ledger;
mod links_by_id;
mod pieces;
mod places;
mod server_time;
mod silences;
mod waits;
mod words;

pub use forest::{Forest, forest};
pub use groups::{Groups, Sums, groups, sums};
pub use lateness::{Bins, Late, Limits, RequestTimes, count_bins, count_late};
pub use ledger::{Ledger, Nodes, share_out};
pub use links_by_id::{Exchanges, Links, link};
pub use pieces::{Piece, coalesce, path_numbers, text_numbers};
pub use places::places;
pub use server_time::{CallTimes, ServerTime, server_time};
pub use silences::{LongSilences, ShortSilences, Silences};
pub use twintap_columns::Texts;
pub use waits::{Waiting, Waits, waits};
pub use words::{Shape, Words, distinct, words};

/// Stands for a time that was not seen. Less than every time.
pub const UNSEEN: i64 = i64::MIN;
/// Stands for no parent, or for a host or service that is not known.
pub const NONE: i64 = -1;
