//! See the invariant at `packing::packed_segment`.
#![no_main]

#[path = "../bodies/packing.rs"]
mod packing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| packing::packed_segment(data));
