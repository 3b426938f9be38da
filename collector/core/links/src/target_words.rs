//! Words that the target of a call shares with the target of a request.
//!
//! A target is split into words: parts of its path, names and values of its query, percent-decoded. A shared word says
//! the more the fewer requests have it: its *surprise* is ln(requests / requests with it), in nats, and of several
//! words the rarest counts. A pair is described by a *pattern*: the surprise of the rarest word of the call, and that
//! of the rarest word that it shares with the request ([`shared_pattern`]). What patterns mean is learned for each kind
//! of call, as for delays ([`crate::evidence`]).
//!
//! A message about a range of bytes (`Range`) has four more words: the first byte, the last, both, and both with the
//! last part of its path. None equals a word of a path. So a service that passes ranges on is recognised by them, and
//! one that splits them into blocks by their first and last byte.
//!
//! Before any link is made, requests that were open at a call's start are compared with requests of the same classes at
//! other times ([`WordModel`]). One of the open ones is the parent, so what they share more often is what links share.
//! If there is no such difference, words are left out.
//!
//! Cost: a table look-up for each word; for learning, a bounded sample of pairs.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use crate::dialogues::{Call, Calls, by_class};
use crate::evidence::log_ratio;
use crate::tuning::TUNING;

/// Words that are kept of a target; of longer ones the first two and the last ones. Structural: the length of arrays,
/// and of a column of the interface.
pub const MAX_WORDS: usize = 8;
const FIRST_WORDS: usize = 2;
/// Words of a byte range; then fewer words of the target are kept.
const RANGE_WORDS: usize = 4;
/// Words of a call that are compared, the rarest. Structural: the length of arrays.
const COMPARED_WORDS: usize = 6;
/// Steps of surprise, of one nat: up to e^7 = 1,100 requests for one word. Structural: the size of tables.
const LEVELS: usize = 8;
/// Surprises of the call's rarest word, times those of the rarest shared one or none; and `UNSEEN_WORDS`.
pub const PATTERNS: usize = 1 + LEVELS * (LEVELS + 1);
/// The pattern of a pair of which a target was not captured, or has no words that can be shared.
pub const UNSEEN_WORDS: u8 = 0;
/// Calls of a kind that are sampled, and pairs of each. Structural: they bound the cost.
const SAMPLED_CALLS: usize = 2000;
const SAMPLED_PAIRS: usize = 64;

/// The first and the last byte that a message is about, -1 where not given: (-1, n) are the last n.
pub type ByteRange = (i64, i64);
const ALL_BYTES: ByteRange = (-1, -1);

/// The words of targets, which lie end to end between offsets, and of the byte ranges `first` to `last`.
pub fn words_of(offsets: &[i32], bytes: &[u8], first: &[i64], last: &[i64]) -> Vec<[u32; MAX_WORDS]> {
    let ranges = first.par_iter().copied().zip(last.par_iter().copied());
    let words = |(ends, range): (&[i32], ByteRange)| words_about(&bytes[ends[0] as usize..ends[1] as usize], range);
    offsets.par_windows(2).zip(ranges).map(words).collect()
}

/// The words of a target and of a byte range.
fn words_about(target: &[u8], range: ByteRange) -> [u32; MAX_WORDS] {
    if range == ALL_BYTES {
        return target_words(target, MAX_WORDS);
    }
    let mut words = target_words(target, MAX_WORDS - RANGE_WORDS);
    let path = target.split(|&byte| byte == b'?').next().unwrap_or(target);
    let of_path = target_words(path, FIRST_WORDS + 1);
    let object = of_path.iter().rev().find(|&&word| word != 0).copied().unwrap_or(0);
    let (first, last) = range;
    let both = mix(mix(BOTH_BYTES_SEED, first), last);
    let about = [
        mix(FIRST_BYTE_SEED, first),
        mix(LAST_BYTE_SEED, last),
        both,
        mix(both, object.into()),
    ];
    // the first byte of a range counted from the end, and the last byte of an open one, are not known
    let is_given = [first >= 0, first >= 0 && last >= 0, true, true];
    let at = words
        .iter()
        .position(|&word| word == 0)
        .unwrap_or(MAX_WORDS - RANGE_WORDS);
    let given = about.iter().zip(is_given).filter(|(_, is_given)| *is_given);
    for (place, (&hash, _)) in words[at..].iter_mut().zip(given) {
        *place = word(hash);
    }
    words
}

/// Seeds of the hashes of words of ranges.
const FIRST_BYTE_SEED: u64 = 1;
const LAST_BYTE_SEED: u64 = 2;
const BOTH_BYTES_SEED: u64 = 3;

