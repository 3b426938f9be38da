//! One direction of a connection: puts packets in order, divides the stream into records, and opens them.
//!
//! # What is missing
//! Where bytes are missing (a packet, or what the snaplen cut) and the header of the record that lacks them is known,
//! reading goes on behind that record. Otherwise the next header is searched for, anywhere in the stream: a record
//! begins there if its tag verifies. Behind a hole the number of missing records is unknown; as many are tried as the
//! hole has room for, up to [`MAX_TRIES`].
//!
//! # Bounds
//! A record and one packet; [`HELD_BYTES`] of packets that wait for one that is missing. A direction of which
//! [`MAX_FAILED`] records in a row do not open, or whose failed attempts covered [`MAX_FAILED_BYTES`], is given up.

use twintap_wire::opening::{Places, Record, RecordFound};
use twintap_wire::seq::SeqNumber;
use zeroize::Zeroize;

use crate::hellos::{Choice, TLS_13, choice};
use crate::key_log::{Random, Secret, Secrets};
use crate::key_schedule::{Keys, keys_12, keys_13, updated_secret};
use crate::suites::{NONCE_LEN, Suite};

const HEADER_LEN: usize = 5;
/// Longest content of a record: 2^14 bytes and what encryption may add (RFC 5246 §6.2.3).
const MAX_CONTENT_LEN: usize = (1 << 14) + 2048;
/// Shortest encrypted record: a header, a tag of 8 bytes, a content's type.
const LEAST_RECORD_LEN: u32 = 14;
/// Numbers that are tried of a record behind a hole, at most.
const MAX_TRIES: u64 = 1024;
const MAX_FAILED: u32 = 64;
const MAX_FAILED_BYTES: u64 = 1 << 30;
/// Packets that wait for a missing one, and their bytes, at most.
const HELD_PACKETS: usize = 1024;
const HELD_BYTES: usize = 2 << 20;
/// Bytes that wait for the server's hello, at most.
const MAX_BUFFER_LEN: usize = 1 << 17;

mod content {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
}

/// Types of handshake messages (RFC 8446 §4).
const FINISHED: u8 = 20;
const KEY_UPDATE: u8 = 24;

/// What both directions of a connection know.
#[derive(Clone)]
pub(crate) struct Negotiation {
    pub client_random: Random,
    pub secrets: Secrets,
    pub choice: Option<Choice>,
}

impl Negotiation {
    fn suite(&self) -> Option<Suite> {
        self.choice.and_then(|choice| Suite::of(choice.version, choice.suite))
    }

    fn is_13(&self) -> Option<bool> {
        self.choice.map(|choice| choice.version == TLS_13)
    }

    /// Whether the server chose what cannot be opened.
    pub fn is_unknown_suite(&self) -> bool {
        self.choice.is_some() && self.suite().is_none()
    }
}

/// A packet's payload, as much of it as was captured.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub seq: u32,
    pub wire_len: u32,
    pub bytes: &'a [u8],
}

#[derive(Clone)]
struct HeldPiece {
    seq: u32,
    wire_len: u32,
    bytes: Box<[u8]>,
}

/// How the records that come next are protected.
#[derive(Clone)]
enum Protection {
    Plain,
    Sealed(Sealing),
}

#[derive(Clone)]
struct Sealing {
    /// None if they cannot be known.
    keys: Option<Keys>,
    /// Of TLS 1.3, from which the next keys follow.
    secret: Option<Secret>,
    /// Number of the next record.
    number: u64,
    /// Keys of TLS 1.3's handshake.
    is_handshake: bool,
}

/// Result of opening a record.
enum Opening {
    /// Type, bytes before and behind the content, and whether it is of the handshake.
    Opened(OpenedRecord),
    Failed,
    /// The server's hello must come first.
    TooEarly,
}

#[derive(Clone, Copy)]
struct OpenedRecord {
    content_type: u8,
    ahead_len: usize,
    content_len: usize,
    is_handshake: bool,
    is_plain: bool,
}

