//! Links by transaction id, waits and ledgers: columns of exchanges in, columns of spans out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_spans::{
    Exchanges, Nodes, Piece, Shape, Silences, Texts, Waiting, first_known, forest, link, places, share_out,
    text_numbers, waits, words,
};

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(link_by_id, module)?)?;
    module.add_function(wrap_pyfunction!(trace_forest, module)?)?;
    module.add_function(wrap_pyfunction!(first_known_py, module)?)?;
    module.add_function(wrap_pyfunction!(text_numbers_py, module)?)?;
    module.add_function(wrap_pyfunction!(waits_py, module)?)?;
    module.add_function(wrap_pyfunction!(make_ledger, module)?)?;
    module.add_function(wrap_pyfunction!(places_py, module)?)?;
    module.add_function(wrap_pyfunction!(target_words, module)?)
}

/// Link exchanges by the ids that they show; see `collector/_core.pyi`.
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

/// Root and depth of every row; see `collector/_core.pyi`.
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

/// Values of consecutive rows, which of them are known (a bit each, or nothing), and where these bits begin.
type PieceColumns<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u8>, usize);

fn piece<'a>((values, validity, first_bit): &'a PieceColumns) -> PyResult<Piece<'a>> {
    Ok(Piece {
        values: values.as_slice()?,
        validity: validity.as_slice()?,
        first_bit: *first_bit,
    })
}

/// The first of some columns that is known; see `collector/_core.pyi`.
#[pyfunction(name = "first_known")]
fn first_known_py<'py>(
    py: Python<'py>,
    columns: Vec<Vec<PieceColumns<'py>>>,
    missing: i64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let pieces: Vec<Vec<Piece>> = columns
        .iter()
        .map(|column| column.iter().map(piece).collect())
        .collect::<PyResult<_>>()?;
    let cut = |column: &Vec<Piece>| column.iter().map(|piece| piece.values.len()).collect::<Vec<_>>();
    let alike = pieces.windows(2).all(|pair| cut(&pair[0]) == cut(&pair[1]));
    if !alike || !pieces.iter().flatten().all(Piece::is_consistent) {
        return Err(differ());
    }
    Ok(py.detach(|| first_known(&pieces, missing)).into_pyarray(py))
}

/// A number for each text; see `collector/_core.pyi`.
#[pyfunction(name = "text_numbers")]
fn text_numbers_py<'py>(py: Python<'py>, texts: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (offsets, bytes) = (column::<i32>(texts, "offsets")?, column::<u8>(texts, "bytes")?);
    let texts = Texts {
        offsets: offsets.as_slice()?,
        bytes: bytes.as_slice()?,
    };
    if !texts.is_consistent() {
        return Err(differ());
    }
    Ok(py.detach(|| text_numbers(&texts)).into_pyarray(py))
}

/// What requests waited for; see `collector/_core.pyi`.
#[pyfunction(name = "waits")]
fn waits_py<'py>(
    py: Python<'py>,
    exchanges: &Bound<'py, PyDict>,
    unhurried: f64,
    fewest: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let long = |name: &str| column::<i64>(exchanges, name);
    let (parent, began, ended) = (long("parent")?, long("began_ns")?, long("ended_ns")?);
    let (asked, arrived) = (long("asked_ns")?, long("arrived_ns")?);
    let service = column::<i32>(exchanges, "service")?;
    let exchanges = Waiting {
        parent: parent.as_slice()?,
        began_ns: began.as_slice()?,
        ended_ns: ended.as_slice()?,
        asked_ns: asked.as_slice()?,
        arrived_ns: arrived.as_slice()?,
        service: service.as_slice()?,
    };
    if !exchanges.is_consistent() {
        return Err(differ());
    }
    let found = py.detach(|| waits(&exchanges, unhurried, fewest));
    let columns = PyDict::new(py);
    columns.set_item("taken_up", found.taken_up.into_pyarray(py))?;
    columns.set_item("first_answered", found.first_answered.into_pyarray(py))?;
    Ok(columns)
}