/// A hash and a number, hashed (splitmix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// 2014).
fn mix(hash: u64, number: i64) -> u64 {
    let mut value = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A word from a hash; 0 is no word.
fn word(hash: u64) -> u32 {
    ((hash ^ (hash >> 32)) as u32).max(1)
}

/// The words of a target, `most` at most, hashed, each once; 0 after the last.
fn target_words(target: &[u8], most: usize) -> [u32; MAX_WORDS] {
    let mut words = [0; MAX_WORDS];
    let (mut count, mut hash, mut len, mut at) = (0, FNV_OFFSET_BASIS, 0, 0);
    let mut end_word = |hash: u64| {
        let word = word(hash);
        if words[..count].contains(&word) {
            return;
        }
        if count == most {
            words.copy_within(FIRST_WORDS + 1..most, FIRST_WORDS);
            count -= 1;
        }
        words[count] = word;
        count += 1;
    };
    while at < target.len() {
        let (byte, next) = decode_byte(target, at);
        at = next;
        if b"/?&=;,".contains(&byte) {
            if len > 0 {
                end_word(hash);
            }
            (hash, len) = (FNV_OFFSET_BASIS, 0);
        } else {
            // FNV-1a: draft-eastlake-fnv
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
            len += 1;
        }
    }
    if len > 0 {
        end_word(hash);
    }
    words
}

const FNV_OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;

/// The byte at a place, percent-decoded, and the place after it (RFC 3986, section 2.1).
fn decode_byte(target: &[u8], at: usize) -> (u8, usize) {
    let digit = |place: usize| target.get(place).and_then(|&byte| (byte as char).to_digit(16));
    match (target[at], digit(at + 1), digit(at + 2)) {
        (b'%', Some(high), Some(low)) => ((16 * high + low) as u8, at + 3),
        (b'+', ..) => (b' ', at + 1),
        (byte, ..) => (byte, at + 1),
    }
}

/// Words of a target that may be shared, the rarest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    is_seen: bool,
    word: [u32; COMPARED_WORDS],
    /// Surprise of each, in whole nats.
    nats: [u8; COMPARED_WORDS],
}

impl Words {
    fn new(words: &[u32; MAX_WORDS], is_shared: impl Fn(u32) -> bool, served: &ServedWords) -> Self {
        let mut known: Vec<(u8, u32)> = words
            .iter()
            .filter(|&&word| word != 0 && is_shared(word))
            .map(|&word| (served.nats(word), word))
            .collect();
        known.sort_by_key(|&(nats, word)| (std::cmp::Reverse(nats), word));
        let mut found = Words {
            is_seen: words[0] != 0,
            ..Words::default()
        };
        for (place, (nats, word)) in known.into_iter().take(COMPARED_WORDS).enumerate() {
            (found.word[place], found.nats[place]) = (word, nats);
        }
        found
    }

    /// Whether no request has any of its words.
    pub fn is_empty(&self) -> bool {
        self.word[0] == 0
    }
}

/// The pattern of what a call's target shares with a request's.
#[inline]
pub fn shared_pattern(asked: &Words, served: &Words) -> u8 {
    if asked.is_empty() || !served.is_seen {
        return UNSEEN_WORDS;
    }
    let is_shared = |place: &usize| asked.word[*place] != 0 && served.word.contains(&asked.word[*place]);
    let place = (0..COMPARED_WORDS).find(is_shared);
    let level = place.map_or(0, |place| 1 + asked.nats[place]);
    1 + asked.nats[0] * (LEVELS as u8 + 1) + level
}

/// Surprise of the rarest shared word of a pattern; nothing if no word is shared.
fn shared_nats(pattern: u8) -> Option<u8> {
    let level = pattern.checked_sub(1)? % (LEVELS as u8 + 1);
    level.checked_sub(1)
}

/// Whether a rare word is shared.
pub fn is_rare_word(pattern: u8) -> bool {
    shared_nats(pattern).is_some_and(|nats| nats >= TUNING.rare_word_nats)
}

/// The number of targets, among the requests that a host serves, that have each word.
struct ServedWords {
    requests: f64,
    with: HashMap<u32, u32>,
}

impl ServedWords {
    fn nats(&self, word: u32) -> u8 {
        let with = f64::from(self.with.get(&word).copied().unwrap_or(1));
        (self.requests / with).ln().clamp(0.0, LEVELS as f64 - 1.0) as u8
    }
}

/// Log ratio of the frequency of each pattern in links to chance.
pub type Table = [f32; PATTERNS];