#[derive(Clone)]
pub(crate) struct Direction {
    /// 0 for the client's, 1 for the server's.
    side: usize,
    /// Sequence number of the next wanted byte.
    wanted: u32,
    /// Bytes that are not read yet; the first one's sequence number.
    buffer: Vec<u8>,
    buffer_seq: u32,
    /// Bytes of a record that cannot be opened, which are still to come.
    skip_len: u32,
    held: Vec<HeldPiece>,
    pub held_bytes: usize,
    /// What the other side acknowledged: bytes before that which were not captured will not come any more.
    acked: u32,
    is_searching: bool,
    protection: Protection,
    /// Records that may be missing before the next one.
    missing_count: u64,
    messages: Messages,
    clear_seq: u32,
    places: Places,
    failed_count: u32,
    failed_bytes: u64,
    pub has_opened: bool,
}

/// Calls back with what is found; places count from sequence number `first`.
pub(crate) struct Sink<'a> {
    pub first: u32,
    pub found: &'a mut dyn FnMut(RecordFound<'_>),
    /// Records that were not opened, at least.
    pub failed_count: u64,
}

impl Direction {
    /// A direction that begins at sequence number `seq`.
    pub fn new(side: usize, seq: u32) -> Self {
        Self {
            side,
            wanted: seq,
            buffer: Vec::new(),
            buffer_seq: seq,
            skip_len: 0,
            held: Vec::new(),
            held_bytes: 0,
            acked: seq,
            is_searching: false,
            protection: Protection::Plain,
            missing_count: 0,
            messages: Messages::default(),
            clear_seq: seq,
            places: Places::default(),
            failed_count: 0,
            failed_bytes: 0,
            has_opened: false,
        }
    }

    /// Whether so much could not be opened that the rest is not tried.
    pub fn is_given_up(&self) -> bool {
        self.failed_count >= MAX_FAILED || self.failed_bytes >= MAX_FAILED_BYTES || self.buffer.len() > MAX_BUFFER_LEN
    }

    /// Note what the other side acknowledges.
    pub fn acknowledge(&mut self, ack: u32) {
        if is_before(self.acked, ack) {
            self.acked = ack;
        }
    }

    /// Read a packet, which may be empty, and those that waited for it. Arguments: `room`, for bytes of packets that
    /// must wait.
    pub fn take(&mut self, shared: &mut Negotiation, piece: &Piece<'_>, room: usize, sink: &mut Sink<'_>) {
        while !self.held.is_empty() && is_before(self.wanted, self.acked) {
            let next = self.held.iter().map(|held| held.seq).fold(self.held[0].seq, earlier);
            if is_before(self.acked, next) {
                break;
            }
            self.pass(next.wrapping_sub(self.wanted), sink);
            self.take_held(shared, sink);
        }
        if piece.wire_len == 0 {
            return;
        }
        if is_before(self.wanted, piece.seq) && self.hold(piece, room) {
            return;
        }
        while is_before(self.wanted, piece.seq) {
            // What is missing will not come any more.
            let next = self.held.iter().map(|held| held.seq).fold(piece.seq, earlier);
            self.pass(next.wrapping_sub(self.wanted), sink);
            self.take_held(shared, sink);
        }
        self.read(shared, piece, sink);
        self.take_held(shared, sink);
    }

    fn hold(&mut self, piece: &Piece<'_>, room: usize) -> bool {
        let len = piece.bytes.len();
        let fits = self.held.len() < HELD_PACKETS && self.held_bytes + len <= HELD_BYTES && len <= room;
        if fits {
            self.held_bytes += len;
            self.held.push(HeldPiece {
                seq: piece.seq,
                wire_len: piece.wire_len,
                bytes: piece.bytes.into(),
            });
        }
        fits
    }

    /// Read the packets that need wait no longer.
    fn take_held(&mut self, shared: &mut Negotiation, sink: &mut Sink<'_>) {
        while let Some(place) = self.held.iter().position(|held| !is_before(self.wanted, held.seq)) {
            let held = self.held.swap_remove(place);
            self.held_bytes -= held.bytes.len();
            let piece = Piece {
                seq: held.seq,
                wire_len: held.wire_len,
                bytes: &held.bytes,
            };
            self.read(shared, &piece, sink);
        }
    }

