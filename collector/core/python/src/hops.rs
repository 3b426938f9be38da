//! `align_hops`, `count_hops`, `quantile_bins`, `hop_ways`, `lower_hull`, `way_hulls`: columns in and out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_hops::align::{Aligned, End, Knots, Lines, align};
use twintap_hops::counted::{Sent, count};
use twintap_hops::flows::{Flows, Hops};
use twintap_hops::hull;
use twintap_hops::rates::Rates;
use twintap_hops::traffic::{self, Apart, Ends, Traffic};
use twintap_hops::ways;

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(align_hops, module)?)?;
    module.add_function(wrap_pyfunction!(count_hops, module)?)?;
    module.add_function(wrap_pyfunction!(quantile_bins, module)?)?;
    module.add_function(wrap_pyfunction!(hop_ways, module)?)?;
    module.add_function(wrap_pyfunction!(lower_hull, module)?)?;
    module.add_function(wrap_pyfunction!(way_hulls, module)?)
}

/// Stamps to trace times, delays and uncertainties; see `collector/_core.pyi`.
#[pyfunction]
fn align_hops<'py>(
    py: Python<'py>,
    send: &Bound<'py, PyDict>,
    receive: &Bound<'py, PyDict>,
    lines: &Bound<'py, PyDict>,
    knots: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let end_columns = |end| {
        Ok::<_, PyErr>((
            column::<i32>(end, "host")?,
            column::<u16>(end, "numbers")?,
            column::<u32>(end, "frame")?,
            column::<i64>(end, "host_ns")?,
        ))
    };
    let (sends, receives) = (end_columns(send)?, end_columns(receive)?);
    let [send, receive] = [&sends, &receives].map(|(host, numbers, frame, host_ns)| {
        Ok::<_, PyErr>(End {
            host: host.as_slice()?,
            numbers: numbers.as_slice()?,
            frame: frame.as_slice()?,
            host_ns: host_ns.as_slice()?,
        })
    });
    let line_starts = column::<u32>(lines, "starts")?;
    let from_frame = column::<u32>(lines, "from_frame")?;
    let from_host_ns = column::<i64>(lines, "from_host_ns")?;
    let (offset_ns, skew_ppb) = (column::<i64>(lines, "offset_ns")?, column::<i64>(lines, "skew_ppb")?);
    let line_uncertainty_ns = column::<i64>(lines, "uncertainty_ns")?;
    let lines = Lines {
        starts: line_starts.as_slice()?,
        from_frame: from_frame.as_slice()?,
        from_host_ns: from_host_ns.as_slice()?,
        offset_ns: offset_ns.as_slice()?,
        skew_ppb: skew_ppb.as_slice()?,
        uncertainty_ns: line_uncertainty_ns.as_slice()?,
    };
    let knot_starts = column::<u32>(knots, "starts")?;
    let at_trace_ns = column::<i64>(knots, "at_trace_ns")?;
    let uncertainty_ns = column::<f64>(knots, "uncertainty_ns")?;
    let knots = Knots {
        starts: knot_starts.as_slice()?,
        at_trace_ns: at_trace_ns.as_slice()?,
        uncertainty_ns: uncertainty_ns.as_slice()?,
    };
    let (send, receive) = (send?, receive?);
    let aligned = py.detach(|| align(&send, &receive, &lines, &knots));
    aligned_columns(py, aligned)
}

fn aligned_columns(py: Python<'_>, aligned: Aligned) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("send_trace_ns", aligned.send_trace_ns.into_pyarray(py))?;
    columns.set_item("receive_trace_ns", aligned.receive_trace_ns.into_pyarray(py))?;
    columns.set_item("one_way_delay_ns", aligned.one_way_delay_ns.into_pyarray(py))?;
    columns.set_item("uncertainty_ns", aligned.uncertainty_ns.into_pyarray(py))?;
    Ok(columns)
}

/// Columns of hops as [`Hops`] takes them.
struct HopColumns<'py> {
    connection: PyReadonlyArray1<'py, i64>,
    from_client: PyReadonlyArray1<'py, bool>,
    kind: PyReadonlyArray1<'py, u8>,
    state: PyReadonlyArray1<'py, u8>,
    send_frame: PyReadonlyArray1<'py, u32>,
    receive_frame: PyReadonlyArray1<'py, u32>,
    stream_start: PyReadonlyArray1<'py, i64>,
    stream_end: PyReadonlyArray1<'py, i64>,
    attempt: PyReadonlyArray1<'py, u16>,
    one_way_delay_ns: PyReadonlyArray1<'py, i64>,
}

