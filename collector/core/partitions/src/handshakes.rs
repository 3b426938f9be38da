//! Which 4-tuples may be one connection whose addresses were rewritten on the way, by a NAT or a balancer.
//!
//! A fingerprint is a hash of what such a device keeps of a SYN-ACK: both ISNs, or both timestamps. 4-tuples that share
//! a fingerprint are only suspected here, so that all of them go into one partition; matching decides.

use std::collections::BTreeSet;

/// A SYN-ACK: a fingerprint of it, the key of its 4-tuple, and the host that saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SynAckSight {
    pub fingerprint: u64,
    pub key: u64,
    pub host: u16,
}

/// Pairs of keys (the smaller first) that share a fingerprint with no third key, by fingerprint. Each key must have
/// been seen at one host, or both along a path through a host between ([`pair_over_a_path`]). Sorts `seen`. Cost: one
/// sort.
pub fn pairs(seen: &mut [SynAckSight]) -> Vec<(u64, u64)> {
    seen.sort_unstable();
    let alike = seen.chunk_by(|a, b| a.fingerprint == b.fingerprint);
    alike.filter_map(lone_pair).collect()
}

/// The two keys that were each seen at one host, if there are exactly two such keys; otherwise, of exactly two keys, a
/// pair over a path: a host between the ends (a captured NAT) saw one or both, so at least three hosts saw them, and
/// not the same hosts saw each.
fn lone_pair(alike: &[SynAckSight]) -> Option<(u64, u64)> {
    let of_keys = alike.chunk_by(|a, b| a.key == b.key);
    let mut lone = of_keys.filter(|of_key| of_key.first().map(|a| a.host) == of_key.last().map(|b| b.host));
    match (lone.next(), lone.next(), lone.next()) {
        (Some([one, ..]), Some([other, ..]), None) => Some((one.key, other.key)),
        _ => pair_over_a_path(alike),
    }
}

fn pair_over_a_path(alike: &[SynAckSight]) -> Option<(u64, u64)> {
    let mut of_keys = alike.chunk_by(|a, b| a.key == b.key);
    let (one, other) = match (of_keys.next(), of_keys.next(), of_keys.next()) {
        (Some(one), Some(other), None) => (one, other),
        _ => return None,
    };
    let hosts = |of_key: &[SynAckSight]| of_key.iter().map(|seen| seen.host).collect::<BTreeSet<u16>>();
    let (of_one, of_other) = (hosts(one), hosts(other));
    let is_path = of_one != of_other && of_one.union(&of_other).count() > 2;
    is_path.then_some((one.first()?.key, other.first()?.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_that_each_one_host_saw_are_a_pair() {
        let seen = |rows: &[(u64, u64, u16)]| {
            let mut seen: Vec<SynAckSight> = rows
                .iter()
                .map(|&(fingerprint, key, host)| SynAckSight { fingerprint, key, host })
                .collect();
            pairs(&mut seen)
        };
        assert_eq!(seen(&[]), []);
        assert_eq!(seen(&[(1, 20, 0), (1, 10, 1)]), [(10, 20)]);
        assert_eq!(seen(&[(1, 20, 0), (1, 20, 0), (1, 10, 1)]), [(10, 20)], "sent again");
        assert_eq!(seen(&[(1, 10, 0), (1, 20, 0)]), [(10, 20)], "both at a balancer");
        assert_eq!(seen(&[(1, 10, 0), (2, 20, 1)]), [], "other fingerprints");
        assert_eq!(seen(&[(1, 10, 0), (1, 10, 1)]), [], "one connection, seen at both ends");
        assert_eq!(seen(&[(1, 10, 0), (1, 10, 1), (1, 20, 0)]), []);
        assert_eq!(seen(&[(1, 10, 0), (1, 20, 1), (1, 30, 0)]), [], "three prove nothing");
        let over_nat = [(1, 10, 0), (1, 10, 2), (1, 20, 1), (1, 20, 2)];
        assert_eq!(seen(&over_nat), [(10, 20)], "both sides of a NAT that was captured");
        assert_eq!(seen(&over_nat[..3]), [(10, 20)], "one side of it");
        let alike = [(1, 10, 0), (1, 10, 1), (1, 20, 0), (1, 20, 1)];
        assert_eq!(seen(&alike), [], "two connections of one instant, each whole");
        assert_eq!(
            seen(&[(1, 10, 0), (1, 20, 1), (1, 30, 0), (1, 30, 1)]),
            [(10, 20)],
            "but for one that is whole"
        );
    }
}
