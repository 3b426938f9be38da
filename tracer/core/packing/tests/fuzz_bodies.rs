//! The fuzz target's body over the committed corpus, every prefix of it, and seeded mutations, at every test run.

#[path = "../../../../fuzz/bodies/packing.rs"]
mod packing;

#[allow(dead_code)] // the corpus itself, which other users read
#[path = "../../../../fuzz/bodies/mutation.rs"]
mod mutation;

use twintap_packing::{MAGIC, STREAM_COUNT, pack};

#[test]
fn packed_segment() {
    mutation::run("packed_segment", packing::packed_segment);
}

/// Of the corpus with streams each file must be a segment, or the target would see nothing of them.
#[test]
fn the_corpus_is_as_the_target_reads_it() {
    let corpus = mutation::corpus("packed_segment");
    let (streams, captures): (Vec<_>, Vec<_>) = corpus.iter().partition(|file| file[0] & 1 == 1);
    assert!(!captures.is_empty() && !streams.is_empty());
    assert!(captures.iter().all(|file| pack(&file[1..]).starts_with(MAGIC)));
    for file in streams {
        let (lengths, contents) = file[1..].split_at(STREAM_COUNT);
        assert_eq!(
            lengths.iter().map(|&len| usize::from(len)).sum::<usize>(),
            contents.len()
        );
    }
}
