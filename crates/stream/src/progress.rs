//! How far an overlay has come: for each topic partition the offset to read next.
//!
//! A partition that a node gains later has to be read from the beginning, while the others are further ahead. So
//! partitions are in groups: the partitions of a group share their replay offsets. A later group catches up with the
//! first one, and joins it.
//!
//! ```text
//! 0 ++ group (u32)                                 → is ready (u8) ++ partitions (u32 each)
//! 1 ++ group (u32) ++ topic partition (u32)        → offset to read next (u64)
//! 2 ++ topic partition (u32) ++ offset (u64)       → why the record is no event
//! 3 ++ topic partition (u32) ++ offset (u64)       → records from here to this offset (u64) were gone before they were read
//! 4 ++ topic (u32)                                 → how many partitions the topic has (u32), if partitioned as the store
//! 5                                                → the engine's report of lost writes when the overlay was created, if it had one
//! 6 ++ topic partition (u32)                       → the first offset that was read, or was to be read (u64)
//! 7 ++ topic (u32)                                 → the identity of the topic (u128), if it is known; the number of the first topic is
//!                                                    left out, here and above
//! ```

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use fondaco_engine::{Table, WriteBatch};
use fondaco_model::{PartitionCount, PartitionId, PartitionSet};

use crate::error::StreamError;
use crate::topics::{number_of, topic_partition};

const GROUPS: u8 = 0;
const OFFSETS: u8 = 1;
const POISON: u8 = 2;
const LOST: u8 = 3;
const TOPIC: u8 = 4;
const LOSS: u8 = 5;
const BEGUN: u8 = 6;
const IDENTITY: u8 = 7;

/// Partitions of the store that share their replay offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReplayGroup {
    pub(crate) partitions: PartitionSet,
    /// Whether its lag was once within the bound, so that it answers.
    pub(crate) is_ready: bool,
    /// Topic partitions that are missing have not been begun.
    pub(crate) offsets: BTreeMap<u32, u64>,
}

/// All groups of an overlay. The first one is ahead of the others, in the topic partitions that both read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) groups: BTreeMap<u32, ReplayGroup>,
    /// How many partitions the overlay's version has.
    partitions: PartitionCount,
    /// How many partitions each topic has, if they have the slots that those of a store would have. Otherwise all
    /// groups read all of them.
    pub(crate) counts: BTreeMap<u32, PartitionCount>,
    /// The identity of each topic, if it is known: another topic with the same name has another one.
    pub(crate) identities: BTreeMap<u32, u128>,
}

