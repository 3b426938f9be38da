//! Decodes one packet to one row: a general path link → network (→ tunnel → network) → transport, and a fast path.
//!
//! Nearly every packet of a datacentre is Ethernet, IPv4 without options, TCP with the timestamps option and nothing
//! else. The fields of these packets are at fixed offsets, so one length check covers them ([`Decoder::push`]). Every
//! other packet takes the general path ([`walk`]). Both give the same row; a test compares them.
//! `examples/decode_speed.rs` measures the speed.

use std::ops::Range;
use std::sync::Arc;

use twintap_protocols::excerpt::{ExcerptColumns, Keeper, Notes, Payload};
use twintap_protocols::head::Head;
use twintap_protocols::http1::{IdHeaders, KeptLines};
use twintap_protocols::tls::content;
use twintap_protocols::tls::opened::OpenedRecord;
use twintap_protocols::{registry, tls};
use twintap_secrets::SecretRules;

use crate::address::{AddressTable, Addresses};
use crate::bytes::{be16, be32};
use crate::clues::{Clues, Ends, HeadClues};
use crate::counters::{CounterKind, Counters};
use crate::events::{Event, EventColumns};
use crate::fragments::{Datagram, Fragments, Moment, Row};
use crate::frames::{self, Frames};
use crate::hello_tails::{HelloTails, Tail};
use crate::ip::{self, Fragment, IpHeader, PROTOCOL_TCP};
use crate::link::{self, ETHERTYPE_IPV4, LinkType, NetworkType};
use crate::opening::{Opener, Record, RecordFound};
use crate::tcp::{self, NO_WINDOW_SCALE, TcpHeader, TcpOptions};
use crate::tunnel;

/// Direction of a packet at the host that captured it; the codes are those of pcapng's `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Direction {
    #[default]
    Unknown = 0,
    Receive = 1,
    Send = 2,
}

/// A packet as a capture file holds it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// From 1 within the file.
    pub frame: u32,
    pub host_ns: i64,
    /// Index into the reader's interfaces.
    pub interface: u16,
    pub link_type: LinkType,
    pub direction: Direction,
    /// Bytes on the wire.
    pub original_len: u32,
    /// Bytes captured.
    pub data: &'a [u8],
}

/// A TCP segment found in a packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub addresses: Addresses,
    pub ip_id: i32,
    pub tcp: TcpHeader,
    /// Length of the payload on the wire, by the IP length.
    pub payload_len: u32,
    /// The captured part of the payload.
    pub payload: &'a [u8],
    /// Given by cooked link headers only.
    pub direction: Direction,
    pub is_length_zero: bool,
    /// The packet is the first piece of a datagram, so that `payload_len` is not the whole length.
    pub fragment: Option<Fragment>,
    /// Bytes of the datagram before the payload.
    pub headers_len: u32,
}

/// Why a packet has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRow {
    CountingReader(CounterKind),
    /// A later piece of a datagram between these addresses.
    Fragment(Addresses, Fragment),
}

impl NoRow {
    /// The name under which it is counted.
    pub fn counter(&self) -> CounterKind {
        match self {
            Self::CountingReader(kind) => *kind,
            Self::Fragment(..) => CounterKind::IpFragments,
        }
    }
}

impl From<CounterKind> for NoRow {
    fn from(kind: CounterKind) -> Self {
        Self::CountingReader(kind)
    }
}

/// Rows that are turned into columns at once: 256 × 88 bytes stay in the level-1 cache.
const BLOCK_LEN: usize = 256;
const FIN: u16 = 0x01;
const RST: u16 = 0x04;
/// Tunnels inside each other that are followed.
const TUNNEL_LIMIT: usize = 4;

