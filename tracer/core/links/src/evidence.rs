//! What links look like, learned by counting: delays before and after a call, and byte counts that pass through.
//!
//! Each table gives the logarithm of how much more often a value is seen in links than in possible pairs (a call and a
//! request that was open when it began). What does not tell them apart gives 0, so no table is tuned to any protocol.

use std::collections::HashMap;

use crate::problem::{Child, Slot};

const BINS: usize = 400;
const MIDDLE: usize = BINS / 2;
/// A triangle over seven bins, nearly two octaves: what a few hundred links can tell.
const KERNEL: [f64; 7] = [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05];
/// Links that a table must be worth before it is believed.
const PRIOR_LINKS: f64 = 3.0;
const LEAST_SCORE: f64 = -8.0;
const MOST_SCORE: f64 = 8.0;
/// A difference seen in fewer links is not usual: were it counted, links would be evidence of themselves.
const SEVERAL: f64 = 4.0;
/// Differences kept apart in a table; those beyond share a cell with another.
const MOST_DIFFERENCES: usize = 4096;

/// Signed logarithmic bins, four to the octave, from about 1 us on.
#[inline]
fn bin(delay_ns: i64) -> usize {
    let value = (delay_ns.unsigned_abs() >> 10) + 4;
    let top = 63 - value.leading_zeros() as usize;
    let place = ((top - 2) * 4 + ((value >> (top - 2)) & 3) as usize).min(MIDDLE - 1);
    if delay_ns < 0 {
        MIDDLE - 1 - place
    } else {
        MIDDLE + place
    }
}

/// Delays and differences of bytes, counted for one class of requests.
#[derive(Clone, Debug)]
struct Counts {
    delays: [Vec<f64>; 2],
    bytes: [HashMap<i64, f64>; 2],
}

/// What is compared of a pair: two delays, two differences of byte counts.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    delays: [u32; 2],
    bytes: [i64; 2],
}

impl Pair {
    #[inline]
    pub fn new(slot: &Slot, child: &Child) -> Self {
        Pair {
            delays: [
                bin(child.start_ns - slot.open_ns) as u32,
                bin(slot.out_ns - child.end_ns) as u32,
            ],
            bytes: [
                slot.request_bytes - child.request_bytes,
                slot.response_bytes - child.response_bytes,
            ],
        }
    }
}

/// Counts of pairs, by the class of the request.
#[derive(Clone, Debug)]
pub struct Sample(Vec<Counts>);

impl Sample {
    pub fn new(classes: usize) -> Self {
        let counts = Counts {
            delays: [vec![0.0; BINS], vec![0.0; BINS]],
            bytes: [HashMap::new(), HashMap::new()],
        };
        Sample(vec![counts; classes])
    }

    pub fn add(&mut self, class: u32, pair: Pair, weight: f64) {
        let counts = &mut self.0[class as usize];
        for side in 0..2 {
            counts.delays[side][pair.delays[side] as usize] += weight;
            *counts.bytes[side].entry(pair.bytes[side]).or_default() += weight;
        }
    }
}

/// Scores of pairs, by the class of the request.
#[derive(Clone, Debug)]
pub struct Evidence(Vec<Tables>);

#[derive(Clone, Debug)]
struct Tables {
    delays: [Vec<f32>; 2],
    bytes: [Differences; 2],
}

impl Evidence {
    /// What `linked` pairs show that `possible` ones do not.
    pub fn learn(linked: &Sample, possible: &Sample) -> Self {
        let tables = |(linked, possible): (&Counts, &Counts)| Tables {
            delays: [0, 1].map(|side| delay_scores(&linked.delays[side], &possible.delays[side])),
            bytes: [0, 1].map(|side| Differences::learn(&linked.bytes[side], &possible.bytes[side])),
        };
        Evidence(linked.0.iter().zip(&possible.0).map(tables).collect())
    }

    #[inline]
    pub fn score(&self, class: u32, pair: Pair) -> f32 {
        let tables = &self.0[class as usize];
        tables.delays[0][pair.delays[0] as usize]
            + tables.delays[1][pair.delays[1] as usize]
            + tables.bytes[0].score(pair.bytes[0])
            + tables.bytes[1].score(pair.bytes[1])
    }
}

fn smoothed(counts: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; counts.len()];
    for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        for (offset, weight) in KERNEL.iter().enumerate() {
            let to = (place + offset).saturating_sub(KERNEL.len() / 2).min(counts.len() - 1);
            out[to] += weight * count;
        }
    }
    out
}

fn delay_scores(linked: &[f64], possible: &[f64]) -> Vec<f32> {
    let (linked, possible) = (smoothed(linked), smoothed(possible));
    let (links, pairs): (f64, f64) = (linked.iter().sum(), possible.iter().sum());
    let score = |(&link, &pair): (&f64, &f64)| {
        let usual = (pair + link + 0.05) / (pairs + links + 0.05 * BINS as f64);
        log_ratio(link, links, usual)
    };
    linked.iter().zip(&possible).map(score).collect()
}

fn log_ratio(count: f64, links: f64, usual: f64) -> f32 {
    let found = (count + PRIOR_LINKS * usual) / (links + PRIOR_LINKS);
    (found / usual).ln().clamp(LEAST_SCORE, MOST_SCORE) as f32
}

/// Scores of exact differences, in a table of a power of two.
#[derive(Clone, Debug, Default)]
struct Differences {
    cells: Vec<(i64, f32)>,
    otherwise: f32,
}

impl Differences {
    fn learn(linked: &HashMap<i64, f64>, possible: &HashMap<i64, f64>) -> Self {
        let (links, pairs): (f64, f64) = (linked.values().sum(), possible.values().sum());
        let mut known: Vec<(i64, f64, f64)> = linked
            .iter()
            .filter(|(_, count)| **count >= SEVERAL)
            .map(|(&difference, &count)| (difference, count, count + possible.get(&difference).unwrap_or(&0.0)))
            .collect();
        if known.is_empty() || possible.len() <= 1 {
            return Differences::default();
        }
        known.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let (told, all) = known.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
        let otherwise = log_ratio(links - told, links, (pairs + links - all + 1.0) / (pairs + links + 1.0));
        let size = (2 * known.len()).next_power_of_two().clamp(16, MOST_DIFFERENCES);
        let mut table = Differences {
            cells: vec![(i64::MIN, otherwise); size],
            otherwise,
        };
        for (difference, count, seen) in known {
            let score = log_ratio(count, links, (seen + 1.0) / (pairs + links + 1.0));
            let cell = table.cell(difference);
            table.cells[cell] = (difference, score);
        }
        table
    }

    #[inline]
    fn cell(&self, difference: i64) -> usize {
        // 2^64 over the golden ratio (Knuth, TAOCP 3, section 6.4)
        (difference as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 40 & (self.cells.len() - 1)
    }

    #[inline]
    fn score(&self, difference: i64) -> f32 {
        if self.cells.is_empty() {
            return 0.0;
        }
        let (kept, score) = self.cells[self.cell(difference)];
        if kept == difference { score } else { self.otherwise }
    }
}
