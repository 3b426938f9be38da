//! Reads a capture, one batch of columns at a time.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;

use twintap_protocols::excerpt::ExcerptColumns;
use twintap_protocols::http1::IdHeaders;
use twintap_protocols::redaction;
use twintap_secrets::SecretRules;

use crate::clues::{ClueRules, Clues};
use crate::cooked::CookedInterfaces;
use crate::counters::{CounterKind, Counters};
use crate::events::EventColumns;
use crate::expansion::{BoundedSource, Expansion};
use crate::format::{DETECT_LEN, Format, NotACapture, detect};
use crate::frames::Frames;
use crate::input::{End, Input};
use crate::interface::Interface;
use crate::link::LinkType;
use crate::opening::Opener;
use crate::packet::{self, Decoder, Direction, Packet};
use crate::pcap::Pcap;
use crate::pcapng::{Pcapng, Section};
use crate::stamps::StampFilter;

/// Damaged packets of a file whose frames are kept, at most.
const DAMAGED_LIMIT: usize = 1 << 20;

/// The next packet of a file. Its bytes are the input's last consumed ones.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub host_ns: i64,
    pub interface: u16,
    pub link_type: LinkType,
    pub direction: Direction,
    pub original_len: u32,
    pub captured_len: usize,
    /// Bytes consumed after the packet's.
    pub tail_len: usize,
    /// The capture states that its TCP checksum was wrong when it was received.
    pub is_damaged: bool,
}

/// What comes next in a file.
pub enum Step {
    Packet(Record),
    /// A packet that cannot be used; it counts as a frame.
    LeftOut(CounterKind),
    /// No more packets, with a counter if the file does not end properly.
    End(Option<CounterKind>),
}

impl Step {
    /// The end of a file, at the start of a record or after `within` bytes of one.
    #[cold]
    pub fn end_of<R: Read>(input: &Input<R>, within: usize) -> Self {
        Self::End(match input.end_reason() {
            Some(End::Corrupt) => Some(CounterKind::CompressionCorrupt),
            Some(End::Failed) => Some(CounterKind::ReadFailed),
            Some(End::Excessive) => Some(CounterKind::ExpansionRefused),
            Some(End::Cut) => Some(CounterKind::CaptureTruncated),
            _ if within > 0 || !input.available().is_empty() => Some(CounterKind::CaptureTruncated),
            _ => None,
        })
    }
}

enum FileFormat {
    Pcap(Pcap),
    Pcapng(Box<Pcapng>),
}

/// Columns of a run of packets.
#[derive(Debug, Default)]
pub struct Batch {
    pub events: EventColumns,
    pub excerpts: ExcerptColumns,
}

/// A packet's bytes from the file, with secrets overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketCopy {
    pub frame: u32,
    pub host_ns: i64,
    pub interface: u16,
    pub direction: Direction,
    pub original_len: u32,
    pub data: Vec<u8>,
}

/// A copy of the state of connections that are followed.
#[cold]
fn following(decoder: &Decoder) -> Following {
    Following {
        frames: decoder.frames.clone(),
        opener: decoder.opener.clone(),
    }
}

/// What is known of connections that are followed, at one moment of a capture.
#[derive(Clone, Default)]
pub struct Following {
    pub frames: Frames,
    pub opener: Option<Box<dyn Opener>>,
}

/// A capture file being read.
pub struct Reader<R> {
    input: Input<R>,
    format: FileFormat,
    decoder: Decoder,
    interfaces: Vec<Interface>,
    cooked: CookedInterfaces,
    counters: Counters,
    section: Section,
    stamp_filter: StampFilter,
    /// The stamps of packets that are decoded, inclusive.
    wanted: (i64, i64),
    /// Before the first packet from this stamp on, `copy` is made.
    copy_at_ns: i64,
    copy: Option<Following>,
    damaged_frames: Vec<u32>,
    frame: u32,
    is_done: bool,
}