/// Ethernet, IPv4 and TCP headers with timestamps: offsets for the fast path.
mod common {
    pub const LEN: usize = 66;
    pub const ETHERTYPE: usize = 12;
    pub const IP: usize = 14;
    pub const IP_TOTAL_LEN: usize = IP + 2;
    pub const IP_ID: usize = IP + 4;
    pub const IP_FRAGMENT: usize = IP + 6;
    pub const IP_PROTOCOL: usize = IP + 9;
    pub const IP_SRC: usize = IP + 12;
    pub const IP_DST: usize = IP + 16;
    pub const TCP: usize = IP + 20;
    pub const TCP_OFFSET_AND_FLAGS: usize = TCP + 12;
    pub const OPTIONS: usize = TCP + 20;
    /// Two no-operations, then timestamps of 10 bytes: how every common system lays them out (RFC 7323 appendix A).
    pub const OPTIONS_LAYOUT: u32 = 0x0101_080a;
    /// IP and TCP headers together.
    pub const HEADERS_LEN: usize = LEN - IP;
}

/// Turns packets into columns.
pub struct Decoder {
    pub addresses: AddressTable,
    pub id_headers: IdHeaders,
    /// Rules by which texts are redacted.
    pub secrets: Arc<SecretRules>,
    lines: KeptLines,
    pub clues: Clues,
    block: Vec<Event>,
    events: EventColumns,
    excerpts: ExcerptColumns,
    /// Columns without rows, whose memory the next ones use.
    spare: (EventColumns, ExcerptColumns),
    fragments: Fragments,
    pub frames: Frames,
    hello_tails: HelloTails,
    /// Opens encrypted connections, if keys are known.
    pub opener: Option<Box<dyn Opener>>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            addresses: AddressTable::default(),
            id_headers: IdHeaders::default(),
            secrets: Arc::new(SecretRules::built_in().clone()),
            lines: KeptLines::default(),
            clues: Clues::default(),
            block: Vec::new(),
            events: EventColumns::default(),
            excerpts: ExcerptColumns::default(),
            spare: Default::default(),
            fragments: Fragments::default(),
            frames: Frames::default(),
            hello_tails: HelloTails::default(),
            opener: None,
        }
    }
}

impl Decoder {
    /// Decode `packet` into a row, or count why there is none.
    #[inline]
    pub fn push(&mut self, packet: &Packet<'_>, counters: &mut Counters) {
        if let Some(header) = packet.data.first_chunk::<{ common::LEN }>()
            && is_common(packet.link_type, header)
        {
            return self.push_common(packet, header, counters);
        }
        self.push_slow(packet, counters);
    }

    /// Make room for `rows` more.
    pub fn reserve(&mut self, rows: usize) {
        self.events.reserve(rows);
    }

    /// Take the rows decoded up to packet `frame` that precede the first row whose datagram may still be completed.
    pub fn take(&mut self, frame: u32, counters: &mut Counters) -> (EventColumns, ExcerptColumns) {
        match self.fragments.oldest_row(frame, counters) {
            Some(oldest) => self.take_before(oldest),
            None => self.take_before(u32::MAX),
        }
    }

    /// Take all rows, because there are no more packets.
    pub fn take_last(&mut self, counters: &mut Counters) -> (EventColumns, ExcerptColumns) {
        self.fragments.close(counters);
        self.take_before(u32::MAX)
    }

    fn take_before(&mut self, frame: u32) -> (EventColumns, ExcerptColumns) {
        self.flush();
        let is_before = |&row: &u32| row < frame || frame == u32::MAX;
        let (rows, excerpts) = (
            self.events.frame.partition_point(is_before),
            self.excerpts.frame.partition_point(is_before),
        );
        let mut held = (self.events.split_off(rows), self.excerpts.split_off(excerpts));
        if held.0.is_empty() && held.1.is_empty() {
            held = std::mem::take(&mut self.spare);
        }
        (
            std::mem::replace(&mut self.events, held.0),
            std::mem::replace(&mut self.excerpts, held.1),
        )
    }

    /// Use the memory of columns that were taken and are needed no more.
    pub fn reuse(&mut self, (mut events, mut excerpts): (EventColumns, ExcerptColumns)) {
        events.clear();
        excerpts.clear();
        self.spare = (events, excerpts);
    }

