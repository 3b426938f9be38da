//! `match_events`: columns of events in, columns of hops and connections out.

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_matching::{
    Connections, Events, FourTuple, Hops, Matched, NO_EVENT, NO_HOST, Pause, Pauses, host_of_address, match_events,
};
use twintap_partitions::columns::Validity;

use crate::columns::column;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(match_events_py, module)?)
}

/// Pair all transfers; connections are numbered from `first_connection_id`, and `places` are those of the rows `asked`.
/// See `collector/_core.pyi`.
#[pyfunction(name = "match_events")]
fn match_events_py<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyDict>,
    first_connection_id: i64,
    asked: PyReadonlyArray1<'py, u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let asked = asked.as_slice()?;
    let host = column::<u16>(columns, "host")?;
    let point = column::<u16>(columns, "interface")?;
    let host_ns = column::<i64>(columns, "host_ns")?;
    let direction = column::<u8>(columns, "direction")?;
    let (src_addr, dst_addr) = (column::<u32>(columns, "src_end")?, column::<u32>(columns, "dst_end")?);
    let (src_port, dst_port) = (column::<u16>(columns, "src_port")?, column::<u16>(columns, "dst_port")?);
    let (seq, ack) = (column::<u32>(columns, "seq")?, column::<u32>(columns, "ack")?);
    let (flags, window) = (column::<u16>(columns, "flags")?, column::<u16>(columns, "window")?);
    let payload_len = column::<u32>(columns, "payload_len")?;
    let ip_id = column::<i32>(columns, "ip_id")?;
    let (tsval, tsecr) = (column::<u32>(columns, "tsval")?, column::<u32>(columns, "tsecr")?);
    let options = column::<u8>(columns, "options")?;
    let mss = column::<u16>(columns, "mss")?;
    let window_scale = column::<u8>(columns, "window_scale")?;
    let sack_hash = column::<u32>(columns, "sack_hash")?;
    let frame = column::<u32>(columns, "frame")?;
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
        window_scale: window_scale.as_slice()?,
        sack_hash: sack_hash.as_slice()?,
        host_of_address: &[],
    };
    let frames = frame.as_slice()?;
    if events.len_checked() != Some(frames.len()) {
        return Err(PyValueError::new_err("event columns differ in length"));
    }
    if asked.iter().any(|&row| row as usize >= frames.len()) {
        return Err(PyValueError::new_err("no such row"));
    }
    let (matched, ends, duplicates) = py.detach(|| {
        let owners = host_of_address(events.direction, events.host, events.src_addr, events.dst_addr);
        let owned = Events {
            host_of_address: &owners,
            ..events
        };
        let mut matched = match_events(&owned, first_connection_id, asked);
        let ends = Ends::take(&mut matched.hops).map(|ends| ends.over(frames, events.host_ns));
        let mut duplicates = vec![0_u8; frames.len().div_ceil(8)];
        for &event in &matched.duplicates {
            duplicates[event as usize / 8] |= 1 << (event % 8);
        }
        (matched, ends, duplicates)
    });
    as_columns(py, matched, ends, duplicates)
}

/// Hops' events and hosts at one end.
struct Ends {
    events: Vec<u32>,
    hosts: Vec<i32>,
}

/// Host, frame and stamp of each hop's event at one end, 0 where there is none; and where there is one.
struct End {
    host: Vec<i32>,
    host_validity: Validity,
    frame: Vec<u32>,
    host_ns: Vec<i64>,
    validity: Validity,
}

impl Ends {
    /// Those of the sends, and of the receives; they are `hops`' no longer.
    fn take(hops: &mut Hops) -> [Self; 2] {
        let columns = [
            (&mut hops.send_event, &mut hops.send_host),
            (&mut hops.receive_event, &mut hops.receive_host),
        ];
        columns.map(|(events, hosts)| Self {
            events: std::mem::take(events),
            hosts: std::mem::take(hosts),
        })
    }

    /// Columns that become others of the same width do so in their place.
    fn over(self, frames: &[u32], host_ns: &[i64]) -> End {
        let none = i32::from(NO_HOST);
        let of = |event: u32| (event != NO_EVENT).then_some(event as usize);
        End {
            host_validity: Validity::but(&self.hosts, none),
            host: self
                .hosts
                .into_iter()
                .map(|host| if host == none { 0 } else { host })
                .collect(),
            host_ns: self
                .events
                .iter()
                .map(|&event| of(event).map_or(0, |event| host_ns[event]))
                .collect(),
            validity: Validity::but(&self.events, NO_EVENT),
            frame: self
                .events
                .into_iter()
                .map(|event| of(event).map_or(0, |event| frames[event]))
                .collect(),
        }
    }
}

