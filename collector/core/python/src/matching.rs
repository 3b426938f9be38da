//! `match_events`: columns of events in, columns of hops and connections out.

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_columns::{OutputTable, RowTable, Values, row_table};
use twintap_matching::{
    Connections, Events, Hops, MatchResult, NO_EVENT, NO_HOST, Pause, Pauses, host_of_address, match_events,
};
use twintap_partitions::columns::Validity;

use crate::columns::{Columns, inconsistent, put, to_dict};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(match_events_py, module)?)
}

/// Pair all transfers; connections are numbered from `first_connection_id`, and `places` are those of the rows `asked`.
/// `servers`: addresses and ports that are known to be servers'.
/// See `collector/_core.pyi`.
#[pyfunction(name = "match_events")]
fn match_events_py<'py>(
    py: Python<'py>,
    columns: &Bound<'py, PyDict>,
    first_connection_id: i64,
    asked: PyReadonlyArray1<'py, u32>,
    mut servers: Vec<(u32, u16)>,
) -> PyResult<Bound<'py, PyDict>> {
    let asked = asked.as_slice()?;
    servers.sort_unstable();
    let columns = Columns::of(columns)?;
    let (events, frames): (Events, &[u32]) = (columns.table()?, columns.column("frame")?);
    if frames.len() != events.host.len() {
        return Err(inconsistent());
    }
    if asked.iter().any(|&row| row as usize >= frames.len()) {
        return Err(PyValueError::new_err("no such row"));
    }
    let (matched, ends, duplicates) = py.detach(|| {
        let owners = host_of_address(events.direction, events.host, events.src_addr, events.dst_addr);
        let owned = Events {
            host_of_address: &owners,
            servers: &servers,
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

/// Events and hosts of hops at one end.
struct Ends {
    events: Vec<u32>,
    hosts: Vec<i32>,
}

/// Host, frame and stamp of each hop's event at one end, 0 where there is none, and which hops have one.
struct End {
    host: Vec<i32>,
    host_validity: Validity,
    frame: Vec<u32>,
    host_ns: Vec<i64>,
    validity: Validity,
}

impl Ends {
    /// Take the events and hosts of the sends, and of the receives, out of `hops`.
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

    /// Look up frames and stamps of events. Columns of equal width are converted in place.
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

fn as_columns(
    py: Python<'_>,
    matched: MatchResult,
    ends: [End; 2],
    duplicates: Vec<u8>,
) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let events = PyDict::new(py);
    events.set_item("connection_id", matched.event_connection.into_pyarray(py))?;
    events.set_item("duplicate_bits", duplicates.into_pyarray(py))?;
    columns.set_item("events", events)?;
    columns.set_item("places", to_dict(py, matched.places)?)?;
    columns.set_item("hops", hop_columns(py, matched.hops, ends)?)?;
    columns.set_item("connections", connection_columns(py, matched.connections)?)?;
    columns.set_item("pauses", pause_columns(py, matched.pauses)?)?;
    columns.set_item("crossings", to_dict(py, matched.crossings)?)?;
    Ok(columns)
}

fn hop_columns(py: Python<'_>, hops: Hops, ends: [End; 2]) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    let as_wide_as_in_a_table = |(name, values)| match values {
        Values::U8(codes) => (name, Values::I32(codes.into_iter().map(i32::from).collect())),
        _ => (name, values),
    };
    let own = hops.into_columns().into_iter().map(as_wide_as_in_a_table);
    put(&columns, own.collect())?;
    for (name, end) in ["send", "receive"].into_iter().zip(ends) {
        columns.set_item(format!("{name}_host"), end.host.into_pyarray(py))?;
        columns.set_item(format!("{name}_host_validity"), end.host_validity.bits.into_pyarray(py))?;
        columns.set_item(format!("{name}_frame"), end.frame.into_pyarray(py))?;
        columns.set_item(format!("{name}_host_ns"), end.host_ns.into_pyarray(py))?;
        columns.set_item(format!("{name}_validity"), end.validity.bits.into_pyarray(py))?;
    }
    Ok(columns)
}

row_table! {
    /// The 4-tuple at the server's host of a connection whose addresses were translated, with the connection's row.
    struct TranslationRow {
        translated_row: u32,
        translated_client_addr: u32,
        translated_client_port: u16,
        translated_server_addr: u32,
        translated_server_port: u16,
    }
}

fn connection_columns(py: Python<'_>, connections: Connections) -> PyResult<Bound<'_, PyDict>> {
    let translated = connections.translated.iter().map(|(row, tuple)| TranslationRow {
        translated_row: *row,
        translated_client_addr: tuple.client_addr,
        translated_client_port: tuple.client_port,
        translated_server_addr: tuple.server_addr,
        translated_server_port: tuple.server_port,
    });
    let translated: Vec<TranslationRow> = translated.collect();
    let columns = to_dict(py, connections)?;
    put(&columns, TranslationRow::columns_of(&translated))?;
    Ok(columns)
}

/// Columns of pauses; -1 where a figure is not known.
fn pause_columns(py: Python<'_>, mut pauses: Pauses) -> PyResult<Bound<'_, PyDict>> {
    let rows = std::mem::take(&mut pauses.pauses);
    let columns = to_dict(py, pauses)?;
    put(&columns, Pause::columns_of(&rows))?;
    Ok(columns)
}
