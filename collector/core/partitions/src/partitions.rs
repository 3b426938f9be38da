//! The partitions: stores batches of decoded packets, and returns the columns of one partition at a time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use twintap_protocols::excerpt::ExcerptColumns;
use twintap_wire::address::AddressTable;
use twintap_wire::events::{Event, EventColumns};
use twintap_wire::reader::Batch;

use crate::blocks::{self, MAX_ROWS};
use crate::buffers::{Buffer, Spill};
use crate::columns::{Columns, HostView, TIMESTAMPS};
use crate::excerpts;
use crate::keys::{FileAddresses, connection_key, partition_of};
use crate::lock;
use crate::notes::Notes;

/// Number of an interface whose packets are left out.
pub const OTHER_HOSTS_INTERFACE: u16 = u16::MAX;

/// What converts a batch's numbers to those of all captures.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub host: usize,
    /// Packets in the host's earlier files.
    pub frames_before: u32,
    /// For each interface of the file its number for the host; `OTHER_HOSTS_INTERFACE` if it belongs to another host.
    pub interfaces: &'a [u16],
    pub addresses: &'a FileAddresses,
}

/// Fingerprints of the SYN-ACKs of a batch ([`crate::handshakes`]): of each its ISNs, and its timestamps if it has any;
/// and for each fingerprint the key of the 4-tuple.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SynAcks {
    pub fingerprints: Vec<u64>,
    pub keys: Vec<u64>,
}

/// Keys (ascending), and the key that replaces each.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a> {
    pub keys: &'a [u64],
    pub to: &'a [u64],
}

/// Where `Partitions::save` wrote a host's packets of one partition: rows from `begin` on, then excerpts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedPart {
    pub begin: u64,
    pub rows_len: usize,
    pub rows_count: usize,
    pub excerpts_len: usize,
}

/// Events and excerpts of all hosts by partition. Threads may add to different hosts at the same time.
#[derive(Debug)]
pub struct Partitions {
    bits: u32,
    hosts: Vec<Mutex<Host>>,
    held_bytes: AtomicUsize,
    most_bytes: usize,
    spill: Spill,
}

#[derive(Debug, Default)]
struct Host {
    notes: Notes,
    parts: Vec<Part>,
    sorting: Sorting,
}

#[derive(Debug, Default)]
struct Part {
    rows: Buffer,
    rows_count: usize,
    excerpts: Buffer,
}

/// Buffers to sort rows by partition, reused for each batch.
#[derive(Debug, Default)]
struct Sorting {
    targets: Vec<u32>,
    /// Where each partition's rows end.
    ends: Vec<usize>,
    order: Vec<u32>,
    rows: EventColumns,
    packed: Vec<u8>,
}

const SYN_ACK: u16 = 0x12;

impl Partitions {
    /// 2^`bits` empty partitions. If they exceed `most_bytes` in memory they are moved to a file in `folder`.
    pub fn new(bits: u32, hosts_count: usize, folder: PathBuf, most_bytes: usize) -> Self {
        let parts = || (0..1 << bits).map(|_| Part::default()).collect();
        let host = || {
            Mutex::new(Host {
                parts: parts(),
                ..Host::default()
            })
        };
        Self {
            bits,
            hosts: (0..hosts_count).map(|_| host()).collect(),
            held_bytes: AtomicUsize::new(0),
            most_bytes,
            spill: Spill::new(folder),
        }
    }

    /// Number of partitions.
    pub fn len(&self) -> usize {
        1 << self.bits
    }

