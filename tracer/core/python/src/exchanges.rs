//! `build_exchanges`: columns of hops, heads and connections in, columns of exchanges out; `rows_behind` of these.

use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_exchanges::{
    Answered, Built, Connections, Exchange, Heads, Hops, NO_ROW, NOWHERE, Texts, UNSEEN, behind, build,
};
use twintap_partitions::columns::Validity;

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_exchanges_py, module)?)?;
    module.add_function(wrap_pyfunction!(rows_behind, module)?)
}

/// Cut connections into exchanges; see `tracer/_core.pyi`.
#[pyfunction(name = "build_exchanges")]
fn build_exchanges_py<'py>(
    py: Python<'py>,
    hops: &Bound<'py, PyDict>,
    heads: &Bound<'py, PyDict>,
    connections: &Bound<'py, PyDict>,
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
    let target_offsets = column::<i32>(heads, "target_offsets")?;
    let (method_offsets, method_bytes) = (
        column::<i32>(heads, "method_offsets")?,
        column::<u8>(heads, "method_bytes")?,
    );
    let (id_offsets, id_bytes) = (column::<i32>(heads, "id_offsets")?, column::<u8>(heads, "id_bytes")?);
    let heads = Heads {
        connection_id: head_connection.as_slice()?,
        from_client: head_from_client.as_slice()?,
        stream_offset: stream_offset.as_slice()?,
        head_kind: head_kind.as_slice()?,
        flags: flags.as_slice()?,
        head_len: head_len.as_slice()?,
        content_length: content_length.as_slice()?,
        status: status.as_slice()?,
        method: Texts {
            offsets: method_offsets.as_slice()?,
            bytes: method_bytes.as_slice()?,
        },
        target_offsets: target_offsets.as_slice()?,
        id: Texts {
            offsets: id_offsets.as_slice()?,
            bytes: id_bytes.as_slice()?,
        },
    };
    let (connection_id, handshake) = (
        column::<i64>(connections, "connection_id")?,
        column::<bool>(connections, "handshake")?,
    );
    let hosts = ["client_host", "server_host"].map(|name| column::<i32>(connections, name));
    let ports = ["client_port", "server_port"].map(|name| column::<u16>(connections, name));
    let ([client_host, server_host], [client_port, server_port]) = (hosts, ports);
    let (client_host, server_host, client_port, server_port) = (client_host?, server_host?, client_port?, server_port?);
    let connections = Connections {
        connection_id: connection_id.as_slice()?,
        handshake: handshake.as_slice()?,
    };
    let ends = Ends {
        hosts: [client_host.as_slice()?, server_host.as_slice()?],
        ports: [client_port.as_slice()?, server_port.as_slice()?],
    };
    if !hops.is_consistent() || !heads.is_consistent() || !connections.is_consistent() || !ends.are_of(&connections) {
        return Err(inconsistent());
    }
    let (table, hop_exchange) = py.detach(|| {
        let built = build(&hops, &heads, &connections);
        (
            Table::of(&built, &heads, &connections, &ends),
            hop_exchange(&built, first_id),
        )
    });
    let columns = PyDict::new(py);
    table.put(&columns)?;
    hop_exchange.put(&columns, "hop_exchange")?;
    Ok(columns)
}

fn inconsistent() -> PyErr {
    PyValueError::new_err("columns differ in length, or offsets lead nowhere")
}

/// Rows of requests that waited, and of those that they waited for.
type RowsBehind<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// Requests that waited for the answer to the one before; see `tracer/_core.pyi`.
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

/// Of each connection, what its client and its server are: places of hosts (-1: not known), and ports.
struct Ends<'a> {
    hosts: [&'a [i32]; 2],
    ports: [&'a [u16]; 2],
}

impl Ends<'_> {
    fn are_of(&self, connections: &Connections) -> bool {
        let count = connections.connection_id.len();
        self.hosts.iter().all(|column| column.len() == count) && self.ports.iter().all(|column| column.len() == count)
    }
}

/// A column of numbers, and which of them are known.
struct Nullable<T> {
    values: Vec<T>,
    validity: Validity,
}

impl<T: Copy + PartialEq + Element> Nullable<T> {
    fn of(values: Vec<T>, missing: T) -> Self {
        let validity = Validity::but(&values, missing);
        Self { values, validity }
    }

    fn put(self, columns: &Bound<'_, PyDict>, name: &str) -> PyResult<()> {
        let py = columns.py();
        columns.set_item(name, self.values.into_pyarray(py))?;
        columns.set_item(format!("{name}_validity"), self.validity.bits.into_pyarray(py))
    }
}

/// Names of columns, and of an exchange a value for each of them.
macro_rules! columns {
    ($names:ident, $values:ident: $($name:literal = |$one:ident| $value:expr),+ $(,)?) => {
        const $names: [&str; [$($name),+].len()] = [$($name),+];

        fn $values(one: &Exchange) -> [i64; $names.len()] {
            [$({ let $one = one; $value }),+]
        }
    };
}

