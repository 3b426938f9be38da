//! Decoded packets spread over partitions by connection, so that later stages run on a part at a time.
//!
//! The way of a packet: the reader's columns → [`keys`] tells its partition → [`blocks`] packs it with others of its
//! partition → [`buffers`] keeps it, in memory while there is room and in a file beyond that → [`columns`] makes columns of a
//! whole partition again, host by host. On the way [`notes`] keeps what a host's packets tell of the host.
//!
//! All packets of a 4-tuple, either way and of all hosts, are in one partition.
#![forbid(unsafe_code)]

pub mod activity;
pub mod answers;
pub mod blocks;
pub mod buffers;
pub mod columns;
pub mod copies;
pub mod handshakes;
pub mod heads;
pub mod keys;
pub mod notes;
pub mod partitions;
pub mod sights;

/// The value, whether or not another thread panicked over it: Python has seen that panic.
fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
