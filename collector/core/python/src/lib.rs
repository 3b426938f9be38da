//! `collector._core`: the collector's core for Python. Decoding, partitions, matching, clocks, exchanges, links, spans
//! and tables; each module registers its own classes and functions. Data crosses a batch at a time, as columns.

mod columns;
mod decode;
mod exchange_table;
mod exchanges;
mod hops;
mod links;
mod matching;
mod messages;
mod packing;
mod partitions;
mod protocols;
mod requests;
mod spans;
mod tables;
mod tls_keys;

use pyo3::prelude::*;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    decode::register(module)?;
    partitions::register(module)?;
    matching::register(module)?;
    messages::register(module)?;
    protocols::register(module)?;
    exchanges::register(module)?;
    links::register(module)?;
    spans::register(module)?;
    requests::register(module)?;
    tables::register(module)?;
    tls_keys::register(module)?;
    packing::register(module)?;
    hops::register(module)
}
