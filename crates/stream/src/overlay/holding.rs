//! The partitions that an overlay holds, in groups, and how far each group has read the stream.
//!
//! A partition that is given up is first removed from the progress, and then deleted in batches. A partition that is
//! gained has no records, and begins in a group of its own. Only partitions of ready groups answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use bytes::Bytes;
use fondaco_engine::WriteBatch;
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, Partitioner};

use super::record::place;
use super::{DELETED_MAX, Overlay};
use crate::error::StreamError;
use crate::feed::CursorId;
use crate::progress::{Progress, ReplayGroup};
use crate::topics::number_of;

/// The partitions that an overlay does not hold any more, whose records are yet to be deleted.
#[derive(Default)]
pub(super) struct GivenUp {
    pub(super) partitions: PartitionSet,
    /// Where the next scans of records and events begin, behind those that were deleted.
    from: [Bytes; 2],
    /// Whether the last change of what is held has failed: it may have taken effect in part.
    has_failed: bool,
}

impl Overlay {
    /// Marks a group as ready, since it is within its bound. Returns whether it was not ready before.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn set_ready(&self, group: u32) -> Result<bool, StreamError> {
        let mut progress = self.lock()?;
        let mut after = progress.clone();
        match after.groups.get_mut(&group) {
            Some(group) if !group.is_ready => group.is_ready = true,
            _ => return Ok(false),
        }
        after.join();
        self.write_progress(&mut progress, after)?;
        Ok(true)
    }

    pub(super) fn note_ready(&self, progress: &Progress) {
        let ready = progress.ready();
        self.is_ready.store(false, Release);
        // The version may have partitions that are not held yet, or are no longer held.
        let is_ready = ready.len() == self.options.partitions.get() as usize;
        self.ready.store(Arc::new(ready));
        self.is_ready.store(is_ready, Release);
    }

    /// Sets the partitions that the node holds, by the version's number of partitions. Returns whether they have
    /// changed.
    ///
    /// # Errors
    /// An error of the engine; it has to be called again.
    pub fn set_held(&self, held: &PartitionSet) -> Result<bool, StreamError> {
        let mut given_up = self.given_up.lock();
        if **self.held.load() == *held && !given_up.has_failed {
            return Ok(false);
        }
        let mut progress = self.lock()?;
        let mut after = progress.clone();
        let before = after.partitions();
        let (lost, gained) = (before.without(held), held.without(&before));
        // A write that failed may have left one of them in the progress: if it is held again by now, it keeps its records.
        *given_up = GivenUp {
            partitions: given_up.partitions.with(&lost).without(&held.without(&gained)),
            from: Default::default(),
            has_failed: true,
        };
        if lost.is_empty() && gained.is_empty() {
            given_up.has_failed = false;
            self.held.store(Arc::new(held.clone()));
            return Ok(false);
        }
        for group in after.groups.values_mut() {
            group.partitions = group.partitions.without(&lost);
        }
        after.groups.retain(|_, group| !group.partitions.is_empty());
        after.forget_unread();
        self.write_progress(&mut progress, after.clone())?;
        // A partition that is gained back at once has none of its former records.
        for partition in gained.without(&gained.without(&given_up.partitions)).iter() {
            let mut from = Default::default();
            while self.delete_some_of(partition, &mut from)? {}
            given_up.partitions.remove(partition);
        }
        if !gained.is_empty() {
            let next = self.next_group.fetch_add(1, Relaxed);
            let group = ReplayGroup {
                partitions: gained,
                ..ReplayGroup::default()
            };
            after.groups.insert(next, group);
            self.write_progress(&mut progress, after)?;
        }
        given_up.has_failed = false;
        self.held.store(Arc::new(held.clone()));
        Ok(true)
    }

    pub(super) fn write_progress(&self, progress: &mut Progress, after: Progress) -> Result<(), StreamError> {
        let mut batch = WriteBatch::new();
        after.write_changes(progress, &*self.notes, &mut batch);
        if !batch.is_empty() {
            self.write(batch)?;
        }
        *progress = after;
        self.note_ready(progress);
        Ok(())
    }

    /// The partitions that have records: the deletion of some may have been cut short.
    pub(super) fn stored(&self) -> Result<PartitionSet, StreamError> {
        let mut stored = PartitionSet::EMPTY;
        for table in [&self.table, &self.events] {
            let mut from = place(PartitionId::new(0), 0);
            while let Some((key, _)) = table.scan(&from, None)?.next().transpose()? {
                let partition = key.first_chunk().ok_or_else(|| self.damaged(&key))?;
                let partition = u32::from(u16::from_be_bytes(*partition));
                stored.insert(PartitionId::new(partition));
                from = place(PartitionId::new(partition + 1), 0);
            }
        }
        Ok(stored)
    }

    /// Deletes some records of partitions that were given up. Returns whether there may be more.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn delete_given_up(&self) -> Result<bool, StreamError> {
        let mut given_up = self.given_up.lock();
        // A write that failed may have left one of them in the progress: then it has all its records.
        let held = match given_up.partitions.is_empty() {
            true => return Ok(false),
            false => self.lock()?.partitions(),
        };
        let Some(partition) = given_up.partitions.without(&held).iter().next() else {
            return Ok(false);
        };
        if !self.delete_some_of(partition, &mut given_up.from)? {
            given_up.partitions.remove(partition);
        }
        Ok(true)
    }

    /// Deletes some records of a partition, after these places. Returns whether there were any.
    fn delete_some_of(&self, partition: PartitionId, from: &mut [Bytes; 2]) -> Result<bool, StreamError> {
        let (begin, end) = (place(partition, 0), place(PartitionId::new(partition.get() + 1), 0));
        for (table, from) in [&self.table, &self.events].into_iter().zip(from) {
            let (mut batch, mut last) = (WriteBatch::new(), None);
            for entry in table.scan((&begin[..]).max(from), Some(&end))?.take(DELETED_MAX) {
                let key = entry?.0;
                batch.delete(&**table, last.insert(key).clone());
            }
            let Some(last) = last else { continue };
            let deleted = batch.len() as u64;
            self.write(batch)?;
            *from = last;
            if Arc::ptr_eq(table, &self.table) {
                self.count_deleted(deleted);
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The cursors of all groups in topics with these numbers of partitions.
    ///
    /// # Errors
    /// An error of the engine; or the store's partitioner does not fit that number, or one that it had before.
    pub(crate) fn cursors(&self, topics: &[u32]) -> Result<BTreeSet<CursorId>, StreamError> {
        let mut progress = self.lock()?;
        if self.options.partitioner == Partitioner::Store {
            let mut after = progress.clone();
            for (topic, &partitions) in (0..).zip(topics) {
                let before = progress.counts.get(&topic).copied();
                let unfit = || StreamError::Partitions {
                    store: self.options.store.clone(),
                    partitions,
                    before,
                };
                let count = PartitionCount::try_from(partitions).map_err(|_| unfit())?;
                if before.is_some_and(|before| before != count) {
                    return Err(unfit());
                }
                after.counts.insert(topic, count);
            }
            self.write_progress(&mut progress, after)?;
        }
        let mut cursors = BTreeSet::new();
        for (&number, group) in &progress.groups {
            let read = all_partitions(topics).filter(|&partition| progress.reads(&group.partitions, partition));
            cursors.extend(read.map(|partition| (number, partition)));
        }
        Ok(cursors)
    }

    /// The groups, each with the offsets to read next; topic partitions that are missing have not been begun. The
    /// first one is ahead of all others.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn groups(&self) -> Result<Vec<(u32, ReplayGroup)>, StreamError> {
        let progress = self.lock()?;
        let groups = progress.groups.iter();
        Ok(groups.map(|(&number, group)| (number, group.clone())).collect())
    }

    /// The offset of each of the topic's partitions before which all records are applied to these partitions; those that are not
    /// read for them are left out.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn applied_offsets(
        &self,
        own: &PartitionSet,
        topics: &[u32],
    ) -> Result<BTreeMap<u32, u64>, StreamError> {
        let progress = self.lock()?;
        Ok(applied_offsets(&progress, own, all_partitions(topics)))
    }

    /// Does something while no events are applied, if these are still the [applied offsets](Self::applied_offsets).
    ///
    /// # Errors
    /// An error of the engine.
    pub fn while_still<T>(
        &self,
        own: &PartitionSet,
        offsets: &BTreeMap<u32, u64>,
        work: impl FnOnce() -> T,
    ) -> Result<Option<T>, StreamError> {
        let progress = self.lock()?;
        let now = applied_offsets(&progress, own, offsets.keys().copied());
        Ok((now == *offsets).then(work))
    }
}

/// The numbers of all partitions of topics, which have so many.
fn all_partitions(topics: &[u32]) -> impl Iterator<Item = u32> + Clone {
    (0..)
        .zip(topics)
        .flat_map(|(topic, &count)| (0..count).map(move |own| number_of(topic, own)))
}

fn applied_offsets(
    progress: &Progress,
    own: &PartitionSet,
    partitions: impl Iterator<Item = u32> + Clone,
) -> BTreeMap<u32, u64> {
    let groups = progress.groups.values();
    let groups = groups.filter(|group| group.partitions.iter().any(|partition| own.contains(partition)));
    let mut applied = BTreeMap::new();
    for group in groups {
        for partition in partitions
            .clone()
            .filter(|&partition| progress.reads(&group.partitions, partition))
        {
            let next = group.offsets.get(&partition).copied().unwrap_or(0);
            let known = applied.entry(partition).or_insert(next);
            *known = next.min(*known);
        }
    }
    applied
}
