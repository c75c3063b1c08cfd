//! Events of a topic for followers of a store: read from the topic again, and resolved by the overlay of a version.
//!
//! A follower gets the value that the store has, not the event. An event that set a value or deleted it counts if it is the one
//! that the overlay has for its key: of others, another event is the reason that reads see, and the follower gets that one at its
//! own offset. So a value never comes before the event that made it, whichever replica resolves it. An update counts always, with the
//! value after all updates that were applied so far. Offsets that the overlay has not applied yet are left for later.

use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_model::PartitionSet;

use crate::error::StreamError;
use crate::event::{Change, Event};
use crate::feed::Feed;
use crate::overlay::Overlay;
use crate::source::{Batch, Logged};

/// The readers of followers have numbers from here on: those of feeds are smaller.
const READERS: u64 = 1 << 63;

/// The effect of an event that reads see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The value of the key; `None` if it was deleted, or has expired.
    pub value: Option<Bytes>,
    /// The time of the latest event in it, in milliseconds since 1970.
    pub time_ms: u64,
}

impl Feed {
    /// How many partitions each topic has.
    ///
    /// # Errors
    /// As [`Source::partitions`](crate::Source::partitions).
    pub fn topic_partitions(&self) -> Result<Vec<u32>, StreamError> {
        self.partitions()
    }

    /// Distinguishes the topics from others that had their names; 0 if that is not known.
    pub fn topic_mark(&self) -> u32 {
        // Folded: whether they are the same is all that counts.
        let identities = self.sources().iter().filter_map(|source| source.identity());
        let folded = identities.fold(None, |folded: Option<u128>, identity| {
            Some(folded.map_or(identity, |folded| folded.rotate_left(1) ^ identity))
        });
        folded.map_or(0, |folded| {
            (folded ^ folded >> 64 ^ folded >> 32 ^ folded >> 96) as u32 | 1
        })
    }

    /// The offset of a topic partition's first record that was logged at a time or later, in milliseconds since 1970; and the first offset
    /// that the topic still has.
    ///
    /// # Errors
    /// As [`Source::offset_at`](crate::Source::offset_at).
    pub fn offset_at(&self, partition: u32, time_ms: u64) -> Result<(u64, u64), StreamError> {
        let (source, own) = self.source_of(partition);
        Ok((source.offset_at(own, time_ms)?, source.first(own)?))
    }

    /// The offset of each topic partition before which all records are applied to these partitions of the store, numbered as the
    /// version's; topic partitions that are not read for them are left out. `None` if not all of them answer.
    ///
    /// # Errors
    /// An error of the engine or of the topic.
    pub fn applied(&self, own: &PartitionSet) -> Result<Option<BTreeMap<u32, u64>>, StreamError> {
        if !self.overlay().ready().covers(own) {
            return Ok(None);
        }
        self.overlay().applied_offsets(own, &self.partitions()?).map(Some)
    }

    /// Records of a topic partition from an offset on, of about `bytes_max` bytes. Each reader has a number of its own below 2⁶³; one that
    /// reads on where it ended is fastest.
    ///
    /// # Errors
    /// As [`Source::read`](crate::Source::read): [`StreamError::Lost`] if the records are gone.
    pub fn read_again(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError> {
        let (source, own) = self.source_of(partition);
        source.read(READERS | reader, own, offset, bytes_max)
    }
}

impl Overlay {
    /// The effect of an event that was applied; `None` if reads see the effect of another one, or that of the version.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn effect(&self, event: &Event, record: &Logged) -> Result<Option<Effect>, StreamError> {
        let Some((known_ms, is_whole, value)) = self.known_value(&event.key)? else {
            return Ok(None);
        };
        let time_ms = event.time_ms.unwrap_or(record.logged_ms);
        let is_other = is_whole && known_ms != time_ms && !matches!(event.change, Change::Update(_));
        Ok((!is_other).then_some(Effect {
            value,
            time_ms: known_ms,
        }))
    }
}
