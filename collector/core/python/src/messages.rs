//! `read_messages`: columns of excerpts in, columns of message heads out; `recognise_connections`: what these speak.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_messages::columns::HeadColumns;
use twintap_messages::recognition::{Recognised, recognise};
use twintap_messages::{Excerpts, Places, read, with_head_columns};

use crate::columns::column;
use crate::decode::set_strings;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_messages, module)?)?;
    module.add_function(wrap_pyfunction!(recognise_connections, module)?)
}

/// Columns of excerpts, as they come from Python.
struct ExcerptArrays<'py> {
    payload_offset: PyReadonlyArray1<'py, i32>,
    protocol: PyReadonlyArray1<'py, u8>,
    stream_len: PyReadonlyArray1<'py, u32>,
    solid_len: PyReadonlyArray1<'py, u32>,
    offsets: PyReadonlyArray1<'py, i64>,
    bytes: PyReadonlyArray1<'py, u8>,
}

impl<'py> ExcerptArrays<'py> {
    fn of(excerpts: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self {
            payload_offset: column(excerpts, "payload_offset")?,
            protocol: column(excerpts, "protocol")?,
            stream_len: column(excerpts, "stream_len")?,
            solid_len: column(excerpts, "solid_len")?,
            offsets: column(excerpts, "excerpt_offsets")?,
            bytes: column(excerpts, "excerpt_bytes")?,
        })
    }

    fn excerpts(&self) -> PyResult<Excerpts<'_>> {
        let excerpts = Excerpts {
            payload_offset: self.payload_offset.as_slice()?,
            protocol: self.protocol.as_slice()?,
            stream_len: self.stream_len.as_slice()?,
            solid_len: self.solid_len.as_slice()?,
            offsets: self.offsets.as_slice()?,
            bytes: self.bytes.as_slice()?,
        };
        excerpts.is_consistent().then_some(excerpts).ok_or_else(inconsistent)
    }
}

/// The messages of excerpts; see `collector/_core.pyi`.
#[pyfunction]
fn read_messages<'py>(py: Python<'py>, excerpts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let arrays = ExcerptArrays::of(excerpts)?;
    let excerpts = arrays.excerpts()?;
    let messages = py.detach(|| read(&excerpts));
    let columns = head_arrays(py, messages.heads)?;
    columns.set_item("excerpt_row", messages.excerpt_row.into_pyarray(py))?;
    Ok(columns)
}

/// Places in the registry, and codes of evidence.
type RecognisedColumns<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<i32>>);

/// What connections speak; see `collector/_core.pyi`.
#[pyfunction]
fn recognise_connections<'py>(
    py: Python<'py>,
    excerpts: &Bound<'py, PyDict>,
    excerpt_row: PyReadonlyArray1<'py, u32>,
    places: &Bound<'py, PyDict>,
    first_id: i64,
    count: usize,
) -> PyResult<RecognisedColumns<'py>> {
    let arrays = ExcerptArrays::of(excerpts)?;
    let excerpts = arrays.excerpts()?;
    let connection_id = column::<i64>(places, "connection_id")?;
    let from_client = column::<bool>(places, "from_client")?;
    let stream_offset = column::<i64>(places, "stream_offset")?;
    let places = Places {
        excerpt_row: excerpt_row.as_slice()?,
        connection_id: connection_id.as_slice()?,
        from_client: from_client.as_slice()?,
        stream_offset: stream_offset.as_slice()?,
    };
    if !places.is_consistent(excerpts.protocol.len()) {
        return Err(inconsistent());
    }
    let found = py.detach(|| recognise(&excerpts, &places, first_id, count));
    let codes = |code: fn(&Recognised) -> i32| found.iter().map(code).collect::<Vec<i32>>().into_pyarray(py);
    Ok((codes(|one| one.protocol.into()), codes(|one| one.evidence as i32)))
}

fn inconsistent() -> PyErr {
    PyValueError::new_err("columns differ in length, or offsets lead nowhere")
}

macro_rules! define_head_arrays {
    ($($name:ident: $kind:ty,)*) => {
        fn head_arrays<'py>(py: Python<'py>, columns: HeadColumns) -> PyResult<Bound<'py, PyDict>> {
            let arrays = PyDict::new(py);
            $(arrays.set_item(stringify!($name), PyArray1::from_vec(py, columns.$name))?;)*
            set_strings(&arrays, "method", columns.method)?;
            set_strings(&arrays, "target", columns.target)?;
            set_strings(&arrays, "transaction_id", columns.transaction_id)?;
            set_strings(&arrays, "user_agent", columns.user_agent)?;
            Ok(arrays)
        }
    };
}

with_head_columns!(define_head_arrays);
