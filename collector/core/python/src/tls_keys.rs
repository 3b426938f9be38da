//! `TlsKeys`: secrets of TLS connections. They come from files straight into the core and never cross to Python.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use twintap_tls::key_log::LinesRead;
use twintap_tls::{KeyLog, TlsOpener};
use twintap_wire::opening::Opener;
use zeroize::Zeroizing;

use crate::decode::lock;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TlsKeys>()
}

/// Secrets from key logs, and from captures that hold some.
#[pyclass(frozen, module = "collector._core")]
#[derive(Default)]
pub struct TlsKeys {
    log: Mutex<Arc<KeyLog>>,
}

#[pymethods]
impl TlsKeys {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Add the secrets in a key log's file: (secrets, lines that are none of a key log). Raises OSError.
    fn add_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64)> {
        let read = py.detach(|| std::fs::read(path).map(|text| self.add(&Zeroizing::new(text))))?;
        Ok((read.secrets_count, read.unread_count))
    }

    /// Number of connections whose secrets are known.
    fn connections_count(&self) -> usize {
        lock(&self.log).len()
    }
}

impl TlsKeys {
    /// Add the secrets in a text.
    pub fn add(&self, text: &[u8]) -> LinesRead {
        Arc::make_mut(&mut lock(&self.log)).add(text)
    }

    /// What opens connections with the secrets so far; none if there are none.
    pub fn opener(&self) -> Option<Box<dyn Opener>> {
        let log = lock(&self.log);
        (!log.is_empty()).then(|| Box::new(TlsOpener::new(Arc::clone(&log))) as Box<dyn Opener>)
    }
}
