//! The damaged records of a log that are not overwritten yet, for reports to operators.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Shared;
use super::entry::At;
use super::writer::SegmentState;

/// The maximum number of remembered places.
const PLACES_MAX: usize = 1 << 16;

/// The places of damaged records.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    places: Mutex<BTreeSet<(u32, u32)>>,
    /// The number of places: writers usually read only this.
    count: AtomicUsize,
}

impl Damaged {
    /// Remembers a damaged record.
    pub(super) fn found(&self, at: At) {
        let mut places = self.places.lock();
        if places.len() < PLACES_MAX {
            places.insert((at.segment, at.offset));
        }
        self.count.store(places.len(), Relaxed);
    }

    /// Forgets the place: its record was overwritten or deleted.
    pub(super) fn is_gone(&self, at: At) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut places = self.places.lock();
        places.remove(&(at.segment, at.offset));
        self.count.store(places.len(), Relaxed);
    }

    fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

impl Shared {
    /// Describes the unreadable data; `None` if none is known.
    pub(super) fn describe_damage(&self) -> Option<String> {
        let records = self.damaged.count();
        let stays = |state| matches!(state, SegmentState::Damaged | SegmentState::Unreadable);
        let writer = self.writer.lock();
        let segments: Vec<u32> = writer
            .uses
            .iter()
            .filter(|(_, used)| stays(used.state))
            .map(|(&number, _)| number)
            .collect();
        drop(writer);
        let first = segments.first();
        match (records, first) {
            (0, None) => None,
            (records, None) => Some(format!("{records} records of the log in {:?} cannot be read", self.dir)),
            (records, Some(first)) => Some(format!(
                "{records} records of the log in {:?} cannot be read, and {} segments with unreadable data cannot \
                 be cleaned, the first one is {first}",
                self.dir,
                segments.len()
            )),
        }
    }
}
