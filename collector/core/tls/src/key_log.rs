//! Secrets of connections, by the random number of their client's hello, from key logs (`SSLKEYLOGFILE`).
//!
//! A line is `LABEL RANDOM SECRET`, the last two in hexadecimal digits; lines that are empty or begin with `#` say
//! nothing. Labels other than those below are of secrets that open no records of TLS over TCP.
//!
//! Source: draft-ietf-tls-keylogfile (the format); draft-ietf-opsawg-pcapng §4.7 (the same in captures).

use std::collections::HashMap;

use foldhash::fast::RandomState;
use zeroize::Zeroizing;

/// Length of a hello's random number.
pub const RANDOM_LEN: usize = 32;
/// Shortest and longest secret: of TLS 1.2 there are 48 bytes, of TLS 1.3 as many as the hash has.
const SECRET_LENS: std::ops::RangeInclusive<usize> = 32..=48;
/// Connections whose secrets are kept, at most.
const MAX_CONNECTIONS: usize = 1 << 20;
/// Longest line that is read.
const MAX_LINE_LEN: usize = 512;

pub type Random = [u8; RANDOM_LEN];
/// A secret, overwritten when it is dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// Secrets of one connection.
#[derive(Clone, Default)]
pub struct Secrets {
    /// TLS 1.2.
    pub master: Option<Secret>,
    /// TLS 1.3: of the client and of the server.
    pub handshake: [Option<Secret>; 2],
    pub traffic: [Option<Secret>; 2],
}

/// What was read of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinesRead {
    /// Secrets that can open records.
    pub secrets_count: u64,
    /// Lines that are none of a key log, and secrets beyond what is kept.
    pub unread_count: u64,
}

/// All secrets that are known.
#[derive(Clone, Default)]
pub struct KeyLog {
    by_random: HashMap<Random, Secrets, RandomState>,
}

/// What a line says.
enum Line {
    Nothing,
    Secret(Random, Place, Secret),
    Unread,
}

/// Which secret of a connection a label names.
#[derive(Clone, Copy)]
enum Place {
    Master,
    Handshake(usize),
    Traffic(usize),
}

impl KeyLog {
    /// Add the secrets in a text.
    pub fn add(&mut self, text: &[u8]) -> LinesRead {
        let mut read = LinesRead::default();
        for line in text.split(|&byte| byte == b'\n') {
            match parse_line(line) {
                Line::Nothing => {}
                Line::Unread => read.unread_count += 1,
                Line::Secret(random, place, secret) => {
                    let is_kept = self.put(random, place, secret);
                    read.secrets_count += u64::from(is_kept);
                    read.unread_count += u64::from(!is_kept);
                }
            }
        }
        read
    }

    /// The secrets of the connection whose client's hello has this random number.
    pub fn of(&self, random: &Random) -> Option<&Secrets> {
        self.by_random.get(random)
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.by_random.len()
    }

    /// Whether no secret is known.
    pub fn is_empty(&self) -> bool {
        self.by_random.is_empty()
    }

    /// Keep a secret; false if too many are kept.
    fn put(&mut self, random: Random, place: Place, secret: Secret) -> bool {
        if self.by_random.len() >= MAX_CONNECTIONS && !self.by_random.contains_key(&random) {
            return false;
        }
        let own = self.by_random.entry(random).or_default();
        let slot = match place {
            Place::Master => &mut own.master,
            Place::Handshake(side) => &mut own.handshake[side],
            Place::Traffic(side) => &mut own.traffic[side],
        };
        *slot = Some(secret);
        true
    }
}

fn parse_line(line: &[u8]) -> Line {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Line::Nothing;
    }
    if line.len() > MAX_LINE_LEN {
        return Line::Unread;
    }
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let (Some(label), Some(random), Some(secret), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Line::Unread;
    };
    let place = match label {
        b"CLIENT_RANDOM" => Place::Master,
        b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Place::Handshake(0),
        b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => Place::Handshake(1),
        b"CLIENT_TRAFFIC_SECRET_0" => Place::Traffic(0),
        b"SERVER_TRAFFIC_SECRET_0" => Place::Traffic(1),
        _ if label
            .iter()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_') =>
        {
            return Line::Nothing;
        }
        _ => return Line::Unread,
    };
    let random = bytes_of(random).and_then(|bytes| Random::try_from(bytes.as_slice()).ok());
    let secret = bytes_of(secret).filter(|secret| SECRET_LENS.contains(&secret.len()));
    match (random, secret) {
        (Some(random), Some(secret)) => Line::Secret(random, place, secret),
        _ => Line::Unread,
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(digits: &[u8]) -> Option<Secret> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        bytes.push(value(pair[0])? << 4 | value(pair[1])?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, random_len: usize, secret_len: usize) -> String {
        format!("{label} {} {}", "ab".repeat(random_len), "5C".repeat(secret_len))
    }

    #[test]
    fn lines_are_secrets_remarks_or_unread() {
        let cases = [
            (line("CLIENT_RANDOM", 32, 48), 1, 0),
            (line("CLIENT_HANDSHAKE_TRAFFIC_SECRET", 32, 32), 1, 0),
            (line("SERVER_TRAFFIC_SECRET_0", 32, 48) + "\r", 1, 0),
            (line("EXPORTER_SECRET", 32, 32), 0, 0),
            (line("# CLIENT_RANDOM", 32, 48), 0, 0),
            (String::new(), 0, 0),
            (line("CLIENT_RANDOM", 31, 48), 0, 1),
            (line("CLIENT_RANDOM", 32, 20), 0, 1),
            (line("CLIENT_RANDOM", 32, 48) + "0", 0, 1),
            (line("CLIENT_RANDOM", 32, 48) + " more", 0, 1),
            ("CLIENT_RANDOM zz zz".to_owned(), 0, 1),
            ("-----BEGIN PRIVATE KEY-----".to_owned(), 0, 1),
            ("x".repeat(2 * MAX_LINE_LEN), 0, 1),
        ];
        for (text, secrets_count, unread_count) in cases {
            let mut log = KeyLog::default();
            let read = log.add(text.as_bytes());
            assert_eq!(
                read,
                LinesRead {
                    secrets_count,
                    unread_count
                },
                "{text}"
            );
            assert_eq!(log.len() as u64, secrets_count);
        }
    }

    #[test]
    fn secrets_of_one_connection_are_together() {
        let text = [
            line("CLIENT_TRAFFIC_SECRET_0", 32, 32),
            line("SERVER_HANDSHAKE_TRAFFIC_SECRET", 32, 32),
        ]
        .join("\n");
        let mut log = KeyLog::default();
        assert_eq!(log.add(text.as_bytes()).secrets_count, 2);
        let own = log.of(&[0xab; 32]).expect("known");
        assert!(own.master.is_none() && own.traffic[0].is_some() && own.handshake[1].is_some());
        assert!(own.traffic[1].is_none() && log.of(&[0; 32]).is_none());
        assert_eq!(own.traffic[0].as_deref(), Some(&vec![0x5c; 32]));
    }
}