    /// Always false: there is at least one partition.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Store the next batch of a host.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn add(&self, batch: &Batch, origin: Origin) -> io::Result<SynAcks> {
        let (syn_acks, bytes) = {
            let mut host = lock(&self.hosts[origin.host]);
            let number = |index| origin.addresses.number(index);
            let place = |interface| origin.interfaces[usize::from(interface)];
            let own_rows = origin.own_rows(&batch.events);
            let events = own_rows.as_ref().unwrap_or(&batch.events);
            host.notes.add(events, origin.frames_before, number, place);
            host.add(events, &batch.excerpts, origin, self.bits)
        };
        self.note_bytes(bytes)?;
        Ok(syn_acks)
    }

    /// Call `read` with the figures about a host collected so far.
    pub fn with_notes<T>(&self, host: usize, read: impl FnOnce(&Notes) -> T) -> T {
        read(&lock(&self.hosts[host]).notes)
    }

    /// Packets of a host in the partition that has most of them.
    pub fn largest(&self, host: usize) -> usize {
        lock(&self.hosts[host])
            .parts
            .iter()
            .map(|part| part.rows_count)
            .max()
            .unwrap_or(0)
    }

    /// Move packets whose key is replaced to the partition of the new key.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn regroup(&self, addresses: &AddressTable, moves: Moves) -> io::Result<()> {
        let keys: Vec<u64> = addresses.all().iter().map(crate::keys::address_key).collect();
        let end = |address: u32, port| (keys[address as usize], port);
        let key =
            |event: &Event| connection_key(end(event.src_addr, event.src_port), end(event.dst_addr, event.dst_port));
        for host in &self.hosts {
            let bytes = lock(host).regroup(&self.spill, |event| moves.partition(key(event), self.bits))?;
            self.note_bytes(bytes)?;
        }
        Ok(())
    }

    /// Take the columns of a partition, host by host in the order of frames; nothing if it is empty. `is_loopback` is
    /// indexed by an address's rank.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn take(&self, number: usize, views: &[HostView], is_loopback: &[bool]) -> io::Result<Option<Columns>> {
        let mut columns = Columns::for_addresses(is_loopback.len());
        let parts: Vec<Part> = self
            .hosts
            .iter()
            .map(|host| std::mem::take(&mut lock(host).parts[number]))
            .collect();
        columns.events.reserve(parts.iter().map(|part| part.rows_count).sum());
        let packed_len = parts.iter().map(|part| part.excerpts.bytes_count()).sum();
        excerpts::reserve(&mut columns.excerpts, packed_len);
        for (host, (mut part, view)) in (0..).zip(parts.into_iter().zip(views)) {
            let (rows, excerpts) = (part.rows.take(&self.spill)?, part.excerpts.take(&self.spill)?);
            columns.add_host(host, &rows, &excerpts, view);
        }
        columns.finish(is_loopback);
        Ok((!columns.events.is_empty()).then_some(columns))
    }

    /// Move a host's packets to a new file, from which other processes `load` them. Returns their places, by partition.
    ///
    /// # Errors
    /// The operating system fails to write or read a file.
    pub fn save(&self, host: usize, path: &Path) -> io::Result<Vec<SavedPart>> {
        let (mut file, mut begin) = (BufWriter::new(File::create(path)?), 0);
        let mut saved = Vec::with_capacity(self.len());
        for part in &mut lock(&self.hosts[host]).parts {
            let mut part = std::mem::take(part);
            let mut write = |buffer: &mut Buffer| -> io::Result<usize> {
                let chunks = buffer.take(&self.spill)?;
                chunks.iter().try_for_each(|chunk| file.write_all(chunk))?;
                Ok(chunks.iter().map(Vec::len).sum())
            };
            let (rows_len, excerpts_len) = (write(&mut part.rows)?, write(&mut part.excerpts)?);
            saved.push(SavedPart {
                begin,
                rows_len,
                rows_count: part.rows_count,
                excerpts_len,
            });
            begin += (rows_len + excerpts_len) as u64;
        }
        file.into_inner()?.sync_all()?;
        Ok(saved)
    }

    /// Read into a partition what `save` wrote of a host; addresses keep the numbers that they had there.
    ///
    /// # Errors
    /// The operating system fails to write or read a file.
    pub fn load(&self, number: usize, host: usize, path: &Path, saved: SavedPart) -> io::Result<()> {
        let mut bytes = vec![0; saved.rows_len + saved.excerpts_len];
        File::open(path)?.read_exact_at(&mut bytes, saved.begin)?;
        let (rows, excerpts) = bytes.split_at(saved.rows_len);
        {
            let part = &mut lock(&self.hosts[host]).parts[number];
            part.rows_count += saved.rows_count;
            part.rows.push(rows);
            part.excerpts.push(excerpts);
        }
        self.note_bytes(bytes.len())
    }

    /// All batches are added: if any were moved to the file, move the remaining ones too, so that later stages have the
    /// memory.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn finish(&self) -> io::Result<()> {
        if self.spill.is_used() { self.to_file() } else { Ok(()) }
    }

    /// Count `bytes` more in memory; if they exceed the limit, move all to the file.
    fn note_bytes(&self, bytes: usize) -> io::Result<()> {
        if self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.most_bytes {
            return Ok(());
        }
        self.to_file()
    }

    fn to_file(&self) -> io::Result<()> {
        self.held_bytes.store(0, Ordering::Relaxed);
        for host in &self.hosts {
            for part in &mut lock(host).parts {
                part.rows.move_to(&self.spill)?;
                part.excerpts.move_to(&self.spill)?;
            }
        }
        Ok(())
    }
}