    /// Read a packet that begins no later than the next wanted byte.
    fn read(&mut self, shared: &mut Negotiation, piece: &Piece<'_>, sink: &mut Sink<'_>) {
        let known = self.wanted.wrapping_sub(piece.seq);
        if known >= piece.wire_len {
            return;
        }
        let fresh = piece.bytes.get(known as usize..).unwrap_or(&[]);
        let missing = piece.wire_len - known - fresh.len() as u32;
        let skipped = (fresh.len() as u32).min(self.skip_len);
        self.skip_len -= skipped;
        self.wanted = self.wanted.wrapping_add(fresh.len() as u32);
        if self.buffer.is_empty() {
            self.buffer_seq = self.wanted.wrapping_sub(fresh.len() as u32 - skipped);
        }
        self.buffer.extend_from_slice(&fresh[skipped as usize..]);
        self.read_records(shared, sink);
        if missing > 0 {
            self.pass(missing, sink);
        }
    }

    /// Go on behind `missing` bytes that were not captured.
    fn pass(&mut self, missing: u32, sink: &mut Sink<'_>) {
        self.wanted = self.wanted.wrapping_add(missing);
        let skipped = missing.min(self.skip_len);
        self.skip_len -= skipped;
        let missing = missing - skipped;
        if missing == 0 {
            return;
        }
        let record_len = self.buffer.first_chunk::<HEADER_LEN>().and_then(record_len);
        let rest = record_len.and_then(|len| (len as u32).checked_sub(self.buffer.len() as u32));
        sink.failed_count += 1;
        let is_sealed_record = self.buffer.first() == Some(&content::APPLICATION_DATA) || self.is_sealed_12();
        match rest.filter(|_| !self.is_searching) {
            Some(rest) if rest >= missing => {
                self.skip_len = rest - missing;
                if let (Protection::Sealed(sealing), true) = (&mut self.protection, is_sealed_record) {
                    sealing.number = sealing.number.wrapping_add(1);
                }
            }
            _ => {
                self.is_searching = true;
                self.missing_count += u64::from(missing / LEAST_RECORD_LEN) + 2;
            }
        }
        self.clear_seq = self
            .clear_seq
            .wrapping_add(self.buffer.len() as u32 + missing + self.skip_len);
        self.buffer.clear();
        self.messages = Messages::default();
        (sink.found)(RecordFound::Missed);
    }

    fn is_sealed_12(&self) -> bool {
        matches!(&self.protection, Protection::Sealed(sealing) if sealing.secret.is_none())
    }

