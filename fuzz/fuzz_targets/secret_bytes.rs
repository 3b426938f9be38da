//! See the invariant at `redaction::secret_bytes`.
#![no_main]

#[path = "../bodies/redaction.rs"]
#[allow(dead_code)] // each target uses one of the bodies
mod redaction;

libfuzzer_sys::fuzz_target!(|data: &[u8]| redaction::secret_bytes(data));
