//! A column's values as the caller gives them: of any width, possibly with nulls.

use std::borrow::Cow;

use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::file::statistics::Statistics;

use crate::bits::pack;
use crate::chunk::{Compressor, EncodedValues, put_numbers, put_places};
use crate::numbers::Number;
use crate::texts::{dictionary, put_texts};

/// Values of a column, null ones too.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// A bit for each, the lowest first.
    Bits(&'a [u8]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    /// The bits of floating-point numbers.
    F64(&'a [i64]),
    /// Indices into texts.
    Texts(&'a [u32], Texts<'a>),
    FreeTexts(Texts<'a>),
}

/// Texts end to end.
#[derive(Clone, Copy, Debug)]
pub struct Texts<'a> {
    /// Of each text's beginning, and of the last one's end.
    pub offsets: &'a [i32],
    pub bytes: &'a [u8],
}

impl<'a> Texts<'a> {
    fn count(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    fn each(&self) -> impl Iterator<Item = &'a [u8]> {
        let Self { offsets, bytes } = *self;
        let text = move |ends: &[i32]| &bytes[ends[0] as usize..ends[1] as usize];
        offsets.windows(2).map(text)
    }

    fn are_within_bytes(&self) -> bool {
        let within = |end: &i32| usize::try_from(*end).is_ok_and(|end| end <= self.bytes.len());
        self.offsets.is_sorted() && self.offsets.first().is_some_and(within) && self.offsets.last().is_some_and(within)
    }
}

/// Values of a column with their validity.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    pub values: Values<'a>,
    /// A bit for each value that is not null, the lowest first; empty if none is null.
    pub validity: &'a [u8],
}

impl Values<'_> {
    /// Whether there are `rows` values; for bits, whole bytes of them.
    pub fn are(&self, rows: usize) -> bool {
        rows == match self {
            Self::Bits(bits) => return bits.len() == rows.div_ceil(8),
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::Texts(places, texts) => return places.len() == rows && texts.are_within_bytes(),
            Self::I32(values) => values.len(),
            Self::I64(values) | Self::F64(values) => values.len(),
            Self::FreeTexts(texts) => return texts.count() == rows && texts.are_within_bytes(),
        }
    }
}

impl Column<'_> {
    /// Whether there are rows, and all of them are null.
    pub fn is_empty(&self, rows: usize) -> bool {
        let bits = self.validity;
        !bits.is_empty()
            && rows > 0
            && (0..rows / 8).all(|at| bits[at] == 0)
            && !(rows / 8 * 8..rows).any(|at| is_set(bits, at))
    }

    /// Append the values that are not null.
    pub fn put(&self, compressor: &mut Compressor, out: &mut Vec<u8>) -> EncodedValues {
        match self.values {
            Values::Bits(bits) => self.put_bits(bits, out),
            Values::U8(values) => put_numbers(&self.valid_values(values), true, compressor, out),
            Values::U16(values) => put_numbers(&self.valid_values(values), true, compressor, out),
            Values::U32(values) => put_numbers(&self.valid_values(values), true, compressor, out),
            Values::I32(values) => put_numbers(&self.valid_values(values), true, compressor, out),
            Values::I64(values) => put_numbers(&self.valid_values(values), true, compressor, out),
            Values::F64(values) => put_numbers(&self.valid_values(values), false, compressor, out),
            Values::Texts(places, texts) => put_known_texts(&self.valid_values(places), texts, out),
            Values::FreeTexts(texts) => put_texts(&self.valid_values(&texts.each().collect::<Vec<_>>()), out),
        }
    }

    fn put_bits(&self, bits: &[u8], out: &mut Vec<u8>) -> EncodedValues {
        if self.validity.is_empty() {
            out.extend_from_slice(bits);
        } else {
            let all: Vec<bool> = (0..8 * bits.len()).map(|at| is_set(bits, at)).collect();
            pack(&self.valid_values(&all), u64::from, 1, out);
        }
        EncodedValues {
            dictionary: None,
            encoding: Encoding::PLAIN,
        }
    }

    /// The smallest and the largest value; none for floating-point numbers, bits and free texts, and if all are null.
    pub fn statistics(&self) -> Option<Statistics> {
        match self.values {
            Values::Bits(_) | Values::F64(_) | Values::FreeTexts(_) => None,
            Values::U8(values) => ends(&self.valid_values(values)).map(int32),
            Values::U16(values) => ends(&self.valid_values(values)).map(int32),
            Values::U32(values) => ends(&self.valid_values(values)).map(int32),
            Values::I32(values) => ends(&self.valid_values(values)).map(int32),
            Values::I64(values) => ends(&self.valid_values(values))
                .map(|(least, most)| Statistics::int64(Some(least), Some(most), None, None, false)),
            Values::Texts(places, texts) => {
                let occurs = occurring(&self.valid_values(places), texts);
                let occurring = texts
                    .each()
                    .zip(occurs)
                    .filter_map(|(text, occurs)| occurs.then_some(text));
                ends(&occurring.collect::<Vec<_>>()).map(|(least, most)| {
                    let [least, most] = [least, most].map(|text| Some(ByteArray::from(text.to_vec())));
                    Statistics::byte_array(least, most, None, None, false)
                })
            }
        }
    }

    fn valid_values<'a, T: Copy>(&self, values: &'a [T]) -> Cow<'a, [T]> {
        if self.validity.is_empty() {
            return Cow::Borrowed(values);
        }
        let known = values.iter().enumerate().filter(|(at, _)| is_set(self.validity, *at));
        Cow::Owned(known.map(|(_, value)| *value).collect())
    }
}

fn is_set(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

fn ends<T: Copy + Ord>(values: &[T]) -> Option<(T, T)> {
    Some((*values.iter().min()?, *values.iter().max()?))
}

fn int32<T: Number<ParquetNumber = i32>>((least, most): (T, T)) -> Statistics {
    Statistics::int32(Some(least.to_parquet()), Some(most.to_parquet()), None, None, false)
}

/// Of each text, whether a place has it.
fn occurring(places: &[u32], texts: Texts) -> Vec<bool> {
    let mut occurs = vec![false; texts.count()];
    places.iter().for_each(|&place| occurs[place as usize] = true);
    occurs
}

/// A dictionary of at most so many texts is stored whole, whichever of them occur.
const MAX_WHOLE_DICTIONARY: usize = 1 << 8;

/// Append texts as indices into a dictionary. Of a long one, of which less than half occurs, only that is stored: the
/// columns of addresses share one dictionary, and a flood may have forged nearly all of them at one end.
fn put_known_texts(places: &[u32], texts: Texts, out: &mut Vec<u8>) -> EncodedValues {
    let all: Vec<&[u8]> = texts.each().collect();
    if all.len() <= MAX_WHOLE_DICTIONARY {
        return put_places(dictionary(&all), places, out);
    }
    let occurs = occurring(places, texts);
    if 2 * occurs.iter().filter(|&&occurs| occurs).count() >= all.len() {
        return put_places(dictionary(&all), places, out);
    }
    let before = occurs.iter().scan(0, |before, &occurs| {
        let own = *before;
        *before += u32::from(occurs);
        Some(own)
    });
    let own: Vec<u32> = before.collect();
    let kept: Vec<&[u8]> = all
        .iter()
        .zip(&occurs)
        .filter_map(|(&text, &occurs)| occurs.then_some(text))
        .collect();
    let places: Vec<u32> = places.iter().map(|&place| own[place as usize]).collect();
    put_places(dictionary(&kept), &places, out)
}
