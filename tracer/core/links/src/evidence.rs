//! What links look like, learned by counting: delays before and after a call, byte counts that pass through, and words of
//! targets that are shared ([`crate::words`]).
//!
//! Each table gives the logarithm of how much more often a value is seen in links than in possible pairs (a call and a
//! request that was open when it began). What does not tell them apart gives 0, so no table is tuned to any protocol.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::problem::{Child, Slot};
use crate::words::{PATTERNS, UNSEEN_WORDS, shared};

const BINS: usize = 400;
const MIDDLE: usize = BINS / 2;
/// A triangle over seven bins, nearly two octaves: what a few hundred links can tell.
const KERNEL: [f64; 7] = [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05];
/// Of a delay, what is counted in its own bin.
pub const IN_ITS_BIN: f64 = KERNEL[KERNEL.len() / 2];
/// Links that a table must be worth before it is believed.
const PRIOR_LINKS: f64 = 3.0;
const LEAST_SCORE: f64 = -8.0;
const MOST_SCORE: f64 = 8.0;
/// In place of a difference that says nothing.
const UNKNOWN: i64 = i64::MIN;
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

/// How long the delays of a bin are apart.
fn width_ns(bin: usize) -> f64 {
    let place = if bin < MIDDLE { MIDDLE - 1 - bin } else { bin - MIDDLE };
    1024.0 * 2f64.powi(place as i32 / 4)
}

/// The bin, of so many, of a time that is not negative.
pub fn log_bin(gap_ns: i64, bins: usize) -> usize {
    (bin(gap_ns.max(0)) - MIDDLE).min(bins - 1)
}

/// The shortest time, in ns, of a bin of such times.
pub fn log_lower_ns(log_bin: usize) -> f64 {
    let (octave, part) = (log_bin / 4, log_bin % 4);
    1024.0 * ((4 + part) as f64 * 2f64.powi(octave as i32) - 4.0)
}

/// Logarithm of how long, in ns, the times of such a bin are apart.
pub fn log_width(log_bin: usize) -> f64 {
    width_ns(MIDDLE + log_bin).ln()
}

/// Counts of differences, of a hash that is quick and always the same.
type Tally = HashMap<i64, f64, BuildHasherDefault<Mixer>>;

#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_i64(byte.into()));
    }

    fn write_i64(&mut self, value: i64) {
        // 2^64 over the golden ratio (Knuth, TAOCP 3, section 6.4)
        self.0 = (self.0 ^ value as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Delays and differences of bytes, counted for one class of requests.
#[derive(Clone, Debug)]
struct Counts {
    delays: [Vec<f64>; 2],
    bytes: [Tally; 2],
    words: Vec<f64>,
}

/// What is compared of a pair: two delays, two differences of byte counts, the words of targets.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    delays: [u32; 2],
    bytes: [i64; 2],
    words: u8,
}

impl Pair {
    #[inline]
    pub fn new(slot: &Slot, child: &Child) -> Self {
        let differences = [
            slot.request_bytes - child.request_bytes,
            slot.response_bytes - child.response_bytes,
        ];
        Pair {
            delays: [
                bin(child.start_ns - slot.open_ns) as u32,
                bin(slot.out_ns - child.end_ns) as u32,
            ],
            bytes: if child.is_cut { [UNKNOWN; 2] } else { differences },
            words: shared(&child.words, &slot.words),
        }
    }

    /// The same for a server that takes one thing after another: on sides that are `queued`, delays since the cause, or
    /// since the action before if that was later.
    #[inline]
    pub fn queued(slot: &Slot, child: &Child, queued: [bool; 2]) -> Self {
        let mut pair = Pair::new(slot, child);
        if queued[0] {
            pair.delays[0] = bin(child.start_ns - slot.open_ns.max(child.before_ns)) as u32;
        }
        if queued[1] {
            pair.delays[1] = bin(slot.out_ns - child.end_ns.max(slot.before_ns)) as u32;
        }
        pair
    }
}

/// Counts of pairs, by the class of the request.
#[derive(Clone, Debug)]
pub struct Sample(Vec<Counts>);

impl Sample {
    pub fn new(classes: usize) -> Self {
        let counts = Counts {
            delays: [vec![0.0; BINS], vec![0.0; BINS]],
            bytes: [Tally::default(), Tally::default()],
            words: vec![0.0; PATTERNS],
        };
        Sample(vec![counts; classes])
    }

    pub fn add(&mut self, class: u32, pair: Pair, weight: f64) {
        let counts = &mut self.0[class as usize];
        for side in 0..2 {
            counts.delays[side][pair.delays[side] as usize] += weight;
            if pair.bytes[side] != UNKNOWN {
                *counts.bytes[side].entry(pair.bytes[side]).or_default() += weight;
            }
        }
    }
}

impl Sample {
    /// Counts the words of a pair: among links, links; among possible pairs, all of them. Those of the one that are none of
    /// the other show what is shared by chance.
    pub fn add_words(&mut self, class: u32, pair: Pair, weight: f64) {
        self.0[class as usize].words[pair.words as usize] += weight;
    }
}

/// On which sides delays are those of a queue, by the class of the request.
pub type Queued = Vec<[bool; 2]>;

/// Scores of pairs, by the class of the request.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    tables: Vec<Tables>,
    pub queued: Queued,
}

