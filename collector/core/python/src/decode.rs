//! Decodes capture files to columns: `collector._core.CaptureFile`. A batch crosses to Python as arrays that own their
//! memory, without a copy.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use twintap_partitions::keys::FileAddresses;
use twintap_protocols::excerpt::{ExcerptColumns, Strings};
use twintap_protocols::http1::IdHeaders;
use twintap_protocols::with_excerpt_columns;
use twintap_secrets::{RuleError, SecretRules};
use twintap_wire::clues::{Clue, ClueRules};
use twintap_wire::counters::CounterKind;
use twintap_wire::events::EventColumns;
use twintap_wire::expansion::Expansion;
use twintap_wire::pcapng::escape_invalid_utf8;
use twintap_wire::reader::{self, Batch, OpenError, Reader, Source};
use twintap_wire::with_event_columns;

use crate::tls_keys::TlsKeys;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CaptureFile>()?;
    module.add_class::<Following>()?;
    module.add_class::<Rows>()?;
    module.add_function(wrap_pyfunction!(decode_counters, module)?)
}

/// (name, severity, remedy) of every counter that decoding knows.
#[pyfunction]
fn decode_counters() -> Vec<(&'static str, &'static str, &'static str)> {
    CounterKind::ALL
        .iter()
        .map(|kind| (kind.name(), kind.severity().name(), kind.remedy()))
        .collect()
}

/// (name, link type, tick ns, snaplen, packets, received or None, dropped or None, description, speed) of an interface.
type InterfaceFields = (
    String,
    u16,
    u64,
    u32,
    u64,
    Option<u64>,
    Option<u64>,
    String,
    u64,
    Vec<DropFields>,
);
/// (from, to, packets) that a capture lost between two statistics.
type DropFields = (Option<i64>, i64, u64);
/// (name, severity, count, remedy) of a counter.
type CounterFields = (&'static str, &'static str, u64, &'static str);

/// (frame, host ns, interface, direction, original length, bytes) of a packet.
type CopyFields<'py> = (u32, i64, u16, u8, u32, Bound<'py, PyBytes>);

/// (from the client, methods, shapes of targets, header and begin of its value, first bytes with -1 for any) of a clue.
type ClueFields = (
    bool,
    Vec<String>,
    Vec<String>,
    Option<(String, String)>,
    Vec<Vec<i16>>,
    Option<String>,
);
/// (address, port, messages with each clue, requests, answers, sample of requests) of an endpoint.
type EndpointFields = (String, u16, Vec<u32>, u32, u32, bool, Vec<String>);

/// An open capture file, which `collector.capture_files.readers` wraps.
#[pyclass(frozen, module = "collector._core")]
pub struct CaptureFile {
    reader: Mutex<Reader<Source>>,
    /// Numbers of its addresses among those of all captures, used if its rows go to partitions.
    pub addresses: Mutex<FileAddresses>,
    /// The same open file, used only to read its position.
    position: File,
    /// Where in it the capture begins.
    begin: u64,
}

/// What is known of a host's connections at one moment of its capture: of protocols whose messages depend on those
/// before them, and of encrypted ones that are opened.
#[pyclass(frozen, module = "collector._core")]
pub struct Following(Mutex<reader::Following>);

impl Following {
    fn following(&self) -> reader::Following {
        lock(&self.0).clone()
    }
}

/// Decoded rows that stay in the core; `Partitions` stores them, and then they are gone.
#[pyclass(frozen, module = "collector._core")]
pub struct Rows(Mutex<Batch>);

impl Rows {
    /// The rows, of which none are left here.
    pub fn take(&self) -> Batch {
        std::mem::take(&mut lock(&self.0))
    }
}

#[pymethods]
impl Rows {
    /// Smallest stamp; None without rows.
    fn first_ns(&self) -> Option<i64> {
        lock(&self.0).events.host_ns.iter().copied().min()
    }
}

