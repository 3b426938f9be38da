//! Excerpts: the parts of payloads that the decoder keeps until matching has determined their places in streams.
//!
//! A protocol's module keeps an excerpt for each message that begins in a payload ([`Keeper`]), with secrets
//! overwritten; after matching it reads the message from the excerpt. What it does not keep cannot be read later, and
//! what it keeps may be written to disk.
//!
//! An excerpt stands for `stream_len` bytes of a stream. Its first `solid_len` bytes are contiguous in the stream;
//! after them, some bytes may be left out.

use twintap_secrets::SecretRules;

use crate::head::Head;
use crate::http1::{HeaderMarks, IdHeaders, KeptLines};
use crate::registry::{self, REGISTRY};

/// Bytes of excerpts in one batch; excerpts beyond that are counted and left out.
const BATCH_LIMIT: usize = 64 << 20;

/// Stands for the protocol of an excerpt that is not read.
const NO_PROTOCOL: u8 = u8::MAX;

/// Calls `$then!` with the name and type of every numeric column of an excerpt.
#[macro_export]
macro_rules! with_excerpt_columns {
    ($then:ident) => {
        $then! { frame: u32, payload_offset: i32, protocol: u8, stream_len: u32, solid_len: u32, }
    };
}

macro_rules! define_excerpts {
    ($($name:ident: $kind:ty,)*) => {
        /// Excerpts by column; all of one length, the bytes one longer (offsets). `payload_offset` is where an excerpt
        /// begins in the payload of packet `frame`, below 0 if it begins in an earlier packet; `protocol` is a place in
        /// the registry.
        #[derive(Clone, Debug, Default)]
        pub struct ExcerptColumns {
            $(pub $name: Vec<$kind>,)*
            pub bytes: Strings,
        }

        impl ExcerptColumns {
            /// Remove all rows but keep their memory.
            pub fn clear(&mut self) {
                $(self.$name.clear();)*
                self.bytes.clear();
            }

            /// Keep the rows before `at`; the others are returned.
            pub fn split_off(&mut self, at: usize) -> Self {
                Self {
                    $($name: self.$name.split_off(at),)*
                    bytes: self.bytes.split_off(at),
                }
            }
        }
    };
}

with_excerpt_columns!(define_excerpts);

/// One excerpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt<'a> {
    pub bytes: &'a [u8],
    pub stream_len: u32,
}

/// Called with each message that an excerpt shows, and its offset from the excerpt's first byte.
pub type Emit<'a> = &'a mut dyn FnMut(u32, &Head<'_>);

/// Reads the messages of an excerpt.
pub type Read = fn(&Excerpt<'_>, Emit<'_>);

/// Keeps what a protocol needs of a payload. Returns whether the payload is a message of the protocol, so that it need
/// not be compared with patterns of first bytes.
pub type Keep = fn(&Payload<'_>, &mut Keeper<'_>) -> bool;

/// A packet's payload as far as it was captured, and how long it was on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    pub bytes: &'a [u8],
    pub wire_len: usize,
}

/// What the decoder is notified of while payloads are read.
pub trait Notes {
    /// A head with its secrets overwritten, the marks of its headers, and whether its target was captured to its end.
    fn head(&mut self, head: &Head<'_>, marks: u64, is_target_whole: bool);
    /// A head continues after the captured bytes.
    fn head_cut(&mut self);
    /// A message was left out because the batch is full.
    fn left_out(&mut self);
}

/// Where excerpts of one packet go, and what a module needs to make them.
pub struct Keeper<'a> {
    pub excerpts: &'a mut ExcerptColumns,
    pub frame: u32,
    /// Registry place of the protocol whose module keeps excerpts.
    pub protocol: u8,
    pub ids: &'a IdHeaders,
    pub marks: &'a HeaderMarks,
    pub secrets: &'a SecretRules,
    pub notes: &'a mut dyn Notes,
    /// Buffer for the lines of a head.
    pub lines: &'a mut KeptLines,
}

impl Keeper<'_> {
    /// Whether the batch has room for another excerpt.
    pub fn has_room(&self) -> bool {
        self.excerpts.bytes.bytes.len() <= BATCH_LIMIT
    }

    /// Keep the first `len` bytes of a message as an excerpt of `stream_len` bytes.
    ///
    /// Arguments: `message`, the payload from the message's first byte on, which is at `at`.
    pub fn keep_start(&mut self, message: &[u8], at: usize, len: usize, stream_len: u32) {
        self.excerpts.bytes.bytes.extend_from_slice(&message[..len]);
        self.push_kept(at, len, stream_len);
    }

    /// Make the bytes that were appended to the column an excerpt, as [`Self::keep_start`] does; the first `solid_len`
    /// of them are contiguous.
    pub(crate) fn push_kept(&mut self, at: usize, solid_len: usize, stream_len: u32) {
        self.excerpts
            .push_numbers(self.frame, at as i32, self.protocol, stream_len, solid_len as u32);
    }
}

