//! Writes tables as Parquet files from the core's columns. Each row group is encoded by itself, on any thread; whoever
//! owns the file then writes its bytes there.
//!
//! Numbers are stored as differences, as indices into a list of the values that occur, as byte planes or as they are,
//! whichever takes least room for a sample of the row group's values, and are compressed where that halves them. A
//! general encoder takes 5 ns a value; these loops take 1 to 2, because they process whole columns without a branch for
//! each value. The container (page headers, footer) is written by the crate `parquet`.
//!
//! Each column chunk is one page.
#![forbid(unsafe_code)]

pub mod bits;
pub mod chunk;
pub mod file;
mod layout;
pub mod numbers;
pub mod texts;
pub mod values;

pub use file::{ColumnKind, ColumnSchema, Footer, RowGroup, Schema};
pub use values::{Column, Texts, Values};
