//! `collector._core.unpack`: segments as agents send them.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(unpack, module)?)
}

/// The pcapng of a packed segment, at most `limit` bytes.
///
/// Raises: `ValueError` for what is none, or expands to more; `(what, is_too_large)`.
#[pyfunction]
fn unpack<'a>(py: Python<'_>, packed: &[u8], limit: usize) -> PyResult<Cow<'a, [u8]>> {
    match py.detach(|| twintap_packing::unpack(packed, limit)) {
        Ok(pcapng) => Ok(pcapng.into()),
        Err(error) => {
            let is_too_large = error == twintap_packing::UnpackError::TooLarge;
            Err(PyValueError::new_err((error.to_string(), is_too_large)))
        }
    }
}
