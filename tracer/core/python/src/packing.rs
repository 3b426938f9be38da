//! `tracer._capture.pack`: segments as they are sent.

use std::borrow::Cow;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(pack, module)?)
}

/// A segment packed, which the collector turns back into the same bytes.
#[pyfunction]
fn pack<'a>(py: Python<'_>, pcapng: &[u8]) -> Cow<'a, [u8]> {
    py.detach(|| twintap_packing::pack(pcapng)).into()
}
