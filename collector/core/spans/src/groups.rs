//! Numbers groups of rows that have equal codes in some columns.

use rustc_hash::FxHashMap;

/// Up to this many combinations of codes are indices into an array; more are looked up in a hash table.
const MAX_DENSE_COMBINATIONS: u64 = 1 << 16;

/// The group of each row, and the first row of each group: groups are numbered in order of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    pub of: Vec<i32>,
    pub first: Vec<i64>,
}

/// Number the groups of rows with equal codes in all columns. Codes begin at -1. None if the number of combinations
/// exceeds 64 bits.
///
/// # Panics
/// If the columns differ in length, or a code is less than -1.
pub fn groups(columns: &[&[i32]]) -> Option<Groups> {
    let count = columns.first().map_or(0, |column| column.len());
    assert!(
        columns.iter().all(|column| column.len() == count),
        "columns differ in length"
    );
    let width = |column: &&[i32]| column.iter().max().map_or(1, |most| i64::from(*most) + 2) as u64;
    let widths: Vec<u64> = columns.iter().map(width).collect();
    widths
        .iter()
        .try_fold(1u64, |product, width| product.checked_mul(*width))?;
    let combinations: u64 = widths.iter().product();
    let few = combinations <= MAX_DENSE_COMBINATIONS.min(16 + 2 * count as u64);
    let mut in_a_row = vec![-1; if few { combinations as usize } else { 0 }];
    let mut number: FxHashMap<u64, i32> = FxHashMap::default();
    let mut found = Groups::default();
    found.of.reserve(count);
    for row in 0..count {
        let mut key = 0;
        for (column, width) in columns.iter().zip(&widths) {
            assert!(column[row] >= -1, "a code is less than -1");
            key = key * width + (i64::from(column[row]) + 1) as u64;
        }
        let next = found.first.len() as i32;
        let own = if few {
            let own = &mut in_a_row[key as usize];
            *own = if *own < 0 { next } else { *own };
            *own
        } else {
            *number.entry(key).or_insert(next)
        };
        if own == next {
            found.first.push(row as i64);
        }
        found.of.push(own);
    }
    Some(found)
}

/// The first row of each group, in order of their keys, and the sums of columns over the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub first: Vec<i64>,
    pub columns: Vec<Vec<i64>>,
}

/// Add up columns over the rows that have three equal keys. Fast where rows come in long ascending runs.
///
/// # Panics
/// If the columns differ in length, or a sum is no number of 64 bits.
pub fn sums(keys: [&[i64]; 3], columns: &[&[i64]]) -> Sums {
    let count = keys[0].len();
    assert!(
        keys.iter().chain(columns).all(|column| column.len() == count),
        "columns differ in length"
    );
    let mut rows: Vec<([i64; 3], usize)> = (0..count).map(|row| (keys.map(|key| key[row]), row)).collect();
    rows.sort_by_key(|(key, _)| *key);
    let groups: Vec<&[([i64; 3], usize)]> = rows.chunk_by(|one, other| one.0 == other.0).collect();
    let sum = |column: &&[i64]| {
        let of = |group: &&[([i64; 3], usize)]| group.iter().map(|&(_, row)| column[row]).sum();
        groups.iter().map(of).collect()
    };
    Sums {
        first: groups.iter().map(|group| group[0].1 as i64).collect(),
        columns: columns.iter().map(sum).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_alike_in_all_codes_are_one_group() {
        let found = groups(&[&[3, -1, 3, 2, -1], &[0, 0, 0, 1, 0]]);
        let expected = Groups {
            of: vec![0, 1, 0, 2, 1],
            first: vec![0, 1, 3],
        };
        assert_eq!(found, Some(expected));
        assert_eq!(
            groups(&[&[7, 70_000, 7, -1]]).map(|found| found.of),
            Some(vec![0, 1, 0, 2])
        );
        assert_eq!(groups(&[&[i32::MAX][..]; 3]), None);
    }

    #[test]
    fn rows_alike_in_all_keys_add_up() {
        let found = sums(
            [&[1, 1, 2, 1], &[0, -5, 0, 0], &[7, 7, 7, 7]],
            &[&[1, 2, 3, 4], &[0, 1, 0, 1]],
        );
        let expected = Sums {
            first: vec![1, 0, 2],
            columns: vec![vec![2, 5, 3], vec![1, 1, 0]],
        };
        assert_eq!(found, expected);
    }
}
