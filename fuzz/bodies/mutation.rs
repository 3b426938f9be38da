//! What can be had of a fuzz target without a fuzzer, at every test run: its body over the committed corpus, every prefix of
//! it, and seeded mutations.

use std::path::{Path, PathBuf};

/// Mutations of each corpus file; enough to change each byte of a small file several times.
const MUTATIONS: u64 = 500;

/// The committed corpus of `target`, written by hand, by file name.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    files_in(target)
}

/// What the fuzzer found besides; nothing of a target that it found nothing new for.
fn inputs_found(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{target}/found");
    if corpus_folder(&folder).is_dir() {
        files_in(&folder)
    } else {
        Vec::new()
    }
}

fn corpus_folder(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fuzz/corpus")
        .join(folder)
}

/// Files of a folder of the corpus, by name.
fn files_in(folder: &str) -> Vec<Vec<u8>> {
    let folder = corpus_folder(folder);
    let mut files: Vec<_> = folder
        .read_dir()
        .expect("the corpus is committed")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus in {}", folder.display());
    files
        .iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect()
}

/// A small generator of random numbers (splitmix64), so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// Values that lengths break on.
const SPITEFUL: [u8; 8] = [0, 1, 0x0f, 0x45, 0x7f, 0x80, 0xfe, 0xff];

fn mutate(data: &[u8], random: &mut Random) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(data.len());
        match random.below(5) {
            0 => data[at] = SPITEFUL[random.below(SPITEFUL.len())],
            1 => data[at] ^= 1 << random.below(8),
            2 => data.truncate(at.max(1)),
            3 => data.insert(at, SPITEFUL[random.below(SPITEFUL.len())]),
            _ => {
                let end = (at + 4).min(data.len());
                data[at..end].fill(SPITEFUL[random.below(SPITEFUL.len())]);
            }
        }
    }
    data
}

/// Run `body` over the corpus of `target`, its prefixes and its mutations; and over what the fuzzer found besides.
pub fn run(target: &str, body: fn(&[u8])) {
    inputs_found(target).iter().for_each(|data| body(data));
    for (number, whole) in corpus(target).iter().enumerate() {
        for len in 0..=whole.len() {
            body(&whole[..len]);
        }
        let mut random = Random(number as u64);
        for _ in 0..MUTATIONS {
            body(&mutate(whole, &mut random));
        }
    }
}