    /// Read the records that are whole.
    fn read_records(&mut self, shared: &mut Negotiation, sink: &mut Sink<'_>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        while !self.is_given_up() {
            if self.is_searching {
                let found = memchr::memmem::find(&buffer[at..], &[content::APPLICATION_DATA, 3, 3]);
                let next = found.map_or(buffer.len().saturating_sub(HEADER_LEN - 1).max(at), |found| at + found);
                self.clear_seq = self.clear_seq.wrapping_add((next - at) as u32);
                at = next;
                if found.is_none() {
                    break;
                }
            }
            let Some(header) = buffer[at..].first_chunk::<HEADER_LEN>() else {
                break;
            };
            let Some(len) = record_len(header) else {
                self.lose_track(sink);
                self.clear_seq = self.clear_seq.wrapping_add(1);
                at += 1;
                continue;
            };
            if buffer.len() - at < len {
                break;
            }
            let record = &mut buffer[at..at + len];
            match self.open(shared, record) {
                Opening::TooEarly => break,
                Opening::Opened(opened) => self.note(record, at, opened, sink),
                Opening::Failed if self.is_searching => {
                    self.clear_seq = self.clear_seq.wrapping_add(1);
                    at += 1;
                    continue;
                }
                Opening::Failed => {
                    self.failed_count += 1;
                    sink.failed_count += 1;
                    let at = self.offset(at, sink.first);
                    (sink.found)(RecordFound::Sealed {
                        at,
                        bytes: &record[..HEADER_LEN],
                    });
                    (sink.found)(RecordFound::Missed);
                    self.missing_count += 1;
                    self.clear_seq = self.clear_seq.wrapping_add(len as u32);
                }
            }
            at += len;
        }
        buffer[..at].zeroize();
        buffer.drain(..at);
        self.buffer_seq = self.buffer_seq.wrapping_add(at as u32);
        self.buffer = buffer;
    }

    /// No record begins where one should.
    fn lose_track(&mut self, sink: &mut Sink<'_>) {
        if !self.is_searching {
            self.is_searching = true;
            self.missing_count += 1;
            sink.failed_count += 1;
            (sink.found)(RecordFound::Missed);
        }
    }

    /// Offset of a byte of the buffer from sequence number `first`.
    fn offset(&self, at: usize, first: u32) -> i32 {
        self.buffer_seq.wrapping_add(at as u32).wrapping_sub(first) as i32
    }

    fn note(&mut self, record: &[u8], at: usize, opened: OpenedRecord, sink: &mut Sink<'_>) {
        let is_application = opened.content_type == content::APPLICATION_DATA;
        let start = opened.ahead_len;
        let content = if is_application {
            &record[start..start + opened.content_len]
        } else {
            &[]
        };
        if !content.is_empty() {
            let wire_seq = self.buffer_seq.wrapping_add((at + start) as u32);
            self.places.push(self.clear_seq, wire_seq);
        }
        self.has_opened |= is_application;
        (self.is_searching, self.failed_count) = (false, 0);
        let shown_len = if opened.is_plain { record.len() } else { HEADER_LEN };
        (sink.found)(RecordFound::Record(Record {
            at: self.offset(at, sink.first),
            wire_len: record.len() as u32,
            shown: &record[..shown_len],
            content_type: opened.content_type,
            is_handshake: opened.is_handshake,
            content,
            content_at: start as u32,
            clear_seq: self.clear_seq,
            places: &self.places,
        }));
        self.clear_seq = self.clear_seq.wrapping_add(content.len() as u32);
    }

    /// Open a whole record in place.
    fn open(&mut self, shared: &mut Negotiation, record: &mut [u8]) -> Opening {
        let kind = record[0];
        if matches!(self.protection, Protection::Plain)
            && let Some(opening) = self.read_plain(shared, record)
        {
            return opening;
        }
        let is_13 = shared.is_13() == Some(true);
        let is_plain = is_13 && kind != content::APPLICATION_DATA;
        if is_plain && !self.is_searching {
            return Opening::Opened(OpenedRecord::plain(record));
        }
        let Protection::Sealed(sealing) = &mut self.protection else {
            return Opening::Failed;
        };
        let tries = self.missing_count.min(MAX_TRIES);
        let opened = if is_13 {
            sealing.open_13(shared, self.side, record, tries)
        } else if kind == content::CHANGE_CIPHER_SPEC {
            sealing.keys = None; // a new handshake within the connection, whose hellos are encrypted
            return Opening::Opened(OpenedRecord::plain(record));
        } else {
            sealing.open_12(shared, record, tries)
        };
        let Some(opened) = opened else {
            self.failed_bytes += record.len() as u64 * (tries + 1);
            return Opening::Failed;
        };
        self.missing_count = 0;
        if opened.content_type == content::HANDSHAKE && is_13 {
            let message = &record[opened.ahead_len..opened.ahead_len + opened.content_len];
            match self.messages.last_type(message) {
                Some(FINISHED) if sealing.is_handshake => sealing.begin_application(shared, self.side),
                Some(KEY_UPDATE) if !sealing.is_handshake => sealing.update(shared),
                _ => {}
            }
        }
        Opening::Opened(opened)
    }

    /// Read a record before encryption begins; none if it is encrypted.
    fn read_plain(&mut self, shared: &mut Negotiation, record: &[u8]) -> Option<Opening> {
        let plain = Some(Opening::Opened(OpenedRecord::plain(record)));
        match (record[0], shared.is_13()) {
            (content::HANDSHAKE, _) => {
                if self.side == 1 && shared.choice.is_none() {
                    shared.choice = choice(&record[HEADER_LEN..]);
                    if shared.is_13() == Some(true) {
                        self.protection = Protection::Sealed(Sealing::handshake(shared, self.side));
                    }
                }
                plain
            }
            (content::ALERT, _) => plain,
            // Without meaning in TLS 1.3, where it may precede the server's choice (RFC 8446 §D.4).
            (content::CHANGE_CIPHER_SPEC, Some(true) | None) => plain,
            (content::CHANGE_CIPHER_SPEC, Some(false)) => {
                self.protection = Protection::Sealed(Sealing::of_12(shared, self.side));
                plain
            }
            (_, Some(true)) => {
                self.protection = Protection::Sealed(Sealing::handshake(shared, self.side));
                None
            }
            (_, None) => Some(Opening::TooEarly),
            (_, Some(false)) => {
                // The change of ciphers is missing.
                self.protection = Protection::Sealed(Sealing::of_12(shared, self.side));
                self.missing_count += 1;
                None
            }
        }
    }
}

