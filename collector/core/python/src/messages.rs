//! `read_messages`: columns of excerpts in, columns of message heads out; `recognise_connections`: connections'
//! protocols; `read_tls_handshakes`: what their TLS handshakes say.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_messages::columns::{HeadColumns, NumberColumn, TextColumn};
use twintap_messages::recognition::{ConnectionProtocol, recognise};
use twintap_messages::tls_handshakes::{TlsColumns, read_handshakes};
use twintap_messages::{Excerpts, Places, read, with_head_columns, with_tls_columns};

use crate::columns::{Columns, inconsistent};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_messages, module)?)?;
    module.add_function(wrap_pyfunction!(recognise_connections, module)?)?;
    module.add_function(wrap_pyfunction!(read_tls_handshakes, module)?)
}

fn excerpts_of<'a>(columns: &'a Columns<'_>) -> PyResult<Excerpts<'a>> {
    let excerpts = Excerpts {
        offsets: columns.column("excerpt_offsets")?,
        bytes: columns.column("excerpt_bytes")?,
        ..columns.table()?
    };
    excerpts
        .has_bytes_of_rows()
        .then_some(excerpts)
        .ok_or_else(inconsistent)
}

/// The messages of excerpts. A column, or the offsets of a column of texts, is one value if that is the value of all.
#[pyfunction]
fn read_messages<'py>(py: Python<'py>, excerpts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(excerpts)?;
    let excerpts = excerpts_of(&columns)?;
    let messages = py.detach(|| read(&excerpts));
    let columns = head_arrays(py, messages.heads)?;
    columns.set_item("excerpt_row", messages.excerpt_row.into_pyarray(py))?;
    Ok(columns)
}

/// Places in the registry, codes of evidence, and whether the connection was opened.
type RecognisedColumns<'py> = (
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<bool>>,
);

/// The protocols of connections.
#[pyfunction]
fn recognise_connections<'py>(
    py: Python<'py>,
    excerpts: &Bound<'py, PyDict>,
    excerpt_row: PyReadonlyArray1<'py, u32>,
    places: &Bound<'py, PyDict>,
    first_id: i64,
    count: usize,
) -> PyResult<RecognisedColumns<'py>> {
    let (columns, places) = (Columns::of(excerpts)?, Columns::of(places)?);
    let excerpts = excerpts_of(&columns)?;
    let places = Places {
        excerpt_row: excerpt_row.as_slice()?,
        ..places.table()?
    };
    if !places.has_rows_below(excerpts.protocol.len()) {
        return Err(inconsistent());
    }
    let found = py.detach(|| recognise(&excerpts, &places, first_id, count));
    let codes = |code: fn(&ConnectionProtocol) -> i32| found.iter().map(code).collect::<Vec<i32>>().into_pyarray(py);
    let is_opened: Vec<bool> = found.iter().map(|one| one.is_opened).collect();
    Ok((
        codes(|one| one.protocol.into()),
        codes(|one| one.evidence as i32),
        is_opened.into_pyarray(py),
    ))
}

/// What TLS handshakes say, by connection.
#[pyfunction]
fn read_tls_handshakes<'py>(
    py: Python<'py>,
    excerpts: &Bound<'py, PyDict>,
    excerpt_row: PyReadonlyArray1<'py, u32>,
    places: &Bound<'py, PyDict>,
    first_id: i64,
    count: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let (columns, places) = (Columns::of(excerpts)?, Columns::of(places)?);
    let excerpts = excerpts_of(&columns)?;
    let places = Places {
        excerpt_row: excerpt_row.as_slice()?,
        ..places.table()?
    };
    if !places.has_rows_below(excerpts.protocol.len()) {
        return Err(inconsistent());
    }
    let found = py.detach(|| read_handshakes(&excerpts, &places, first_id, count));
    handshake_arrays(py, found)
}

/// Put a column of texts as `<name>_offsets`, of which `offsets_of` makes the array, and `<name>_bytes`.
fn set_texts(
    arrays: &Bound<'_, PyDict>,
    name: &str,
    texts: TextColumn,
    offsets_of: fn(NumberColumn<i32>) -> Vec<i32>,
) -> PyResult<()> {
    if texts.is_too_long() {
        return Err(PyValueError::new_err(format!("{name}: more than 2 GiB of text")));
    }
    let py = arrays.py();
    arrays.set_item(format!("{name}_offsets"), offsets_of(texts.offsets).into_pyarray(py))?;
    arrays.set_item(format!("{name}_bytes"), texts.bytes.into_pyarray(py))
}

macro_rules! define_handshake_arrays {
    ([$($flag:ident),*] [$($text:ident),*]) => {
        fn handshake_arrays<'py>(py: Python<'py>, columns: TlsColumns) -> PyResult<Bound<'py, PyDict>> {
            let arrays = PyDict::new(py);
            arrays.set_item("connection", columns.connection.into_pyarray(py))?;
            arrays.set_item("resumption", columns.resumption.into_pyarray(py))?;
            $(arrays.set_item(stringify!($flag), columns.$flag.into_pyarray(py))?;)*
            $(set_texts(&arrays, stringify!($text), columns.$text, NumberColumn::into_values)?;)*
            Ok(arrays)
        }
    };
}

with_tls_columns!(define_handshake_arrays);

macro_rules! define_head_arrays {
    ($($name:ident: $kind:ty,)*) => {
        fn head_arrays<'py>(py: Python<'py>, columns: HeadColumns) -> PyResult<Bound<'py, PyDict>> {
            let arrays = PyDict::new(py);
            $(arrays.set_item(stringify!($name), PyArray1::from_vec(py, columns.$name.into_distinct()))?;)*
            set_texts(&arrays, "method", columns.method, NumberColumn::into_distinct)?;
            set_texts(&arrays, "target", columns.target, NumberColumn::into_distinct)?;
            set_texts(&arrays, "transaction_id", columns.transaction_id, NumberColumn::into_distinct)?;
            set_texts(&arrays, "client_span_id", columns.client_span_id, NumberColumn::into_distinct)?;
            set_texts(&arrays, "user_agent", columns.user_agent, NumberColumn::into_distinct)?;
            set_texts(&arrays, "authority", columns.authority, NumberColumn::into_distinct)?;
            Ok(arrays)
        }
    };
}

with_head_columns!(define_head_arrays);
