//! What targets name: one word of each, as a place in a list of those that occur.

use rustc_hash::FxHashMap;

use crate::groups::Groups;

/// Texts laid end to end: text n is bytes `offsets[n]..offsets[n + 1]`.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    pub offsets: &'a [i32],
    pub bytes: &'a [u8],
}

impl Texts<'_> {
    /// Whether offsets lead into the bytes.
    pub fn is_consistent(&self) -> bool {
        let ascending = self.offsets.windows(2).all(|pair| 0 <= pair[0] && pair[0] <= pair[1]);
        let end = self.offsets.last().copied().unwrap_or(-1);
        ascending && usize::try_from(end).is_ok_and(|end| end <= self.bytes.len())
    }

    /// One of them.
    pub fn text(&self, row: usize) -> &[u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
}

/// Of each text that is `wanted` and begins with `prefix`, its word number `place` behind that, as a place in the list
/// given out; -1 for none. Words are parted by `/`, and end with a query (`?`).
///
/// # Panics
/// If texts and `wanted` differ in length.
pub fn words(texts: &Texts, wanted: &[bool], prefix: &[u8], place: usize) -> (Vec<i32>, Vec<String>) {
    assert_eq!(texts.offsets.len(), wanted.len() + 1, "columns differ in length");
    let mut known: FxHashMap<&[u8], i32> = FxHashMap::default();
    let mut names = Vec::new();
    let code = |(row, &wanted): (usize, &bool)| {
        let Some(word) = wanted.then(|| word(texts.text(row), prefix, place)).flatten() else {
            return -1;
        };
        *known.entry(word).or_insert_with(|| {
            names.push(String::from_utf8_lossy(word).into_owned());
            names.len() as i32 - 1
        })
    };
    let codes = wanted.iter().enumerate().map(code).collect();
    (codes, names)
}

/// Number the texts of some rows; -1 where the row is negative.
///
/// # Panics
/// If a row is beyond the last text.
pub fn distinct(texts: &Texts, rows: &[i64]) -> Groups {
    let mut known: FxHashMap<&[u8], i32> = FxHashMap::default();
    let mut found = Groups::default();
    for row in rows {
        let Ok(at) = usize::try_from(*row) else {
            found.of.push(-1);
            continue;
        };
        let next = found.first.len() as i32;
        let own = *known.entry(texts.text(at)).or_insert(next);
        if own == next {
            found.first.push(*row);
        }
        found.of.push(own);
    }
    found
}

fn word<'a>(text: &'a [u8], prefix: &[u8], place: usize) -> Option<&'a [u8]> {
    let path = text.strip_prefix(prefix)?;
    let path = path.split(|&byte| byte == b'?').next()?;
    path.split(|&byte| byte == b'/')
        .nth(place)
        .filter(|word| !word.is_empty())
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
        let found = distinct(&texts, &[3, 1, -1, 0, 2, 1]);
        let expected = Groups {
            of: vec![0, 1, -1, 0, 2, 1],
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
    fn equal_words_have_one_place() {
        let texts = Texts {
            offsets: &[0, 3, 6, 9, 12],
            bytes: b"/a//b//a//a/",
        };
        assert!(texts.is_consistent());
        let (codes, names) = words(&texts, &[true, true, true, false], b"/", 0);
        assert_eq!(
            (codes, names),
            (vec![0, 1, 0, -1], vec!["a".to_owned(), "b".to_owned()])
        );
    }
}
