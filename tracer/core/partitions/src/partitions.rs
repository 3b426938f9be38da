//! All partitions: batches in, a partition's columns out.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHashMap;
use twintap_wire::events::{Event, EventColumns};
use twintap_wire::reader::Batch;

use crate::buffers::{Buffer, Spill};
use crate::columns::{Columns, HostView};
use crate::keys::{Addresses, FileAddresses, connection_key, partition_of};
use crate::locked;
use crate::notes::Notes;
use crate::rows::{self, ROW_LEN};

/// What gives a batch's numbers their meaning for all captures.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub host: usize,
    /// Of the host, before the file.
    pub frames_before: u32,
    /// Of each interface of the file, its number for the host.
    pub interfaces: &'a [u16],
    pub addresses: &'a FileAddresses,
}

/// The packets of a batch that have the SYN flag, as they are kept, and the key of each.
#[derive(Clone, Debug, Default)]
pub struct Syns {
    pub events: EventColumns,
    pub keys: Vec<u64>,
}

/// Keys (ascending), and the key that stands for each instead.
#[derive(Clone, Copy, Debug)]
pub struct Moves<'a> {
    pub keys: &'a [u64],
    pub to: &'a [u64],
}

/// Events and heads of all hosts by partition. Hosts may be added to side by side.
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
}

#[derive(Debug, Default)]
struct Part {
    rows: Buffer,
    heads: Buffer,
}

const SYN: u16 = 0x02;

