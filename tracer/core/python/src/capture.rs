//! The capture ring for Python: a class around a thread that Rust owns.

use std::net::{IpAddr, SocketAddr};

use pyo3::prelude::*;

use twintap_capture::ErrorKind;
use twintap_capture::filter::Instruction;
use twintap_capture::pcapng::LinkType;
use twintap_capture::policy::PayloadPolicy;

/// One instruction as Python has it: code, jt, jf, k.
type InstructionTuple = (u16, u8, u8, u32);

/// Name in `tracer.errors` of the class for an error of this kind.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Input => "InputError",
        ErrorKind::Privilege => "PrivilegeError",
        ErrorKind::Resource => "ResourceError",
        ErrorKind::DiskFull => "DiskFullError",
    }
}

pub fn to_python(py: Python<'_>, error: &twintap_capture::CaptureError) -> PyErr {
    let made = py
        .import("tracer.errors")
        .and_then(|module| module.getattr(class_name(error.kind())))
        .and_then(|class| class.call1((error.to_string(), error.next_step())));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

fn instructions(program: Vec<InstructionTuple>) -> Vec<Instruction> {
    program
        .into_iter()
        .map(|(code, jt, jf, k)| Instruction { code, jt, jf, k })
        .collect()
}

/// Bytes of each packet that the kernel must hand over for a payload policy (`none`, `http` or a number).
#[pyfunction]
fn payload_snaplen(py: Python<'_>, payload: &str) -> PyResult<u32> {
    let policy: PayloadPolicy = payload.parse().map_err(|error| to_python(py, &error))?;
    Ok(policy.snaplen())
}

/// The kernel filter used when none is given, for Ethernet (else for raw IP), without packets to and from `excluded`.
#[pyfunction]
#[pyo3(signature = (ethernet, snaplen, excluded=Vec::new()))]
fn built_in_filter(ethernet: bool, snaplen: u32, excluded: Vec<(IpAddr, u16)>) -> Vec<InstructionTuple> {
    let link_type = if ethernet { LinkType::Ethernet } else { LinkType::RawIp };
    let endpoints: Vec<SocketAddr> = excluded.into_iter().map(SocketAddr::from).collect();
    let filter = twintap_capture::filter::built_in(link_type, snaplen);
    twintap_capture::exclusion::without(&endpoints, link_type, &filter)
        .into_iter()
        .map(|i| (i.code, i.jt, i.jf, i.k))
        .collect()
}

/// The sampling depth of each connection, given the addresses and ports of its two ends: a capture that keeps one
/// connection in 2^n keeps those of at least depth n.
#[pyfunction]
fn sampling_depths(ends: Vec<(IpAddr, u16, IpAddr, u16)>) -> Vec<u8> {
    let bits = |address| match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    };
    let depth = |(one, its_port, other, port): (IpAddr, u16, IpAddr, u16)| {
        let [a, b] = its_port.to_be_bytes();
        let [c, d] = port.to_be_bytes();
        let addresses = [bits(one).to_be_bytes(), bits(other).to_be_bytes()].concat();
        twintap_capture::sampling::depth(&addresses, [a, b, c, d])
    };
    ends.into_iter().map(depth).collect()
}

#[cfg(target_os = "linux")]
mod live {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use pyo3::prelude::*;
    use twintap_capture::capture::{Capture, CaptureSettings, Share};
    use twintap_capture::clock_error::SkewedClock;
    use twintap_capture::filter::Programs;
    use twintap_capture::segments::SegmentSettings;

    use super::{InstructionTuple, instructions, to_python};
    use crate::secrets::Secrets;

    fn endpoints(pairs: Vec<(IpAddr, u16)>) -> Vec<SocketAddr> {
        pairs.into_iter().map(SocketAddr::from).collect()
    }

    /// The addresses of this host's interfaces.
    #[pyfunction]
    pub fn host_addresses() -> Vec<IpAddr> {
        let found = twintap_capture::capture::interface_addresses();
        found.into_iter().map(|(_, address)| address).collect()
    }

    /// A running capture. It writes segments until `stop`, or until an error ends it.
    #[pyclass(name = "Capture", module = "tracer._capture")]
    pub struct PyCapture {
        capture: Capture,
    }

