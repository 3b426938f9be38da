//! A table's column that arrives in several parts, read as one: times, or codes in place of texts.

use std::hash::Hasher;

use rayon::prelude::*;
use rustc_hash::FxHasher;
use twintap_columns::Texts;

/// Rows that a thread handles at a time.
const ROWS_AT_ONCE: usize = 1 << 14;

/// Consecutive values of a column.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub values: &'a [i64],
    /// A bit for each value, from bit `first_bit` on: whether it is known. Empty if all are known.
    pub validity: &'a [u8],
    pub first_bit: usize,
}

impl Piece<'_> {
    /// Whether there is a bit for each value.
    pub fn is_consistent(&self) -> bool {
        self.validity.is_empty() || self.first_bit + self.values.len() <= self.validity.len() * 8
    }

    fn is_known(&self, row: usize) -> bool {
        let bit = self.first_bit + row;
        self.validity.is_empty() || self.validity[bit / 8] >> (bit % 8) & 1 == 1
    }
}

/// For each row the value of the first column in which it is known; `missing` where it is in none.
///
/// # Panics
/// If the columns are not cut into pieces at the same rows, or one has no bits for its values.
pub fn coalesce(columns: &[Vec<Piece>], missing: i64) -> Vec<i64> {
    let Some(first) = columns.first() else {
        return Vec::new();
    };
    let lengths = |column: &Vec<Piece>| column.iter().map(|piece| piece.values.len()).collect::<Vec<_>>();
    assert!(
        columns.iter().all(|column| lengths(column) == lengths(first)),
        "columns are cut at other rows"
    );
    assert!(columns.iter().flatten().all(Piece::is_consistent), "bits are missing");
    let mut found = vec![0; lengths(first).iter().sum()];
    let mut tasks = Vec::new();
    let mut rest = &mut found[..];
    for (piece, length) in lengths(first).into_iter().enumerate() {
        for start in (0..length).step_by(ROWS_AT_ONCE) {
            let (here, beyond) = rest.split_at_mut(ROWS_AT_ONCE.min(length - start));
            rest = beyond;
            tasks.push((piece, start, here));
        }
    }
    tasks.into_par_iter().for_each(|(piece, start, found)| {
        let [own, others @ ..] = columns else { return };
        found.copy_from_slice(&own[piece].values[start..start + found.len()]);
        if own[piece].validity.is_empty() {
            return;
        }
        for (row, value) in found.iter_mut().enumerate() {
            if !own[piece].is_known(start + row) {
                let other = others.iter().find(|column| column[piece].is_known(start + row));
                *value = other.map_or(missing, |column| column[piece].values[start + row]);
            }
        }
    });
    found
}

/// A 64-bit hash of each text, so that equal texts have equal numbers; 0 for an empty text.
pub fn text_numbers(texts: &Texts) -> Vec<u64> {
    numbers(texts, |text| text)
}

/// The same of each text before its first question mark: of a target without its query.
pub fn path_numbers(texts: &Texts) -> Vec<u64> {
    numbers(texts, |text| {
        &text[..text.iter().position(|&byte| byte == b'?').unwrap_or(text.len())]
    })
}

fn numbers(texts: &Texts, part: impl Fn(&[u8]) -> &[u8] + Sync) -> Vec<u64> {
    let count = texts.offsets.len() - 1;
    let number = |row: usize| match part(texts.text(row)) {
        [] => 0,
        text => {
            let mut hasher = FxHasher::default();
            hasher.write(text);
            hasher.finish().max(1)
        }
    };
    (0..count)
        .into_par_iter()
        .with_min_len(ROWS_AT_ONCE)
        .map(number)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_from_the_first_column_that_has_it() {
        let piece = |values, validity, first_bit| Piece {
            values,
            validity,
            first_bit,
        };
        let all: &[u8] = &[];
        let columns = [
            vec![piece(&[1, 2], all, 0), piece(&[3, 4, 5], &[0b1000_0000, 0b10], 6)],
            vec![piece(&[6, 7], &[0], 0), piece(&[8, 9, 10], &[0b100], 2)],
        ];
        assert_eq!(coalesce(&columns, -1), [1, 2, 8, 4, -1]);
        assert_eq!(coalesce(&columns[1..], -1), [-1, -1, 8, -1, -1]);
        assert!(coalesce(&[], -1).is_empty());
    }

    #[test]
    fn rows_of_long_pieces_are_in_order() {
        let values: Vec<i64> = (0..3 * ROWS_AT_ONCE as i64 + 5).collect();
        let (start, end) = values.split_at(ROWS_AT_ONCE + 1);
        let column = [start, end].map(|values| Piece {
            values,
            validity: &[],
            first_bit: 0,
        });
        assert_eq!(coalesce(&[column.to_vec()], -1), values);
    }

    #[test]
    fn equal_texts_have_equal_numbers_and_none_has_none() {
        let texts = Texts {
            offsets: &[0, 1, 1, 3, 4],
            bytes: b"aaba",
        };
        let numbers = text_numbers(&texts);
        assert_eq!((numbers[1], numbers[0]), (0, numbers[3]));
        assert!(numbers[2] != numbers[0] && numbers[2] != 0);
    }

    #[test]
    fn a_path_has_the_same_number_whatever_its_query() {
        let texts = Texts {
            offsets: &[0, 2, 6, 9, 11],
            bytes: b"/a/a?1/b??x",
        };
        let numbers = path_numbers(&texts);
        assert_eq!((numbers[0], numbers[3]), (numbers[1], 0));
        assert!(numbers[2] != numbers[0] && numbers[2] != 0);
    }
}
