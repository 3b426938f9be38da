//! The rules by which secrets are overwritten: `tracer._capture.Secrets`, which `tracer.secret_rules` publishes.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use twintap_protocols::redaction;
use twintap_secrets::{RuleError, SecretRules};

/// Rules of what is a secret.
#[pyclass(frozen, module = "tracer._capture")]
pub struct Secrets {
    pub rules: Arc<SecretRules>,
}

impl Secrets {
    /// The built-in rules.
    pub fn built_in() -> Arc<SecretRules> {
        Arc::new(SecretRules::built_in().clone())
    }
}

#[pymethods]
impl Secrets {
    /// The built-in rules and `more`; with `nothing`, none at all. Raises ValueError(line, what) for an invalid rule.
    #[new]
    #[pyo3(signature = (more="", *, nothing=false))]
    fn new(more: &str, nothing: bool) -> PyResult<Self> {
        let refused = |error: RuleError| PyValueError::new_err((error.line, error.what));
        let rules = if nothing {
            SecretRules::nothing()
        } else {
            SecretRules::with(more).map_err(refused)?
        };
        Ok(Self { rules: Arc::new(rules) })
    }

    /// A text with `x` for each byte of a secret in it.
    fn text(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.rules.redact_text(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A command line with `x` for each character of a secret in it.
    fn words(&self, argv: Vec<String>) -> Vec<String> {
        self.rules.redact_words(&argv)
    }

    /// The payload of a packet, likewise: a message's head, or of another protocol.
    fn payload<'py>(&self, py: Python<'py>, payload: &[u8]) -> Bound<'py, PyBytes> {
        let mut bytes = payload.to_vec();
        redaction::redact(&self.rules, &mut bytes);
        PyBytes::new(py, &bytes)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Secrets>()
}