    #[inline(always)]
    fn push_common(&mut self, packet: &Packet<'_>, header: &[u8; common::LEN], counters: &mut Counters) {
        let total_len = usize::from(be16(header, common::IP_TOTAL_LEN));
        let (src_addr, dst_addr) = self
            .addresses
            .intern_v4(be32(header, common::IP_SRC), be32(header, common::IP_DST));
        let event = Event {
            frame: packet.frame,
            host_ns: packet.host_ns,
            interface: packet.interface,
            direction: packet.direction as u8,
            src_addr,
            dst_addr,
            src_port: be16(header, common::TCP),
            dst_port: be16(header, common::TCP + 2),
            seq: be32(header, common::TCP + 4),
            ack: be32(header, common::TCP + 8),
            flags: be16(header, common::TCP_OFFSET_AND_FLAGS) & 0x01ff,
            window: be16(header, common::TCP + 14),
            payload_len: (total_len - common::HEADERS_LEN) as u32,
            ip_id: i32::from(be16(header, common::IP_ID)),
            tsval: be32(header, common::OPTIONS + 4),
            tsecr: be32(header, common::OPTIONS + 8),
            options: tcp::present::TIMESTAMPS,
            mss: 0,
            window_scale: NO_WINDOW_SCALE,
            sack_hash: 0,
            captured_len: packet.data.len() as u32,
            original_len: packet.original_len,
        };
        self.push_row(event);
        let end = packet.data.len().min(common::IP + total_len);
        self.keep_excerpts(&event, &packet.data[common::LEN..end], counters);
    }

    #[inline(never)]
    fn push_slow(&mut self, packet: &Packet<'_>, counters: &mut Counters) {
        match walk(packet.link_type, packet.data, packet.original_len) {
            Ok(segment) => self.push_segment(packet, &segment, counters),
            Err(reason) => {
                counters.bump(reason.counter());
                if let NoRow::Fragment(addresses, piece) = reason {
                    self.join(packet, addresses, &piece, None, counters);
                }
            }
        }
    }

    /// Add a piece of a datagram. The first piece is a row, and gives the length of the datagram's headers.
    #[cold]
    fn join(
        &mut self,
        packet: &Packet<'_>,
        addresses: Addresses,
        piece: &Fragment,
        headers_len: Option<u32>,
        counters: &mut Counters,
    ) {
        let datagram = Datagram {
            interface: packet.interface,
            addresses,
            id: piece.id,
            protocol: piece.protocol,
        };
        let (frame, host_ns) = (packet.frame, packet.host_ns);
        let row = headers_len.map(|headers_len| Row { frame, headers_len });
        let now = Moment { frame, host_ns };
        if let Some(whole) = self.fragments.take(datagram, piece, row, now, counters) {
            for row in whole.rows {
                self.set_payload_len(row.frame, whole.len.saturating_sub(row.headers_len));
            }
        }
    }

    fn set_payload_len(&mut self, frame: u32, payload_len: u32) {
        if let Ok(at) = self.block.binary_search_by_key(&frame, |event| event.frame) {
            self.block[at].payload_len = payload_len;
        } else if let Ok(at) = self.events.frame.binary_search(&frame) {
            self.events.payload_len[at] = payload_len;
        }
    }

    fn push_segment(&mut self, packet: &Packet<'_>, segment: &Segment<'_>, counters: &mut Counters) {
        let TcpHeader {
            src_port,
            dst_port,
            seq,
            ack,
            flags,
            window,
            options,
            ..
        } = segment.tcp;
        let TcpOptions {
            present,
            mss,
            window_scale,
            tsval,
            tsecr,
            sack_hash,
            error,
        } = options;
        if let Some(error) = error {
            counters.bump(error.counter());
        }
        if segment.is_length_zero {
            counters.bump(CounterKind::IpLengthZero);
        }
        let direction = match packet.direction {
            Direction::Unknown => segment.direction,
            by_interface => by_interface,
        };
        let (src_addr, dst_addr) = self.addresses.intern(segment.addresses);
        let event = Event {
            frame: packet.frame,
            host_ns: packet.host_ns,
            interface: packet.interface,
            direction: direction as u8,
            src_addr,
            dst_addr,
            src_port,
            dst_port,
            seq,
            ack,
            flags,
            window,
            payload_len: segment.payload_len,
            ip_id: segment.ip_id,
            tsval,
            tsecr,
            options: present,
            mss,
            window_scale,
            sack_hash,
            captured_len: packet.data.len() as u32,
            original_len: packet.original_len,
        };
        self.push_row(event);
        self.keep_excerpts(&event, segment.payload, counters);
        if let Some(piece) = &segment.fragment {
            self.join(packet, segment.addresses, piece, Some(segment.headers_len), counters);
        }
    }

