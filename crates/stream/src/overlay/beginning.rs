//! The offsets at which groups begin in the partitions of the topic, and the records that were deleted before they
//! were read.
//!
//! The first offset of each topic partition is kept for as long as the topic is the same. So later groups, and other
//! nodes, know what the topic has deleted since. When another topic has taken the name, all groups begin anew.

use std::collections::BTreeMap;

use fondaco_engine::WriteBatch;

use super::Overlay;
use crate::error::StreamError;
use crate::progress::{LostRecords, forget_begun, note_begun};
use crate::topics::topic_partition;

impl Overlay {
    /// Sets the offset at which a group begins in a topic partition, unless it has begun.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn begin(&self, group: u32, partition: u32, offset: u64) -> Result<(), StreamError> {
        let mut progress = self.lock()?;
        let mut after = progress.clone();
        if let Some(group) = after.groups.get_mut(&group) {
            group.offsets.entry(partition).or_insert(offset);
        }
        after.join();
        let begun = self.begun().get(&partition).map_or(offset, |&known| known.min(offset));
        let mut batch = WriteBatch::new();
        note_begun(&*self.notes, partition, begun, &mut batch);
        after.write_changes(&progress, &*self.notes, &mut batch);
        self.write(batch)?;
        self.begun.lock().insert(partition, begun);
        *progress = after;
        self.note_ready(&progress);
        Ok(())
    }

    /// The first offset of each topic partition that it has read, or was to read.
    pub fn begun(&self) -> BTreeMap<u32, u64> {
        self.begun.lock().clone()
    }

    /// Records the identity of a topic. If it differs from the one before, all groups begin anew with it, and the records
    /// of the former topic that they had not read count as lost. Returns whether it differs.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub(crate) fn note_topic(&self, topic: u32, identity: u128) -> Result<bool, StreamError> {
        let mut progress = self.lock()?;
        let mut after = progress.clone();
        let before = after.identities.insert(topic, identity);
        if before == Some(identity) {
            return Ok(false);
        }
        let is_of = |partition: u32| topic_partition(partition).0 == topic;
        if before.is_none() {
            self.write_progress(&mut progress, after)?;
            return Ok(false);
        }
        // How many records the group that was furthest ahead had not read is unknown; the other groups lack more.
        let mut lost = BTreeMap::<u32, LostRecords>::new();
        for group in after.groups.values_mut() {
            let offsets = std::mem::take(&mut group.offsets).into_iter();
            let (of_topic, others): (BTreeMap<_, _>, _) = offsets.partition(|(partition, _)| is_of(*partition));
            group.offsets = others;
            for (partition, offset) in of_topic {
                let (from, to) = (offset, offset);
                let range = lost.entry(partition).or_insert(LostRecords { partition, from, to });
                (range.from, range.to) = (offset.min(range.from), offset.max(range.to));
            }
        }
        let lost: Vec<LostRecords> = lost.into_values().map(|lost| self.with_known(lost)).collect();
        let mut batch = WriteBatch::new();
        lost.iter().for_each(|lost| lost.write(&*self.notes, &mut batch));
        let begun = self.begun().into_keys().filter(|&partition| is_of(partition));
        forget_begun(&*self.notes, begun, &mut batch);
        after.write_changes(&progress, &*self.notes, &mut batch);
        self.write(batch)?;
        self.begun.lock().retain(|&partition, _| !is_of(partition));
        *progress = after;
        self.note_ready(&progress);
        drop(progress);
        lost.into_iter().for_each(|lost| self.note_lost(lost));
        Ok(true)
    }

    /// Extends a range by the records that are known to be lost from its beginning on: another group may have found
    /// them.
    fn with_known(&self, lost: LostRecords) -> LostRecords {
        let known = self.lost.lock();
        let same = known
            .iter()
            .filter(|known| (known.partition, known.from) == (lost.partition, lost.from));
        let to = same.map(|known| known.to).fold(lost.to, u64::max);
        LostRecords { to, ..lost }
    }

    fn note_lost(&self, lost: LostRecords) {
        let mut known = self.lost.lock();
        known.retain(|known| (known.partition, known.from) != (lost.partition, lost.from));
        known.push(lost);
    }

    /// Moves a group to another offset of a topic partition, since the records before it are deleted. Does nothing if
    /// the group is no longer at `from`.
    ///
    /// # Errors
    /// An error of the engine.
    pub(crate) fn pass_over(&self, group: u32, from: u64, to: u64, lost: LostRecords) -> Result<(), StreamError> {
        let partition = lost.partition;
        let mut progress = self.lock()?;
        let mut after = progress.clone();
        match after.groups.get_mut(&group) {
            Some(group) if group.offsets.get(&partition) == Some(&from) => _ = group.offsets.insert(partition, to),
            _ => return Ok(()),
        }
        let lost = self.with_known(lost);
        let mut batch = WriteBatch::new();
        lost.write(&*self.notes, &mut batch);
        after.join();
        after.write_changes(&progress, &*self.notes, &mut batch);
        self.write(batch)?;
        *progress = after;
        self.note_ready(&progress);
        self.note_lost(lost);
        Ok(())
    }

    /// The records that were deleted from the topic before they were read.
    pub fn lost(&self) -> Vec<LostRecords> {
        self.lost.lock().clone()
    }
}
