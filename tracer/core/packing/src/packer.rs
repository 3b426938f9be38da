//! From pcapng to a packed segment.

use crate::block::Packet;
use crate::flow::{ChecksumKind, Flow, Flows};
use crate::streams::{Kind, Streams};

/// Bits of the mask: what is written because it is not as predicted.
pub(crate) mod bit {
    pub(crate) const FLOW: u16 = 1;
    pub(crate) const FIXED: u16 = 1 << 1;
    pub(crate) const TOS_FLAGS: u16 = 1 << 2;
    pub(crate) const LENGTH: u16 = 1 << 3;
    pub(crate) const ORIGINAL: u16 = 1 << 4;
    pub(crate) const KEPT: u16 = 1 << 5;
    pub(crate) const ID: u16 = 1 << 6;
    pub(crate) const SEQ: u16 = 1 << 7;
    pub(crate) const ACK: u16 = 1 << 8;
    pub(crate) const WINDOW: u16 = 1 << 9;
    pub(crate) const CHECKSUM: u16 = 1 << 10;
    pub(crate) const TIMESTAMP: u16 = 1 << 11;
    pub(crate) const ECHO: u16 = 1 << 12;
    pub(crate) const OPTIONS: u16 = 1 << 13;
    /// The packet came before the last one, or long after it.
    pub(crate) const FAR: u16 = 1 << 14;
    /// A whole block, no other bit.
    pub(crate) const RAW: u16 = 1 << 15;
}

/// Instead of a flow's number: a new one, and one that answers the last packet.
pub(crate) const NEW_FLOW: u16 = u16::MAX;
pub(crate) const ANSWERING_FLOW: u16 = u16::MAX - 1;
/// Instead of a timestamp's difference: it is written whole.
pub(crate) const FAR_TIMESTAMP: u8 = 0x80;
pub(crate) const SHORTEST_BLOCK: usize = 12;

/// A packed segment of any bytes; it is small if they are pcapng as the agent writes it.
///
/// Cost: about 0.1 µs a packet, and memory for about as many bytes as are given.
pub fn pack(pcapng: &[u8]) -> Vec<u8> {
    let mut packer = Packer {
        flows: Flows::default(),
        streams: Streams::new(),
    };
    let mut rest = pcapng;
    while let Some((block, others)) = split_block(rest) {
        packer.add(block);
        rest = others;
    }
    packer.streams.bytes(Kind::Raw, rest);
    packer.streams.compress()
}

/// The first block of `bytes`, and what follows it; none if there is no whole one.
pub(crate) fn split_block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let field = bytes.get(4..8)?;
    let len = u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize;
    if len < SHORTEST_BLOCK {
        None
    } else {
        bytes.split_at_checked(len)
    }
}

struct Packer {
    flows: Flows,
    streams: Streams,
}

impl Packer {
    fn add(&mut self, block: &[u8]) {
        let room = self.flows.flows.len() < usize::from(ANSWERING_FLOW);
        match Packet::parse(block) {
            Some(packet) if room || self.flows.number(&packet.tuple).is_some() => self.add_packet(&packet),
            _ => {
                self.streams.halves(Kind::MaskLow, Kind::MaskHigh, bit::RAW);
                self.streams.bytes(Kind::Raw, block);
            }
        }
    }

    fn add_packet(&mut self, packet: &Packet<'_>) {
        let mut mask = 0;
        let number = self.add_flow(packet, &mut mask);
        let kind = ChecksumKind::of(packet);
        let flow = &self.flows.flows[number];
        let (ack, echo) = (self.flows.likely_ack(flow), self.flows.likely_echo(flow));
        let mut fields = Fields {
            packet,
            flow,
            streams: &mut self.streams,
            mask,
        };
        fields.add_time(self.flows.last_ns);
        fields.add_ip();
        fields.add_tcp(ack);
        fields.add_checksum(kind);
        fields.add_options(echo);
        fields.add_payload();
        let mask = fields.mask;
        self.streams.halves(Kind::MaskLow, Kind::MaskHigh, mask);
        self.flows.note(number, packet, kind);
    }

    /// The number of the packet's flow.
    fn add_flow(&mut self, packet: &Packet<'_>, mask: &mut u16) -> usize {
        let likely = self.flows.likely();
        if let Some(number) = self.flows.number(&packet.tuple) {
            if likely != Some(number) {
                *mask |= bit::FLOW;
                self.streams.halves(Kind::Flow0, Kind::Flow1, number as u16);
            }
            return number;
        }
        *mask |= bit::FLOW;
        let is_answering = self.flows.answering() == Some(packet.tuple);
        let code = if is_answering { ANSWERING_FLOW } else { NEW_FLOW };
        self.streams.halves(Kind::Flow0, Kind::Flow1, code);
        if !is_answering {
            let tuple = &packet.tuple;
            let [low, high] = tuple.interface.to_le_bytes();
            self.streams
                .bytes(Kind::Tuple, &[tuple.form, low, high, tuple.direction]);
            self.streams.bytes(Kind::Tuple, &tuple.src[..tuple.address_len()]);
            self.streams.bytes(Kind::Tuple, &tuple.dst[..tuple.address_len()]);
            self.streams.bytes(Kind::Tuple, &tuple.ports);
        }
        self.flows.add(packet.tuple)
    }
}

