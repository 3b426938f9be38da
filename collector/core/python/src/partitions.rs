//! `Partitions`: batches of capture files in, columns of a partition out.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use twintap_partitions::answers::Gap;
use twintap_partitions::columns::{Columns, HostView, Lane};
use twintap_partitions::copies::Copying;
use twintap_partitions::handshakes::{SynAckSight, pairs};
use twintap_partitions::notes::Notes;
use twintap_partitions::partitions::{Moves, Origin, Partitions, SavedPart};
use twintap_partitions::sights::{PacketSights, Sight};
use twintap_partitions::text_order;
use twintap_wire::address::AddressTable;

use crate::decode::{CaptureFile, Rows, event_arrays, excerpt_arrays, lock};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPartitions>()?;
    module.add_function(wrap_pyfunction!(order_of_texts, module)?)?;
    module.add_function(wrap_pyfunction!(handshake_pairs, module)?)
}

/// The rows of texts by their bytes, the least first; row n is `bytes[offsets[n]..offsets[n + 1]]`.
#[pyfunction]
fn order_of_texts<'py>(
    py: Python<'py>,
    offsets: PyReadonlyArray1<'py, i32>,
    bytes: PyReadonlyArray1<'py, u8>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let (offsets, bytes) = (offsets.as_slice()?, bytes.as_slice()?);
    Ok(py.detach(|| text_order::order(offsets, bytes)).into_pyarray(py))
}

/// Pairs of keys that may be one connection, as two columns. Arguments: fingerprint, key and host of each SYN-ACK.
#[pyfunction]
fn handshake_pairs<'py>(
    py: Python<'py>,
    fingerprints: PyReadonlyArray1<'py, u64>,
    keys: PyReadonlyArray1<'py, u64>,
    hosts: PyReadonlyArray1<'py, u16>,
) -> PyResult<[Bound<'py, PyArray1<u64>>; 2]> {
    let (fingerprints, keys, hosts) = (fingerprints.as_slice()?, keys.as_slice()?, hosts.as_slice()?);
    let (first, second): (Vec<u64>, Vec<u64>) = py.detach(|| {
        let rows = fingerprints.iter().zip(keys).zip(hosts);
        let seen = |((&fingerprint, &key), &host)| SynAckSight { fingerprint, key, host };
        pairs(&mut rows.map(seen).collect::<Vec<_>>()).into_iter().unzip()
    });
    Ok([first, second].map(|keys| keys.into_pyarray(py)))
}

/// Packets of all hosts by partition, which `collector.decode.partitions` wraps.
#[pyclass(frozen, name = "Partitions", module = "collector._core")]
struct PyPartitions {
    partitions: Partitions,
    addresses: Mutex<AddressTable>,
}

/// Figures about a host: number of packets, and of those without a direction; first and last stamp; (source,
/// destination, packets); own addresses; others' addresses; (acknowledgment, sequence number, asker, answerer, ns).
type NoteFields = (
    u64,
    u64,
    Option<i64>,
    Option<i64>,
    Vec<(u32, u32, u64)>,
    Vec<u32>,
    Vec<u32>,
    Vec<(u32, u32, u32, u32, i64)>,
    Vec<(u32, u16)>,
);
/// For each file: packets before it, first and last stamp. For each interface that captured: its number, first and last
/// stamp, packets. Silences (interface, from, to); (source, destination, interface, packets); passages (source,
/// destination, sights).
type ActivityFields = (
    Vec<(u16, i64, i64, u64)>,
    Vec<(u16, i64, i64)>,
    Vec<(u32, u32, u16, u64)>,
    Vec<(u32, u32, Vec<Sight>)>,
);
/// A host: by the number of an address in its packets, whether it is its own, and its rank among the texts of all
/// addresses; its first point; (address, host, interface) of addresses that are lanes; and (source, destination, interface,
/// times, longest ns) of packets that its capture copies.
type HostFields<'py> = (
    PyReadonlyArray1<'py, bool>,
    PyReadonlyArray1<'py, u32>,
    u16,
    Vec<(u32, u16, u16)>,
    Vec<(u32, u32, u16, u8, i64)>,
);
/// Events, excerpts, the ranks of the addresses that occur, and the number of copies left out of each host.
type PartitionColumns<'py> = (
    Bound<'py, PyDict>,
    Bound<'py, PyDict>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

/// As the fields of `SavedPart`, in their order.
type SavedFields = (u64, usize, usize, usize);

#[pymethods]
impl PyPartitions {
    #[new]
    fn new(bits: u32, hosts_count: usize, folder: PathBuf, most_bytes: usize) -> Self {
        Self {
            partitions: Partitions::new(bits, hosts_count, folder, most_bytes),
            addresses: Mutex::default(),
        }
    }

