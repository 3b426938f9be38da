//! Segment files: `HOST-000001.pcapng`, each a whole pcapng section, never seen half written.
//!
//! A segment grows as `….pcapng.partial`; closing it appends the statistics, syncs it and gives it its name. When the
//! disk is full the blocks that reached it whole are kept under the final name, and what follows them is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use twintap_secrets::SecretRules;

use crate::clock_error::SkewedClock;
use crate::error::CaptureError;
use crate::finisher::{Finisher, Totals};
use crate::pcapng::{self, Direction, Interface, Statistics};
use crate::policy::KeptPart;
use crate::sampling::{Keeping, LeftOut};

/// Bytes gathered before they are handed to the kernel.
const BUFFER_BYTES: usize = 256 * 1024;

/// Ends the name of a segment that is still being written.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// Contents that all segments of a capture share, and when a new segment begins.
#[derive(Debug, Clone)]
pub struct SegmentSettings {
    /// Existing directory.
    pub folder: PathBuf,
    /// Where sections go one after the other, instead of files in `folder`: a pipe.
    pub stream: Option<Arc<File>>,
    pub host: String,
    /// What the names of files begin with, before `-000001.pcapng`.
    pub stem: String,
    /// Program and version.
    pub application: String,
    pub os: String,
    /// The host's own, on the captured interfaces.
    pub addresses: Vec<IpAddr>,
    pub interfaces: Vec<Interface>,
    /// When the capture began, by the host's clock.
    pub since_ns: u64,
    /// A segment is closed when it has grown to this,
    pub segment_bytes: u64,
    /// or when its first packet was written this long ago.
    pub segment_age: Duration,
    /// Number of the first segment.
    pub first_number: u32,
    /// Of every stamp that is written, for tests.
    pub clock_error: SkewedClock,
    /// What is overwritten in packets.
    pub secrets: Arc<SecretRules>,
}

/// A reading of both clocks: the one that never steps, and the host's.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    pub instant: Instant,
    pub host_ns: u64,
}

impl Now {
    /// Reads the clocks.
    pub fn read() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            instant: Instant::now(),
            host_ns: since_epoch.as_nanos() as u64,
        }
    }
}

/// One packet as the ring hands it over.
#[derive(Debug, Clone, Copy)]
pub struct PacketRecord<'a> {
    pub interface_index: u32,
    pub host_ns: u64,
    pub direction: Direction,
    pub frame: &'a [u8],
    pub original_len: u32,
    /// Its TCP checksum is wrong.
    pub is_damaged: bool,
}

