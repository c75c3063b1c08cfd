//! The number of replicas of versioned stores that has changed, or is changing, with their quorums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Copies, RoutingTable};
use crate::versioned::Quorums;

/// The quorums of a versioned store whose number of replicas has changed or is changing. Those in the store's own record do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Those of the owners.
    pub now: Quorums,
    /// While they change, those of the other lists: the next ones, or the former ones after the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<Quorums>,
}

impl Counts {
    /// The quorums after the moves of a change have switched.
    pub(super) fn switch(&mut self) {
        if let Some(joint) = &mut self.joint {
            std::mem::swap(&mut self.now, joint);
        }
    }
}

impl RoutingTable {
    /// The stores whose number of replicas has changed or is changing.
    pub fn counts(&self) -> &BTreeMap<u16, Counts> {
        &self.counts
    }

    /// Whether the number of replicas of a store is changing.
    pub fn is_counting(&self) -> bool {
        self.counts.values().any(|counts| counts.joint.is_some())
    }

    /// The table with other quorums of a store whose number of replicas has changed; `None` if it has not, or is changing.
    pub fn with_quorums(&self, store: u16, quorums: Quorums) -> Option<Self> {
        let counts = self.counts.get(&store).filter(|counts| counts.joint.is_none())?;
        let mut table = self.clone();
        table.epoch += u64::from(counts.now != quorums);
        let (now, joint) = (quorums, None);
        table.counts.insert(store, Counts { now, joint });
        Some(table)
    }

    /// How many nodes have the store with this number; by default, `replicas`.
    pub fn copies(&self, store: u16, replicas: usize) -> Copies {
        match self.counts.get(&store) {
            None => Copies::of(replicas),
            Some(counts) => Copies {
                owners: counts.now.replicas as usize,
                joint: counts.joint.unwrap_or(counts.now).replicas as usize,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{four, nodes};
    use super::super::{Copies, RoutingTable, Steps};
    use crate::node::NodeId;
    use crate::partition::PartitionId;
    use crate::partition_set::PartitionSet;
    use crate::versioned::{Quorums, VersionedSettings};

    #[test]
    fn a_number_of_replicas_changes_for_all_partitions_together() {
        let quorums = |replicas| VersionedSettings::of(replicas).quorums(replicas);
        let counted = |table: &RoutingTable| table.copies(7, 9);
        let copies = |owners, joint| Copies { owners, joint };
        let begun = four().after(&Steps {
            count: Some((7, quorums(2), quorums(1))),
            ..Steps::default()
        });
        let begun = begun.unwrap();
        assert_eq!((begun.epoch(), counted(&begun)), (2, copies(2, 1)));
        assert_eq!(begun.copies(8, 9), Copies::of(9), "another store");
        let first = PartitionId::new(0);
        let some = PartitionSet::from_iter([first]);
        for steps in [
            Steps {
                switch: some.clone(),
                ..Steps::default()
            },
            Steps {
                cancel: some,
                ..Steps::default()
            },
        ] {
            assert_eq!(begun.after(&steps), Ok(begun.clone()));
        }
        let moved = Steps {
            begin: [(first, nodes(&[4, 5]))].into(),
            ..Steps::default()
        };
        assert!(begun.after(&moved).is_err());
        let (switched, finished) = (begun.switched(), begun.finished());
        assert_eq!(counted(&switched), copies(1, 2));
        assert_eq!((counted(&finished), finished.is_counting()), (Copies::of(1), false));
        assert_eq!(counted(&begun.cancelled()), Copies::of(2));
        let second = NodeId::new(2).unwrap();
        let holds = |table: &RoutingTable| table.holds(second, first, counted(table));
        assert!(holds(&begun) && holds(&switched) && !holds(&finished));
        assert_eq!(switched.all_owners(), four().all_owners());
        assert_eq!((finished.reads_since(first), finished.writes_since(first)), (3, 2));
        let raised = finished.with_quorums(7, Quorums { reads: 2, ..quorums(1) });
        assert!(switched.with_quorums(7, quorums(2)).is_none() && raised.is_some_and(|table| table.epoch() == 5));
        for table in [begun, switched, finished] {
            let text = serde_json::to_string(&table).unwrap();
            assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
        }
    }
}
