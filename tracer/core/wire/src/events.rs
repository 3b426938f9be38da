//! Rows of TCP packets and of message heads, collected by column.
//!
//! A packet is decoded into an [`Event`] in a small block of rows that stays in the level-1 cache, and a full block is turned
//! into columns: one capacity check a column and block instead of one a value.

use twintap_protocols::head::Head;

/// Calls `$then!` with every column of an event: name and type, in order. As `collector.capture_files.records.EVENT_COLUMNS`, where each is
/// explained.
#[macro_export]
macro_rules! with_event_columns {
    ($then:ident) => {
        $then! {
            frame: u32, host_ns: i64, interface: u16, direction: u8, src_addr: u32, dst_addr: u32, src_port: u16,
            dst_port: u16, seq: u32, ack: u32, flags: u16, window: u16, payload_len: u32, ip_id: i32, tsval: u32,
            tsecr: u32, options: u8, mss: u16, window_scale: u8, sack_hash: u32, captured_len: u32, original_len: u32,
        }
    };
}

/// Calls `$then!` with every numeric column of a head. As `collector.capture_files.records.HEAD_COLUMNS`.
#[macro_export]
macro_rules! with_head_columns {
    ($then:ident) => {
        $then! {
            frame: u32, payload_offset: u32, head_kind: u8, head_flags: u8, status: u16, content_length: i64, head_len: u32,
            range_first: i64, range_last: i64,
        }
    };
}

macro_rules! define_event {
    ($($name:ident: $kind:ty,)*) => {
        /// One TCP packet at one capture point.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Event { $(pub $name: $kind,)* }

        /// Events by column; all of one length.
        #[derive(Clone, Debug, Default)]
        pub struct EventColumns { $(pub $name: Vec<$kind>,)* }

        impl EventColumns {
            /// Add `rows` at the end.
            pub fn extend(&mut self, rows: &[Event]) {
                $(self.$name.extend(rows.iter().map(|row| row.$name));)*
            }

            /// Make room for `rows` more.
            pub fn reserve(&mut self, rows: usize) {
                $(self.$name.reserve(rows);)*
            }

            /// Keep the rows before `at`; the others are returned.
            pub fn split_off(&mut self, at: usize) -> Self {
                Self { $($name: self.$name.split_off(at),)* }
            }

            /// Row `at`, put together again.
            pub fn row(&self, at: usize) -> Event {
                Event { $($name: self.$name[at],)* }
            }
        }
    };
}

macro_rules! define_heads {
    ($($name:ident: $kind:ty,)*) => {
        /// Message heads by column; all of one length, the strings one longer (offsets).
        #[derive(Clone, Debug, Default)]
        pub struct HeadColumns {
            $(pub $name: Vec<$kind>,)*
            pub method: Strings,
            pub target: Strings,
            pub transaction_id: Strings,
            pub user_agent: Strings,
            pub host_header: Strings,
        }

        impl HeadColumns {
            /// Keep the rows before `at`; the others are returned.
            pub fn split_off(&mut self, at: usize) -> Self {
                Self {
                    $($name: self.$name.split_off(at),)*
                    method: self.method.split_off(at),
                    target: self.target.split_off(at),
                    transaction_id: self.transaction_id.split_off(at),
                    user_agent: self.user_agent.split_off(at),
                    host_header: self.host_header.split_off(at),
                }
            }
        }
    };
}

with_event_columns!(define_event);
with_head_columns!(define_heads);

impl EventColumns {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
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
    /// Add a row.
    pub fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.offsets.push(self.bytes.len() as i64);
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

impl HeadColumns {
    /// Add `head`, which begins `payload_offset` bytes into the payload of packet `frame`.
    pub fn push(&mut self, frame: u32, payload_offset: u32, head: &Head<'_>) {
        self.frame.push(frame);
        self.payload_offset.push(payload_offset);
        self.head_kind.push(head.kind.0);
        self.head_flags.push(head.flags);
        self.status.push(head.status);
        self.content_length.push(head.content_length);
        self.head_len.push(head.len);
        self.range_first.push(head.range.first);
        self.range_last.push(head.range.last);
        self.method.push(head.method);
        self.target.push(head.target);
        self.transaction_id.push(head.transaction_id);
        self.user_agent.push(head.user_agent);
        self.host_header.push(head.host);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.frame.is_empty()
    }

    /// Bytes of text held.
    pub fn text_len(&self) -> usize {
        [
            &self.method,
            &self.target,
            &self.transaction_id,
            &self.user_agent,
            &self.host_header,
        ]
        .iter()
        .map(|strings| strings.bytes.len())
        .sum()
    }
}
