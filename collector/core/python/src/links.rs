//! `link_exchanges`: columns of exchanges in, the parent of each out.

use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_columns::Texts;
use twintap_links::{Exchanges, MAX_WORDS, link, words_of};

use crate::columns::{Columns, inconsistent, to_dict};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(linking_words_py, module)?)?;
    module.add_function(wrap_pyfunction!(link_exchanges_py, module)?)
}

/// Hashes of the words of targets.
#[pyfunction(name = "linking_words")]
fn linking_words_py<'py>(py: Python<'py>, targets: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyArray2<u32>>> {
    let columns = Columns::of(targets)?;
    let texts: Texts = columns.table()?;
    let (first, last): (&[i64], &[i64]) = (columns.column("range_first")?, columns.column("range_last")?);
    if [first, last].iter().any(|ends| ends.len() != texts.rows_count()) {
        return Err(inconsistent());
    }
    let words = py
        .detach(|| words_of(texts.offsets, texts.bytes, first, last))
        .into_flattened();
    words.into_pyarray(py).reshape([texts.rows_count(), MAX_WORDS])
}

/// Infer the parents of exchanges without ids.
#[pyfunction(name = "link_exchanges")]
fn link_exchanges_py<'py>(py: Python<'py>, exchanges: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let words: PyReadonlyArray2<'py, u32> = exchanges
        .get_item("words")?
        .ok_or_else(|| PyValueError::new_err("column words is missing"))?
        .extract()?;
    let (words, rest) = words.as_slice()?.as_chunks::<MAX_WORDS>();
    if !rest.is_empty() {
        return Err(PyValueError::new_err("column words has the wrong shape"));
    }
    let columns = Columns::of(exchanges)?;
    let exchanges = Exchanges {
        words,
        ..columns.table()?
    };
    if words.len() != exchanges.service.len() {
        return Err(inconsistent());
    }
    to_dict(py, py.detach(|| link(&exchanges)))
}
