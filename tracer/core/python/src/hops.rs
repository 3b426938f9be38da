//! `align_hops`, `count_flows`, `hop_ways`, `lower_hull` and `way_hulls`: columns in, columns out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_hops::align::{Aligned, End, Knots, Lines, align};
use twintap_hops::flows::{Flows, Hops, count};
use twintap_hops::hull;
use twintap_hops::ways;

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(align_hops, module)?)?;
    module.add_function(wrap_pyfunction!(count_flows, module)?)?;
    module.add_function(wrap_pyfunction!(hop_ways, module)?)?;
    module.add_function(wrap_pyfunction!(lower_hull, module)?)?;
    module.add_function(wrap_pyfunction!(way_hulls, module)?)
}

/// Stamps to trace times, delays and uncertainties; see `tracer/_core.pyi`.
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

/// Hops counted by flow; see `tracer/_core.pyi`.
#[pyfunction]
fn count_flows<'py>(py: Python<'py>, hops: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let connection = column::<i64>(hops, "connection_id")?;
    let from_client = column::<bool>(hops, "from_client")?;
    let (kind, state) = (column::<u8>(hops, "kind")?, column::<u8>(hops, "state")?);
    let (send_frame, receive_frame) = (
        column::<u32>(hops, "send_frame")?,
        column::<u32>(hops, "receive_frame")?,
    );
    let (stream_start, stream_end) = (column::<i64>(hops, "stream_start")?, column::<i64>(hops, "stream_end")?);
    let attempt = column::<u16>(hops, "attempt")?;
    let one_way_delay_ns = column::<i64>(hops, "one_way_delay_ns")?;
    let hops = Hops {
        connection: connection.as_slice()?,
        from_client: from_client.as_slice()?,
        kind: kind.as_slice()?,
        state: state.as_slice()?,
        send_frame: send_frame.as_slice()?,
        receive_frame: receive_frame.as_slice()?,
        stream_start: stream_start.as_slice()?,
        stream_end: stream_end.as_slice()?,
        attempt: attempt.as_slice()?,
        one_way_delay_ns: one_way_delay_ns.as_slice()?,
    };
    if !hops.lens_agree() {
        return Err(PyValueError::new_err("hop columns differ in length"));
    }
    let flows = py.detach(|| count(&hops));
    flow_columns(py, flows)
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
    columns.set_item("data", flows.data.into_pyarray(py))?;
    columns.set_item("resets", flows.resets.into_pyarray(py))?;
    columns.set_item("syn_acks", flows.syn_acks.into_pyarray(py))?;
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

/// Matched hops by the hosts that they are between; see `tracer/_core.pyi`.
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

/// Places of points on their lower hull; see `tracer/_core.pyi`.
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

/// Places of the hops that bound a clock's line; see `tracer/_core.pyi`.
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