impl ExcerptColumns {
    /// Append an excerpt that begins at offset `at` of the payload of packet `frame` with the `solid_len` bytes of a
    /// frame's header; the other bytes say in the protocol's own way what its body says.
    pub fn push_frame(&mut self, frame: u32, at: i32, protocol: u8, bytes: &[u8], solid_len: usize) {
        self.bytes.bytes.extend_from_slice(bytes);
        self.push_numbers(frame, at, protocol, solid_len as u32, solid_len as u32);
    }

    /// The same of a header and what was read, one behind the other.
    pub fn push_parts(&mut self, frame: u32, at: i32, protocol: u8, [header, said]: [&[u8]; 2]) {
        self.bytes.bytes.extend_from_slice(header);
        self.push_frame(frame, at, protocol, said, header.len());
    }

    /// Append an excerpt of a message that has another with the packet where it begins, which stands for its bytes of
    /// the stream; so this one stands for none.
    pub fn push_again(&mut self, frame: u32, at: i32, protocol: u8, bytes: &[u8]) {
        self.bytes.bytes.extend_from_slice(bytes);
        self.push_numbers(frame, at, protocol, 0, 0);
    }

    /// Append what is noted of `stream_len` bytes of the stream, none of which is kept.
    pub fn push_note(&mut self, frame: u32, at: i32, protocol: u8, bytes: &[u8], stream_len: u32) {
        self.bytes.bytes.extend_from_slice(bytes);
        self.push_numbers(frame, at, protocol, stream_len, 0);
    }

    /// Move the excerpts from row `first` on, by what `place` makes of their offsets; where that is none, the excerpt
    /// belongs to no protocol any more.
    pub fn move_places(&mut self, first: usize, place: impl Fn(i32) -> Option<i32>) {
        let own = self.payload_offset[first..].iter_mut().zip(&mut self.protocol[first..]);
        for (offset, protocol) in own {
            match place(*offset) {
                Some(moved) => *offset = moved,
                None => *protocol = NO_PROTOCOL,
            }
        }
    }

    /// Append the numbers of an excerpt whose bytes were appended before.
    fn push_numbers(&mut self, frame: u32, payload_offset: i32, protocol: u8, stream_len: u32, solid_len: u32) {
        self.frame.push(frame);
        self.payload_offset.push(payload_offset);
        self.protocol.push(protocol);
        self.stream_len.push(stream_len);
        self.solid_len.push(solid_len);
        self.bytes.offsets.push(self.bytes.bytes.len() as i64);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Row `at`.
    pub fn row(&self, at: usize) -> Excerpt<'_> {
        Excerpt {
            bytes: self.bytes.row(at),
            stream_len: self.stream_len[at],
        }
    }
}

/// A column of strings: row n is `bytes[offsets[n]..offsets[n + 1]]` (Arrow's large layout).
#[derive(Clone, Debug)]
pub struct Strings {
    pub offsets: Vec<i64>,
    pub bytes: Vec<u8>,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            offsets: vec![0],
            bytes: Vec::new(),
        }
    }
}

impl Strings {
    /// No rows, with room for so many.
    pub fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            offsets,
            bytes: Vec::new(),
        }
    }

    /// Add a row.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets.push(self.bytes.len() as i64);
    }

    /// Remove all rows but keep their memory.
    pub fn clear(&mut self) {
        self.offsets.truncate(1);
        self.bytes.clear();
    }

    /// Keep the rows before `at`; the others are returned.
    pub fn split_off(&mut self, at: usize) -> Self {
        let start = self.offsets[at];
        let bytes = self.bytes.split_off(start as usize);
        let offsets = self.offsets[at..].iter().map(|offset| offset - start).collect();
        self.offsets.truncate(at + 1);
        Self { offsets, bytes }
    }

    /// Row `at`.
    pub fn row(&self, at: usize) -> &[u8] {
        &self.bytes[self.offsets[at] as usize..self.offsets[at + 1] as usize]
    }
}

/// Keep the messages of a payload and read them back immediately; only for tests and fuzzers, which check both steps.
///
/// Arguments: `visit` is called with the offset of each message in the payload.
pub fn read_kept(payload: &Payload<'_>, ids: &IdHeaders, visit: &mut dyn FnMut(i64, &Head<'_>)) {
    let (mut excerpts, mut lines) = (ExcerptColumns::default(), KeptLines::default());
    for (place, protocol) in registry::places_of_payload(payload.bytes) {
        let mut keeper = Keeper {
            excerpts: &mut excerpts,
            frame: 1,
            protocol: place,
            ids,
            marks: &HeaderMarks::default(),
            secrets: &SecretRules::nothing(),
            notes: &mut NoNotes,
            lines: &mut lines,
        };
        (protocol.keep)(payload, &mut keeper);
    }
    for row in 0..excerpts.len() {
        let start = i64::from(excerpts.payload_offset[row]);
        let protocol = REGISTRY[usize::from(excerpts.protocol[row])];
        (protocol.read)(&excerpts.row(row), &mut |at, head| visit(start + i64::from(at), head));
    }
}

struct NoNotes;

impl Notes for NoNotes {
    fn head(&mut self, _: &Head<'_>, _: u64, _: bool) {}
    fn head_cut(&mut self) {}
    fn left_out(&mut self) {}
}
