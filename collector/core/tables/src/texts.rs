//! Texts stored as indices into a list of those that occur, or as their lengths followed by all their bytes.
//!
//! Source: Parquet's `Encodings.md`: `RLE_DICTIONARY`, `DELTA_LENGTH_BYTE_ARRAY`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;
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
    texts.iter().for_each(|text| out.extend_from_slice(text));
    EncodedValues {
        dictionary: None,
        encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
    }
}

/// The distinct texts in order of first occurrence, and the index of each text among them; none if there are more than
/// `most`.
fn distinct<'a>(texts: &[&'a [u8]], most: usize) -> Option<(Vec<&'a [u8]>, Vec<u32>)> {
    let mut place_of = HashMap::with_hasher(FixedState::default());
    let (mut known, mut places) = (Vec::new(), Vec::with_capacity(texts.len()));
    for &text in texts {
        places.push(match place_of.entry(text) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(_) if known.len() == most => return None,
            Entry::Vacant(free) => {
                known.push(text);
                *free.insert(known.len() as u32 - 1)
            }
        });
    }
    Some((known, places))
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
