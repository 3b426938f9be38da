//! The registry of protocols, for names and documents.

use pyo3::prelude::*;
use twintap_protocols::registry::REGISTRY;

/// Name; what is read; what an agent keeps; what is overwritten.
type ProtocolFields = (&'static str, &'static str, &'static str, &'static str);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(protocols, module)?)
}

/// Every protocol, in the order of the registry.
#[pyfunction]
fn protocols() -> Vec<ProtocolFields> {
    let fields = REGISTRY
        .iter()
        .map(|one| (one.name, one.docs.reads, one.docs.agent_keeps, one.docs.overwrites));
    fields.collect()
}
