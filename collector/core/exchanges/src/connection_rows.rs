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
pub enum Places {
    /// Ids are consecutive, from `first` on, as a partition's are before its connections are divided at gaps.
    Consecutive { first: i64, count: u32 },
    /// Any others.
    ById(FxHashMap<i64, u32>),
}

impl Places {
    /// The place of each id; that of its first occurrence if it occurs twice.
    pub fn of(ids: &[i64]) -> Self {
        let first = ids.first().copied().unwrap_or(0);
        let count = ids.len() as u32;
        if (0..i64::from(count))
            .zip(ids)
            .all(|(place, id)| id.checked_sub(first) == Some(place))
        {
            return Self::Consecutive { first, count };
        }
        let mut places = FxHashMap::with_capacity_and_hasher(ids.len(), Default::default());
        for (id, place) in ids.iter().zip(0..) {
            places.entry(*id).or_insert(place);
        }
        Self::ById(places)
    }

    fn get(&self, id: i64) -> Option<u32> {
        match self {
            Self::Consecutive { first, count } => {
                let place = u32::try_from(id.checked_sub(*first)?).ok()?;
                (place < *count).then_some(place)
            }
            Self::ById(places) => places.get(&id).copied(),
        }
    }
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
            if let Some(place) = places.get(run[0]) {
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
        let places = Places::of(&[7, 3, 5, 7]);
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

    #[test]
    fn places_of_consecutive_ids_need_no_table() {
        let places = Places::of(&[7, 8, 9]);
        assert!(matches!(places, Places::Consecutive { .. }));
        let found = [i64::MIN, 6, 7, 9, 10, i64::MAX].map(|id| places.get(id));
        assert_eq!(found, [None, None, Some(0), Some(2), None, None]);
        assert_eq!(Places::of(&[7, 9]).get(9), Some(1));
        assert_eq!(Places::of(&[]).get(0), None);
    }
}
