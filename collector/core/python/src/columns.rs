//! Converts the caller's columns to tables of the core, and the core's tables to dicts of numpy arrays.

use numpy::{Element, IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_columns::{ColumnError, InputTable, OutputTable, Slice, Source, Values};

/// Columns of a dict, kept borrowed while the interpreter is released.
pub struct Columns<'py> {
    arrays: Vec<(String, Array<'py>)>,
}

/// An array of a type that columns may have.
enum Array<'py> {
    Bool(PyReadonlyArray1<'py, bool>),
    U8(PyReadonlyArray1<'py, u8>),
    U16(PyReadonlyArray1<'py, u16>),
    U32(PyReadonlyArray1<'py, u32>),
    U64(PyReadonlyArray1<'py, u64>),
    I32(PyReadonlyArray1<'py, i32>),
    I64(PyReadonlyArray1<'py, i64>),
    F64(PyReadonlyArray1<'py, f64>),
    Unsupported,
}

fn borrow_array<'py, T: Element>(value: &Bound<'py, PyAny>) -> Option<PyReadonlyArray1<'py, T>> {
    value.cast::<PyArray1<T>>().ok().map(PyArrayMethods::readonly)
}

impl<'py> Array<'py> {
    fn of(value: &Bound<'py, PyAny>) -> Self {
        None.or_else(|| borrow_array(value).map(Self::I64))
            .or_else(|| borrow_array(value).map(Self::U32))
            .or_else(|| borrow_array(value).map(Self::I32))
            .or_else(|| borrow_array(value).map(Self::U16))
            .or_else(|| borrow_array(value).map(Self::U8))
            .or_else(|| borrow_array(value).map(Self::Bool))
            .or_else(|| borrow_array(value).map(Self::U64))
            .or_else(|| borrow_array(value).map(Self::F64))
            .unwrap_or(Self::Unsupported)
    }

    /// The values; an array with gaps between them is not supported.
    fn slice(&self) -> Slice<'_> {
        let slice = match self {
            Self::Bool(array) => array.as_slice().map(Slice::Bool),
            Self::U8(array) => array.as_slice().map(Slice::U8),
            Self::U16(array) => array.as_slice().map(Slice::U16),
            Self::U32(array) => array.as_slice().map(Slice::U32),
            Self::U64(array) => array.as_slice().map(Slice::U64),
            Self::I32(array) => array.as_slice().map(Slice::I32),
            Self::I64(array) => array.as_slice().map(Slice::I64),
            Self::F64(array) => array.as_slice().map(Slice::F64),
            Self::Unsupported => return Slice::Unsupported,
        };
        slice.unwrap_or(Slice::Unsupported)
    }
}

impl<'a> Source<'a> for &'a Columns<'_> {
    fn slice(&self, name: &str) -> Option<Slice<'a>> {
        let found = self.arrays.iter().find(|(own, _)| own == name);
        found.map(|(_, array)| array.slice())
    }
}

impl<'py> Columns<'py> {
    /// Borrow the columns of a dict.
    pub fn of(columns: &Bound<'py, PyDict>) -> PyResult<Self> {
        let arrays = columns
            .iter()
            .map(|(name, value)| Ok((name.extract()?, Array::of(&value))));
        Ok(Self {
            arrays: arrays.collect::<PyResult<_>>()?,
        })
    }

    /// These columns as a table of the core.
    pub fn table<'a, T: InputTable<'a>>(&'a self) -> PyResult<T> {
        T::read(&self).map_err(value_error)
    }

    /// One of the columns.
    pub fn column<'a, T: twintap_columns::Element + 'a>(&'a self, name: &'static str) -> PyResult<&'a [T]> {
        twintap_columns::column(&self, name).map_err(value_error)
    }
}

fn value_error(error: ColumnError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The error for tables whose columns differ in length, or codes out of range.
pub fn inconsistent() -> PyErr {
    PyValueError::new_err("columns differ in length, or codes or offsets lead nowhere")
}

/// A table as a dict of arrays.
pub fn to_dict(py: Python<'_>, table: impl OutputTable) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    put(&columns, table.into_columns())?;
    Ok(columns)
}

/// Put columns into a dict.
pub fn put(columns: &Bound<'_, PyDict>, values: Vec<(&'static str, Values)>) -> PyResult<()> {
    for (name, values) in values {
        columns.set_item(name, to_array(columns.py(), values))?;
    }
    Ok(())
}

fn to_array(py: Python<'_>, values: Values) -> Bound<'_, PyAny> {
    match values {
        Values::Bool(values) => values.into_pyarray(py).into_any(),
        Values::U8(values) => values.into_pyarray(py).into_any(),
        Values::U16(values) => values.into_pyarray(py).into_any(),
        Values::U32(values) => values.into_pyarray(py).into_any(),
        Values::U64(values) => values.into_pyarray(py).into_any(),
        Values::I32(values) => values.into_pyarray(py).into_any(),
        Values::I64(values) => values.into_pyarray(py).into_any(),
        Values::F64(values) => values.into_pyarray(py).into_any(),
    }
}
