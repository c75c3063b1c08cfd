//! Which records of a log were found damaged, as long as they are not overwritten: operators are told.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Shared;
use super::entry::At;
use super::writer::SegmentState;

/// How many are remembered at most.
const PLACES_MAX: usize = 1 << 16;

/// The places of records that were found damaged.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    places: Mutex<BTreeSet<(u32, u32)>>,
    /// How many there are: writers look at this alone, as a rule.
    count: AtomicUsize,
}

impl Damaged {
    /// A record was found damaged.
    pub(super) fn found(&self, at: At) {
        let mut places = self.places.lock();
        if places.len() < PLACES_MAX {
            places.insert((at.segment, at.offset));
        }
        self.count.store(places.len(), Relaxed);
    }

    /// What stood there is overwritten, or deleted.
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
    /// What cannot be read, in words; `None` if nothing is known to be.
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
                "{records} records of the log in {:?} cannot be read, and {} of its segments stay for what cannot be read in \
                 them, {first} the first of them",
                self.dir,
                segments.len()
            )),
        }
    }
}
