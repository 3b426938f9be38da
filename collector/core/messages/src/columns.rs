//! Heads of messages, collected by column.

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
            pub method: TextColumn,
            pub target: TextColumn,
            pub transaction_id: TextColumn,
            pub client_span_id: TextColumn,
            pub user_agent: TextColumn,
            pub authority: TextColumn,
        }

        impl HeadColumns {
            /// No rows, with room for so many: columns that grow are copied, and pages are what that costs.
            pub fn with_capacity(rows: usize) -> Self {
                Self {
                    $($name: Vec::with_capacity(rows),)*
                    method: TextColumn::with_capacity(rows),
                    target: TextColumn::with_capacity(rows),
                    transaction_id: TextColumn::with_capacity(rows),
                    client_span_id: TextColumn::with_capacity(rows),
                    user_agent: TextColumn::with_capacity(rows),
                    authority: TextColumn::with_capacity(rows),
                }
            }
        }
    };
}

with_head_columns!(define_heads);

/// A column of texts, none of which is null, as Arrow has them: row n is `bytes[offsets[n]..offsets[n + 1]]`.
#[derive(Clone, Debug)]
pub struct TextColumn {
    pub offsets: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Default for TextColumn {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl TextColumn {
    /// No rows, with room for so many.
    fn with_capacity(rows: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            offsets,
            bytes: Vec::new(),
        }
    }

    /// Append a text.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.offsets.push(self.bytes.len() as i32); // wrong only where `is_too_long`
    }

    /// Whether its bytes are more than offsets can count.
    pub fn is_too_long(&self) -> bool {
        i32::try_from(self.bytes.len()).is_err()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_end_to_end_and_empty_ones_take_an_offset_only() {
        let mut column = TextColumn::default();
        ["GET", "", "HEAD"].iter().for_each(|text| column.push(text.as_bytes()));
        assert_eq!(
            (column.offsets.as_slice(), column.bytes.as_slice()),
            (&[0, 3, 3, 7][..], &b"GETHEAD"[..])
        );
        assert!(!column.is_too_long());
    }
}
