//! Classes of calls: calls to one service, of one method where heads are visible, and of similar sizes.
//!
//! The bytes of request and response are put into cells of half an octave; cells that touch, or nearly touch, are one
//! class. So reads of 1 to 64 KiB are one class, and writes another, where only sizes distinguish them.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::NONE;
use crate::dialogues::Call;
use crate::tuning::TUNING;

/// ((service, method), half octaves of request bytes, half octaves of response bytes).
type Cell = ((i64, i64), i32, i32);

fn half_octave(bytes: i64) -> i32 {
    let value = bytes.max(0) as u64 + 1;
    let top = 63 - value.leading_zeros() as i32;
    2 * top + i32::from(top > 0 && value >> (top - 1) & 1 == 1)
}

fn cell(call: &Call, methods: &HashSet<i64>) -> Cell {
    let method = if methods.contains(&call.service) {
        call.method
    } else {
        NONE
    };
    (
        (call.service, method),
        half_octave(call.request_bytes),
        half_octave(call.response_bytes),
    )
}

/// Services of which nearly all calls show a method. Where heads are lost now and then, calls with a method are like
/// those without.
fn with_methods(calls: &[Call]) -> HashSet<i64> {
    let mut seen: HashMap<i64, (usize, usize)> = HashMap::new();
    for call in calls {
        let (all, shown) = seen.entry(call.service).or_default();
        *all += 1;
        *shown += usize::from(call.method != NONE);
    }
    let nearly_all = |(_, (all, shown)): &(i64, (usize, usize))| (all - shown) * TUNING.lost_heads_ratio <= *all;
    seen.into_iter()
        .filter(nearly_all)
        .map(|(service, _)| service)
        .collect()
}

/// The class of each call.
pub fn classes(calls: &[Call]) -> Vec<u16> {
    let methods = with_methods(calls);
    let cells: Vec<Cell> = calls.iter().map(|call| cell(call, &methods)).collect();
    let mut counts: BTreeMap<Cell, usize> = BTreeMap::new();
    let mut of_service: HashMap<(i64, i64), usize> = HashMap::new();
    for cell in &cells {
        *counts.entry(*cell).or_default() += 1;
        *of_service.entry(cell.0).or_default() += 1;
    }
    let common =
        |(cell, count): &(&Cell, &usize)| **count >= 2.max(of_service[&cell.0] / TUNING.common_cell_calls_ratio);
    let common: Vec<Cell> = counts.iter().filter(common).map(|(cell, _)| *cell).collect();
    let number = class_numbers(&counts, &common);
    cells.iter().map(|cell| number[cell]).collect()
}

/// The class of each cell: common cells that touch share one; a rare cell joins the nearest common one of its service.
fn class_numbers(counts: &BTreeMap<Cell, usize>, common: &[Cell]) -> HashMap<Cell, u16> {
    let mut number: HashMap<Cell, u16> = HashMap::new();
    let mut next = 0;
    for &cell in common {
        if !number.contains_key(&cell) {
            flood(cell, common, next, &mut number);
            next += 1;
        }
    }
    for &cell in counts.keys() {
        if common.binary_search(&cell).is_err() {
            let far = |other: &&Cell| (other.1 - cell.1).abs() + (other.2 - cell.2).abs();
            let near = common.iter().filter(|other| other.0 == cell.0).min_by_key(far);
            let class = near.map_or(next, |near| number[near]);
            next += u16::from(near.is_none());
            number.insert(cell, class);
        }
    }
    number
}

fn flood(from: Cell, common: &[Cell], class: u16, number: &mut HashMap<Cell, u16>) {
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        if number.contains_key(&at) || common.binary_search(&at).is_err() {
            continue;
        }
        number.insert(at, class);
        for (request, response) in (-TUNING.class_reach_cells..=TUNING.class_reach_cells)
            .flat_map(|q| (-TUNING.class_reach_cells..=TUNING.class_reach_cells).map(move |r| (q, r)))
        {
            if request.abs() + response.abs() <= TUNING.class_reach_cells {
                open.push((at.0, at.1 + request, at.2 + response));
            }
        }
    }
}
