//! A decode error as a value: which layer, what was needed, what was there, which field set the limit, and where.
//!
//! A packet cut by the capture's snaplen is normal, so most of these errors are only counted, under the name that
//! [`DecodeError::counter`] returns. Source: the shape follows etherparse's `LenError`.

use std::fmt;

use crate::counters::CounterKind;

/// Where in a packet an error was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    Ethernet,
    Vlan,
    LinuxSll,
    LinuxSll2,
    Loopback,
    Ipv4,
    Ipv6,
    Ipv6Extension,
    Tcp,
    TcpOptions,
    Tunnel,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There are fewer bytes than the header needs.
    TooShort,
    /// A field whose value no sender may write.
    Malformed,
    /// More layers inside each other than are followed.
    TooDeep,
}

/// The field that limits the number of available bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// The capture's snaplen (or a runt frame).
    CapturedLen,
    /// IPv4 total length.
    Ipv4TotalLen,
    /// IPv6 payload length.
    Ipv6PayloadLen,
    /// IPv4 IHL, in words.
    Ipv4HeaderLen,
    /// TCP data offset, in words.
    TcpDataOffset,
    /// The length byte of a TCP option.
    TcpOptionLen,
}

/// One packet, or the rest of one, that could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeError {
    pub layer: Layer,
    pub kind: ErrorKind,
    /// Bytes that the layer takes.
    pub needed: u32,
    /// Bytes that there are, by `limited_by`.
    pub available: u32,
    pub limited_by: LimitedBy,
    /// Where the layer begins, in bytes from the start of the packet.
    pub offset: u32,
}

impl DecodeError {
    /// An error for `needed` bytes at `offset` of which the capture holds only `available`.
    #[cold]
    pub fn cut(layer: Layer, offset: usize, needed: usize, available: usize) -> Self {
        let (needed, available, offset) = (clamp(needed), clamp(available), clamp(offset));
        let limited_by = LimitedBy::CapturedLen;
        Self {
            layer,
            kind: ErrorKind::TooShort,
            needed,
            available,
            limited_by,
            offset,
        }
    }

    /// An error for a length field that contradicts its own header.
    #[cold]
    pub fn contradiction(layer: Layer, limited_by: LimitedBy, offset: usize, needed: usize, available: usize) -> Self {
        let (needed, available, offset) = (clamp(needed), clamp(available), clamp(offset));
        Self {
            layer,
            kind: ErrorKind::Malformed,
            needed,
            available,
            limited_by,
            offset,
        }
    }

    /// The name under which it is counted.
    pub fn counter(&self) -> CounterKind {
        match (self.kind, self.layer) {
            (ErrorKind::TooShort, Layer::TcpOptions) => CounterKind::TcpOptionsCut,
            (ErrorKind::TooShort, _) => CounterKind::PacketsCutTooShort,
            (ErrorKind::TooDeep, _) => CounterKind::TooManyLayers,
            (ErrorKind::Malformed, Layer::TcpOptions) => CounterKind::TcpOptionsMalformed,
            (ErrorKind::Malformed, Layer::Tcp) => CounterKind::TcpMalformed,
            (ErrorKind::Malformed, _) => CounterKind::IpMalformed,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:?} at byte {}: {:?}, needs {} bytes, has {} by {:?}",
            self.layer, self.offset, self.kind, self.needed, self.available, self.limited_by
        )
    }
}

impl std::error::Error for DecodeError {}

fn clamp(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