/// One packet beside what its flow makes likely.
struct Fields<'a> {
    packet: &'a Packet<'a>,
    flow: &'a Flow,
    streams: &'a mut Streams,
    mask: u16,
}

impl Fields<'_> {
    /// Notes in the mask whether something is otherwise.
    fn differs(&mut self, bit: u16, differs: bool) -> bool {
        if differs {
            self.mask |= bit;
        }
        differs
    }

    fn add_time(&mut self, last_ns: u64) {
        let elapsed_ns = self.packet.host_ns.wrapping_sub(last_ns);
        if self.differs(bit::FAR, elapsed_ns >= 1 << 24) {
            self.streams.bytes(Kind::TimeFar, &self.packet.host_ns.to_le_bytes());
            return;
        }
        let [low, middle, high, ..] = elapsed_ns.to_le_bytes();
        self.streams.byte(Kind::Time0, low);
        self.streams.byte(Kind::Time1, middle);
        self.streams.byte(Kind::Time2, high);
    }

    fn add_ip(&mut self) {
        let (packet, flow) = (self.packet, self.flow);
        if self.differs(bit::FIXED, packet.fixed != flow.fixed) {
            self.streams.bytes(Kind::Fixed, &packet.fixed);
        }
        if self.differs(bit::TOS_FLAGS, (packet.tos, packet.flags) != (flow.tos, flow.flags)) {
            self.streams.bytes(Kind::TosFlags, &[packet.tos, packet.flags]);
        }
        if self.differs(bit::LENGTH, packet.payload_len != flow.payload_len) {
            // A segment in one IP packet is shorter than 64 KiB.
            let len = packet.payload_len as u16;
            self.streams.halves(Kind::Length0, Kind::Length1, len);
        }
        if self.differs(bit::ID, packet.id != flow.likely_id() && !packet.tuple.is_ipv6()) {
            let further = packet.id.wrapping_sub(flow.likely_id());
            self.streams.halves(Kind::Id0, Kind::Id1, further);
        }
    }

    fn add_tcp(&mut self, likely_ack: u32) {
        let (packet, flow) = (self.packet, self.flow);
        if self.differs(bit::SEQ, packet.seq != flow.next_seq) {
            let further = packet.seq.wrapping_sub(flow.next_seq);
            self.streams.bytes(Kind::Seq, &further.to_le_bytes());
        }
        if self.differs(bit::ACK, packet.ack != likely_ack) {
            let [low, middle, rest @ ..] = packet.ack.wrapping_sub(flow.ack).to_le_bytes();
            self.streams.byte(Kind::Ack0, low);
            self.streams.byte(Kind::Ack1, middle);
            self.streams.bytes(Kind::AckHigh, &rest);
        }
        if self.differs(bit::WINDOW, packet.window != flow.window) {
            let further = packet.window.wrapping_sub(flow.window);
            self.streams.halves(Kind::Window0, Kind::Window1, further);
        }
    }

    fn add_checksum(&mut self, kind: ChecksumKind) {
        let differs = kind != self.flow.checksum_kind(self.packet.payload_len);
        if self.differs(bit::CHECKSUM, differs) {
            self.streams.byte(Kind::ChecksumForm, kind as u8);
        }
        if kind == ChecksumKind::Given {
            self.streams.bytes(Kind::Checksum, &self.packet.checksum.to_be_bytes());
        }
    }

    fn add_options(&mut self, likely_echo: u32) {
        let (packet, flow) = (self.packet, self.flow);
        let are_same = packet.options_len == flow.options_len && packet.options == flow.options;
        if self.differs(bit::OPTIONS, !are_same) {
            self.streams.byte(Kind::Options, packet.options_len as u8);
            self.streams.bytes(Kind::Options, &packet.options[..packet.options_len]);
        }
        if !packet.has_timestamps() {
            return;
        }
        let further = packet.timestamp.wrapping_sub(flow.likely_timestamp(packet.host_ns)) as i32;
        if self.differs(bit::TIMESTAMP, further != 0) {
            match i8::try_from(further) {
                Ok(near) if near as u8 != FAR_TIMESTAMP => self.streams.byte(Kind::TimestampNear, near as u8),
                _ => {
                    self.streams.byte(Kind::TimestampNear, FAR_TIMESTAMP);
                    self.streams.bytes(Kind::TimestampFar, &packet.timestamp.to_le_bytes());
                }
            }
        }
        if self.differs(bit::ECHO, packet.echo != likely_echo) {
            let further = packet.echo.wrapping_sub(likely_echo);
            self.streams.bytes(Kind::Echo, &further.to_le_bytes());
        }
    }

    fn add_payload(&mut self) {
        let (packet, flow) = (self.packet, self.flow);
        if self.differs(bit::ORIGINAL, packet.original_len != packet.likely_original_len()) {
            self.streams.bytes(Kind::Original, &packet.original_len.to_le_bytes());
        }
        let kept_len = packet.payload.len() as u32;
        if self.differs(bit::KEPT, kept_len != flow.likely_kept_len(packet.payload_len)) {
            self.streams.bytes(Kind::Kept, &kept_len.to_le_bytes());
        }
        self.streams.bytes(Kind::Payload, packet.payload);
    }
}