    #[inline(always)]
    fn push_row(&mut self, event: Event) {
        if self.block.len() == BLOCK_LEN {
            self.flush();
        }
        self.block.push(event);
    }

    #[inline(never)]
    fn flush(&mut self) {
        self.events.extend(&self.block);
        self.block.clear();
        self.block.reserve(BLOCK_LEN);
    }

    #[inline(always)]
    fn keep_excerpts(&mut self, event: &Event, payload: &[u8], counters: &mut Counters) {
        if let Some(opener) = &self.opener
            && opener.concerns(payload)
            && self.open_slow(event, payload, counters)
        {
            return;
        }
        if !self.hello_tails.is_empty() && self.continue_hello_slow(event, payload) {
            return;
        }
        self.keep_excerpts_of(event, payload, counters);
    }

    /// Keep excerpts of a packet's payload, or of what was opened of a record.
    #[inline(always)]
    fn keep_excerpts_of(&mut self, event: &Event, payload: &[u8], counters: &mut Counters) {
        if self.frames.concerns(event, payload) && self.follow_frames_slow(event, payload, counters) {
            return;
        }
        let Some(&first) = payload.first() else { return };
        if registry::is_of_interest(first) && self.keep_excerpts_slow(event, payload, counters) {
            return;
        }
        if self.clues.may_begin(payload) {
            self.clues.note_payload(payload, ends_of(event));
        }
    }

    /// Whether the packet continues a hello of TLS; if it ends one, the hello is kept.
    #[inline(never)]
    fn continue_hello_slow(&mut self, event: &Event, payload: &[u8]) -> bool {
        let direction = self.direction_of(event);
        match self.hello_tails.take(direction, event, payload) {
            Tail::None => false,
            Tail::Middle => true,
            Tail::End(hello) => {
                let protocol = registry::place_of_head_kind(tls::RECORD.0);
                self.excerpts.push_again(event.frame, hello.at, protocol, &hello.bytes);
                true
            }
        }
    }

    fn direction_of(&self, event: &Event) -> frames::Direction {
        let all = self.addresses.all();
        let of = |number: u32, port: u16| (all[number as usize], port);
        frames::Direction {
            src: of(event.src_addr, event.src_port),
            dst: of(event.dst_addr, event.dst_port),
            interface: event.interface,
        }
    }

    /// Keep excerpts of the records that are opened with this packet; returns whether its connection is being opened.
    #[inline(never)]
    fn open_slow(&mut self, event: &Event, payload: &[u8], counters: &mut Counters) -> bool {
        let Some(mut opener) = self.opener.take() else {
            return false;
        };
        let direction = self.direction_of(event);
        let is_opened = opener.take(
            direction,
            event,
            payload,
            counters,
            &mut |found, counters| match found {
                RecordFound::Record(record) => self.keep_record(event, &record, counters),
                RecordFound::Sealed { at, bytes } => self.keep_sealed(event, at, bytes, counters),
                RecordFound::Missed => self.frames.miss(&direction),
            },
        );
        self.opener = Some(opener);
        if is_opened && event.flags & (FIN | RST) != 0 {
            self.frames.forget(&direction);
        }
        is_opened
    }

