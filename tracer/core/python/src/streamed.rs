//! `tracer._capture.StreamedCapture`: segments from what `tcpdump` on another host writes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use twintap_capture::clock_error::SkewedClock;
use twintap_capture::segments::SegmentSettings;
use twintap_capture::streamed::{RemoteInterface, StreamedCapture};

use crate::capture::to_python;
use crate::secrets::Secrets;

const SEGMENT_BYTES: u64 = 16 << 20;
const SEGMENT_AGE: Duration = Duration::from_secs(1);

/// A capture that another program makes elsewhere.
#[pyclass(name = "StreamedCapture", module = "tracer._capture")]
pub struct PyStreamedCapture {
    capture: StreamedCapture,
}

#[pymethods]
impl PyStreamedCapture {
    #[new]
    #[pyo3(signature = (interfaces, folder, host, application, os, addresses, *, payload, secrets))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        interfaces: Vec<(String, u32, [u8; 6])>,
        folder: PathBuf,
        host: String,
        application: String,
        os: String,
        addresses: Vec<IpAddr>,
        payload: &str,
        secrets: PyRef<'_, Secrets>,
    ) -> PyResult<Self> {
        let interfaces = interfaces
            .into_iter()
            .map(|(name, index, address)| RemoteInterface { name, index, address });
        let policy = payload.parse().map_err(|error| to_python(py, &error))?;
        let settings = SegmentSettings {
            folder,
            stream: None,
            stem: host.clone(),
            host,
            application,
            os,
            addresses,
            interfaces: Vec::new(),
            since_ns: 0,
            segment_bytes: SEGMENT_BYTES,
            segment_age: SEGMENT_AGE,
            first_number: 1,
            clock_error: SkewedClock::default(),
            secrets: secrets.rules.clone(),
        };
        Ok(PyStreamedCapture {
            capture: StreamedCapture::new(interfaces.collect(), policy, settings),
        })
    }

    /// Take the next bytes of the stream.
    fn feed(&mut self, py: Python<'_>, piece: &[u8]) -> PyResult<()> {
        py.detach(|| self.capture.feed(piece))
            .map_err(|error| to_python(py, &error))
    }

    /// End the capture, whose program missed `dropped_count` packets; all segments are durable then.
    fn finish(&mut self, py: Python<'_>, dropped_count: u64) -> PyResult<()> {
        py.detach(|| self.capture.finish(dropped_count))
            .map_err(|error| to_python(py, &error))
    }

    /// (packets, foreign, other, stamp of the newest packet in ns) so far.
    fn counts(&self) -> (u64, u64, u64, u64) {
        let counts = self.capture.counts();
        (
            counts.packets_count,
            counts.foreign_count,
            counts.other_count,
            counts.newest_ns,
        )
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyStreamedCapture>()
}
