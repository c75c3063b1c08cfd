//! Strategies that choose for each key on its own. Keys for which they choose the same node go in one request.

use fastrand::Rng;
use fondaco_protocol::WireKey;
use xxhash_rust::xxh3::xxh3_64;

use super::{Candidate, Context, Lot, Strategy, mixed};

/// The same key to the same node, so that the replicas' caches divide the keys between them.
///
/// By rendezvous hashing: when a node goes, only its own keys move, and they spread over the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sticky;

/// Nodes in the client's zone before others; among equals, as [`Sticky`].
#[derive(Debug, Clone, Copy, Default)]
pub struct NearestFirst;

/// The first node of the partition's list, while it is well: the others are spares.
#[derive(Debug, Clone, Copy, Default)]
pub struct PreferenceOrder;

impl Strategy for Sticky {
    fn choose(&self, key: &WireKey, lot: &Lot<'_>, _context: &Context<'_>, _random: &mut Rng) -> usize {
        highest(key, lot.candidates, |_| true)
    }
}

impl Strategy for NearestFirst {
    fn choose(&self, key: &WireKey, lot: &Lot<'_>, _context: &Context<'_>, _random: &mut Rng) -> usize {
        let any_near = lot.candidates.iter().any(|candidate| candidate.near);
        highest(key, lot.candidates, |candidate| candidate.near || !any_near)
    }
}

impl Strategy for PreferenceOrder {
    fn choose(&self, _key: &WireKey, _lot: &Lot<'_>, _context: &Context<'_>, _random: &mut Rng) -> usize {
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fondaco_model::{NodeId, PartitionCount, PartitionId};

    use super::super::{RoundRobin, Turns};
    use super::*;

    fn candidates(near: &[u32]) -> Vec<Candidate> {
        let candidate = |number: u32| Candidate {
            member: number - 1,
            node: NodeId::new(number).unwrap(),
            group: number - 1,
            load: 0,
            near: near.contains(&number),
        };
        (1..=3).map(candidate).collect()
    }

    fn key(number: u32) -> WireKey {
        WireKey::parse(Bytes::from(format!("s:{number}"))).unwrap()
    }

    /// The places that a strategy chooses for keys of one partition, one request after the other.
    fn chosen(strategy: &dyn Strategy, keys: &[WireKey], candidates: &[Candidate]) -> Vec<usize> {
        let turns = Turns::new(PartitionCount::try_from(1).unwrap());
        let lot = Lot {
            partition: PartitionId::new(0),
            keys: &[0],
            candidates,
        };
        let context = |turn| Context {
            keys,
            turn,
            fan_out: 1,
            groups: 3,
            members: 3,
            turns: &turns,
        };
        let choose = |(turn, key)| strategy.choose(key, &lot, &context(turn), &mut Rng::with_seed(turn));
        (0..).zip(keys).map(choose).collect()
    }

    #[test]
    fn sticky_keys_divide_evenly_and_stay_when_another_node_goes() {
        let all = candidates(&[]);
        let keys: Vec<WireKey> = (0..3000).map(key).collect();
        let (places, then) = (chosen(&Sticky, &keys, &all), chosen(&Sticky, &keys, &all[..2]));
        let mut counts = [0; 3];
        for ((number, place), then) in places.into_iter().enumerate().zip(then) {
            counts[place] += 1;
            assert!(place == 2 || then == place, "key {number} moved for nothing");
        }
        assert!(counts.iter().all(|&count| (900..1100).contains(&count)), "{counts:?}");
    }

    #[test]
    fn the_nearest_are_chosen_while_there_are_any() {
        let keys: Vec<WireKey> = (0..100).map(key).collect();
        assert_eq!(chosen(&NearestFirst, &keys, &candidates(&[2])), [1; 100]);
        let anywhere = chosen(&NearestFirst, &keys, &candidates(&[]));
        assert_eq!(anywhere, chosen(&Sticky, &keys, &candidates(&[])));
    }

    #[test]
    fn turns_go_round() {
        let keys = [1, 1, 1, 1].map(key);
        assert_eq!(chosen(&RoundRobin, &keys, &candidates(&[])), [0, 1, 2, 0]);
    }
}