impl SynAcks {
    /// Note row `at`, a SYN-ACK.
    fn note(&mut self, events: &EventColumns, at: usize, key: u64) {
        let mut one = |first: u32, second: u32| {
            self.fingerprints.push(u64::from(first) << 32 | u64::from(second));
            self.keys.push(key);
        };
        one(events.seq[at], events.ack[at]);
        if events.options[at] & TIMESTAMPS != 0 {
            one(events.tsval[at], events.tsecr[at]);
        }
    }
}

impl Host {
    /// Store a batch. Returns its SYN-ACKs, and the bytes stored.
    fn add(&mut self, events: &EventColumns, kept: &ExcerptColumns, origin: Origin, bits: u32) -> (SynAcks, usize) {
        let mut syn_acks = SynAcks::default();
        let mut sorting = std::mem::take(&mut self.sorting);
        sorting.targets.clear();
        for (at, flags) in events.flags.iter().enumerate() {
            let key = origin.addresses.key_of_row(events, at);
            sorting.targets.push(partition_of(key, bits) as u32);
            if flags & SYN_ACK == SYN_ACK {
                syn_acks.note(events, at, key);
            }
        }
        let mut bytes = self.add_excerpts(kept, events, &sorting.targets, origin.frames_before);
        sorting.sort(events, self.parts.len());
        origin.renumber_all(&mut sorting.rows);
        bytes += self.add_sorted(&mut sorting);
        self.sorting = sorting;
        (syn_acks, bytes)
    }

    /// Store the excerpts of rows that go to `targets`, and return the bytes that takes. Excerpts of other rows are
    /// left out.
    fn add_excerpts(
        &mut self,
        kept: &ExcerptColumns,
        events: &EventColumns,
        targets: &[u32],
        frames_before: u32,
    ) -> usize {
        let (mut bytes, mut row) = (0, 0);
        for (at, frame) in kept.frame.iter().enumerate() {
            row = excerpts::row_of(&events.frame, row, *frame);
            if events.frame.get(row) != Some(frame) {
                continue;
            }
            let len = excerpts::packed_len(kept, at);
            let room = self.parts[targets[row] as usize].excerpts.room(len);
            excerpts::pack(kept, at, frame + frames_before, room);
            bytes += len;
        }
        bytes
    }

    /// Store rows that are sorted by partition, and return the bytes that takes.
    fn add_sorted(&mut self, sorting: &mut Sorting) -> usize {
        let (mut bytes, mut start) = (0, 0);
        for (part, &end) in self.parts.iter_mut().zip(&sorting.ends) {
            for first in (start..end).step_by(MAX_ROWS) {
                sorting.packed.clear();
                blocks::pack(&sorting.rows, first..end.min(first + MAX_ROWS), &mut sorting.packed);
                part.rows.push(&sorting.packed);
                bytes += sorting.packed.len();
            }
            part.rows_count += end - start;
            start = end;
        }
        bytes
    }