impl Partitions {
    /// 2^`bits` empty partitions. Beyond `most_bytes` in memory they go to a file in `folder`.
    pub fn new(bits: u32, hosts_count: usize, folder: PathBuf, most_bytes: usize) -> Self {
        let parts = || (0..1 << bits).map(|_| Part::default()).collect();
        let host = || {
            Mutex::new(Host {
                notes: Notes::default(),
                parts: parts(),
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

    /// How many.
    pub fn len(&self) -> usize {
        1 << self.bits
    }

    /// Never: there is at least one.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Take in the next batch of a host.
    ///
    /// # Errors
    /// What the operating system says of the file.
    pub fn add(&self, batch: &Batch, origin: Origin) -> io::Result<Syns> {
        let (syns, bytes) = {
            let mut host = locked(&self.hosts[origin.host]);
            host.notes.add(&batch.events, |index| origin.addresses.number(index));
            host.add(batch, origin, self.bits)
        };
        self.note_bytes(bytes)?;
        Ok(syns)
    }

    /// What the packets of a host tell of it so far.
    pub fn with_notes<T>(&self, host: usize, read: impl FnOnce(&Notes) -> T) -> T {
        read(&locked(&self.hosts[host]).notes)
    }

    /// Bring together the packets whose keys are replaced.
    ///
    /// # Errors
    /// What the operating system says of the file.
    pub fn regroup(&self, addresses: &Addresses, moves: Moves) -> io::Result<()> {
        let keys: Vec<u64> = addresses.all().iter().map(crate::keys::address_key).collect();
        let end = |address: u32, port| (keys[address as usize], port);
        let key =
            |event: &Event| connection_key(end(event.src_addr, event.src_port), end(event.dst_addr, event.dst_port));
        for host in &self.hosts {
            let bytes = locked(host).regroup(&self.spill, |event| moves.partition(key(event), self.bits))?;
            self.note_bytes(bytes)?;
        }
        Ok(())
    }

    /// The columns of a partition, host by host in the order of frames; nothing if it is empty. They are kept no longer.
    /// `is_loopback` by an address's rank.
    ///
    /// # Errors
    /// What the operating system says of the file.
    pub fn take(&self, number: usize, views: &[HostView], is_loopback: &[bool]) -> io::Result<Option<Columns>> {
        let mut columns = Columns::default();
        for (host, (own, view)) in (0..).zip(self.hosts.iter().zip(views)) {
            let mut part = std::mem::take(&mut locked(own).parts[number]);
            let (rows, heads) = (part.rows.take(&self.spill)?, part.heads.take(&self.spill)?);
            columns.add_host(host, &rows, &heads, view);
        }
        columns.finish(is_loopback);
        Ok((!columns.events.is_empty()).then_some(columns))
    }

    /// All is added: what was too much for memory leaves it to the stages that come.
    ///
    /// # Errors
    /// What the operating system says of the file.
    pub fn finish(&self) -> io::Result<()> {
        if self.spill.is_used() { self.to_file() } else { Ok(()) }
    }

    /// So many more are held; with too many, all go to the file.
    fn note_bytes(&self, bytes: usize) -> io::Result<()> {
        if self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.most_bytes {
            return Ok(());
        }
        self.to_file()
    }

    fn to_file(&self) -> io::Result<()> {
        self.held_bytes.store(0, Ordering::Relaxed);
        for host in &self.hosts {
            for part in &mut locked(host).parts {
                part.rows.move_to(&self.spill)?;
                part.heads.move_to(&self.spill)?;
            }
        }
        Ok(())
    }
}

impl Host {
    /// The packets with a SYN, and how many bytes were kept.
    fn add(&mut self, batch: &Batch, origin: Origin, bits: u32) -> (Syns, usize) {
        let Batch { events, heads } = batch;
        let mut syns = Syns::default();
        let mut syn_rows = Vec::new();
        let (mut next_head, mut packed_head) = (0, Vec::new());
        let mut bytes = events.len() * ROW_LEN;
        for at in 0..events.len() {
            let key = origin.addresses.key_of_row(events, at);
            let part = &mut self.parts[partition_of(key, bits)];
            let event = origin.settled(events.row(at));
            part.rows.push(&rows::pack(&event));
            if event.flags & SYN != 0 {
                syn_rows.push(event);
                syns.keys.push(key);
            }
            while heads.frame.get(next_head) == Some(&events.frame[at]) {
                packed_head.clear();
                rows::pack_head(heads, next_head, event.frame, &mut packed_head);
                part.heads.push(&packed_head);
                bytes += packed_head.len();
                next_head += 1;
            }
        }
        debug_assert_eq!(next_head, heads.len(), "a head is of a row of its batch");
        syns.events.extend(&syn_rows);
        (syns, bytes)
    }

    /// Move each row to the partition that `partition` tells, with its heads; how many bytes were moved.
    fn regroup(&mut self, spill: &Spill, partition: impl Fn(&Event) -> usize) -> io::Result<usize> {
        let mut bytes = 0;
        for number in 0..self.parts.len() {
            let mut moved: FxHashMap<u32, usize> = FxHashMap::default();
            self.parts[number].rows.visit(spill, |chunk| {
                let targets = rows::rows(chunk)
                    .iter()
                    .map(|row| (rows::frame_of(row), partition(&rows::unpack(row))));
                moved.extend(targets.filter(|(_, target)| *target != number));
            })?;
            if moved.is_empty() {
                continue;
            }
            let mut taken = std::mem::take(&mut self.parts[number]);
            let target = |frame| moved.get(&frame).copied().unwrap_or(number);
            for chunk in taken.rows.take(spill)? {
                bytes += chunk.len();
                for row in rows::rows(&chunk) {
                    self.parts[target(rows::frame_of(row))].rows.push(row);
                }
            }
            for chunk in taken.heads.take(spill)? {
                bytes += chunk.len();
                rows::each_head(&chunk, |frame, head| self.parts[target(frame)].heads.push(head));
            }
        }
        Ok(bytes)
    }
}

impl Origin<'_> {
    /// `event` with the numbers of all captures.
    #[inline]
    fn settled(&self, event: Event) -> Event {
        Event {
            frame: event.frame + self.frames_before,
            interface: self.interfaces[usize::from(event.interface)],
            src_addr: self.addresses.number(event.src_addr),
            dst_addr: self.addresses.number(event.dst_addr),
            ..event
        }
    }
}

impl Moves<'_> {
    fn partition(&self, key: u64, bits: u32) -> usize {
        let moved = self.keys.binary_search(&key).map_or(key, |at| self.to[at]);
        partition_of(moved, bits)
    }
}
