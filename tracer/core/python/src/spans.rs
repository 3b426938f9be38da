//! Links by transaction id, waits and ledgers: columns of exchanges in, columns of spans out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_spans::{Exchanges, Nodes, Texts, first_answers, forest, link, share_out, taken_up, words};

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_by_id, module)?)?;
    module.add_function(wrap_pyfunction!(trace_forest, module)?)?;
    module.add_function(wrap_pyfunction!(taken_up_py, module)?)?;
    module.add_function(wrap_pyfunction!(first_answers_py, module)?)?;
    module.add_function(wrap_pyfunction!(make_ledger, module)?)?;
    module.add_function(wrap_pyfunction!(target_words, module)?)
}

/// Link exchanges by the ids that they show; see `tracer/_core.pyi`.
#[pyfunction]
fn link_by_id<'py>(
    py: Python<'py>,
    exchanges: &Bound<'py, PyDict>,
    most_with_one_id: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let exchange_id = column::<i64>(exchanges, "exchange_id")?;
    let shown_id = column::<u64>(exchanges, "shown_id")?;
    let (client, server) = (
        column::<i32>(exchanges, "client_host")?,
        column::<i32>(exchanges, "server_host")?,
    );
    let service = column::<i32>(exchanges, "service")?;
    let (asked, opened) = (
        column::<i64>(exchanges, "asked_ns")?,
        column::<i64>(exchanges, "opened_ns")?,
    );
    let closed = column::<i64>(exchanges, "closed_ns")?;
    let exchanges = Exchanges {
        exchange_id: exchange_id.as_slice()?,
        shown_id: shown_id.as_slice()?,
        client_host: client.as_slice()?,
        server_host: server.as_slice()?,
        service: service.as_slice()?,
        asked_ns: asked.as_slice()?,
        opened_ns: opened.as_slice()?,
        closed_ns: closed.as_slice()?,
    };
    if !exchanges.is_consistent() {
        return Err(differ());
    }
    let links = py.detach(|| link(&exchanges, most_with_one_id));
    let columns = PyDict::new(py);
    columns.set_item("parent", links.parent.into_pyarray(py))?;
    columns.set_item("confidence", links.confidence.into_pyarray(py))?;
    columns.set_item("shows_id", links.shows_id.into_pyarray(py))?;
    Ok(columns)
}

/// Root and depth of every row; see `tracer/_core.pyi`.
#[pyfunction]
fn trace_forest<'py>(py: Python<'py>, parent: PyReadonlyArray1<'py, i64>) -> PyResult<Bound<'py, PyDict>> {
    let parent = parent.as_slice()?;
    let count = i64::try_from(parent.len())?;
    if parent.iter().any(|&of| of >= count) {
        return Err(PyValueError::new_err("a parent is beyond the last row"));
    }
    let found = py.detach(|| forest(parent));
    let columns = PyDict::new(py);
    columns.set_item("root", found.root.into_pyarray(py))?;
    columns.set_item("depth", found.depth.into_pyarray(py))?;
    Ok(columns)
}

type Waits<'py> = Bound<'py, PyArray1<i64>>;

/// When requests were taken up; see `tracer/_core.pyi`.
#[pyfunction(name = "taken_up")]
fn taken_up_py<'py>(
    py: Python<'py>,
    exchanges: &Bound<'py, PyDict>,
    unhurried: f64,
    fewest: usize,
) -> PyResult<Waits<'py>> {
    let (parent, began) = (
        column::<i64>(exchanges, "parent")?,
        column::<i64>(exchanges, "began_ns")?,
    );
    let (asked, arrived) = (
        column::<i64>(exchanges, "asked_ns")?,
        column::<i64>(exchanges, "arrived_ns")?,
    );
    let service = column::<i32>(exchanges, "service")?;
    let (parent, service) = (parent.as_slice()?, service.as_slice()?);
    let times = [began.as_slice()?, asked.as_slice()?, arrived.as_slice()?];
    if times.iter().any(|column| column.len() != parent.len()) || service.len() != parent.len() {
        return Err(differ());
    }
    let found = py.detach(|| taken_up(parent, times[0], times[1], times[2], service, (unhurried, fewest)));
    Ok(found.into_pyarray(py))
}

