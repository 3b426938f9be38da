//! See the invariant at `keeping::kept_frame`.
#![no_main]

#[path = "../bodies/keeping.rs"]
#[allow(dead_code)] // each target uses one of the bodies
mod keeping;

libfuzzer_sys::fuzz_target!(|data: &[u8]| keeping::kept_frame(data));
