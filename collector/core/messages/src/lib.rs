//! Reads messages from the excerpts that decoding kept, once matching has given these their places in streams.
//!
//! Input: excerpts of all packets of a partition, and of each packet its connection, direction and place in the stream.
//! Output: a row for each message at each capture point that shows it, in the order of the excerpts ([`read()`]); and what
//! each connection speaks ([`recognition`]).
//!
//! The registry of `twintap_protocols` knows who kept an excerpt; that protocol reads it.
#![forbid(unsafe_code)]

pub mod columns;
pub mod recognition;

use columns::HeadColumns;
use twintap_protocols::excerpt::Excerpt;
use twintap_protocols::registry::REGISTRY;

/// Excerpts by column; bytes of row n are `bytes[offsets[n]..offsets[n + 1]]`.
#[derive(Clone, Copy, Debug)]
pub struct Excerpts<'a> {
    pub payload_offset: &'a [i32],
    pub protocol: &'a [u8],
    pub stream_len: &'a [u32],
    pub solid_len: &'a [u32],
    pub offsets: &'a [i64],
    pub bytes: &'a [u8],
}

impl<'a> Excerpts<'a> {
    /// Whether all columns have one length and offsets lead into the bytes.
    pub fn is_consistent(&self) -> bool {
        let count = self.protocol.len();
        let leads_inside = |end: &i64| usize::try_from(*end).is_ok_and(|end| end <= self.bytes.len());
        self.payload_offset.len() == count
            && self.stream_len.len() == count
            && self.solid_len.len() == count
            && self.offsets.len() == count + 1
            && self.offsets.is_sorted()
            && self.offsets.first().is_some_and(|first| *first >= 0)
            && self.offsets.last().is_some_and(leads_inside)
    }

    /// The bytes of a row that follow each other as in the stream.
    fn solid_bytes(&self, at: usize) -> &'a [u8] {
        let bytes = self.row(at).bytes;
        &bytes[..bytes.len().min(self.solid_len[at] as usize)]
    }

    fn row(&self, at: usize) -> Excerpt<'a> {
        Excerpt {
            bytes: &self.bytes[self.offsets[at] as usize..self.offsets[at + 1] as usize],
            stream_len: self.stream_len[at],
        }
    }
}

/// Where packets of excerpts are in streams: of each the row of the excerpt, the packet's connection, who sent it, and
/// where in the stream its payload begins.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub excerpt_row: &'a [u32],
    pub connection_id: &'a [i64],
    pub from_client: &'a [bool],
    pub stream_offset: &'a [i64],
}

impl Places<'_> {
    /// Whether all columns have one length, and rows are among `excerpts_count`.
    pub fn is_consistent(&self, excerpts_count: usize) -> bool {
        let count = self.excerpt_row.len();
        self.connection_id.len() == count
            && self.from_client.len() == count
            && self.stream_offset.len() == count
            && self.excerpt_row.iter().all(|row| (*row as usize) < excerpts_count)
    }
}

/// Messages by column, and of each the row of the excerpt that shows it.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    pub heads: HeadColumns,
    pub excerpt_row: Vec<u32>,
}

/// The messages of all excerpts, which must be consistent.
pub fn read(excerpts: &Excerpts<'_>) -> Messages {
    let mut messages = Messages::default();
    for row in 0..excerpts.protocol.len() {
        let Some(protocol) = REGISTRY.get(usize::from(excerpts.protocol[row])) else {
            continue;
        };
        let start = i64::from(excerpts.payload_offset[row]);
        (protocol.read)(&excerpts.row(row), &mut |at, head| {
            messages.heads.push(start + i64::from(at), head);
            messages.excerpt_row.push(row as u32);
        });
    }
    messages
}
