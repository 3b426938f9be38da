//! pcapng files: sections of blocks, each with options.
//!
//! Source: draft-ietf-opsawg-pcapng. Several sections, each in its own byte order; any time resolution; Enhanced,
//! Simple and obsolete Packet Blocks; direction from `epb_flags`; names from Name Resolution Blocks; drops from
//! Interface Statistics Blocks; key logs of TLS from Decryption Secrets Blocks. Other blocks are skipped and counted.
//!
//! A long capture is many sections one behind the other (`cat` of segments), and each describes its interfaces again:
//! equal descriptions at the same place are one interface here. Interfaces, names and comments are kept up to the
//! limits below.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zeroize::Zeroizing;

use crate::bytes::ByteOrder;
use crate::counters::{CounterKind, Counters};
use crate::input::{Input, RECORD_LIMIT};
use crate::interface::{Interface, Statistics};
use crate::link::LinkType;
use crate::packet::Direction;
use crate::reader::{Record, Step};
use crate::time::Resolution;

/// Block types (§11.1).
pub mod block {
    pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub const INTERFACE_DESCRIPTION: u32 = 1;
    pub const PACKET: u32 = 2;
    pub const SIMPLE_PACKET: u32 = 3;
    pub const NAME_RESOLUTION: u32 = 4;
    pub const DECRYPTION_SECRETS: u32 = 10;
    pub const INTERFACE_STATISTICS: u32 = 5;
    pub const ENHANCED_PACKET: u32 = 6;
}

/// Option codes (§3.5 and with each block).
pub mod option {
    pub const END: u16 = 0;
    pub const COMMENT: u16 = 1;
    pub const SHB_USERAPPL: u16 = 4;
    pub const IF_NAME: u16 = 2;
    pub const IF_DESCRIPTION: u16 = 3;
    pub const IF_SPEED: u16 = 8;
    pub const IF_TSRESOL: u16 = 9;
    pub const IF_TSOFFSET: u16 = 14;
    pub const EPB_FLAGS: u16 = 2;
    pub const EPB_DROPCOUNT: u16 = 4;
    pub const ISB_STARTTIME: u16 = 2;
    pub const ISB_ENDTIME: u16 = 3;
    pub const ISB_IFRECV: u16 = 4;
    pub const ISB_IFDROP: u16 = 5;
    pub const ISB_OSDROP: u16 = 7;
}

/// Value of the byte-order magic, read in the section's order.
pub const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Comment by which our agent marks a received packet with a wrong TCP checksum, because the file may not have the
/// payload to verify it.
pub const DAMAGED_COMMENT: &[u8] = b"twintap.tcp_checksum=wrong";
/// Prefix of the section comment by which our agent states the host's name.
pub const HOST_COMMENT_PREFIX: &str = "twintap.host=";

/// Begin the comments of a Name Resolution Block by which our agent states who owns connections, and how many it does not
/// know; as `twintap_capture::owners::statement` writes them.
pub const OWNERS_PREFIXES: [&[u8]; 2] = [b"twintap.owner ", b"twintap.owners "];

/// Begin the comments by which our agent states what it keeps, and how much it left out; as `twintap_capture::sampling`
/// writes them.
pub const KEPT_PREFIXES: [&[u8]; 2] = [b"twintap.kept ", b"twintap.left_out "];
/// Begins a comment of such a block by which our agent states who stamped the packets of an interface; as
/// `twintap_capture::timestamps` writes it.
pub const STAMPS_PREFIX: &[u8] = b"twintap.stamps ";

const DAMAGED_LEN: usize = DAMAGED_COMMENT.len();

