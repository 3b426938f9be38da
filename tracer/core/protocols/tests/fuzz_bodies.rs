//! The fuzz targets' bodies over the committed corpus, every prefix of it, and seeded mutations, at every test run.

#[path = "../../../../fuzz/bodies/redaction.rs"]
mod redaction;

#[allow(dead_code)] // the corpus itself, which other users read
#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

use mutation::run;

#[test]
fn secret_bytes() {
    run("secret_bytes", redaction::secret_bytes);
}

#[test]
fn secret_words() {
    run("secret_words", redaction::secret_words);
}

#[test]
fn secret_rules() {
    run("secret_rules", redaction::secret_rules);
}
