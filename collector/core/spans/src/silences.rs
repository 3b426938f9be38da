//! Silences of messages (`twintap_exchanges::silences`) grouped by span, in the form that the ledger reads.

use twintap_columns::input_table;

/// Why none of a message's bytes was on the way; the codes of the column `cause`.
pub const IDLE: u8 = 0;
pub const HELD: u8 = 1;
pub const UNREAD: u8 = 2;

input_table! {
    /// Silences with their place in time, by the row of their span, ascending; times in ns.
    pub struct LongSilences { row: i64, in_response: bool, cause: u8, from_ns: i64, to_ns: i64 }
}

input_table! {
    /// Sums of the silences that are too short to have a place.
    pub struct ShortSilences {
        row("short_row"): i64,
        in_response("short_in_response"): bool,
        cause("short_cause"): u8,
        sum_ns("short_ns"): i64,
    }
}

/// All silences of some spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silences<'a> {
    pub long: LongSilences<'a>,
    pub short: ShortSilences<'a>,
}

/// One long silence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    pub in_response: bool,
    pub cause: u8,
    pub from_ns: i64,
    pub to_ns: i64,
}

impl Silences<'_> {
    /// Whether columns have one length, rows ascend within `rows_count`, and causes are known.
    pub fn is_consistent(&self, rows_count: usize) -> bool {
        let inside = |row: &i64| usize::try_from(*row).is_ok_and(|row| row < rows_count);
        self.long.is_consistent()
            && self.short.is_consistent()
            && self.long.row.is_sorted()
            && self.long.row.iter().chain(self.short.row).all(inside)
            && self
                .long
                .cause
                .iter()
                .chain(self.short.cause)
                .all(|cause| *cause <= UNREAD)
    }

    /// The long silences of a span, in the input's order.
    pub(crate) fn of(&self, span: usize) -> impl DoubleEndedIterator<Item = Silence> {
        let span = span as i64;
        let long = self.long;
        let first = long.row.partition_point(|row| *row < span);
        let count = long.row[first..].partition_point(|row| *row == span);
        (first..first + count).map(move |place| Silence {
            in_response: long.in_response[place],
            cause: long.cause[place],
            from_ns: long.from_ns[place],
            to_ns: long.to_ns[place],
        })
    }
}
