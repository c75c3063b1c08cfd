//! Where readers are in partitions, and which consumer reads for each.
//!
//! A consumer reads a partition at one place. So two readers of a partition are always with two consumers, and a place
//! that is given up is taken from its consumer before another reader can have it.

use std::time::{Duration, Instant};

use super::{KafkaCluster, Reading};
use crate::error::StreamError;

/// How long a partition that nobody reads stays with its consumer.
const UNUSED_MAX: Duration = Duration::from_secs(60);

/// A reader, a topic and a partition.
pub(super) type PlaceName = (u64, String, i32);

/// Where a reader is in a partition.
pub(super) struct Place {
    /// The consumer that reads it.
    pub(super) consumer: usize,
    pub(super) reading: Reading,
    pub(super) next: u64,
    pub(super) end: u64,
    /// When the end was seen.
    pub(super) end_at: Option<Instant>,
    /// The end of the partition when all records were read: before it may be marks of transactions, which consumers do not
    /// get, and records of transactions that have not ended.
    pub(super) marked_end: Option<u64>,
    /// Whether there was an error: librdkafka says it once, and may fetch no more.
    pub(super) is_broken: bool,
    /// Whether an alarm is rung when records come to the empty queue.
    pub(super) is_watched: bool,
    /// Whether the last read has emptied the queue.
    pub(super) is_emptied: bool,
    pub(super) used: Instant,
}

impl KafkaCluster {
    /// Takes the place of a reader, at an offset, until it is put back or given up.
    pub(super) fn take(&self, name: &PlaceName, offset: u64) -> Result<Place, StreamError> {
        let known = self.state.lock().places.get_mut(name).map(|(_, place)| place.take());
        match known {
            Some(Some(place)) if place.next == offset => return Ok(place),
            // It is elsewhere, or a reader panicked and has not put it back.
            Some(place) => {
                drop(place);
                self.give_up(name);
            }
            None => {}
        }
        let (_, topic, partition) = name;
        let number = {
            let mut state = self.state.lock();
            let others = state
                .places
                .iter()
                .filter(|((_, known, at), _)| known == topic && at == partition);
            let taken: Vec<usize> = others.map(|(_, (consumer, _))| *consumer).collect();
            let number = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
            state.places.insert(name.clone(), (number, None));
            number
        };
        let consumer = self.consumer(number, topic);
        let reading = consumer.and_then(|consumer| {
            let reading = Reading::start(&consumer, topic, *partition, offset);
            reading.map_err(|error| self.unavailable(topic, &error))
        });
        if reading.is_err() {
            self.state.lock().places.remove(name);
        }
        Ok(Place {
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

    /// Gives up the place of a reader.
    pub(super) fn give_up(&self, name: &PlaceName) {
        let place = self
            .state
            .lock()
            .places
            .get_mut(name)
            .and_then(|(_, place)| place.take());
        // Before another reader may have its consumer.
        drop(place);
        self.state.lock().places.remove(name);
    }

    /// Puts the place of a reader back, and gives up those that have not been used for long.
    pub(super) fn put_back(&self, name: &PlaceName, mut place: Place) {
        let now = Instant::now();
        place.used = now;
        let unused: Vec<PlaceName> = {
            let mut state = self.state.lock();
            if let Some((_, back)) = state.places.get_mut(name) {
                *back = Some(place);
            }
            let is_unused = |place: &Option<Place>| place.as_ref().is_some_and(|place| now - place.used > UNUSED_MAX);
            let unused = state.places.iter().filter(|(_, (_, place))| is_unused(place));
            unused.map(|(name, _)| name.clone()).collect()
        };
        unused.iter().for_each(|name| self.give_up(name));
    }
}
