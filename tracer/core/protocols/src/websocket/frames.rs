//! The header of a frame (RFC 6455 §5.2).

/// Of a frame's second byte: its payload is masked.
pub(super) const MASKED: u8 = 0x80;
/// Length of the key with which a payload is masked.
pub(super) const KEY_LEN: usize = 4;
/// Length of a close's code.
pub(super) const CODE_LEN: usize = 2;

pub(super) mod opcode {
    pub const CONTINUATION: u8 = 0;
    pub const TEXT: u8 = 1;
    pub const BINARY: u8 = 2;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub opcode: u8,
    pub is_final: bool,
    pub is_masked: bool,
    pub is_compressed: bool,
    pub payload_len: u64,
    /// Length of the header, with the key.
    pub len: usize,
}

impl FrameHeader {
    /// Read the header at the start of `bytes`, which need not hold the key. `None` if it is not whole, or there can be
    /// none: see [`Self::is_possible`].
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[first, second], rest) = bytes.split_first_chunk()?;
        let (more, payload_len) = match second & !MASKED {
            126 => (2, u64::from(u16::from_be_bytes(*rest.first_chunk()?))),
            127 => (8, u64::from_be_bytes(*rest.first_chunk()?)),
            len => (0, u64::from(len)),
        };
        // A length must take as few bytes as possible ("the minimal number of bytes MUST be used"), and has 63 bits.
        let is_allowed = match more {
            2 => payload_len > 125,
            8 => payload_len > u64::from(u16::MAX) && payload_len <= i64::MAX as u64,
            _ => true,
        };
        let is_masked = second & MASKED != 0;
        (is_allowed && Self::is_possible(first, second)).then_some(Self {
            opcode: first & 0x0f,
            is_final: first & 0x80 != 0,
            is_masked,
            is_compressed: first & 0x40 != 0,
            payload_len,
            len: 2 + more + if is_masked { KEY_LEN } else { 0 },
        })
    }

    /// Whether a frame may begin with these bytes: a known opcode, no bit of an extension but that of compression, and
    /// control frames whole, short and not compressed.
    pub fn is_possible(first: u8, second: u8) -> bool {
        let (opcode, len7) = (first & 0x0f, second & !MASKED);
        if opcode >= opcode::CLOSE {
            first & 0xf0 == 0x80 && opcode <= 10 && len7 <= 125
        } else {
            first & 0x30 == 0 && opcode <= opcode::BINARY
        }
    }

    /// Length of a header that begins with these bytes.
    pub fn len_of(second: u8) -> usize {
        let more = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + more + if second & MASKED != 0 { KEY_LEN } else { 0 }
    }

    /// Length of header and payload.
    pub fn frame_len(&self) -> u64 {
        self.payload_len.saturating_add(self.len as u64)
    }

    /// Whether its payload begins with a code.
    pub fn has_code(&self) -> bool {
        self.opcode == opcode::CLOSE && self.payload_len >= CODE_LEN as u64
    }
}

/// How long the frame at the start of `bytes` is, and whether it is masked; `None` if there can be none.
pub(super) fn websocket_frame(bytes: &[u8]) -> Option<(usize, bool)> {
    let header = FrameHeader::parse(bytes)?;
    let len = usize::try_from(header.frame_len()).map_or(usize::MAX >> 1, |len| len.min(usize::MAX >> 1));
    Some((len, header.is_masked))
}
