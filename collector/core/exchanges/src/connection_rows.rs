//! Groups rows by their connection.

use rustc_hash::FxHashMap;

/// The rows of each connection, in their order; rows of other connections are left out.
pub struct RowsByConnection {
    /// Where each connection begins and ends among `rows`.
    bounds: Vec<(u32, u32)>,
    /// None if the rows of each connection are contiguous: then `bounds` are numbers of rows.
    rows: Option<Vec<u32>>,
}

/// The place of each connection by its id.
pub type Places = FxHashMap<i64, u32>;

/// The place of each id; that of its first occurrence if it occurs twice.
pub fn places(ids: &[i64]) -> Places {
    let mut places = Places::with_capacity_and_hasher(ids.len(), Default::default());
    for (place, id) in ids.iter().enumerate() {
        places.entry(*id).or_insert(place as u32);
    }
    places
}

impl RowsByConnection {
    /// Group rows by the place of their id, of which there are `count`.
    pub fn by_place(ids: &[i64], places: &Places, count: usize) -> Self {
        let mut bounds = vec![(0, 0); count];
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        let (mut at, mut scattered) = (0, false);
        for run in ids.chunk_by(|one, next| one == next) {
            let start = at;
            at += run.len() as u32;
            if let Some(&place) = places.get(&run[0]) {
                let (_, own_count) = &mut bounds[place as usize];
                scattered |= *own_count > 0;
                *own_count += at - start;
                runs.push((place, start, at));
            }
        }
        if !scattered {
            runs.iter()
                .for_each(|&(place, start, end)| bounds[place as usize] = (start, end));
            return Self { bounds, rows: None };
        }
        let mut end = 0;
        for own in &mut bounds {
            let count = own.1;
            *own = (end, end);
            end += count;
        }
        let mut rows = vec![0; end as usize];
        for (place, start, end) in runs {
            let (_, next) = &mut bounds[place as usize];
            for row in start..end {
                rows[*next as usize] = row;
                *next += 1;
            }
        }
        Self {
            bounds,
            rows: Some(rows),
        }
    }

    /// The rows of the connection at `place`.
    pub fn of(&self, place: usize) -> impl Iterator<Item = usize> + Clone {
        let (start, end) = self.bounds[place];
        let rows = self.rows.as_deref();
        (start..end).map(move |at| rows.map_or(at, |rows| rows[at as usize]) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_runs_and_scattered() {
        let places = places(&[7, 3, 5, 7]);
        let of = |ids: &[i64]| {
            let connection_rows = RowsByConnection::by_place(ids, &places, 4);
            let rows = |place| connection_rows.of(place).collect::<Vec<_>>();
            (connection_rows.rows.is_none(), [0, 1, 2, 3].map(rows))
        };
        assert_eq!(of(&[3, 3, 4, 7]), (true, [vec![3], vec![0, 1], vec![], vec![]]));
        assert_eq!(
            of(&[3, 7, 4, 3, 3, 7]),
            (false, [vec![1, 5], vec![0, 3, 4], vec![], vec![]])
        );
        assert_eq!(of(&[]), (true, [vec![], vec![], vec![], vec![]]));
    }
}
