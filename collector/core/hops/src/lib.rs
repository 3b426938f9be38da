//! Passes over the columns of hops.
//!
//! - [`align`] converts host stamps to trace times and computes each hop's delay with its uncertainty.
//! - [`counts`] counts hops by flow, by pair of hosts over time, and by rate.
//! - [`gaps`] finds the flows that lack bytes.
//! - [`stamps_by_pair`] and [`hull`] reduce delays to the few that bound the offset between two clocks.
//!
//! Every function takes columns and returns columns and keeps no state.
#![forbid(unsafe_code)]

pub mod align;
pub mod counts;
pub mod flows;
pub mod gaps;
pub mod hull;
pub mod rates;
pub mod stamps_by_pair;
pub mod traffic;

/// Frame of an end that was not captured; frames count from 1.
pub const NO_FRAME: u32 = 0;
