//! Passes over columns of hops that are too many for Python: stamps put on the trace's timescale, and flows counted.
//!
//! Every function takes columns and gives columns of the same length (or one row a flow); nothing is kept between calls.
//! What a row means, and what is done with it, is said in `collector.timescale` and `collector.quality`.
#![forbid(unsafe_code)]

pub mod align;
pub mod flows;

/// Frame of an end that was not captured; frames count from 1.
pub const NO_FRAME: u32 = 0;