#[derive(Clone, Debug)]
struct Tables {
    delays: [Vec<f32>; 2],
    bytes: [Differences; 2],
    words: Vec<f32>,
}

impl Evidence {
    /// What `linked` pairs show that `possible` ones do not.
    pub fn learn(linked: &Sample, possible: &Sample) -> Self {
        Evidence::learn_queued(linked, possible, vec![[false; 2]; linked.0.len()])
    }

    /// The same of pairs whose delays are, on some sides, those of a queue.
    pub fn learn_queued(linked: &Sample, possible: &Sample, queued: Queued) -> Self {
        let tables = |(linked, possible): (&Counts, &Counts)| Tables {
            delays: [0, 1].map(|side| delay_scores(&linked.delays[side], &possible.delays[side], 0.0)),
            bytes: [0, 1].map(|side| Differences::learn(&linked.bytes[side], &possible.bytes[side], 0.0)),
            words: word_scores(&linked.words, &possible.words, 0.0),
        };
        Evidence {
            tables: linked.0.iter().zip(&possible.0).map(tables).collect(),
            queued,
        }
    }

    /// The same, with delays as densities: the logarithm of how many there are in `scales_ns` of time before and after
    /// the call. Only these can be compared between ways to link all calls: what is usual differs from pair to pair.
    ///
    /// Scores are for pairs that have such a weight among the linked ones themselves (0 for others): what a pair shows of
    /// itself is no evidence for it, and of few links that is much.
    pub fn learn_densities(linked: &Sample, possible: &Sample, scales_ns: [f64; 2], own: f64) -> Self {
        let tables = |(linked, possible): (&Counts, &Counts)| Tables {
            delays: [0, 1].map(|side| densities(&linked.delays[side], &possible.delays[side], scales_ns[side], own)),
            bytes: [0, 1].map(|side| Differences::learn(&linked.bytes[side], &possible.bytes[side], own)),
            words: word_scores(&linked.words, &possible.words, own),
        };
        Evidence {
            tables: linked.0.iter().zip(&possible.0).map(tables).collect(),
            queued: vec![[false; 2]; linked.0.len()],
        }
    }

    /// What is compared of a pair, delays as they were learned.
    #[inline]
    pub fn pair(&self, slot: &Slot, child: &Child) -> Pair {
        Pair::queued(slot, child, self.queued[slot.class as usize])
    }

    /// The part of the score that is the delay on one side.
    #[inline]
    pub fn delay(&self, class: u32, pair: Pair, side: usize) -> f32 {
        self.tables[class as usize].delays[side][pair.delays[side] as usize]
    }

    /// The part of the score that is no delay: byte counts and words.
    pub fn contents(&self, class: u32, pair: Pair) -> f32 {
        let tables = &self.tables[class as usize];
        tables.bytes[0].score(pair.bytes[0]) + tables.bytes[1].score(pair.bytes[1]) + self.words(class, pair)
    }

    /// The part of the score that is shared words.
    #[inline]
    pub fn words(&self, class: u32, pair: Pair) -> f32 {
        self.tables[class as usize].words[pair.words as usize]
    }

    #[inline]
    pub fn score(&self, class: u32, pair: Pair) -> f32 {
        let tables = &self.tables[class as usize];
        tables.delays[0][pair.delays[0] as usize]
            + tables.delays[1][pair.delays[1] as usize]
            + tables.bytes[0].score(pair.bytes[0])
            + tables.bytes[1].score(pair.bytes[1])
            + tables.words[pair.words as usize]
    }
}