/// Files on a disk; replaced in tests by one that fills up.
pub trait SegmentFile: Write + Send + Sync {
    /// Cuts the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns when all is durable.
    fn sync(&self) -> io::Result<()>;
    /// Gives the file its final name.
    fn publish(&self, partial: &Path, path: &Path) -> io::Result<()> {
        fs::rename(partial, path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl SegmentFile for File {
    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A section's part of a stream, which has neither a name nor an end of its own.
struct StreamPart(Arc<File>);

impl Write for StreamPart {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.as_ref().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SegmentFile for StreamPart {
    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(()) // its reader keeps whole blocks only
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn publish(&self, _partial: &Path, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Options to create a segment's file: only its owner may read packets.
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

type OpenFile = Box<dyn Fn(&Path) -> io::Result<Box<dyn SegmentFile>> + Send + Sync>;

/// Writes packets into segments.
pub struct SegmentWriter {
    settings: SegmentSettings,
    open_file: OpenFile,
    next_number: u32,
    segment: Option<Segment>,
    finisher: Finisher,
    /// What each segment states at its beginning; `None` of a capture without a budget.
    keeping: Option<Keeping>,
    /// Not stated yet.
    left_out: LeftOut,
}

impl SegmentWriter {
    /// A writer that has written nothing yet. `totals` counts the segments that have become durable.
    pub fn new(settings: SegmentSettings, totals: Arc<Totals>) -> Self {
        let stream = settings.stream.clone();
        let open_file = move |path: &Path| -> io::Result<Box<dyn SegmentFile>> {
            Ok(match &stream {
                Some(stream) => Box::new(StreamPart(Arc::clone(stream))),
                None => Box::new(new_file().open(path)?),
            })
        };
        Self::with_files(settings, totals, Box::new(open_file))
    }

    fn with_files(settings: SegmentSettings, totals: Arc<Totals>, open_file: OpenFile) -> Self {
        SegmentWriter {
            next_number: settings.first_number,
            settings,
            open_file,
            segment: None,
            finisher: Finisher::start(totals),
            keeping: None,
            left_out: LeftOut::default(),
        }
    }

    /// Appends the part of a packet that the policy keeps, redacted. An error ends the capture: the writer accepts no
    /// more packets.
    pub fn write(&mut self, packet: &PacketRecord, kept: &KeptPart, now: Now) -> Result<(), CaptureError> {
        if self.segment.is_none() {
            self.segment = Some(self.begin(now)?);
        }
        let segment = self.segment.as_mut().expect("a segment was begun above");
        segment.append(packet, kept);
        if segment.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Whether the open segment is big or old enough to be closed.
    pub fn is_due(&self, now: Instant) -> bool {
        self.segment.as_ref().is_some_and(|segment| {
            segment.len() >= self.settings.segment_bytes
                || now.saturating_duration_since(segment.begun.instant) >= self.settings.segment_age
        })
    }

    /// Appends comments to the open segment, if any.
    pub fn write_comments(&mut self, comments: &[String]) {
        if let Some(segment) = self.segment.as_mut().filter(|_| !comments.is_empty()) {
            pcapng::comments(&mut segment.buffer, comments);
        }
    }

    /// States what is kept from now on, in the open segment or a new one, and at the beginning of each that follows: a
    /// reader of any of them knows it, also where nothing of what came was kept.
    pub fn state_keeping(&mut self, keeping: Keeping, now: Now) -> Result<(), CaptureError> {
        let is_change = self.keeping.replace(keeping).is_some();
        match &mut self.segment {
            Some(segment) => segment.state(&keeping),
            None if is_change => self.segment = Some(self.begin(now)?),
            None => {}
        }
        Ok(())
    }

    /// Counts what was not kept; the segment that is closed next states it.
    pub fn leave_out(&mut self, count: LeftOut) {
        self.left_out.packets_count += count.packets_count;
        self.left_out.shortened_count += count.shortened_count;
    }

    /// What makes a stamp as the segments have it.
    pub fn clock_error(&self) -> SkewedClock {
        self.settings.clock_error
    }

    /// From the next segment on these are the captured interfaces, and the host's addresses there. No segment is open.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>, addresses: Vec<IpAddr>) {
        debug_assert!(self.segment.is_none(), "its interfaces are described at its beginning");
        self.settings.interfaces = interfaces;
        self.settings.addresses = addresses;
    }

    /// Closes the open segment, if any; it becomes durable in the background. `statistics`: of each interface, since
    /// the last segment was closed. An error may be that of an earlier segment.
    pub fn close(&mut self, statistics: &[Statistics], now: Now) -> Result<(), CaptureError> {
        let Some(segment) = self.segment.as_mut() else {
            return Ok(());
        };
        if let Some(statement) = std::mem::take(&mut self.left_out).statement() {
            pcapng::comments(&mut segment.buffer, &[statement]);
        }
        segment.append_statistics(statistics, now);
        self.flush()?;
        match self.segment.take() {
            Some(segment) => self.finisher.take(segment),
            None => Ok(()),
        }
    }

    /// Ends the capture: closes the open segment and waits until all are durable. A capture that saw no packet leaves
    /// one empty segment, which records that it saw none.
    pub fn finish(&mut self, statistics: &[Statistics], now: Now) -> Result<(), CaptureError> {
        let unwritten =
            statistics.iter().any(|interface| interface.received_count > 0) || self.left_out != LeftOut::default();
        if self.segment.is_none() && (self.next_number == self.settings.first_number || unwritten) {
            self.segment = Some(self.begin(now)?);
        }
        let closed = self.close(statistics, now);
        closed.and(self.finisher.finish())
    }

    fn begin(&mut self, now: Now) -> Result<Segment, CaptureError> {
        let path = self
            .settings
            .folder
            .join(format!("{}-{:06}.pcapng", self.settings.stem, self.next_number));
        self.next_number += 1;
        let partial = PathBuf::from(format!("{}{PARTIAL_SUFFIX}", path.display()));
        let file = (self.open_file)(&partial).map_err(|error| CaptureError::from_file(&error, &partial))?;
        let mut segment = Segment::new(file, partial, path, &self.settings, now);
        if let Some(keeping) = &self.keeping {
            segment.state(keeping);
            segment.prelude_len = segment.buffer.len() as u64;
        }
        Ok(segment)
    }

    /// Writes the open segment's buffer to the file; if that fails, keeps the complete blocks and returns the error.
    fn flush(&mut self) -> Result<(), CaptureError> {
        let segment = self.segment.as_mut().expect("called with an open segment");
        let Err(error) = segment.flush() else {
            return Ok(());
        };
        let failure = CaptureError::from_file(&error, &segment.path);
        if let Some(segment) = self.segment.take() {
            let _ = self.finisher.take(segment); // of two failures the first one is reported
        }
        Err(failure)
    }
}

/// One segment being written.
pub(crate) struct Segment {
    file: Box<dyn SegmentFile>,
    partial: PathBuf,
    path: PathBuf,
    begun: Now,
    buffer: Vec<u8>,
    /// Bytes in the file; all of them whole blocks.
    flushed_len: u64,
    /// Length of the blocks before the first packet.
    prelude_len: u64,
    written_counts: Vec<u64>,
    clock_error: SkewedClock,
    secrets: Arc<SecretRules>,
    /// A part of it could not be written.
    cut_short: bool,
}

impl Segment {
    fn new(
        file: Box<dyn SegmentFile>,
        partial: PathBuf,
        path: PathBuf,
        settings: &SegmentSettings,
        begun: Now,
    ) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4);
        let since_ns = settings.clock_error.stamp(settings.since_ns);
        pcapng::section_header(
            &mut buffer,
            &settings.host,
            since_ns,
            &settings.application,
            &settings.os,
        );
        pcapng::name_resolution(&mut buffer, &settings.host, &settings.addresses);
        for interface in &settings.interfaces {
            pcapng::interface_description(&mut buffer, interface);
        }
        Segment {
            file,
            partial,
            path,
            begun,
            prelude_len: buffer.len() as u64,
            buffer,
            flushed_len: 0,
            written_counts: vec![0; settings.interfaces.len()],
            clock_error: settings.clock_error,
            secrets: Arc::clone(&settings.secrets),
            cut_short: false,
        }
    }

    fn state(&mut self, keeping: &Keeping) {
        let statement = keeping.statement(|host_ns| self.clock_error.stamp(host_ns));
        pcapng::comments(&mut self.buffer, &[statement]);
    }

    fn len(&self) -> u64 {
        self.flushed_len + self.buffer.len() as u64
    }

    fn append(&mut self, packet: &PacketRecord, kept: &KeptPart) {
        let captured = pcapng::enhanced_packet(
            &mut self.buffer,
            packet.interface_index,
            self.clock_error.stamp(packet.host_ns),
            packet.direction,
            &packet.frame[..kept.captured_len],
            packet.original_len,
            packet.is_damaged,
        );
        kept.redact(&self.secrets, &mut self.buffer[captured]);
        self.written_counts[packet.interface_index as usize] += 1;
    }

    fn append_statistics(&mut self, statistics: &[Statistics], now: Now) {
        for (index, interface) in statistics.iter().enumerate() {
            let interface = Statistics {
                written_count: self.written_counts[index],
                ..*interface
            };
            pcapng::interface_statistics(
                &mut self.buffer,
                index as u32,
                self.clock_error.stamp(self.begun.host_ns),
                self.clock_error.stamp(now.host_ns),
                &interface,
            );
        }
    }

    /// Hands the buffer to the kernel. After an error `flushed_len` covers the blocks that went through whole.
    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.buffer.len() {
            match self.file.write(&self.buffer[done..]) {
                Ok(0) => return self.fail(done, io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(done, error),
            }
        }
        self.flushed_len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn fail(&mut self, written_len: usize, error: io::Error) -> io::Result<()> {
        self.cut_short = true;
        self.flushed_len += pcapng::whole_blocks_len(&self.buffer, written_len) as u64;
        self.buffer.clear();
        Err(error)
    }

    /// Cuts off an incomplete block, syncs the file and renames it. After a failure, a segment without packets is
    /// removed.
    ///
    /// Returns its length.
    pub(crate) fn make_durable(&self) -> Result<u64, CaptureError> {
        let done = self.sync().and_then(|()| self.file.publish(&self.partial, &self.path));
        match done {
            Ok(()) => Ok(self.flushed_len),
            Err(error) => {
                let _ = fs::remove_file(&self.partial); // what is not durable is no segment; the failure is reported
                Err(CaptureError::from_file(&error, &self.path))
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.cut_short {
            self.file.set_len(self.flushed_len)?;
            if self.flushed_len <= self.prelude_len {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.file.sync()
    }
}

#[cfg(test)]
mod tests;
