//! Finds the parent of an exchange by a transaction id that both of them show.
//!
//! The candidates are the exchanges with the same id that the child's client had received, as a server, before it sent
//! the child's request. A single candidate is certain. Of several, those still open when the child began are preferred,
//! then those whose service is known to call the child's service, then the innermost, which began last.
//!
//! Cost: a look-up in a table of ids for each exchange; then, on all cores, a search among the exchanges that show its
//! id, and a pass over its candidates, of which there are no more than a given number.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use twintap_columns::{input_table, output_table};

use crate::{NONE, UNSEEN};

/// Ids that a thread handles at a time.
const IDS_AT_ONCE: usize = 512;

input_table! {
    /// Columns of the exchanges: hosts and services as numbers, -1 where not known; times in ns, `UNSEEN` where not.
    pub struct Exchanges {
        exchange_id: i64,
        /// A transaction id as a number; 0 for none.
        shown_id: u64,
        client_host: i32,
        server_host: i32,
        service: i32,
        /// When the first byte of the request left (or arrived, if that is all that was seen).
        asked_ns: i64,
        /// When it arrived (or left, if that is all that was seen).
        opened_ns: i64,
        /// When the server had finished it.
        closed_ns: i64,
    }
}

output_table! {
    /// One value an exchange.
    pub struct Links {
        /// A row, or `NONE`.
        parent: i64,
        /// 0 without a parent.
        confidence: f64,
        /// Whether it shows an id that identifies it: not one that too many exchanges of one server share.
        shows_id: bool,
    }
}

type Call = (i32, i32);

impl Exchanges<'_> {
    /// Whether the request of `parent` had arrived before that of `child` left, and began before it, so that links form
    /// no circle.
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

