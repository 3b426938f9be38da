//! `tracer._capture`: the agent's core for Python, all that an observed host needs. Capturing, payload policies and
//! kernel filters, and the rules of secrets; no analysis is linked into it.

mod capture;
mod packing;
mod secrets;
mod streamed;

use pyo3::prelude::*;

#[pymodule]
fn _capture(module: &Bound<'_, PyModule>) -> PyResult<()> {
    capture::register(module)?;
    packing::register(module)?;
    streamed::register(module)?;
    secrets::register(module)
}