impl Progress {
    /// Reads the progress from a table.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub(crate) fn read(table: &dyn Table, partitions: PartitionCount) -> Result<Self, StreamError> {
        let count = |bytes: &[u8]| PartitionCount::try_from(bytes.as_ref().try_get_u32().ok()?).ok();
        let mut progress = Self {
            groups: BTreeMap::new(),
            partitions,
            counts: of_topics(table, TOPIC, count)?,
            identities: of_topics(table, IDENTITY, |mut bytes| bytes.try_get_u128().ok())?,
        };
        for entry in table.scan(&[GROUPS], Some(&[POISON]))? {
            let (key, value) = entry?;
            progress.add(&key, &value).ok_or_else(|| StreamError::Damaged {
                what: "progress",
                stream: table.name().to_owned(),
                detail: format!("key {key:02x?}"),
            })?;
        }
        Ok(progress)
    }

    fn add(&mut self, mut key: &[u8], mut value: &[u8]) -> Option<()> {
        let kind = key.try_get_u8().ok()?;
        let group = key.try_get_u32().ok()?;
        if kind == OFFSETS {
            let partition = key.try_get_u32().ok()?;
            let group = self.groups.get_mut(&group)?;
            group.offsets.insert(partition, value.try_get_u64().ok()?);
            return Some(());
        }
        let is_ready = value.try_get_u8().ok()? != 0;
        let mut partitions = PartitionSet::EMPTY;
        while let Ok(partition) = value.try_get_u32() {
            partitions.insert(PartitionId::new(partition));
        }
        let group = self.groups.entry(group).or_default();
        group.partitions = partitions;
        group.is_ready = is_ready;
        Some(())
    }

    /// All partitions.
    pub(crate) fn partitions(&self) -> PartitionSet {
        let groups = self.groups.values();
        groups.fold(PartitionSet::EMPTY, |all, group| all.with(&group.partitions))
    }

    /// Writes the differences to another state of a table.
    pub(crate) fn write_changes(&self, before: &Self, table: &dyn Table, batch: &mut WriteBatch) {
        for (&number, group) in &self.groups {
            let known = before.groups.get(&number);
            let is_same =
                |known: &ReplayGroup| known.partitions == group.partitions && known.is_ready == group.is_ready;
            if !known.is_some_and(is_same) {
                let mut value = Vec::with_capacity(1 + 4 * group.partitions.len());
                value.put_u8(group.is_ready.into());
                group
                    .partitions
                    .iter()
                    .for_each(|partition| value.put_u32(partition.get()));
                batch.put(table, group_key(number), value.into());
            }
            for (&partition, &offset) in &group.offsets {
                if known.and_then(|known| known.offsets.get(&partition)) != Some(&offset) {
                    batch.put(
                        table,
                        offset_key(number, partition),
                        offset.to_be_bytes().to_vec().into(),
                    );
                }
            }
        }
        for (&number, group) in &before.groups {
            let now = self.groups.get(&number);
            if now.is_none() {
                batch.delete(table, group_key(number));
            }
            let is_kept = |partition: &u32| now.is_some_and(|now| now.offsets.contains_key(partition));
            let partitions = group.offsets.keys().filter(|partition| !is_kept(partition));
            partitions.for_each(|&partition| batch.delete(table, offset_key(number, partition)));
        }
        for (topic, identity) in &self.identities {
            if before.identities.get(topic) != Some(identity) {
                batch.put(
                    table,
                    topic_key(IDENTITY, *topic),
                    identity.to_be_bytes().to_vec().into(),
                );
            }
        }
        for (topic, count) in &self.counts {
            if before.counts.get(topic) != Some(count) {
                batch.put(
                    table,
                    topic_key(TOPIC, *topic),
                    count.get().to_be_bytes().to_vec().into(),
                );
            }
        }
    }

    /// Whether a group with these partitions reads a partition of the topic.
    pub(crate) fn reads(&self, partitions: &PartitionSet, partition: u32) -> bool {
        let (topic, partition) = topic_partition(partition);
        let own = self.own(partitions, topic);
        own.is_none_or(|own| own.contains(PartitionId::new(partition)))
    }

    /// The partitions of a topic that share slots with these partitions; `None` if any of them may.
    fn own(&self, partitions: &PartitionSet, topic: u32) -> Option<PartitionSet> {
        Some(partitions.among(self.partitions, *self.counts.get(&topic)?))
    }

    /// Removes the offsets of groups in partitions of the topic that they do not read any more.
    pub(crate) fn forget_unread(&mut self) {
        let mut groups = std::mem::take(&mut self.groups);
        for group in groups.values_mut() {
            let ReplayGroup {
                partitions, offsets, ..
            } = group;
            offsets.retain(|&partition, _| self.reads(partitions, partition));
        }
        self.groups = groups;
    }

    /// Whether a group has the same offsets as the first one, in all topic partitions that both read, and answers if
    /// that one does. If it reads more than that one, it has to be ready by itself.
    fn can_join(&self, first: &ReplayGroup, other: &ReplayGroup) -> bool {
        if other.is_ready != first.is_ready {
            return false;
        }
        if self.counts.is_empty() {
            return other.offsets == first.offsets;
        }
        let mut reads_more = false;
        for &topic in self.counts.keys() {
            let own = self.own(&other.partitions, topic).unwrap_or_default();
            let of_first = self.own(&first.partitions, topic).unwrap_or_default();
            reads_more |= !of_first.covers(&own);
            let mut shared = own.iter().filter(|&partition| of_first.contains(partition));
            let is_equal = |partition: PartitionId| {
                let number = number_of(topic, partition.get());
                other.offsets.get(&number) == first.offsets.get(&number)
            };
            if !shared.all(is_equal) {
                return false;
            }
        }
        !reads_more || first.is_ready && other.is_ready
    }

    /// Merges groups that have caught up with the first one into it.
    pub(crate) fn join(&mut self) {
        let Some(mut first) = self.groups.pop_first() else {
            return;
        };
        let all = std::mem::take(&mut self.groups);
        for (number, group) in all {
            if self.can_join(&first.1, &group) {
                first.1.partitions = first.1.partitions.with(&group.partitions);
                first.1.offsets.extend(group.offsets);
            } else {
                self.groups.insert(number, group);
            }
        }
        self.groups.insert(first.0, first.1);
    }

    /// The partitions of ready groups.
    pub(crate) fn ready(&self) -> PartitionSet {
        let ready = self.groups.values().filter(|group| group.is_ready);
        ready.fold(PartitionSet::EMPTY, |all, group| all.with(&group.partitions))
    }

    /// The offset that a group must not pass in a topic partition: that of the first group, if that one reads it.
    pub(crate) fn limit(&self, group: u32, partition: u32) -> Option<u64> {
        let (&first, ahead) = self.groups.first_key_value()?;
        (first != group && self.reads(&ahead.partitions, partition))
            .then(|| ahead.offsets.get(&partition).copied().unwrap_or(0))
    }
}

/// The key of a note about a topic.
fn topic_key(kind: u8, topic: u32) -> Bytes {
    let mut key = vec![kind];
    if topic > 0 {
        key.put_u32(topic);
    }
    key.into()
}