const VERSION_MAJOR: u16 = 1;
const BLOCK_HEADER_LEN: usize = 8;
const BLOCK_TRAILER_LEN: usize = 4;
const MINIMUM_BLOCK_LEN: usize = BLOCK_HEADER_LEN + BLOCK_TRAILER_LEN;
const SECTION_FIXED_LEN: usize = 24;
const PACKET_FIXED_LEN: usize = 28;
const INTERFACE_FIXED_LEN: usize = 16;
const STATISTICS_FIXED_LEN: usize = 20;
const SECRETS_FIXED_LEN: usize = 16;
/// Type of secrets that are a key log of TLS (draft-ietf-opsawg-pcapng §4.7).
const TLS_KEY_LOG: u32 = 0x544c_534b;
/// Bytes of key logs that are kept, at most.
const KEY_LOG_LIMIT: usize = 256 << 20;
const STATISTICS_TIME_AT: usize = 12;
/// Record types of a Name Resolution Block.
const NAME_IPV4: u16 = 1;
const NAME_IPV6: u16 = 2;
/// Drop count of an obsolete Packet Block where it is unknown.
const DROPS_UNKNOWN: u16 = 0xffff;

/// Interfaces of a file, at most: the events' column is a u16.
const INTERFACE_LIMIT: usize = u16::MAX as usize;
/// Names and comments that are kept, at most; and the length of a text.
const NAME_LIMIT: usize = 65_536;
const COMMENT_LIMIT: usize = 1_024;
const TEXT_LIMIT: usize = 1_024;
/// Statements of what is kept, at most: each segment has two, and one for each change.
const KEPT_LIMIT: usize = 1 << 20;
/// Bytes of statements, of owners and stamps, that are kept, at most: of some 500,000 connections.
const STATEMENTS_LIMIT: usize = 32 << 20;

/// An address and a name of it, from a Name Resolution Block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameRecord {
    pub address: IpAddr,
    pub name: String,
}

/// Contents of all section headers and name blocks of a file.
#[derive(Default)]
pub struct Section {
    /// Comments, each once, in file order.
    pub comments: Vec<String>,
    /// `shb_userappl`, each once, in file order.
    pub applications: Vec<String>,
    /// Names, each once, in file order.
    pub names: Vec<NameRecord>,
    names_seen: HashSet<NameRecord>,
    /// Comments by which our agent states who owns connections, in file order.
    pub owners: Vec<String>,
    /// Comments by which our agent states what it keeps, in file order.
    pub kept: Vec<String>,
    /// Comments by which our agent states who stamped packets, in file order.
    pub stamps: Vec<String>,
    statements_len: usize,
    /// Key logs of TLS in secrets blocks.
    pub key_log: KeyLogText,
}

/// Text of key logs, overwritten when it is dropped; nothing formats it.
#[derive(Default)]
pub struct KeyLogText(Zeroizing<Vec<u8>>);