    /// Keep the place of a record, and excerpts of its content as of a payload's.
    fn keep_record(&mut self, event: &Event, record: &Record<'_>, counters: &mut Counters) {
        let opened = OpenedRecord {
            content_type: record.content_type,
            is_handshake: record.is_handshake,
            content_at: record.content_at,
            content_len: record.content.len() as u32,
            wire_len: record.wire_len,
        };
        opened.keep(&mut self.excerpts, event.frame, record.at);
        if u16::from(record.content_type) != content::APPLICATION_DATA {
            self.keep_sealed(event, record.at, record.shown, counters);
        }
        if record.content.is_empty() {
            return;
        }
        let clear = Event {
            seq: record.clear_seq,
            payload_len: record.content.len() as u32,
            flags: 0,
            ..*event
        };
        let first = self.excerpts.len();
        self.keep_excerpts_of(&clear, record.content, counters);
        self.excerpts.move_places(first, |at| {
            let wire_seq = record.places.wire_seq(record.clear_seq.wrapping_add(at as u32))?;
            Some(wire_seq.wrapping_sub(event.seq) as i32)
        });
    }

    /// Keep what shows of a record without its keys.
    fn keep_sealed(&mut self, event: &Event, at: i32, bytes: &[u8], counters: &mut Counters) {
        let first = self.excerpts.len();
        let record = Event {
            payload_len: bytes.len() as u32,
            ..*event
        };
        self.keep_excerpts_slow(&record, bytes, counters);
        self.excerpts
            .move_places(first, |behind| Some(at.saturating_add(behind)));
    }

    /// Keep an excerpt of each frame, if the packet's direction is followed; returns whether it is.
    #[inline(never)]
    fn follow_frames_slow(&mut self, event: &Event, payload: &[u8], counters: &mut Counters) -> bool {
        let direction = self.direction_of(event);
        let (excerpts, secrets, lines, ids) = (&mut self.excerpts, &self.secrets, &mut self.lines, &self.id_headers);
        let (marks, mut clues) = self.clues.of_heads();
        let ends = ends_of(event);
        let is_followed = self
            .frames
            .take(direction, event, payload, counters, |frame, counters| {
                let clues = &mut clues;
                let mut notes = PacketNotes { clues, counters, ends };
                let mut keeper = Keeper {
                    excerpts,
                    frame: event.frame,
                    protocol: frame.protocol,
                    ids,
                    marks,
                    secrets,
                    notes: &mut notes,
                    lines,
                };
                (frame.keep)(&frame.read, &mut keeper);
            });
        if is_followed && self.clues.may_begin(payload) {
            self.clues.note_payload(payload, ends_of(event));
        }
        is_followed
    }

    /// Keep what protocols need of a payload; returns whether it is a message of one of them.
    #[inline(never)]
    fn keep_excerpts_slow(&mut self, event: &Event, payload: &[u8], counters: &mut Counters) -> bool {
        if HelloTails::may_begin(payload) {
            self.hello_tails.begin(self.direction_of(event), event, payload);
        }
        let wire_len = event.payload_len as usize;
        let payload = Payload {
            bytes: payload,
            wire_len,
        };
        let (marks, mut clues) = self.clues.of_heads();
        let (clues, ends) = (&mut clues, ends_of(event));
        let mut notes = PacketNotes { clues, counters, ends };
        let mut is_known = false;
        for (place, protocol) in registry::places_of_payload(payload.bytes) {
            let mut keeper = Keeper {
                excerpts: &mut self.excerpts,
                frame: event.frame,
                protocol: place,
                ids: &self.id_headers,
                marks,
                secrets: &self.secrets,
                notes: &mut notes,
                lines: &mut self.lines,
            };
            is_known |= (protocol.keep)(&payload, &mut keeper);
        }
        is_known
    }
}

/// Collects the clues and counters of a packet's heads while these are read.
struct PacketNotes<'a, 'b> {
    clues: &'a mut HeadClues<'b>,
    counters: &'a mut Counters,
    ends: Ends,
}

impl Notes for PacketNotes<'_, '_> {
    fn head(&mut self, head: &Head<'_>, marks: u64, is_target_whole: bool) {
        self.clues.note_head(head, marks, self.ends, is_target_whole);
    }

    fn head_cut(&mut self) {
        self.counters.bump(CounterKind::HttpHeadsCut);
    }

    fn left_out(&mut self) {
        self.counters.bump(CounterKind::HttpTextLeftOut);
    }
}

