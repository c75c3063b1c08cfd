//! The choice of the replica for a key.
//!
//! All candidates can answer and are healthy: suspended nodes, late nodes and nodes that were asked already are
//! excluded. A choice sees one key at a time; keys for which it picks the same node go in one request.

use std::fmt::Debug;

use fondaco_model::NodeId;
use xxhash_rust::xxh3::xxh3_64;

use fondaco_protocol::WireKey;

/// A rule for choosing among replicas.
pub trait NodeChoice: Debug + Send + Sync {
    /// The index in `candidates` of the node to ask for this key. There are two or more candidates, in the order of
    /// preference of the key's partition. `turn` is the number of the request, the same for all its keys.
    fn choose(&self, key: &WireKey, turn: u64, candidates: &[Candidate]) -> usize;
}

/// A node that may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub node: NodeId,
    /// Whether it is in the client's zone.
    pub near: bool,
}

/// Sends the same key to the same node, so that the page caches of the replicas divide the keys between them.
///
/// It uses rendezvous hashing: when a node leaves, only its own keys move, and they spread over the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sticky;

/// Sends each request to the next node.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundRobin;

/// Prefers nodes in the client's zone; among equals, chooses like [`Sticky`].
#[derive(Debug, Clone, Copy, Default)]
pub struct NearestFirst;

/// Sends requests to the first node of the partition's list, while it is healthy: the others are spares.
#[derive(Debug, Clone, Copy, Default)]
pub struct PreferenceOrder;

impl NodeChoice for Sticky {
    fn choose(&self, key: &WireKey, _turn: u64, candidates: &[Candidate]) -> usize {
        highest(key, candidates, |_| true)
    }
}

impl NodeChoice for RoundRobin {
    fn choose(&self, _key: &WireKey, turn: u64, candidates: &[Candidate]) -> usize {
        (turn % candidates.len() as u64) as usize
    }
}

impl NodeChoice for NearestFirst {
    fn choose(&self, key: &WireKey, _turn: u64, candidates: &[Candidate]) -> usize {
        let any_near = candidates.iter().any(|candidate| candidate.near);
        highest(key, candidates, |candidate| candidate.near || !any_near)
    }
}

impl NodeChoice for PreferenceOrder {
    fn choose(&self, _key: &WireKey, _turn: u64, _candidates: &[Candidate]) -> usize {
        0
    }
}

/// The index of the candidate with the highest weight for this key.
fn highest(key: &WireKey, candidates: &[Candidate], eligible: impl Fn(&Candidate) -> bool) -> usize {
    let hash = xxh3_64(key.as_bytes());
    let weight = |candidate: &Candidate| mixed(hash ^ u64::from(candidate.node.get()).wrapping_mul(ODD));
    let eligible = candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| eligible(candidate));
    let best = eligible.max_by_key(|(_, candidate)| weight(candidate));
    best.map_or(0, |(place, _)| place)
}

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of MurmurHash3: every bit of the input moves every bit of the output.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    bits ^ (bits >> 33)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn candidates(near: &[u32]) -> Vec<Candidate> {
        let candidate = |number: u32| Candidate {
            node: NodeId::new(number).unwrap(),
            near: near.contains(&number),
        };
        (1..=3).map(candidate).collect()
    }

    fn key(number: u32) -> WireKey {
        WireKey::parse(Bytes::from(format!("s:{number}"))).unwrap()
    }

    #[test]
    fn sticky_keys_divide_evenly_and_stay_when_another_node_goes() {
        let all = candidates(&[]);
        let mut counts = [0; 3];
        for number in 0..3000 {
            let place = Sticky.choose(&key(number), u64::from(number), &all);
            counts[place] += 1;
            let without: Vec<Candidate> = all.iter().copied().filter(|c| c.node != all[2].node).collect();
            let then = Sticky.choose(&key(number), 0, &without);
            assert!(place == 2 || then == place, "key {number} moved without need");
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
    }

    #[test]
    fn nodes_in_the_zone_are_preferred() {
        for number in 0..100 {
            assert_eq!(NearestFirst.choose(&key(number), 0, &candidates(&[2])), 1);
            let anywhere = NearestFirst.choose(&key(number), 0, &candidates(&[]));
            assert_eq!(anywhere, Sticky.choose(&key(number), 0, &candidates(&[])));
        }
    }

    #[test]
    fn requests_rotate_over_nodes() {
        let turns: Vec<usize> = (0..4)
            .map(|turn| RoundRobin.choose(&key(1), turn, &candidates(&[])))
            .collect();
        assert_eq!(turns, [0, 1, 2, 0]);
    }
}
