//! Decides whether a replica carries out a command of a coordinator whose routing table is older or newer than its own.
//! Without I/O.
//!
//! A coordinator counts replies by its own table. If the owners have changed since, its quorum is not valid: its read
//! may miss writes made under the newer table, and reads under the newer table may miss its write. So a replica that
//! has the newer table refuses both, for exactly those partitions whose owners differ. A replica that has the older
//! table carries out the command: its reply counts under either table.
//!
//! Commands that are not counted carry no epoch, and are never refused: hints and repairs deliver records that some
//! replica has anyway.

use std::num::NonZeroU64;

use fondaco_model::{PartitionId, RoutingTable};
use fondaco_protocol::replica::{ReplicaCommand, ReplicaError, ReplicaErrorCode};

/// Whether a replica with this table carries out a command for a partition, for a coordinator that uses the table of an
/// epoch.
///
/// # Errors
/// `OLDTABLE`: one of the two tables is too old.
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
        // A replica that has not heard of a plan accepts writes of coordinators that have not either: a comparison now
        // may miss some of them.
        ReplicaCommand::Tree | ReplicaCommand::Sync if knows < asked_by => {
            return Err(ReplicaError::new(
                ReplicaErrorCode::OldTable,
                format!(
                    "this node has the routing table of epoch {knows}, and the comparison needs that of {asked_by}: \
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
             fetch a newer topology"
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
    fn unmoved_partitions_and_uncounted_commands_are_never_refused() {
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
    fn writes_need_the_begun_plan_and_reads_the_switched_one() {
        use ReplicaCommand::{Get, Merge, Put};
        let [_, begun, switched, finished] = &tables();
        assert_eq!(refused(begun, 1, 1), [Put, Merge]);
        for known in [switched, finished] {
            assert_eq!(refused(known, 1, 1), [Get, Put, Merge]);
            assert_eq!(
                refused(known, 1, 2),
                [Get],
                "such a coordinator also writes to the new owners"
            );
        }
        assert_eq!(refused(finished, 1, 3), []);
    }

    #[test]
    fn a_replica_without_the_plan_refuses_only_comparisons() {
        use ReplicaCommand::{Sync, Tree};
        let [before, begun, ..] = &tables();
        for asked_by in 2..=4 {
            assert_eq!(refused(before, 1, asked_by), [Tree, Sync]);
        }
        assert_eq!(refused(begun, 1, 2), []);
    }
}
