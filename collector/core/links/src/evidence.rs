//! Evidence for links, learned by counting: delays before and after a call, differences of byte counts, and shared
//! words of targets ([`crate::target_words`]).
//!
//! Input: pairs that are linked, and pairs that are possible (a call and a request that was open at its start). Output:
//! tables of log-likelihood ratios: how much more often a value occurs in links than in possible pairs, in nats. A
//! value that does not distinguish the two scores 0, so nothing depends on a protocol.
//!
//! 1. Delays are counted in signed logarithmic bins, four to the octave, and smoothed.
//! 2. A difference of byte counts that several links show is a value of its own; all others are counted by magnitude,
//!    in the same bins.
//! 3. Scores are smoothed by `Tuning::prior_links` and bounded by `Tuning::max_score_nats`.
//!
//! Invariant: with `own` > 0, a pair's score does not contain what that pair itself contributed.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::problem::{Child, Slot};
use crate::target_words::{PATTERNS, UNSEEN_WORDS, shared_pattern};
use crate::tuning::TUNING;

const BINS: usize = 400;
const MIDDLE: usize = BINS / 2;
/// Smoothing kernel: a triangle over seven bins, nearly two octaves. Structural: the shape that a few hundred links can
/// show; it sums up to 1.
const KERNEL: [f64; 7] = [0.05, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05];
/// Weight of a delay in its own bin.
pub const PEAK_WEIGHT: f64 = KERNEL[KERNEL.len() / 2];
/// Stands for a difference that is not known.
const UNKNOWN: i64 = i64::MIN;
/// Cells of a table of differences; a power of two. Bounds the memory: beyond it two differences may share a cell.
const MAX_DIFFERENCES: usize = 4096;

/// Signed logarithmic bin, four to the octave, from about 1 µs on.
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

/// Bin of a difference of bytes, from one byte on.
#[inline]
fn byte_bin(difference: i64) -> usize {
    bin(difference.saturating_mul(1024))
}

/// Width of a bin, in ns.
fn width_ns(bin: usize) -> f64 {
    let place = if bin < MIDDLE { MIDDLE - 1 - bin } else { bin - MIDDLE };
    1024.0 * 2f64.powi(place as i32 / 4)
}

/// The bin of a time that is not negative, of `bins`.
pub fn log_bin(gap_ns: i64, bins: usize) -> usize {
    (bin(gap_ns.max(0)) - MIDDLE).min(bins - 1)
}

/// The shortest time of such a bin, in ns.
pub fn log_lower_ns(log_bin: usize) -> f64 {
    let (octave, part) = (log_bin / 4, log_bin % 4);
    1024.0 * ((4 + part) as f64 * 2f64.powi(octave as i32) - 4.0)
}

/// Logarithm of the width of such a bin, in ns.
pub fn log_width(log_bin: usize) -> f64 {
    width_ns(MIDDLE + log_bin).ln()
}

/// Counts of differences; the hash is fast and the same in each run.
pub type Tally = HashMap<i64, f64, BuildHasherDefault<Mixer>>;

#[derive(Default)]
pub struct Mixer(u64);

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

/// Delays and differences of bytes of one class of requests, counted.
#[derive(Clone, Debug)]
struct Counts {
    delays: [Vec<f64>; 2],
    bytes: [Tally; 2],
    words: Vec<f64>,
}

/// The features of a pair: two delays, two differences of byte counts, the pattern of shared words.
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
                bin(child.start_ns - slot.arrival_ns) as u32,
                bin(slot.response_ns - child.answered_ns) as u32,
            ],
            bytes: if child.is_cut { [UNKNOWN; 2] } else { differences },
            words: shared_pattern(&child.words, &slot.words),
        }
    }

    /// The same where delays on the sides that are `queued` count from the later of the cause and the previous action.
    #[inline]
    pub fn after_queue(slot: &Slot, child: &Child, queued: [bool; 2]) -> Self {
        let mut pair = Pair::new(slot, child);
        if queued[0] {
            pair.delays[0] = bin(child.start_ns - slot.arrival_ns.max(child.previous_ns)) as u32;
        }
        if queued[1] {
            pair.delays[1] = bin(slot.response_ns - child.answered_ns.max(slot.previous_ns)) as u32;
        }
        pair
    }
}

