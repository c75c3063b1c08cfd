//! The steps of moves: they begin, switch, and are finished or cancelled.

use std::collections::BTreeMap;

use super::{Counts, RoutingTable, RoutingTableError, check, check_list};
use crate::node::NodeId;
use crate::partition::PartitionId;
use crate::partition_set::PartitionSet;
use crate::versioned::Quorums;

/// How many epochs with switches a table remembers. Of partitions whose last switch was earlier, it knows only that.
pub(super) const SWITCHES_MAX: usize = 64;

/// The stage of a partition's move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Its next owners fetch it.
    Begun {
        /// The epoch that the move began with.
        at: u64,
        /// The next owners.
        next: Vec<NodeId>,
    },
    /// Its next owners have become the owners.
    Switched {
        /// The epoch of the switch.
        at: u64,
        /// The owners before.
        former: Vec<NodeId>,
    },
}

impl Stage {
    /// The epoch of its last step.
    pub fn at(&self) -> u64 {
        let (Self::Begun { at, .. } | Self::Switched { at, .. }) = self;
        *at
    }

    /// The nodes besides the owners that take writes: the next or the former owners.
    pub fn joint(&self) -> &[NodeId] {
        let (Self::Begun { next: joint, .. } | Self::Switched { former: joint, .. }) = self;
        joint
    }
}

/// Steps of moves, which are taken together: they raise the epoch once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    /// Moves to begin: partitions that do not move yet, with their next owners.
    pub begin: BTreeMap<PartitionId, Vec<NodeId>>,
    /// Begun moves whose next owners become the owners.
    pub switch: PartitionSet,
    /// Switched moves that end.
    pub finish: PartitionSet,
    /// Begun moves that are given up: the owners stay.
    pub cancel: PartitionSet,
    /// A versioned store whose quorums are to change, by its number, with the present and the next ones: moves of all partitions begin.
    pub count: Option<(u16, Quorums, Quorums)>,
}

impl RoutingTable {
    /// The table after these steps, with the next epoch; the same table if none of them applies.
    ///
    /// # Errors
    /// Moves that cannot begin.
    pub fn after(&self, steps: &Steps) -> Result<Self, RoutingTableError> {
        let mut table = self.clone();
        let at = self.epoch + 1;
        // While a number of replicas changes, its moves switch together, or not at all.
        let begun: PartitionSet = self.begun().map(|(partition, ..)| partition).collect();
        let taken = |steps: &PartitionSet| match self.is_counting() && !steps.covers(&begun) {
            true => PartitionSet::EMPTY,
            false => steps.clone(),
        };
        table.end_moves(&taken(&steps.cancel), |stage| matches!(stage, Stage::Begun { .. }));
        table.end_moves(&steps.finish, |stage| matches!(stage, Stage::Switched { .. }));
        table.switch(at, &taken(&steps.switch));
        if table.moves.is_empty() {
            table.counts.values_mut().for_each(|counts| counts.joint = None);
        }
        table.begin(at, &steps.begin)?;
        if let Some((store, now, next)) = steps.count {
            table.begin_count(at, store, now, next)?;
        }
        if table != *self {
            table.epoch = at;
        }
        Ok(table)
    }

    /// Ends the moves of these partitions that are in a stage.
    fn end_moves(&mut self, partitions: &PartitionSet, is_in_stage: impl Fn(&Stage) -> bool) {
        self.moves
            .retain(|&partition, stage| !(partitions.contains(partition) && is_in_stage(stage)));
    }

    /// Makes the next owners of these partitions the owners, if their moves have begun.
    fn switch(&mut self, at: u64, partitions: &PartitionSet) {
        let mut switched = PartitionSet::EMPTY;
        for partition in partitions.iter() {
            if let Some(stage @ Stage::Begun { .. }) = self.moves.get_mut(&partition) {
                let owners = &mut self.owners[partition.get() as usize];
                let former = std::mem::replace(owners, stage.joint().to_vec());
                *stage = Stage::Switched { at, former };
                switched.insert(partition);
            }
        }
        if !switched.is_empty() {
            self.counts.values_mut().for_each(Counts::switch);
            self.note_switches(at, switched);
        }
    }

    fn begin(&mut self, at: u64, moves: &BTreeMap<PartitionId, Vec<NodeId>>) -> Result<(), RoutingTableError> {
        for (&partition, next) in moves {
            check_list(self.partitions, partition, next)?;
            if self.owners(partition) == *next {
                continue;
            }
            if self.moves.contains_key(&partition) || self.is_counting() {
                return Err(RoutingTableError::Moving { partition });
            }
            let next = next.clone();
            self.moves.insert(partition, Stage::Begun { at, next });
        }
        Ok(())
    }

    /// Begins moves of all partitions, to the same lists, for other quorums of a store.
    fn begin_count(&mut self, at: u64, store: u16, now: Quorums, next: Quorums) -> Result<(), RoutingTableError> {
        if let Some(&partition) = self.moves.keys().next() {
            return Err(RoutingTableError::Moving { partition });
        }
        let joint = Some(next);
        self.counts.insert(store, Counts { now, joint });
        let lists = self.owners.iter().cloned();
        let stages = lists.map(|next| Stage::Begun { at, next });
        self.moves = self.partitions.partitions().zip(stages).collect();
        Ok(())
    }

    fn note_switches(&mut self, at: u64, switched: PartitionSet) {
        self.switches.values_mut().for_each(|set| *set = set.without(&switched));
        self.switches.retain(|_, set| !set.is_empty());
        self.switches.insert(at, switched);
        if self.switches.len() > SWITCHES_MAX {
            // Half of them at once: readers of `since` have to look again at each such change.
            while self.switches.len() > SWITCHES_MAX / 2
                && let Some((epoch, _)) = self.switches.pop_first()
            {
                self.since = epoch;
            }
        }
    }

    /// This table with moves begun to all of these lists that differ from the present ones, after other moves that have
    /// only begun are given up, and others finished.
    ///
    /// # Errors
    /// Lists that are not a routing table.
    pub fn with_plan(&self, next: Vec<Vec<NodeId>>) -> Result<Self, RoutingTableError> {
        check(self.partitions, &next)?;
        let table = self.cancelled().finished();
        table.after(&Steps {
            begin: self.partitions.partitions().zip(next).collect(),
            ..Steps::default()
        })
    }

    /// The table after the next owners of all begun moves have taken over.
    pub fn switched(&self) -> Self {
        self.with(Steps {
            switch: self.begun().map(|(partition, ..)| partition).collect(),
            ..Steps::default()
        })
    }

    /// The table after all its moves are finished.
    pub fn finished(&self) -> Self {
        let table = self.switched();
        table.with(Steps {
            finish: table.moves.keys().copied().collect(),
            ..Steps::default()
        })
    }

    /// The table with all moves given up that have only begun.
    pub fn cancelled(&self) -> Self {
        self.with(Steps {
            cancel: self.begun().map(|(partition, ..)| partition).collect(),
            ..Steps::default()
        })
    }

    /// The table after steps that begin nothing, and so cannot fail.
    fn with(&self, steps: Steps) -> Self {
        self.after(&steps).unwrap_or_else(|_| self.clone())
    }
}
