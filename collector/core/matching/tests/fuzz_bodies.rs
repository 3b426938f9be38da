//! The fuzz target's body over the committed corpus, every prefix of it, and seeded mutations.

#[path = "../../../../fuzz/bodies/matching.rs"]
mod matching;

#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

#[test]
fn matching() {
    mutation::run("matching", matching::matching);
}
