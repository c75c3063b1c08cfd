//! The routing table in its stored form: one JSON entry, which the coordination service limits to 1 MiB. So owners are
//! lists of numbers, a plan stores only the lists that it changes, and the last plan only which lists it changed.
//!
//! Input is checked: a table is never made of invalid lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Moved, RoutingTable, RoutingTableError, Stage, check};
use crate::node::NodeId;
use crate::partition::PartitionCount;

/// The stored form, not yet checked.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoutingTableText {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    /// The next lists of the plan, only those that it changes, by partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<BTreeMap<u32, Vec<NodeId>>>,
    /// The former lists of the plan, only those that it changed, by partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<BTreeMap<u32, Vec<NodeId>>>,
    #[serde(default = "first_epoch", skip_serializing_if = "is_first_epoch")]
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved: Option<Moved>,
}

fn first_epoch() -> u64 {
    1
}

fn is_first_epoch(epoch: &u64) -> bool {
    *epoch == first_epoch()
}

impl From<RoutingTable> for RoutingTableText {
    fn from(table: RoutingTable) -> Self {
        let RoutingTable {
            epoch,
            partitions,
            owners,
            stage,
            since,
            moved,
        } = table;
        let changed = |lists: Vec<Vec<NodeId>>| {
            let lists = (0..).zip(lists).zip(&owners);
            lists
                .filter(|((_, list), now)| list != *now)
                .map(|(list, _)| list)
                .collect()
        };
        let (next, former) = match stage {
            Stage::Idle => (None, None),
            Stage::Begun { next } => (Some(changed(next)), None),
            Stage::Switched { former } => (None, Some(changed(former))),
        };
        Self {
            epoch,
            partitions,
            owners,
            next,
            former,
            since,
            moved,
        }
    }
}

impl TryFrom<RoutingTableText> for RoutingTable {
    type Error = RoutingTableError;

    fn try_from(text: RoutingTableText) -> Result<Self, RoutingTableError> {
        let RoutingTableText {
            epoch,
            partitions,
            owners,
            next,
            former,
            since,
            moved,
        } = text;
        check(partitions, &owners)?;
        let whole = |changed: BTreeMap<u32, Vec<NodeId>>| {
            let mut lists = owners.clone();
            for (partition, nodes) in changed {
                let list = lists.get_mut(partition as usize);
                *list.ok_or(RoutingTableError::NoPartition { partition, partitions })? = nodes;
            }
            check(partitions, &lists).map(|()| lists)
        };
        let stage = match (next, former) {
            (None, None) => Stage::Idle,
            (Some(next), None) => Stage::Begun { next: whole(next)? },
            (None, Some(former)) => Stage::Switched { former: whole(former)? },
            (Some(_), Some(_)) => return Err(RoutingTableError::TwoStages),
        };
        let last = moved.as_ref().map_or(since, |moved| moved.at);
        if !(1..=last).contains(&since) || last > epoch {
            return Err(RoutingTableError::Epochs { epoch, since, last });
        }
        Ok(Self {
            epoch,
            partitions,
            owners,
            stage,
            since,
            moved,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{four, nodes};
    use super::*;
    use crate::partition::PartitionId;

    #[test]
    fn a_table_without_plan_is_stored_as_lists_of_numbers() {
        let text = serde_json::to_string(&four()).unwrap();
        assert_eq!(text, r#"{"epoch":1,"partitions":4,"owners":[[1,2],[2,3],[3,1],[1,2]]}"#);
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), four());
    }

    #[test]
    fn only_the_changed_lists_of_a_plan_are_stored() {
        let mut next = four().all_owners().to_vec();
        next[2] = nodes(&[3, 4]);
        let table = four().with_plan(next).unwrap();
        let text = serde_json::to_string(&table).unwrap();
        assert!(text.ends_with(r#""next":{"2":[3,4]}}"#), "{text}");
        let changes: Vec<_> = table.changes().collect();
        assert_eq!(changes, [(PartitionId::new(2), &nodes(&[3, 4])[..])]);
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_plan_without_changes_is_still_a_plan_when_parsed() {
        let table = four().with_plan(four().all_owners().to_vec()).unwrap();
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_stored_table_is_checked_when_parsed() {
        for text in [
            r#"{"epoch":1,"partitions":2,"owners":[[1]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2,2]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[0]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"2":[1]}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":[1,1]}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":[1]},"former":{"1":[1]}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"former":{"3":[1]}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"since":2}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"moved":{"at":2,"partitions":"0"}}"#,
            r#"{"epoch":2,"partitions":2,"owners":[[1],[2]],"moved":{"at":2,"partitions":"1-0"}}"#,
        ] {
            assert!(serde_json::from_str::<RoutingTable>(text).is_err(), "{text}");
        }
    }

    /// Every list changed, all numbers of five digits: the largest table that `place` makes.
    #[test]
    fn the_largest_table_and_plan_fit_into_an_entry() {
        for (count, replicas) in [(16384u32, 3u32), (16384, 4), (32, 2048)] {
            let partitions = PartitionCount::try_from(count).unwrap();
            let list = |first: u32| (first..first + replicas).filter_map(NodeId::new).collect();
            let table = RoutingTable::first(partitions, vec![list(90_000); count as usize]).unwrap();
            // The last plan has changed those partitions that take the most text.
            let mut last = table.all_owners().to_vec();
            last.iter_mut().step_by(2).for_each(|nodes| nodes.reverse());
            let table = table.with_plan(last).unwrap().finished();
            let table = table.with_plan(vec![list(97_000); count as usize]).unwrap();
            let bytes = serde_json::to_vec(&table).unwrap().len();
            assert!(
                bytes < 1 << 20,
                "{count} partitions, {replicas} replicas: {bytes} bytes"
            );
        }
    }

    #[test]
    fn a_table_after_a_switch_is_stored_with_former_owners() {
        let mut next = four().all_owners().to_vec();
        (next[1], next[2]) = (nodes(&[2, 4]), nodes(&[3, 4]));
        let switched = four().with_plan(next).unwrap().switched();
        let text = serde_json::to_string(&switched).unwrap();
        let end = r#""former":{"1":[2,3],"2":[3,1]},"moved":{"at":3,"partitions":"1-2"}}"#;
        assert!(text.ends_with(end), "{text}");
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), switched);
        let text = serde_json::to_string(&switched.finished()).unwrap();
        assert_eq!(
            serde_json::from_str::<RoutingTable>(&text).unwrap(),
            switched.finished()
        );
    }
}
