//! Parents by a transaction id that both ends show; `collector/links.py` says which candidate is taken, and why.
//!
//! Cost: two look-ups in a table of (id, host) for each exchange, and its candidates, no more than a given number.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{NONE, UNSEEN};

/// Columns of the exchanges: hosts and services as numbers, -1 where not known; times in ns, `UNSEEN` where not.
#[derive(Clone, Copy, Debug)]
pub struct Exchanges<'a> {
    pub exchange_id: &'a [i64],
    /// A transaction id as a number; 0 for none.
    pub shown_id: &'a [u64],
    pub client_host: &'a [i32],
    pub server_host: &'a [i32],
    pub service: &'a [i32],
    /// When the first byte of the request left (or arrived, if that is all that was seen).
    pub asked_ns: &'a [i64],
    /// When it arrived (or left, if that is all that was seen).
    pub opened_ns: &'a [i64],
    /// When the server was done with it.
    pub closed_ns: &'a [i64],
}

/// One value an exchange.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// A row, or `NONE`.
    pub parent: Vec<i64>,
    /// 0 without a parent.
    pub confidence: Vec<f64>,
    /// It shows an id, and one that tells something.
    pub shows_id: Vec<bool>,
}

type Call = (i32, i32);

impl Exchanges<'_> {
    /// Whether all columns have one length.
    pub fn is_consistent(&self) -> bool {
        let count = self.exchange_id.len();
        let codes = [self.client_host, self.server_host, self.service];
        let times = [self.asked_ns, self.opened_ns, self.closed_ns];
        codes.iter().all(|column| column.len() == count)
            && times.iter().all(|column| column.len() == count)
            && self.shown_id.len() == count
    }

    /// Whether the request of `parent` was there before that of `child` left, and, so that no circle forms, began before.
    fn is_possible(&self, parent: usize, child: usize) -> bool {
        let began = |row: usize| (self.asked_ns[row], self.exchange_id[row]);
        self.opened_ns[parent] <= self.asked_ns[child] && began(parent) < began(child)
    }

    fn is_open(&self, parent: usize, child: usize) -> bool {
        self.closed_ns[parent] >= self.asked_ns[child]
    }

    fn call(&self, parent: usize, child: usize) -> Call {
        (self.service[parent], self.service[child])
    }
}

/// Link every exchange that shows an id to one at its client's host that shows it, too. An id that more than
/// `most_with_one_id` exchanges show at one host identifies none.
pub fn link(exchanges: &Exchanges, most_with_one_id: u32) -> Links {
    let shown = Shown::new(exchanges, most_with_one_id);
    let count = exchanges.exchange_id.len();
    let mut links = Links {
        parent: vec![NONE; count],
        confidence: vec![0.0; count],
        shows_id: Vec::new(),
    };
    let mut calls: FxHashSet<Call> = FxHashSet::default();
    let mut several: Vec<(usize, Vec<u32>)> = Vec::new();
    let mut candidates = Vec::new();
    for child in 0..count {
        shown.candidates(exchanges, child, &mut candidates);
        match candidates[..] {
            [] => {}
            [parent] => {
                calls.insert(exchanges.call(parent as usize, child));
                (links.parent[child], links.confidence[child]) = (parent.into(), 1.0);
            }
            _ => several.push((child, candidates.clone())),
        }
    }
    calls.retain(|call| call.0 >= 0 && call.1 >= 0);
    for (child, mut candidates) in several {
        let called = |parent: &u32| calls.contains(&exchanges.call(*parent as usize, child));
        if candidates.iter().any(called) {
            candidates.retain(called);
        }
        let innermost = candidates
            .iter()
            .max_by_key(|&&row| (exchanges.opened_ns[row as usize], exchanges.exchange_id[row as usize]));
        links.parent[child] = innermost.map_or(NONE, |&row| row.into());
        links.confidence[child] = 1.0 / candidates.len() as f64;
    }
    links.shows_id = shown.tells;
    links
}

