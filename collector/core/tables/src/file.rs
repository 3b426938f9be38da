//! Row groups and the footer of a Parquet file.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, SchemaDescPtr, SchemaDescriptor, Type};

use crate::chunk::{Compressor, Dictionary, put_levels};
use crate::values::Column;

/// The first four bytes of a file, and its last.
pub const MAGIC: &[u8] = b"PAR1";
/// Version of the format; 2 has the logical types and encodings that are used here.
const VERSION: i32 = 2;

/// The type of a column, by Arrow's names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ColumnKind {
    Bool,
    UInt8,
    UInt16,
    UInt32,
    Int32,
    Int64,
    Float64,
    Text,
}

/// A column of a file.
#[derive(Clone, Debug)]
pub struct ColumnSchema {
    pub name: String,
    pub kind: ColumnKind,
    pub may_be_null: bool,
    /// Whether each row group stores its least and its greatest value.
    pub has_statistics: bool,
}

/// The columns of a file.
#[derive(Clone, Debug)]
pub struct Schema {
    columns: Vec<ColumnSchema>,
    description: SchemaDescPtr,
}

/// Layout of an encoded row group.
#[derive(Debug)]
pub struct RowGroup {
    pub(crate) len: usize,
    pub(crate) rows: usize,
    pub(crate) chunks: Vec<Chunk>,
}

/// Place and encoding of a column in its row group.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) begin: usize,
    pub(crate) dictionary_len: usize,
    pub(crate) end: usize,
    pub(crate) uncompressed: usize,
    pub(crate) encoding: Encoding,
    pub(crate) codec: Compression,
    pub(crate) statistics: Option<Statistics>,
    /// Whether all values are null, which the file's footer then says.
    pub(crate) is_empty: bool,
}

impl Schema {
    /// The type of each column.
    pub fn kinds(&self) -> Vec<ColumnKind> {
        self.columns.iter().map(|column| column.kind).collect()
    }

