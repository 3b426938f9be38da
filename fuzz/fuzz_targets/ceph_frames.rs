//! See the invariant at `decoding::ceph_frames`.
#![no_main]

#[path = "../bodies/decoding.rs"]
#[allow(dead_code)] // each target uses one of the bodies
mod decoding;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decoding::ceph_frames(data));
