//! Cipher suites that can be opened, and opening one record.
//!
//! Of TLS 1.3: RFC 8446 §B.4. Of TLS 1.2: RFC 5288, 5289 and 5487 (GCM), RFC 6655 and 7251 (CCM), RFC 7905 (ChaCha20).

use aes::{Aes128, Aes256};
use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use ccm::Ccm;
use ccm::consts::{U8, U12, U16};
use chacha20poly1305::ChaCha20Poly1305;

use crate::hellos::{TLS_12, TLS_13};

/// Length of every nonce.
pub const NONCE_LEN: usize = 12;
/// Bytes of the nonce that a TLS 1.2 record with GCM or CCM states itself (RFC 5288 §3).
pub const EXPLICIT_NONCE_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aead {
    Aes128Gcm,
    Aes256Gcm,
    Aes128Ccm,
    Aes256Ccm,
    /// With a tag of 8 bytes.
    Aes128Ccm8,
    Aes256Ccm8,
    ChaCha20Poly1305,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha384,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    pub aead: Aead,
    pub hash: Hash,
}

impl Suite {
    /// The suite with this number in a version; none if it cannot be opened.
    pub fn of(version: u16, number: u16) -> Option<Self> {
        use Aead::{Aes128Ccm, Aes128Ccm8, Aes128Gcm, Aes256Ccm, Aes256Ccm8, Aes256Gcm, ChaCha20Poly1305};
        use Hash::{Sha256, Sha384};
        let (aead, hash) = match (version, number) {
            (TLS_13, 0x1301) => (Aes128Gcm, Sha256),
            (TLS_13, 0x1302) => (Aes256Gcm, Sha384),
            (TLS_13, 0x1303) => (ChaCha20Poly1305, Sha256),
            (TLS_13, 0x1304) => (Aes128Ccm, Sha256),
            (TLS_13, 0x1305) => (Aes128Ccm8, Sha256),
            (TLS_12, 0x009c | 0x009e | 0x00a8 | 0x00aa | 0xc02b | 0xc02f | 0xd001) => (Aes128Gcm, Sha256),
            (TLS_12, 0x009d | 0x009f | 0x00a9 | 0x00ab | 0xc02c | 0xc030 | 0xd002) => (Aes256Gcm, Sha384),
            (TLS_12, 0xcca8..=0xccae) => (ChaCha20Poly1305, Sha256),
            (TLS_12, 0xc09c | 0xc09e | 0xc0ac) => (Aes128Ccm, Sha256),
            (TLS_12, 0xc09d | 0xc09f | 0xc0ad) => (Aes256Ccm, Sha256),
            (TLS_12, 0xc0a0 | 0xc0a2 | 0xc0ae) => (Aes128Ccm8, Sha256),
            (TLS_12, 0xc0a1 | 0xc0a3 | 0xc0af) => (Aes256Ccm8, Sha256),
            _ => return None,
        };
        Some(Self { aead, hash })
    }
}

impl Aead {
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Ccm | Self::Aes128Ccm8 => 16,
            Self::Aes256Gcm | Self::Aes256Ccm | Self::Aes256Ccm8 | Self::ChaCha20Poly1305 => 32,
        }
    }

    pub fn tag_len(self) -> usize {
        match self {
            Self::Aes128Ccm8 | Self::Aes256Ccm8 => 8,
            _ => 16,
        }
    }

    /// Bytes of the nonce that a TLS 1.2 record states itself; the others are derived.
    pub fn explicit_len_12(self) -> usize {
        if self == Self::ChaCha20Poly1305 {
            0
        } else {
            EXPLICIT_NONCE_LEN
        }
    }
}

/// A cipher with its key.
#[derive(Clone)]
pub enum Cipher {
    Aes128Gcm(Box<Aes128Gcm>),
    Aes256Gcm(Box<Aes256Gcm>),
    Aes128Ccm(Box<Ccm<Aes128, U16, U12>>),
    Aes256Ccm(Box<Ccm<Aes256, U16, U12>>),
    Aes128Ccm8(Box<Ccm<Aes128, U8, U12>>),
    Aes256Ccm8(Box<Ccm<Aes256, U8, U12>>),
    ChaCha20Poly1305(Box<ChaCha20Poly1305>),
}

impl Cipher {
    /// None if the key has another length than the cipher's.
    pub fn new(aead: Aead, key: &[u8]) -> Option<Self> {
        Some(match aead {
            Aead::Aes128Gcm => Self::Aes128Gcm(box_cipher(key)?),
            Aead::Aes256Gcm => Self::Aes256Gcm(box_cipher(key)?),
            Aead::Aes128Ccm => Self::Aes128Ccm(box_cipher(key)?),
            Aead::Aes256Ccm => Self::Aes256Ccm(box_cipher(key)?),
            Aead::Aes128Ccm8 => Self::Aes128Ccm8(box_cipher(key)?),
            Aead::Aes256Ccm8 => Self::Aes256Ccm8(box_cipher(key)?),
            Aead::ChaCha20Poly1305 => Self::ChaCha20Poly1305(box_cipher(key)?),
        })
    }

    /// Whether a failed attempt to open a record changes its bytes.
    pub fn changes_failed(&self) -> bool {
        !matches!(
            self,
            Self::Aes128Gcm(_) | Self::Aes256Gcm(_) | Self::ChaCha20Poly1305(_)
        )
    }

    /// Open `sealed` in place, if `tag` verifies; otherwise its contents are unspecified, and never the plain text.
    pub fn open(&self, nonce: &[u8; NONCE_LEN], associated: &[u8], sealed: &mut [u8], tag: &[u8]) -> bool {
        match self {
            Self::Aes128Gcm(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::Aes256Gcm(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::Aes128Ccm(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::Aes256Ccm(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::Aes128Ccm8(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::Aes256Ccm8(cipher) => open(&**cipher, nonce, associated, sealed, tag),
            Self::ChaCha20Poly1305(cipher) => open(&**cipher, nonce, associated, sealed, tag),
        }
    }
}

fn box_cipher<C: KeyInit>(key: &[u8]) -> Option<Box<C>> {
    C::new_from_slice(key).ok().map(Box::new)
}

fn open<C: AeadInOut>(cipher: &C, nonce: &[u8], associated: &[u8], sealed: &mut [u8], tag: &[u8]) -> bool {
    let (Ok(nonce), Ok(tag)) = (nonce.try_into(), tag.try_into()) else {
        return false;
    };
    cipher
        .decrypt_inout_detached(nonce, associated, sealed.into(), tag)
        .is_ok()
}
