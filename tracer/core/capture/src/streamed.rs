//! A capture that another program makes elsewhere: its pcap stream, as it arrives, becomes segments as an agent writes
//! them. What the payload policy does not keep, and what is secret, is in memory only and never written.
//!
//! Input: what `tcpdump -w -` writes, in pieces of any length. Its link type is one of two: `LINUX_SLL2` of all
//! interfaces (`-i any`), which has each packet's interface and direction; or Ethernet of one interface, where a packet
//! is this host's own if it comes from its Ethernet address. Cooked frames become raw IP. Packets of interfaces that
//! are not listed are left out.
//!
//! Stamps are the remote host's, so sections begin and end with packets, not with this machine's time.
//! Memory: a record, at most `RECORD_LIMIT_BYTES`. Source: draft-ietf-opsawg-pcap; LINKTYPE_LINUX_SLL2 of tcpdump.org.

use std::sync::Arc;
use std::time::Instant;

use crate::connections::Connections;
use crate::error::CaptureError;
use crate::finisher::Totals;
use crate::pcapng::{Direction, Interface, LinkType, Statistics};
use crate::policy::{Packet, PayloadPolicy};
use crate::segments::{Now, PacketRecord, SegmentSettings, SegmentWriter};

/// A longer record is none: frames are shorter than 512 KiB.
const RECORD_LIMIT_BYTES: usize = 1 << 20;
const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const LINK_ETHERNET: u32 = 1;
const LINK_SLL2: u32 = 276;
const SLL2_HEADER_LEN: usize = 20;
const VLAN_TAG_LEN: usize = 4;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const ETHERTYPE_VLAN: u16 = 0x8100;
const PACKET_OTHERHOST: u8 = 3;
const PACKET_OUTGOING: u8 = 4;

/// One interface of the remote host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteInterface {
    pub name: String,
    /// Its number there.
    pub index: u32,
    /// Its Ethernet address; zeros if it has none.
    pub address: [u8; 6],
}

/// Counts so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamCounts {
    pub packets_count: u64,
    /// Of other interfaces, or for other hosts.
    pub foreign_count: u64,
    /// Not TCP over IP.
    pub other_count: u64,
    /// Stamp of the newest packet; 0 before the first.
    pub newest_ns: u64,
}

/// The byte order and the unit of stamps, as the file's first bytes say.
#[derive(Debug, Clone, Copy)]
struct Form {
    is_big_endian: bool,
    fraction_ns: u64,
    is_cooked: bool,
}

/// Turns the stream into segments.
pub struct StreamedCapture {
    interfaces: Vec<RemoteInterface>,
    policy: PayloadPolicy,
    connections: Connections,
    settings: SegmentSettings,
    totals: Arc<Totals>,
    pending: Vec<u8>,
    form: Option<Form>,
    /// Begins with the first packet, whose stamp it needs.
    writer: Option<SegmentWriter>,
    counts: StreamCounts,
    /// Packets written since the last section ended, of each interface.
    since_close: Vec<Statistics>,
}

/// A packet of the stream: interface, direction, and its bytes from the Ethernet or the IP header on.
struct Sight<'a> {
    interface_index: usize,
    direction: Direction,
    frame: &'a [u8],
    left_out_len: usize,
}

enum Frame<'a> {
    Ours(Sight<'a>),
    Foreign,
    Other,
}

impl StreamedCapture {
    /// A capture of which nothing has arrived. `settings`: its `interfaces` and `since_ns` are filled in here.
    pub fn new(interfaces: Vec<RemoteInterface>, policy: PayloadPolicy, settings: SegmentSettings) -> Self {
        StreamedCapture {
            since_close: vec![Statistics::default(); interfaces.len()],
            interfaces,
            policy,
            connections: Connections::default(),
            settings,
            totals: Arc::default(),
            pending: Vec::new(),
            form: None,
            writer: None,
            counts: StreamCounts::default(),
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// Takes the next bytes. After an error it takes no more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let taken = self.take_records(&pending);
        pending.drain(..*taken.as_ref().unwrap_or(&0));
        self.pending = pending;
        self.close_if_due()?;
        taken.map(drop)
    }

    /// Ends the capture; all segments are durable then. `dropped_count`: packets that the other program missed.
    pub fn finish(&mut self, dropped_count: u64) -> Result<(), CaptureError> {
        let now = self.now();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.writer_from(self.form.is_some_and(|form| form.is_cooked), 0),
        };
        if let Some(first) = self.since_close.first_mut() {
            first.received_count += dropped_count;
            first.dropped_count += dropped_count;
        }
        writer.finish(&self.since_close, now)
    }

    fn now(&self) -> Now {
        Now {
            instant: Instant::now(),
            host_ns: self.counts.newest_ns,
        }
    }

    /// Takes whole records from the start of `pending`; returns their length.
    fn take_records(&mut self, pending: &[u8]) -> Result<usize, CaptureError> {
        let mut at = 0;
        let form = match self.form {
            Some(form) => form,
            None => {
                let Some(header) = pending.get(..FILE_HEADER_LEN) else {
                    return Ok(0);
                };
                at = FILE_HEADER_LEN;
                *self.form.insert(read_form(header)?)
            }
        };
        while let Some(header) = pending.get(at..at + RECORD_HEADER_LEN) {
            let field = |place: usize| form.read32(&header[4 * place..]);
            let (seconds, fraction, captured_len, original_len) = (field(0), field(1), field(2) as usize, field(3));
            if captured_len > RECORD_LIMIT_BYTES {
                return Err(CaptureError::NotACapture {
                    what: "a packet longer than 1 MiB",
                });
            }
            let Some(data) = pending.get(at + RECORD_HEADER_LEN..at + RECORD_HEADER_LEN + captured_len) else {
                break;
            };
            at += RECORD_HEADER_LEN + captured_len;
            let host_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * form.fraction_ns;
            self.take_packet(form, host_ns, data, original_len)?;
        }
        Ok(at)
    }

