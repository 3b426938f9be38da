//! From a packed segment to the pcapng that it was made of. What is read may be anything.

use std::fmt;

use crate::block::{FixedFields, OPTIONS_LEN, Packet, Tuple};
use crate::checksums::fold;
use crate::flow::{ChecksumKind, Flow, Flows};
use crate::packer::{ANSWERING_FLOW, FAR_TIMESTAMP, NEW_FLOW, bit, split_block};
use crate::streams::{Cursors, Kind};

/// Why a packed segment cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnpackError {
    /// It expands to more than it may.
    TooLarge,
    /// It is none, or not as it was made.
    Damaged,
}

impl fmt::Display for UnpackError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            UnpackError::TooLarge => "the packed segment expands to more than is allowed",
            UnpackError::Damaged => "the packed segment is damaged",
        })
    }
}

/// The bytes that were packed, at most `limit` of them.
///
/// Memory: twice `limit` at most, whatever is given.
///
/// # Errors
/// What is wrong with the packed segment.
pub fn unpack(packed: &[u8], limit: usize) -> Result<Vec<u8>, UnpackError> {
    let mut unpacker = Unpacker {
        streams: Cursors::decompress(packed, limit)?,
        flows: Flows::default(),
        out: Vec::new(),
        limit,
    };
    while !unpacker.streams.rest(Kind::MaskLow).is_empty() {
        unpacker.add_block()?;
    }
    let tail = unpacker.streams.rest(Kind::Raw).to_vec();
    unpacker.check_room(tail.len())?;
    unpacker.out.extend_from_slice(&tail);
    Ok(unpacker.out)
}

struct Unpacker {
    streams: Cursors,
    flows: Flows,
    out: Vec<u8>,
    limit: usize,
}

impl Unpacker {
    fn check_room(&self, len: usize) -> Result<(), UnpackError> {
        match self.out.len().checked_add(len) {
            Some(needed) if needed <= self.limit => Ok(()),
            _ => Err(UnpackError::TooLarge),
        }
    }

    fn add_block(&mut self) -> Result<(), UnpackError> {
        let mask = self.streams.halves(Kind::MaskLow, Kind::MaskHigh)?;
        if mask & bit::RAW == 0 {
            return self.add_packet(mask);
        }
        let (block, _) = split_block(self.streams.rest(Kind::Raw)).ok_or(UnpackError::Damaged)?;
        let len = block.len();
        self.check_room(len)?;
        let block = self.streams.take(Kind::Raw, len)?;
        self.out.extend_from_slice(block);
        Ok(())
    }

    fn add_packet(&mut self, mask: u16) -> Result<(), UnpackError> {
        let number = self.flow(mask)?;
        let flow = &self.flows.flows[number];
        let (ack, echo) = (self.flows.likely_ack(flow), self.flows.likely_echo(flow));
        let mut fields = Fields {
            flow,
            streams: &mut self.streams,
            mask,
        };
        let host_ns = fields.time(self.flows.last_ns)?;
        let mut packet = fields.headers(host_ns)?;
        fields.read_tcp(&mut packet, ack)?;
        let kind = fields.checksum_kind(packet.payload_len)?;
        if kind == ChecksumKind::Given {
            packet.checksum = u16::from_be_bytes(fields.streams.array(Kind::Checksum)?);
        }
        fields.read_options(&mut packet, echo)?;
        packet.original_len = packet.likely_original_len();
        if mask & bit::ORIGINAL != 0 {
            packet.original_len = u32::from_le_bytes(fields.streams.array(Kind::Original)?);
        }
        let kept_len = fields.kept_len(packet.payload_len)? as usize;
        self.check_room(packet.block_len(kept_len))?;
        packet.payload = self.streams.take(Kind::Payload, kept_len)?;
        match kind {
            ChecksumKind::Pseudo => packet.checksum = fold(packet.pseudo_sum()),
            ChecksumKind::Whole => packet.checksum = packet.whole_checksum(),
            ChecksumKind::Given => {}
        }
        packet.write(&mut self.out);
        self.flows.note(number, &packet, kind);
        Ok(())
    }

    /// The number of the next packet's flow.
    fn flow(&mut self, mask: u16) -> Result<usize, UnpackError> {
        if mask & bit::FLOW == 0 {
            return self.flows.likely().ok_or(UnpackError::Damaged);
        }
        let tuple = match self.streams.halves(Kind::Flow0, Kind::Flow1)? {
            NEW_FLOW => self.tuple()?,
            ANSWERING_FLOW => self.flows.answering().ok_or(UnpackError::Damaged)?,
            number if usize::from(number) < self.flows.flows.len() => return Ok(usize::from(number)),
            _ => return Err(UnpackError::Damaged),
        };
        Ok(self.flows.add(tuple))
    }

    fn tuple(&mut self) -> Result<Tuple, UnpackError> {
        let [form, low, high, direction] = self.streams.array(Kind::Tuple)?;
        if form > 3 || !matches!(direction, 1 | 2) {
            return Err(UnpackError::Damaged);
        }
        let mut tuple = Tuple {
            interface: u16::from_le_bytes([low, high]),
            direction,
            form,
            src: [0; 16],
            dst: [0; 16],
            ports: [0; 4],
        };
        let len = tuple.address_len();
        tuple.src[..len].copy_from_slice(self.streams.take(Kind::Tuple, len)?);
        tuple.dst[..len].copy_from_slice(self.streams.take(Kind::Tuple, len)?);
        tuple.ports = self.streams.array(Kind::Tuple)?;
        Ok(tuple)
    }
}

