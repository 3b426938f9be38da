//! The registry of protocols, for names and documents.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use twintap_protocols::protocol::Protocol;
use twintap_protocols::registry::REGISTRY;

/// Name; family; rule for exchanges; what is read; what an agent keeps; what is overwritten.
type ProtocolFields = [&'static str; 6];

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(protocols, module)?)?;
    module.add_function(wrap_pyfunction!(protocols_with_own_ids, module)?)?;
    module.add_function(wrap_pyfunction!(answer_meaning, module)?)
}

/// Every protocol, in the order of the registry.
#[pyfunction]
fn protocols() -> Vec<ProtocolFields> {
    let fields = |one: &&Protocol| {
        let docs = one.docs;
        [
            one.name,
            one.family,
            one.exchanges.name(),
            docs.reads,
            docs.agent_keeps,
            docs.overwrites,
        ]
    };
    REGISTRY.iter().map(fields).collect()
}

/// Names of the protocols whose transaction ids never are those of a request of another protocol.
#[pyfunction]
fn protocols_with_own_ids() -> Vec<&'static str> {
    let own = REGISTRY.iter().filter(|one| one.ids_are_own);
    own.map(|one| one.name).collect()
}

/// Class of an answer, and the name of its result code.
type AnswerMeaning = (&'static str, Option<Cow<'static, str>>);

/// What an answer means, by its protocol's place in the registry, its status and its result code.
#[pyfunction]
fn answer_meaning(protocol: usize, status: u16, result_code: i32) -> PyResult<AnswerMeaning> {
    let known = REGISTRY.get(protocol);
    let results = known
        .ok_or_else(|| PyValueError::new_err("no protocol is at this place"))?
        .results;
    Ok(((results.class)(status, result_code).name(), (results.name)(result_code)))
}