fn as_columns(py: Python<'_>, matched: Matched, ends: [End; 2], duplicates: Vec<u8>) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let events = PyDict::new(py);
    events.set_item("connection_id", matched.event_connection.into_pyarray(py))?;
    events.set_item("duplicate_bits", duplicates.into_pyarray(py))?;
    columns.set_item("events", events)?;
    let places = PyDict::new(py);
    places.set_item("connection_id", matched.places.connection.into_pyarray(py))?;
    places.set_item("from_client", matched.places.from_client.into_pyarray(py))?;
    places.set_item("stream_offset", matched.places.stream_offset.into_pyarray(py))?;
    columns.set_item("places", places)?;
    columns.set_item("hops", hop_columns(py, matched.hops, ends)?)?;
    columns.set_item("connections", connection_columns(py, matched.connections)?)?;
    columns.set_item("pauses", pause_columns(py, matched.pauses)?)?;
    Ok(columns)
}

fn hop_columns(py: Python<'_>, hops: Hops, ends: [End; 2]) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let wide = |codes: &[u8]| codes.iter().map(|&code| i32::from(code)).collect::<Vec<i32>>();
    columns.set_item("connection_id", hops.connection.into_pyarray(py))?;
    columns.set_item("kind", wide(&hops.kind).into_pyarray(py))?;
    columns.set_item("from_client", hops.from_client.into_pyarray(py))?;
    columns.set_item("stream_start", hops.stream_start.into_pyarray(py))?;
    columns.set_item("stream_end", hops.stream_end.into_pyarray(py))?;
    columns.set_item("attempt", hops.attempt.into_pyarray(py))?;
    columns.set_item("state", wide(&hops.state).into_pyarray(py))?;
    for (name, end) in ["send", "receive"].into_iter().zip(ends) {
        columns.set_item(format!("{name}_host"), end.host.into_pyarray(py))?;
        columns.set_item(format!("{name}_host_validity"), end.host_validity.bits.into_pyarray(py))?;
        columns.set_item(format!("{name}_frame"), end.frame.into_pyarray(py))?;
        columns.set_item(format!("{name}_host_ns"), end.host_ns.into_pyarray(py))?;
        columns.set_item(format!("{name}_validity"), end.validity.bits.into_pyarray(py))?;
    }
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

/// -1 where a figure is not known.
fn pause_columns(py: Python<'_>, pauses: Pauses) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let numbers = |get: fn(&Pause) -> i64| pauses.pauses.iter().map(get).collect::<Vec<i64>>().into_pyarray(py);
    let flags = |get: fn(&Pause) -> bool| pauses.pauses.iter().map(get).collect::<Vec<bool>>().into_pyarray(py);
    columns.set_item("connection_id", pauses.connection.into_pyarray(py))?;
    columns.set_item("from_client", pauses.from_client.into_pyarray(py))?;
    columns.set_item("host", pauses.host.into_pyarray(py))?;
    columns.set_item("stream_offset", numbers(|pause| pause.stream_offset))?;
    columns.set_item("stopped_ns", numbers(|pause| pause.stopped_ns))?;
    columns.set_item("full_ns", numbers(|pause| pause.full_ns.unwrap_or(-1)))?;
    columns.set_item("released_ns", numbers(|pause| pause.released_ns))?;
    columns.set_item("resumed_ns", numbers(|pause| pause.resumed_ns))?;
    columns.set_item("resumed_bytes", numbers(|pause| pause.resumed_bytes))?;
    columns.set_item("in_flight_bytes", numbers(|pause| pause.in_flight_bytes))?;
    columns.set_item("waiting_bytes", numbers(|pause| pause.waiting_bytes))?;
    columns.set_item("room_bytes", numbers(|pause| pause.room_bytes.unwrap_or(-1)))?;
    columns.set_item("window_closed", flags(|pause| pause.window_closed))?;
    columns.set_item("mss_bytes", numbers(|pause| pause.mss_bytes))?;
    columns.set_item("rtt_ns", numbers(|pause| pause.rtt_ns.unwrap_or(-1)))?;
    columns.set_item("idle_ns", numbers(|pause| pause.idle_ns))?;
    columns.set_item(
        "in_flight_before_idle_bytes",
        numbers(|pause| pause.in_flight_before_idle_bytes),
    )?;
    columns.set_item("resent", flags(|pause| pause.resent))?;
    Ok(columns)
}
