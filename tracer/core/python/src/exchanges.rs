//! `build_exchanges`: columns of hops, heads and connections in, columns of exchanges out.

use numpy::IntoPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_exchanges::{Connections, Exchange, Heads, Hops, NO_ROW, UNSEEN, build};
use twintap_partitions::columns::Validity;

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_exchanges_py, module)?)
}

/// Cut connections into exchanges; see `tracer/_core.pyi`.
#[pyfunction(name = "build_exchanges")]
fn build_exchanges_py<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    heads: &Bound<'py, PyDict>,
    connections: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let kind = column::<u8>(hops, "kind")?;
    let hop_connection = column::<i64>(hops, "connection_id")?;
    let hop_from_client = column::<bool>(hops, "from_client")?;
    let (stream_start, stream_end) = (column::<i64>(hops, "stream_start")?, column::<i64>(hops, "stream_end")?);
    let (sent_ns, received_ns) = (column::<i64>(hops, "sent_ns")?, column::<i64>(hops, "received_ns")?);
    let uncertainty_ns = column::<i64>(hops, "uncertainty_ns")?;
    let hops = Hops {
        connection_id: hop_connection.as_slice()?,
        kind: kind.as_slice()?,
        from_client: hop_from_client.as_slice()?,
        stream_start: stream_start.as_slice()?,
        stream_end: stream_end.as_slice()?,
        sent_ns: sent_ns.as_slice()?,
        received_ns: received_ns.as_slice()?,
        uncertainty_ns: uncertainty_ns.as_slice()?,
    };
    let head_connection = column::<i64>(heads, "connection_id")?;
    let (head_from_client, cut) = (column::<bool>(heads, "from_client")?, column::<bool>(heads, "cut")?);
    let (stream_offset, head_kind) = (
        column::<i64>(heads, "stream_offset")?,
        column::<u8>(heads, "head_kind")?,
    );
    let (head_len, content_length) = (
        column::<i64>(heads, "head_len")?,
        column::<i64>(heads, "content_length")?,
    );
    let (status, asks_head) = (column::<u16>(heads, "status")?, column::<bool>(heads, "asks_head")?);
    let target_len = column::<i64>(heads, "target_len")?;
    let (id_offsets, id_bytes) = (column::<i32>(heads, "id_offsets")?, column::<u8>(heads, "id_bytes")?);
    let heads = Heads {
        connection_id: head_connection.as_slice()?,
        from_client: head_from_client.as_slice()?,
        stream_offset: stream_offset.as_slice()?,
        head_kind: head_kind.as_slice()?,
        cut: cut.as_slice()?,
        head_len: head_len.as_slice()?,
        content_length: content_length.as_slice()?,
        status: status.as_slice()?,
        asks_head: asks_head.as_slice()?,
        target_len: target_len.as_slice()?,
        id_offsets: id_offsets.as_slice()?,
        id_bytes: id_bytes.as_slice()?,
    };
    let connection_id = column::<i64>(connections, "connection_id")?;
    let handshake = column::<bool>(connections, "handshake")?;
    let connections = Connections {
        connection_id: connection_id.as_slice()?,
        handshake: handshake.as_slice()?,
    };
    if !hops.is_consistent() || !heads.is_consistent() || connections.connection_id.len() != connections.handshake.len()
    {
        return Err(PyValueError::new_err(
            "columns differ in length, or offsets lead nowhere",
        ));
    }
    let (longs, rows, flags, hop_exchange) = py.detach(|| {
        let built = build(&hops, &heads, &connections);
        (
            by_column(&built.exchanges, LONGS).map(|values| Nullable::of(values, UNSEEN)),
            by_column(&built.exchanges, ROWS).map(|values| Nullable::of(values, NO_ROW)),
            by_column(&built.exchanges, FLAGS),
            Nullable::of(built.hop_exchange, NO_ROW),
        )
    });
    let columns = PyDict::new(py);
    for ((name, _), values) in LONGS.into_iter().zip(longs) {
        values.put(&columns, name)?;
    }
    for ((name, _), values) in ROWS.into_iter().zip(rows) {
        values.put(&columns, name)?;
    }
    for ((name, _), values) in FLAGS.into_iter().zip(flags) {
        columns.set_item(name, values.into_pyarray(py))?;
    }
    hop_exchange.put(&columns, "hop_exchange")?;
    Ok(columns)
}

/// A column of numbers, and which of them are known.
struct Nullable {
    values: Vec<i64>,
    validity: Validity,
}

impl Nullable {
    fn of(values: Vec<i64>, missing: i64) -> Self {
        let validity = Validity::of(values.iter().map(|&value| value != missing));
        Self { values, validity }
    }

    fn put(self, columns: &Bound<'_, PyDict>, name: &str) -> PyResult<()> {
        let py = columns.py();
        columns.set_item(name, self.values.into_pyarray(py))?;
        columns.set_item(format!("{name}_validity"), self.validity.bits.into_pyarray(py))
    }
}

/// So many exchanges are taken apart at once: they stay in the first cache.
const BLOCK: usize = 64;

fn by_column<T, const COUNT: usize>(exchanges: &[Exchange], columns: [Column<T>; COUNT]) -> [Vec<T>; COUNT] {
    let mut found = std::array::from_fn(|_| Vec::with_capacity(exchanges.len()));
    for block in exchanges.chunks(BLOCK) {
        for (values, (_, value)) in found.iter_mut().zip(columns) {
            values.extend(block.iter().map(value));
        }
    }
    found
}

type Column<T> = (&'static str, fn(&Exchange) -> T);

const LONGS: [Column<i64>; 20] = [
    ("connection", |one| one.connection.into()),
    ("request_first_sent_trace_ns", |one| one.request.first_sent_ns),
    ("request_first_received_trace_ns", |one| one.request.first_received_ns),
    ("request_last_sent_trace_ns", |one| one.request.last_sent_ns),
    ("request_last_received_trace_ns", |one| one.request.last_received_ns),
    ("request_head_received_trace_ns", |one| one.request.head_received_ns),
    ("response_first_sent_trace_ns", |one| one.response.first_sent_ns),
    ("response_first_received_trace_ns", |one| one.response.first_received_ns),
    ("response_last_sent_trace_ns", |one| one.response.last_sent_ns),
    ("response_last_received_trace_ns", |one| one.response.last_received_ns),
    ("response_head_received_trace_ns", |one| one.response.head_received_ns),
    ("connect_start_trace_ns", |one| one.connect_start_ns),
    ("connected_trace_ns", |one| one.connected_ns),
    ("continue_sent_trace_ns", |one| one.continue_sent_ns),
    ("continue_received_trace_ns", |one| one.continue_received_ns),
    ("body_sent_trace_ns", |one| one.body_sent_ns),
    ("given_up_trace_ns", |one| one.given_up_ns),
    ("uncertainty_ns", |one| one.uncertainty_ns),
    ("request_bytes", |one| one.request.bytes),
    ("response_bytes", |one| one.response.bytes),
];

const ROWS: [Column<i64>; 4] = [
    ("request_row", |one| one.request_row),
    ("response_row", |one| one.response_row),
    ("id_row", |one| one.id_row),
    ("other_id_row", |one| one.other_id_row),
];

const FLAGS: [Column<bool>; 3] = [
    ("swapped", |one| one.swapped),
    ("readable", |one| one.readable),
    ("complete", |one| one.complete),
];
