//! Columns of the caller, kept borrowed while the interpreter is released.

use numpy::{Element, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The column `name`, checked for its dtype.
pub fn column<'py, T: Element>(columns: &Bound<'py, PyDict>, name: &str) -> PyResult<PyReadonlyArray1<'py, T>> {
    let value = columns
        .get_item(name)?
        .ok_or_else(|| PyValueError::new_err(format!("column {name} is missing")))?;
    value
        .extract()
        .map_err(|_| PyValueError::new_err(format!("column {name} has the wrong dtype or shape")))
}
