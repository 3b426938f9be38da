//! Silences of messages (`twintap_exchanges::silences`) grouped by span, in the form that the ledger reads.

/// Why none of a message's bytes was on the way; the codes of the column `cause`.
pub const IDLE: u8 = 0;
pub const HELD: u8 = 1;
pub const UNREAD: u8 = 2;

/// Silences: long ones with their place in time, and of the short ones their sums. A span's row, whether it is in the
/// response, the cause, times in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silences<'a> {
    pub row: &'a [i64],
    pub in_response: &'a [bool],
    pub cause: &'a [u8],
    pub from_ns: &'a [i64],
    pub to_ns: &'a [i64],
    pub short_row: &'a [i64],
    pub short_in_response: &'a [bool],
    pub short_cause: &'a [u8],
    pub short_ns: &'a [i64],
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
        let count = self.row.len();
        let short_count = self.short_row.len();
        let inside = |row: &i64| usize::try_from(*row).is_ok_and(|row| row < rows_count);
        self.in_response.len() == count
            && self.cause.len() == count
            && self.from_ns.len() == count
            && self.to_ns.len() == count
            && self.short_in_response.len() == short_count
            && self.short_cause.len() == short_count
            && self.short_ns.len() == short_count
            && self.row.is_sorted()
            && self.row.iter().chain(self.short_row).all(inside)
            && self.cause.iter().chain(self.short_cause).all(|cause| *cause <= UNREAD)
    }

    /// The long silences of a span, in their given order.
    pub(crate) fn of(&self, span: usize) -> impl DoubleEndedIterator<Item = Silence> {
        let span = span as i64;
        let first = self.row.partition_point(|row| *row < span);
        let count = self.row[first..].partition_point(|row| *row == span);
        (first..first + count).map(|place| Silence {
            in_response: self.in_response[place],
            cause: self.cause[place],
            from_ns: self.from_ns[place],
            to_ns: self.to_ns[place],
        })
    }
}