    /// # Errors
    /// What Parquet cannot hold, such as two columns of one name.
    pub fn new(columns: Vec<ColumnSchema>) -> Result<Self> {
        let fields = columns
            .iter()
            .map(|column| column.field().map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        let root = Type::group_type_builder("schema").with_fields(fields).build()?;
        let description = Arc::new(SchemaDescriptor::new(Arc::new(root)));
        Ok(Self { columns, description })
    }

    /// Encode `rows` rows of columns, in the schema's order, as they are stored in a file.
    pub fn encode(&self, columns: &[Column<'_>], rows: usize) -> Result<(Vec<u8>, RowGroup)> {
        let out = TrackedWrite::new(Vec::with_capacity(rows * columns.len()));
        let mut writer = GroupWriter {
            out,
            compressor: Compressor::default(),
            body: Vec::new(),
        };
        let mut chunks = Vec::with_capacity(columns.len());
        for (schema, column) in self.columns.iter().zip(columns) {
            let validity = if schema.may_be_null { column.validity } else { &[] };
            chunks.push(schema.put(Column { validity, ..*column }, rows, &mut writer)?);
        }
        let bytes = writer.out.into_inner()?;
        let len = bytes.len();
        Ok((bytes, RowGroup { len, rows, chunks }))
    }
}

impl ColumnSchema {
    fn field(&self) -> Result<Type> {
        let (physical, logical) = match self.kind {
            ColumnKind::Bool => (Physical::BOOLEAN, None),
            ColumnKind::UInt8 => (Physical::INT32, Some(LogicalType::integer(8, false))),
            ColumnKind::UInt16 => (Physical::INT32, Some(LogicalType::integer(16, false))),
            ColumnKind::UInt32 => (Physical::INT32, Some(LogicalType::integer(32, false))),
            ColumnKind::Int32 => (Physical::INT32, None),
            ColumnKind::Int64 => (Physical::INT64, None),
            ColumnKind::Float64 => (Physical::DOUBLE, None),
            ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        Type::primitive_type_builder(&self.name, physical)
            .with_repetition(if self.may_be_null {
                Repetition::OPTIONAL
            } else {
                Repetition::REQUIRED
            })
            .with_logical_type(logical)
            .build()
    }

    fn put(&self, column: Column<'_>, rows: usize, writer: &mut GroupWriter) -> Result<Chunk> {
        let mut body = std::mem::take(&mut writer.body);
        if self.may_be_null {
            put_levels(column.validity, rows, &mut body);
        }
        let encoded = column.put(&mut writer.compressor, &mut body);
        let statistics = if self.has_statistics { column.statistics() } else { None };
        let is_empty = column.is_empty(rows);
        let is_compressed = writer.compressor.is_worthwhile(&body);
        let codec = if is_compressed {
            Compression::LZ4_RAW
        } else {
            Compression::UNCOMPRESSED
        };
        let begin = writer.out.bytes_written();
        let (mut uncompressed, mut dictionary_len) = (0, 0);
        if let Some(Dictionary { plain, count }) = encoded.dictionary {
            let written = writer.put_page(plain, codec, |buf| Page::DictionaryPage {
                buf,
                num_values: count as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            })?;
            (uncompressed, dictionary_len) = (written.uncompressed_size, written.compressed_size);
        }
        let written = writer.put_page(body, codec, |buf| Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding: encoded.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        uncompressed += written.uncompressed_size;
        let end = writer.out.bytes_written();
        Ok(Chunk {
            begin,
            dictionary_len,
            end,
            uncompressed,
            encoding: encoded.encoding,
            codec,
            statistics,
            is_empty,
        })
    }
}

/// Writes the pages of a row group one after the other, with buffers that are reused.
struct GroupWriter {
    out: TrackedWrite<Vec<u8>>,
    compressor: Compressor,
    body: Vec<u8>,
}

impl GroupWriter {
    fn put_page(
        &mut self,
        mut bytes: Vec<u8>,
        codec: Compression,
        page: impl FnOnce(Bytes) -> Page,
    ) -> Result<PageWriteSpec> {
        let uncompressed = bytes.len();
        if codec == Compression::LZ4_RAW {
            let compressed = self.compressor.compress(&bytes);
            bytes.clear();
            bytes.extend_from_slice(compressed);
        }
        let stored = Bytes::from(bytes);
        let page = CompressedPage::new(page(stored.clone()), uncompressed);
        let written = SerializedPageWriter::new(&mut self.out).write_page(page)?;
        self.body = stored.into();
        self.body.clear();
        Ok(written)
    }
}

/// Metadata of the row groups in a file, which are written at its end.
#[derive(Debug)]
pub struct Footer {
    schema: Schema,
    groups: Vec<RowGroupMetaData>,
    end: usize,
}

impl Footer {
    /// The footer of a file that holds only `MAGIC`.
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            groups: Vec::new(),
            end: MAGIC.len(),
        }
    }

    /// Append `group`, which comes next in the file.
    pub fn add(&mut self, group: &RowGroup) -> Result<()> {
        let begin = self.end;
        let columns = group.chunks.iter().zip(self.schema.description.columns());
        let columns = columns
            .map(|(chunk, of)| chunk.metadata(begin, group.rows, of.clone()))
            .collect::<Result<_>>()?;
        let uncompressed: usize = group.chunks.iter().map(|chunk| chunk.uncompressed).sum();
        let metadata = RowGroupMetaData::builder(self.schema.description.clone())
            .set_num_rows(group.rows as i64)
            .set_total_byte_size(uncompressed as i64)
            .set_file_offset(begin as i64)
            .set_column_metadata(columns)
            .build()?;
        self.groups.push(metadata);
        self.end += group.len;
        Ok(())
    }

    /// The bytes of the file's end; `properties` are names and texts for readers.
    pub fn bytes(&self, properties: &[(String, String)]) -> Result<Vec<u8>> {
        let rows = self.groups.iter().map(RowGroupMetaData::num_rows).sum();
        let properties = properties
            .iter()
            .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
            .collect();
        let file = FileMetaData::new(
            VERSION,
            rows,
            Some("twintap".to_owned()),
            Some(properties),
            self.schema.description.clone(),
            None,
        );
        let mut out = Vec::new();
        ParquetMetaDataWriter::new(&mut out, &ParquetMetaData::new(file, self.groups.clone())).finish()?;
        Ok(out)
    }
}

impl Chunk {
    fn metadata(&self, group_begin: usize, rows: usize, column: ColumnDescPtr) -> Result<ColumnChunkMetaData> {
        let at = |place: usize| (group_begin + place) as i64;
        let mut encodings = vec![Encoding::RLE, self.encoding];
        let has_dictionary = self.dictionary_len > 0;
        if has_dictionary {
            encodings.push(Encoding::PLAIN);
        }
        let metadata = ColumnChunkMetaData::builder(column)
            .set_encodings(encodings)
            .set_num_values(rows as i64)
            .set_compression(self.codec)
            .set_total_compressed_size((self.end - self.begin) as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_dictionary_page_offset(has_dictionary.then(|| at(self.begin)))
            .set_data_page_offset(at(self.begin + self.dictionary_len));
        match &self.statistics {
            Some(statistics) => metadata.set_statistics(statistics.clone()).build(),
            // Of the kind of values the footer says nothing, so this one stands for all.
            None if self.is_empty => {
                let all_null = Statistics::int64(None, None, None, Some(rows as u64), false);
                metadata.set_statistics(all_null).build()
            }
            None => metadata.build(),
        }
    }
}
