//! Heads of messages, collected by column.

use twintap_protocols::excerpt::Strings;
use twintap_protocols::head::Head;

/// Calls `$then!` with the name and type of every numeric column of a head.
#[macro_export]
macro_rules! with_head_columns {
    ($then:ident) => {
        $then! {
            payload_offset: i64, head_kind: u8, head_flags: u8, status: u16, content_length: i64, head_len: u32,
            range_first: i64, range_last: i64, result_code: i32, frame_kind: u16, stream_id: i64,
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
            pub client_span_id: Strings,
            pub user_agent: Strings,
            pub authority: Strings,
        }

        impl HeadColumns {
            /// No rows, with room for so many: columns that grow are copied, and pages are what that costs.
            pub fn with_capacity(rows: usize) -> Self {
                Self {
                    $($name: Vec::with_capacity(rows),)*
                    method: Strings::with_capacity(rows),
                    target: Strings::with_capacity(rows),
                    transaction_id: Strings::with_capacity(rows),
                    client_span_id: Strings::with_capacity(rows),
                    user_agent: Strings::with_capacity(rows),
                    authority: Strings::with_capacity(rows),
                }
            }
        }
    };
}

with_head_columns!(define_heads);

impl HeadColumns {
    /// Append `head`, which begins at `payload_offset` of its packet's payload.
    pub fn push(&mut self, payload_offset: i64, head: &Head<'_>) {
        self.payload_offset.push(payload_offset);
        self.head_kind.push(head.kind.0);
        self.head_flags.push(head.flags);
        self.status.push(head.status);
        self.content_length.push(head.content_length);
        self.head_len.push(head.len);
        self.range_first.push(head.range.first);
        self.range_last.push(head.range.last);
        self.result_code.push(head.result_code);
        self.frame_kind.push(head.frame.kind);
        self.stream_id.push(head.frame.stream);
        self.method.push(head.method);
        self.target.push(head.target);
        self.transaction_id.push(head.transaction_id);
        self.client_span_id.push(head.client_span_id);
        self.user_agent.push(head.user_agent);
        self.authority.push(head.authority);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.head_kind.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.head_kind.is_empty()
    }
}