impl Pair {
    /// Nats of its byte counts by these scores.
    pub fn size_score(&self, scores: &[Differences; 2]) -> f32 {
        scores[0].score(self.bytes[0]) + scores[1].score(self.bytes[1])
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
    /// Counts the pattern of words of a pair: among links the links, among possible pairs all of them. Those of the
    /// possible pairs that are no links show what is shared by chance.
    pub fn add_words(&mut self, class: u32, pair: Pair, weight: f64) {
        self.0[class as usize].words[pair.words as usize] += weight;
    }
}

/// For each class of requests: on which sides delays are those of a queue.
pub type QueuedSides = Vec<[bool; 2]>;

/// Scores of pairs, by class of the request.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    tables: Vec<Tables>,
    pub queued: QueuedSides,
}

#[derive(Clone, Debug)]
struct Tables {
    delays: [Vec<f32>; 2],
    bytes: [Differences; 2],
    words: Vec<f32>,
}

impl Evidence {
    /// Evidence that distinguishes `linked` pairs from `possible` ones.
    pub fn learn(linked: &Sample, possible: &Sample) -> Self {
        Evidence::learn_queued(linked, possible, vec![[false; 2]; linked.0.len()])
    }

    /// The same for pairs whose delays on some sides are those of a queue.
    pub fn learn_queued(linked: &Sample, possible: &Sample, queued: QueuedSides) -> Self {
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

    /// The same with delays as log densities per `scales_ns` of time before and after the call. Only densities can be
    /// compared between different ways to link all calls, since what is usual differs from pair to pair.
    ///
    /// `own`: weight that the pairs to be scored have among the linked ones themselves; it is taken out again, since of
    /// few links a pair would be evidence for itself.
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

    /// The features of a pair, with delays as they were learned.
    #[inline]
    pub fn pair(&self, slot: &Slot, child: &Child) -> Pair {
        Pair::after_queue(slot, child, self.queued[slot.class as usize])
    }

    /// Nats of the delay on one side.
    #[inline]
    pub fn delay(&self, class: u32, pair: Pair, side: usize) -> f32 {
        self.tables[class as usize].delays[side][pair.delays[side] as usize]
    }

    /// Nats of byte counts and words.
    pub fn contents(&self, class: u32, pair: Pair) -> f32 {
        let tables = &self.tables[class as usize];
        tables.bytes[0].score(pair.bytes[0]) + tables.bytes[1].score(pair.bytes[1]) + self.words(class, pair)
    }

    /// Nats of shared words.
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

/// Log densities of gaps on a side of calls; each gap weighs `own` in what it is scored by, which is taken out.
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

/// Mean log density of delays, per ns.
pub fn mean_density(delays_ns: impl Iterator<Item = i64>) -> f64 {
    let mut counts = vec![0.0; BINS];
    delays_ns.for_each(|delay_ns| counts[bin(delay_ns)] += 1.0);
    let all: f64 = counts.iter().sum();
    let smooth = smooth(&counts);
    let log = |(bin, (count, smooth)): (usize, (&f64, &f64))| {
        if *count > 0.0 {
            count * (smooth / all / width_ns(bin)).ln()
        } else {
            0.0
        }
    };
    counts.iter().zip(&smooth).enumerate().map(log).sum::<f64>() / all.max(1.0)
}

pub fn smooth(counts: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; counts.len()];
    for (place, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        for (offset, weight) in KERNEL.iter().enumerate() {
            let to = (place + offset).saturating_sub(KERNEL.len() / 2).min(counts.len() - 1);
            out[to] += weight * count;
        }
    }
    out
}

/// Scores of delays that weigh `own` among the linked ones.
fn delay_scores(linked: &[f64], possible: &[f64], own: f64) -> Vec<f32> {
    let (linked, possible) = (smooth(linked), smooth(possible));
    let links: f64 = linked.iter().sum();
    let score =
        |(&link, usual): (&f64, f64)| log_ratio((link - own * PEAK_WEIGHT).max(0.0), (links - own).max(0.0), usual);
    linked.iter().zip(usual(&linked, &possible)).map(score).collect()
}

/// The share of each bin among all pairs.
fn usual(linked: &[f64], possible: &[f64]) -> Vec<f64> {
    let all: f64 = linked.iter().chain(possible).sum::<f64>() + TUNING.prior_pairs_per_bin * BINS as f64;
    linked
        .iter()
        .zip(possible)
        .map(|(link, pair)| (link + pair + TUNING.prior_pairs_per_bin) / all)
        .collect()
}

/// Log densities of delays, per `scale_ns`.
fn densities(linked: &[f64], possible: &[f64], scale_ns: f64, own: f64) -> Vec<f32> {
    let scores = delay_scores(linked, possible, own);
    let usual = usual(&smooth(linked), &smooth(possible));
    let density = |(bin, (score, usual)): (usize, (f32, f64))| score + (usual * scale_ns / width_ns(bin)).ln() as f32;
    scores.into_iter().zip(usual).enumerate().map(density).collect()
}

/// Scores of patterns of words that weigh `own` among the linked ones: how much likelier they are in links than by
/// chance. A call that shares much with no open request then has no parent.
fn word_scores(linked: &[f64], possible: &[f64], own: f64) -> Vec<f32> {
    let seen = UNSEEN_WORDS as usize + 1;
    let links: f64 = linked[seen..].iter().sum();
    let others = |pattern: usize| (possible[pattern] - linked[pattern]).max(0.0);
    let pairs: f64 = (seen..PATTERNS).map(others).sum();
    let score = |pattern: usize| {
        let by_chance =
            (others(pattern) + TUNING.prior_pairs_per_bin) / (pairs + TUNING.prior_pairs_per_bin * PATTERNS as f64);
        log_ratio((linked[pattern] - own).max(0.0), (links - own).max(0.0), by_chance)
    };
    let mut scores = vec![0.0; PATTERNS];
    if pairs > 0.0 {
        (seen..PATTERNS).for_each(|pattern| scores[pattern] = score(pattern));
    }
    scores
}

/// Scores, by magnitude, of differences that are not usual, which weigh `own` among the linked ones; nothing if links
/// are no more alike than possible pairs. Bins with few links share one score, or these links would be evidence for
/// themselves.
fn magnitude_scores(linked: &Tally, possible: &Tally, own: f64) -> Vec<f32> {
    let (mut links, mut pairs) = (vec![0.0; BINS], vec![0.0; BINS]);
    let is_usual = |difference: &i64| {
        linked
            .get(difference)
            .is_some_and(|&count| count >= TUNING.usual_difference_links)
    };
    for (tally, counts) in [(linked, &mut links), (possible, &mut pairs)] {
        for (&difference, &count) in tally.iter().filter(|(difference, _)| !is_usual(difference)) {
            counts[byte_bin(difference)] += count;
        }
    }
    let (links, pairs) = (smooth(&links), smooth(&pairs));
    let (all_links, all): (f64, f64) = (
        linked.values().sum(),
        linked.values().chain(possible.values()).sum::<f64>() + 1.0,
    );
    let (mut few, mut few_seen) = (0.0, 1.0);
    for (&link, &pair) in links
        .iter()
        .zip(&pairs)
        .filter(|(link, _)| **link < TUNING.usual_difference_links * PEAK_WEIGHT)
    {
        (few, few_seen) = (few + link, few_seen + link + pair);
    }
    let of_few = log_ratio(few, all_links, few_seen / all);
    let score = |(&link, &pair): (&f64, &f64)| {
        if link < TUNING.usual_difference_links * PEAK_WEIGHT {
            of_few
        } else {
            log_ratio(
                (link - own * PEAK_WEIGHT).max(0.0),
                (all_links - own).max(0.0),
                (link + pair) / all,
            )
        }
    };
    let scores: Vec<f32> = links.iter().zip(&pairs).map(score).collect();
    let nats: f64 = links
        .iter()
        .zip(&scores)
        .map(|(link, &score)| link * f64::from(score))
        .sum();
    if nats > TUNING.min_bytes_nats * all_links {
        scores
    } else {
        vec![]
    }
}

/// Whether a count among pairs, of which some are links, is beyond the count among as many `other` pairs.
fn is_beyond_chance(count: f64, other: f64) -> bool {
    count - other > TUNING.bytes_beyond_others_sigmas * (count + other).sqrt()
}

/// Log ratio of a count among `links` to its `usual` share, smoothed by the prior.
pub fn log_ratio(count: f64, links: f64, usual: f64) -> f32 {
    let found = (count + TUNING.prior_links * usual) / (links + TUNING.prior_links);
    (found / usual)
        .ln()
        .clamp(-TUNING.max_score_nats, TUNING.max_score_nats) as f32
}

/// Scores of differences of byte counts: usual ones exactly, in a hash table; others by magnitude.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    cells: Vec<(i64, f32)>,
    /// By magnitude, in bins; empty if magnitudes do not distinguish links.
    by_magnitude: Vec<f32>,
    unseen_score: f32,
}

