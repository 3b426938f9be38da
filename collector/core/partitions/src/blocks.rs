//! Packets stored as blocks of rows, column by column, each column in as few bytes as its values need.
//!
//! The rows of a block were captured soon after each other, so the values of a column lie close together. A column is
//! stored as its least value and, for each row, the difference from it in 0, 1, 2, 4 or 8 bytes. Where that takes far
//! less room (an MSS, a SACK), it is stored as its most common value, one bit for each row that says whether it
//! differs, and the values that differ. A packet of 71 bytes takes about 35.
//!
//! Little-endian, without padding between columns. Only processes of the same version read a block.

use std::ops::Range;

use twintap_wire::events::EventColumns;
use twintap_wire::with_event_columns;

/// Rows of a block, at most: several of them fit in a chunk of [`crate::buffers`].
pub const MAX_ROWS: usize = 256;
/// Rows of a column that are sampled before all are counted.
const SAMPLE_ROWS: usize = 16;
/// A column's first byte is the number of bytes for each row, or this if few rows differ from the most common value.
const FEW_DIFFER: u8 = 0xFF;

macro_rules! define_blocks {
    ($($name:ident: $kind:ty,)*) => {
        /// Append the rows `rows` of `events`, at most [`MAX_ROWS`], to `bytes`.
        pub fn pack(events: &EventColumns, rows: Range<usize>, bytes: &mut Vec<u8>) {
            debug_assert!(rows.len() <= MAX_ROWS);
            bytes.extend_from_slice(&(rows.len() as u16).to_le_bytes());
            $(put_column(&events.$name[rows.clone()], bytes);)*
        }

        /// Append all rows that were packed in `bytes` to `events`.
        pub fn unpack(mut bytes: &[u8], events: &mut EventColumns) {
            while !bytes.is_empty() {
                let rows = usize::from(u16::take(&mut bytes));
                $(take_column(&mut bytes, rows, &mut events.$name);)*
            }
        }

        /// Append the rows `order` of `from` to `into`.
        pub fn append_rows(from: &EventColumns, order: &[u32], into: &mut EventColumns) {
            $(
                let column = &from.$name[..];
                into.$name.extend(order.iter().map(|&row| column[row as usize]));
            )*
        }
    };
}

with_event_columns!(define_blocks);

/// An integer of a column.
trait Number: Copy + Ord {
    const LEN: usize;
    /// How far it is above `least`.
    fn above(self, least: Self) -> u64;
    fn plus(self, distance: u64) -> Self;
    fn put(self, bytes: &mut Vec<u8>);
    fn take(bytes: &mut &[u8]) -> Self;
}

macro_rules! define_numbers {
    ($($kind:ty as $unsigned:ty,)*) => {
        $(impl Number for $kind {
            const LEN: usize = size_of::<$kind>();

            #[inline]
            fn above(self, least: Self) -> u64 {
                u64::from(self.wrapping_sub(least) as $unsigned)
            }

            #[inline]
            fn plus(self, distance: u64) -> Self {
                self.wrapping_add(distance as $kind)
            }

            #[inline]
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn take(bytes: &mut &[u8]) -> Self {
                let (first, rest) = bytes.split_first_chunk().expect("a packed block is whole");
                *bytes = rest;
                Self::from_le_bytes(*first)
            }
        })*
    };
}

define_numbers!(u8 as u8, u16 as u16, u32 as u32, i32 as u32, i64 as u64,);

fn put_column<T: Number>(values: &[T], bytes: &mut Vec<u8>) {
    let Some(&first) = values.first() else { return };
    // By value and one at a time, which the compiler turns into vectors: half the cost of `Iterator::min` and `max`.
    let least = values
        .iter()
        .fold(first, |least, &value| if value < least { value } else { least });
    let greatest = values
        .iter()
        .fold(first, |most, &value| if value > most { value } else { most });
    let width = match greatest.above(least) {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    };
    if width > 0
        && let Some(usual) = usual(values, [least, greatest], width)
    {
        return put_few(values, usual, bytes);
    }
    bytes.push(width as u8);
    least.put(bytes);
    let start = bytes.len();
    bytes.resize(start + values.len() * width, 0);
    let room = &mut bytes[start..];
    match width {
        1 => put_each(values, room, |value| [value.above(least) as u8]),
        2 => put_each(values, room, |value| (value.above(least) as u16).to_le_bytes()),
        4 => put_each(values, room, |value| (value.above(least) as u32).to_le_bytes()),
        8 => put_each(values, room, |value| value.above(least).to_le_bytes()),
        _ => {}
    }
}

#[inline(always)]
fn put_each<T: Number, const N: usize>(values: &[T], room: &mut [u8], bytes: impl Fn(T) -> [u8; N]) {
    for (&value, place) in values.iter().zip(room.as_chunks_mut().0) {
        *place = bytes(value);
    }
}

/// The one of two values from which so few rows differ that storing only these takes at most half the room.
fn usual<T: Number>(values: &[T], candidates: [T; 2], width: usize) -> Option<T> {
    let count = |rows: &[T], candidate: T| rows.iter().map(|&value| u16::from(value == candidate)).sum::<u16>();
    let small = |&candidate: &T| {
        let sample = &values[..values.len().min(SAMPLE_ROWS)];
        if 2 * usize::from(count(sample, candidate)) < sample.len() {
            return false; // most columns, at little cost
        }
        let others = values.len() - usize::from(count(values, candidate));
        2 * (values.len().div_ceil(8) + others * T::LEN) <= values.len() * width
    };
    candidates.into_iter().find(small)
}

