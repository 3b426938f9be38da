//! `TableFile`, `RowGroup`: columns in, bytes of a Parquet file out.

use std::sync::Mutex;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use twintap_tables::{Column, ColumnKind, ColumnSchema, Footer, RowGroup, Schema, Texts, Values};

use crate::decode::lock;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTableFile>()?;
    module.add_class::<PyRowGroup>()
}

/// A Parquet file whose bytes the caller writes; `collector.trace.parquet` wraps it.
#[pyclass(frozen, name = "TableFile", module = "collector._core")]
struct PyTableFile {
    schema: Schema,
    footer: Mutex<Footer>,
}

/// Layout of an encoded row group.
#[pyclass(frozen, name = "RowGroup", module = "collector._core")]
struct PyRowGroup(RowGroup);

/// Values, a validity bit for each (None if none is null), and the texts that values refer to.
type Field<'py> = (
    Bound<'py, PyAny>,
    Option<PyReadonlyArray1<'py, u8>>,
    Option<TextArrays<'py>>,
);

/// Texts end to end, with their offsets as values; or the offsets and the bytes of texts, with indices as values.
#[derive(FromPyObject)]
enum TextArrays<'py> {
    Free(PyReadonlyArray1<'py, u8>),
    Known((PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, u8>)),
}

#[pymethods]
impl PyRowGroup {
    /// The layout that `to_bytes` gave. Raises ValueError.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let group = RowGroup::from_bytes(bytes).ok_or_else(|| PyValueError::new_err("no layout of a row group"))?;
        Ok(Self(group))
    }

    /// The layout as bytes, for another process.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }
}

#[pymethods]
impl PyTableFile {
    /// Arguments: for each column its name, its Arrow type, whether it may be null, whether it has statistics.
    #[new]
    fn new(columns: Vec<(String, String, bool, bool)>) -> PyResult<Self> {
        let columns = columns.into_iter().map(|(name, kind, may_be_null, has_statistics)| {
            let kind = kind_named(&kind).ok_or_else(|| PyValueError::new_err(format!("no column holds {kind}")))?;
            Ok(ColumnSchema {
                name,
                kind,
                may_be_null,
                has_statistics,
            })
        });
        let schema = Schema::new(columns.collect::<PyResult<_>>()?).map_err(parquet_error)?;
        Ok(Self {
            footer: Mutex::new(Footer::new(schema.clone())),
            schema,
        })
    }

    /// Encode a row group. Its bytes do not depend on its position in the file.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        fields: Vec<Field<'py>>,
        rows: usize,
    ) -> PyResult<(Bound<'py, PyArray1<u8>>, PyRowGroup)> {
        let kinds = self.schema.kinds();
        if kinds.len() != fields.len() {
            return Err(PyValueError::new_err("not the file's columns"));
        }
        let numbers = kinds
            .iter()
            .zip(&fields)
            .map(|(kind, (values, _, texts))| Numbers::of(*kind, values, texts.as_ref()));
        let numbers = numbers.collect::<PyResult<Vec<_>>>()?;
        let mut columns = Vec::with_capacity(fields.len());
        for (numbers, (_, validity, texts)) in numbers.iter().zip(&fields) {
            let values = numbers.values(texts.as_ref())?;
            let validity = validity.as_ref().map_or(Ok(&[][..]), PyReadonlyArray1::as_slice)?;
            if !(validity.is_empty() || validity.len() == rows.div_ceil(8)) || !values.are(rows) {
                return Err(PyValueError::new_err("columns differ in length"));
            }
            columns.push(Column { values, validity });
        }
        let (bytes, group) = py
            .detach(|| self.schema.encode(&columns, rows))
            .map_err(parquet_error)?;
        Ok((bytes.into_pyarray(py), PyRowGroup(group)))
    }

    /// Append a row group, which comes next in the file.
    fn add(&self, group: &PyRowGroup) -> PyResult<()> {
        lock(&self.footer).add(&group.0).map_err(parquet_error)
    }

    /// The bytes after the last group. `properties` are stored as the file's metadata, for its readers.
    fn footer<'py>(&self, py: Python<'py>, properties: Vec<(String, String)>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        Ok(lock(&self.footer)
            .bytes(&properties)
            .map_err(parquet_error)?
            .into_pyarray(py))
    }
}

/// A column as Python has it.
enum Numbers<'py> {
    Bits(PyReadonlyArray1<'py, u8>),
    U8(PyReadonlyArray1<'py, u8>),
    U16(PyReadonlyArray1<'py, u16>),
    U32(PyReadonlyArray1<'py, u32>),
    I32(PyReadonlyArray1<'py, i32>),
    I64(PyReadonlyArray1<'py, i64>),
    F64(PyReadonlyArray1<'py, i64>),
    Places(PyReadonlyArray1<'py, u32>),
    Ends(PyReadonlyArray1<'py, i32>),
}

impl<'py> Numbers<'py> {
    fn of(kind: ColumnKind, array: &Bound<'py, PyAny>, texts: Option<&TextArrays<'py>>) -> PyResult<Self> {
        let numbers = match kind {
            ColumnKind::Bool => array.extract().map(Self::Bits).ok(),
            ColumnKind::UInt8 => array.extract().map(Self::U8).ok(),
            ColumnKind::UInt16 => array.extract().map(Self::U16).ok(),
            ColumnKind::UInt32 => array.extract().map(Self::U32).ok(),
            ColumnKind::Int32 => array.extract().map(Self::I32).ok(),
            ColumnKind::Int64 => array.extract().map(Self::I64).ok(),
            ColumnKind::Float64 => array.extract().map(Self::F64).ok(),
            ColumnKind::Text if matches!(texts, Some(TextArrays::Free(_))) => array.extract().map(Self::Ends).ok(),
            ColumnKind::Text => array.extract().map(Self::Places).ok(),
        };
        numbers.ok_or_else(|| PyValueError::new_err("a column has the wrong dtype or shape"))
    }

    fn values<'a>(&'a self, texts: Option<&'a TextArrays<'_>>) -> PyResult<Values<'a>> {
        let (offsets, bytes) = match texts {
            Some(TextArrays::Free(bytes)) => (&[][..], bytes.as_slice()?),
            Some(TextArrays::Known((offsets, bytes))) => (offsets.as_slice()?, bytes.as_slice()?),
            None => (&[][..], &[][..]),
        };
        Ok(match self {
            Self::Bits(bits) => Values::Bits(bits.as_slice()?),
            Self::U8(values) => Values::U8(values.as_slice()?),
            Self::U16(values) => Values::U16(values.as_slice()?),
            Self::U32(values) => Values::U32(values.as_slice()?),
            Self::I32(values) => Values::I32(values.as_slice()?),
            Self::I64(values) => Values::I64(values.as_slice()?),
            Self::F64(values) => Values::F64(values.as_slice()?),
            Self::Places(places) => Values::Texts(places.as_slice()?, Texts { offsets, bytes }),
            Self::Ends(ends) => Values::FreeTexts(Texts {
                offsets: ends.as_slice()?,
                bytes,
            }),
        })
    }
}

fn kind_named(name: &str) -> Option<ColumnKind> {
    Some(match name {
        "bool" => ColumnKind::Bool,
        "uint8" => ColumnKind::UInt8,
        "uint16" => ColumnKind::UInt16,
        "uint32" => ColumnKind::UInt32,
        "int32" => ColumnKind::Int32,
        "int64" => ColumnKind::Int64,
        "double" => ColumnKind::Float64,
        "text" => ColumnKind::Text,
        _ => return None,
    })
}

/// Parquet's errors are of its own making here: nothing is read.
fn parquet_error(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
