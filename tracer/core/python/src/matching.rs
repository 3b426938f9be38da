//! `match_events`: columns of events in, columns of hops and connections out.

use numpy::IntoPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_matching::{Connections, Events, FourTuple, Hops, Matched, NO_EVENT, match_events};

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(match_events_py, module)?)
}

/// Pair all transfers; see `tracer/_core.pyi`.
#[pyfunction(name = "match_events")]
fn match_events_py<'py>(py: Python<'py>, columns: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let host = column::<u16>(columns, "host")?;
    let point = column::<u16>(columns, "point")?;
    let host_ns = column::<i64>(columns, "host_ns")?;
    let direction = column::<u8>(columns, "direction")?;
    let (src_addr, dst_addr) = (column::<u32>(columns, "src_addr")?, column::<u32>(columns, "dst_addr")?);
    let (src_port, dst_port) = (column::<u16>(columns, "src_port")?, column::<u16>(columns, "dst_port")?);
    let (seq, ack) = (column::<u32>(columns, "seq")?, column::<u32>(columns, "ack")?);
    let (flags, window) = (column::<u16>(columns, "flags")?, column::<u16>(columns, "window")?);
    let payload_len = column::<u32>(columns, "payload_len")?;
    let ip_id = column::<i32>(columns, "ip_id")?;
    let (tsval, tsecr) = (column::<u32>(columns, "tsval")?, column::<u32>(columns, "tsecr")?);
    let options = column::<u8>(columns, "options")?;
    let mss = column::<u16>(columns, "mss")?;
    let sack_hash = column::<u32>(columns, "sack_hash")?;
    let frame = column::<u32>(columns, "frame")?;
    let host_of_address = column::<u16>(columns, "host_of_address")?;
    let events = Events {
        host: host.as_slice()?,
        point: point.as_slice()?,
        host_ns: host_ns.as_slice()?,
        direction: direction.as_slice()?,
        src_addr: src_addr.as_slice()?,
        dst_addr: dst_addr.as_slice()?,
        src_port: src_port.as_slice()?,
        dst_port: dst_port.as_slice()?,
        seq: seq.as_slice()?,
        ack: ack.as_slice()?,
        flags: flags.as_slice()?,
        window: window.as_slice()?,
        payload_len: payload_len.as_slice()?,
        ip_id: ip_id.as_slice()?,
        tsval: tsval.as_slice()?,
        tsecr: tsecr.as_slice()?,
        options: options.as_slice()?,
        mss: mss.as_slice()?,
        sack_hash: sack_hash.as_slice()?,
        host_of_address: host_of_address.as_slice()?,
    };
    if events.len_checked().is_none() {
        return Err(PyValueError::new_err("event columns differ in length"));
    }
    let frames = frame.as_slice()?;
    if frames.len() != events.host.len() {
        return Err(PyValueError::new_err("event columns differ in length"));
    }
    let (matched, ends) = py.detach(|| {
        let matched = match_events(&events);
        let ends =
            [&matched.hops.send_event, &matched.hops.receive_event].map(|of| End::of(of, frames, events.host_ns));
        (matched, ends)
    });
    as_columns(py, matched, ends)
}

/// Frame and stamp of each hop's event at one end; 0 where there is none.
struct End {
    frame: Vec<u32>,
    host_ns: Vec<i64>,
}

impl End {
    fn of(hop_events: &[u32], frames: &[u32], host_ns: &[i64]) -> Self {
        let known = |&event: &u32| usize::try_from(event).ok().filter(|_| event != NO_EVENT);
        Self {
            frame: hop_events.iter().map(|e| known(e).map_or(0, |e| frames[e])).collect(),
            host_ns: hop_events.iter().map(|e| known(e).map_or(0, |e| host_ns[e])).collect(),
        }
    }
}

fn as_columns(py: Python<'_>, matched: Matched, ends: [End; 2]) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let events = PyDict::new(py);
    events.set_item("connection", matched.event_connection.into_pyarray(py))?;
    events.set_item("from_client", matched.event_from_client.into_pyarray(py))?;
    events.set_item("stream_offset", matched.event_stream_offset.into_pyarray(py))?;
    events.set_item("duplicate", matched.event_duplicate.into_pyarray(py))?;
    columns.set_item("events", events)?;
    columns.set_item("hops", hop_columns(py, matched.hops, ends)?)?;
    columns.set_item("connections", connection_columns(py, matched.connections)?)?;
    Ok(columns)
}

fn hop_columns(py: Python<'_>, hops: Hops, [send, receive]: [End; 2]) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("connection", hops.connection.into_pyarray(py))?;
    columns.set_item("kind", hops.kind.into_pyarray(py))?;
    columns.set_item("from_client", hops.from_client.into_pyarray(py))?;
    columns.set_item("send_frame", send.frame.into_pyarray(py))?;
    columns.set_item("send_host_ns", send.host_ns.into_pyarray(py))?;
    columns.set_item("receive_frame", receive.frame.into_pyarray(py))?;
    columns.set_item("receive_host_ns", receive.host_ns.into_pyarray(py))?;
    columns.set_item("send_host", hops.send_host.into_pyarray(py))?;
    columns.set_item("receive_host", hops.receive_host.into_pyarray(py))?;
    columns.set_item("stream_start", hops.stream_start.into_pyarray(py))?;
    columns.set_item("stream_end", hops.stream_end.into_pyarray(py))?;
    columns.set_item("attempt", hops.attempt.into_pyarray(py))?;
    columns.set_item("state", hops.state.into_pyarray(py))?;
    Ok(columns)
}

fn connection_columns(py: Python<'_>, connections: Connections) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    columns.set_item("client_addr", connections.client_addr.into_pyarray(py))?;
    columns.set_item("client_port", connections.client_port.into_pyarray(py))?;
    columns.set_item("server_addr", connections.server_addr.into_pyarray(py))?;
    columns.set_item("server_port", connections.server_port.into_pyarray(py))?;
    columns.set_item("client_host", connections.client_host.into_pyarray(py))?;
    columns.set_item("server_host", connections.server_host.into_pyarray(py))?;
    columns.set_item("client_isn", connections.client_isn.into_pyarray(py))?;
    columns.set_item("server_isn", connections.server_isn.into_pyarray(py))?;
    columns.set_item("first_host_ns", connections.first_host_ns.into_pyarray(py))?;
    columns.set_item("last_host_ns", connections.last_host_ns.into_pyarray(py))?;
    columns.set_item("events_count", connections.events_count.into_pyarray(py))?;
    let translated = || connections.translated.iter();
    let column = |get: fn(&FourTuple) -> u32| translated().map(|(_, t)| get(t)).collect::<Vec<u32>>().into_pyarray(py);
    columns.set_item(
        "translated_row",
        translated().map(|(row, _)| *row).collect::<Vec<u32>>().into_pyarray(py),
    )?;
    columns.set_item("translated_client_addr", column(|t| t.client_addr))?;
    columns.set_item("translated_client_port", column(|t| t.client_port.into()))?;
    columns.set_item("translated_server_addr", column(|t| t.server_addr))?;
    columns.set_item("translated_server_port", column(|t| t.server_port.into()))?;
    Ok(columns)
}