fn put_few<T: Number>(values: &[T], usual: T, bytes: &mut Vec<u8>) {
    bytes.push(FEW_DIFFER);
    usual.put(bytes);
    for eight in values.chunks(8) {
        let differs = |bits, (place, &value): (usize, &T)| bits | u8::from(value != usual) << place;
        bytes.push(eight.iter().enumerate().fold(0, differs));
    }
    values
        .iter()
        .filter(|value| **value != usual)
        .for_each(|value| value.put(bytes));
}

fn take_column<T: Number>(bytes: &mut &[u8], rows: usize, column: &mut Vec<T>) {
    let width = u8::take(bytes);
    let base = T::take(bytes);
    if width == FEW_DIFFER {
        return take_few(bytes, rows, base, column);
    }
    let (packed, rest) = bytes.split_at(rows * usize::from(width));
    *bytes = rest;
    match width {
        0 => column.resize(column.len() + rows, base),
        1 => column.extend(packed.iter().map(|&above| base.plus(above.into()))),
        2 => column.extend(
            packed
                .as_chunks()
                .0
                .iter()
                .map(|&above| base.plus(u16::from_le_bytes(above).into())),
        ),
        4 => column.extend(
            packed
                .as_chunks()
                .0
                .iter()
                .map(|&above| base.plus(u32::from_le_bytes(above).into())),
        ),
        _ => column.extend(
            packed
                .as_chunks()
                .0
                .iter()
                .map(|&above| base.plus(u64::from_le_bytes(above))),
        ),
    }
}

fn take_few<T: Number>(bytes: &mut &[u8], rows: usize, usual: T, column: &mut Vec<T>) {
    let start = column.len();
    column.resize(start + rows, usual);
    let (differs, rest) = bytes.split_at(rows.div_ceil(8));
    *bytes = rest;
    for (eight, &bits) in column[start..].chunks_mut(8).zip(differs) {
        let mut left = bits;
        while left != 0 {
            eight[left.trailing_zeros() as usize] = T::take(bytes);
            left &= left - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twintap_wire::events::Event;

    fn columns(rows: &[Event]) -> EventColumns {
        let mut columns = EventColumns::default();
        columns.extend(rows);
        columns
    }

    fn there_and_back<T: Number + std::fmt::Debug>(values: &[T]) -> usize {
        let (mut bytes, mut back) = (Vec::new(), vec![values[0]]);
        put_column(values, &mut bytes);
        let mut rest = &bytes[..];
        take_column(&mut rest, values.len(), &mut back);
        assert!(rest.is_empty());
        assert_eq!(back[1..], *values);
        bytes.len() - 1 - T::LEN
    }

    #[test]
    fn a_column_takes_as_many_bytes_as_its_values_differ_by() {
        let spread = |step: i64| (0..20).map(|row| i64::MIN / 2 + row * step).collect::<Vec<_>>();
        for (step, width) in [
            (0, 0),
            (13, 1),
            (14, 2),
            (3_000, 2),
            (4_000, 4),
            (1 << 27, 4),
            (1 << 28, 8),
        ] {
            assert_eq!(there_and_back(&spread(step)), 20 * width, "steps of {step}");
        }
        assert_eq!(there_and_back(&[i64::MIN, i64::MAX]), 16);
        assert_eq!(there_and_back(&[-1_i32, 65_534]), 4);
        assert_eq!(there_and_back(&[-1_i32, 65_535]), 8);
        assert_eq!(there_and_back(&[u8::MAX, 0]), 2);
        assert_eq!(there_and_back(&[7_u16]), 0);
    }

    #[test]
    fn values_that_few_rows_have_take_a_bit_of_the_others() {
        for usual in [0, u32::MAX] {
            let mut values = vec![usual; 100];
            (values[0], values[63], values[99]) = (5, 1 << 31, 7);
            assert_eq!(there_and_back(&values), 13 + 3 * 4);
        }
        let mut values = vec![255_u8; MAX_ROWS];
        values[255] = 0;
        assert_eq!(there_and_back(&values), 32 + 1);
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let row = |n: u32| Event {
            frame: 7 + n,
            host_ns: -5 + i64::from(n) * 1_000_000,
            interface: 65_535,
            ip_id: if n.is_multiple_of(3) { -1 } else { 4 },
            tsecr: u32::MAX - n,
            sack_hash: u32::from(n == 9) * 77,
            original_len: 9,
            ..Event::default()
        };
        let rows: Vec<Event> = (0..300).map(row).collect();
        let all = columns(&rows);
        let mut bytes = Vec::new();
        pack(&all, 0..MAX_ROWS, &mut bytes);
        pack(&all, MAX_ROWS..300, &mut bytes);
        let mut back = EventColumns::default();
        unpack(&bytes, &mut back);
        assert_eq!((0..300).map(|at| back.row(at)).collect::<Vec<_>>(), rows);
        let mut chosen = EventColumns::default();
        append_rows(&back, &[299, 0, 5], &mut chosen);
        assert_eq!([0, 1, 2].map(|at| chosen.row(at)), [rows[299], rows[0], rows[5]]);
        chosen.clear();
        assert!(chosen.is_empty());
    }
}
