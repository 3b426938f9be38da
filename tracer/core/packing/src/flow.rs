//! What a flow makes likely of its next packet.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::block::{FixedFields, OPTIONS_LEN, Packet, Tuple};
use crate::checksums::fold;

const NS_PER_TICK: u64 = 1_000_000;

/// How a checksum follows from the rest of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChecksumKind {
    /// It is the pseudo header's sum: the network card was to fill it in.
    #[default]
    Pseudo,
    /// It is right, and all that it covers is kept.
    Whole,
    /// It covers what is not kept.
    Given,
}

impl ChecksumKind {
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        if packet.checksum == fold(packet.pseudo_sum()) {
            ChecksumKind::Pseudo
        } else if packet.payload.len() == packet.payload_len as usize && packet.checksum == packet.whole_checksum() {
            ChecksumKind::Whole
        } else {
            ChecksumKind::Given
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [ChecksumKind::Pseudo, ChecksumKind::Whole, ChecksumKind::Given]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// One direction of a connection, as of its last packet.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) tuple: Tuple,
    /// The flow of the other direction, if there is one yet.
    pub(crate) reverse: Option<usize>,
    /// The flow whose packet came after the last one of this.
    pub(crate) successor: usize,
    pub(crate) fixed: FixedFields,
    pub(crate) host_ns: u64,
    pub(crate) tos: u8,
    pub(crate) id: u16,
    pub(crate) payload_len: u32,
    pub(crate) next_seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Of packets without and with payload.
    pub(crate) checksum_kinds: [ChecksumKind; 2],
    pub(crate) timestamp: u32,
    pub(crate) echo: u32,
    pub(crate) options: [u8; OPTIONS_LEN],
    pub(crate) options_len: usize,
    pub(crate) kept_len: u32,
    pub(crate) keeps_all: bool,
}

impl Flow {
    fn new(tuple: Tuple, reverse: Option<usize>, number: usize) -> Self {
        Flow {
            tuple,
            reverse,
            successor: number,
            fixed: FixedFields::default(),
            host_ns: 0,
            tos: 0,
            id: 0,
            payload_len: 0,
            next_seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            checksum_kinds: Default::default(),
            timestamp: 0,
            echo: 0,
            options: [0; OPTIONS_LEN],
            options_len: 0,
            kept_len: 0,
            keeps_all: false,
        }
    }

    /// The id that follows: one for each packet, or for each packet on the wire that a super-packet became.
    pub(crate) fn likely_id(&self) -> u16 {
        self.id.wrapping_add(1)
    }

    /// How much of a payload is kept, if as much as last time.
    pub(crate) fn likely_kept_len(&self, payload_len: u32) -> u32 {
        if self.keeps_all {
            payload_len
        } else {
            self.kept_len.min(payload_len)
        }
    }

    /// The timestamp of a clock that ticks in ms, as Linux's does.
    pub(crate) fn likely_timestamp(&self, host_ns: u64) -> u32 {
        let elapsed_ns = host_ns.saturating_sub(self.host_ns);
        self.timestamp
            .wrapping_add((elapsed_ns.wrapping_add(NS_PER_TICK / 2) / NS_PER_TICK) as u32)
    }

    pub(crate) fn checksum_kind(&self, payload_len: u32) -> ChecksumKind {
        self.checksum_kinds[usize::from(payload_len > 0)]
    }

    /// Take in the packet that came.
    pub(crate) fn note(&mut self, packet: &Packet<'_>, kind: ChecksumKind) {
        self.fixed = packet.fixed;
        self.host_ns = packet.host_ns;
        self.tos = packet.tos;
        self.id = packet.id;
        self.payload_len = packet.payload_len;
        self.next_seq = packet.seq.wrapping_add(packet.seq_len());
        self.ack = packet.ack;
        self.flags = packet.flags;
        self.window = packet.window;
        self.checksum_kinds[usize::from(packet.payload_len > 0)] = kind;
        self.timestamp = packet.timestamp;
        self.echo = packet.echo;
        self.options = packet.options;
        self.options_len = packet.options_len;
        if packet.payload_len > 0 {
            self.kept_len = packet.payload.len() as u32;
            self.keeps_all = self.kept_len == packet.payload_len;
        }
    }
}

/// All flows so far, and the last packet's.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    numbers: HashMap<Tuple, usize, FixedState>,
    pub(crate) flows: Vec<Flow>,
    last: usize,
    pub(crate) last_ns: u64,
}

impl Flows {
    pub(crate) fn number(&self, tuple: &Tuple) -> Option<usize> {
        self.numbers.get(tuple).copied()
    }

    /// The flow that came after the last packet's when it came last.
    pub(crate) fn likely(&self) -> Option<usize> {
        self.flows.get(self.last).map(|flow| flow.successor)
    }

    /// The addresses and ports that a new flow would have that answers the last packet.
    pub(crate) fn answering(&self) -> Option<Tuple> {
        self.flows.get(self.last).map(|flow| flow.tuple.opposite())
    }

    pub(crate) fn add(&mut self, tuple: Tuple) -> usize {
        let number = self.flows.len();
        let reverse = self.number(&tuple.opposite());
        if let Some(other) = reverse {
            self.flows[other].reverse = Some(number);
        }
        self.flows.push(Flow::new(tuple, reverse, reverse.unwrap_or(number)));
        self.numbers.insert(tuple, number);
        number
    }

    pub(crate) fn reverse(&self, flow: &Flow) -> Option<&Flow> {
        flow.reverse.map(|number| &self.flows[number])
    }

    /// Take in the packet that came.
    pub(crate) fn note(&mut self, number: usize, packet: &Packet<'_>, kind: ChecksumKind) {
        self.flows[number].note(packet, kind);
        if let Some(before) = self.flows.get_mut(self.last) {
            before.successor = number;
        }
        self.last = number;
        self.last_ns = packet.host_ns;
    }

    /// The acknowledgment of all that the other direction sent; without one, the same as last time.
    pub(crate) fn likely_ack(&self, flow: &Flow) -> u32 {
        self.reverse(flow).map_or(flow.ack, |reverse| reverse.next_seq)
    }

    pub(crate) fn likely_echo(&self, flow: &Flow) -> u32 {
        self.reverse(flow).map_or(flow.echo, |reverse| reverse.timestamp)
    }
}