/// Which exchanges show an id at a server.
struct Shown {
    tells: Vec<bool>,
    group_of: FxHashMap<(u64, i32), u32>,
    /// Rows of group n: `rows[first[n]..first[n + 1]]`.
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl Shown {
    fn new(exchanges: &Exchanges, most_with_one_id: u32) -> Self {
        let count = exchanges.exchange_id.len();
        let mut group_of: FxHashMap<(u64, i32), u32> = FxHashMap::default();
        let mut group = vec![u32::MAX; count];
        let mut sizes: Vec<u32> = Vec::new();
        for row in (0..count).filter(|&row| exchanges.shown_id[row] != 0) {
            let next = sizes.len() as u32;
            let key = (exchanges.shown_id[row], exchanges.server_host[row]);
            group[row] = *group_of.entry(key).or_insert(next);
            if group[row] == next {
                sizes.push(0);
            }
            sizes[group[row] as usize] += 1;
        }
        let many = |number: u32| sizes[number as usize] > most_with_one_id;
        let constants: FxHashSet<u64> = if sizes.iter().any(|&size| size > most_with_one_id) {
            let of_many = group_of.iter().filter(|&(_, &number)| many(number));
            of_many.map(|(&(id, _), _)| id).collect()
        } else {
            FxHashSet::default()
        };
        let tells: Vec<bool> = exchanges
            .shown_id
            .iter()
            .map(|id| *id != 0 && !constants.contains(id))
            .collect();
        let serves = |row: usize| tells[row] && exchanges.server_host[row] >= 0 && exchanges.opened_ns[row] != UNSEEN;
        let mut first = vec![0u32; sizes.len() + 2];
        for row in (0..count).filter(|&row| serves(row)) {
            first[group[row] as usize + 2] += 1;
        }
        for place in 2..first.len() {
            first[place] += first[place - 1];
        }
        let mut rows = vec![0; first[sizes.len() + 1] as usize];
        for row in (0..count).filter(|&row| serves(row)) {
            let place = &mut first[group[row] as usize + 1];
            rows[*place as usize] = row as u32;
            *place += 1;
        }
        Self {
            tells,
            group_of,
            first,
            rows,
        }
    }

    /// The exchanges that may have made `child`, by the id that both show.
    fn candidates(&self, exchanges: &Exchanges, child: usize, found: &mut Vec<u32>) {
        found.clear();
        let host = exchanges.client_host[child];
        if !self.tells[child] || host < 0 || exchanges.asked_ns[child] == UNSEEN {
            return;
        }
        let Some(&group) = self.group_of.get(&(exchanges.shown_id[child], host)) else {
            return;
        };
        let rows = &self.rows[self.first[group as usize] as usize..self.first[group as usize + 1] as usize];
        let may_be = |&&row: &&u32| {
            let parent = row as usize;
            // What a host asks of itself and has done with is no parent, but the daemon's request before.
            let sibling = !exchanges.is_open(parent, child) && exchanges.client_host[parent] == host;
            exchanges.is_possible(parent, child) && !sibling
        };
        found.extend(rows.iter().filter(may_be));
        let is_open = |row: &u32| exchanges.is_open(*row as usize, child);
        if found.iter().any(is_open) {
            found.retain(is_open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, client, server, service, asked, opened, closed.
    type Row = (u64, i32, i32, i32, i64, i64, i64);

    fn linked(rows: &[Row], most_with_one_id: u32) -> Links {
        let exchange_id: Vec<i64> = (1..=rows.len() as i64).collect();
        let shown_id: Vec<u64> = rows.iter().map(|row| row.0).collect();
        let codes = |of: fn(&Row) -> i32| rows.iter().map(of).collect::<Vec<_>>();
        let times = |of: fn(&Row) -> i64| rows.iter().map(of).collect::<Vec<_>>();
        let exchanges = Exchanges {
            exchange_id: &exchange_id,
            shown_id: &shown_id,
            client_host: &codes(|row| row.1),
            server_host: &codes(|row| row.2),
            service: &codes(|row| row.3),
            asked_ns: &times(|row| row.4),
            opened_ns: &times(|row| row.5),
            closed_ns: &times(|row| row.6),
        };
        assert!(exchanges.is_consistent());
        link(&exchanges, most_with_one_id)
    }

    #[test]
    fn a_child_is_of_the_open_exchange_at_its_client_that_shows_its_id() {
        let rows = [
            (7, 0, 1, 0, 0, 10, 90),
            (8, 0, 1, 0, 1, 11, 91),
            (7, 1, 2, 1, 20, 22, 60),
            (0, 1, 2, 1, 21, 23, 60),
        ];
        let found = linked(&rows, 256);
        assert_eq!(found.parent, [NONE, NONE, 0, NONE]);
        assert_eq!(found.confidence, [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(found.shows_id, [true, true, true, false]);
    }

    #[test]
    fn of_two_that_may_be_the_innermost_is_half_sure() {
        let rows = [
            (7, 0, 1, 0, 0, 10, 90),
            (7, 0, 1, 0, 1, 11, 90),
            (7, 1, 2, 1, 20, 22, 60),
        ];
        let found = linked(&rows, 256);
        assert_eq!((found.parent[2], found.confidence[2]), (1, 0.5));
    }

    #[test]
    fn an_id_that_many_show_is_none() {
        let rows = [
            (7, 0, 1, 0, 0, 10, 90),
            (7, 0, 1, 0, 1, 11, 90),
            (7, 1, 2, 1, 20, 22, 60),
        ];
        let found = linked(&rows, 1);
        assert_eq!(found.parent, [NONE; 3]);
        assert_eq!(found.shows_id, [false; 3]);
    }
}
