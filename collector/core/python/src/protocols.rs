//! The registry of protocols, for names and documents.

use pyo3::prelude::*;
use twintap_protocols::protocol::Protocol;
use twintap_protocols::registry::REGISTRY;

/// Name; rule for exchanges; what is read; what an agent keeps; what is overwritten.
type ProtocolFields = [&'static str; 5];

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(protocols, module)?)
}

/// Every protocol, in the order of the registry.
#[pyfunction]
fn protocols() -> Vec<ProtocolFields> {
    let fields = |one: &&Protocol| {
        let docs = one.docs;
        [
            one.name,
            one.exchanges.name(),
            docs.reads,
            docs.agent_keeps,
            docs.overwrites,
        ]
    };
    REGISTRY.iter().map(fields).collect()
}