columns! { LONGS, longs:
    "request_first_sent_trace_ns" = |one| one.request.first_sent_ns,
    "request_first_received_trace_ns" = |one| one.request.first_received_ns,
    "request_last_sent_trace_ns" = |one| one.request.last_sent_ns,
    "request_last_received_trace_ns" = |one| one.request.last_received_ns,
    "request_head_received_trace_ns" = |one| one.request.head_received_ns,
    "response_first_sent_trace_ns" = |one| one.response.first_sent_ns,
    "response_first_received_trace_ns" = |one| one.response.first_received_ns,
    "response_last_sent_trace_ns" = |one| one.response.last_sent_ns,
    "response_last_received_trace_ns" = |one| one.response.last_received_ns,
    "response_head_received_trace_ns" = |one| one.response.head_received_ns,
    "connect_start_trace_ns" = |one| one.connect_start_ns,
    "connected_trace_ns" = |one| one.connected_ns,
    "continue_sent_trace_ns" = |one| one.continue_sent_ns,
    "continue_received_trace_ns" = |one| one.continue_received_ns,
    "body_sent_trace_ns" = |one| one.body_sent_ns,
    "given_up_trace_ns" = |one| one.given_up_ns,
    "uncertainty_ns" = |one| one.uncertainty_ns,
    "request_bytes" = |one| one.request.bytes,
    "response_bytes" = |one| one.response.bytes,
}

columns! { ROWS, rows:
    "request_row" = |one| one.request_row,
    "id_row" = |one| one.id_row,
    "other_id_row" = |one| one.other_id_row,
}

/// Columns of exchanges in order of time.
struct Table {
    longs: [Nullable<i64>; LONGS.len()],
    rows: [Nullable<i64>; ROWS.len()],
    status: Vec<u16>,
    status_validity: Validity,
    connection_id: Vec<i64>,
    /// Who asked and who was asked.
    hosts: [Nullable<i32>; 2],
    /// Ports that were asked, ascending, and of each exchange its port's place there.
    ports: Vec<u16>,
    port_place: Vec<i32>,
    /// 1 if there are heads.
    readable: Vec<i32>,
    complete: Vec<bool>,
}

impl Table {
    fn of(built: &Built, heads: &Heads, connections: &Connections, ends: &Ends) -> Self {
        let count = built.exchanges.len();
        let mut long_columns = LONGS.map(|_| Vec::with_capacity(count));
        let mut row_columns = ROWS.map(|_| Vec::with_capacity(count));
        let mut host_columns = [(); 2].map(|()| Vec::with_capacity(count));
        let (mut status, mut answers) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut connection_id, mut port) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut readable, mut complete) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for one in built.in_order() {
            push_each(&mut long_columns, longs(one));
            push_each(&mut row_columns, rows(one));
            let connection = one.connection as usize;
            let ([client, server], [client_port, server_port]) = (
                ends.hosts.map(|hosts| hosts[connection]),
                ends.ports.map(|ports| ports[connection]),
            );
            let swapped = one.swapped;
            push_each(
                &mut host_columns,
                if swapped { [server, client] } else { [client, server] },
            );
            port.push(if swapped { client_port } else { server_port });
            connection_id.push(connections.connection_id[connection]);
            answers.push(one.response_row);
            status.push(usize::try_from(one.response_row).map_or(0, |row| heads.status[row]));
            readable.push(one.readable.into());
            complete.push(one.complete);
        }
        let (ports, port_place) = numbered(&port);
        Self {
            longs: long_columns.map(|values| Nullable::of(values, UNSEEN)),
            rows: row_columns.map(|values| Nullable::of(values, NO_ROW)),
            status,
            status_validity: Validity::but(&answers, NO_ROW),
            connection_id,
            hosts: host_columns.map(places_of_hosts),
            ports,
            port_place,
            readable,
            complete,
        }
    }

    fn put(self, columns: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = columns.py();
        for (name, values) in LONGS.into_iter().zip(self.longs).chain(ROWS.into_iter().zip(self.rows)) {
            values.put(columns, name)?;
        }
        let status = Nullable {
            values: self.status,
            validity: self.status_validity,
        };
        status.put(columns, "status")?;
        for (name, values) in ["client_host", "server_host"].into_iter().zip(self.hosts) {
            values.put(columns, name)?;
        }
        columns.set_item("connection_id", self.connection_id.into_pyarray(py))?;
        columns.set_item("ports", self.ports.into_pyarray(py))?;
        columns.set_item("port_place", self.port_place.into_pyarray(py))?;
        columns.set_item("readable", self.readable.into_pyarray(py))?;
        columns.set_item("complete", self.complete.into_pyarray(py))
    }
}

const NO_HOST: i32 = -1;

/// Places that lead somewhere even where there is none, as Arrow wants it.
fn places_of_hosts(values: Vec<i32>) -> Nullable<i32> {
    let mut places = Nullable::of(values, NO_HOST);
    places.values.iter_mut().for_each(|place| *place = (*place).max(0));
    places
}

fn push_each<T, const COUNT: usize>(columns: &mut [Vec<T>; COUNT], values: [T; COUNT]) {
    for (column, value) in columns.iter_mut().zip(values) {
        column.push(value);
    }
}

/// The ports that occur, ascending, and of each its place there.
fn numbered(ports: &[u16]) -> (Vec<u16>, Vec<i32>) {
    let mut place = vec![-1; 1 << u16::BITS];
    ports.iter().for_each(|&port| place[usize::from(port)] = 0);
    let occurs = |port: &u16| place[usize::from(*port)] == 0;
    let distinct: Vec<u16> = (0..=u16::MAX).filter(occurs).collect();
    for (number, &port) in distinct.iter().enumerate() {
        place[usize::from(port)] = number as i32;
    }
    let places = ports.iter().map(|&port| place[usize::from(port)]).collect();
    (distinct, places)
}

/// Of each hop the id of its exchange; in order of time they count from `first_id`.
fn hop_exchange(built: &Built, first_id: i64) -> Nullable<i64> {
    let id = |&place: &u32| {
        if place == NOWHERE {
            UNSEEN
        } else {
            first_id + i64::from(place)
        }
    };
    Nullable::of(built.hop_exchange.iter().map(id).collect(), UNSEEN)
}
