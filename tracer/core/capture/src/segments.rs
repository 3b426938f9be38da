//! Segment files: `HOST-000001.pcapng`, each a whole pcapng section, never seen half written.
//!
//! A segment grows as `….pcapng.partial`; closing it appends the statistics, syncs it and gives it its name. When the disk
//! is full the blocks that reached it whole are kept under the final name, and what follows them is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::error::CaptureError;
use crate::pcapng::{self, Direction, Interface, Statistics};
use crate::policy::Kept;

/// Bytes gathered before they are handed to the kernel.
const BUFFER_BYTES: usize = 256 * 1024;

/// Ends the name of a segment that is still being written.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// What every segment of a capture says of itself, and when a new one begins.
#[derive(Debug, Clone)]
pub struct SegmentSettings {
    /// Existing directory.
    pub folder: PathBuf,
    pub host: String,
    /// Program and version.
    pub application: String,
    pub os: String,
    /// The host's own, on the captured interfaces.
    pub addresses: Vec<IpAddr>,
    pub interfaces: Vec<Interface>,
    /// A segment is closed when it has grown to this,
    pub segment_bytes: u64,
    /// or when its first packet was written this long ago.
    pub segment_age: Duration,
    /// Number of the first segment.
    pub first_number: u32,
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
}

/// Files on a disk; replaced in tests by one that fills up.
pub trait SegmentFile: Write + Send {
    /// Cuts the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Returns when all is durable.
    fn sync(&self) -> io::Result<()>;
}

impl SegmentFile for File {
    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

type OpenFile = fn(&Path) -> io::Result<Box<dyn SegmentFile>>;

/// Writes packets into segments.
pub struct SegmentWriter {
    settings: SegmentSettings,
    open_file: OpenFile,
    next_number: u32,
    segment: Option<Segment>,
    segments_count: u64,
    bytes_count: u64,
}

impl SegmentWriter {
    /// A writer that has written nothing yet.
    pub fn new(settings: SegmentSettings) -> Self {
        Self::with_files(settings, |path| {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            Ok(Box::new(file))
        })
    }

    fn with_files(settings: SegmentSettings, open_file: OpenFile) -> Self {
        SegmentWriter {
            next_number: settings.first_number,
            settings,
            open_file,
            segment: None,
            segments_count: 0,
            bytes_count: 0,
        }
    }

    /// Segments closed so far.
    pub fn segments_count(&self) -> u64 {
        self.segments_count
    }

    /// Bytes in closed segments.
    pub fn bytes_count(&self) -> u64 {
        self.bytes_count
    }

    /// Appends what the policy keeps of a packet, redacted. An error ends the capture: the writer takes no more.
    pub fn write(&mut self, packet: &PacketRecord, kept: &Kept, now: Now) -> Result<(), CaptureError> {
        if self.segment.is_none() {
            self.segment = Some(self.begin(now)?);
        }
        let segment = self.segment.as_mut().expect("a segment was begun above");
        segment.append(packet, kept);
        if segment.buffer.len() >= BUFFER_BYTES {
            self.flushed(Segment::flush)?;
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

    /// Closes the open segment, if any. `statistics`: of each interface, since the last segment was closed.
    pub fn close(&mut self, statistics: &[Statistics], now: Now) -> Result<(), CaptureError> {
        let Some(segment) = self.segment.as_mut() else {
            return Ok(());
        };
        segment.append_statistics(statistics, now);
        self.flushed(Segment::flush)?;
        self.flushed(|segment| segment.file.sync())?;
        let segment = self.segment.take().expect("checked above");
        self.publish(&segment)
    }

    /// Ends the capture: closes the open segment; a capture that saw no packet leaves one empty segment, which tells so.
    pub fn finish(&mut self, statistics: &[Statistics], now: Now) -> Result<(), CaptureError> {
        let untold = statistics.iter().any(|interface| interface.received_count > 0);
        if self.segment.is_none() && (self.segments_count == 0 || untold) {
            self.segment = Some(self.begin(now)?);
        }
        self.close(statistics, now)
    }

    fn begin(&mut self, now: Now) -> Result<Segment, CaptureError> {
        let path = self
            .settings
            .folder
            .join(format!("{}-{:06}.pcapng", self.settings.host, self.next_number));
        self.next_number += 1;
        let partial = PathBuf::from(format!("{}{PARTIAL_SUFFIX}", path.display()));
        let file = (self.open_file)(&partial).map_err(|error| CaptureError::from_file(&error, &partial))?;
        Ok(Segment::new(file, partial, path, &self.settings, now))
    }

    /// Runs a step on the open segment; if the disk refuses, keeps the whole blocks and says why.
    fn flushed(&mut self, step: impl FnOnce(&mut Segment) -> io::Result<()>) -> Result<(), CaptureError> {
        let segment = self.segment.as_mut().expect("called with an open segment");
        let Err(error) = step(segment) else {
            return Ok(());
        };
        let failure = CaptureError::from_file(&error, &segment.path);
        let segment = self.segment.take().expect("checked above");
        match segment.salvage() {
            Ok(true) => self.publish(&segment)?,
            _ => {
                let _ = fs::remove_file(&segment.partial); // the disk is already known to fail, and that is reported
            }
        }
        Err(failure)
    }

    fn publish(&mut self, segment: &Segment) -> Result<(), CaptureError> {
        fs::rename(&segment.partial, &segment.path)
            .and_then(|()| File::open(&self.settings.folder)?.sync_all())
            .map_err(|error| CaptureError::from_file(&error, &segment.path))?;
        self.segments_count += 1;
        self.bytes_count += segment.flushed_len;
        Ok(())
    }
}

/// One segment being written.
struct Segment {
    file: Box<dyn SegmentFile>,
    partial: PathBuf,
    path: PathBuf,
    begun: Now,
    buffer: Vec<u8>,
    /// Bytes in the file; all of them whole blocks.
    flushed_len: u64,
    /// Of the blocks before the first packet.
    prelude_len: u64,
    written_counts: Vec<u64>,
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
        pcapng::section_header(&mut buffer, &settings.host, &settings.application, &settings.os);
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
        }
    }

    fn len(&self) -> u64 {
        self.flushed_len + self.buffer.len() as u64
    }

    fn append(&mut self, packet: &PacketRecord, kept: &Kept) {
        let captured = pcapng::enhanced_packet(
            &mut self.buffer,
            packet.interface_index,
            packet.host_ns,
            packet.direction,
            &packet.frame[..kept.captured_len],
            packet.original_len,
        );
        kept.redact(&mut self.buffer[captured]);
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
                self.begun.host_ns,
                now.host_ns,
                &interface,
            );
        }
    }

    /// Hands the buffer to the kernel. After an error `flushed_len` covers the blocks that went through whole.
    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.buffer.len() {
            match self.file.write(&self.buffer[done..]) {
                Ok(0) => return self.cut_short(done, io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.cut_short(done, error),
            }
        }
        self.flushed_len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn cut_short(&mut self, written_len: usize, error: io::Error) -> io::Result<()> {
        self.flushed_len += pcapng::whole_blocks_len(&self.buffer, written_len) as u64;
        self.buffer.clear();
        Err(error)
    }

    /// Cuts the file after its last whole block; whether any packet is left in it.
    fn salvage(&self) -> io::Result<bool> {
        self.file.set_len(self.flushed_len)?;
        self.file.sync()?;
        Ok(self.flushed_len > self.prelude_len)
    }
}

#[cfg(test)]
mod tests;
