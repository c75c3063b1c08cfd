//! Values as of a settled time: those that a version with all events up to that time has.

use bytes::{Buf, Bytes};
use fondaco_model::PartitionId;

use super::Overlay;
use super::merge::Start;
use super::record::{Head, Merged, PLACE_BYTES, Place, Record, place};
use crate::error::StreamError;

/// Keys that events have changed, in the order of their hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledPage {
    /// Each with its value and the time of that, in milliseconds since 1970; or `None` if it was deleted, or has expired.
    pub changes: Vec<(Bytes, Option<(Bytes, u64)>)>,
    /// The hash of the next key, if there are more.
    pub next: Option<u64>,
}

/// The value of a key after its events up to a time.
struct Settled {
    /// The time of the latest of them.
    time_ms: u64,
    /// `None` if it was deleted.
    value: Option<Bytes>,
}

impl Overlay {
    /// One page of a partition's keys as of a settled time, from a hash on, of about `bytes_max` bytes. Keys whose
    /// later events replace all that was before are left out. `None` if the partition does not answer.
    ///
    /// # Errors
    /// An error of the engine or of the version, damaged data, or [`StreamError::Folded`].
    pub(crate) fn settled(
        &self,
        partition: PartitionId,
        from: u64,
        until_ms: u64,
        bytes_max: usize,
    ) -> Result<Option<SettledPage>, StreamError> {
        if !self.ready().contains(partition) {
            return Ok(None);
        }
        let (begin, end) = (place(partition, from), place(PartitionId::new(partition.get() + 1), 0));
        let mut page = SettledPage {
            changes: Vec::new(),
            next: None,
        };
        let (mut bytes, mut last) = (0, None);
        for entry in self.table.scan(&begin, Some(&end))? {
            let (table_key, record) = entry?;
            let Some((mut head, key)) = table_key.split_at_checked(PLACE_BYTES) else {
                return Err(self.damaged(&table_key));
            };
            head.advance(2);
            let hash = head.get_u64();
            if bytes >= bytes_max && last.is_some_and(|last| last != hash) {
                page.next = Some(hash);
                break;
            }
            last = Some(hash);
            // Whether or not it is left out: looking at it takes time.
            bytes += table_key.len();
            let record = Record::decode(record).ok_or_else(|| self.damaged(&table_key))?;
            if let Some(Settled { value, time_ms }) = self.value_at(&table_key, record, until_ms)? {
                let value = value.filter(|_| until_ms < self.options.expires_ms(time_ms));
                bytes += value.as_ref().map_or(0, Bytes::len);
                page.changes
                    .push((table_key.slice_ref(key), value.map(|value| (value, time_ms))));
            }
        }
        // Records are deleted after their partition has ceased to answer.
        Ok(self.ready().contains(partition).then_some(page))
    }

    /// The value of a key after its events up to a time; `None` if those have no effect any more.
    fn value_at(&self, table_key: &Bytes, mut record: Record, until_ms: u64) -> Result<Option<Settled>, StreamError> {
        if record.merged.is_some() {
            // It must not change between this look and those at its events.
            let _progress = self.lock()?;
            let now = self.table.get(table_key)?;
            record = match now.map(|now| Record::decode(now).ok_or_else(|| self.damaged(table_key))) {
                Some(record) => record?,
                // Its partition is given up.
                None => return Ok(None),
            };
            if record.merged.is_some() {
                return self.merged_at(table_key, until_ms);
            }
        }
        match record.time_ms <= until_ms {
            true => Ok(Some(Settled {
                time_ms: record.time_ms,
                value: record.value,
            })),
            false if record.is_folded => Err(self.folded(record.time_ms, until_ms)),
            false => Ok(None),
        }
    }

    /// The value of a key with updates that are kept after those up to a time.
    fn merged_at(&self, table_key: &[u8], until_ms: u64) -> Result<Option<Settled>, StreamError> {
        let head = Head::of(table_key);
        let whole = self.whole(&head)?;
        if let Some(whole) = whole.as_ref().filter(|whole| whole.time_ms > until_ms) {
            return match whole.is_folded {
                true => Err(self.folded(whole.time_ms, until_ms)),
                false => Ok(None),
            };
        }
        let updates = self.parsed_updates(&head, whole.as_ref().map_or(0, |whole| whole.time_ms))?;
        let is_later = |update: &Result<(Place, _), _>| matches!(update, Ok((place, _)) if place.time_ms > until_ms);
        let mut updates = updates.take_while(|update| !is_later(update)).peekable();
        if updates.peek().is_none() {
            return Ok(whole.map(|whole| Settled {
                time_ms: whole.time_ms,
                value: whole.value,
            }));
        }
        let start = match whole {
            Some(whole) => Start::of(&self.options, whole.time_ms, whole.value),
            None => Start::below(self.below(table_key)?),
        };
        let (record, _) = self.merge(start, Merged::default(), updates)?;
        Ok(Some(Settled {
            time_ms: record.time_ms,
            value: record.value,
        }))
    }

    fn folded(&self, folded_ms: u64, until_ms: u64) -> StreamError {
        StreamError::Folded {
            store: self.options.store.to_string(),
            until_ms,
            folded_ms,
        }
    }
}
