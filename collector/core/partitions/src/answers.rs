//! Samples times between a packet and its acknowledgement at a host: who sent the packet, who acknowledged its last
//! byte first, and the time between both.
//!
//! Only packets whose sequence number has a hash below a limit are kept, and the limit falls as packets accumulate. So
//! the captures of two hosts keep the same packets, however much earlier one of them began.

use rustc_hash::FxHashMap;
use twintap_wire::events::EventColumns;

/// Answers that the sample needs; at most twice as many are kept.
const SAMPLED_ANSWERS: usize = 1_000;
/// Packets of a batch that are examined one by one, of those that await an acknowledgement and of those that
/// acknowledge.
const MAX_ROWS: usize = 4 * SAMPLED_ANSWERS;
/// Packets that may await their answer at a time: in a flood of SYNs most get none, and a sample of them suffices.
const MAX_UNANSWERED: usize = 1 << 16;
/// 2^32 over the golden ratio: multiplying by it spreads numbers evenly (Knuth, TAOCP 3, §6.4).
const HASH_MULTIPLIER: u32 = 0x9E37_79B1;
/// Hash of a packet that is never sampled.
const LARGEST_HASH: u32 = u32::MAX;

const FIN: u16 = 0x01;
const SYN: u16 = 0x02;
const ACK: u16 = 0x10;

/// Source and its port, destination and its port, and the sequence number after the last byte.
type UnansweredKey = (u32, u16, u32, u16, u32);

/// Who sent the packet, who acknowledged it, and the time between both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub asker: u32,
    pub answerer: u32,
    pub ns: i64,
}

/// Answers of one host's capture. An address is its number in all captures.
#[derive(Debug)]
pub struct Answers {
    /// By acknowledgment and sequence number of the answer: the same at both ends, even where addresses are translated.
    pub gaps: FxHashMap<(u32, u32), Gap>,
    asked: FxHashMap<UnansweredKey, i64>,
    below: u32,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            gaps: FxHashMap::default(),
            asked: FxHashMap::default(),
            below: LARGEST_HASH,
        }
    }
}

impl Answers {
    /// Note the answers of a batch; `number` converts an address of its file. Cost: about 2 ns a packet.
    pub fn add(&mut self, events: &EventColumns, number: impl Fn(u32) -> u32) {
        let rows: Vec<usize> = (0..events.len())
            .filter(|&at| request_hash(events, at) < self.below || answer_hash(events, at) < self.below)
            .collect();
        for hash in [request_hash, answer_hash] {
            self.keep_few(rows.iter().map(|&at| hash(events, at)));
        }
        for at in rows {
            self.add_row(events, at, &number);
        }
        if self.gaps.len() > SAMPLED_ANSWERS || self.asked.len() > MAX_UNANSWERED {
            self.keep_below(self.below / 2);
        }
    }

    fn add_row(&mut self, events: &EventColumns, at: usize, number: impl Fn(u32) -> u32) {
        let (src, dst) = (number(events.src_addr[at]), number(events.dst_addr[at]));
        let (src_port, dst_port) = (events.src_port[at], events.dst_port[at]);
        let (ns, ack) = (events.host_ns[at], events.ack[at]);
        if answer_hash(events, at) < self.below
            && let Some(asked_ns) = self.asked.remove(&(dst, dst_port, src, src_port, ack))
        {
            let gap = Gap {
                asker: dst,
                answerer: src,
                ns: ns.wrapping_sub(asked_ns),
            };
            self.gaps.entry((ack, events.seq[at])).or_insert(gap);
        }
        if request_hash(events, at) < self.below {
            let last = end_of(events, at);
            self.asked.entry((src, src_port, dst, dst_port, last)).or_insert(ns);
        }
    }

    /// Lower the limit so that no more than about `MAX_ROWS` of a batch's hashes are below it.
    fn keep_few(&mut self, hashes: impl Iterator<Item = u32>) {
        let mut small: Vec<u32> = hashes.filter(|&hash| hash < self.below).collect();
        if small.len() > MAX_ROWS {
            let (_, &mut limit, _) = small.select_nth_unstable(MAX_ROWS);
            self.keep_below(limit);
        }
    }

