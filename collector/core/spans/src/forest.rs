//! The root of each row, and the row's depth below it.

use twintap_columns::output_table;

output_table! {
    /// One value a row.
    pub struct Forest {
        root: i64,
        depth: i64,
    }
}

/// Follow every row's parents to its root. Each row is visited once, however long the chains are.
///
/// # Panics
/// If parents lead in a circle, or to no row.
pub fn forest(parent: &[i64]) -> Forest {
    const UNKNOWN: i64 = -1;
    let count = parent.len();
    let mut found = Forest {
        root: vec![UNKNOWN; count],
        depth: vec![0; count],
    };
    let mut chain: Vec<usize> = Vec::new();
    for row in 0..count {
        let mut at = row;
        while found.root[at] == UNKNOWN && parent[at] >= 0 {
            assert!(chain.len() < count, "parents lead in a circle");
            chain.push(at);
            at = parent[at] as usize;
        }
        if found.root[at] == UNKNOWN {
            found.root[at] = at as i64;
        }
        let (root, mut depth) = (found.root[at], found.depth[at]);
        while let Some(below) = chain.pop() {
            depth += 1;
            (found.root[below], found.depth[below]) = (root, depth);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_where_the_parents_end() {
        let found = forest(&[-1, 0, 1, -1, 2, 3]);
        assert_eq!(found.root, [0, 0, 0, 3, 0, 3]);
        assert_eq!(found.depth, [0, 1, 2, 0, 3, 1]);
    }

    #[test]
    #[should_panic(expected = "circle")]
    fn a_circle_is_no_forest() {
        forest(&[1, 0]);
    }
}
