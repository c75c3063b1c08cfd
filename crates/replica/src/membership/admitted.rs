//! Whether a replica does what it is asked by a routing table that may be older, or newer, than the one that it knows.
//! Without I/O.
//!
//! A coordinator counts answers by its own table. What it counts means nothing where owners are others by now: a
//! read may miss what was written by the newer table, and a write be missed by reads that go by that. So a replica refuses
//! both as soon as it knows better, of the very partitions whose owners differ and of no others. One that knows less
//! than the coordinator does what it is asked: what it holds counts by either table.
//!
//! What is not counted goes by no table, and is never refused: hints and repairs bring what some replica has anyway.

use std::num::NonZeroU64;

use fondaco_model::{PartitionId, RoutingTable};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaError, ReplicaErrorCode};

/// Whether a replica that goes by this table does this for a partition, for a coordinator that goes by the table of an epoch.
///
/// # Errors
/// `OLDTABLE`: one of both tables is too old for it.
pub fn admitted(
    table: &RoutingTable,
    partition: PartitionId,
    command: ReplicaCommand,
    epoch: Option<NonZeroU64>,
) -> Result<(), ReplicaError> {
    let Some(asked_by) = epoch.map(NonZeroU64::get) else {
        return Ok(());
    };
    let knows = table.epoch();
    let since = match command {
        ReplicaCommand::Get => table.reads_since(partition),
        ReplicaCommand::Put | ReplicaCommand::Merge => table.writes_since(partition),
        // A replica that has not heard of a plan takes writes of coordinators that have not either: what it is
        // compared of now may not be all.
        ReplicaCommand::Tree | ReplicaCommand::Sync if knows < asked_by => {
            return Err(ReplicaError::new(
                ReplicaErrorCode::OldTable,
                format!(
                    "this node knows the routing table of epoch {knows}, and is to be compared by that of {asked_by}: \
                     ask again in a moment"
                ),
            ));
        }
        ReplicaCommand::Tree | ReplicaCommand::Sync | ReplicaCommand::Hint | ReplicaCommand::OldestHint => 0,
    };
    if asked_by >= since {
        return Ok(());
    }
    Err(ReplicaError::new(
        ReplicaErrorCode::OldTable,
        format!(
            "partition {partition} has other owners in the routing table of epoch {knows} than in that of {asked_by}: \
             ask for a newer topology"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use fondaco_model::{NodeId, PartitionCount};

    use super::*;

    const COMMANDS: [ReplicaCommand; 7] = [
        ReplicaCommand::Get,
        ReplicaCommand::Put,
        ReplicaCommand::Merge,
        ReplicaCommand::Hint,
        ReplicaCommand::Tree,
        ReplicaCommand::Sync,
        ReplicaCommand::OldestHint,
    ];

    /// The tables of a plan that moves the second of two partitions: before it, begun, switched, finished.
    fn tables() -> [RoutingTable; 4] {
        let nodes = |numbers: [u32; 2]| numbers.into_iter().filter_map(NodeId::new).collect::<Vec<_>>();
        let partitions = PartitionCount::try_from(2).unwrap();
        let before = RoutingTable::first(partitions, vec![nodes([1, 2]), nodes([1, 2])]).unwrap();
        let begun = before.with_plan(vec![nodes([1, 2]), nodes([3, 4])]).unwrap();
        let (switched, finished) = (begun.switched(), begun.finished());
        [before, begun, switched, finished]
    }

    fn refused(known: &RoutingTable, partition: u32, epoch: u64) -> Vec<ReplicaCommand> {
        let is_refused = |command: &ReplicaCommand| {
            let admitted = admitted(known, PartitionId::new(partition), *command, NonZeroU64::new(epoch));
            admitted.is_err_and(|error| error.code == ReplicaErrorCode::OldTable)
        };
        COMMANDS.into_iter().filter(is_refused).collect()
    }

    #[test]
    fn what_a_plan_does_not_move_is_asked_by_any_table_and_what_goes_by_none_is_not_refused() {
        let tables = tables();
        for known in &tables {
            for asked_by in tables.iter().take(known.epoch() as usize) {
                assert_eq!(refused(known, 0, asked_by.epoch()), []);
            }
            assert_eq!(refused(known, 1, 0), []);
            assert_eq!(refused(known, 1, known.epoch()), []);
        }
    }

    #[test]
    fn who_has_not_heard_that_a_plan_began_writes_nothing_and_who_has_not_heard_of_its_switch_reads_nothing() {
        use ReplicaCommand::{Get, Merge, Put};
        let [_, begun, switched, finished] = &tables();
        assert_eq!(refused(begun, 1, 1), [Put, Merge]);
        for known in [switched, finished] {
            assert_eq!(refused(known, 1, 1), [Get, Put, Merge]);
            assert_eq!(refused(known, 1, 2), [Get], "its writes go to the new owners too");
        }
        assert_eq!(refused(finished, 1, 3), []);
    }

    #[test]
    fn who_has_not_heard_of_a_plan_is_not_compared_by_it_and_does_all_else() {
        use ReplicaCommand::{Sync, Tree};
        let [before, begun, ..] = &tables();
        for asked_by in 2..=4 {
            assert_eq!(refused(before, 1, asked_by), [Tree, Sync]);
        }
        assert_eq!(refused(begun, 1, 2), []);
    }
}