impl Differences {
    /// Scores of differences that weigh `own` among the linked ones.
    fn learn(linked: &Tally, possible: &Tally, own: f64) -> Self {
        let (links, pairs): (f64, f64) = (linked.values().sum(), possible.values().sum());
        let mut known: Vec<(i64, f64, f64)> = linked
            .iter()
            .filter(|(_, count)| **count >= TUNING.usual_difference_links)
            .map(|(&difference, &count)| (difference, count, count + possible.get(&difference).unwrap_or(&0.0)))
            .collect();
        if possible.len() <= 1 {
            return Differences::default();
        }
        known.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        let (weight, all) = known.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
        let by_magnitude = magnitude_scores(linked, possible, own);
        if known.is_empty() && by_magnitude.is_empty() {
            return Differences::default();
        }
        let unseen_score = log_ratio(
            links - weight,
            links,
            (pairs + links - all + 1.0) / (pairs + links + 1.0),
        );
        let size = (2 * known.len()).next_power_of_two().clamp(16, MAX_DIFFERENCES);
        let mut table = Differences {
            cells: vec![(i64::MIN, unseen_score); size],
            by_magnitude,
            unseen_score,
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

    /// Scores before any link is made: from requests that were open at a call's start, and as many `other` ones. Among
    /// the open ones are `links` links; what is more frequent there than chance allows is theirs.
    pub fn before_links(open: &Tally, other: &Tally, links: f64) -> Self {
        let pairs: f64 = open.values().sum();
        let others = 1.0 - links / pairs.max(1.0);
        let mut more = Tally::default();
        let mut open_about = vec![0.0; BINS];
        let mut other_about = vec![0.0; BINS];
        for (&difference, &count) in open {
            let chance = others * other.get(&difference).unwrap_or(&0.0);
            if is_beyond_chance(count, *other.get(&difference).unwrap_or(&0.0)) {
                more.insert(difference, count - chance);
            } else {
                open_about[byte_bin(difference)] += count;
            }
        }
        for (&difference, &count) in other.iter().filter(|(difference, _)| !more.contains_key(difference)) {
            other_about[byte_bin(difference)] += count;
        }
        let by_magnitude: Vec<f64> = open_about
            .iter()
            .zip(&other_about)
            .map(|(&count, &other)| {
                if is_beyond_chance(count, other) {
                    count - others * other
                } else {
                    0.0
                }
            })
            .collect();
        let shown: f64 = more.values().chain(&by_magnitude).sum();
        if shown < TUNING.min_explained_links_share * links {
            return Differences::default();
        }
        let links = links.max(shown);
        let usual = |count: f64| (count + 1.0) / (pairs + 1.0);
        let by_chance: f64 = more.keys().filter_map(|difference| other.get(difference)).sum::<f64>()
            + by_magnitude
                .iter()
                .zip(&other_about)
                .filter(|(more, _)| **more > 0.0)
                .map(|(_, other)| other)
                .sum::<f64>();
        let unseen_score = log_ratio(links - shown, links, usual((pairs - by_chance).max(0.0)));
        let of_bin = |(&more, &other): (&f64, &f64)| {
            if more > 0.0 {
                log_ratio(more, links, usual(other))
            } else {
                unseen_score
            }
        };
        let mut table = Differences {
            cells: vec![(i64::MIN, unseen_score); (2 * more.len()).next_power_of_two().clamp(16, MAX_DIFFERENCES)],
            by_magnitude: by_magnitude.iter().zip(&other_about).map(of_bin).collect(),
            unseen_score,
        };
        let mut nats: f64 = by_magnitude
            .iter()
            .zip(&table.by_magnitude)
            .map(|(more, &score)| more * f64::from(score))
            .sum();
        let mut more: Vec<(i64, f64)> = more.into_iter().collect();
        more.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        for (difference, count) in more {
            let cell = table.cell(difference);
            let score = log_ratio(count, links, usual(*other.get(&difference).unwrap_or(&0.0)));
            table.cells[cell] = (difference, score);
            nats += count * f64::from(score);
        }
        if nats > TUNING.min_bytes_nats * links {
            table
        } else {
            Differences::default()
        }
    }

    pub fn distinguishes(&self) -> bool {
        !self.cells.is_empty()
    }

    #[inline]
    fn cell(&self, difference: i64) -> usize {
        // 2^64 over the golden ratio (Knuth, TAOCP 3, section 6.4)
        (difference as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 40 & (self.cells.len() - 1)
    }

    #[inline]
    pub fn score(&self, difference: i64) -> f32 {
        if self.cells.is_empty() || difference == UNKNOWN {
            return 0.0;
        }
        let (kept, score) = self.cells[self.cell(difference)];
        if kept == difference {
            score
        } else if self.by_magnitude.is_empty() {
            self.unseen_score
        } else {
            self.by_magnitude[byte_bin(difference)]
        }
    }
}
