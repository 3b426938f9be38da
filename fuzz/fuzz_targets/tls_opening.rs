//! See the invariant at `opening::tls_opening`.
#![no_main]

#[path = "../bodies/opening.rs"]
#[allow(dead_code)] // fields that only other users read
mod opening;

libfuzzer_sys::fuzz_target!(|data: &[u8]| opening::tls_opening(data));