/// Scores of patterns before any link is made, where words are shared at all.
#[derive(Debug, Default)]
pub struct WordModel {
    /// By host and kind of call.
    of_kind: HashMap<(i64, u16), Table>,
    /// Of all calls together.
    of_all: Option<Table>,
}

/// A host, the requests that it serves, and the calls that it makes.
pub type Host = (i64, Vec<u32>, Vec<u32>);

impl WordModel {
    /// Sets the words that calls may share (`Call::call_words`, `Call::served_words`), and learns what patterns mean.
    ///
    /// `words`: those of each exchange, or nothing.
    pub fn new(made: &mut Calls, words: &[[u32; MAX_WORDS]], class: &[u16], kind: &[u16], hosts: &[Host]) -> Self {
        let mut usual = WordModel::default();
        if words.iter().all(|words| words[0] == 0) {
            return usual;
        }
        let of_call: Vec<[u32; MAX_WORDS]> = (0..made.calls.len())
            .map(|call| {
                let mut rows = made.rows(call).iter().map(|&row| words[row as usize]);
                rows.find(|words| words[0] != 0).unwrap_or_default()
            })
            .collect();
        let mut all = Counts::default();
        let mut few: Vec<u32> = vec![];
        for (host, parents, children) in hosts {
            note_words(&mut made.calls, &of_call, parents, children);
            let by_kind = by_kind(&made.calls, kind, parents, children);
            for (kind, children) in by_kind {
                let counts = Counts::new(&made.calls, class, parents, &children);
                all.add(&counts);
                if let Some(table) = counts.table() {
                    usual.of_kind.insert((*host, kind), table);
                } else if children.len() < TUNING.words_min_calls_per_kind {
                    few.extend(children);
                } else {
                    drop_words(&mut made.calls, &children);
                }
            }
        }
        usual.of_all = all.table();
        if usual.of_all.is_none() {
            drop_words(&mut made.calls, &few);
        }
        usual
    }

    /// The score of a pattern of calls of a kind.
    pub fn table(&self, host: i64, kind: u16) -> Option<&Table> {
        self.of_kind.get(&(host, kind)).or(self.of_all.as_ref())
    }
}

fn drop_words(calls: &mut [Call], children: &[u32]) {
    for &child in children {
        calls[child as usize].call_words = Words::default();
    }
}

fn note_words(calls: &mut [Call], of_call: &[[u32; MAX_WORDS]], parents: &[u32], children: &[u32]) {
    let used = |calls: &[u32]| {
        let mut with: HashMap<u32, u32> = HashMap::new();
        for &word in calls.iter().flat_map(|&call| &of_call[call as usize]) {
            *with.entry(word).or_default() += 1;
        }
        with.remove(&0);
        with
    };
    let seen = parents.iter().filter(|&&call| of_call[call as usize][0] != 0).count();
    let served = ServedWords {
        requests: seen as f64,
        with: used(parents),
    };
    let asked = used(children);
    for &child in children {
        calls[child as usize].call_words = Words::new(
            &of_call[child as usize],
            |word| served.with.contains_key(&word),
            &served,
        );
    }
    for &parent in parents {
        calls[parent as usize].served_words =
            Words::new(&of_call[parent as usize], |word| asked.contains_key(&word), &served);
    }
}

/// Calls that share words with some request, by kind; each kind by start.
fn by_kind(calls: &[Call], kind: &[u16], parents: &[u32], children: &[u32]) -> BTreeMap<u16, Vec<u32>> {
    let mut found: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    if !parents.is_empty() {
        for &child in children
            .iter()
            .filter(|&&child| !calls[child as usize].call_words.is_empty())
        {
            found.entry(kind[child as usize]).or_default().push(child);
        }
    }
    found
}

/// Counts of patterns: of calls and requests that were open at their start, and of calls and other requests.
struct Counts {
    /// How many of the pairs are links.
    links: f64,
    pairs: f64,
    open: [f64; PATTERNS],
    other: [f64; PATTERNS],
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            links: 0.0,
            pairs: 0.0,
            open: [0.0; PATTERNS],
            other: [0.0; PATTERNS],
        }
    }
}