/// The next packet's fields: as its flow makes likely, or as its streams say.
struct Fields<'a> {
    flow: &'a Flow,
    streams: &'a mut Cursors,
    mask: u16,
}

impl Fields<'_> {
    fn has(&self, bit: u16) -> bool {
        self.mask & bit != 0
    }

    fn time(&mut self, last_ns: u64) -> Result<u64, UnpackError> {
        if self.has(bit::FAR) {
            return Ok(u64::from_le_bytes(self.streams.array(Kind::TimeFar)?));
        }
        let low = self.streams.halves(Kind::Time0, Kind::Time1)?;
        let high = self.streams.byte(Kind::Time2)?;
        Ok(last_ns.wrapping_add(u64::from(high) << 16 | u64::from(low)))
    }

    fn headers<'p>(&mut self, host_ns: u64) -> Result<Packet<'p>, UnpackError> {
        let flow = self.flow;
        let fixed: FixedFields = if self.has(bit::FIXED) {
            self.streams.array(Kind::Fixed)?
        } else {
            flow.fixed
        };
        let [tos, flags] = if self.has(bit::TOS_FLAGS) {
            self.streams.array(Kind::TosFlags)?
        } else {
            [flow.tos, flow.flags]
        };
        let payload_len = if self.has(bit::LENGTH) {
            u32::from(self.streams.halves(Kind::Length0, Kind::Length1)?)
        } else {
            flow.payload_len
        };
        let further = if self.has(bit::ID) {
            self.streams.halves(Kind::Id0, Kind::Id1)?
        } else {
            0
        };
        let id = if flow.tuple.is_ipv6() {
            0
        } else {
            flow.likely_id().wrapping_add(further)
        };
        Ok(Packet {
            tuple: flow.tuple,
            fixed,
            host_ns,
            original_len: 0,
            tos,
            id,
            payload_len,
            seq: flow.next_seq,
            ack: flow.ack,
            flags,
            window: flow.window,
            checksum: 0,
            timestamp: 0,
            echo: 0,
            options: flow.options,
            options_len: flow.options_len,
            payload: &[],
        })
    }

    fn read_tcp(&mut self, packet: &mut Packet<'_>, likely_ack: u32) -> Result<(), UnpackError> {
        if self.has(bit::SEQ) {
            let further = u32::from_le_bytes(self.streams.array(Kind::Seq)?);
            packet.seq = self.flow.next_seq.wrapping_add(further);
        }
        packet.ack = likely_ack;
        if self.has(bit::ACK) {
            let (low, middle) = (self.streams.byte(Kind::Ack0)?, self.streams.byte(Kind::Ack1)?);
            let [third, high] = self.streams.array(Kind::AckHigh)?;
            packet.ack = self
                .flow
                .ack
                .wrapping_add(u32::from_le_bytes([low, middle, third, high]));
        }
        if self.has(bit::WINDOW) {
            let further = self.streams.halves(Kind::Window0, Kind::Window1)?;
            packet.window = self.flow.window.wrapping_add(further);
        }
        Ok(())
    }

    fn checksum_kind(&mut self, payload_len: u32) -> Result<ChecksumKind, UnpackError> {
        if !self.has(bit::CHECKSUM) {
            return Ok(self.flow.checksum_kind(payload_len));
        }
        ChecksumKind::from_byte(self.streams.byte(Kind::ChecksumForm)?).ok_or(UnpackError::Damaged)
    }

    fn read_options(&mut self, packet: &mut Packet<'_>, likely_echo: u32) -> Result<(), UnpackError> {
        if self.has(bit::OPTIONS) {
            let len = usize::from(self.streams.byte(Kind::Options)?);
            if len > OPTIONS_LEN || len % 4 != 0 {
                return Err(UnpackError::Damaged);
            }
            packet.options = [0; OPTIONS_LEN];
            packet.options[..len].copy_from_slice(self.streams.take(Kind::Options, len)?);
            packet.options_len = len;
        }
        if !packet.has_timestamps() {
            return Ok(());
        }
        packet.timestamp = self.flow.likely_timestamp(packet.host_ns);
        if self.has(bit::TIMESTAMP) {
            packet.timestamp = match self.streams.byte(Kind::TimestampNear)? {
                FAR_TIMESTAMP => u32::from_le_bytes(self.streams.array(Kind::TimestampFar)?),
                near => packet.timestamp.wrapping_add_signed(i32::from(near as i8)),
            };
        }
        packet.echo = likely_echo;
        if self.has(bit::ECHO) {
            let further = u32::from_le_bytes(self.streams.array(Kind::Echo)?);
            packet.echo = likely_echo.wrapping_add(further);
        }
        Ok(())
    }

    fn kept_len(&mut self, payload_len: u32) -> Result<u32, UnpackError> {
        if self.has(bit::KEPT) {
            return Ok(u32::from_le_bytes(self.streams.array(Kind::Kept)?));
        }
        Ok(self.flow.likely_kept_len(payload_len))
    }
}