/// Why a file cannot be read at all.
#[derive(Debug)]
pub enum OpenError {
    Io(io::Error),
    NotACapture(NotACapture),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<NotACapture> for OpenError {
    fn from(error: NotACapture) -> Self {
        Self::NotACapture(error)
    }
}

/// A source of uncompressed bytes.
pub type Source = Box<dyn Read + Send>;

/// Open the capture at `path`, compressed or not.
///
/// # Errors
/// What the operating system says, or what the file is instead of a capture.
pub fn open(path: &Path) -> Result<Reader<Source>, OpenError> {
    Reader::new(undo_compression(Box::new(File::open(path)?), Expansion::UNLIMITED)?)
}

/// `source`, decompressed if it is compressed, as far as `limit`.
///
/// # Errors
/// What the operating system says on the first read.
pub fn undo_compression(source: Source, limit: Expansion) -> Result<Source, OpenError> {
    let (head, source) = look_ahead(source)?;
    match detect(&head) {
        Ok(Format::Gzip) => Ok(Box::new(BoundedSource::gzip(source, limit))),
        Ok(Format::Zstd) => Ok(Box::new(BoundedSource::zstd(source, limit)?)),
        _ => Ok(source),
    }
}

/// The first bytes of `source`, and the source with them.
fn look_ahead(mut source: Source) -> io::Result<(Vec<u8>, Source)> {
    let mut head = Vec::with_capacity(DETECT_LEN);
    source.by_ref().take(DETECT_LEN as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Box::new(Cursor::new(head).chain(source))))
}

impl<R: Read> Reader<R> {
    /// Begin to read the uncompressed `source`.
    ///
    /// # Errors
    /// What the source is instead of a capture.
    pub fn new(source: R) -> Result<Self, OpenError> {
        let mut input = Input::new(source);
        input.require(DETECT_LEN);
        let held = input.available();
        let mut interfaces = Vec::new();
        let format = match detect(&held[..held.len().min(DETECT_LEN)])? {
            Format::Pcap { order, fraction_ns } => {
                let (pcap, interface) = Pcap::open(&mut input, order, fraction_ns)?;
                interfaces.push(interface);
                FileFormat::Pcap(pcap)
            }
            Format::Pcapng => FileFormat::Pcapng(Box::default()),
            Format::Gzip | Format::Zstd => return Err(still_compressed().into()),
        };
        Ok(Self {
            input,
            format,
            decoder: Decoder::default(),
            interfaces,
            cooked: CookedInterfaces::default(),
            counters: Counters::default(),
            section: Section::default(),
            stamp_filter: StampFilter::default(),
            wanted: (i64::MIN, i64::MAX),
            copy_at_ns: i64::MAX,
            copy: None,
            damaged_frames: Vec::new(),
            frame: 0,
            is_done: false,
        })
    }

    /// Read transaction ids from these headers, from here on, except from headers that hold secrets.
    pub fn set_id_headers(&mut self, ids: IdHeaders) {
        self.decoder.id_headers = ids.without_secrets(&self.decoder.secrets);
    }

    /// Overwrite secrets by these rules, in texts and in copies of packets, from here on.
    pub fn set_secrets(&mut self, rules: Arc<SecretRules>) {
        self.decoder.secrets = rules;
    }

    /// Accept stamps in these ranges only (inclusive, ns); without ranges, all that pcap can hold.
    pub fn set_believed_stamps(&mut self, ranges: Vec<(i64, i64)>) {
        self.stamp_filter = StampFilter::new(ranges);
    }

    /// Frames so far, ascending, whose TCP checksums were wrong when they were received, as their capture states.
    pub fn damaged_frames(&self) -> &[u32] {
        &self.damaged_frames
    }

    /// Decode only packets with stamps from the first to the last, from here on; others are counted.
    pub fn set_wanted_stamps(&mut self, first_ns: i64, last_ns: i64) {
        self.wanted = (first_ns, last_ns);
    }

    /// Frames whose stamps were not believed so far.
    pub fn absurd_frames(&self) -> &[u32] {
        self.stamp_filter.frames()
    }

    /// Continue with the connections that were followed in the host's previous file ([`Self::take_following`]).
    /// What opens encrypted ones gets the keys of this reader's.
    pub fn follow(&mut self, before: Following) {
        self.decoder.frames = before.frames;
        if let Some(mut opener) = before.opener {
            if let Some(newer) = &self.decoder.opener {
                opener.take_keys(newer.as_ref());
            }
            self.decoder.opener = Some(opener);
        }
    }

    /// Take the state of connections that are followed, which may continue in the host's next file.
    pub fn take_following(&mut self) -> Following {
        Following {
            frames: std::mem::take(&mut self.decoder.frames),
            opener: self.decoder.opener.take(),
        }
    }

    /// Copy the state of connections that are followed, once packets with this stamp or a later one come.
    pub fn copy_following_at(&mut self, host_ns: i64) {
        self.copy_at_ns = host_ns;
    }

    /// The copy, if it was made.
    pub fn copied_following(&mut self) -> Option<Following> {
        self.copy.take()
    }

    /// Open encrypted connections, from here on.
    pub fn set_opener(&mut self, opener: Option<Box<dyn Opener>>) {
        self.decoder.opener = opener;
    }