impl<'py> HopColumns<'py> {
    fn of(hops: &Bound<'py, PyDict>) -> PyResult<Self> {
        Ok(Self {
            connection: column(hops, "connection_id")?,
            from_client: column(hops, "from_client")?,
            kind: column(hops, "kind")?,
            state: column(hops, "state")?,
            send_frame: column(hops, "send_frame")?,
            receive_frame: column(hops, "receive_frame")?,
            stream_start: column(hops, "stream_start")?,
            stream_end: column(hops, "stream_end")?,
            attempt: column(hops, "attempt")?,
            one_way_delay_ns: column(hops, "one_way_delay_ns")?,
        })
    }

    fn hops(&self) -> PyResult<Hops<'_>> {
        let hops = Hops {
            connection: self.connection.as_slice()?,
            from_client: self.from_client.as_slice()?,
            kind: self.kind.as_slice()?,
            state: self.state.as_slice()?,
            send_frame: self.send_frame.as_slice()?,
            receive_frame: self.receive_frame.as_slice()?,
            stream_start: self.stream_start.as_slice()?,
            stream_end: self.stream_end.as_slice()?,
            attempt: self.attempt.as_slice()?,
            one_way_delay_ns: self.one_way_delay_ns.as_slice()?,
        };
        if hops.lens_agree() {
            Ok(hops)
        } else {
            Err(lens_differ())
        }
    }
}

fn lens_differ() -> PyErr {
    PyValueError::new_err("hop columns differ in length")
}

/// Hops counted by flow, by hosts, by link, slice of time and size of delay, and late ones by link and rate; see
/// `collector/_core.pyi`.
#[pyfunction]
fn count_hops<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    apart: PyReadonlyArray1<'py, bool>,
    receivers_count: usize,
    slice_ns: i64,
    late_ns: i64,
    by_flow: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let columns = HopColumns::of(hops)?;
    let (send_host, receive_host) = (column::<i32>(hops, "send_host")?, column::<i32>(hops, "receive_host")?);
    let send_trace_ns = column::<i64>(hops, "send_trace_ns")?;
    let receive_trace_ns = column::<i64>(hops, "receive_trace_ns")?;
    let hops = columns.hops()?;
    let ends = Ends {
        send_host: send_host.as_slice()?,
        receive_host: receive_host.as_slice()?,
        send_trace_ns: send_trace_ns.as_slice()?,
        receive_trace_ns: receive_trace_ns.as_slice()?,
    };
    if !ends.lens_are(hops.connection.len()) {
        return Err(lens_differ());
    }
    let apart = Apart {
        is_apart: apart.as_slice()?,
        receivers_count,
    };
    let counted = py.detach(|| count(&hops, &ends, apart, slice_ns, late_ns, by_flow));
    let columns = PyDict::new(py);
    columns.set_item("flows", flow_columns(py, counted.flows)?)?;
    columns.set_item("telling", counted.telling.into_pyarray(py))?;
    columns.set_item("sent", sent_columns(py, counted.sent)?)?;
    columns.set_item("traffic", traffic_columns(py, counted.traffic)?)?;
    columns.set_item("rates", rate_columns(py, counted.rates)?)?;
    Ok(columns)
}

/// Quantiles of histograms; see `collector/_core.pyi`.
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
        return Err(lens_differ());
    }
    Ok(py
        .detach(|| traffic::quantile_bins(group, bin, hops, share))
        .into_pyarray(py))
}

fn sent_columns(py: Python<'_>, sent: Sent) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("sender", sent.sender.into_pyarray(py))?;
    columns.set_item("receiver", sent.receiver.into_pyarray(py))?;
    columns.set_item("sent", sent.hops.into_pyarray(py))?;
    Ok(columns)
}

fn rate_columns(py: Python<'_>, rates: Rates) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("sender", rates.sender.into_pyarray(py))?;
    columns.set_item("receiver", rates.receiver.into_pyarray(py))?;
    columns.set_item("bin", rates.bin.into_pyarray(py))?;
    columns.set_item("hops", rates.hops.into_pyarray(py))?;
    Ok(columns)
}