impl Counts {
    /// `parents` in order of opening, `children` in order of start.
    fn new(calls: &[Call], class: &[u16], parents: &[u32], children: &[u32]) -> Self {
        let mut counts = Counts::default();
        let (of_class, place) = by_class(class, parents);
        let (mut open, mut next): (Vec<usize>, usize) = (vec![], 0);
        let pattern = |child: &Call, parent: u32| {
            shared_pattern(&child.call_words, &calls[parent as usize].served_words) as usize
        };
        let step = children.len().div_ceil(SAMPLED_CALLS);
        for &child in children.iter().step_by(step.max(1)) {
            let child = &calls[child as usize];
            while next < parents.len() && calls[parents[next] as usize].arrival_ns <= child.start_ns {
                open.push(next);
                next += 1;
            }
            open.retain(|&at| calls[parents[at] as usize].close_ns >= child.start_ns);
            let step = open.len().div_ceil(SAMPLED_PAIRS).max(1);
            let before = counts.pairs;
            for &at in open.iter().step_by(step) {
                let same = &of_class[&class[parents[at] as usize]];
                let other = same[(place[at] + same.len() / 2) % same.len()];
                if other != parents[at] {
                    counts.pairs += 1.0;
                    counts.open[pattern(child, parents[at])] += 1.0;
                    counts.other[pattern(child, other)] += 1.0;
                }
            }
            counts.links += (counts.pairs - before) / open.len().max(1) as f64;
        }
        counts
    }

    fn add(&mut self, other: &Counts) {
        self.links += other.links;
        self.pairs += other.pairs;
        self.open
            .iter_mut()
            .zip(&other.open)
            .for_each(|(sum, count)| *sum += count);
        self.other
            .iter_mut()
            .zip(&other.other)
            .for_each(|(sum, count)| *sum += count);
    }

    /// Scores of patterns; nothing if open requests share what others do.
    fn table(&self) -> Option<Table> {
        // the pairs that are no links are like pairs with other requests
        let chance = |pattern: usize| self.other[pattern] * (1.0 - self.links / self.pairs.max(1.0));
        let more = |pattern: usize| self.open[pattern] - chance(pattern);
        let deviations = |pattern: usize| more(pattern) / (chance(pattern) + 1.0).sqrt();
        let is_shared = |pattern: &usize| shared_nats(*pattern as u8).is_some();
        if !(0..PATTERNS)
            .filter(is_shared)
            .any(|pattern| deviations(pattern) > TUNING.words_beyond_chance_sigmas)
        {
            return None;
        }
        let links: f64 = (0..PATTERNS).map(|pattern| more(pattern).max(0.0)).sum();
        let score = |pattern: usize| {
            let by_chance = (self.other[pattern] + TUNING.prior_pairs_per_bin)
                / (self.pairs + TUNING.prior_pairs_per_bin * PATTERNS as f64);
            log_ratio(more(pattern).max(0.0), links, by_chance)
        };
        let mut table: Table = std::array::from_fn(score);
        table[UNSEEN_WORDS as usize] = 0.0;
        let nats = |pattern: usize| more(pattern).max(0.0) / links * f64::from(table[pattern]);
        ((0..PATTERNS).map(nats).sum::<f64>() > TUNING.min_words_nats).then_some(table)
    }
}

