//! See the invariant at `decoding::zookeeper_messages`.
#![no_main]

#[path = "../bodies/decoding.rs"]
#[allow(dead_code)] // each target uses one of the bodies
mod decoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoding::zookeeper_messages(data));
