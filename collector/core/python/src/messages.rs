//! `read_messages`: columns of excerpts in, columns of message heads out.

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_messages::columns::HeadColumns;
use twintap_messages::{Excerpts, read, with_head_columns};

use crate::columns::column;
use crate::decode::set_strings;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_messages, module)?)
}

/// The messages of excerpts; see `collector/_core.pyi`.
#[pyfunction]
fn read_messages<'py>(py: Python<'py>, excerpts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let payload_offset = column::<i32>(excerpts, "payload_offset")?;
    let protocol = column::<u8>(excerpts, "protocol")?;
    let (stream_len, solid_len) = (
        column::<u32>(excerpts, "stream_len")?,
        column::<u32>(excerpts, "solid_len")?,
    );
    let offsets = column::<i64>(excerpts, "excerpt_offsets")?;
    let bytes = column::<u8>(excerpts, "excerpt_bytes")?;
    let excerpts = Excerpts {
        payload_offset: payload_offset.as_slice()?,
        protocol: protocol.as_slice()?,
        stream_len: stream_len.as_slice()?,
        solid_len: solid_len.as_slice()?,
        offsets: offsets.as_slice()?,
        bytes: bytes.as_slice()?,
    };
    if !excerpts.is_consistent() {
        return Err(PyValueError::new_err(
            "columns differ in length, or offsets lead nowhere",
        ));
    }
    let messages = py.detach(|| read(&excerpts));
    let columns = head_arrays(py, messages.heads)?;
    columns.set_item("excerpt_row", messages.excerpt_row.into_pyarray(py))?;
    Ok(columns)
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
