//! The nodes that hold each partition, spread over zones.
//!
//! Replicas are spread over zones: zones under *zoned*, groups under *grouped*, single nodes otherwise. This takes two
//! steps, each of them a [`Deal`]: how many replicas of each partition are in each zone, then which nodes of the zone
//! hold them.

use std::collections::BTreeMap;

use super::deal::{Deal, Pile, Together};
use super::share::{Taker, shares};

/// Nodes, their zones, and the number of replicas.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    weights: &'a [u64],
    zones: Vec<Zone>,
    /// How many replicas of a partition are beyond the `least` of their zones.
    extras: usize,
}

#[derive(Debug)]
struct Zone {
    nodes: Vec<usize>,
    /// How many replicas of each partition it has at least. At most, it has one more.
    least: usize,
    /// Whether it may have one more, since it has enough nodes.
    more: bool,
}

impl<'a> Spread<'a> {
    /// Nodes with their zones and weights, and how many of them should hold a partition: at most all.
    pub(super) fn new(zones: &[String], weights: &'a [u64], replicas: usize) -> Self {
        let mut nodes_of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (node, zone) in zones.iter().enumerate() {
            nodes_of.entry(zone).or_default().push(node);
        }
        // As many in each zone as all can have, then one more in some.
        let filled = |level: usize| nodes_of.values().map(|nodes| nodes.len().min(level)).sum::<usize>();
        let level = (0..=replicas)
            .rev()
            .find(|&level| filled(level) <= replicas)
            .unwrap_or(0);
        let extras = replicas - filled(level);
        let zones = nodes_of.into_values().map(|nodes| Zone {
            least: nodes.len().min(level),
            more: nodes.len() > level,
            nodes,
        });
        Self {
            weights,
            zones: zones.collect(),
            extras,
        }
    }

    /// For each partition the nodes that hold it, as close as possible to the present ones.
    pub(super) fn sets(&self, present: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut together = Together::new(self.weights.len());
        let mut sets = vec![Vec::new(); present.len()];
        for (zone, demands) in self.zones.iter().zip(self.demands(present)) {
            let mut held: Vec<Vec<usize>> = present.iter().map(|nodes| zone.of(nodes)).collect();
            self.trim(&mut held, &demands);
            let loads = self.loads(&held);
            let taker = |&node: &usize| Taker {
                weight: self.weights[node],
                min: 0,
                max: present.len() as u64,
                now: loads[node],
            };
            let takers: Vec<Taker> = zone.nodes.iter().map(taker).collect();
            let deal = Deal {
                takers: &zone.nodes,
                quotas: &shares(demands.iter().sum::<usize>() as u64, &takers),
                demands: &demands,
                piles: self.piles(&held, &loads, |_, node| Some((node, node))),
            };
            deal.onto(&mut sets, held, &mut together);
        }
        sets
    }

    /// For each zone the number of its replicas of each partition.
    fn demands(&self, present: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut extras = vec![Vec::new(); present.len()];
        if self.extras > 0 {
            self.deal_extras(present, &mut extras);
        }
        let demand = |zone: usize, extras: &Vec<usize>| self.zones[zone].least + usize::from(extras.contains(&zone));
        let of_zone = |zone| extras.iter().map(|extras| demand(zone, extras)).collect();
        (0..self.zones.len()).map(of_zone).collect()
    }

    /// For each partition the zones that have one replica more than their `least`.
    fn deal_extras(&self, present: &[Vec<usize>], extras: &mut [Vec<usize>]) {
        let partitions = present.len() as u64;
        let loads = self.loads(present);
        let open: Vec<usize> = (0..self.zones.len()).filter(|&zone| self.zones[zone].more).collect();
        let has_more = |zone: usize, nodes: &[usize]| self.zones[zone].of(nodes).len() > self.zones[zone].least;
        let zones_of = |nodes: &Vec<usize>| open.iter().copied().filter(|&zone| has_more(zone, nodes)).collect();
        let mut held: Vec<Vec<usize>> = present.iter().map(zones_of).collect();
        for zones in &mut held {
            zones.truncate(self.extras);
        }
        let taker = |&index: &usize| {
            let zone = &self.zones[index];
            let least = zone.least as u64 * partitions;
            Taker {
                weight: zone.nodes.iter().map(|&node| self.weights[node]).sum(),
                min: least,
                max: least + partitions,
                now: least + held.iter().filter(|zones| zones.contains(&index)).count() as u64,
            }
        };
        let takers: Vec<Taker> = open.iter().map(taker).collect();
        let least: u64 = takers.iter().map(|taker| taker.min).sum();
        let totals = shares(least + self.extras as u64 * partitions, &takers);
        let quotas: Vec<u64> = totals
            .iter()
            .zip(&takers)
            .map(|(total, taker)| total - taker.min)
            .collect();
        // Zones give up partitions of their fullest nodes. Otherwise, their other nodes would have to make up for the
        // loss of a node that had just its share.
        let fullest = |at: usize, zone: usize| {
            let nodes = self.zones[zone].of(&present[at]);
            nodes
                .into_iter()
                .max_by_key(|&node| self.level(loads[node], node))
                .map(|node| (zone, node))
        };
        let deal = Deal {
            takers: &open,
            quotas: &quotas,
            demands: &vec![self.extras; present.len()],
            piles: self.piles(&held, &loads, fullest),
        };
        deal.onto(extras, held, &mut Together::new(self.zones.len()));
    }

    /// For each node, a pile of the places that it lets a taker give up.
    fn piles(
        &self,
        held: &[Vec<usize>],
        loads: &[u64],
        taker_and_node: impl Fn(usize, usize) -> Option<(usize, usize)>,
    ) -> Vec<Pile> {
        let mut lists_of: Vec<(usize, Vec<usize>)> = vec![(0, Vec::new()); self.weights.len()];
        for (at, takers) in held.iter().enumerate().rev() {
            for (taker, node) in takers.iter().filter_map(|&taker| taker_and_node(at, taker)) {
                lists_of[node].0 = taker;
                lists_of[node].1.push(at);
            }
        }
        let pile = |(node, (taker, lists))| Pile {
            taker,
            height: loads[node],
            weight: self.weights[node],
            lists,
        };
        lists_of
            .into_iter()
            .enumerate()
            .map(pile)
            .filter(|pile| !pile.lists.is_empty())
            .collect()
    }

    /// How full a node is with this number of partitions, relative to its weight.
    fn level(&self, load: u64, node: usize) -> u64 {
        (load << 32) / self.weights[node]
    }

    /// For each node, the number of its lists.
    fn loads(&self, lists: &[Vec<usize>]) -> Vec<u64> {
        let mut loads = vec![0; self.weights.len()];
        lists.iter().flatten().for_each(|&node| loads[node] += 1);
        loads
    }

    /// Removes nodes from lists that are longer than their demand, the fullest nodes first.
    fn trim(&self, lists: &mut [Vec<usize>], demands: &[usize]) {
        let mut loads = self.loads(lists);
        for (list, &demand) in lists.iter_mut().zip(demands) {
            list.sort_by_key(|&node| (self.level(loads[node], node), node));
            for node in list.drain(demand.min(list.len())..) {
                loads[node] -= 1;
            }
        }
    }
}

impl Zone {
    /// The nodes of a list that belong to the zone.
    fn of(&self, nodes: &[usize]) -> Vec<usize> {
        let mine = |node: &&usize| self.nodes.binary_search(node).is_ok();
        nodes.iter().filter(mine).copied().collect()
    }
}
