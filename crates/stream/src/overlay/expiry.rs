//! The end of events: a fixed time after their event times, if the store has a time to live.
//!
//! A key's value lives from its latest event on, and a version's value from the time of its record on. Reads compare that with
//! the clock of the machine. An update applies to a value only if the value has not expired by the time of the update itself:
//! otherwise to none. So replicas that have read the same events are equal, whenever they have read them.
//!
//! Nodes delete an expired record once no event is expected that it would change, nor the version has a value below it that
//! lives.

use bytes::Bytes;
use fondaco_engine::WriteBatch;

use super::record::Record;
use super::{Found, Overlay};
use crate::error::StreamError;
use crate::overlay::options::OverlayOptions;

/// Returns the time, in milliseconds since 1970.
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// How many records are looked at in one turn.
const LOOKED_AT_MAX: usize = 4096;

impl OverlayOptions {
    /// When a value with this time expires, in milliseconds since 1970; the greatest number if it does not.
    pub(super) fn expires_ms(&self, time_ms: u64) -> u64 {
        self.lifetimes
            .map_or(u64::MAX, |lifetimes| lifetimes.expires_unix_ms(Some(time_ms)))
    }
}

impl Record {
    /// The answer that it stands for at a time.
    pub(super) fn found(self, options: &OverlayOptions, now_ms: u64) -> Found {
        match self.value {
            Some(value) if now_ms < options.expires_ms(self.time_ms) => Found::Value(value),
            Some(_) | None => Found::Deleted,
        }
    }
}

impl Overlay {
    /// Reads the time from another clock than that of the machine, in milliseconds since 1970.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The time at which values are read that have yet to expire; 0 if they do not.
    pub(super) fn read_ms(&self) -> u64 {
        self.options.lifetimes.map_or(0, |_| (self.clock)())
    }

    /// When the value expires that [`find`](Self::find) returns for a key, in milliseconds since 1970; `None` without a value,
    /// and if it does not expire.
    ///
    /// # Errors
    /// An error of the engine, or damaged data.
    pub fn expiry(&self, key: &[u8]) -> Result<Option<u64>, StreamError> {
        let record = self.record(key)?.filter(|record| record.value.is_some());
        let lifetimes = self.options.lifetimes;
        Ok(record
            .zip(lifetimes)
            .map(|(record, lifetimes)| lifetimes.expires_unix_ms(Some(record.time_ms))))
    }

    /// Deletes records that have expired at a settled time, unless there are groups after this one. Looks at some, from a key of the table on. Returns the key at which
    /// the next turn begins, if there are more.
    ///
    /// # Errors
    /// An error of the engine or of the version, or damaged data.
    pub(crate) fn delete_expired(
        &self,
        settled_ms: u64,
        group: u32,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>, StreamError> {
        let (mut expired, mut next, mut count) = (Vec::new(), None, 0);
        for entry in self.table.scan(from, None)? {
            let (key, record) = entry?;
            if count == LOOKED_AT_MAX {
                next = Some(key.to_vec());
                break;
            }
            count += 1;
            if self.is_expired(&key, record, settled_ms)? && self.is_bare(&key, settled_ms)? {
                expired.push(key);
            }
        }
        if expired.is_empty() {
            return Ok(next);
        }
        // The lock: no event of a key is applied meanwhile.
        let progress = self.lock()?;
        if progress.groups.keys().next_back().is_some_and(|&newest| newest > group) {
            return Ok(next);
        }
        let mut batch = WriteBatch::new();
        for key in expired {
            if let Some(record) = self.table.get(&key)?
                && self.is_expired(&key, record, settled_ms)?
            {
                batch.delete(&*self.table, key);
            }
        }
        let deleted = batch.len() as u64;
        if deleted > 0 {
            self.write(batch)?;
            self.count_deleted(deleted);
        }
        Ok(next)
    }

    /// Whether a record has expired, and has no updates beside it.
    fn is_expired(&self, key: &[u8], record: Bytes, at_ms: u64) -> Result<bool, StreamError> {
        let record = Record::decode(record).ok_or_else(|| self.damaged(key))?;
        Ok(record.merged.is_none() && self.options.expires_ms(record.time_ms) <= at_ms)
    }

    /// Whether the version has no value of a key at this time or later.
    fn is_bare(&self, table_key: &[u8], at_ms: u64) -> Result<bool, StreamError> {
        Ok(self.below(table_key)?.is_none_or(|below| below.expires_ms <= at_ms))
    }
}