#[pymethods]
impl CaptureFile {
    /// Open the file at `path`. `id_headers`: headers with transaction ids, the most specific first; `clues` to count;
    /// `secrets`: the operator's additional rules, and whether nothing is secret; `believed`: ranges of plausible
    /// stamps (first and last, ns); `limit` of expansion: free bytes, ratio, most bytes; `keys` that open connections of
    /// TLS; `part`: the bytes of the file that are the capture (offset, length), if not all;
    /// `wanted`: the stamps of packets to decode (first and last, ns). Raises OSError, or ValueError(what it is, what to do) if it is no capture.
    #[new]
    #[pyo3(signature = (path, id_headers=None, clues=Vec::new(), secrets=None, believed=Vec::new(), limit=None, keys=None, part=None, wanted=None))]
    #[expect(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        id_headers: Option<Vec<String>>,
        clues: Vec<ClueFields>,
        secrets: Option<(String, bool)>,
        believed: Vec<(i64, i64)>,
        limit: Option<(u64, u64, u64)>,
        keys: Option<PyRef<'_, TlsKeys>>,
        part: Option<(u64, u64)>,
        wanted: Option<(i64, i64)>,
    ) -> PyResult<Self> {
        let mut file = File::open(&path)?;
        let position = file.try_clone()?;
        let (begin, len) = part.unwrap_or((0, u64::MAX));
        if begin > 0 {
            file.seek(SeekFrom::Start(begin))?;
        }
        let source = Box::new(file.take(len));
        let opened = py.detach(|| Reader::new(reader::undo_compression(source, expansion(limit))?));
        let mut reader = opened.map_err(|error| match error {
            OpenError::Io(error) => error.into(),
            OpenError::NotACapture(error) => PyValueError::new_err((error.what, error.next_step)),
        })?;
        if let Some((more, nothing)) = secrets {
            reader.set_secrets(Arc::new(secret_rules(&more, nothing)?));
        }
        if let Some(names) = id_headers {
            reader.set_id_headers(IdHeaders::new(&names));
        }
        reader.set_clue_rules(clue_rules(clues)?);
        reader.set_believed_stamps(believed);
        if let Some((first_ns, last_ns)) = wanted {
            reader.set_wanted_stamps(first_ns, last_ns);
        }
        reader.set_opener(keys.and_then(|keys| keys.opener()));
        Ok(Self {
            reader: Mutex::new(reader),
            addresses: Mutex::default(),
            position,
            begin,
        })
    }

    /// Continue with the connections of HTTP/2 that were followed in the previous file of the same capture, which must
    /// not be read any more, and with those that were opened in it.
    fn go_on_from(&self, before: PyRef<'_, Self>) {
        let following = before.lock().take_following();
        self.lock().follow(following);
    }

    /// Continue with the connections that were followed at a moment of the same host's capture.
    fn follow(&self, before: PyRef<'_, Following>) {
        let following = before.following();
        self.lock().follow(following);
    }

    /// Copy the state of connections that are followed, once packets with this stamp (ns) or a later one come.
    fn copy_following_at(&self, host_ns: i64) {
        self.lock().copy_following_at(host_ns);
    }

    /// The copy, if it was made; None later.
    fn copied_following(&self) -> Option<Following> {
        let found = self.lock().copied_following();
        found.map(|following| Following(Mutex::new(following)))
    }

    /// The state at the end of what was read, which is read no more.
    fn take_following(&self) -> Following {
        Following(Mutex::new(self.lock().take_following()))
    }

    /// Add to `keys` the secrets that the file holds, as far as it was read.
    fn add_keys_to(&self, keys: PyRef<'_, TlsKeys>) {
        let mut reader = self.lock();
        let read = keys.add(reader.section().key_log.bytes());
        reader.count(CounterKind::TlsKeysUnread, read.unread_count);
    }

    /// Bytes of the (possibly compressed) file read so far; some of them may not be decoded yet.
    fn bytes_read(&self) -> u64 {
        (&self.position)
            .stream_position()
            .map_or(0, |at| at.saturating_sub(self.begin))
    }

    /// Uncompressed bytes read so far.
    fn expanded_bytes(&self) -> u64 {
        self.lock().expanded_bytes()
    }

    /// The next batch: (event columns, excerpt columns), or None at the end.
    fn next_batch<'py>(
        &self,
        py: Python<'py>,
        packets: usize,
    ) -> PyResult<Option<(Bound<'py, PyDict>, Bound<'py, PyDict>)>> {
        let Some(Batch { events, excerpts }) = py.detach(|| self.lock().next_batch(packets)) else {
            return Ok(None);
        };
        Ok(Some((event_arrays(py, events)?, excerpt_arrays(py, excerpts)?)))
    }

    /// The bytes of the packets with these frames, which ascend and are ahead; frames that the file does not have are
    /// left out.
    fn copy_packets<'py>(&self, py: Python<'py>, frames: Vec<u32>) -> Vec<CopyFields<'py>> {
        let copies = py.detach(|| self.lock().copy_packets(&frames));
        let fields = |copy: reader::PacketCopy| {
            let data = PyBytes::new(py, &copy.data);
            (
                copy.frame,
                copy.host_ns,
                copy.interface,
                copy.direction as u8,
                copy.original_len,
                data,
            )
        };
        copies.into_iter().map(fields).collect()
    }

    /// As `next_batch`, but the rows stay in the core.
    fn next_rows(&self, py: Python<'_>, packets: usize) -> Option<Rows> {
        let batch = py.detach(|| self.lock().next_batch(packets))?;
        Some(Rows(Mutex::new(batch)))
    }

    /// Fields of every interface described so far.
    fn interfaces(&self) -> Vec<InterfaceFields> {
        let locked = self.lock();
        let fields = |interface: &twintap_wire::interface::Interface| {
            (
                interface.name.clone(),
                interface.link_type.0,
                interface.resolution.tick_ns(),
                interface.snaplen,
                interface.packets_count,
                interface.statistics.received_count,
                interface.statistics.dropped_count,
                interface.description.clone(),
                interface.speed_bps,
                interface
                    .drops
                    .iter()
                    .map(|drops| (drops.from_ns, drops.to_ns, drops.count))
                    .collect(),
            )
        };
        locked.interfaces().iter().map(fields).collect()
    }

    /// Addresses from number `from_` on, one a line.
    fn address_lines(&self, from_: usize) -> String {
        self.lock().addresses().lines_from(from_)
    }

    /// Clues of each server's address and port so far.
    fn clues(&self) -> Vec<EndpointFields> {
        let locked = self.lock();
        let addresses = locked.addresses().all();
        let text = |bytes: &[u8]| escape_invalid_utf8(bytes);
        let endpoints = locked.clues().endpoints().into_iter();
        endpoints
            .map(|((address, port), clues)| {
                let address = addresses[address as usize].to_string();
                let sample = clues.sample().map(text).collect();
                let counts = (clues.requests_count, clues.answers_count);
                (
                    address,
                    port,
                    clues.counts.clone(),
                    counts.0,
                    counts.1,
                    clues.is_asked,
                    sample,
                )
            })
            .collect()
    }

    /// Names of addresses so far: (address, name).
    fn names(&self) -> Vec<(String, String)> {
        let locked = self.lock();
        let names = &locked.section().names;
        names
            .iter()
            .map(|record| (record.address.to_string(), record.name.clone()))
            .collect()
    }

    /// Comments of the sections so far.
    fn comments(&self) -> Vec<String> {
        self.lock().section().comments.clone()
    }

    /// What the agent states so far of what it keeps.
    fn kept_statements(&self) -> Vec<String> {
        self.lock().section().kept.clone()
    }

    /// What the agent states so far of who owns connections.
    fn owners(&self) -> Vec<String> {
        self.lock().section().owners.clone()
    }

    /// What the agent states so far of who stamped packets.
    fn stamps(&self) -> Vec<String> {
        self.lock().section().stamps.clone()
    }

    /// Programs that wrote the sections so far.
    fn applications(&self) -> Vec<String> {
        self.lock().section().applications.clone()
    }

    /// The host that our agent states in a comment, if it does.
    fn host(&self) -> Option<String> {
        self.lock().section().host().map(str::to_owned)
    }

    /// Packets so far, TCP or not.
    fn packets_count(&self) -> u32 {
        self.lock().packets_count()
    }

    /// Frames so far whose stamps were not plausible.
    fn absurd_frames<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_slice(py, self.lock().absurd_frames())
    }

    /// Frames so far whose TCP checksums were wrong when they were received, as their capture says.
    fn damaged_frames<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_slice(py, self.lock().damaged_frames())
    }

    /// Fields of every counter that is not 0.
    fn counters(&self) -> Vec<CounterFields> {
        let counters = self.lock().counters();
        counters
            .nonzero()
            .map(|(kind, count)| (kind.name(), kind.severity().name(), count, kind.remedy()))
            .collect()
    }
}

