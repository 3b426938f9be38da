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
    /// Indices into a list of texts.
    Texts(&'a [u32], &'a [String]),
    /// Offsets of each text's beginning and of the last one's end, and the bytes of all texts.
    FreeTexts(&'a [i32], &'a [u8]),
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
            Self::U32(values) | Self::Texts(values, _) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) | Self::F64(values) => values.len(),
            Self::FreeTexts(ends, bytes) => return ends.len() == rows + 1 && are_ascending(ends, bytes.len()),
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
            Values::Texts(places, texts) => put_places(dictionary(texts), &self.valid_values(places), out),
            Values::FreeTexts(ends, bytes) => {
                let texts: Vec<&[u8]> = ends
                    .windows(2)
                    .map(|ends| &bytes[ends[0] as usize..ends[1] as usize])
                    .collect();
                put_texts(&self.valid_values(&texts), out)
            }
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
            Values::Bits(_) | Values::F64(_) | Values::FreeTexts(..) => None,
            Values::U8(values) => ends(&self.valid_values(values)).map(int32),
            Values::U16(values) => ends(&self.valid_values(values)).map(int32),
            Values::U32(values) => ends(&self.valid_values(values)).map(int32),
            Values::I32(values) => ends(&self.valid_values(values)).map(int32),
            Values::I64(values) => ends(&self.valid_values(values))
                .map(|(least, most)| Statistics::int64(Some(least), Some(most), None, None, false)),
            Values::Texts(places, texts) => {
                let mut occurs = vec![false; texts.len()];
                self.valid_values(places)
                    .iter()
                    .for_each(|&place| occurs[place as usize] = true);
                let occurring: Vec<&str> = texts
                    .iter()
                    .zip(occurs)
                    .filter_map(|(text, occurs)| occurs.then_some(text.as_str()))
                    .collect();
                ends(&occurring).map(|(least, most)| {
                    let [least, most] = [least, most].map(|text| Some(ByteArray::from(text)));
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

fn are_ascending(ends: &[i32], most: usize) -> bool {
    let within = |end: &i32| usize::try_from(*end).is_ok_and(|end| end <= most);
    ends.is_sorted() && ends.first().is_some_and(within) && ends.last().is_some_and(within)
}
