//! As few groups as the fan-out says.
//!
//! Under the placement *grouped* each group holds all partitions, so that `c` groups of `n` nodes answer any request with
//! at most `c·n` nodes. Where nodes have no group, each is a group of its own, which holds only some of the partitions:
//! the fan-out is then a number of nodes to prefer.

use std::iter::repeat_n;

use fastrand::Rng;
use fondaco_protocol::WireKey;

use super::round_robin::RequestTurns;
use super::{Context, Lot, ManyKeys, Strategy, key_count};

/// A node is heavy if it has more keys of a request than this multiple of the mean.
const HEAVY: f64 = 1.25;

/// Asks groups chosen at random, as many as the fan-out says; in them each partition's nodes in turn.
///
/// As the load balancer of Cho et al., "Moolle: Fan-out Control for Scalable Distributed Data Stores", III.C. A key whose
/// holders in these groups cannot be asked leaves them for one further group, the same for all such keys that it holds.
#[derive(Debug, Clone, Copy)]
pub struct ClusterAware {
    /// Whether nodes with more than 1.25 times the mean number of keys give some to other holders. Nodes that are asked
    /// anyway are preferred; else a node of a group that was not chosen is borrowed.
    pub borrow: bool,
}

impl Default for ClusterAware {
    fn default() -> Self {
        Self { borrow: true }
    }
}

impl Strategy for ClusterAware {
    fn choose(&self, _key: &WireKey, lot: &Lot<'_>, context: &Context<'_>, _random: &mut Rng) -> usize {
        // Any group does for one key: its nodes in turn are the most even.
        context.turns.next(lot.partition) as usize % lot.candidates.len()
    }

    fn for_many(&self) -> Option<&dyn ManyKeys> {
        Some(self)
    }
}

impl ManyKeys for ClusterAware {
    fn assign(&self, lots: &[Lot<'_>], context: &Context<'_>, random: &mut Rng) -> Vec<u32> {
        let ranks = ranks(lots, context.groups, random);
        let (mut turns, mut chosen) = (RequestTurns::default(), Vec::with_capacity(key_count(lots)));
        for lot in lots {
            let place = place(lot, &ranks, context.fan_out, turns.of(lot, context));
            chosen.extend(repeat_n(place, lot.keys.len()));
        }
        if self.borrow {
            relieve(lots, context.members, &mut chosen);
        }
        chosen
    }

    fn heeds_fan_out(&self) -> bool {
        true
    }
}

/// A random order of the groups that have candidates: for each group its place in it. From the same seed, as retries have
/// it, comes the same order of the groups that are left.
fn ranks(lots: &[Lot<'_>], groups: usize, random: &mut Rng) -> Vec<usize> {
    let mut present = vec![false; groups];
    for candidate in lots.iter().flat_map(|lot| lot.candidates) {
        present[candidate.group as usize] = true;
    }
    let mut order: Vec<usize> = (0..groups).collect();
    random.shuffle(&mut order);
    order.retain(|&group| present[group]);
    let mut ranks = vec![usize::MAX; groups];
    for (rank, group) in order.into_iter().enumerate() {
        ranks[group] = rank;
    }
    ranks
}

/// The candidate for a lot: of those in the first `fan_out` groups the one whose turn it is. If no candidate is in
/// them, it is the one in the first group after them.
fn place(lot: &Lot<'_>, ranks: &[usize], fan_out: usize, turn: u32) -> u32 {
    let ranks = || {
        lot.candidates
            .iter()
            .map(|candidate| ranks[candidate.group as usize])
            .zip(0..)
    };
    let chosen = || ranks().filter(|&(rank, _)| rank < fan_out.max(1));
    let place = match chosen().count() {
        0 => ranks().min(),
        several => chosen().nth(turn as usize % several),
    };
    place.map_or(0, |(_, place)| place)
}

/// Moves keys from heavy nodes to other holders, but only as long as these do not become heavy.
fn relieve(lots: &[Lot<'_>], members: usize, chosen: &mut [u32]) {
    let mut shares = vec![0_usize; members];
    let mut rest = &*chosen;
    for lot in lots {
        let (of_lot, after) = rest.split_at(lot.keys.len());
        let member = lot.candidates[of_lot[0] as usize].member;
        shares[member as usize] += of_lot.len();
        rest = after;
    }
    let nodes = shares.iter().filter(|&&share| share > 0).count();
    let limit = (chosen.len() as f64 / nodes.max(1) as f64 * HEAVY).ceil() as usize;
    let mut rest = chosen;
    for lot in lots {
        let (mut of_lot, after) = rest.split_at_mut(lot.keys.len());
        rest = after;
        let giver = lot.candidates[of_lot[0] as usize].member as usize;
        while shares[giver] > limit && !of_lot.is_empty() {
            let Some(taker) = taker(lot, &shares, limit) else {
                break;
            };
            let taken_by = lot.candidates[taker].member as usize;
            let count = of_lot.len().min(shares[giver] - limit).min(limit - shares[taken_by]);
            shares[giver] -= count;
            shares[taken_by] += count;
            let (moved, others) = of_lot.split_at_mut(count);
            moved.fill(taker as u32);
            of_lot = others;
        }
    }
}

/// The candidate that takes keys of a lot: one that is asked anyway, if there is one, with the lowest load.
fn taker(lot: &Lot<'_>, shares: &[usize], limit: usize) -> Option<usize> {
    let candidates = lot.candidates.iter().enumerate();
    let candidates = candidates.map(|(place, candidate)| (shares[candidate.member as usize], candidate.load, place));
    let takers = candidates.filter(|&(share, ..)| share < limit);
    let best = takers.min_by_key(|&(share, load, place)| (share == 0, load, share, place));
    best.map(|(.., place)| place)
}
