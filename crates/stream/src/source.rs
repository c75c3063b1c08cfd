//! Where events come from.

use std::sync::Arc;

use crate::alarm::Alarm;
use crate::error::StreamError;
use crate::event::{Event, Poison};

/// One topic: a fixed number of logs, its partitions, whose records have consecutive offsets, or offsets with gaps.
///
/// Calls may wait for a disk or a network, but not for events that are yet to come.
pub trait Source: Send + Sync {
    /// How many partitions the topic has. It may grow.
    ///
    /// # Errors
    /// [`StreamError::NoTopic`], [`StreamError::NotAllowed`], or [`StreamError::Unavailable`].
    fn partitions(&self) -> Result<u32, StreamError>;

    /// The identity of the topic when its partitions were last counted. If the topic was deleted and made again, it
    /// differs, and offsets were assigned again. `None` if it is not known.
    fn identity(&self) -> Option<u128> {
        None
    }

    /// The offset of a partition's first record that was logged at a time or later, in milliseconds since 1970; the
    /// end if no record is that late.
    ///
    /// # Errors
    /// [`StreamError::NoPartition`], or [`StreamError::Unavailable`].
    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError>;

    /// The first offset of a partition whose record has not been deleted.
    ///
    /// # Errors
    /// [`StreamError::NoPartition`], or [`StreamError::Unavailable`].
    fn first(&self, partition: u32) -> Result<u64, StreamError>;

    /// The records of a partition from an offset on, at most about `bytes_max` bytes. The batch is empty if there are
    /// none yet. Each reader has a number of its own; reading on at the offset where the last batch ended is fastest.
    ///
    /// # Errors
    /// [`StreamError::NoPartition`], [`StreamError::Lost`], or [`StreamError::Unavailable`].
    fn read(&self, reader: u64, partition: u32, offset: u64, bytes_max: usize) -> Result<Batch, StreamError>;

    /// Has an alarm rung when a reader has read all records of a partition, and more have come. Returns whether it is
    /// rung for all records that have come since the last read. A source that returns false has to be read again and again.
    fn watch(&self, _reader: u64, _partition: u32, _alarm: &Arc<Alarm>) -> bool {
        false
    }
}

/// Records of one partition that follow one another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The records, in the order of their offsets.
    pub records: Vec<Logged>,
    /// The offset to read next.
    pub next: u64,
    /// The offset after the last record of the partition, as far as is known.
    pub end: u64,
}

impl Batch {
    /// About how many bytes its records have.
    pub(crate) fn bytes(&self) -> u64 {
        let events = self.records.iter().filter_map(|record| record.event.as_ref().ok());
        let bytes = events.map(|event| event.key.len() + event.change.bytes().len());
        bytes.sum::<usize>() as u64
    }
}

/// A record of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Its offset.
    pub offset: u64,
    /// When it was logged, in milliseconds since 1970.
    pub logged_ms: u64,
    /// The event, or the reason that the record is not an event.
    pub event: Result<Event, Poison>,
}
