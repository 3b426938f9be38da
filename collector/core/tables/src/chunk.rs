//! A column's values as pages of a Parquet file: chooses the encoding and the compression.
//!
//! Both are chosen by trying them on some of the values, so the choice is the same in every run.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use parquet::basic::Encoding;

use crate::bits::{put_runs, put_varint, width_of};
use crate::numbers::{Number, Stored, distinct, put_differences, put_plain, put_planes};

/// Values that an encoding is tried on.
const TRIED: usize = 1 << 10;
/// Of them, so many may be distinct to try a list.
const MOST_DISTINCT_TRIED: usize = 1 << 5;
/// The share of bytes that compression is tried on.
const TRIED_SHARE: usize = 16;
/// What compressing a byte costs, in bytes stored: it takes half a nanosecond, and a disk takes a byte in one.
const COST_OF_COMPRESSING: f64 = 0.5;

/// How to read values; those of `dictionary` are in the order of its places.
#[derive(Debug)]
pub struct Encoded {
    pub dictionary: Option<Dictionary>,
    pub encoding: Encoding,
}

/// Values that occur, each once.
#[derive(Debug)]
pub struct Dictionary {
    pub plain: Vec<u8>,
    pub count: usize,
}

/// The values that encodings are compared on: at most [`TRIED`] from the middle.
pub fn sample<T>(values: &[T]) -> &[T] {
    let from = values.len().saturating_sub(TRIED) / 2;
    &values[from..values.len().min(from + TRIED)]
}

/// Append numbers in the encoding that takes least room for a sample of them. `may_subtract` is false for
/// floats, whose bits are stored as an integer that must not be subtracted.
pub fn put_numbers<T: Number>(
    values: &[T],
    may_subtract: bool,
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> Encoded {
    let tried = sample(values);
    if values.iter().all(|&value| value == values[0]) {
        return put_distinct(&values[..values.len().min(1)], &vec![0_u8; values.len()], out);
    }
    if distinct(tried).is_some_and(|(known, _)| known.len() <= MOST_DISTINCT_TRIED)
        && let Some((known, places)) = distinct(values)
    {
        return put_distinct(&known, &places, out);
    }
    let (encoding, put) = cheapest(tried, may_subtract, compressor);
    out.reserve(values.len() * T::Stored::BYTES);
    put(values, out);
    Encoded {
        dictionary: None,
        encoding,
    }
}

fn put_distinct<T: Number, P: Copy + Eq + Into<u32>>(known: &[T], places: &[P], out: &mut Vec<u8>) -> Encoded {
    let mut plain = Vec::new();
    put_plain(known, &mut plain);
    put_places(
        Dictionary {
            plain,
            count: known.len(),
        },
        places,
        out,
    )
}

type Put<T> = fn(&[T], &mut Vec<u8>);

/// What costs least: planes, compressed; differences; or the values as they are.
fn cheapest<T: Number>(tried: &[T], may_subtract: bool, compressor: &mut Compressor) -> (Encoding, Put<T>) {
    let (mut differences, mut planes) = (Vec::new(), Vec::new());
    put_planes(tried, &mut planes);
    let mut least = planes.len();
    if may_subtract {
        put_differences(tried, &mut differences);
        least = least.min(differences.len());
    }
    if compressor.cost_of(&planes) < least as f64 {
        (Encoding::BYTE_STREAM_SPLIT, put_planes)
    } else if least < planes.len() {
        (Encoding::DELTA_BINARY_PACKED, put_differences)
    } else {
        (Encoding::PLAIN, put_plain)
    }
}

/// Places in a list of values.
pub fn put_places<T: Copy + Eq + Into<u32>>(dictionary: Dictionary, places: &[T], out: &mut Vec<u8>) -> Encoded {
    let width = width_of(dictionary.count.saturating_sub(1) as u64).max(1);
    out.reserve(places.len() * width as usize / 8);
    out.push(width as u8);
    put_runs(places, width, out);
    Encoded {
        dictionary: Some(dictionary),
        encoding: Encoding::RLE_DICTIONARY,
    }
}

/// Which of `n` values are there, as Parquet's levels; `bits` is empty if all are.
pub fn put_levels(bits: &[u8], n: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(&[0; 4]);
    if bits.is_empty() {
        put_varint((n as u64) << 1, out);
        out.push(1);
    } else {
        put_varint((n.div_ceil(8) as u64) << 1 | 1, out);
        out.extend_from_slice(bits);
    }
    let len = out.len() - begin - 4;
    out[begin..begin + 4].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Parquet's codec `LZ4_RAW`, with what it needs kept from page to page.
#[derive(Default)]
pub struct Compressor {
    table: CompressTable,
    out: Vec<u8>,
}

impl Compressor {
    /// Whether compression is worth its time, judged by a piece from the middle.
    pub fn is_worthwhile(&mut self, bytes: &[u8]) -> bool {
        let tried = &bytes[bytes.len() / 2..][..bytes.len() / TRIED_SHARE];
        self.cost_of(tried) < tried.len() as f64
    }

    /// Of storing `bytes` compressed, in bytes.
    fn cost_of(&mut self, bytes: &[u8]) -> f64 {
        COST_OF_COMPRESSING * bytes.len() as f64 + self.compress(bytes).len() as f64
    }

    /// `bytes`, compressed.
    pub fn compress(&mut self, bytes: &[u8]) -> &[u8] {
        let most = get_maximum_output_size(bytes.len());
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        let len = compress_into_with_table(bytes, &mut self.out, &mut self.table);
        &self.out[..len.expect("there is room for the most that can come")]
    }
}
