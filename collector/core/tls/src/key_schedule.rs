//! Keys from secrets.
//!
//! Source: RFC 8446 §7.1–7.3 (HKDF-Expand-Label, traffic keys, updates); RFC 5246 §5, §6.3 (PRF, key block).

use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha384};
use zeroize::Zeroizing;

use crate::hellos::Choice;
use crate::key_log::{Random, Secret};
use crate::suites::{Cipher, EXPLICIT_NONCE_LEN, Hash, NONCE_LEN, Suite};

/// A cipher, and what each nonce is made of.
#[derive(Clone)]
pub struct Keys {
    pub cipher: Cipher,
    /// Combined with the number of a record by XOR; of TLS 1.2 with GCM or CCM its first 4 bytes alone.
    pub nonce: Zeroizing<[u8; NONCE_LEN]>,
}

/// Keys of a direction in TLS 1.3; none if the secret does not fit the suite.
pub fn keys_13(suite: Suite, secret: &[u8]) -> Option<Keys> {
    let key = expand_label(suite.hash, secret, b"key", suite.aead.key_len())?;
    let iv = expand_label(suite.hash, secret, b"iv", NONCE_LEN)?;
    let mut nonce = Zeroizing::new([0; NONCE_LEN]);
    nonce.copy_from_slice(&iv);
    Some(Keys {
        cipher: Cipher::new(suite.aead, &key)?,
        nonce,
    })
}

/// The secret after a key update.
pub fn updated_secret(suite: Suite, secret: &[u8]) -> Option<Secret> {
    expand_label(suite.hash, secret, b"traffic upd", secret.len())
}

/// Keys in TLS 1.2, of the client and of the server.
pub fn keys_12(suite: Suite, master: &[u8], client_random: &Random, choice: &Choice) -> Option<[Keys; 2]> {
    let (key_len, iv_len) = (suite.aead.key_len(), NONCE_LEN - suite.aead.explicit_len_12());
    debug_assert!(iv_len == NONCE_LEN || iv_len == NONCE_LEN - EXPLICIT_NONCE_LEN);
    let seed = [&b"key expansion"[..], &choice.server_random, client_random].concat();
    let block = prf_12(suite.hash, master, &seed, 2 * (key_len + iv_len))?;
    let keys = |side: usize| {
        let iv = &block[2 * key_len + side * iv_len..][..iv_len];
        let mut nonce = Zeroizing::new([0; NONCE_LEN]);
        nonce[..iv_len].copy_from_slice(iv);
        Some(Keys {
            cipher: Cipher::new(suite.aead, &block[side * key_len..][..key_len])?,
            nonce,
        })
    };
    Some([keys(0)?, keys(1)?])
}

/// RFC 8446 §7.1, without a context.
fn expand_label(hash: Hash, secret: &[u8], label: &[u8], len: usize) -> Option<Secret> {
    let mut info = (len as u16).to_be_bytes().to_vec();
    info.push((6 + label.len()) as u8);
    info.extend_from_slice(b"tls13 ");
    info.extend_from_slice(label);
    info.push(0);
    let mut out = Zeroizing::new(vec![0; len]);
    match hash {
        Hash::Sha256 if secret.len() == 32 => Hkdf::<Sha256>::from_prk(secret).ok()?.expand(&info, &mut out).ok()?,
        Hash::Sha384 if secret.len() == 48 => Hkdf::<Sha384>::from_prk(secret).ok()?.expand(&info, &mut out).ok()?,
        Hash::Sha256 | Hash::Sha384 => return None,
    }
    Some(out)
}

/// RFC 5246 §5: `P_hash`; `seed` begins with the label.
fn prf_12(hash: Hash, secret: &[u8], seed: &[u8], len: usize) -> Option<Secret> {
    let mac = |parts: &[&[u8]]| match hash {
        Hash::Sha256 => mac::<Hmac<Sha256>>(secret, parts),
        Hash::Sha384 => mac::<Hmac<Sha384>>(secret, parts),
    };
    let mut out = Zeroizing::new(Vec::with_capacity(len + 48));
    let mut chained = mac(&[seed])?;
    while out.len() < len {
        out.extend_from_slice(&mac(&[&chained, seed])?);
        chained = mac(&[&chained])?;
    }
    out.truncate(len);
    Some(out)
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Option<Secret> {
    let mut mac = <M as KeyInit>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(Zeroizing::new(mac.finalize().into_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let value = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
        digits
            .chunks(2)
            .map(|pair| value(pair[0]) << 4 | value(pair[1]))
            .collect()
    }

    #[test]
    fn labels_expand_as_in_rfc_8448() {
        // RFC 8448 §3: the server's handshake traffic secret, and its write key and IV.
        let secret = bytes("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38");
        let key = expand_label(Hash::Sha256, &secret, b"key", 16).expect("long enough");
        let iv = expand_label(Hash::Sha256, &secret, b"iv", 12).expect("long enough");
        assert_eq!(key.to_vec(), bytes("3fce516009c21727d0f2e4e86ee403bc"));
        assert_eq!(iv.to_vec(), bytes("5d313eb2671276ee13000b30"));
        assert!(expand_label(Hash::Sha384, &secret, b"key", 16).is_none());
    }
}