/// Calls of rare kinds that share a rare word with a request: each with the requests that may have made it and their
/// probabilities, the likeliest first.
///
/// `parents` by arrival, `children` by start.
pub fn parents_of_few(
    calls: &[Call],
    parents: &[u32],
    children: &[u32],
    table: impl Fn(u32) -> Option<Table>,
) -> Vec<(u32, Vec<(u32, f64)>)> {
    let (mut open, mut next): (Vec<u32>, usize) = (vec![], 0);
    let mut found = vec![];
    for &number in children {
        let child = &calls[number as usize];
        while next < parents.len() && calls[parents[next] as usize].arrival_ns <= child.start_ns {
            open.push(parents[next]);
            next += 1;
        }
        open.retain(|&parent| calls[parent as usize].close_ns >= child.start_ns);
        let Some(table) = table(number).filter(|_| !child.call_words.is_empty()) else {
            continue;
        };
        // a few calls do not show that a service calls itself, if another service may have called it
        let is_other = |parent: &u32| calls[*parent as usize].service != child.service;
        let others_only = open.iter().any(is_other);
        let weight = |&parent: &u32| {
            let parent_call = &calls[parent as usize];
            let inside = if child.answered_ns <= parent_call.response_ns {
                1.0
            } else {
                TUNING.ends_outside_probability
            };
            let pattern = shared_pattern(&child.call_words, &parent_call.served_words);
            (
                parent,
                inside * f64::from(table[pattern as usize]).exp() / open.len() as f64,
                pattern,
            )
        };
        // of equally likely requests the latest comes first
        let is_eligible = |parent: &&u32| !others_only || is_other(parent);
        let mut likely: Vec<(u32, f64, u8)> = open.iter().rev().filter(is_eligible).map(weight).collect();
        likely.sort_by(|a, b| b.1.total_cmp(&a.1));
        if likely.first().is_some_and(|best| is_rare_word(best.2)) {
            let total: f64 = likely.iter().map(|one| one.1).sum::<f64>() + TUNING.few_calls_orphan_weight;
            found.push((number, likely.into_iter().map(|one| (one.0, one.1 / total)).collect()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_words(target: &[u8]) -> [u32; MAX_WORDS] {
        words_about(target, ALL_BYTES)
    }

    fn count(target: &str) -> usize {
        target_words(target.as_bytes())
            .iter()
            .filter(|&&word| word != 0)
            .count()
    }

    #[test]
    fn targets_are_cut_into_words() {
        assert_eq!(target_words(b"/a/b%20c?d=e"), target_words(b"a/b+c/d/e"));
        assert_eq!(target_words(b"/x%2Fy"), target_words(b"/x/y"));
        assert_ne!(target_words(b"/ab"), target_words(b"/a/b"));
        for (target, words) in [
            ("", 0),
            ("/", 0),
            ("/a/a", 1),
            ("/a//b/", 2),
            ("/%", 1),
            ("/1/2/3/4/5/6/7/8/9/10", 8),
        ] {
            assert_eq!(count(target), words, "{target}");
        }
        let long = target_words(b"/1/2/3/4/5/6/7/8/9/10");
        assert_eq!(long[..2], target_words(b"/1/2")[..2]);
        assert_eq!(long[2..], target_words(b"/5/6/7/8/9/10")[..6]);
    }

    #[test]
    fn ranges_are_words_of_their_own() {
        let shared = |one: (&str, ByteRange), other: (&str, ByteRange)| {
            let words = |(target, range): (&str, ByteRange)| words_about(target.as_bytes(), range);
            let other = words(other);
            words(one)
                .iter()
                .filter(|&&word| word != 0 && other.contains(&word))
                .count()
        };
        let range = (100, 199);
        for (one, other, count) in [
            (("/a/o", range), ("/b/o?x=1", range), 1 + 4), // its name; begin, end, both, both of that name
            (("/a/o", range), ("/b/p", range), 3),
            (("/a/o", range), ("/b/o", (100, 149)), 1 + 1),
            (("/a/o", range), ("/b/o", (150, 199)), 1 + 1),
            (("/a/o", range), ("/b/o", (199, 100)), 1),
            (("/a/o", range), ("/b/100/199", ALL_BYTES), 0),
            (("/a/o", (-1, 500)), ("/b/o", (-1, 500)), 1 + 2),
            (("/a/o", (500, -1)), ("/b/p", (500, -1)), 2),
            (("/a/o", (500, -1)), ("/b/p", (-1, 500)), 0),
            (("/1/2/3/4/5", range), ("/1/2/3/4/5", range), 4 + 4),
            (("/1/2/3/4/5", range), ("/1/2/4/5", ALL_BYTES), 4),
        ] {
            assert_eq!(shared(one, other), count, "{one:?} {other:?}");
        }
    }

    fn words(served: &[&str], asked: &str) -> (Vec<Words>, Words) {
        let mut with: HashMap<u32, u32> = HashMap::new();
        let of: Vec<[u32; MAX_WORDS]> = served.iter().map(|target| target_words(target.as_bytes())).collect();
        of.iter()
            .flatten()
            .filter(|&&word| word != 0)
            .for_each(|&word| *with.entry(word).or_default() += 1);
        let all = ServedWords {
            requests: served.len() as f64,
            with,
        };
        let call = target_words(asked.as_bytes());
        let parents = of
            .iter()
            .map(|words| Words::new(words, |word| call.contains(&word), &all));
        (
            parents.collect(),
            Words::new(&call, |word| all.with.contains_key(&word), &all),
        )
    }

    #[test]
    fn the_rarest_shared_word_counts() {
        let targets: Vec<String> = (0..100)
            .map(|number| format!("/v1/box{}/{number}", number % 4))
            .collect();
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        let (served, asked) = words(&targets, "/sda/v1/box1/5");
        let nats = |parent: usize| shared_nats(shared_pattern(&asked, &served[parent]));
        assert_eq!((nats(5), nats(9), nats(6)), (Some(4), Some(1), Some(0)));
        let (served, asked) = words(&targets, "/other");
        assert!(asked.is_empty());
        assert_eq!(shared_pattern(&asked, &served[0]), UNSEEN_WORDS);
    }
}