    /// Count what is noticed outside of reading.
    pub fn count(&mut self, kind: CounterKind, count: u64) {
        self.counters.add(kind, count);
    }

    /// Count these clues from here on.
    pub fn set_clue_rules(&mut self, rules: ClueRules) {
        self.decoder.clues.set_rules(rules);
    }

    /// The clues so far, by endpoint, whose address is a number.
    pub fn clues(&self) -> &Clues {
        &self.decoder.clues
    }

    /// The columns of the next up to `packets` packets, and of those held back before; nothing at the end. Rows behind
    /// an incomplete datagram are held back for the next batch (see [`crate::fragments`]).
    pub fn next_batch(&mut self, packets: usize) -> Option<Batch> {
        if self.is_done {
            return None;
        }
        self.decoder.reserve(packets);
        let first_frame = self.frame;
        for _ in 0..packets {
            if self.frame == u32::MAX {
                self.counters.bump(CounterKind::TooManyPackets);
                self.is_done = true;
                break;
            }
            if !self.step() {
                self.is_done = true;
                break;
            }
        }
        let (events, excerpts) = if self.is_done {
            self.decoder.take_last(&mut self.counters)
        } else {
            self.decoder.take(self.frame, &mut self.counters)
        };
        let is_any = self.frame > first_frame || !events.is_empty();
        is_any.then_some(Batch { events, excerpts })
    }

    /// Use the memory of a batch that is needed no more for one of the next.
    pub fn reuse(&mut self, batch: Batch) {
        self.decoder.reuse((batch.events, batch.excerpts));
    }

    /// Copy the packets of `frames`, their secrets overwritten, which ascend and lie ahead; those that the file does
    /// not have are left out. What is read on the way is not decoded.
    pub fn copy_packets(&mut self, frames: &[u32]) -> Vec<PacketCopy> {
        let mut copies = Vec::with_capacity(frames.len());
        for &frame in frames {
            while self.frame < frame && !self.is_done {
                let step = self.next_step();
                let Step::Packet(record) = step else {
                    self.is_done = !self.take_rare(&step);
                    continue;
                };
                self.frame += 1;
                if self.frame == frame {
                    copies.push(self.copy(&record));
                }
            }
        }
        copies
    }

    fn copy(&mut self, record: &Record) -> PacketCopy {
        let mut data = self.input.last_consumed(record.captured_len, record.tail_len).to_vec();
        let payload = packet::payload_range(record.link_type, &data, record.original_len);
        redaction::redact(&self.decoder.secrets, &mut data[payload]);
        PacketCopy {
            frame: self.frame,
            host_ns: record.host_ns,
            interface: record.interface,
            direction: record.direction,
            original_len: record.original_len,
            data,
        }
    }

    #[inline(always)]
    fn next_step(&mut self) -> Step {
        match &mut self.format {
            FileFormat::Pcap(pcap) => pcap.next(&mut self.input),
            FileFormat::Pcapng(pcapng) => pcapng.next(
                &mut self.input,
                &mut self.interfaces,
                &mut self.section,
                &mut self.counters,
            ),
        }
    }

    /// Take one packet; false at the end.
    #[inline(always)]
    fn step(&mut self) -> bool {
        match self.next_step() {
            Step::Packet(record) => self.take_packet(&record),
            other => return self.take_rare(&other),
        }
        true
    }

    #[inline(always)]
    fn take_packet(&mut self, record: &Record) {
        self.frame += 1;
        if record.is_damaged {
            self.note_damaged();
        }
        let data = self.input.last_consumed(record.captured_len, record.tail_len);
        let mut interface = record.interface;
        if record.link_type == LinkType::LINUX_SLL2 {
            interface = self
                .cooked
                .resolve(interface, data, &mut self.interfaces, &mut self.counters);
        }
        self.interfaces[usize::from(interface)].packets_count += 1;
        let (host_ns, is_own) = self.stamp_filter.take(self.frame, record.host_ns);
        if !is_own {
            self.counters.bump(CounterKind::StampsAbsurd);
        }
        if host_ns < self.wanted.0 || host_ns > self.wanted.1 {
            self.counters.bump(CounterKind::OutsideTime);
            return;
        }
        if host_ns >= self.copy_at_ns {
            self.copy_at_ns = i64::MAX;
            self.copy = Some(following(&self.decoder));
        }
        let packet = Packet {
            frame: self.frame,
            host_ns,
            interface,
            link_type: record.link_type,
            direction: record.direction,
            original_len: record.original_len,
            data,
        };
        self.decoder.push(&packet, &mut self.counters);
    }

