//! Texts stored as indices into a list of those that occur, or as their lengths followed by all their bytes.
//!
//! Source: Parquet's `Encodings.md`: `RLE_DICTIONARY`, `DELTA_LENGTH_BYTE_ARRAY`.

use parquet::basic::Encoding;

use crate::chunk::{Dictionary, EncodedValues, put_places, sample};
use crate::numbers::put_differences;

/// Texts are stored as indices into a dictionary if at most this many are distinct in a sample, and in total.
const MAX_SAMPLE_DISTINCT: usize = 1 << 5;
const MAX_DISTINCT: usize = 1 << 8;

/// Append texts, as indices into a dictionary if few are distinct.
pub fn put_texts(texts: &[&[u8]], out: &mut Vec<u8>) -> EncodedValues {
    if distinct(sample(texts), MAX_SAMPLE_DISTINCT).is_some()
        && let Some((known, places)) = distinct(texts, MAX_DISTINCT)
    {
        return put_places(dictionary(&known), &places, out);
    }
    let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
    put_differences(&lengths, out);
    out.reserve(texts.iter().map(|text| text.len()).sum());
    texts.iter().for_each(|text| out.extend_from_slice(text));
    EncodedValues {
        dictionary: None,
        encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
    }
}

/// The distinct texts in order of first occurrence, and the index of each text among them; none if there are more than
/// `most`, which is at most [`MAX_DISTINCT`].
fn distinct<'a>(texts: &[&'a [u8]], most: usize) -> Option<(Vec<&'a [u8]>, Vec<u32>)> {
    let (mut known, mut places) = (KnownTexts::new(), Vec::with_capacity(texts.len()));
    for text in texts {
        places.push(known.place_of(text, most)?);
    }
    Some((known.texts, places))
}

/// Texts by their first and last bytes, which are all that most texts of a table have: hashing and comparing them whole
/// took a tenth of the CPU time of an analysis of small requests.
struct KnownTexts<'a> {
    texts: Vec<&'a [u8]>,
    ends: Vec<[u64; 2]>,
    /// For each hash the place of a text, or of the next one if that is another; [`FREE`] if there is none.
    slots: [u16; SLOTS],
}

const SLOTS: usize = 4 * MAX_DISTINCT;
const FREE: u16 = u16::MAX;
/// 2^64 by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl<'a> KnownTexts<'a> {
    fn new() -> Self {
        Self {
            texts: Vec::new(),
            ends: Vec::new(),
            slots: [FREE; SLOTS],
        }
    }

    /// The place of a text, known before or not; none if it is new and there are `most` already.
    fn place_of(&mut self, text: &'a [u8], most: usize) -> Option<u32> {
        let ends = ends_of(text);
        let mixed = (ends[0].wrapping_mul(SPREAD) ^ ends[1]).wrapping_add(text.len() as u64);
        let mut slot = (mixed.wrapping_mul(SPREAD) >> 32) as usize % SLOTS;
        while self.slots[slot] != FREE {
            let place = usize::from(self.slots[slot]);
            let is_same = self.ends[place] == ends && self.texts[place].len() == text.len();
            if is_same && (text.len() <= ENDS_LEN || self.texts[place] == text) {
                return Some(place as u32);
            }
            slot = (slot + 1) % SLOTS;
        }
        if self.texts.len() == most {
            return None;
        }
        self.slots[slot] = self.texts.len() as u16;
        self.texts.push(text);
        self.ends.push(ends);
        Some(self.texts.len() as u32 - 1)
    }
}

/// Of a text of this length or less, [`ends_of`] has every byte.
const ENDS_LEN: usize = 16;

/// The first and the last bytes of a text, which overlap in a short one.
fn ends_of(text: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()];
    }
    let first = text.first().map_or(0, |&byte| byte.into());
    let last = text.get(text.len() / 2..).unwrap_or_default();
    [first, last.iter().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte))]
}

/// A dictionary of texts.
pub fn dictionary<T: AsRef<[u8]>>(texts: &[T]) -> Dictionary {
    let mut plain = Vec::new();
    for text in texts.iter().map(AsRef::as_ref) {
        plain.extend_from_slice(&(text.len() as u32).to_le_bytes());
        plain.extend_from_slice(text);
    }
    Dictionary {
        plain,
        count: texts.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_one_byte_are_distinct() {
        let longest = 40;
        let mut all = vec![vec![]];
        for len in 1..=longest {
            let text = vec![b'a'; len];
            all.push(text.clone());
            for at in [0, len / 3, len / 2, len - 1] {
                let mut other = text.clone();
                other[at] = b'b';
                if !all.contains(&other) {
                    all.push(other);
                }
            }
        }
        let texts: Vec<&[u8]> = all.iter().chain(&all).map(Vec::as_slice).collect();
        let (known, places) = distinct(&texts, MAX_DISTINCT).expect("few enough");
        assert_eq!(known, texts[..all.len()]);
        let expected: Vec<u32> = (0..all.len() as u32).chain(0..all.len() as u32).collect();
        assert_eq!(places, expected);
        assert!(distinct(&texts, all.len() - 1).is_none());
    }

    #[test]
    fn as_many_as_may_be_are_found_also_if_all_have_the_same_ends() {
        let all: Vec<String> = (0..MAX_DISTINCT)
            .map(|number| format!("beginning{number:03}the very end"))
            .collect();
        let texts: Vec<&[u8]> = all.iter().rev().chain(&all).map(|text| text.as_bytes()).collect();
        let (known, places) = distinct(&texts, MAX_DISTINCT).expect("few enough");
        assert_eq!(known, texts[..MAX_DISTINCT]);
        assert!(places[MAX_DISTINCT..].iter().rev().copied().eq(0..MAX_DISTINCT as u32));
    }
}