    /// Store the rows that were decoded last from a file of a host. Returns the fingerprints of its SYN-ACKs, and for each
    /// the key of the 4-tuple. Raises OSError if the rows fit neither in memory nor on disk.
    fn add<'py>(
        &self,
        py: Python<'py>,
        host: usize,
        file: &CaptureFile,
        rows: &Rows,
        frames_before: u32,
        interfaces: PyReadonlyArray1<'py, u16>,
    ) -> PyResult<[Bound<'py, PyArray1<u64>>; 2]> {
        let interfaces = interfaces.as_slice()?;
        let syn_acks = py.detach(|| {
            let mut known = lock(&file.addresses);
            file.with_new_addresses(known.len(), |new| {
                if !new.is_empty() {
                    known.extend(new, &mut lock(&self.addresses));
                }
            });
            let origin = Origin {
                host,
                frames_before,
                interfaces,
                addresses: &known,
            };
            let batch = rows.take();
            let syns = self.partitions.add(&batch, origin);
            file.reuse(batch);
            syns
        })?;
        Ok([syn_acks.fingerprints, syn_acks.keys].map(|column| column.into_pyarray(py)))
    }

    /// The figures about a host collected from its packets so far.
    fn notes(&self, host: usize) -> NoteFields {
        let answer = |(&(ack, seq), gap): (&(u32, u32), &Gap)| (ack, seq, gap.asker, gap.answerer, gap.ns);
        self.partitions.with_notes(host, |notes: &Notes| {
            (
                notes.events_count,
                notes.unknown_count,
                notes.span_ns.map(|span| span.0),
                notes.span_ns.map(|span| span.1),
                notes
                    .pairs
                    .iter()
                    .map(|(pair, count)| (pair.0, pair.1, *count))
                    .collect(),
                notes.own.iter().copied().collect(),
                notes.others.iter().copied().collect(),
                notes.answers.gaps.iter().map(answer).collect(),
                notes.servers.iter().copied().collect(),
            )
        })
    }

    /// For a host's last file with packets so far: the number of packets in earlier files, smallest and largest stamp.
    fn last_file(&self, host: usize) -> Option<(u32, i64, i64)> {
        self.partitions
            .with_notes(host, |notes: &Notes| notes.activity.files.last().copied())
    }

    /// When the interfaces of a host captured, and the packets that passed each, so far.
    fn activity(&self, host: usize) -> ActivityFields {
        self.partitions.with_notes(host, |notes: &Notes| {
            let activity = &notes.activity;
            let interfaces = (0..).zip(&activity.interfaces);
            (
                interfaces
                    .filter_map(|(number, span)| span.map(|(first, last, count)| (number, first, last, count)))
                    .collect(),
                activity.silences.clone(),
                activity
                    .passed
                    .iter()
                    .map(|(&(src, dst, interface), &count)| (src, dst, interface, count))
                    .collect(),
                notes.sights.passages(),
            )
        })
    }

    /// Packets of a host in the partition that has most of them, so far.
    fn largest(&self, host: usize) -> usize {
        self.partitions.largest(host)
    }

    /// Where some packets of a host were seen, so far: source, destination, payload (bytes), sights. None if each was
    /// seen once.
    fn sights(&self, host: usize) -> Vec<PacketSights> {
        self.partitions.with_notes(host, |notes: &Notes| notes.sights.all())
    }

    /// The number of an address, new or known.
    fn address_number(&self, text: &str) -> PyResult<u32> {
        let address: IpAddr = text.parse().map_err(|_| PyValueError::new_err("no address"))?;
        Ok(lock(&self.addresses).number(address))
    }

    /// The texts of all addresses by number, as offsets and bytes: text n is `bytes[offsets[n]..offsets[n + 1]]`.
    fn addresses<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<u8>>) {
        let (offsets, bytes) = py.detach(|| lock(&self.addresses).texts());
        (offsets.into_pyarray(py), bytes.into_pyarray(py))
    }

    /// End adding: packets whose key is in `keys` (ascending) move to the partition of the corresponding key in `to`.
    /// Raises OSError.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        keys: PyReadonlyArray1<'py, u64>,
        to: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<()> {
        let (keys, to) = (keys.as_slice()?, to.as_slice()?);
        Ok(py.detach(|| {
            if !keys.is_empty() {
                self.partitions.regroup(&lock(&self.addresses), Moves { keys, to })?;
            }
            self.partitions.finish()
        })?)
    }

    /// Move a host's packets to a new file, for `load` by other processes. Returns for each partition where they begin
    /// there, the length of their rows, how many they are, and the length of their excerpts. Raises OSError.
    fn save(&self, py: Python<'_>, host: usize, path: PathBuf) -> PyResult<Vec<SavedFields>> {
        let saved = py.detach(|| self.partitions.save(host, &path))?;
        let fields = |saved: &SavedPart| (saved.begin, saved.rows_len, saved.rows_count, saved.excerpts_len);
        Ok(saved.iter().map(fields).collect())
    }

    /// Read into a partition what `save` wrote of a host; addresses keep the numbers that they had there. Raises OSError.
    fn load(&self, py: Python<'_>, number: usize, host: usize, path: PathBuf, saved: SavedFields) -> PyResult<()> {
        let (begin, rows_len, rows_count, excerpts_len) = saved;
        let saved = SavedPart {
            begin,
            rows_len,
            rows_count,
            excerpts_len,
        };
        Ok(py.detach(|| self.partitions.load(number, host, &path, saved))?)
    }

    /// The columns of a partition, or None if it is empty; the partition is emptied. `is_loopback` is indexed by an
    /// address's rank. Raises OSError.
    fn take<'py>(
        &self,
        py: Python<'py>,
        number: usize,
        hosts: Vec<HostFields<'py>>,
        is_loopback: PyReadonlyArray1<'py, bool>,
    ) -> PyResult<Option<PartitionColumns<'py>>> {
        let is_loopback = is_loopback.as_slice()?;
        let lane_of_address = |(is_own, _, _, lanes, _): &HostFields<'py>| {
            let mut found = vec![None; if lanes.is_empty() { 0 } else { is_own.len().unwrap_or(0) }];
            for &(address, host, interface) in lanes {
                if let Some(lane) = found.get_mut(address as usize) {
                    *lane = Some(Lane { host, interface });
                }
            }
            found
        };
        let lanes: Vec<Vec<Option<Lane>>> = hosts.iter().map(lane_of_address).collect();
        let copying: Vec<Vec<Copying>> = hosts.iter().map(|(.., rules)| copying_rules(rules)).collect();
        let by_address = hosts
            .iter()
            .map(|(own, rank, ..)| Ok::<_, PyErr>((own.as_slice()?, rank.as_slice()?)));
        let by_address = by_address.collect::<PyResult<Vec<_>>>()?;
        let of_hosts = by_address.iter().zip(&lanes).zip(&copying).zip(&hosts);
        let views: Vec<HostView> = of_hosts
            .map(
                |(((&(is_own, rank), lanes), copying), (_, _, first_point, ..))| HostView {
                    is_own,
                    rank,
                    first_point: *first_point,
                    lanes,
                    copying,
                },
            )
            .collect();
        let Some(columns) = py.detach(|| self.partitions.take(number, &views, is_loopback))? else {
            return Ok(None);
        };
        partition_arrays(py, columns).map(Some)
    }
}