impl KeyLogText {
    fn add(&mut self, text: &[u8]) {
        if self.0.len() + text.len() < KEY_LOG_LIMIT {
            self.0.extend_from_slice(text);
            self.0.push(b'\n');
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An interface of the current section.
#[derive(Clone, Copy)]
struct Local {
    /// Index in the whole file; `None` if there were too many.
    index: Option<u16>,
    link_type: LinkType,
    resolution: Resolution,
}

/// Drops and receipts of one interface, over sections.
#[derive(Clone, Copy, Default)]
struct Tally {
    section: u32,
    start_ticks: Option<u64>,
    /// Totals of the sections before the current one.
    before: Statistics,
    current: Statistics,
}

/// State of reading a pcapng file.
pub struct Pcapng {
    order: ByteOrder,
    section: u32,
    /// The current section's host, if the section names it: part of an interface's identity.
    host: String,
    locals: Vec<Local>,
    /// Hash of (host, place in the section, description) to index.
    known: HashMap<u64, u16>,
    tallies: Vec<Tally>,
    /// Drops that packet blocks report (`epb_dropcount`).
    pub drops_between: u64,
}

impl Default for Pcapng {
    fn default() -> Self {
        Self {
            order: ByteOrder::Little,
            section: 0,
            host: String::new(),
            locals: Vec::new(),
            known: HashMap::new(),
            tallies: Vec::new(),
            drops_between: 0,
        }
    }
}

/// A block's header: its type and whole length.
struct BlockHeader {
    kind: u32,
    len: usize,
}

impl Pcapng {
    /// The next packet; blocks before it are processed.
    #[inline]
    pub fn next<R: Read>(
        &mut self,
        input: &mut Input<R>,
        interfaces: &mut Vec<Interface>,
        section: &mut Section,
        counters: &mut Counters,
    ) -> Step {
        loop {
            let header = match self.header(input) {
                Ok(header) => header,
                Err(end) => return end,
            };
            if header.kind == block::ENHANCED_PACKET && input.require(header.len) {
                return self.enhanced_packet(input, header.len);
            }
            if let Some(step) = self.rare(input, &header, interfaces, section, counters) {
                return step;
            }
        }
    }

    /// The header of the block that begins here.
    #[inline]
    fn header<R: Read>(&mut self, input: &mut Input<R>) -> Result<BlockHeader, Step> {
        if !input.require(MINIMUM_BLOCK_LEN) {
            return Err(Step::end_of(input, 0));
        }
        let Some(held) = input.available().first_chunk::<MINIMUM_BLOCK_LEN>() else {
            return Err(Step::end_of(input, 0));
        };
        if ByteOrder::Little.u32(held, 0) == block::SECTION_HEADER {
            self.order = match held[8..12] {
                [0x4d, 0x3c, 0x2b, 0x1a] => ByteOrder::Little,
                [0x1a, 0x2b, 0x3c, 0x4d] => ByteOrder::Big,
                _ => return Err(Step::End(Some(CounterKind::CaptureCorrupt))),
            };
        } else if self.section == 0 {
            return Err(Step::End(Some(CounterKind::CaptureCorrupt)));
        }
        let (kind, len) = (self.order.u32(held, 0), self.order.u32(held, 4) as usize);
        if len < MINIMUM_BLOCK_LEN || len % 4 != 0 {
            return Err(Step::End(Some(CounterKind::CaptureCorrupt)));
        }
        Ok(BlockHeader { kind, len })
    }

    /// The buffered Enhanced Packet Block of `len` bytes.
    #[inline]
    fn enhanced_packet<R: Read>(&mut self, input: &mut Input<R>, len: usize) -> Step {
        input.consume(len);
        let body = input.last_consumed(len, 0);
        if len < PACKET_FIXED_LEN + BLOCK_TRAILER_LEN {
            return Step::LeftOut(CounterKind::BlocksMalformed);
        }
        let interface = self.order.u32(body, 8) as usize;
        Self::packet(self.order, &self.locals, &mut self.drops_between, body, interface, 0)
    }

    /// The packet of a block whose fields, except the interface, are those of an Enhanced Packet Block.
    #[inline]
    fn packet(
        order: ByteOrder,
        locals: &[Local],
        drops_between: &mut u64,
        body: &[u8],
        interface: usize,
        drops: u64,
    ) -> Step {
        // One length check for all fields.
        let Some(fixed) = body.first_chunk::<PACKET_FIXED_LEN>() else {
            return Step::LeftOut(CounterKind::BlocksMalformed);
        };
        let ticks = u64::from(order.u32(fixed, 12)) << 32 | u64::from(order.u32(fixed, 16));
        let (captured_len, original_len) = (order.u32(fixed, 20) as usize, order.u32(fixed, 24));
        let room = body.len() - PACKET_FIXED_LEN - BLOCK_TRAILER_LEN;
        if captured_len > room {
            return Step::LeftOut(CounterKind::BlocksMalformed);
        }
        let Some(local) = locals.get(interface) else {
            return Step::LeftOut(CounterKind::InterfaceUnknown);
        };
        let Some(index) = local.index else {
            return Step::LeftOut(CounterKind::TooManyInterfaces);
        };
        let Some(time) = local.resolution.time(ticks) else {
            return Step::LeftOut(CounterKind::TimeOutOfRange);
        };
        let link_type = local.link_type;
        let options_start = PACKET_FIXED_LEN + captured_len.next_multiple_of(4);
        let mut direction = Direction::Unknown;
        let mut is_damaged = false;
        let mut between = drops;
        for (code, value) in Options::of(order, body, options_start) {
            match (code, value.len()) {
                (option::EPB_FLAGS, 4) => direction = by_flags(order.u32(value, 0)),
                (option::EPB_DROPCOUNT, 8) => between = order.u64(value, 0),
                (option::COMMENT, DAMAGED_LEN) => is_damaged |= value == DAMAGED_COMMENT,
                _ => {}
            }
        }
        *drops_between = drops_between.saturating_add(between);
        let tail_len = room - captured_len + BLOCK_TRAILER_LEN;
        Step::Packet(Record {
            host_ns: time.0,
            interface: index,
            link_type,
            direction,
            original_len,
            captured_len,
            tail_len,
            is_damaged,
        })
    }

    /// Process a block that is not a complete Enhanced Packet Block. Returns a step if it ends the file or counts as a
    /// packet.
    #[cold]
    #[inline(never)]
    fn rare<R: Read>(
        &mut self,
        input: &mut Input<R>,
        header: &BlockHeader,
        interfaces: &mut Vec<Interface>,
        section: &mut Section,
        counters: &mut Counters,
    ) -> Option<Step> {
        let BlockHeader { kind, len } = *header;
        let is_packet = matches!(kind, block::ENHANCED_PACKET | block::PACKET | block::SIMPLE_PACKET);
        let is_known = is_packet
            || matches!(
                kind,
                block::SECTION_HEADER
                    | block::INTERFACE_DESCRIPTION
                    | block::INTERFACE_STATISTICS
                    | block::NAME_RESOLUTION
                    | block::DECRYPTION_SECRETS
            );
        if !is_known || len > RECORD_LIMIT {
            if !input.skip(len as u64) {
                return Some(Step::end_of(input, len));
            }
            if is_packet {
                return Some(Step::LeftOut(CounterKind::PacketsTooLarge));
            }
            counters.bump(if is_known {
                CounterKind::BlocksMalformed
            } else {
                CounterKind::BlocksSkipped
            });
            return None;
        }
        if !input.require(len) {
            return Some(Step::end_of(input, len));
        }
        input.consume(len);
        let body = input.last_consumed(len, 0);
        match kind {
            block::SECTION_HEADER => return self.section_header(body, section, counters),
            block::INTERFACE_DESCRIPTION => self.interface_description(body, interfaces, counters),
            block::INTERFACE_STATISTICS => self.interface_statistics(body, interfaces, counters),
            block::NAME_RESOLUTION => self.name_resolution(body, section, counters),
            block::DECRYPTION_SECRETS => self.decryption_secrets(body, section, counters),
            block::PACKET => return Some(self.obsolete_packet(body)),
            // Simple Packet Blocks hold no time, so they are of no use between hosts.
            _ => return Some(Step::LeftOut(CounterKind::PacketsWithoutTime)),
        }
        None
    }

    fn section_header(&mut self, body: &[u8], section: &mut Section, counters: &mut Counters) -> Option<Step> {
        if body.len() < SECTION_FIXED_LEN + BLOCK_TRAILER_LEN || self.order.u16(body, 12) != VERSION_MAJOR {
            return Some(Step::End(Some(CounterKind::CaptureCorrupt)));
        }
        self.section = self.section.saturating_add(1);
        self.locals.clear();
        self.host.clear();
        for (code, value) in Options::of(self.order, body, SECTION_FIXED_LEN) {
            match code {
                option::COMMENT => {
                    let comment = text(value);
                    if let Some(host) = comment.strip_prefix(HOST_COMMENT_PREFIX) {
                        host.clone_into(&mut self.host);
                    }
                    keep(&mut section.comments, comment, counters);
                }
                option::SHB_USERAPPL => keep(&mut section.applications, text(value), counters),
                _ => {}
            }
        }
        None
    }

    /// Keep a key log; secrets of other kinds are left.
    fn decryption_secrets(&self, body: &[u8], section: &mut Section, counters: &mut Counters) {
        let held = body.get(SECRETS_FIXED_LEN..body.len().saturating_sub(BLOCK_TRAILER_LEN));
        let Some(held) = held else {
            return counters.bump(CounterKind::BlocksMalformed);
        };
        let (kind, len) = (self.order.u32(body, 8), self.order.u32(body, 12) as usize);
        match held.get(..len) {
            Some(text) if kind == TLS_KEY_LOG => section.key_log.add(text),
            Some(_) => counters.bump(CounterKind::BlocksSkipped),
            None => counters.bump(CounterKind::BlocksMalformed),
        }
    }

    fn interface_description(&mut self, body: &[u8], interfaces: &mut Vec<Interface>, counters: &mut Counters) {
        if body.len() < INTERFACE_FIXED_LEN + BLOCK_TRAILER_LEN {
            return counters.bump(CounterKind::BlocksMalformed);
        }
        if self.locals.len() >= INTERFACE_LIMIT {
            return counters.bump(CounterKind::TooManyInterfaces);
        }
        let interface = self.describe(body);
        let Interface {
            link_type, resolution, ..
        } = interface;
        let index = self.identify(body, interface, interfaces);
        if index.is_none() {
            counters.bump(CounterKind::TooManyInterfaces);
        }
        self.locals.push(Local {
            index,
            link_type,
            resolution,
        });
    }

    fn describe(&self, body: &[u8]) -> Interface {
        let link_type = LinkType(self.order.u16(body, 8));
        let mut interface = Interface::new(link_type, self.order.u32(body, 12), Resolution::MICROSECONDS);
        let mut offset_seconds = 0;
        for (code, value) in Options::of(self.order, body, INTERFACE_FIXED_LEN) {
            match (code, value.len()) {
                (option::IF_NAME, _) => interface.name = text(value),
                (option::IF_DESCRIPTION, _) => interface.description = text(value),
                (option::IF_SPEED, 8) => interface.speed_bps = self.order.u64(value, 0),
                (option::IF_TSRESOL, 1) => interface.resolution = Resolution::from_option(value[0]),
                (option::IF_TSOFFSET, 8) => offset_seconds = self.order.u64(value, 0) as i64,
                _ => {}
            }
        }
        interface.resolution = interface.resolution.with_offset(offset_seconds);
        interface
    }

    /// The index of an interface over the whole file: that of an equal one of an earlier section, or a new one.
    fn identify(&mut self, body: &[u8], interface: Interface, interfaces: &mut Vec<Interface>) -> Option<u16> {
        let mut hasher = DefaultHasher::new();
        (&self.host, self.locals.len(), self.order.u16(body, 8), body).hash(&mut hasher);
        let key = hasher.finish();
        if let Some(&index) = self.known.get(&key) {
            return Some(index);
        }
        if interfaces.len() >= INTERFACE_LIMIT {
            return None;
        }
        let index = interfaces.len() as u16;
        interfaces.push(interface);
        // Interfaces of cooked captures stand among these and have no tally.
        self.tallies.resize(interfaces.len(), Tally::default());
        self.known.insert(key, index);
        Some(index)
    }

    fn interface_statistics(&mut self, body: &[u8], interfaces: &mut [Interface], counters: &mut Counters) {
        if body.len() < STATISTICS_FIXED_LEN + BLOCK_TRAILER_LEN {
            return counters.bump(CounterKind::BlocksMalformed);
        }
        let local = self.locals.get(self.order.u32(body, 8) as usize);
        let Some((index, resolution)) = local.and_then(|local| Some((local.index?, local.resolution))) else {
            return counters.bump(CounterKind::InterfaceUnknown);
        };
        let (mut start_ticks, mut lost, mut lost_by_system) = (None, None, None);
        let mut end_ticks = self.ticks(body, STATISTICS_TIME_AT);
        let mut current = Statistics::default();
        for (code, value) in Options::of(self.order, body, STATISTICS_FIXED_LEN) {
            let number = (value.len() == 8).then(|| self.order.u64(value, 0));
            match code {
                option::ISB_STARTTIME if number.is_some() => start_ticks = Some(self.ticks(value, 0)),
                option::ISB_ENDTIME if number.is_some() => end_ticks = self.ticks(value, 0),
                option::ISB_IFRECV => current.received_count = number,
                option::ISB_IFDROP => lost = number,
                option::ISB_OSDROP => lost_by_system = number,
                _ => {}
            }
        }
        current.dropped_count = sum(lost, lost_by_system);
        let tally = &mut self.tallies[usize::from(index)];
        let before = tally.sum().dropped_count.unwrap_or(0);
        tally.take(self.section, start_ticks, current);
        let interface = &mut interfaces[usize::from(index)];
        interface.statistics = tally.sum();
        let end = resolution.time(end_ticks).filter(|_| end_ticks > 0);
        if let (Some(dropped_count), Some(end)) = (interface.statistics.dropped_count, end) {
            let start = start_ticks.and_then(|ticks| resolution.time(ticks));
            let start_ns = start.map(|start| start.0);
            interface.note_drops(start_ns, end.0, dropped_count.saturating_sub(before));
        }
    }

    /// A stamp. Its high half comes first in either byte order.
    fn ticks(&self, bytes: &[u8], at: usize) -> u64 {
        u64::from(self.order.u32(bytes, at)) << 32 | u64::from(self.order.u32(bytes, at + 4))
    }

    fn name_resolution(&self, body: &[u8], section: &mut Section, counters: &mut Counters) {
        let mut records = Options::of(self.order, body, BLOCK_HEADER_LEN);
        for (kind, value) in records.by_ref() {
            let (address, names) = match kind {
                NAME_IPV4 if value.len() > 4 => (
                    IpAddr::V4(Ipv4Addr::from_bits(crate::bytes::be32(value, 0))),
                    &value[4..],
                ),
                NAME_IPV6 if value.len() > 16 => (
                    IpAddr::V6(Ipv6Addr::from_bits(crate::bytes::be128(value, 0))),
                    &value[16..],
                ),
                _ => continue,
            };
            for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
                section.keep_name(
                    NameRecord {
                        address,
                        name: text(name),
                    },
                    counters,
                );
            }
        }
        // Behind the record that ends the names are options.
        if let [0, 0, _, _, rest @ ..] = records.rest {
            let order = self.order;
            let options = Options { order, rest };
            for (_, value) in options.filter(|(code, _)| *code == option::COMMENT) {
                section.keep_statement(value, counters);
            }
        }
    }

    /// An obsolete Packet Block: interface and drops have 16 bits each, otherwise as an Enhanced Packet Block.
    fn obsolete_packet(&mut self, body: &[u8]) -> Step {
        if body.len() < PACKET_FIXED_LEN + BLOCK_TRAILER_LEN {
            return Step::LeftOut(CounterKind::BlocksMalformed);
        }
        let interface = usize::from(self.order.u16(body, 8));
        let drops = self.order.u16(body, 10);
        let drops = if drops == DROPS_UNKNOWN { 0 } else { u64::from(drops) };
        Self::packet(
            self.order,
            &self.locals,
            &mut self.drops_between,
            body,
            interface,
            drops,
        )
    }
}

impl Tally {
    /// Add the statistics of one block. Within a section a later block replaces an earlier one. A new section's
    /// statistics continue those of the section before if both state the same start, otherwise they are added.
    fn take(&mut self, section: u32, start_ticks: Option<u64>, current: Statistics) {
        let goes_on = start_ticks.is_some() && start_ticks == self.start_ticks;
        if section != self.section && !goes_on {
            self.before = self.sum();
        }
        (self.section, self.start_ticks, self.current) = (section, start_ticks, current);
    }

    fn sum(&self) -> Statistics {
        Statistics {
            received_count: sum(self.before.received_count, self.current.received_count),
            dropped_count: sum(self.before.dropped_count, self.current.dropped_count),
        }
    }
}

impl Section {
    fn keep_name(&mut self, record: NameRecord, counters: &mut Counters) {
        if self.names_seen.contains(&record) {
            return;
        }
        if self.names.len() >= NAME_LIMIT {
            return counters.bump(CounterKind::NamesLeftOut);
        }
        self.names_seen.insert(record.clone());
        self.names.push(record);
    }

    fn keep_statement(&mut self, comment: &[u8], counters: &mut Counters) {
        if KEPT_PREFIXES.iter().any(|prefix| comment.starts_with(prefix)) {
            if self.kept.len() >= KEPT_LIMIT || comment.len() > TEXT_LIMIT {
                return counters.bump(CounterKind::NamesLeftOut);
            }
            return self.kept.push(escape_invalid_utf8(comment));
        }
        let kept = if OWNERS_PREFIXES.iter().any(|prefix| comment.starts_with(prefix)) {
            &mut self.owners
        } else if comment.starts_with(STAMPS_PREFIX) {
            &mut self.stamps
        } else {
            return;
        };
        if self.statements_len + comment.len() > STATEMENTS_LIMIT {
            return counters.bump(CounterKind::NamesLeftOut);
        }
        self.statements_len += comment.len();
        kept.push(escape_invalid_utf8(comment));
    }

    /// The host that our agent states in a comment.
    pub fn host(&self) -> Option<&str> {
        self.comments
            .iter()
            .find_map(|comment| comment.strip_prefix(HOST_COMMENT_PREFIX))
    }
}

/// The options of a block, from `at` on; ends where they contradict the block.
struct Options<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    #[inline]
    fn of(order: ByteOrder, block: &'a [u8], at: usize) -> Self {
        let end = block.len() - BLOCK_TRAILER_LEN;
        Self {
            order,
            rest: block.get(at..end).unwrap_or(&[]),
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < 4 {
            return None;
        }
        let (code, len) = (self.order.u16(self.rest, 0), usize::from(self.order.u16(self.rest, 2)));
        let value = self.rest.get(4..4 + len)?;
        if code == option::END {
            return None;
        }
        self.rest = self.rest.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    }
}

#[inline]
fn by_flags(flags: u32) -> Direction {
    match flags & 3 {
        1 => Direction::Receive,
        2 => Direction::Send,
        _ => Direction::Unknown,
    }
}

fn sum(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.saturating_add(right)),
        (one, other) => one.or(other),
    }
}

/// Text of an option, shortened to the limit; bytes that are no UTF-8 as escapes.
fn text(value: &[u8]) -> String {
    escape_invalid_utf8(&value[..value.len().min(TEXT_LIMIT)])
        .trim_end_matches('\0')
        .to_owned()
}

/// `value` as text, each byte that is no UTF-8 as `\xNN`.
pub fn escape_invalid_utf8(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a String takes all");
        }
    }
    text
}

/// Append `value` to `list` unless it is in it already, or there are too many.
fn keep(list: &mut Vec<String>, value: String, counters: &mut Counters) {
    if list.contains(&value) {
        return;
    }
    if list.len() >= COMMENT_LIMIT {
        return counters.bump(CounterKind::NamesLeftOut);
    }
    list.push(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_lossless() {
        let cases: &[(&[u8], &str)] = &[
            (b"eth0\0\0", "eth0"),
            (b"caf\xe9", "caf\\xe9"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            (b"\xff\xfea", "\\xff\\xfea"),
            (b"\xe2\x82", "\\xe2\\x82"),
            (b"", ""),
        ];
        for &(value, expected) in cases {
            assert_eq!(text(value), expected);
        }
    }
}