    #[cold]
    fn note_damaged(&mut self) {
        if self.damaged_frames.len() < DAMAGED_LIMIT {
            self.damaged_frames.push(self.frame);
        }
    }

    #[cold]
    fn take_rare(&mut self, step: &Step) -> bool {
        match step {
            Step::LeftOut(reason) => {
                self.frame += 1;
                self.counters.bump(*reason);
                true
            }
            Step::End(reason) => {
                reason.iter().for_each(|&reason| self.counters.bump(reason));
                false
            }
            Step::Packet(_) => true,
        }
    }

    /// The interfaces described so far.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Contents of section headers and name blocks so far.
    pub fn section(&self) -> &Section {
        &self.section
    }

    /// The addresses seen so far, as the columns `src_addr` and `dst_addr` number them.
    pub fn addresses(&self) -> &crate::address::AddressTable {
        &self.decoder.addresses
    }

    /// Packets so far, TCP or not.
    pub fn packets_count(&self) -> u32 {
        self.frame
    }

    /// Bytes read so far, uncompressed.
    pub fn expanded_bytes(&self) -> u64 {
        self.input.read_bytes()
    }

    /// Counts so far, with the drops that the interfaces' statistics report.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        let by_interface = self
            .interfaces
            .iter()
            .filter_map(|interface| interface.statistics.dropped_count);
        let by_packet = match &self.format {
            FileFormat::Pcap(_) => 0,
            FileFormat::Pcapng(pcapng) => pcapng.drops_between,
        };
        // Both count the same drops.
        counters.add(
            CounterKind::CaptureDropped,
            by_interface.fold(0, u64::saturating_add).max(by_packet),
        );
        counters
    }
}

fn still_compressed() -> NotACapture {
    let (what, next_step) = (
        "compressed more than once",
        "decompress it first: gzip -d FILE, or zstd -d FILE",
    );
    NotACapture {
        what: what.to_owned(),
        next_step: next_step.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;

    /// A frame of Ethernet, IPv4 and TCP with this payload, or a later piece of its datagram.
    fn frame(fragment: u16, payload: &[u8]) -> Vec<u8> {
        let tcp = [
            &[0, 9, 0, 80][..],
            &[0; 8],
            &[0x80, 0x18],
            &[0; 6],
            &[1, 1, 8, 10],
            &[0; 8],
        ]
        .concat();
        let body = [if fragment & 0x1fff == 0 { &tcp[..] } else { &[] }, payload].concat();
        let total_len = (20 + body.len() as u16).to_be_bytes();
        let ip = [
            &[0x45, 0][..],
            &total_len,
            &[0, 7],
            &fragment.to_be_bytes(),
            &[64, 6, 0, 0],
            &[10, 0, 0, 1, 10, 0, 0, 2],
        ];
        [&[0; 12][..], &[8, 0], &ip.concat(), &body].concat()
    }

    fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
        let header = [
            &b"\xd4\xc3\xb2\xa1\x02\0\x04\0"[..],
            &[0; 8],
            &[0, 0, 1, 0],
            &[1, 0, 0, 0],
        ]
        .concat();
        let record = |frame: &Vec<u8>| {
            let len = (frame.len() as u32).to_le_bytes();
            [&[0; 8][..], &len, &len, frame].concat()
        };
        [header, frames.iter().flat_map(record).collect()].concat()
    }

    #[test]
    fn batches_are_the_same_if_their_memory_is_used_again() {
        let head = b"GET /a HTTP/1.1\r\nX-Trans-Id: tx1\r\n\r\n";
        let whole = frame(0x4000, head);
        let pieces = [frame(0x2000, &head[..16]), frame(6, &head[16..])];
        let file = pcap(&[
            whole.clone(),
            pieces[0].clone(),
            whole.clone(),
            pieces[1].clone(),
            whole.clone(),
            whole,
        ]);
        let rows_of = |reuses: bool| {
            let mut reader = Reader::new(&file[..]).expect("a capture");
            let (mut rows, mut excerpts): (Vec<Event>, Vec<String>) = Default::default();
            while let Some(batch) = reader.next_batch(1) {
                rows.extend((0..batch.events.len()).map(|at| batch.events.row(at)));
                excerpts.extend((0..batch.excerpts.len()).map(|at| format!("{:?}", batch.excerpts.row(at))));
                if reuses {
                    reader.reuse(batch);
                }
            }
            (rows, excerpts)
        };
        let (rows, excerpts) = rows_of(true);
        assert_eq!((rows.len(), excerpts.len()), (5, 5));
        assert_eq!((rows, excerpts), rows_of(false));
    }
}
