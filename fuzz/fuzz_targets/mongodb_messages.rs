//! See the invariant at `decoding::mongodb_messages`.
#![no_main]

#[path = "../bodies/decoding.rs"]
#[allow(dead_code)] // each target uses one of the bodies
mod decoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoding::mongodb_messages(data));
