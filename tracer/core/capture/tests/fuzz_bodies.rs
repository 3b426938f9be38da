//! The fuzz targets' bodies over the committed corpus, every prefix of it, and seeded mutations, at every test run.

#[path = "../../../../fuzz/bodies/keeping.rs"]
mod keeping;

#[allow(dead_code)] // the corpus itself, which other users read
#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

use mutation::run;

#[test]
fn kept_frame() {
    run("kept_frame", keeping::kept_frame);
}

#[test]
fn tls_records() {
    run("tls_records", keeping::tls_records);
}