impl CaptureFile {
    fn lock(&self) -> MutexGuard<'_, Reader<Source>> {
        lock(&self.reader)
    }

    /// Use the memory of a batch that is needed no more for one of the next.
    pub fn reuse(&self, batch: Batch) {
        self.lock().reuse(batch);
    }

    /// Call `visit` with the addresses from number `from` on.
    pub fn with_new_addresses(&self, from: usize, visit: impl FnOnce(&[IpAddr])) {
        visit(&self.lock().addresses().all()[from..]);
    }
}

fn expansion(limit: Option<(u64, u64, u64)>) -> Expansion {
    limit.map_or(Expansion::UNLIMITED, |(free_bytes, ratio, most_bytes)| Expansion {
        free_bytes,
        ratio,
        most_bytes,
    })
}

/// The built-in rules and `more`; with `nothing`, none at all.
fn secret_rules(more: &str, nothing: bool) -> PyResult<SecretRules> {
    let refused = |error: RuleError| PyValueError::new_err((error.what, "write KIND TEXT, as docs/security.md says"));
    if nothing {
        Ok(SecretRules::nothing())
    } else {
        SecretRules::with(more).map_err(refused)
    }
}

fn clue_rules(fields: Vec<ClueFields>) -> PyResult<ClueRules> {
    let pattern = |bytes: Vec<i16>| bytes.into_iter().map(|byte| u8::try_from(byte).ok()).collect();
    let clue = |(from_client, methods, targets, header, begins, protocol): ClueFields| Clue {
        from_client,
        methods,
        targets,
        header,
        begins: begins.into_iter().map(pattern).collect(),
        protocol,
    };
    let clues: Vec<Clue> = fields.into_iter().map(clue).collect();
    let refused = |what| PyValueError::new_err((what, "look for fewer clues"));
    ClueRules::new(&clues).map_err(refused)
}

