//! The encodings in which Parquet can store numbers.
//!
//! Source: Parquet's `Encodings.md`: `DELTA_BINARY_PACKED`, `BYTE_STREAM_SPLIT`, `RLE_DICTIONARY`, `PLAIN`.

use crate::bits::{pack, put_varint, width_of};

/// Values of a block of differences, and of a miniblock, which has a bit width of its own.
const BLOCK_VALUES: usize = 128;
const MINIBLOCK_VALUES: usize = 32;

/// A number of a column.
pub trait Number: Copy + Eq {
    type ParquetNumber: ParquetNumber;
    fn to_parquet(self) -> Self::ParquetNumber;
}

/// A number as Parquet stores it: 32 or 64 bits, two's complement.
pub trait ParquetNumber: Copy + Ord + Default {
    const BYTES: usize;
    fn minus(self, other: Self) -> Self;
    fn bits(self) -> u64;
    fn zigzag(self) -> u64;
}

macro_rules! stored {
    ($kind:ty, $bits:ty) => {
        impl ParquetNumber for $kind {
            const BYTES: usize = size_of::<$kind>();
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn bits(self) -> u64 {
                (self as $bits).into()
            }
            fn zigzag(self) -> u64 {
                ((self << 1) ^ (self >> (<$kind>::BITS - 1))).bits()
            }
        }
    };
}
stored!(i32, u32);
stored!(i64, u64);

macro_rules! numbers {
    ($($kind:ty => $stored:ty),*) => {
        $(impl Number for $kind {
            type ParquetNumber = $stored;
            fn to_parquet(self) -> $stored {
                self as $stored
            }
        })*
    };
}
numbers!(u8 => i32, u16 => i32, u32 => i32, i32 => i32, i64 => i64);

/// Append values as differences (`DELTA_BINARY_PACKED`).
pub fn put_differences<T: Number>(values: &[T], out: &mut Vec<u8>) {
    for number in [BLOCK_VALUES, BLOCK_VALUES / MINIBLOCK_VALUES, values.len()] {
        put_varint(number as u64, out);
    }
    put_varint(values.first().map_or(0, |first| first.to_parquet().zigzag()), out);
    let mut differences = [T::ParquetNumber::default(); BLOCK_VALUES];
    let after_first = values.get(1..).unwrap_or_default();
    for (from, to) in values.chunks(BLOCK_VALUES).zip(after_first.chunks(BLOCK_VALUES)) {
        put_block(from, to, &mut differences, out);
    }
}

fn put_block<T: Number>(from: &[T], to: &[T], differences: &mut [T::ParquetNumber; BLOCK_VALUES], out: &mut Vec<u8>) {
    for ((difference, from), to) in differences.iter_mut().zip(from).zip(to) {
        *difference = to.to_parquet().minus(from.to_parquet());
    }
    let (used, unused) = differences.split_at_mut(to.len());
    let least = used.iter().copied().min().unwrap_or_default();
    put_varint(least.zigzag(), out);
    for difference in used.iter_mut() {
        *difference = difference.minus(least);
    }
    unused.fill(T::ParquetNumber::default());
    let mut widths = [0_u8; BLOCK_VALUES / MINIBLOCK_VALUES];
    for (width, part) in widths.iter_mut().zip(differences.chunks(MINIBLOCK_VALUES)) {
        *width = width_of(part.iter().fold(0, |bits, difference| bits | difference.bits())) as u8;
    }
    out.extend_from_slice(&widths);
    for (&width, part) in widths.iter().zip(differences.chunks(MINIBLOCK_VALUES)) {
        pack(part, ParquetNumber::bits, width.into(), out);
    }
}

/// Append the lowest byte of each value, then the next byte of each, and so on (`BYTE_STREAM_SPLIT`).
pub fn put_planes<T: Number>(values: &[T], out: &mut Vec<u8>) {
    for plane in 0..T::ParquetNumber::BYTES {
        out.extend(
            values
                .iter()
                .map(|value| (value.to_parquet().bits() >> (8 * plane)) as u8),
        );
    }
}

/// Append values as they are (`PLAIN`).
pub fn put_plain<T: Number>(values: &[T], out: &mut Vec<u8>) {
    out.reserve(values.len() * T::ParquetNumber::BYTES);
    for value in values {
        out.extend_from_slice(&value.to_parquet().bits().to_le_bytes()[..T::ParquetNumber::BYTES]);
    }
}

/// The distinct values in order of first occurrence, and the index of each value among them; none if there are more
/// than 255.
pub fn distinct<T: Number>(values: &[T]) -> Option<(Vec<T>, Vec<u8>)> {
    const SLOTS_BITS: u32 = 9;
    const EMPTY_SLOT: u8 = u8::MAX;
    let mut slots = [(*values.first()?, EMPTY_SLOT); 1 << SLOTS_BITS];
    let (mut known, mut places) = (Vec::new(), vec![0; values.len()]);
    for (&value, place) in values.iter().zip(&mut places) {
        // Fibonacci hashing: Knuth, The Art of Computer Programming, vol. 3, 6.4
        let hash = value.to_parquet().bits().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOTS_BITS);
        let mut at = hash as usize;
        *place = loop {
            match slots[at % slots.len()] {
                (_, EMPTY_SLOT) if known.len() == usize::from(EMPTY_SLOT) => return None,
                (_, EMPTY_SLOT) => {
                    slots[at % slots.len()] = (value, known.len() as u8);
                    known.push(value);
                }
                (other, place) if other == value => break place,
                _ => at += 1,
            }
        };
    }
    Some((known, places))
}
