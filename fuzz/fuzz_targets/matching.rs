//! See the invariant at `matching::matching`.
#![no_main]

#[path = "../bodies/matching.rs"]
#[allow(dead_code)] // fields that only other users read
mod matching;

libfuzzer_sys::fuzz_target!(|data: &[u8]| matching::matching(data));