/// Range of the TCP payload in a packet; empty if it has none.
pub fn payload_range(link_type: LinkType, data: &[u8], original_len: u32) -> Range<usize> {
    let Ok(segment) = walk(link_type, data, original_len) else {
        return 0..0;
    };
    let start = segment.payload.as_ptr().addr().saturating_sub(data.as_ptr().addr());
    start..start + segment.payload.len()
}

#[inline(always)]
fn ends_of(event: &Event) -> Ends {
    Ends {
        src: (event.src_addr, event.src_port),
        dst: (event.dst_addr, event.dst_port),
    }
}

/// Whether a packet meets all assumptions of the fast path.
#[inline(always)]
fn is_common(link_type: LinkType, header: &[u8; common::LEN]) -> bool {
    link_type == LinkType::ETHERNET
        && be16(header, common::ETHERTYPE) == ETHERTYPE_IPV4
        && header[common::IP] == 0x45
        && be16(header, common::IP_FRAGMENT) & 0x3fff == 0
        && header[common::IP_PROTOCOL] == PROTOCOL_TCP
        && header[common::TCP_OFFSET_AND_FLAGS] >> 4 == 8
        && be32(header, common::OPTIONS) == common::OPTIONS_LAYOUT
        && usize::from(be16(header, common::IP_TOTAL_LEN)) >= common::HEADERS_LEN
}

/// Find the TCP segment in a frame of `original_len` bytes on the wire, or say why there is none.
///
/// # Errors
/// Why there is none.
pub fn walk(link_type: LinkType, frame: &[u8], original_len: u32) -> Result<Segment<'_>, NoRow> {
    let header = link::decode(link_type, frame).map_err(|error| error.counter())?;
    let (mut network_type, mut offset) = (header.network, header.offset);
    for _ in 0..=TUNNEL_LIMIT {
        let ip = network(network_type, frame, offset, original_len as usize)?;
        if let Some(piece) = ip.fragment.filter(|_| ip.is_later_fragment()) {
            return Err(if ip::may_hold_tcp(piece.protocol) {
                NoRow::Fragment(ip.addresses, piece)
            } else {
                CounterKind::IpFragments.into()
            });
        }
        if ip.protocol == PROTOCOL_TCP {
            return Ok(transport(frame, &ip, header.direction)?);
        }
        let Some(inner) = tunnel::inner(frame, &ip).map_err(|error| error.counter())? else {
            return Err(CounterKind::NotTcp.into());
        };
        (network_type, offset) = (inner.network, inner.offset);
    }
    Err(CounterKind::TooManyLayers.into())
}

fn transport<'a>(frame: &'a [u8], ip: &IpHeader, direction: Direction) -> Result<Segment<'a>, CounterKind> {
    let tcp = tcp::decode(frame, ip.offset, ip.len).map_err(|error| error.counter())?;
    let start = ip.offset + tcp.header_len;
    let payload_len = ip.len - tcp.header_len;
    let captured_end = frame.len().min(start.saturating_add(payload_len));
    Ok(Segment {
        addresses: ip.addresses,
        ip_id: ip.ip_id,
        tcp,
        payload_len: u32::try_from(payload_len).unwrap_or(u32::MAX),
        payload: frame.get(start..captured_end).unwrap_or(&[]),
        direction,
        is_length_zero: ip.is_length_zero,
        fragment: ip.fragment,
        headers_len: ip.fragment.map_or(0, |piece| (start - piece.start) as u32),
    })
}

fn network(network: NetworkType, frame: &[u8], offset: usize, original_len: usize) -> Result<IpHeader, CounterKind> {
    let is_six = frame.get(offset).is_some_and(|byte| byte >> 4 == 6);
    let read = match network {
        NetworkType::Ipv4 => ip::ipv4(frame, offset, original_len),
        NetworkType::Ipv6 => ip::ipv6(frame, offset, original_len),
        NetworkType::IpOfEitherVersion if is_six => ip::ipv6(frame, offset, original_len),
        NetworkType::IpOfEitherVersion => ip::ipv4(frame, offset, original_len),
        NetworkType::Other => return Err(CounterKind::NotTcp),
    };
    read.map_err(|error| error.counter())
}
