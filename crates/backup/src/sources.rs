//! Chooses the nodes to read so that no write acknowledged before the backup is missed.
//!
//! A write is acknowledged when W nodes have it, so it is seen if fewer than W of the nodes that may have it are left
//! out. Usually these are the N owners of its partition, and N - W + 1 of them are read. With a sloppy quorum, a node
//! that keeps a hint for an owner counts too, and that may be any node. So fewer than W of all nodes are left out, and
//! the hints of the rest are read before the owners. A hint that is handed over in between is then found on the owner.

use std::collections::BTreeSet;

use anyhow::anyhow;
use fondaco_model::versioned::owners_to_read;

use crate::cluster::{Passing, StoreSettings, Topology};

/// The nodes to read.
#[derive(Debug, Clone)]
pub struct Sources {
    writes: usize,
    is_sloppy: bool,
    /// Nodes that are not read: for a store with sloppy quorums, to the end; for others, for this partition. Other
    /// threads leave out other nodes.
    left_out: BTreeSet<u32>,
}

impl Sources {
    /// The sources for a store.
    pub fn new(settings: &StoreSettings) -> Self {
        Self {
            writes: settings.versioned.writes as usize,
            is_sloppy: settings.versioned.sloppy,
            left_out: BTreeSet::new(),
        }
    }

    /// The nodes whose hints are to be read: none, or all live nodes. All other nodes are left out from now on. Call it
    /// first.
    ///
    /// # Errors
    /// [`Passing::Cluster`] if too few are live.
    pub fn keepers(&mut self, topology: &Topology) -> anyhow::Result<Vec<u32>> {
        if !self.is_sloppy {
            return Ok(Vec::new());
        }
        self.check_all(topology)?;
        let (live, absent): (BTreeSet<u32>, _) = topology.nodes.keys().partition(|node| topology.is_live(**node));
        self.left_out.extend(absent);
        Ok(live.difference(&self.left_out).copied().collect())
    }

    /// The owners of a partition that are to be read.
    ///
    /// # Errors
    /// [`Passing::Cluster`] if too few are live.
    pub fn of(&self, topology: &Topology, partition: usize) -> anyhow::Result<Vec<u32>> {
        let owners = topology.owners_of(partition);
        let is_there = |node: &u32| topology.is_live(*node) && !self.left_out.contains(node);
        let mut there: Vec<u32> = owners.iter().copied().filter(is_there).collect();
        if self.is_sloppy {
            self.check_all(topology)?;
            return Ok(there);
        }
        let needed = owners_to_read(owners.len(), self.writes);
        if there.len() < needed {
            let absent = list(owners.iter().filter(|node| !is_there(node)));
            let count = there.len();
            let reason = anyhow!(
                "partition {partition} needs {needed} of its owners and {count} can be read: start node {absent}"
            );
            return Err(Passing::Cluster(reason).into());
        }
        there.truncate(needed);
        Ok(there)
    }

    /// Records that a node failed. Returns whether the other live nodes suffice; if not, the node must be retried.
    pub fn leave_out(&mut self, node: u32, topology: &Topology, partition: Option<usize>) -> bool {
        if !self.left_out.insert(node) {
            return false;
        }
        let is_enough = match partition {
            Some(partition) => self.of(topology, partition).is_ok(),
            None => self.check_all(topology).is_ok(),
        };
        match (is_enough, self.is_sloppy) {
            (true, _) => {}
            // The hints of the nodes that were left out have not been read.
            (false, true) => drop(self.left_out.remove(&node)),
            (false, false) => self.left_out.clear(),
        }
        is_enough
    }

    /// A partition has been read; failed nodes may be tried for the next one.
    pub fn go_on(&mut self) {
        if !self.is_sloppy {
            self.left_out.clear();
        }
    }

    /// Whether fewer than W of all nodes are left out.
    fn check_all(&self, topology: &Topology) -> anyhow::Result<()> {
        let is_out = |node: &&u32| !topology.is_live(**node) || self.left_out.contains(node);
        let out: BTreeSet<&u32> = topology.nodes.keys().filter(is_out).collect();
        if out.len() < self.writes {
            return Ok(());
        }
        let (most, absent) = (self.writes - 1, list(out));
        let reason = anyhow!(
            "any node may keep acknowledged writes for others, since the store is sloppy, so at most {most} can be left \
             out: start node {absent}"
        );
        Err(Passing::Cluster(reason).into())
    }
}

fn list<'a>(nodes: impl IntoIterator<Item = &'a u32>) -> String {
    let nodes: Vec<String> = nodes.into_iter().map(u32::to_string).collect();
    nodes.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Five nodes, some of them absent; partition 0 has the owners 1, 2, 3.
    fn topology(away: &[u32]) -> Topology {
        Topology {
            epoch: 1,
            partitions: 1.try_into().unwrap(),
            owners: vec![vec![1, 2, 3]],
            joint: BTreeMap::new(),
            nodes: (1..=5).map(|node| (node, !away.contains(&node))).collect(),
        }
    }

    fn sources(writes: usize, is_sloppy: bool) -> Sources {
        Sources {
            writes,
            is_sloppy,
            left_out: BTreeSet::new(),
        }
    }

    #[test]
    fn enough_owners_are_read_to_see_every_acknowledged_write() {
        for (writes, expected) in [(1, vec![1, 2, 3]), (2, vec![1, 2]), (3, vec![1])] {
            assert_eq!(sources(writes, false).of(&topology(&[]), 0).unwrap(), expected);
        }
        assert_eq!(sources(2, false).of(&topology(&[1]), 0).unwrap(), [2, 3]);
        let error = sources(2, false).of(&topology(&[1, 2]), 0).unwrap_err().to_string();
        assert!(error.contains("start node 1, 2"), "{error}");
    }

    #[test]
    fn a_failed_owner_is_replaced_while_others_are_live() {
        let (mut sources, topology) = (sources(2, false), topology(&[]));
        assert!(sources.leave_out(1, &topology, Some(0)));
        assert_eq!(sources.of(&topology, 0).unwrap(), [2, 3]);
        // No node is left to replace it, so all are retried.
        assert!(!sources.leave_out(3, &topology, Some(0)));
        assert_eq!(sources.of(&topology, 0).unwrap(), [1, 2]);
        assert!(sources.leave_out(2, &topology, Some(0)));
        sources.go_on();
        assert_eq!(sources.of(&topology, 0).unwrap(), [1, 2]);
    }

    #[test]
    fn sloppy_stores_read_all_nodes_but_fewer_than_w() {
        let mut sloppy = sources(2, true);
        assert_eq!(sloppy.keepers(&topology(&[])).unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(sloppy.keepers(&topology(&[4])).unwrap(), [1, 2, 3, 5]);
        assert_eq!(sloppy.of(&topology(&[4]), 0).unwrap(), [1, 2, 3]);
        // The hints of node 4 were not read, though it is back.
        assert!(!sloppy.leave_out(1, &topology(&[]), Some(0)));
        assert_eq!(sloppy.of(&topology(&[]), 0).unwrap(), [1, 2, 3]);
        assert!(sloppy.of(&topology(&[4, 5]), 0).is_err());
        assert!(sources(1, true).keepers(&topology(&[4])).is_err());
        assert!(sources(1, false).keepers(&topology(&[4])).unwrap().is_empty());
    }
}