impl OpenedRecord {
    fn plain(record: &[u8]) -> Self {
        Self {
            content_type: record[0],
            ahead_len: HEADER_LEN,
            content_len: record.len() - HEADER_LEN,
            is_handshake: record[0] != content::ALERT,
            is_plain: true,
        }
    }
}

impl Sealing {
    /// TLS 1.3, from a hello on.
    fn handshake(shared: &Negotiation, side: usize) -> Self {
        let secret = shared.secrets.handshake[side].clone();
        Self {
            keys: keys_of(shared, secret.as_ref()),
            secret: Some(secret.unwrap_or_default()),
            number: 0,
            is_handshake: true,
        }
    }

    /// TLS 1.2, from the change of ciphers on.
    fn of_12(shared: &Negotiation, side: usize) -> Self {
        let keys = || {
            let (suite, master) = (shared.suite()?, shared.secrets.master.as_ref()?);
            let both = keys_12(suite, master, &shared.client_random, shared.choice.as_ref()?)?;
            both.into_iter().nth(side)
        };
        Self {
            keys: keys(),
            secret: None,
            number: 0,
            is_handshake: false,
        }
    }

    /// TLS 1.3, behind a side's Finished.
    fn application(shared: &Negotiation, side: usize) -> Self {
        let secret = shared.secrets.traffic[side].clone();
        Self {
            keys: keys_of(shared, secret.as_ref()),
            secret: Some(secret.unwrap_or_default()),
            number: 0,
            is_handshake: false,
        }
    }

    fn begin_application(&mut self, shared: &Negotiation, side: usize) {
        *self = Self::application(shared, side);
    }

    /// The keys after the current ones.
    fn next_sealing(&self, shared: &Negotiation) -> Option<Self> {
        let secret = updated_secret(shared.suite()?, self.secret.as_ref()?)?;
        Some(Self {
            keys: keys_of(shared, Some(&secret)),
            secret: Some(secret),
            number: 0,
            is_handshake: false,
        })
    }

    fn update(&mut self, shared: &Negotiation) {
        match self.next_sealing(shared) {
            Some(next) => *self = next,
            None => self.keys = None,
        }
    }

    /// Open a record of TLS 1.3 with the current keys, or the ones after them if what changes the keys was missed.
    fn open_13(&mut self, shared: &Negotiation, side: usize, record: &mut [u8], tries: u64) -> Option<OpenedRecord> {
        if let Some(opened) = self.open_numbered_13(shared, record, tries) {
            return Some(opened);
        }
        let next = if self.is_handshake {
            Some(Self::application(shared, side))
        } else if tries > 0 {
            self.next_sealing(shared)
        } else {
            None
        };
        let mut next = next?;
        let opened = next.open_numbered_13(shared, record, tries)?;
        *self = next;
        Some(opened)
    }

    fn open_numbered_13(&mut self, shared: &Negotiation, record: &mut [u8], tries: u64) -> Option<OpenedRecord> {
        let (keys, tag_len) = (self.keys.as_ref()?, shared.suite()?.aead.tag_len());
        let (header, body) = record.split_at_mut(HEADER_LEN);
        let (sealed, tag) = body.split_at_mut(body.len().checked_sub(tag_len)?);
        let number = try_numbers(keys, self.number, tries, sealed, |number, sealed| {
            keys.cipher
                .open(&record_nonce(&keys.nonce, number), header, sealed, tag)
        })?;
        self.number = number.wrapping_add(1);
        let last = sealed.iter().rposition(|&byte| byte != 0)?;
        Some(OpenedRecord {
            content_type: sealed[last],
            ahead_len: HEADER_LEN,
            content_len: last,
            is_handshake: self.is_handshake,
            is_plain: false,
        })
    }

    fn open_12(&mut self, shared: &Negotiation, record: &mut [u8], tries: u64) -> Option<OpenedRecord> {
        let (keys, aead) = (self.keys.as_ref()?, shared.suite()?.aead);
        let (header, body) = record.split_at_mut(HEADER_LEN);
        let (explicit, body) = body.split_at_mut_checked(aead.explicit_len_12())?;
        let (sealed, tag) = body.split_at_mut(body.len().checked_sub(aead.tag_len())?);
        let content_len = sealed.len();
        let number = try_numbers(keys, self.number, tries, sealed, |number, sealed| {
            let mut associated = number.to_be_bytes().to_vec();
            associated.extend_from_slice(&header[..3]);
            associated.extend_from_slice(&(content_len as u16).to_be_bytes());
            let mut nonce = *keys.nonce;
            if explicit.is_empty() {
                nonce = record_nonce(&nonce, number);
            } else {
                nonce[NONCE_LEN - explicit.len()..].copy_from_slice(explicit);
            }
            keys.cipher.open(&nonce, &associated, sealed, tag)
        })?;
        self.number = number.wrapping_add(1);
        Some(OpenedRecord {
            content_type: header[0],
            ahead_len: HEADER_LEN + explicit.len(),
            content_len,
            is_handshake: header[0] == content::HANDSHAKE,
            is_plain: false,
        })
    }
}

