//! `link_exchanges`: columns of exchanges in, the parent of each out.

use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_links::{Exchanges, MOST_WORDS, link, words_of};

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(linking_words_py, module)?)?;
    module.add_function(wrap_pyfunction!(link_exchanges_py, module)?)
}

/// Words of targets, hashed; see `collector/_core.pyi`.
#[pyfunction(name = "linking_words")]
fn linking_words_py<'py>(py: Python<'py>, targets: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyArray2<u32>>> {
    let (offsets, bytes) = (column::<i32>(targets, "offsets")?, column::<u8>(targets, "bytes")?);
    let (offsets, bytes) = (offsets.as_slice()?, bytes.as_slice()?);
    let (first, last) = (
        column::<i64>(targets, "range_first")?,
        column::<i64>(targets, "range_last")?,
    );
    let (first, last) = (first.as_slice()?, last.as_slice()?);
    let is_text = |ends: &[i32]| 0 <= ends[0] && ends[0] <= ends[1] && ends[1] as usize <= bytes.len();
    if offsets.is_empty() || !offsets.windows(2).all(is_text) {
        return Err(PyValueError::new_err("offsets do not fit"));
    }
    if [first, last].iter().any(|ends| ends.len() + 1 != offsets.len()) {
        return Err(PyValueError::new_err("ranges do not fit"));
    }
    let words = py.detach(|| words_of(offsets, bytes, first, last)).into_flattened();
    words.into_pyarray(py).reshape([offsets.len() - 1, MOST_WORDS])
}

/// Link exchanges that show no id; see `collector/_core.pyi`.
#[pyfunction(name = "link_exchanges")]
fn link_exchanges_py<'py>(py: Python<'py>, exchanges: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let long = |name: &str| column::<i64>(exchanges, name);
    let (client_host, server_host, service) = (long("client_host")?, long("server_host")?, long("service")?);
    let (connection_id, connect_start_ns) = (long("connection_id")?, long("connect_start_ns")?);
    let (asked_ns, request_ns) = (long("request_first_sent_ns")?, long("request_first_received_ns")?);
    let (answered_ns, answer_ns) = (long("response_first_sent_ns")?, long("response_first_received_ns")?);
    let (last_sent_ns, last_ns) = (long("response_last_sent_ns")?, long("response_last_received_ns")?);
    let given_up_ns = long("given_up_ns")?;
    let (request_bytes, response_bytes) = (long("request_bytes")?, long("response_bytes")?);
    let method = long("method")?;
    let words: PyReadonlyArray2<'py, u32> = exchanges
        .get_item("words")?
        .ok_or_else(|| PyValueError::new_err("column words is missing"))?
        .extract()?;
    let (words, rest) = words.as_slice()?.as_chunks::<MOST_WORDS>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("column words has the wrong shape"));
    }
    let exchanges = Exchanges {
        client_host: client_host.as_slice()?,
        server_host: server_host.as_slice()?,
        service: service.as_slice()?,
        connection_id: connection_id.as_slice()?,
        connect_start_ns: connect_start_ns.as_slice()?,
        request_first_sent_ns: asked_ns.as_slice()?,
        request_first_received_ns: request_ns.as_slice()?,
        response_first_sent_ns: answered_ns.as_slice()?,
        response_first_received_ns: answer_ns.as_slice()?,
        response_last_sent_ns: last_sent_ns.as_slice()?,
        response_last_received_ns: last_ns.as_slice()?,
        given_up_ns: given_up_ns.as_slice()?,
        request_bytes: request_bytes.as_slice()?,
        response_bytes: response_bytes.as_slice()?,
        method: method.as_slice()?,
        words,
    };
    if !exchanges.is_consistent() {
        return Err(PyValueError::new_err("columns differ in length"));
    }
    let links = py.detach(|| link(&exchanges));
    let columns = PyDict::new(py);
    columns.set_item("parent", links.parent.into_pyarray(py))?;
    columns.set_item("confidence", links.confidence.into_pyarray(py))?;
    columns.set_item("alternative", links.alternative.into_pyarray(py))?;
    columns.set_item("alternative_confidence", links.alternative_confidence.into_pyarray(py))?;
    columns.set_item("judged", links.judged.into_pyarray(py))?;
    Ok(columns)
}
