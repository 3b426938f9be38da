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
            $(pub $name: NumberColumn<$kind>,)*
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
                    $($name: NumberColumn::with_room(rows),)*
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

/// A column of numbers. While all are equal only the first is kept: protocols leave most columns of a head as they are.
#[derive(Clone, Debug, Default)]
pub struct NumberColumn<T> {
    values: Vec<T>,
    count: usize,
    room: usize,
}

impl<T: Copy + PartialEq> NumberColumn<T> {
    /// No rows. There will be room for so many once values differ.
    fn with_room(rows: usize) -> Self {
        Self {
            values: Vec::new(),
            count: 0,
            room: rows,
        }
    }

    /// Append a value.
    pub(crate) fn push(&mut self, value: T) {
        match *self.values {
            [first] if first == value => {}
            [first] => self.begin_other(first, value),
            _ => self.values.push(value),
        }
        self.count += 1;
    }

    /// Store all rows, which are equal, and the first that is not.
    #[cold]
    fn begin_other(&mut self, first: T, value: T) {
        self.values.reserve_exact(self.room.max(self.count + 1));
        self.values.resize(self.count, first);
        self.values.push(value);
    }

    /// The value of each row; one value if it is that of all rows.
    pub fn into_distinct(self) -> Vec<T> {
        self.values
    }

    /// The value of each row.
    pub fn into_values(mut self) -> Vec<T> {
        if let [first] = *self.values {
            self.values.resize(self.count, first);
        }
        self.values
    }
}

/// A column of texts, none of which is null, as Arrow has them: row n is `bytes[offsets[n]..offsets[n + 1]]`.
#[derive(Clone, Debug)]
pub struct TextColumn {
    pub offsets: NumberColumn<i32>,
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
        let mut offsets = NumberColumn::with_room(rows + 1);
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
        self.head_kind.count
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.head_kind.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_end_to_end_and_empty_ones_take_an_offset_only() {
        let mut column = TextColumn::default();
        ["GET", "", "HEAD"].iter().for_each(|text| column.push(text.as_bytes()));
        assert!(!column.is_too_long());
        assert_eq!(column.bytes, b"GETHEAD");
        assert_eq!(column.offsets.into_values(), [0, 3, 3, 7]);
    }

    #[test]
    fn equal_numbers_are_kept_once_until_one_differs() {
        let column_of = |values: &[i64]| {
            let mut column = NumberColumn::with_room(2);
            values.iter().for_each(|value| column.push(*value));
            column
        };
        for (values, distinct) in [
            (&[][..], &[][..]),
            (&[7], &[7]),
            (&[7, 7, 7], &[7]),
            (&[7, 7, 8, 7], &[7, 7, 8, 7]),
            (&[7, 8, 8], &[7, 8, 8]),
        ] {
            assert_eq!(column_of(values).into_distinct(), distinct);
            assert_eq!(column_of(values).into_values(), values);
        }
    }
}