    fn keep_below(&mut self, below: u32) {
        self.below = below;
        self.gaps.retain(|&(ack, _), _| hash_of(ack) < below);
        self.asked.retain(|&(.., last), _| hash_of(last) < below);
    }
}

/// Sequence number after the last byte; SYN and FIN count as one each (RFC 9293 §3.4).
fn end_of(events: &EventColumns, at: usize) -> u32 {
    let flags = events.flags[at];
    let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    events.seq[at]
        .wrapping_add(events.payload_len[at])
        .wrapping_add(controls)
}

fn hash_of(number: u32) -> u32 {
    number.wrapping_mul(HASH_MULTIPLIER)
}

/// Hash of a packet that awaits an acknowledgement.
#[inline]
fn request_hash(events: &EventColumns, at: usize) -> u32 {
    let end = end_of(events, at);
    if end == events.seq[at] {
        LARGEST_HASH
    } else {
        hash_of(end)
    }
}

/// Hash of a packet that acknowledges, equal to that of the acknowledged packet.
#[inline]
fn answer_hash(events: &EventColumns, at: usize) -> u32 {
    if events.flags[at] & ACK == 0 {
        LARGEST_HASH
    } else {
        hash_of(events.ack[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use twintap_wire::events::Event;

    /// Packets of 100 bytes from address 1 to 2, each acknowledged after 10 ns.
    fn transfers(numbers: Range<u32>, flags: u16) -> EventColumns {
        let sent = |number: u32| Event {
            src_addr: 1,
            dst_addr: 2,
            src_port: 50,
            dst_port: 80,
            seq: 100 * number,
            ack: 7,
            payload_len: 100,
            flags,
            host_ns: 1_000 * i64::from(number),
            ..Event::default()
        };
        let answer = |sent: &Event| Event {
            src_addr: sent.dst_addr,
            dst_addr: sent.src_addr,
            src_port: sent.dst_port,
            dst_port: sent.src_port,
            seq: 7,
            ack: sent.seq + 100,
            payload_len: 0,
            host_ns: sent.host_ns + 10,
            ..*sent
        };
        let rows: Vec<Event> = numbers.map(sent).flat_map(|sent| [sent, answer(&sent)]).collect();
        let mut events = EventColumns::default();
        events.extend(&rows);
        events
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn captures_that_began_apart_keep_the_same_answers() {
        let [mut early, mut late] = [Answers::default(), Answers::default()];
        for first in (0..400_000).step_by(40_000) {
            let batch = transfers(first..first + 40_000, ACK);
            early.add(&batch, |address| address);
            if first >= 320_000 {
                late.add(&batch, |address| address);
            }
        }
        let shared: Vec<_> = early.gaps.keys().filter(|key| late.gaps.contains_key(key)).collect();
        assert!(
            early.gaps.len() <= 2 * SAMPLED_ANSWERS && shared.len() >= 50,
            "{}",
            shared.len()
        );
        let gap = Gap {
            asker: 1,
            answerer: 2,
            ns: 10,
        };
        assert!(shared.iter().all(|key| early.gaps[key] == gap));
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many steps")]
    fn a_flood_of_syns_is_not_remembered_and_does_not_end_the_search() {
        let mut answers = Answers::default();
        for first in (0..200_000).step_by(4_000) {
            let mut flood = transfers(first..first + 4_000, SYN);
            flood.ack.fill(0);
            answers.add(&flood, |address| address);
        }
        assert!(
            (1_001..=MAX_UNANSWERED).contains(&answers.asked.len()),
            "{}",
            answers.asked.len()
        );
        answers.add(&transfers(0..50_000, ACK), |address| address);
        assert!(answers.gaps.len() > 100, "{}", answers.gaps.len());
    }
}
