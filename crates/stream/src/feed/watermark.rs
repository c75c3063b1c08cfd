//! Up to when no event may come any more, by the times of records: that is when events are *settled*.
//!
//! Settled updates are replaced by what they make, and what settled events made can be read, for a version that contains
//! them. While it is read, later updates are kept as they are.

use std::time::{Duration, Instant};

use fondaco_model::PartitionId;

use super::{Feed, State};
use crate::error::StreamError;
use crate::moment::Moment;
use crate::overlay::SettledPage;

/// At most so far may the times at which a partition logs its records go back, in milliseconds, beside the grace of
/// late events.
const BACK_MS_MAX: u64 = 60 * 60 * 1000;
/// And at least so far: the end of a partition is known for a few seconds.
const BACK_MS_MIN: u64 = 10_000;
/// For how many keys updates are replaced by what they make at a time.
const FOLDED_KEYS_MAX: usize = 256;
/// How long later updates are kept after each page of what events up to a time made.
const HOLD: Duration = Duration::from_secs(120);

/// How far settled updates were replaced, and how far they may be.
#[derive(Debug, Clone, Default)]
pub(super) struct Settling {
    folding: Folding,
    /// Up to which time, in milliseconds since 1970, updates may be replaced by what they make, and until when that holds.
    hold: Option<(u64, Instant)>,
}

/// How far updates were replaced by what they make.
#[derive(Debug, Clone, Default)]
struct Folding {
    /// Up to which time, in milliseconds since 1970.
    until_ms: u64,
    /// The newest cohort then: a later one may have to read earlier events.
    cohort: u32,
    /// Where to go on, if it is under way.
    from: Option<Vec<u8>>,
}

impl Feed {
    /// Up to which time no event may come any more, in milliseconds since 1970, by the times of records; 0 if that is
    /// before the stream begins: what was logged earlier was not read.
    pub(super) fn settled_ms(&self, state: &State) -> u64 {
        let grace_ms = self.overlay.options().grace_ms;
        let back_ms = grace_ms.saturating_add(grace_ms.clamp(BACK_MS_MIN, BACK_MS_MAX));
        let settled_ms = state.read_ms().saturating_sub(back_ms);
        if settled_ms < self.start_ms { 0 } else { settled_ms }
    }

    /// What the events up to a time have made of the keys of a partition, from a hash on, of about so many bytes: what a
    /// version that contains these events has. Keys whose later events replace all that was before are left out. `None`
    /// if the partition does not answer. Later updates are kept for two minutes, so that the next page can be read.
    ///
    /// # Errors
    /// An error of the engine or of the version, damaged data, [`StreamError::NotSettled`], or [`StreamError::Folded`].
    pub fn settled(
        &self,
        partition: PartitionId,
        from: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Option<SettledPage>, StreamError> {
        let mut state = self.state.lock();
        let settled_ms = self.settled_ms(&state);
        if until_ms > settled_ms || until_ms < self.start_ms {
            return Err(StreamError::NotSettled {
                store: self.overlay.options().store.to_string(),
                until_ms,
                settled_ms,
            });
        }
        state.settling.hold = Some((until_ms, Instant::now() + HOLD));
        drop(state);
        self.overlay.settled(partition, from, until_ms, bytes_max)
    }

    /// Goes on to replace updates by what they make, once no earlier event may come.
    pub(super) fn fold(&self, now: Moment) -> Result<(), StreamError> {
        let grace_ms = self.overlay.options().grace_ms;
        let mut folding = {
            let state = self.state.lock();
            let held_ms = state
                .settling
                .hold
                .filter(|(_, end)| now.at < *end)
                .map_or(u64::MAX, |(held_ms, _)| held_ms);
            let mut folding = state.settling.folding.clone();
            let cohort = state.lanes.keys().next_back().map_or(0, |lane| lane.0);
            if folding.from.is_none() || folding.cohort != cohort {
                let until_ms = self.settled_ms(&state).min(held_ms);
                // The whole table is looked through: not for every event.
                if until_ms <= folding.until_ms.saturating_add(grace_ms / 8) {
                    return Ok(());
                }
                let from = Some(Vec::new());
                folding = Folding { until_ms, cohort, from };
            }
            if folding.until_ms > held_ms {
                return Ok(());
            }
            folding
        };
        if let Some(from) = &folding.from {
            let folded = self
                .overlay
                .fold(folding.until_ms, folding.cohort, from, FOLDED_KEYS_MAX);
            folding.from = folded?;
        }
        let mut state = self.state.lock();
        state.has_more |= folding.from.is_some();
        state.settling.folding = folding;
        Ok(())
    }
}

impl State {
    /// Up to when all partitions were read, in milliseconds since 1970, by the times of their records: 0 if it is not
    /// known.
    fn read_ms(&self) -> u64 {
        let least = self.lanes.values().map(|lane| lane.read_ms.unwrap_or(0)).min();
        least.unwrap_or(0)
    }
}