    #[pymethods]
    impl PyCapture {
        #[new]
        #[pyo3(signature = (interfaces, folder, host, application, os, *, payload, snaplen, ring_bytes, rings_bytes, segment_bytes, segment_age_ns,
                            first_number, stem, expression="", ethernet_filter=None, raw_ip_filter=None, excluded=Vec::new(),
                            clock_error=(0, 0, 0), secrets=None, owners=true, owners_parts=0, kept=None,
                            timestamps="software"))]
        #[allow(clippy::too_many_arguments)]
        fn new(
            py: Python<'_>,
            interfaces: Vec<String>,
            folder: std::path::PathBuf,
            host: String,
            application: String,
            os: String,
            payload: &str,
            snaplen: u32,
            ring_bytes: usize,
            rings_bytes: usize,
            segment_bytes: u64,
            segment_age_ns: u64,
            first_number: u32,
            stem: String,
            expression: &str,
            ethernet_filter: Option<Vec<InstructionTuple>>,
            raw_ip_filter: Option<Vec<InstructionTuple>>,
            excluded: Vec<(IpAddr, u16)>,
            clock_error: (i64, i64, u64),
            secrets: Option<PyRef<'_, Secrets>>,
            owners: bool,
            owners_parts: u32,
            kept: Option<(u8, Option<u32>)>,
            timestamps: &str,
        ) -> PyResult<Self> {
            let mut programs = Programs::built_in(snaplen);
            if !expression.is_empty() {
                programs = Programs {
                    ethernet: ethernet_filter.map(instructions),
                    raw_ip: raw_ip_filter.map(instructions),
                    expression: expression.to_owned(),
                };
            }
            let settings = CaptureSettings {
                interface_names: interfaces,
                programs,
                excluded: endpoints(excluded),
                policy: payload.parse().map_err(|error| to_python(py, &error))?,
                ring_bytes,
                rings_bytes,
                snaplen,
                with_owners: owners,
                owners_parts,
                kept: kept.map(|(depth, head_bytes)| Share { depth, head_bytes }),
                timestamps: timestamps.parse().map_err(|error| to_python(py, &error))?,
            };
            let segments = SegmentSettings {
                folder,
                stream: None,
                host,
                stem,
                application,
                os,
                addresses: Vec::new(),
                interfaces: Vec::new(),
                since_ns: 0,
                segment_bytes,
                segment_age: Duration::from_nanos(segment_age_ns),
                first_number,
                clock_error: SkewedClock {
                    offset_ns: clock_error.0,
                    drift_ppb: clock_error.1,
                    since_ns: clock_error.2,
                },
                secrets: secrets.map_or_else(Secrets::built_in, |given| Arc::clone(&given.rules)),
            };
            let capture = py
                .detach(|| Capture::start(&settings, segments))
                .map_err(|error| to_python(py, &error))?;
            Ok(PyCapture { capture })
        }

        /// Ask the capture to write what has arrived until now, and to end.
        fn stop(&self) {
            self.capture.stop();
        }

        /// Wait until the capture has ended, at most `timeout_ns`; whether it has.
        fn wait(&self, py: Python<'_>, timeout_ns: u64) -> bool {
            py.detach(|| self.capture.wait(Duration::from_nanos(timeout_ns)))
        }

        /// Raise what ended the capture, if it was not `stop`.
        fn raise_error(&self, py: Python<'_>) -> PyResult<()> {
            match self.capture.error() {
                Some(error) => Err(to_python(py, &error)),
                None => Ok(()),
            }
        }

        /// Leave out packets to and from these addresses and ports; returns when the kernel does so.
        fn exclude(&self, py: Python<'_>, excluded: Vec<(IpAddr, u16)>) {
            py.detach(|| self.capture.exclude(endpoints(excluded)));
        }

        /// Keep one connection in 2^`depth` of the packets that come from now on, and at most `head_bytes` of a payload.
        fn keep(&self, depth: u8, head_bytes: Option<u32>) {
            self.capture.keep(Share { depth, head_bytes });
        }

        /// Lines for the operator since the last call.
        fn take_notices(&self) -> Vec<String> {
            self.capture.take_notices()
        }

        /// (packets, foreign, other, dropped, segments, bytes, left out) so far.
        fn counts(&self) -> (u64, u64, u64, u64, u64, u64, u64) {
            let progress = self.capture.progress();
            (
                progress.packets_count.load(Ordering::Relaxed),
                progress.foreign_count.load(Ordering::Relaxed),
                progress.other_count.load(Ordering::Relaxed),
                progress.dropped_count.load(Ordering::Relaxed),
                progress.totals.segments_count.load(Ordering::Relaxed),
                progress.totals.bytes_count.load(Ordering::Relaxed),
                progress.left_out_count.load(Ordering::Relaxed),
            )
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(payload_snaplen, module)?)?;
    module.add_function(wrap_pyfunction!(built_in_filter, module)?)?;
    module.add_function(wrap_pyfunction!(sampling_depths, module)?)?;
    #[cfg(target_os = "linux")]
    {
        module.add_class::<live::PyCapture>()?;
        module.add_function(wrap_pyfunction!(live::host_addresses, module)?)?;
    }
    Ok(())
}
