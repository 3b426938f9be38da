//! Passes over columns of hops that are too many for Python: stamps put on the trace's timescale, flows and
//! links counted, and delays reduced to those that bound a clock.
//!
//! Every function takes columns and gives columns; nothing is kept between calls.
//! What a row means, and what is done with it, is said in `collector.clocks.alignment`, `collector.hops.quality`,
//! `collector.hops.path_traffic` and `collector.clocks.bounds`.
#![forbid(unsafe_code)]

pub mod align;
pub mod counted;
pub mod flows;
pub mod hull;
pub mod rates;
pub mod traffic;
pub mod ways;

/// Frame of an end that was not captured; frames count from 1.
pub const NO_FRAME: u32 = 0;
