//! Finds the row of each id in a column of ids.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::NONE;

/// Ids of a partition are indices into an array if the largest is at most this many times their count.
const MAX_SPARSENESS: usize = 4;
const NO_ROW: u32 = u32::MAX;

/// The row of each wanted id, column by column; `NONE` for one that is none of `ids`, which differ from each other.
///
/// Ids of a partition are those between two multiples of 2^`stride_bits`. Cost: one pass if ids have few gaps, as those
/// of exchanges; otherwise a look-up in a hash table for each.
///
/// # Panics
/// With 2^32 rows or more, or if a stride is no number of 64 bits.
pub fn places(ids: &[i64], wanted: &[&[i64]], stride_bits: u32) -> Vec<Vec<i64>> {
    assert!(u32::try_from(ids.len()).is_ok(), "more rows than a number of 32 bits");
    assert!(stride_bits < 63, "a stride beyond a number of 64 bits");
    let rows = |column: &'_ [i64], row: &(dyn Fn(i64) -> i64 + Sync)| {
        column.par_iter().with_min_len(1 << 14).map(|&id| row(id)).collect()
    };
    if let Some(near) = Near::new(ids, stride_bits) {
        return wanted.iter().map(|column| rows(column, &|id| near.row(id))).collect();
    }
    let row_of: FxHashMap<i64, i64> = ids.iter().zip(0..).map(|(&id, row)| (id, row)).collect();
    let row = |id: i64| row_of.get(&id).copied().unwrap_or(NONE);
    wanted.iter().map(|column| rows(column, &row)).collect()
}

/// Rows by partition and number within it.
struct Near {
    stride_bits: u32,
    /// Partition n has the places `first[n]..first[n + 1]`.
    first: Vec<usize>,
    row_of: Vec<u32>,
}

impl Near {
    fn new(ids: &[i64], stride_bits: u32) -> Option<Self> {
        let most = MAX_SPARSENESS.saturating_mul(ids.len());
        let mut sizes: Vec<usize> = Vec::new();
        for &id in ids {
            let (partition, number) = partition_and_number(id, stride_bits)?;
            if partition >= most || number >= most {
                return None;
            }
            if partition >= sizes.len() {
                sizes.resize(partition + 1, 0);
            }
            sizes[partition] = sizes[partition].max(number + 1);
        }
        let mut first = vec![0; sizes.len() + 1];
        for (partition, size) in sizes.iter().enumerate() {
            first[partition + 1] = first[partition] + size;
        }
        let count = first[sizes.len()];
        if count > most {
            return None;
        }
        let mut row_of = vec![NO_ROW; count];
        for (row, &id) in ids.iter().enumerate() {
            let (partition, number) = partition_and_number(id, stride_bits)?;
            row_of[first[partition] + number] = row as u32;
        }
        Some(Self {
            stride_bits,
            first,
            row_of,
        })
    }

    fn row(&self, id: i64) -> i64 {
        let place = partition_and_number(id, self.stride_bits).and_then(|(partition, number)| {
            let place = self.first.get(partition)?.checked_add(number)?;
            (place < *self.first.get(partition + 1)?).then_some(place)
        });
        match place.map_or(NO_ROW, |place| self.row_of[place]) {
            NO_ROW => NONE,
            row => row.into(),
        }
    }
}

/// The partition of an id, and its number there.
fn partition_and_number(id: i64, stride_bits: u32) -> Option<(usize, usize)> {
    let id = u64::try_from(id).ok()?;
    let number = id & ((1 << stride_bits) - 1);
    Some((usize::try_from(id >> stride_bits).ok()?, usize::try_from(number).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_whether_they_have_gaps_or_not() {
        let found = |ids, wanted: &[i64]| places(ids, &[wanted, &[]], 3);
        let wanted = [9, 3, 1, 0, -1, 2, 10, 29, i64::MAX];
        assert_eq!(
            found(&[1, 9, 2], &wanted),
            [vec![1, -1, 0, -1, -1, 2, -1, -1, -1], vec![]]
        );
        assert_eq!(found(&[1, 5_000_000, 2], &[2, 5_000_000, 3]), [vec![2, 1, -1], vec![]]);
        assert_eq!(found(&[-7, 1], &[1, -7, 2]), [vec![1, 0, -1], vec![]]);
        assert_eq!(found(&[], &[1, 0]), [vec![-1, -1], vec![]]);
    }
}