/// First answers of servers asked at once; see `tracer/_core.pyi`.
#[pyfunction(name = "first_answers")]
fn first_answers_py<'py>(py: Python<'py>, exchanges: &Bound<'py, PyDict>) -> PyResult<Waits<'py>> {
    let (parent, began) = (
        column::<i64>(exchanges, "parent")?,
        column::<i64>(exchanges, "began_ns")?,
    );
    let (ended, service) = (
        column::<i64>(exchanges, "ended_ns")?,
        column::<i32>(exchanges, "service")?,
    );
    let (parent, service) = (parent.as_slice()?, service.as_slice()?);
    let times = [began.as_slice()?, ended.as_slice()?];
    if times.iter().any(|column| column.len() != parent.len()) || service.len() != parent.len() {
        return Err(differ());
    }
    let found = py.detach(|| first_answers(parent, times[0], times[1], service));
    Ok(found.into_pyarray(py))
}

/// The ledger of every span; see `tracer/_core.pyi`.
#[pyfunction]
fn make_ledger<'py>(py: Python<'py>, nodes: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let long = |name: &str| column::<i64>(nodes, name);
    let (parent, depth, start) = (long("parent")?, long("depth")?, long("start")?);
    let (connected, sent, head_arrived) = (long("connected")?, long("sent")?, long("head_arrived")?);
    let (continued, asked_for, body_sent) = (long("continued")?, long("asked_for")?, long("body_sent")?);
    let (arrived, answered) = (long("arrived")?, long("answered")?);
    let (first_returned, ended) = (long("first_returned")?, long("ended")?);
    let (taken_up, first_answered) = (long("taken_up")?, long("first_answered")?);
    let (connect_stall, request_stall) = (long("connect_stall")?, long("request_stall")?);
    let response_stall = long("response_stall")?;
    let nodes = Nodes {
        parent: parent.as_slice()?,
        depth: depth.as_slice()?,
        start: start.as_slice()?,
        connected: connected.as_slice()?,
        sent: sent.as_slice()?,
        head_arrived: head_arrived.as_slice()?,
        continued: continued.as_slice()?,
        asked_for: asked_for.as_slice()?,
        body_sent: body_sent.as_slice()?,
        arrived: arrived.as_slice()?,
        answered: answered.as_slice()?,
        first_returned: first_returned.as_slice()?,
        ended: ended.as_slice()?,
        taken_up: taken_up.as_slice()?,
        first_answered: first_answered.as_slice()?,
        connect_stall: connect_stall.as_slice()?,
        request_stall: request_stall.as_slice()?,
        response_stall: response_stall.as_slice()?,
    };
    if !nodes.is_consistent() {
        return Err(differ());
    }
    let ledger = py.detach(|| share_out(&nodes));
    let columns = PyDict::new(py);
    for (name, stretch) in STRETCH_NAMES.into_iter().zip(ledger.stretches) {
        columns.set_item(name, stretch.into_pyarray(py))?;
    }
    columns.set_item("window_start", ledger.window_start.into_pyarray(py))?;
    columns.set_item("window_end", ledger.window_end.into_pyarray(py))?;
    Ok(columns)
}

/// A word of each target; see `tracer/_core.pyi`.
#[pyfunction]
fn target_words<'py>(
    py: Python<'py>,
    targets: &Bound<'py, PyDict>,
    prefix: &str,
    place: usize,
) -> PyResult<(Bound<'py, PyArray1<i32>>, Vec<String>)> {
    let (offsets, bytes) = (column::<i32>(targets, "offsets")?, column::<u8>(targets, "bytes")?);
    let wanted = column::<bool>(targets, "wanted")?;
    let texts = Texts {
        offsets: offsets.as_slice()?,
        bytes: bytes.as_slice()?,
    };
    let wanted = wanted.as_slice()?;
    if !texts.is_consistent() || texts.offsets.len() != wanted.len() + 1 {
        return Err(PyValueError::new_err(
            "columns differ in length, or offsets lead nowhere",
        ));
    }
    let (codes, names) = py.detach(|| words(&texts, wanted, prefix.as_bytes(), place));
    Ok((codes.into_pyarray(py), names))
}

const STRETCH_NAMES: [&str; twintap_spans::STRETCHES] = [
    "client_ns",
    "connect_ns",
    "request_network_ns",
    "queue_ns",
    "work_ns",
    "quorum_ns",
    "response_network_ns",
    "stall_ns",
];

fn differ() -> PyErr {
    PyValueError::new_err("columns differ in length")
}