/// Densities of gaps, which count `own` themselves, learned from them beside the delays that are `possible` on that side of a call.
pub fn gap_densities(gaps_ns: &[i64], possible: &Sample, side: usize, scale_ns: f64, own: f64) -> GapDensities {
    let (mut linked, mut all) = (vec![0.0; BINS], vec![0.0; BINS]);
    gaps_ns.iter().for_each(|&gap| linked[bin(gap)] += 1.0);
    for counts in &possible.0 {
        all.iter_mut()
            .zip(&counts.delays[side])
            .for_each(|(sum, count)| *sum += count);
    }
    GapDensities(densities(&linked, &all, scale_ns, own))
}

pub struct GapDensities(Vec<f32>);

impl GapDensities {
    pub fn of(&self, gap_ns: i64) -> f32 {
        self.0[bin(gap_ns)]
    }
}

/// Mean logarithm of how dense such delays are, per ns.
pub fn mean_density(delays_ns: impl Iterator<Item = i64>) -> f64 {
    let mut counts = vec![0.0; BINS];
    delays_ns.for_each(|delay_ns| counts[bin(delay_ns)] += 1.0);
    let all: f64 = counts.iter().sum();
    let smooth = smoothed(&counts);
    let log = |(bin, (count, smooth)): (usize, (&f64, &f64))| {
        if *count > 0.0 {
            count * (smooth / all / width_ns(bin)).ln()
        } else {
            0.0
        }
    };
    counts.iter().zip(&smooth).enumerate().map(log).sum::<f64>() / all.max(1.0)
}

pub fn smoothed(counts: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; counts.len()];
    for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        for (offset, weight) in KERNEL.iter().enumerate() {
            let to = (place + offset).saturating_sub(KERNEL.len() / 2).min(counts.len() - 1);
            out[to] += weight * count;
        }
    }
    out
}

/// Scores of delays that count `own` among the linked ones.
fn delay_scores(linked: &[f64], possible: &[f64], own: f64) -> Vec<f32> {
    let (linked, possible) = (smoothed(linked), smoothed(possible));
    let links: f64 = linked.iter().sum();
    let score =
        |(&link, usual): (&f64, f64)| log_ratio((link - own * IN_ITS_BIN).max(0.0), (links - own).max(0.0), usual);
    linked.iter().zip(usual(&linked, &possible)).map(score).collect()
}

/// The share of each bin among pairs of both kinds.
fn usual(linked: &[f64], possible: &[f64]) -> Vec<f64> {
    let all: f64 = linked.iter().chain(possible).sum::<f64>() + 0.05 * BINS as f64;
    linked
        .iter()
        .zip(possible)
        .map(|(link, pair)| (link + pair + 0.05) / all)
        .collect()
}

/// Logarithms of how many delays of each bin there are in `scale_ns`.
fn densities(linked: &[f64], possible: &[f64], scale_ns: f64, own: f64) -> Vec<f32> {
    let scores = delay_scores(linked, possible, own);
    let usual = usual(&smoothed(linked), &smoothed(possible));
    let density = |(bin, (score, usual)): (usize, (f32, f64))| score + (usual * scale_ns / width_ns(bin)).ln() as f32;
    scores.into_iter().zip(usual).enumerate().map(density).collect()
}

/// Scores of patterns of words that count `own` among the linked ones: how much likelier they are in links than by chance, so
/// that a call that shares much with a request is nobody's own.
fn word_scores(linked: &[f64], possible: &[f64], own: f64) -> Vec<f32> {
    let seen = UNSEEN_WORDS as usize + 1;
    let links: f64 = linked[seen..].iter().sum();
    let others = |pattern: usize| (possible[pattern] - linked[pattern]).max(0.0);
    let pairs: f64 = (seen..PATTERNS).map(others).sum();
    let score = |pattern: usize| {
        let by_chance = (others(pattern) + 0.05) / (pairs + 0.05 * PATTERNS as f64);
        log_ratio((linked[pattern] - own).max(0.0), (links - own).max(0.0), by_chance)
    };
    let mut scores = vec![0.0; PATTERNS];
    if pairs > 0.0 {
        (seen..PATTERNS).for_each(|pattern| scores[pattern] = score(pattern));
    }
    scores
}

/// Logarithm of how much more frequent something is among links than usual, of its count among them.
pub fn log_ratio(count: f64, links: f64, usual: f64) -> f32 {
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
    /// Scores of differences that count `own` among the linked ones.
    fn learn(linked: &Tally, possible: &Tally, own: f64) -> Self {
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
            let score = log_ratio(
                count - own,
                (links - own).max(0.0),
                (seen + 1.0) / (pairs + links + 1.0),
            );
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
        if self.cells.is_empty() || difference == UNKNOWN {
            return 0.0;
        }
        let (kept, score) = self.cells[self.cell(difference)];
        if kept == difference { score } else { self.otherwise }
    }
}
