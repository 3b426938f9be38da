//! Tables as Parquet files, from columns as the core has them: each row group encoded by itself, on any thread, and its
//! bytes then placed in a file by whoever owns it.
//!
//! Numbers are stored as differences, as places in a list of the values that occur, as byte planes or as they are,
//! whichever takes least room for some of a row group's values, and compressed where that gains half. A general encoder
//! takes 5 ns a value; these loops take 1 to 2, since they go over whole columns without asking what comes next. The
//! container (page headers, footer) is the crate `parquet`'s.
//!
//! Each column chunk is one page.
#![forbid(unsafe_code)]

pub mod bits;
pub mod chunk;
pub mod file;
pub mod numbers;
pub mod texts;
pub mod values;

pub use file::{ColumnKind, ColumnSchema, Footer, RowGroup, Schema};
pub use values::{Column, Values};