fn keys_of(shared: &Negotiation, secret: Option<&Secret>) -> Option<Keys> {
    keys_13(shared.suite()?, secret?)
}

/// The number, of `tries` and one more from `first` on, under which `open` opens a record. A failed attempt may change
/// the bytes.
fn try_numbers(
    keys: &Keys,
    first: u64,
    tries: u64,
    sealed: &mut [u8],
    open: impl Fn(u64, &mut [u8]) -> bool,
) -> Option<u64> {
    let kept = keys.cipher.changes_failed().then(|| sealed.to_vec());
    for number in (0..=tries).map(|offset| first.wrapping_add(offset)) {
        if open(number, sealed) {
            return Some(number);
        }
        if let Some(kept) = &kept {
            sealed.copy_from_slice(kept);
        }
    }
    None
}

/// RFC 8446 §5.3.
fn record_nonce(nonce: &[u8; NONCE_LEN], number: u64) -> [u8; NONCE_LEN] {
    let mut out = *nonce;
    for (byte, more) in out[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
        *byte ^= more;
    }
    out
}

/// Length of the record with this header; none if there can be none.
fn record_len(header: &[u8; HEADER_LEN]) -> Option<usize> {
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let is_header = (20..=23).contains(&header[0]) && header[1] == 3 && header[2] <= 4;
    (is_header && (1..=MAX_CONTENT_LEN).contains(&len)).then_some(HEADER_LEN + len)
}

/// Divides a direction's handshake records into messages, which may be cut by records anywhere.
#[derive(Clone, Default)]
struct Messages {
    header: Vec<u8>,
    /// Bytes of the current message that are still to come.
    rest_len: usize,
    kind: u8,
}

impl Messages {
    /// The type of the message that ends with these bytes, if one does.
    fn last_type(&mut self, mut bytes: &[u8]) -> Option<u8> {
        loop {
            if self.rest_len > 0 {
                let len = self.rest_len.min(bytes.len());
                (self.rest_len, bytes) = (self.rest_len - len, &bytes[len..]);
                if bytes.is_empty() {
                    return (self.rest_len == 0).then_some(self.kind);
                }
            }
            let (&byte, rest) = bytes.split_first()?;
            bytes = rest;
            self.header.push(byte);
            if let [kind, long, high, low] = self.header[..] {
                (self.kind, self.rest_len) = (kind, u32::from_be_bytes([0, long, high, low]) as usize);
                self.header.clear();
                if self.rest_len == 0 && bytes.is_empty() {
                    return Some(kind);
                }
            }
        }
    }
}

fn is_before(one: u32, other: u32) -> bool {
    SeqNumber(one).is_before(SeqNumber(other))
}

fn earlier(one: u32, other: u32) -> u32 {
    if is_before(one, other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_known_however_records_cut_them() {
        let bytes = [&[8, 0, 0, 2, 9, 9, 14, 0, 0, 0][..], &[20, 0, 0, 3, 1, 2, 3]].concat();
        for cut in 0..bytes.len() {
            let mut messages = Messages::default();
            messages.last_type(&bytes[..cut]);
            assert_eq!(messages.last_type(&bytes[cut..]), Some(FINISHED), "{cut}");
            let mut messages = Messages::default();
            let expected = match cut {
                6 => Some(8),
                10 => Some(14),
                _ => None,
            };
            assert_eq!(messages.last_type(&bytes[..cut]), expected, "{cut}");
        }
    }

    #[test]
    fn a_nonce_differs_for_each_record() {
        assert_eq!(record_nonce(&[0xff; 12], 1)[8..], [0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(record_nonce(&[0; 12], u64::MAX)[..5], [0, 0, 0, 0, 0xff]);
    }
}
