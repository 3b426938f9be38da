//! pcap files: a header of 24 bytes, then records of 16 bytes and a packet.
//!
//! Source: draft-ietf-opsawg-pcap; savefile.c of libpcap for files before version 2.4, whose two lengths are swapped.
//! Seconds are unsigned (good to 2106). Handled elsewhere: the magic number, and with it byte order and resolution
//! ([`crate::format`]).

use std::io::Read;

use crate::bytes::ByteOrder;
use crate::counters::CounterKind;
use crate::format::NotACapture;
use crate::input::{Input, RECORD_LIMIT};
use crate::interface::Interface;
use crate::link::LinkType;
use crate::packet::Direction;
use crate::reader::{Record, Step};
use crate::time::{HostTime, Resolution};

/// Bytes of the file's header.
pub const FILE_HEADER_LEN: usize = 24;
/// Bytes of a record's header.
pub const RECORD_HEADER_LEN: usize = 16;
const VERSION_MAJOR: u16 = 2;

/// State of reading a pcap file.
pub struct Pcap {
    order: ByteOrder,
    fraction_ns: u32,
    minor: u16,
    link_type: LinkType,
}

impl Pcap {
    /// Read the file's header. Returns also the one interface that it describes.
    ///
    /// # Errors
    /// A header that is cut or of another version.
    pub fn open<R: Read>(
        input: &mut Input<R>,
        order: ByteOrder,
        fraction_ns: u32,
    ) -> Result<(Self, Interface), NotACapture> {
        if !input.require(FILE_HEADER_LEN) {
            let what = format!(
                "a pcap file cut off within its header ({} bytes)",
                input.available().len()
            );
            return Err(NotACapture {
                what,
                next_step: "capture again".to_owned(),
            });
        }
        let header = &input.available()[..FILE_HEADER_LEN];
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != VERSION_MAJOR {
            let what = format!("a pcap file of version {major}.{minor}, which is not read");
            return Err(NotACapture {
                what,
                next_step: "convert it: editcap -F pcapng FILE OUT.pcapng".to_owned(),
            });
        }
        let snaplen = order.u32(header, 16);
        // The upper half of the field holds the length of a frame check sequence.
        let link_type = LinkType((order.u32(header, 20) & 0xffff) as u16);
        input.consume(FILE_HEADER_LEN);
        let resolution = if fraction_ns == 1 {
            Resolution::NANOSECONDS
        } else {
            Resolution::MICROSECONDS
        };
        Ok((
            Self {
                order,
                fraction_ns,
                minor,
                link_type,
            },
            Interface::new(link_type, snaplen, resolution),
        ))
    }

    /// The next record.
    #[inline]
    pub fn next<R: Read>(&self, input: &mut Input<R>) -> Step {
        if !input.require(RECORD_HEADER_LEN) {
            return Step::end_of(input, 0);
        }
        let header = &input.available()[..RECORD_HEADER_LEN];
        let time = HostTime::from_seconds(self.order.u32(header, 0), self.order.u32(header, 4), self.fraction_ns);
        let (mut captured_len, mut original_len) = (self.order.u32(header, 8), self.order.u32(header, 12));
        if self.minor < 4 && (self.minor < 3 || captured_len > original_len) {
            (captured_len, original_len) = (original_len, captured_len);
        }
        let len = RECORD_HEADER_LEN + captured_len as usize;
        if len > RECORD_LIMIT {
            return Step::End(Some(CounterKind::CaptureCorrupt));
        }
        if !input.require(len) {
            return Step::end_of(input, RECORD_HEADER_LEN);
        }
        input.consume(len);
        Step::Packet(Record {
            host_ns: time.0,
            interface: 0,
            link_type: self.link_type,
            direction: Direction::Unknown,
            original_len,
            captured_len: captured_len as usize,
            tail_len: 0,
            is_damaged: false,
        })
    }
}
