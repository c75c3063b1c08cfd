//! The order of preference of a partition's nodes.
//!
//! Each rank is even by itself: the number of partitions in which a node is first is its number of partitions divided
//! by the replicas, rounded down or up; then the same for the second rank, with the remaining partitions; and so on. A
//! store with fewer replicas than the cluster uses only the first ranks, which are even too, except for rounding.

use std::collections::VecDeque;

/// A set as a list that begins with a different node for each partition.
pub(super) fn turned(mut set: Vec<usize>, partition: usize) -> Vec<usize> {
    let by = partition % set.len().max(1);
    set.rotate_left(by);
    set
}

/// A set as a list in which earlier members keep their ranks; others take the free ones.
pub(super) fn kept(was: &[usize], set: Vec<usize>) -> Vec<usize> {
    let rank_of = |node: &usize| was.iter().position(|n| n == node);
    let mut list: Vec<Option<usize>> = vec![None; set.len()];
    let (mut stay, mut come): (Vec<usize>, Vec<usize>) = set.into_iter().partition(|node| rank_of(node).is_some());
    stay.retain(|node| match rank_of(node).and_then(|rank| list.get_mut(rank)) {
        Some(place) => {
            *place = Some(*node);
            false
        }
        None => true,
    });
    stay.append(&mut come);
    let mut free = stay.into_iter();
    list.into_iter()
        .filter_map(|place| place.or_else(|| free.next()))
        .collect()
}

/// Reorders lists of one length until every rank is even, with few changes.
pub(super) fn even(lists: &mut [Vec<usize>], nodes: usize) {
    let replicas = lists.first().map_or(0, Vec::len);
    debug_assert!(lists.iter().all(|list| list.len() == replicas));
    for rank in 0..replicas.saturating_sub(1) {
        Rank::new(lists, rank, nodes).even();
    }
}

/// One rank of all lists; the ranks before it are settled.
struct Rank<'a> {
    lists: &'a mut [Vec<usize>],
    rank: usize,
    /// By node: how often it has this rank.
    counts: Vec<usize>,
    /// By node: the least times that it should have it.
    low: Vec<usize>,
    /// By node: the most times that it may have it. Both bounds can always be kept: if nodes could be divided, giving
    /// each node of a list an equal part would do so.
    high: Vec<usize>,
}

impl<'a> Rank<'a> {
    fn new(lists: &'a mut [Vec<usize>], rank: usize, nodes: usize) -> Self {
        let ranks = lists.first().map_or(1, Vec::len) - rank;
        let mut counts = vec![0; nodes];
        let mut unsettled = vec![0usize; nodes];
        for list in lists.iter() {
            counts[list[rank]] += 1;
            list[rank..].iter().for_each(|&node| unsettled[node] += 1);
        }
        Self {
            lists,
            rank,
            counts,
            low: unsettled.iter().map(|count| count / ranks).collect(),
            high: unsettled.iter().map(|count| count.div_ceil(ranks)).collect(),
        }
    }

    fn even(&mut self) {
        for at in 0..self.lists.len() {
            self.exchange(at);
        }
        while self.pass_on(
            |rank, n| rank.counts[n] > rank.high[n],
            |rank, n| rank.counts[n] < rank.high[n],
        ) {}
        while self.pass_on(
            |rank, n| rank.counts[n] > rank.low[n],
            |rank, n| rank.counts[n] < rank.low[n],
        ) {}
    }

    /// Swaps places within one list, if that makes the rank more even.
    fn exchange(&mut self, at: usize) {
        let list = &self.lists[at];
        let has = list[self.rank];
        let need = |node: usize| (self.counts[node] < self.low[node], self.counts[node] < self.high[node]);
        let others = list[self.rank + 1..].iter().copied();
        let Some(other) = others.max_by_key(|&node| (need(node), std::cmp::Reverse(node))) else {
            return;
        };
        let above_high = self.counts[has] > self.high[has] && need(other).1;
        let above_low = self.counts[has] > self.low[has] && need(other).0;
        if above_high || above_low {
            self.give(at, other);
        }
    }

    /// Gives the rank in a list to another of its nodes.
    fn give(&mut self, at: usize, to: usize) {
        let list = &mut self.lists[at];
        // `to` comes from this list.
        if let Some(place) = list.iter().position(|&node| node == to) {
            self.counts[list[self.rank]] -= 1;
            self.counts[to] += 1;
            list.swap(self.rank, place);
        }
    }

    /// Passes the rank on, in the fewest steps, from a node that has it too often to one that does not have it often
    /// enough. Returns false if there are no such two nodes.
    fn pass_on(&mut self, often: impl Fn(&Self, usize) -> bool, seldom: impl Fn(&Self, usize) -> bool) -> bool {
        let nodes = self.counts.len();
        let mut lists_of: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for (at, list) in self.lists.iter().enumerate() {
            lists_of[list[self.rank]].push(at);
        }
        let mut queue: VecDeque<usize> = (0..nodes).filter(|&node| often(self, node)).collect();
        let mut reached = vec![false; nodes];
        queue.iter().for_each(|&node| reached[node] = true);
        // The list in which a node takes over.
        let mut takes_in: Vec<Option<usize>> = vec![None; nodes];
        while let Some(node) = queue.pop_front() {
            if seldom(self, node) {
                let mut taker = node;
                while let Some(at) = takes_in[taker] {
                    let giver = self.lists[at][self.rank];
                    self.give(at, taker);
                    taker = giver;
                }
                return true;
            }
            for &at in &lists_of[node] {
                for &next in &self.lists[at][self.rank + 1..] {
                    if !reached[next] {
                        reached[next] = true;
                        takes_in[next] = Some(at);
                        queue.push_back(next);
                    }
                }
            }
        }
        false
    }
}
