//! The children of each row, in order of rows: a list of lists in two columns.

/// The children of all rows, built once and looked up by parent.
#[derive(Clone, Debug)]
pub struct Children {
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl Children {
    /// Build the lists from the parent of each row; a parent that is no row has no children.
    ///
    /// # Panics
    /// With 2^32 rows or more.
    pub fn new(parent: &[i64]) -> Self {
        let count = parent.len();
        assert!(u32::try_from(count).is_ok(), "more exchanges than a number of 32 bits");
        let inside = |of: i64| usize::try_from(of).ok().filter(|&of| of < count);
        // Written, not allocated as zeros: the kernel provides a page faster if it is written before it is read.
        let mut first: Vec<u32> = std::iter::repeat_n(0, count + 2).collect();
        for of in parent.iter().filter_map(|&of| inside(of)) {
            first[of + 2] += 1;
        }
        for place in 2..first.len() {
            first[place] += first[place - 1];
        }
        // `first[of + 1]` is where the next child goes; when all are placed, it is where the next parent's begin.
        let mut rows = vec![0; first[count + 1] as usize];
        for (row, of) in parent
            .iter()
            .enumerate()
            .filter_map(|(row, &of)| Some((row, inside(of)?)))
        {
            rows[first[of + 1] as usize] = row as u32;
            first[of + 1] += 1;
        }
        Self { first, rows }
    }

    /// The children of a row.
    pub fn of(&self, row: usize) -> &[u32] {
        &self.rows[self.first[row] as usize..self.first[row + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_those_that_name_the_row_in_order() {
        let children = Children::new(&[-1, 0, 3, -1, 0, 9]);
        let of: Vec<&[u32]> = (0..6).map(|row| children.of(row)).collect();
        assert_eq!(of, [&[1, 4][..], &[], &[], &[2], &[], &[]]);
        assert!(Children::new(&[]).rows.is_empty());
    }
}
