//! Reads messages from the payload excerpts that decoding kept, after matching has determined their places in streams.
//!
//! Input: excerpts of all packets of a partition, and of each packet its connection, direction and place in the stream.
//! Output: a row for each message at each capture point that shows it, in the order of the excerpts ([`read()`]); and
//! the protocol of each connection ([`recognition`]), and what its TLS handshake says ([`tls_handshakes`]).
//!
//! An excerpt names the protocol that kept it, and that protocol reads it (registry: `twintap_protocols`).
#![forbid(unsafe_code)]

pub mod columns;
pub mod recognition;
pub mod tls_handshakes;

use columns::HeadColumns;
use twintap_columns::input_table;
use twintap_protocols::excerpt::Excerpt;
use twintap_protocols::registry::REGISTRY;

input_table! {
    /// Excerpts by column; bytes of row n are `bytes[offsets[n]..offsets[n + 1]]`.
    pub struct Excerpts { payload_offset: i32, protocol: u8, stream_len: u32, solid_len: u32 } beside {
        offsets: &'a [i64] = &[],
        bytes: &'a [u8] = &[],
    }
}

impl<'a> Excerpts<'a> {
    /// Whether there are offsets for all rows, and they lead into the bytes.
    pub fn has_bytes_of_rows(&self) -> bool {
        let leads_inside = |end: &i64| usize::try_from(*end).is_ok_and(|end| end <= self.bytes.len());
        self.offsets.len() == self.protocol.len() + 1
            && self.offsets.is_sorted()
            && self.offsets.first().is_some_and(|first| *first >= 0)
            && self.offsets.last().is_some_and(leads_inside)
    }

    /// The leading bytes of an excerpt that are contiguous in the stream.
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

input_table! {
    /// Places of excerpts' packets in streams: the packet's connection, whether the client sent it, and the stream
    /// offset of its payload; for each the row of its excerpt.
    pub struct Places { connection_id: i64, from_client: bool, stream_offset: i64 } beside {
        excerpt_row: &'a [u32] = &[],
    }
}

impl Places<'_> {
    /// Whether there is a row for each, and rows are among `excerpts_count`.
    pub fn has_rows_below(&self, excerpts_count: usize) -> bool {
        self.excerpt_row.len() == self.connection_id.len()
            && self.excerpt_row.iter().all(|row| (*row as usize) < excerpts_count)
    }
}

/// Messages by column, and for each the row of the excerpt that shows it.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    pub heads: HeadColumns,
    pub excerpt_row: Vec<u32>,
}

/// The messages of all excerpts, which must be consistent.
pub fn read(excerpts: &Excerpts<'_>) -> Messages {
    let rows = excerpts.protocol.len(); // most excerpts show one message
    let mut messages = Messages {
        heads: HeadColumns::with_capacity(rows),
        excerpt_row: Vec::with_capacity(rows),
    };
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
