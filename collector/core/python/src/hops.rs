//! `align_hops`, `count_hops`, `gapped_rows`, `quantile_bins`, `stamps_by_pair`, `lower_hull`, `delay_hulls`: columns in and out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_hops::align::{End, Knots, Lines, align};
use twintap_hops::counts::count;
use twintap_hops::flows::{Flows, Hops};
use twintap_hops::gaps;
use twintap_hops::hull;
use twintap_hops::stamps_by_pair;
use twintap_hops::traffic::{self, DifferentHosts, Ends};

use crate::columns::{Columns, inconsistent, to_dict};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(align_hops, module)?)?;
    module.add_function(wrap_pyfunction!(count_hops, module)?)?;
    module.add_function(wrap_pyfunction!(gapped_rows, module)?)?;
    module.add_function(wrap_pyfunction!(quantile_bins, module)?)?;
    module.add_function(wrap_pyfunction!(stamps_by_pair_py, module)?)?;
    module.add_function(wrap_pyfunction!(lower_hull, module)?)?;
    module.add_function(wrap_pyfunction!(delay_hulls, module)?)
}

/// Trace times, delays and their errors, of hops.
#[pyfunction]
fn align_hops<'py>(
    py: Python<'py>,
    send: &Bound<'py, PyDict>,
    receive: &Bound<'py, PyDict>,
    lines: &Bound<'py, PyDict>,
    knots: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let (send, receive) = (Columns::of(send)?, Columns::of(receive)?);
    let (lines, knots) = (Columns::of(lines)?, Columns::of(knots)?);
    let send = End {
        numbers: send.column("numbers")?,
        ..send.table()?
    };
    let receive = End {
        numbers: receive.column("numbers")?,
        ..receive.table()?
    };
    let lines = Lines {
        starts: lines.column("starts")?,
        uncertainty_ns: lines.column("uncertainty_ns")?,
        likely_error_ns: lines.column("likely_error_ns")?,
        ..lines.table()?
    };
    let knots = Knots {
        starts: knots.column("starts")?,
        ..knots.table()?
    };
    to_dict(py, py.detach(|| align(&send, &receive, &lines, &knots)))
}

/// Hops counted by flow; by pair of hosts, slice of time and size of delay; and late ones by pair of hosts and rate.
#[pyfunction]
fn count_hops<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    different_hosts: PyReadonlyArray1<'py, bool>,
    receivers_count: usize,
    slice_ns: i64,
    late_ns: i64,
    by_flow: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = Columns::of(hops)?;
    let (hops, ends): (Hops, Ends) = (columns.table()?, columns.table()?);
    if ends.send_host.len() != hops.connection.len() {
        return Err(inconsistent());
    }
    let different_hosts = DifferentHosts {
        is_different: different_hosts.as_slice()?,
        receivers_count,
    };
    let counts = py.detach(|| count(&hops, &ends, different_hosts, slice_ns, late_ns, by_flow));
    let columns = PyDict::new(py);
    columns.set_item("flows", flow_columns(py, counts.flows)?)?;
    columns.set_item("notable_rows", counts.notable_rows.into_pyarray(py))?;
    columns.set_item("sent", to_dict(py, counts.sent)?)?;
    columns.set_item("traffic", to_dict(py, counts.traffic)?)?;
    columns.set_item("rates", to_dict(py, counts.rates)?)?;
    Ok(columns)
}

/// Rows of the flows that lack bytes.
#[pyfunction]
fn gapped_rows<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    least_bytes: i64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let columns = Columns::of(hops)?;
    let hops: gaps::Hops = columns.table()?;
    Ok(py.detach(|| gaps::gapped_rows(&hops, least_bytes)).into_pyarray(py))
}

/// Quantiles of histograms.
#[pyfunction]
fn quantile_bins<'py>(
    py: Python<'py>,
    group: PyReadonlyArray1<'py, i32>,
    bin: PyReadonlyArray1<'py, i64>,
    hops: PyReadonlyArray1<'py, i64>,
    share: f64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (group, bin, hops) = (group.as_slice()?, bin.as_slice()?, hops.as_slice()?);
    if group.len() != bin.len() || group.len() != hops.len() || group.iter().any(|&group| group < 0) {
        return Err(inconsistent());
    }
    Ok(py
        .detach(|| traffic::quantile_bins(group, bin, hops, share))
        .into_pyarray(py))
}

fn flow_columns(py: Python<'_>, mut flows: Flows) -> PyResult<Bound<'_, PyDict>> {
    let states = std::mem::take(&mut flows.states);
    let columns = to_dict(py, flows)?;
    for (code, counts) in states.into_iter().enumerate() {
        columns.set_item(format!("state_{code}"), counts.into_pyarray(py))?;
    }
    Ok(columns)
}

/// A pair of hosts (sender times receivers plus receiver), then the stamps and frames of its hops at both ends.
type PairStampFields<'py> = (
    usize,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
);

/// Stamps of matched hops by pair of hosts.
#[pyfunction(name = "stamps_by_pair")]
fn stamps_by_pair_py<'py>(
    py: Python<'py>,
    send: &Bound<'py, PyDict>,
    receive: &Bound<'py, PyDict>,
    state: PyReadonlyArray1<'py, i32>,
    matched: i32,
    different_hosts: PyReadonlyArray1<'py, bool>,
    receivers_count: usize,
) -> PyResult<Vec<PairStampFields<'py>>> {
    let (send, receive) = (Columns::of(send)?, Columns::of(receive)?);
    let (send, receive): (stamps_by_pair::End, stamps_by_pair::End) = (send.table()?, receive.table()?);
    let (state, different_hosts) = (state.as_slice()?, different_hosts.as_slice()?);
    if send.host.len() != state.len() || receive.host.len() != state.len() {
        return Err(inconsistent());
    }
    let split = py.detach(|| stamps_by_pair::split(&send, &receive, state, matched, different_hosts, receivers_count));
    let fields = |(pair, stamps): (usize, stamps_by_pair::PairStamps)| {
        let ns = (stamps.send_ns.into_pyarray(py), stamps.receive_ns.into_pyarray(py));
        (
            pair,
            ns.0,
            ns.1,
            stamps.send_frame.into_pyarray(py),
            stamps.receive_frame.into_pyarray(py),
        )
    };
    let occurring = split
        .into_iter()
        .enumerate()
        .filter(|(_, stamps)| !stamps.send_ns.is_empty());
    Ok(occurring.map(fields).collect())
}

/// Places of points on their lower hull.
#[pyfunction]
fn lower_hull<'py>(
    py: Python<'py>,
    times_s: PyReadonlyArray1<'py, f64>,
    values: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (times_s, values) = (times_s.as_slice()?, values.as_slice()?);
    if times_s.len() != values.len() {
        return Err(PyValueError::new_err("times and values differ in length"));
    }
    Ok(py.detach(|| hull::lower_hull(times_s, values)).into_pyarray(py))
}

/// Places of the hops whose delays bound the offset of two clocks.
#[pyfunction]
fn delay_hulls<'py>(
    py: Python<'py>,
    stamps: &Bound<'py, PyDict>,
    frames_count: usize,
    spans: usize,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let columns = Columns::of(stamps)?;
    let stamps: hull::PairStamps = columns.table()?;
    let last_frame = stamps.send_frame.iter().max().copied().unwrap_or(0);
    if usize::try_from(last_frame).is_ok_and(|last| last > frames_count) || spans == 0 {
        return Err(PyValueError::new_err("a frame is beyond the capture's last"));
    }
    Ok(py.detach(|| hull::hulls(&stamps, frames_count, spans)).into_pyarray(py))
}