fn copying_rules(rules: &[(u32, u32, u16, u8, i64)]) -> Vec<Copying> {
    let rule = |&(src, dst, interface, times, longest_ns)| Copying {
        src,
        dst,
        interface,
        times,
        longest_ns,
    };
    rules.iter().map(rule).collect()
}

fn partition_arrays(py: Python<'_>, columns: Columns) -> PyResult<PartitionColumns<'_>> {
    let (places, [ip_id, stamps]) = py.detach(|| (Places::of(&columns), columns.validity()));
    let excerpts = excerpt_arrays(py, columns.excerpts)?;
    excerpts.set_item("event_row", columns.excerpt_row.into_pyarray(py))?;
    let events = event_arrays(py, columns.events)?;
    events.set_item("host", columns.host.into_pyarray(py))?;
    events.set_item("src_end", columns.src_end.into_pyarray(py))?;
    events.set_item("dst_end", columns.dst_end.into_pyarray(py))?;
    events.set_item("host_place", places.host.into_pyarray(py))?;
    events.set_item("point_place", places.point.into_pyarray(py))?;
    events.set_item("direction_place", places.direction.into_pyarray(py))?;
    events.set_item("ip_id_validity", ip_id.bits.into_pyarray(py))?;
    events.set_item("stamps_validity", stamps.bits.into_pyarray(py))?;
    Ok((
        events,
        excerpts,
        columns.addresses.into_pyarray(py),
        columns.copies.into_pyarray(py),
    ))
}

/// Codes as 32-bit integers, the width of the tables' Arrow dictionaries.
struct Places {
    host: Vec<i32>,
    point: Vec<i32>,
    direction: Vec<i32>,
}

impl Places {
    fn of(columns: &Columns) -> Self {
        /// Code of a direction in the table, by the core's code: a packet that stays inside its host is received.
        const OF_DIRECTION: [i32; 4] = [0, 1, 2, 1];
        let wide = |codes: &[u16]| codes.iter().map(|&code| i32::from(code)).collect();
        let directions = columns.events.direction.iter();
        Self {
            host: wide(&columns.host),
            point: wide(&columns.events.interface),
            direction: directions.map(|&code| OF_DIRECTION[usize::from(code & 3)]).collect(),
        }
    }
}
