//! Passes over the columns of hops, of which there are too many for Python.
//!
//! - [`align`] converts host stamps to trace times and computes each hop's delay with its uncertainty.
//! - [`counted`] counts hops by flow, by pair of hosts over time, and by rate.
//! - [`ways`] and [`hull`] reduce delays to the few that bound the offset between two clocks.
//!
//! Every function takes columns and returns columns; nothing is kept between calls.
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
