//! The layout of a row group as bytes, so that one process can encode its rows and another write the file's footer.
//!
//! Numbers of 8 bytes, little-endian. Only processes of the same version read it.

use parquet::basic::{Compression, Encoding};
use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

use crate::file::{Chunk, RowGroup};

/// The encodings of chunks; a layout holds an index into them.
const ENCODINGS: [Encoding; 5] = [
    Encoding::PLAIN,
    Encoding::RLE_DICTIONARY,
    Encoding::DELTA_BINARY_PACKED,
    Encoding::DELTA_LENGTH_BYTE_ARRAY,
    Encoding::BYTE_STREAM_SPLIT,
];
const NO_STATISTICS: u64 = 0;
const INT32: u64 = 1;
const INT64: u64 = 2;
const TEXTS: u64 = 3;

impl RowGroup {
    /// The layout as bytes for `from_bytes`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.len, self.rows, self.chunks.len()] {
            put(number as u64, &mut bytes);
        }
        self.chunks.iter().for_each(|chunk| put_chunk(chunk, &mut bytes));
        bytes
    }

    /// The layout that `to_bytes` gave; none if these bytes are no layout.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        let (len, rows, chunks_count) = (size(rest)?, size(rest)?, size(rest)?);
        let chunks = (0..chunks_count).map(|_| take_chunk(rest)).collect::<Option<_>>()?;
        rest.is_empty().then_some(Self { len, rows, chunks })
    }
}

fn put_chunk(chunk: &Chunk, bytes: &mut Vec<u8>) {
    let encoding = ENCODINGS.iter().position(|&one| one == chunk.encoding);
    for number in [
        chunk.begin,
        chunk.dictionary_len,
        chunk.end,
        chunk.uncompressed,
        encoding.expect("a chunk has one of these encodings"),
        usize::from(chunk.codec == Compression::LZ4_RAW),
        usize::from(chunk.is_empty),
    ] {
        put(number as u64, bytes);
    }
    match &chunk.statistics {
        Some(Statistics::Int32(known)) => {
            put_ends(INT32, known, bytes, |&end, bytes| put(i64::from(end) as u64, bytes))
        }
        Some(Statistics::Int64(known)) => put_ends(INT64, known, bytes, |&end, bytes| put(end as u64, bytes)),
        Some(Statistics::ByteArray(known)) => put_ends(TEXTS, known, bytes, |end, bytes| {
            put(end.len() as u64, bytes);
            bytes.extend_from_slice(end.data());
        }),
        _ => put(NO_STATISTICS, bytes),
    }
}

fn take_chunk(rest: &mut &[u8]) -> Option<Chunk> {
    Some(Chunk {
        begin: size(rest)?,
        dictionary_len: size(rest)?,
        end: size(rest)?,
        uncompressed: size(rest)?,
        encoding: *ENCODINGS.get(size(rest)?)?,
        codec: if number(rest)? == 0 {
            Compression::UNCOMPRESSED
        } else {
            Compression::LZ4_RAW
        },
        is_empty: number(rest)? != 0,
        statistics: match number(rest)? {
            NO_STATISTICS => None,
            INT32 => {
                let mut end = || number(rest).map(|end| end as i32);
                Some(Statistics::int32(Some(end()?), Some(end()?), None, None, false))
            }
            INT64 => {
                let mut end = || number(rest).map(|end| end as i64);
                Some(Statistics::int64(Some(end()?), Some(end()?), None, None, false))
            }
            TEXTS => Some(Statistics::byte_array(
                Some(text(rest)?),
                Some(text(rest)?),
                None,
                None,
                false,
            )),
            _ => return None,
        },
    })
}

/// Statistics with both ends, as `Column::statistics` makes them.
fn put_ends<T>(kind: u64, known: &ValueStatistics<T>, bytes: &mut Vec<u8>, put_end: impl Fn(&T, &mut Vec<u8>)) {
    put(kind, bytes);
    for end in [known.min_opt(), known.max_opt()] {
        put_end(end.expect("statistics have both ends"), bytes);
    }
}

fn put(number: u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(u64::from_le_bytes(*first))
}

fn size(rest: &mut &[u8]) -> Option<usize> {
    number(rest)?.try_into().ok()
}

fn text(rest: &mut &[u8]) -> Option<ByteArray> {
    let len = size(rest)?;
    let (text, others) = rest.split_at_checked(len)?;
    *rest = others;
    Some(ByteArray::from(text.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, ColumnKind, ColumnSchema, Footer, Schema, Texts, Values};

    fn group() -> (Schema, RowGroup) {
        let column = |name: &str, kind| ColumnSchema {
            name: name.to_owned(),
            kind,
            may_be_null: false,
            has_statistics: true,
        };
        let kinds = [
            ColumnKind::Int64,
            ColumnKind::Int32,
            ColumnKind::Text,
            ColumnKind::Float64,
        ];
        let schema = Schema::new(kinds.iter().map(|&kind| column(&format!("{kind:?}"), kind)).collect());
        let schema = schema.expect("four columns");
        let texts = Texts {
            offsets: &[0, 4, 9],
            bytes: b"betaalpha",
        };
        let values = [
            Values::I64(&[i64::MIN, 5, 5]),
            Values::I32(&[-7, -7, i32::MAX]),
            Values::Texts(&[0, 1, 1], texts),
            Values::F64(&[1, 2, 3]),
        ];
        let columns = values.map(|values| Column { values, validity: &[] });
        let (_, group) = schema.encode(&columns, 3).expect("three rows");
        (schema, group)
    }

    #[test]
    fn a_layout_that_was_elsewhere_gives_the_same_footer() {
        let (schema, group) = group();
        let back = RowGroup::from_bytes(&group.to_bytes()).expect("it is a layout");
        let footer = |group: &RowGroup| {
            let mut footer = Footer::new(schema.clone());
            footer.add(group).expect("a group of the schema");
            footer.bytes(&[]).expect("a footer")
        };
        assert_eq!(footer(&back), footer(&group));
        assert!(
            footer(&group).windows(5).any(|bytes| bytes == b"alpha"),
            "statistics are in it"
        );
    }

    #[test]
    fn bytes_that_are_no_layout_are_refused() {
        let bytes = group().1.to_bytes();
        for end in 0..bytes.len() {
            assert!(RowGroup::from_bytes(&bytes[..end]).is_none(), "cut at {end}");
        }
        assert!(RowGroup::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
    }
}