fn traffic_columns(py: Python<'_>, traffic: Traffic) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("sender", traffic.sender.into_pyarray(py))?;
    columns.set_item("receiver", traffic.receiver.into_pyarray(py))?;
    columns.set_item("slice", traffic.slice.into_pyarray(py))?;
    columns.set_item("bin", traffic.bin.into_pyarray(py))?;
    columns.set_item("hops", traffic.hops.into_pyarray(py))?;
    columns.set_item("bytes", traffic.bytes.into_pyarray(py))?;
    columns.set_item("lost", traffic.lost.into_pyarray(py))?;
    columns.set_item("overtaken", traffic.overtaken.into_pyarray(py))?;
    columns.set_item("data", traffic.data.into_pyarray(py))?;
    Ok(columns)
}

fn flow_columns(py: Python<'_>, flows: Flows) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("start", flows.start.into_pyarray(py))?;
    for (code, counts) in flows.states.into_iter().enumerate() {
        columns.set_item(format!("state_{code}"), counts.into_pyarray(py))?;
    }
    columns.set_item("split", flows.split.into_pyarray(py))?;
    columns.set_item("retransmitted", flows.retransmitted.into_pyarray(py))?;
    columns.set_item("early", flows.early.into_pyarray(py))?;
    columns.set_item("bytes", flows.bytes.into_pyarray(py))?;
    columns.set_item("matched_bytes", flows.matched_bytes.into_pyarray(py))?;
    Ok(columns)
}

/// A pair of hosts (sender times receivers plus receiver), then of each of its hops stamps and frames at both ends.
type WayFields<'py> = (
    usize,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i64>>,
);

/// Matched hops by the hosts that they are between; see `collector/_core.pyi`.
#[pyfunction]
fn hop_ways<'py>(
    py: Python<'py>,
    send: &Bound<'py, PyDict>,
    receive: &Bound<'py, PyDict>,
    state: PyReadonlyArray1<'py, i32>,
    matched: i32,
    apart: PyReadonlyArray1<'py, bool>,
    receivers_count: usize,
) -> PyResult<Vec<WayFields<'py>>> {
    let end_columns = |end| {
        Ok::<_, PyErr>((
            column::<i32>(end, "host")?,
            column::<u32>(end, "frame")?,
            column::<i64>(end, "host_ns")?,
        ))
    };
    let (sends, receives) = (end_columns(send)?, end_columns(receive)?);
    let [send, receive] = [&sends, &receives].map(|(host, frame, host_ns)| {
        Ok::<_, PyErr>(ways::End {
            host: host.as_slice()?,
            frame: frame.as_slice()?,
            host_ns: host_ns.as_slice()?,
        })
    });
    let (send, receive, state, apart) = (send?, receive?, state.as_slice()?, apart.as_slice()?);
    let split = py.detach(|| ways::split(&send, &receive, state, matched, apart, receivers_count));
    let fields = |(pair, way): (usize, ways::Way)| {
        let ns = (way.send_ns.into_pyarray(py), way.receive_ns.into_pyarray(py));
        (
            pair,
            ns.0,
            ns.1,
            way.send_frame.into_pyarray(py),
            way.receive_frame.into_pyarray(py),
        )
    };
    let occurring = split.into_iter().enumerate().filter(|(_, way)| !way.send_ns.is_empty());
    Ok(occurring.map(fields).collect())
}

/// Places of points on their lower hull; see `collector/_core.pyi`.
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

/// Places of the hops that bound a clock's line; see `collector/_core.pyi`.
#[pyfunction]
fn way_hulls<'py>(
    py: Python<'py>,
    way: &Bound<'py, PyDict>,
    frames_count: usize,
    spans: usize,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (send_ns, receive_ns) = (column::<i64>(way, "send_ns")?, column::<i64>(way, "receive_ns")?);
    let send_frame = column::<i64>(way, "send_frame")?;
    let way = hull::Way {
        send_ns: send_ns.as_slice()?,
        receive_ns: receive_ns.as_slice()?,
        send_frame: send_frame.as_slice()?,
    };
    let last_frame = way.send_frame.iter().max().copied().unwrap_or(0);
    if usize::try_from(last_frame).is_ok_and(|last| last > frames_count) || spans == 0 {
        return Err(PyValueError::new_err("a frame is beyond the capture's last"));
    }
    Ok(py.detach(|| hull::hulls(&way, frames_count, spans)).into_pyarray(py))
}