    fn take_packet(&mut self, form: Form, host_ns: u64, data: &[u8], original_len: u32) -> Result<(), CaptureError> {
        self.counts.newest_ns = self.counts.newest_ns.max(host_ns);
        let sight = match if form.is_cooked {
            self.read_cooked(data)
        } else {
            self.read_ethernet(data)
        } {
            Frame::Ours(sight) => sight,
            Frame::Foreign => {
                self.counts.foreign_count += 1;
                return Ok(());
            }
            Frame::Other => {
                self.counts.other_count += 1;
                return Ok(());
            }
        };
        let link_type = link_type(form.is_cooked);
        let packet = Packet {
            interface: sight.interface_index as u32,
            link_type,
            frame: sight.frame,
            original_len: original_len.saturating_sub(sight.left_out_len as u32),
        };
        let Some(kept) = self.policy.keep(&packet, &mut self.connections) else {
            self.counts.other_count += 1;
            return Ok(());
        };
        let record = PacketRecord {
            interface_index: sight.interface_index as u32,
            host_ns,
            direction: sight.direction,
            frame: sight.frame,
            original_len: packet.original_len,
            is_damaged: false,
        };
        let now = self.now();
        if self.writer.is_none() {
            self.writer = Some(self.writer_from(form.is_cooked, host_ns));
        }
        if let Some(writer) = &mut self.writer {
            writer.write(&record, &kept, now)?;
        }
        self.since_close[sight.interface_index].received_count += 1;
        self.counts.packets_count += 1;
        Ok(())
    }

    fn writer_from(&self, is_cooked: bool, since_ns: u64) -> SegmentWriter {
        let interfaces = self.interfaces.iter().map(|interface| Interface {
            name: interface.name.clone(),
            link_type: link_type(is_cooked),
            snaplen: self.policy.snaplen(),
            filter: String::new(),
        });
        let settings = SegmentSettings {
            interfaces: interfaces.collect(),
            since_ns,
            ..self.settings.clone()
        };
        SegmentWriter::new(settings, Arc::clone(&self.totals))
    }

    fn close_if_due(&mut self) -> Result<(), CaptureError> {
        let now = self.now();
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.is_due(now.instant)) else {
            return Ok(());
        };
        writer.close(&self.since_close, now)?;
        self.since_close.fill(Statistics::default());
        Ok(())
    }

    fn read_cooked<'a>(&self, data: &'a [u8]) -> Frame<'a> {
        let Some((header, mut frame)) = data.split_at_checked(SLL2_HEADER_LEN) else {
            return Frame::Other;
        };
        let index = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let Some(interface_index) = self.interfaces.iter().position(|interface| interface.index == index) else {
            return Frame::Foreign;
        };
        let mut protocol = u16::from_be_bytes([header[0], header[1]]);
        let mut left_out_len = SLL2_HEADER_LEN;
        while protocol == ETHERTYPE_VLAN && frame.len() >= VLAN_TAG_LEN {
            protocol = u16::from_be_bytes([frame[2], frame[3]]);
            frame = &frame[VLAN_TAG_LEN..];
            left_out_len += VLAN_TAG_LEN;
        }
        let direction = match header[10] {
            PACKET_OTHERHOST => return Frame::Foreign,
            PACKET_OUTGOING => Direction::Send,
            _ => Direction::Receive,
        };
        match protocol {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => Frame::Ours(Sight {
                interface_index,
                direction,
                frame,
                left_out_len,
            }),
            _ => Frame::Other,
        }
    }

    fn read_ethernet<'a>(&self, frame: &'a [u8]) -> Frame<'a> {
        let (Some(to), Some(from), Some(own)) = (frame.get(..6), frame.get(6..12), self.interfaces.first()) else {
            return Frame::Other;
        };
        let direction = match own.address {
            own if own == from => Direction::Send,
            own if own == to => Direction::Receive,
            _ => return Frame::Foreign,
        };
        Frame::Ours(Sight {
            interface_index: 0,
            direction,
            frame,
            left_out_len: 0,
        })
    }
}

fn link_type(is_cooked: bool) -> LinkType {
    if is_cooked { LinkType::RawIp } else { LinkType::Ethernet }
}

impl Form {
    fn read32(self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.is_big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        }
    }
}

fn read_form(header: &[u8]) -> Result<Form, CaptureError> {
    let (is_big_endian, fraction_ns) = match header[..4] {
        [0xD4, 0xC3, 0xB2, 0xA1] => (false, 1000),
        [0x4D, 0x3C, 0xB2, 0xA1] => (false, 1),
        [0xA1, 0xB2, 0xC3, 0xD4] => (true, 1000),
        [0xA1, 0xB2, 0x3C, 0x4D] => (true, 1),
        _ => {
            return Err(CaptureError::NotACapture {
                what: "it does not begin as pcap",
            });
        }
    };
    let mut form = Form {
        is_big_endian,
        fraction_ns,
        is_cooked: false,
    };
    match form.read32(&header[20..]) & 0xFFFF {
        LINK_ETHERNET => {}
        LINK_SLL2 => form.is_cooked = true,
        _ => {
            return Err(CaptureError::NotACapture {
                what: "its link type is neither Ethernet nor LINUX_SLL2",
            });
        }
    }
    Ok(form)
}

#[cfg(test)]
mod tests;
