//! One word of each request's target, as an index into a list of the words that occur.

use std::ops::Range;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use twintap_columns::Texts;

use crate::groups::Groups;

/// Texts that a thread handles at a time.
const TEXTS_AT_ONCE: usize = 1 << 14;

/// Where a kind of text has its word: the `place`-th one after `prefix`. Words are separated by `/` and end before a
/// query (`?`).
#[derive(Clone, Debug)]
pub struct Shape<'a> {
    pub kind: i32,
    pub prefix: &'a [u8],
    pub place: usize,
}

/// Distinct words, and the number of each text's word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// For each text the index of its word in `names`, -1 for none.
    pub codes: Vec<i32>,
    pub names: Vec<String>,
}

/// The word of each text at the place that its kind's shape gives. Texts come in consecutive parts.
///
/// # Panics
/// If texts and kinds differ in number.
pub fn words(parts: &[Texts], kinds: &[i32], shapes: &[Shape]) -> Words {
    let mut begin = 0;
    let mut tasks = Vec::new();
    for texts in parts {
        let count = texts.offsets.len() - 1;
        tasks.extend((0..count).step_by(TEXTS_AT_ONCE).map(|start| {
            let rows = start..count.min(start + TEXTS_AT_ONCE);
            (texts, rows.clone(), &kinds[begin + rows.start..begin + rows.end])
        }));
        begin += count;
    }
    assert_eq!(begin, kinds.len(), "texts and kinds differ in number");
    let found: Vec<NumberedWords> = tasks
        .into_par_iter()
        .map(|(texts, rows, kinds)| NumberedWords::new(texts, rows, kinds, shapes))
        .collect();
    let mut words = Words::default();
    words.codes.reserve(kinds.len());
    let mut known: FxHashMap<&[u8], i32> = FxHashMap::default();
    for part in &found {
        let mut global = Vec::with_capacity(part.names.len());
        for &name in &part.names {
            let next = words.names.len() as i32;
            let code = *known.entry(name).or_insert(next);
            if code == next {
                words.names.push(String::from_utf8_lossy(name).into_owned());
            }
            global.push(code);
        }
        let codes = part
            .codes
            .iter()
            .map(|&own| usize::try_from(own).map_or(-1, |own| global[own]));
        words.codes.extend(codes);
    }
    words
}

/// The distinct words of some texts, with numbers of their own.
#[derive(Default)]
struct NumberedWords<'a> {
    codes: Vec<i32>,
    names: Vec<&'a [u8]>,
}

impl<'a> NumberedWords<'a> {
    fn new(texts: &Texts<'a>, rows: Range<usize>, kinds: &[i32], shapes: &[Shape]) -> Self {
        let mut found = Self::default();
        let mut numbers: FxHashMap<&[u8], i32> = FxHashMap::default();
        for (row, kind) in rows.zip(kinds) {
            let shape = shapes.iter().find(|shape| shape.kind == *kind);
            let word = shape.and_then(|shape| word(texts.text(row), shape.prefix, shape.place));
            let code = word.map_or(-1, |word| {
                *numbers.entry(word).or_insert_with(|| {
                    found.names.push(word);
                    found.names.len() as i32 - 1
                })
            });
            found.codes.push(code);
        }
        found
    }
}

/// Number the texts of some rows; -1 where the row is negative.
///
/// # Panics
/// If a row is beyond the last text.
pub fn distinct(texts: &Texts, rows: &[i64]) -> Groups {
    let mut known: FxHashMap<&[u8], i32> = FxHashMap::default();
    // Empty texts may be at an address that is not mapped, where `memcmp` takes long even for no bytes (AVX-512's masked
    // loads), so they are not compared.
    let mut of_empty = None;
    let mut found = Groups::default();
    for row in rows {
        let Ok(at) = usize::try_from(*row) else {
            found.of.push(-1);
            continue;
        };
        let (text, next) = (texts.text(at), found.first.len() as i32);
        let own = if text.is_empty() {
            *of_empty.get_or_insert(next)
        } else {
            *known.entry(text).or_insert(next)
        };
        if own == next {
            found.first.push(*row);
        }
        found.of.push(own);
    }
    found
}

/// Index of the slash or query after a word.
fn end_of_word(path: &[u8], begin: usize) -> Option<usize> {
    let ends = |&byte: &u8| byte == b'/' || byte == b'?';
    path[begin..].iter().position(ends).map(|place| begin + place)
}

fn word<'a>(text: &'a [u8], prefix: &[u8], place: usize) -> Option<&'a [u8]> {
    let path = text.strip_prefix(prefix)?;
    let mut begin = 0;
    for _ in 0..place {
        begin = end_of_word(path, begin).filter(|&end| path[end] == b'/')? + 1;
    }
    let end = end_of_word(path, begin).unwrap_or(path.len());
    Some(&path[begin..end]).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number() {
        let texts = Texts {
            offsets: &[0, 1, 1, 2, 3],
            bytes: b"aba",
        };
        let found = distinct(&texts, &[3, 1, -1, 1, 0, 2, 1]);
        let expected = Groups {
            of: vec![0, 1, -1, 1, 0, 2, 1],
            first: vec![3, 1, 2],
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_word_is_what_is_between_slashes() {
        for (text, place, expected) in [
            ("/sda/12/a", 0, Some("sda")),
            ("/sda/12/a", 1, Some("12")),
            ("/sda?x=/y", 0, Some("sda")),
            ("/sda?x=/y", 1, None),
            ("/", 0, None),
            ("sda", 0, None),
        ] {
            let found = word(text.as_bytes(), b"/", place);
            assert_eq!(found, expected.map(str::as_bytes), "{text} {place}");
        }
    }

    #[test]
    fn equal_words_have_one_number_in_all_parts() {
        let texts = |offsets, bytes| Texts { offsets, bytes };
        let parts = [texts(&[0, 3, 6], b"/a//b/"), texts(&[0, 3, 6, 10], b"/c//a//x/a")];
        assert!(parts.iter().all(Texts::is_consistent));
        let shape = |kind, prefix, place| Shape { kind, prefix, place };
        let found = words(&parts, &[4, 4, 4, 9, 5], &[shape(4, b"/", 0), shape(5, b"/x/", 0)]);
        assert_eq!(found.codes, [0, 1, 2, -1, 0]);
        assert_eq!(found.names, ["a", "b", "c"]);
    }
}
