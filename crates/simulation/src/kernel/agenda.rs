//! The events to come.

use std::collections::BTreeMap;

/// Events by time; those at the same time in the order in which they were added.
#[derive(Debug)]
pub struct Agenda<E> {
    /// By time, then by number.
    events: BTreeMap<(u64, u64), E>,
    last: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            events: BTreeMap::new(),
            last: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// Adds an event at a time.
    pub fn put(&mut self, at: u64, event: E) {
        self.last += 1;
        self.events.insert((at, self.last), event);
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.events.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Removes the next event, and returns it with its time and its number.
    pub fn take(&mut self) -> Option<(u64, u64, E)> {
        let ((at, number), event) = self.events.pop_first()?;
        Some((at, number, event))
    }
}