/// The notes of a kind about topics.
fn of_topics<T>(
    table: &dyn Table,
    kind: u8,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeMap<u32, T>, StreamError> {
    let note = |entry: Result<(Bytes, Bytes), fondaco_engine::EngineError>| {
        let (key, value) = entry?;
        let topic = key.slice(1..).try_get_u32().unwrap_or(0);
        let parsed = parse(&value).ok_or_else(|| StreamError::Damaged {
            what: "note about a topic",
            stream: table.name().to_owned(),
            detail: format!("key {key:02x?}"),
        });
        Ok((topic, parsed?))
    };
    table.scan(&[kind], Some(&[kind + 1]))?.map(note).collect()
}

fn group_key(group: u32) -> Bytes {
    let mut key = vec![GROUPS];
    key.put_u32(group);
    key.into()
}

fn offset_key(group: u32, partition: u32) -> Bytes {
    let mut key = vec![OFFSETS];
    key.put_u32(group);
    key.put_u32(partition);
    key.into()
}

/// The key under which a record that is no event is noted.
pub(crate) fn poison_key(partition: u32, offset: u64) -> Bytes {
    let mut key = vec![POISON];
    key.put_u32(partition);
    key.put_u64(offset);
    key.into()
}

/// All notes about records that are no events: topic partition, offset, reason.
pub(crate) fn poisoned(table: &dyn Table) -> Result<Vec<(u32, u64, String)>, StreamError> {
    let entries = table.scan(&[POISON], Some(&[POISON + 1]))?;
    let note = |entry: Result<(Bytes, Bytes), fondaco_engine::EngineError>| {
        let (mut key, reason) = entry?;
        let damaged = |_| StreamError::Damaged {
            what: "note of a record",
            stream: table.name().to_owned(),
            detail: "a key of another form".to_owned(),
        };
        key.advance(1);
        let partition = key.try_get_u32().map_err(damaged)?;
        let offset = key.try_get_u64().map_err(damaged)?;
        Ok((partition, offset, String::from_utf8_lossy(&reason).into_owned()))
    };
    entries.map(note).collect()
}

/// The engine's report of lost writes when the overlay was created.
pub(crate) fn loss_known(table: &dyn Table) -> Result<Option<Bytes>, StreamError> {
    Ok(table.get(&[LOSS])?)
}

/// Adds that report to the first write.
pub(crate) fn note_loss(table: &dyn Table, lost: &str, batch: &mut WriteBatch) {
    batch.put(
        table,
        Bytes::from_static(&[LOSS]),
        Bytes::copy_from_slice(lost.as_bytes()),
    );
}

/// The first offset of each topic partition that was read, or was to be read.
pub(crate) fn begun(table: &dyn Table) -> Result<BTreeMap<u32, u64>, StreamError> {
    let entry = |entry: Result<(Bytes, Bytes), fondaco_engine::EngineError>| {
        let (key, mut offset) = entry?;
        let parsed = key.slice(1..).try_get_u32().ok().zip(offset.try_get_u64().ok());
        parsed.ok_or_else(|| StreamError::Damaged {
            what: "note of where a partition was begun",
            stream: table.name().to_owned(),
            detail: format!("key {key:02x?}"),
        })
    };
    table.scan(&[BEGUN], Some(&[BEGUN + 1]))?.map(entry).collect()
}

/// Notes it.
pub(crate) fn note_begun(table: &dyn Table, partition: u32, offset: u64, batch: &mut WriteBatch) {
    batch.put(table, begun_key(partition), offset.to_be_bytes().to_vec().into());
}

/// Forgets it, since the topic is another one.
pub(crate) fn forget_begun(table: &dyn Table, partitions: impl Iterator<Item = u32>, batch: &mut WriteBatch) {
    partitions.for_each(|partition| batch.delete(table, begun_key(partition)));
}

fn begun_key(partition: u32) -> Bytes {
    let mut key = vec![BEGUN];
    key.put_u32(partition);
    key.into()
}

/// Records that were gone before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRecords {
    /// The partition of the topic.
    pub partition: u32,
    /// The offset of the first one.
    pub from: u64,
    /// The offset after the last one.
    pub to: u64,
}

impl LostRecords {
    /// Notes them.
    pub(crate) fn write(&self, table: &dyn Table, batch: &mut WriteBatch) {
        let mut key = vec![LOST];
        key.put_u32(self.partition);
        key.put_u64(self.from);
        batch.put(table, key.into(), self.to.to_be_bytes().to_vec().into());
    }

    /// All that were noted.
    pub(crate) fn read(table: &dyn Table) -> Result<Vec<Self>, StreamError> {
        let mut all = Vec::new();
        for entry in table.scan(&[LOST], Some(&[LOST + 1]))? {
            let (key, mut value) = entry?;
            let mut rest = key.slice(1..);
            let parsed = (rest.try_get_u32(), rest.try_get_u64(), value.try_get_u64());
            let (Ok(partition), Ok(from), Ok(to)) = parsed else {
                return Err(StreamError::Damaged {
                    what: "note of lost records",
                    stream: table.name().to_owned(),
                    detail: format!("key {key:02x?}"),
                });
            };
            all.push(Self { partition, from, to });
        }
        Ok(all)
    }
}
