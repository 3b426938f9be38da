//! `tracer._core`: the only crate that names Python. Each module registers its own classes and functions.

mod capture;
mod columns;
mod decode;
mod exchange_table;
mod exchanges;
mod hops;
mod links;
mod matching;
mod partitions;
mod requests;
mod secrets;
mod spans;
mod tables;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    decode::register(module)?;
    capture::register(module)?;
    secrets::register(module)?;
    partitions::register(module)?;
    matching::register(module)?;
    exchanges::register(module)?;
    links::register(module)?;
    spans::register(module)?;
    requests::register(module)?;
    tables::register(module)?;
    hops::register(module)
}