    /// Move each row, with its excerpts, to the partition that `partition` returns for it. Returns how many bytes were
    /// moved.
    fn regroup(&mut self, spill: &Spill, partition: impl Fn(&Event) -> usize) -> io::Result<usize> {
        let (mut bytes, mut sorting) = (0, Sorting::default());
        for number in 0..self.parts.len() {
            let mut moved: FxHashMap<u32, usize> = FxHashMap::default();
            let mut events = EventColumns::default();
            self.parts[number].rows.visit(spill, |chunk| {
                events.clear();
                blocks::unpack(chunk, &mut events);
                let rows = (0..events.len()).map(|at| events.row(at));
                let targets = rows.map(|row| (row.frame, partition(&row)));
                moved.extend(targets.filter(|(_, target)| *target != number));
            })?;
            if moved.is_empty() {
                continue;
            }
            let mut taken = std::mem::take(&mut self.parts[number]);
            let target = |frame| moved.get(&frame).copied().unwrap_or(number);
            for chunk in taken.rows.take(spill)? {
                events.clear();
                blocks::unpack(&chunk, &mut events);
                sorting.targets.clear();
                sorting
                    .targets
                    .extend(events.frame.iter().map(|&frame| target(frame) as u32));
                sorting.sort(&events, self.parts.len());
                bytes += self.add_sorted(&mut sorting);
            }
            for chunk in taken.excerpts.take(spill)? {
                bytes += chunk.len();
                excerpts::each(&chunk, |frame, excerpt| {
                    self.parts[target(frame)].excerpts.push(excerpt);
                });
            }
        }
        Ok(bytes)
    }
}

impl Sorting {
    /// Sort `events` by `targets`, which are below `parts_count`; stable.
    fn sort(&mut self, events: &EventColumns, parts_count: usize) {
        let Self {
            targets,
            ends,
            order,
            rows,
            ..
        } = self;
        ends.clear();
        ends.resize(parts_count, 0);
        targets.iter().for_each(|&target| ends[target as usize] += 1);
        let mut total = 0;
        for end in &mut *ends {
            total += std::mem::replace(end, total);
        }
        order.clear();
        order.resize(targets.len(), 0);
        for (row, &target) in (0..).zip(&*targets) {
            let next = &mut ends[target as usize];
            order[*next] = row;
            *next += 1;
        }
        rows.clear();
        blocks::append_rows(events, order, rows);
    }
}

impl Origin<'_> {
    /// The rows that belong to the host; nothing if all do.
    fn own_rows(&self, events: &EventColumns) -> Option<EventColumns> {
        if !self.interfaces.contains(&OTHER_HOSTS_INTERFACE) {
            return None;
        }
        let is_own = |&at: &usize| self.interfaces[usize::from(events.interface[at])] != OTHER_HOSTS_INTERFACE;
        let rows: Vec<Event> = (0..events.len()).filter(is_own).map(|at| events.row(at)).collect();
        let mut own = EventColumns::default();
        own.extend(&rows);
        Some(own)
    }

    /// Convert rows to the numbers of all captures.
    fn renumber_all(&self, rows: &mut EventColumns) {
        rows.frame.iter_mut().for_each(|frame| *frame += self.frames_before);
        let interfaces = rows.interface.iter_mut();
        interfaces.for_each(|interface| *interface = self.interfaces[usize::from(*interface)]);
        for addresses in [&mut rows.src_addr, &mut rows.dst_addr] {
            addresses
                .iter_mut()
                .for_each(|address| *address = self.addresses.number(*address));
        }
    }
}

impl Moves<'_> {
    fn partition(&self, key: u64, bits: u32) -> usize {
        let moved = self.keys.binary_search(&key).map_or(key, |at| self.to[at]);
        partition_of(moved, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syn_ack_has_a_fingerprint_of_its_isns_and_one_of_its_timestamps_if_it_has_any() {
        let syn_ack = |options| Event {
            seq: 1,
            ack: 2,
            tsval: 3,
            tsecr: 4,
            options,
            flags: SYN_ACK,
            ..Event::default()
        };
        let mut events = EventColumns::default();
        events.extend(&[syn_ack(0), syn_ack(TIMESTAMPS)]);
        let mut found = SynAcks::default();
        (0..2).for_each(|at| found.note(&events, at, 70 + at as u64));
        assert_eq!(found.fingerprints, [1 << 32 | 2, 1 << 32 | 2, 3 << 32 | 4]);
        assert_eq!(found.keys, [70, 71, 71]);
    }
}
