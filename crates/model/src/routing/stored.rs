//! The routing table in its stored form: one JSON entry, which the coordination service limits to 1 MiB. So owners are
//! lists of numbers, moves are stored by the epochs of their steps, and of past moves only which partitions they changed.
//!
//! Input is checked: a table is never made of invalid lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Counts, RoutingTable, RoutingTableError, Stage, check, check_list};
use crate::node::NodeId;
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;

/// Lists of nodes by partition, by the epochs of the steps that made them.
type Lists = BTreeMap<u64, BTreeMap<PartitionId, Vec<NodeId>>>;

/// The stored form, not yet checked.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoutingTableText {
    epoch: u64,
    partitions: PartitionCount,
    owners: Vec<Vec<NodeId>>,
    /// The next owners of partitions whose moves have begun.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    next: Lists,
    /// The former owners of partitions whose moves have switched.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    former: Lists,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    switches: BTreeMap<u64, PartitionSet>,
    #[serde(default = "first_epoch", skip_serializing_if = "is_first_epoch")]
    since: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    counts: BTreeMap<u16, Counts>,
}

fn first_epoch() -> u64 {
    1
}

fn is_first_epoch(epoch: &u64) -> bool {
    *epoch == first_epoch()
}

impl From<RoutingTable> for RoutingTableText {
    fn from(table: RoutingTable) -> Self {
        let (mut next, mut former) = (Lists::new(), Lists::new());
        for (partition, stage) in table.moves {
            let (lists, at, list) = match stage {
                Stage::Begun { at, next: list } => (&mut next, at, list),
                Stage::Switched { at, former: list } => (&mut former, at, list),
            };
            lists.entry(at).or_default().insert(partition, list);
        }
        Self {
            epoch: table.epoch,
            partitions: table.partitions,
            owners: table.owners,
            next,
            former,
            switches: table.switches,
            since: table.since,
            counts: table.counts,
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
            switches,
            since,
            counts,
        } = text;
        check(partitions, &owners)?;
        let by_partition = |lists: Lists| {
            lists
                .into_iter()
                .flat_map(|(at, lists)| lists.into_iter().map(move |(partition, list)| (partition, at, list)))
        };
        let begun = by_partition(next).map(|(partition, at, next)| (partition, Stage::Begun { at, next }));
        let switched = by_partition(former).map(|(partition, at, former)| (partition, Stage::Switched { at, former }));
        let mut moves = BTreeMap::new();
        for (partition, stage) in begun.chain(switched) {
            check_list(partitions, partition, stage.joint())?;
            // A move may have begun before the first switch that is remembered.
            if !(1..=epoch).contains(&stage.at()) {
                return Err(RoutingTableError::Epochs { epoch, at: stage.at() });
            }
            if moves.insert(partition, stage).is_some() {
                return Err(RoutingTableError::Moving { partition });
            }
        }
        let first = switches.keys().next().copied().unwrap_or(since);
        let last = switches.keys().last().copied().unwrap_or(since);
        if since < 1 || first < since || last > epoch {
            let at = if last > epoch { last } else { since };
            return Err(RoutingTableError::Epochs { epoch, at });
        }
        let named = switches.values().flat_map(|set| set.iter());
        if let Some(partition) = named.last().filter(|last| last.get() >= partitions.get()) {
            return Err(RoutingTableError::NoPartition { partition, partitions });
        }
        Ok(Self {
            epoch,
            partitions,
            owners,
            moves,
            switches,
            since,
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Steps;
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
    fn a_slow_move_is_stored_beside_many_that_switched() {
        let partitions = PartitionCount::try_from(128).unwrap();
        let owners = vec![nodes(&[1, 2]); 128];
        let next = vec![nodes(&[3, 2]); 128];
        let mut table = RoutingTable::first(partitions, owners)
            .unwrap()
            .with_plan(next)
            .unwrap();
        for partition in 1..128 {
            let partition = [PartitionId::new(partition)].into_iter().collect();
            let switch = Steps {
                switch: partition,
                ..Steps::default()
            };
            table = table.after(&switch).unwrap();
        }
        let text = serde_json::to_string(&table).unwrap();
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn only_the_changed_lists_of_a_plan_are_stored() {
        let mut next = four().all_owners().to_vec();
        next[2] = nodes(&[3, 4]);
        let table = four().with_plan(next).unwrap();
        let text = serde_json::to_string(&table).unwrap();
        assert!(text.ends_with(r#""next":{"2":{"2":[3,4]}}}"#), "{text}");
        let changes: Vec<_> = table.changes().collect();
        assert_eq!(changes, [(PartitionId::new(2), &nodes(&[3, 4])[..])]);
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_stored_table_is_checked_when_parsed() {
        for text in [
            r#"{"epoch":1,"partitions":2,"owners":[[1]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2,2]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[0]]}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":{"2":[1]}}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":{"1":[1,1]}}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"1":{"1":[1]}},"former":{"1":{"1":[1]}}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"next":{"2":{"1":[1]}}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"former":{"1":{"3":[1]}}}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"since":2}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"since":0}"#,
            r#"{"epoch":1,"partitions":2,"owners":[[1],[2]],"switches":{"2":"0"}}"#,
            r#"{"epoch":2,"partitions":2,"owners":[[1],[2]],"switches":{"2":"1-0"}}"#,
            r#"{"epoch":2,"partitions":2,"owners":[[1],[2]],"switches":{"2":"7"}}"#,
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
        let end = r#""former":{"3":{"1":[2,3],"2":[3,1]}},"switches":{"3":"1-2"}}"#;
        assert!(text.ends_with(end), "{text}");
        assert_eq!(serde_json::from_str::<RoutingTable>(&text).unwrap(), switched);
        let text = serde_json::to_string(&switched.finished()).unwrap();
        assert_eq!(
            serde_json::from_str::<RoutingTable>(&text).unwrap(),
            switched.finished()
        );
    }
}
