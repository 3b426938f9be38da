//! `build_exchanges`: columns of hops, heads and connections in, columns of exchanges out; `rows_behind` of these.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_exchanges::{Answered, Connections, Heads, Hops, Pauses, Texts, behind, build};

use crate::columns::column;
use crate::exchange_table::{Ends, Table, hop_exchange, put_silences, put_streams};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_exchanges_py, module)?)?;
    module.add_function(wrap_pyfunction!(rows_behind, module)?)
}

/// Cut connections into exchanges; see `collector/_core.pyi`.
#[pyfunction(name = "build_exchanges")]
fn build_exchanges_py<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    heads: &Bound<'py, PyDict>,
    connections: &Bound<'py, PyDict>,
    pauses: &Bound<'py, PyDict>,
    first_id: i64,
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
    let (head_from_client, flags) = (
        column::<bool>(heads, "from_client")?,
        column::<u8>(heads, "head_flags")?,
    );
    let (stream_offset, head_kind) = (
        column::<i64>(heads, "stream_offset")?,
        column::<u8>(heads, "head_kind")?,
    );
    let (head_len, content_length) = (
        column::<u32>(heads, "head_len")?,
        column::<i64>(heads, "content_length")?,
    );
    let status = column::<u16>(heads, "status")?;
    let texts = ["method", "target", "id"].map(|name| TextColumns::of(heads, name));
    let [method, target, id] = texts;
    let (method, target, id) = (method?, target?, id?);
    let heads = Heads {
        connection_id: head_connection.as_slice()?,
        from_client: head_from_client.as_slice()?,
        stream_offset: stream_offset.as_slice()?,
        head_kind: head_kind.as_slice()?,
        flags: flags.as_slice()?,
        head_len: head_len.as_slice()?,
        content_length: content_length.as_slice()?,
        status: status.as_slice()?,
        method: method.texts()?,
        target: target.texts()?,
        id: id.texts()?,
    };
    let (connection_id, handshake) = (
        column::<i64>(connections, "connection_id")?,
        column::<bool>(connections, "handshake")?,
    );
    let hosts = ["client_host", "server_host"].map(|name| column::<i32>(connections, name));
    let [client_host, server_host] = hosts;
    let (client_host, server_host, service) = (client_host?, server_host?, column::<i32>(connections, "service")?);
    let connections = Connections {
        connection_id: connection_id.as_slice()?,
        handshake: handshake.as_slice()?,
    };
    let ends = Ends {
        hosts: [client_host.as_slice()?, server_host.as_slice()?],
        service: service.as_slice()?,
    };
    let (paused_connection, paused_from_client) = (
        column::<i64>(pauses, "connection_id")?,
        column::<bool>(pauses, "from_client")?,
    );
    let (stream_offset, is_reader) = (
        column::<i64>(pauses, "stream_offset")?,
        column::<bool>(pauses, "is_reader")?,
    );
    let pauses = Pauses {
        connection_id: paused_connection.as_slice()?,
        from_client: paused_from_client.as_slice()?,
        stream_offset: stream_offset.as_slice()?,
        is_reader: is_reader.as_slice()?,
    };
    if !pauses.is_consistent() {
        return Err(inconsistent());
    }
    if !hops.is_consistent() || !heads.is_consistent() || !connections.is_consistent() || !ends.are_of(&connections) {
        return Err(inconsistent());
    }
    let (built, table, hop_exchange) = py.detach(|| {
        let built = build(&hops, &heads, &connections, &pauses);
        let table = Table::of(&built, &heads, &connections, &ends);
        let hop_exchange = hop_exchange(&built, first_id);
        (built, table, hop_exchange)
    });
    let columns = PyDict::new(py);
    table.put(&columns)?;
    put_silences(&built, first_id, &columns)?;
    put_streams(&built, &connections, &columns)?;
    hop_exchange.put(&columns, "hop_exchange")?;
    Ok(columns)
}

/// Columns of texts as [`Texts`] takes them.
struct TextColumns<'py> {
    offsets: PyReadonlyArray1<'py, i32>,
    bytes: PyReadonlyArray1<'py, u8>,
}

impl<'py> TextColumns<'py> {
    fn of(heads: &Bound<'py, PyDict>, name: &str) -> PyResult<Self> {
        Ok(Self {
            offsets: column(heads, &format!("{name}_offsets"))?,
            bytes: column(heads, &format!("{name}_bytes"))?,
        })
    }

    fn texts(&self) -> PyResult<Texts<'_>> {
        Ok(Texts {
            offsets: self.offsets.as_slice()?,
            bytes: self.bytes.as_slice()?,
        })
    }
}

fn inconsistent() -> PyErr {
    PyValueError::new_err("columns differ in length, or offsets lead nowhere")
}

/// Rows of requests that waited, and of those that they waited for.
type RowsBehind<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// Requests that waited for the answer to the one before; see `collector/_core.pyi`.
#[pyfunction]
fn rows_behind<'py>(
    py: Python<'py>,
    connection_id: PyReadonlyArray1<'py, i64>,
    came_ns: PyReadonlyArray1<'py, i64>,
    free_ns: PyReadonlyArray1<'py, i64>,
    least_ns: i64,
) -> PyResult<RowsBehind<'py>> {
    let exchanges = Answered {
        connection_id: connection_id.as_slice()?,
        came_ns: came_ns.as_slice()?,
        free_ns: free_ns.as_slice()?,
    };
    if !exchanges.is_consistent() {
        return Err(inconsistent());
    }
    let (waiting, answered) = py.detach(|| behind(&exchanges, least_ns));
    Ok((waiting.into_pyarray(py), answered.into_pyarray(py)))
}