/// Lock a mutex. If it is poisoned, Python has already received the panic as an exception.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

macro_rules! define_event_arrays {
    ($($name:ident: $kind:ty,)*) => {
        pub fn event_arrays<'py>(py: Python<'py>, columns: EventColumns) -> PyResult<Bound<'py, PyDict>> {
            let arrays = PyDict::new(py);
            $(arrays.set_item(stringify!($name), PyArray1::from_vec(py, columns.$name))?;)*
            Ok(arrays)
        }
    };
}

macro_rules! define_excerpt_arrays {
    ($($name:ident: $kind:ty,)*) => {
        pub fn excerpt_arrays<'py>(py: Python<'py>, columns: ExcerptColumns) -> PyResult<Bound<'py, PyDict>> {
            let arrays = PyDict::new(py);
            $(arrays.set_item(stringify!($name), PyArray1::from_vec(py, columns.$name))?;)*
            set_strings(&arrays, "excerpt", columns.bytes)?;
            Ok(arrays)
        }
    };
}

with_event_columns!(define_event_arrays);
with_excerpt_columns!(define_excerpt_arrays);

/// Put a column of strings as `<name>_offsets` and `<name>_bytes`.
fn set_strings(arrays: &Bound<'_, PyDict>, name: &str, strings: Strings) -> PyResult<()> {
    let py = arrays.py();
    arrays.set_item(format!("{name}_offsets"), PyArray1::from_vec(py, strings.offsets))?;
    arrays.set_item(format!("{name}_bytes"), PyArray1::from_vec(py, strings.bytes))
}
