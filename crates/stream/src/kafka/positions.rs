//! The positions of readers in partitions, and the consumer that reads for each.
//!
//! A consumer reads a partition at one position. So two readers of a partition always use two consumers, and a
//! position that is given up is taken from its consumer before another reader can have it.

use std::time::{Duration, Instant};

use super::{KafkaCluster, Reading};
use crate::error::StreamError;

/// How long a partition without a reader stays with its consumer.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// A reader, a topic and a partition.
pub(super) type ReaderKey = (u64, String, i32);

/// The position of a reader in a partition.
pub(super) struct ReadPosition {
    /// The consumer that reads it.
    pub(super) consumer: usize,
    pub(super) reading: Reading,
    pub(super) next: u64,
    pub(super) end: u64,
    /// When the end was seen.
    pub(super) end_at: Option<Instant>,
    /// The end of the partition when all records were read. Before it may be transaction markers, which consumers do
    /// not get, and records of transactions that have not ended.
    pub(super) marked_end: Option<u64>,
    /// Whether there was an error: librdkafka reports it once, and may fetch no more.
    pub(super) is_broken: bool,
    /// Whether an alarm is rung when records come to the empty queue.
    pub(super) is_watched: bool,
    /// Whether the last read has emptied the queue.
    pub(super) is_emptied: bool,
    pub(super) used: Instant,
}

impl KafkaCluster {
    /// Takes the position of a reader, at an offset, until it is put back or given up.
    pub(super) fn take(&self, name: &ReaderKey, offset: u64) -> Result<ReadPosition, StreamError> {
        let known = self
            .state
            .lock()
            .positions
            .get_mut(name)
            .map(|(_, position)| position.take());
        match known {
            Some(Some(position)) if position.next == offset => return Ok(position),
            // The position has another offset, or a reader panicked and has not put it back.
            Some(position) => {
                drop(position);
                self.give_up(name);
            }
            None => {}
        }
        let (_, topic, partition) = name;
        let number = {
            let mut state = self.state.lock();
            let others = state
                .positions
                .iter()
                .filter(|((_, known, at), _)| known == topic && at == partition);
            let taken: Vec<usize> = others.map(|(_, (consumer, _))| *consumer).collect();
            let number = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
            state.positions.insert(name.clone(), (number, None));
            number
        };
        let consumer = self.consumer(number, topic);
        let reading = consumer.and_then(|consumer| {
            let reading = Reading::start(&consumer, topic, *partition, offset);
            reading.map_err(|error| self.unavailable(topic, &error))
        });
        if reading.is_err() {
            self.state.lock().positions.remove(name);
        }
        Ok(ReadPosition {
            consumer: number,
            reading: reading?,
            next: offset,
            end: offset,
            end_at: None,
            marked_end: None,
            is_broken: false,
            is_watched: false,
            is_emptied: false,
            used: Instant::now(),
        })
    }

    /// Gives up the position of a reader.
    pub(super) fn give_up(&self, name: &ReaderKey) {
        let position = self
            .state
            .lock()
            .positions
            .get_mut(name)
            .and_then(|(_, position)| position.take());
        // Dropped before another reader can get its consumer.
        drop(position);
        self.state.lock().positions.remove(name);
    }

    /// Puts the position of a reader back, and gives up positions that have not been used for long.
    pub(super) fn put_back(&self, name: &ReaderKey, mut position: ReadPosition) {
        let now = Instant::now();
        position.used = now;
        let unused: Vec<ReaderKey> = {
            let mut state = self.state.lock();
            if let Some((_, back)) = state.positions.get_mut(name) {
                *back = Some(position);
            }
            let is_unused = |position: &Option<ReadPosition>| {
                position
                    .as_ref()
                    .is_some_and(|position| now - position.used > UNUSED_MAX)
            };
            let unused = state.positions.iter().filter(|(_, (_, position))| is_unused(position));
            unused.map(|(name, _)| name.clone()).collect()
        };
        unused.iter().for_each(|name| self.give_up(name));
    }
}
