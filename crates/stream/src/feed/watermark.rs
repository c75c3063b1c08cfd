//! The watermark: the time up to which no event is expected any more, by the times of records. Events up to it are
//! *settled*.
//!
//! Settled updates are folded: replaced by their result. The result of settled events can be read, for a version that
//! contains them. While it is read, later updates are kept as they are.

use std::time::{Duration, Instant};

use fondaco_model::PartitionId;

use super::{Feed, State};
use crate::clock::ClockReading;
use crate::error::StreamError;
use crate::overlay::SettledPage;

/// The most that the log times of a partition may go back, in milliseconds, in addition to the grace of late events.
const BACK_MS_MAX: u64 = 60 * 60 * 1000;
/// The least that is allowed for: the end of a partition is cached for a few seconds.
const BACK_MS_MIN: u64 = 10_000;
/// The number of keys whose updates are folded in one batch.
const FOLDED_KEYS_MAX: usize = 256;
/// How long later updates are kept after a page of settled events was read.
const HOLD: Duration = Duration::from_secs(120);

/// How far settled updates were folded, and how far they may be.
#[derive(Debug, Clone, Default)]
pub(super) struct FoldState {
    folding: Folding,
    expiring: Expiring,
    /// Updates after this time, in milliseconds since 1970, must not be folded until the instant is over.
    hold: Option<(u64, Instant)>,
}

/// How far updates were folded.
#[derive(Debug, Clone, Default)]
struct Folding {
    /// The time up to which updates are folded, in milliseconds since 1970.
    until_ms: u64,
    /// The newest group at that time: a later one may have to read earlier events.
    group: u32,
    /// The key at which the next batch begins, if folding is under way.
    from: Option<Vec<u8>>,
}

/// How far expired records were deleted.
#[derive(Debug, Clone, Default)]
struct Expiring {
    /// The time at which they had expired, in milliseconds since 1970.
    at_ms: u64,
    /// See [`Folding::group`].
    group: u32,
    /// The key at which the next turn begins, if a pass is under way.
    from: Option<Vec<u8>>,
}

/// A pass over all records, to delete those that have expired, begins no sooner than this after the last one by the watermark.
const EXPIRE_EVERY_MS_MIN: u64 = 1000;

impl Feed {
    /// The watermark, in milliseconds since 1970, by the times of records. It is 0 if it is before the stream begins:
    /// records that were logged earlier were not read.
    pub(super) fn settled_ms(&self, state: &State) -> u64 {
        let grace_ms = self.overlay.options().grace_ms;
        let back_ms = grace_ms.saturating_add(grace_ms.clamp(BACK_MS_MIN, BACK_MS_MAX));
        let settled_ms = state.read_ms().saturating_sub(back_ms);
        if settled_ms < self.start_ms { 0 } else { settled_ms }
    }

    /// Reads one page of a partition's keys as of a time, from a hash on: the values that a version with all events
    /// up to that time has. The page has about `bytes_max` bytes. Keys whose later events replace all that was before
    /// are left out. Returns `None` if the partition does not answer. Later updates are kept for two minutes, so that
    /// the next page can be read.
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
        state.fold_state.hold = Some((until_ms, Instant::now() + HOLD));
        drop(state);
        self.overlay.settled(partition, from, until_ms, bytes_max)
    }

    /// Deletes the next records that have expired at the watermark. A pass begins once the watermark has moved by an eighth of the
    /// time to live.
    pub(super) fn expire(&self, now: ClockReading) -> Result<(), StreamError> {
        let Some(lifetimes) = self.overlay.options().lifetimes else {
            return Ok(());
        };
        let mut expiring = {
            let state = self.state.lock();
            let held_ms = state.fold_state.held_ms(now.at);
            let mut expiring = state.fold_state.expiring.clone();
            let group = state.newest_group();
            if expiring.from.is_none() || expiring.group != group {
                let at_ms = self.settled_ms(&state).min(held_ms);
                let step_ms = (lifetimes.ttl_ms / 8).max(EXPIRE_EVERY_MS_MIN);
                if at_ms <= expiring.at_ms.saturating_add(step_ms) {
                    return Ok(());
                }
                let from = Some(Vec::new());
                expiring = Expiring { at_ms, group, from };
            }
            if expiring.at_ms > held_ms {
                return Ok(());
            }
            expiring
        };
        if let Some(from) = &expiring.from {
            let deleted = self.overlay.delete_expired(expiring.at_ms, expiring.group, from);
            expiring.from = deleted?;
        }
        let mut state = self.state.lock();
        state.has_more |= expiring.from.is_some();
        state.fold_state.expiring = expiring;
        Ok(())
    }

    /// Folds the next batch of settled updates.
    pub(super) fn fold(&self, now: ClockReading) -> Result<(), StreamError> {
        let grace_ms = self.overlay.options().grace_ms;
        let mut folding = {
            let state = self.state.lock();
            let held_ms = state.fold_state.held_ms(now.at);
            let mut folding = state.fold_state.folding.clone();
            let group = state.newest_group();
            if folding.from.is_none() || folding.group != group {
                let until_ms = self.settled_ms(&state).min(held_ms);
                // Folding scans the whole table, so it does not run for every event.
                if until_ms <= folding.until_ms.saturating_add(grace_ms / 8) {
                    return Ok(());
                }
                let from = Some(Vec::new());
                folding = Folding { until_ms, group, from };
            }
            if folding.until_ms > held_ms {
                return Ok(());
            }
            folding
        };
        if let Some(from) = &folding.from {
            let folded = self
                .overlay
                .fold(folding.until_ms, folding.group, from, FOLDED_KEYS_MAX);
            folding.from = folded?;
        }
        let mut state = self.state.lock();
        state.has_more |= folding.from.is_some();
        state.fold_state.folding = folding;
        Ok(())
    }
}

impl FoldState {
    /// The time up to which events may be folded or deleted.
    fn held_ms(&self, now: Instant) -> u64 {
        let hold = self.hold.filter(|(_, end)| now < *end);
        hold.map_or(u64::MAX, |(held_ms, _)| held_ms)
    }
}

impl State {
    fn newest_group(&self) -> u32 {
        self.cursors.keys().next_back().map_or(0, |cursor| cursor.0)
    }

    /// The time up to which all partitions were read, in milliseconds since 1970, by the times of their records; 0 if
    /// it is not known.
    fn read_ms(&self) -> u64 {
        let least = self.cursors.values().map(|cursor| cursor.read_ms.unwrap_or(0)).min();
        least.unwrap_or(0)
    }
}
