//! Spreads decoded packets over partitions by connection, so that later stages process one part at a time.
//!
//! A packet passes from the reader's columns through these modules:
//! 1. [`keys`] computes its partition.
//! 2. [`blocks`] packs it with other packets of its partition.
//! 3. [`buffers`] keeps the block, in memory while there is room and in a file beyond that.
//! 4. [`columns`] turns a whole partition into columns again, host by host.
//!
//! Meanwhile [`notes`] collects figures about each host from its packets.
//!
//! All packets of a 4-tuple, either way and of all hosts, are in one partition.
#![forbid(unsafe_code)]

pub mod activity;
pub mod answers;
pub mod blocks;
pub mod buffers;
pub mod columns;
pub mod copies;
pub mod excerpts;
pub mod handshakes;
pub mod keys;
pub mod notes;
pub mod partitions;
pub mod sights;
pub mod text_order;

/// The value, whether or not another thread panicked over it: Python has seen that panic.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
