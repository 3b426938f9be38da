//! A column's values as pages of a Parquet file: chooses the encoding and the compression.
//!
//! Both are chosen by trying them on some of the values, so the choice is the same in every run.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use parquet::basic::Encoding;

use crate::bits::{put_runs, put_varint, width_of};
use crate::numbers::{Number, ParquetNumber, distinct, put_differences, put_plain, put_planes};

/// Values on which encodings are tried.
const SAMPLE_VALUES: usize = 1 << 10;
/// Distinct values among them up to which a dictionary is tried.
const MAX_SAMPLE_DISTINCT: usize = 1 << 5;
/// Compression is tried on one in this many bytes.
const COMPRESSION_SAMPLE_DIVISOR: usize = 16;
/// Cost of compressing a byte, in stored bytes: it takes half a nanosecond, and a disk stores a byte in one.
const COMPRESSION_COST_BYTES: f64 = 0.5;

/// How encoded values are to be read.
#[derive(Debug)]
pub struct EncodedValues {
    pub dictionary: Option<Dictionary>,
    pub encoding: Encoding,
}

/// The distinct values, in the order of their indices.
#[derive(Debug)]
pub struct Dictionary {
    pub plain: Vec<u8>,
    pub count: usize,
}

/// The values that encodings are compared on: at most [`SAMPLE_VALUES`] from the middle.
pub fn sample<T>(values: &[T]) -> &[T] {
    let from = values.len().saturating_sub(SAMPLE_VALUES) / 2;
    &values[from..values.len().min(from + SAMPLE_VALUES)]
}

/// Append numbers in the encoding that takes least room for a sample of them. `may_subtract` is false for
/// floats, whose bits are stored as an integer that must not be subtracted.
pub fn put_numbers<T: Number>(
    values: &[T],
    may_subtract: bool,
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> EncodedValues {
    let tried = sample(values);
    if values.iter().all(|&value| value == values[0]) {
        return put_distinct(&values[..values.len().min(1)], &vec![0_u8; values.len()], out);
    }
    if distinct(tried).is_some_and(|(known, _)| known.len() <= MAX_SAMPLE_DISTINCT)
        && let Some((known, places)) = distinct(values)
    {
        return put_distinct(&known, &places, out);
    }
    let (encoding, put) = cheapest(tried, may_subtract, compressor);
    out.reserve(values.len() * T::ParquetNumber::BYTES);
    put(values, out);
    EncodedValues {
        dictionary: None,
        encoding,
    }
}

fn put_distinct<T: Number, P: Copy + Eq + Into<u32>>(known: &[T], places: &[P], out: &mut Vec<u8>) -> EncodedValues {
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

/// The encoding that costs least: compressed byte planes, differences, or the values as they are.
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

/// Append values as indices into a dictionary.
pub fn put_places<T: Copy + Eq + Into<u32>>(dictionary: Dictionary, places: &[T], out: &mut Vec<u8>) -> EncodedValues {
    let width = width_of(dictionary.count.saturating_sub(1) as u64).max(1);
    out.reserve(places.len() * width as usize / 8);
    out.push(width as u8);
    put_runs(places, width, out);
    EncodedValues {
        dictionary: Some(dictionary),
        encoding: Encoding::RLE_DICTIONARY,
    }
}

/// Append which of `n` values are not null, as Parquet's levels; `bits` is empty if all are.
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

/// Parquet's codec `LZ4_RAW`, with buffers that are reused from page to page.
#[derive(Default)]
pub struct Compressor {
    table: CompressTable,
    out: Vec<u8>,
}

impl Compressor {
    /// Whether compression is worth its time, judged by a sample from the middle.
    pub fn is_worthwhile(&mut self, bytes: &[u8]) -> bool {
        let tried = &bytes[bytes.len() / 2..][..bytes.len() / COMPRESSION_SAMPLE_DIVISOR];
        self.cost_of(tried) < tried.len() as f64
    }

    /// Cost of storing `bytes` compressed, in bytes.
    fn cost_of(&mut self, bytes: &[u8]) -> f64 {
        COMPRESSION_COST_BYTES * bytes.len() as f64 + self.compress(bytes).len() as f64
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