/// The ledger of every span; see `collector/_core.pyi`.
#[pyfunction]
fn make_ledger<'py>(
    py: Python<'py>,
    nodes: &Bound<'py, PyDict>,
    silences: &Bound<'py, PyDict>,
    with_windows: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let long = |name: &str| column::<i64>(nodes, name);
    let (parent, depth, start) = (long("parent")?, long("depth")?, long("start")?);
    let (connected, tls_start, tls_end) = (long("connected")?, long("tls_start")?, long("tls_end")?);
    let (sent, last_sent, head_arrived) = (long("sent")?, long("last_sent")?, long("head_arrived")?);
    let (continued, asked_for, body_sent) = (long("continued")?, long("asked_for")?, long("body_sent")?);
    let (arrived, answered) = (long("arrived")?, long("answered")?);
    let first_received = long("first_received")?;
    let (first_returned, ended) = (long("first_returned")?, long("ended")?);
    let (taken_up, first_answered) = (long("taken_up")?, long("first_answered")?);
    let (connect_stall, request_stall) = (long("connect_stall")?, long("request_stall")?);
    let response_stall = long("response_stall")?;
    let nodes = Nodes {
        parent: parent.as_slice()?,
        depth: depth.as_slice()?,
        start: start.as_slice()?,
        connected: connected.as_slice()?,
        tls_start: tls_start.as_slice()?,
        tls_end: tls_end.as_slice()?,
        sent: sent.as_slice()?,
        last_sent: last_sent.as_slice()?,
        head_arrived: head_arrived.as_slice()?,
        continued: continued.as_slice()?,
        asked_for: asked_for.as_slice()?,
        body_sent: body_sent.as_slice()?,
        arrived: arrived.as_slice()?,
        answered: answered.as_slice()?,
        first_received: first_received.as_slice()?,
        first_returned: first_returned.as_slice()?,
        ended: ended.as_slice()?,
        taken_up: taken_up.as_slice()?,
        first_answered: first_answered.as_slice()?,
        connect_stall: connect_stall.as_slice()?,
        request_stall: request_stall.as_slice()?,
        response_stall: response_stall.as_slice()?,
    };
    let (row, from_ns, to_ns) = (
        column::<i64>(silences, "row")?,
        column::<i64>(silences, "from_ns")?,
        column::<i64>(silences, "to_ns")?,
    );
    let (in_response, cause) = (
        column::<bool>(silences, "in_response")?,
        column::<u8>(silences, "cause")?,
    );
    let (short_row, short_ns) = (
        column::<i64>(silences, "short_row")?,
        column::<i64>(silences, "short_ns")?,
    );
    let (short_in_response, short_cause) = (
        column::<bool>(silences, "short_in_response")?,
        column::<u8>(silences, "short_cause")?,
    );
    let silences = Silences {
        row: row.as_slice()?,
        in_response: in_response.as_slice()?,
        cause: cause.as_slice()?,
        from_ns: from_ns.as_slice()?,
        to_ns: to_ns.as_slice()?,
        short_row: short_row.as_slice()?,
        short_in_response: short_in_response.as_slice()?,
        short_cause: short_cause.as_slice()?,
        short_ns: short_ns.as_slice()?,
    };
    if !nodes.is_consistent() || !silences.is_consistent(nodes.parent.len()) {
        return Err(differ());
    }
    let ledger = py.detach(|| share_out(&nodes, &silences, with_windows));
    let columns = PyDict::new(py);
    for (name, stretch) in STRETCH_NAMES.into_iter().zip(ledger.stretches) {
        columns.set_item(name, stretch.into_pyarray(py))?;
    }
    columns.set_item("critical_ns", ledger.critical.into_pyarray(py))?;
    columns.set_item("window_start", ledger.window_start.into_pyarray(py))?;
    columns.set_item("window_end", ledger.window_end.into_pyarray(py))?;
    Ok(columns)
}

/// Texts laid end to end: where each begins, and their bytes.
type TextColumns<'py> = (PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, u8>);

/// A word of each target; see `collector/_core.pyi`.
#[pyfunction]
fn target_words<'py>(
    py: Python<'py>,
    targets: Vec<TextColumns<'py>>,
    services: PyReadonlyArray1<'py, i32>,
    shapes: Vec<(i32, String, usize)>,
) -> PyResult<(Bound<'py, PyArray1<i32>>, Vec<String>)> {
    let parts: Vec<Texts> = targets
        .iter()
        .map(|(offsets, bytes)| {
            Ok(Texts {
                offsets: offsets.as_slice()?,
                bytes: bytes.as_slice()?,
            })
        })
        .collect::<PyResult<_>>()?;
    let services = services.as_slice()?;
    let count = |texts: &Texts| texts.offsets.len().saturating_sub(1);
    if !parts.iter().all(Texts::is_consistent) || parts.iter().map(count).sum::<usize>() != services.len() {
        return Err(PyValueError::new_err(
            "columns differ in length, or offsets lead nowhere",
        ));
    }
    let shapes: Vec<Shape> = shapes
        .iter()
        .map(|(kind, prefix, place)| Shape {
            kind: *kind,
            prefix: prefix.as_bytes(),
            place: *place,
        })
        .collect();
    let found = py.detach(|| words(&parts, services, &shapes));
    Ok((found.codes.into_pyarray(py), found.names))
}

/// Where ids stand; see `collector/_core.pyi`.
#[pyfunction(name = "places")]
fn places_py<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, i64>,
    wanted: Vec<PyReadonlyArray1<'py, i64>>,
    stride_bits: u32,
) -> PyResult<Vec<Bound<'py, PyArray1<i64>>>> {
    let ids = ids.as_slice()?;
    let wanted: Vec<&[i64]> = wanted
        .iter()
        .map(|column| column.as_slice())
        .collect::<Result<_, _>>()?;
    if u32::try_from(ids.len()).is_err() || stride_bits >= 63 {
        return Err(PyValueError::new_err(
            "too many ids, or a stride beyond a number of 64 bits",
        ));
    }
    let found = py.detach(|| places(ids, &wanted, stride_bits));
    Ok(found.into_iter().map(|column| column.into_pyarray(py)).collect())
}

const STRETCH_NAMES: [&str; twintap_spans::STRETCHES] = [
    "client_ns",
    "connect_ns",
    "tls_ns",
    "request_network_ns",
    "queue_ns",
    "work_ns",
    "fan_out_wait_ns",
    "server_or_network_ns",
    "response_network_ns",
    "stall_ns",
    "request_idle_ns",
    "response_idle_ns",
    "send_held_ns",
    "reader_wait_ns",
];

fn differ() -> PyErr {
    PyValueError::new_err("columns differ in length")
}