/// Link every exchange that shows an id to an exchange at its client's host that shows the same id. An id that more
/// than `most_with_one_id` exchanges show at one host is ignored.
pub fn link(exchanges: &Exchanges, most_with_one_id: u32) -> Links {
    let shown = RowsById::new(exchanges.shown_id);
    let ranges: Vec<PartialLinks> = (0..shown.count().div_ceil(IDS_AT_ONCE))
        .into_par_iter()
        .map(|range| {
            let ids = range * IDS_AT_ONCE..shown.count().min((range + 1) * IDS_AT_ONCE);
            let mut found = PartialLinks::default();
            ids.for_each(|id| found.link_one(exchanges, shown.rows(id), most_with_one_id));
            found
        })
        .collect();
    let count = exchanges.exchange_id.len();
    let mut links = Links {
        parent: vec![NONE; count],
        confidence: vec![0.0; count],
        shows_id: exchanges.shown_id.iter().map(|&id| id != 0).collect(),
    };
    let mut calls: FxHashSet<Call> = FxHashSet::default();
    for range in &ranges {
        range
            .shared_id
            .iter()
            .for_each(|&row| links.shows_id[row as usize] = false);
        calls.extend(range.calls.iter().filter(|call| call.0 >= 0 && call.1 >= 0));
        for &(child, parent) in &range.certain {
            (links.parent[child as usize], links.confidence[child as usize]) = (parent.into(), 1.0);
        }
    }
    for (child, mut candidates) in ranges.into_iter().flat_map(|range| range.several) {
        let child = child as usize;
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
    links
}

/// The rows that show each id, in their order. Ids are in the order of their first row, so that rows that are near each
/// other in time are near each other in memory.
struct RowsById {
    /// Rows of id n: `rows[first[n]..first[n + 1]]`.
    first: Vec<u32>,
    rows: Vec<u32>,
}

impl RowsById {
    fn new(shown_id: &[u64]) -> Self {
        let mut number_of: FxHashMap<u64, u32> = FxHashMap::default();
        let mut sizes: Vec<u32> = Vec::new();
        let mut numbers: Vec<(u32, u32)> = Vec::new();
        for (row, &id) in shown_id.iter().enumerate().filter(|(_, id)| **id != 0) {
            let next = sizes.len() as u32;
            let number = *number_of.entry(id).or_insert(next);
            if number == next {
                sizes.push(0);
            }
            sizes[number as usize] += 1;
            numbers.push((number, row as u32));
        }
        let mut first = vec![0; sizes.len() + 1];
        for (number, size) in sizes.iter().enumerate() {
            first[number + 1] = first[number] + size;
        }
        let mut next = first.clone();
        let mut rows = vec![0; numbers.len()];
        for (number, row) in numbers {
            rows[next[number as usize] as usize] = row;
            next[number as usize] += 1;
        }
        Self { first, rows }
    }

    fn count(&self) -> usize {
        self.first.len() - 1
    }

    fn rows(&self, id: usize) -> &[u32] {
        &self.rows[self.first[id] as usize..self.first[id + 1] as usize]
    }
}

/// Links of the exchanges that show some ids.
#[derive(Default)]
struct PartialLinks {
    /// Children and parents of certain links.
    certain: Vec<(u32, u32)>,
    /// Children with several candidates, and these.
    several: Vec<(u32, Vec<u32>)>,
    /// Services of caller and callee of certain links.
    calls: FxHashSet<Call>,
    /// Exchanges whose id too many exchanges of one server share.
    shared_id: Vec<u32>,
    /// The exchanges of the current id by server.
    by_server: Vec<(i32, u32)>,
}

impl PartialLinks {
    /// Link the exchanges `rows`, which show one id, to each other.
    fn link_one(&mut self, exchanges: &Exchanges, rows: &[u32], most_with_one_id: u32) {
        self.by_server.clear();
        let server = |&row: &u32| (exchanges.server_host[row as usize], row);
        self.by_server.extend(rows.iter().map(server));
        self.by_server.sort_unstable();
        let mut of_servers = self.by_server.chunk_by(|one, other| one.0 == other.0);
        if of_servers.any(|of_server| of_server.len() > most_with_one_id as usize) {
            self.shared_id.extend(rows);
            return;
        }
        self.by_server
            .retain(|&(host, row)| host >= 0 && exchanges.opened_ns[row as usize] != UNSEEN);
        let mut candidates = Vec::new();
        for &child in rows {
            self.candidates(exchanges, child as usize, &mut candidates);
            match candidates[..] {
                [] => {}
                [parent] => {
                    self.calls.insert(exchanges.call(parent as usize, child as usize));
                    self.certain.push((child, parent));
                }
                _ => self.several.push((child, candidates.clone())),
            }
        }
    }

    /// The exchanges that may have made `child`.
    fn candidates(&self, exchanges: &Exchanges, child: usize, found: &mut Vec<u32>) {
        found.clear();
        let host = exchanges.client_host[child];
        if host < 0 || exchanges.asked_ns[child] == UNSEEN {
            return;
        }
        let from = self.by_server.partition_point(|&(server, _)| server < host);
        let at_host = self.by_server[from..].iter().take_while(|&&(server, _)| server == host);
        let may_be = |&row: &u32| {
            let parent = row as usize;
            // A request of a host to itself that has ended is no parent: it is an earlier request of a daemon.
            let sibling = !exchanges.is_open(parent, child) && exchanges.client_host[parent] == host;
            exchanges.is_possible(parent, child) && !sibling
        };
        found.extend(at_host.map(|&(_, row)| row).filter(may_be));
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

    fn link_rows(rows: &[Row], most_with_one_id: u32) -> Links {
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
        let found = link_rows(&rows, 256);
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
        let found = link_rows(&rows, 256);
        assert_eq!((found.parent[2], found.confidence[2]), (1, 0.5));
    }

    #[test]
    fn an_id_that_many_show_is_none() {
        let rows = [
            (7, 0, 1, 0, 0, 10, 90),
            (7, 0, 1, 0, 1, 11, 90),
            (7, 1, 2, 1, 20, 22, 60),
        ];
        let found = link_rows(&rows, 1);
        assert_eq!(found.parent, [NONE; 3]);
        assert_eq!(found.shows_id, [false; 3]);
    }
}
