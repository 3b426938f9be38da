//! Texts stored as indices into a list of those that occur, or as their lengths followed by all their bytes.
//!
//! Source: Parquet's `Encodings.md`: `RLE_DICTIONARY`, `DELTA_LENGTH_BYTE_ARRAY`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;
use parquet::basic::Encoding;

use crate::chunk::{Dictionary, Encoded, put_places, sample};
use crate::numbers::put_differences;

/// Texts of which so many are distinct among those tried are stored as places in a list.
const MOST_DISTINCT_TRIED: usize = 1 << 5;
const MOST_DISTINCT: usize = 1 << 8;

/// Append texts, as places in a list where few occur.
pub fn put_texts(texts: &[&[u8]], out: &mut Vec<u8>) -> Encoded {
    if distinct(sample(texts), MOST_DISTINCT_TRIED).is_some()
        && let Some((known, places)) = distinct(texts, MOST_DISTINCT)
    {
        return put_places(dictionary(&known), &places, out);
    }
    let lengths: Vec<u32> = texts.iter().map(|text| text.len() as u32).collect();
    put_differences(&lengths, out);
    texts.iter().for_each(|text| out.extend_from_slice(text));
    Encoded {
        dictionary: None,
        encoding: Encoding::DELTA_LENGTH_BYTE_ARRAY,
    }
}

/// The texts that occur, in the order in which they do, and of each its place among them; none if there are more than
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

/// A list of texts.
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
