//! Reads fixed-width fields at named offsets. Callers check the length once, before the first field.

/// The big-endian (network order) u16 at `at`.
#[inline(always)]
pub(crate) fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

/// The big-endian u32 at `at`.
#[inline(always)]
pub(crate) fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// The big-endian u128 at `at`.
#[inline(always)]
pub(crate) fn be128(data: &[u8], at: usize) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&data[at..at + 16]);
    u128::from_be_bytes(bytes)
}

/// Byte order of a capture file, or of one pcapng section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The u16 at `at`.
    #[inline(always)]
    pub(crate) fn u16(self, data: &[u8], at: usize) -> u16 {
        let bytes = [data[at], data[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// The u32 at `at`.
    #[inline(always)]
    pub(crate) fn u32(self, data: &[u8], at: usize) -> u32 {
        let bytes = [data[at], data[at + 1], data[at + 2], data[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The u64 at `at`.
    pub(crate) fn u64(self, data: &[u8], at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&data[at..at + 8]);
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}
