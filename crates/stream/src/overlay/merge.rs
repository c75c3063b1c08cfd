//! Keys with updates: their events in the order of event times, whatever the order in which they were read.
//!
//! The value of a key is its last whole value, or else the version's, with its updates applied in order. Updates are
//! kept beside the value, for as long as an earlier event may come. A new one that is the last, or that only adds to
//! numbers as all after it do, is applied to the value; otherwise all are applied again. Updates before the last
//! whole value have no effect: they are deleted in batches.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use bytes::Bytes;
use fondaco_engine::EngineError;
use fondaco_schema::{Content, Update};

use super::changes::Changes;
use super::options::OverlayOptions;
use super::record::{Head, Merged, PLACE_BYTES, Place, Record, Whole};
use super::{DELETED_MAX, Overlay};
use crate::error::StreamError;

/// The number of updates of a key that are folded in one batch.
const FOLDED_MAX: usize = 4096;
/// Their size in bytes; a single update may be longer.
const FOLDED_BYTES_MAX: usize = 4 << 20;

/// Events of one key that are yet to be merged.
pub(super) struct Pending {
    hash: u64,
    /// The overlay's record of the key.
    known: Option<Record>,
    /// The version's value, if the overlay has no record.
    below: Option<BelowValue>,
    pub(super) wholes: Vec<Whole>,
    pub(super) updates: Vec<NewUpdate>,
}

/// The version's value of a key.
#[derive(Debug, Clone)]
pub(super) struct BelowValue {
    pub(super) value: Bytes,
    pub(super) expires_ms: u64,
}

/// The value that updates apply to.
pub(super) struct Start {
    /// The time of its latest event; 0 of a version's value.
    time_ms: u64,
    expires_ms: u64,
    value: Option<Bytes>,
}

impl Start {
    /// A whole value, or a deletion.
    pub(super) fn of(options: &OverlayOptions, time_ms: u64, value: Option<Bytes>) -> Self {
        Self {
            time_ms,
            expires_ms: options.expires_ms(time_ms),
            value,
        }
    }

    /// The version's value.
    pub(super) fn below(below: Option<BelowValue>) -> Self {
        let expires_ms = below.as_ref().map_or(u64::MAX, |below| below.expires_ms);
        let value = below.map(|below| below.value);
        Self {
            time_ms: 0,
            expires_ms,
            value,
        }
    }
}

/// An update that was read.
pub(super) struct NewUpdate {
    pub(super) place: Place,
    pub(super) has_id: bool,
    pub(super) text: Bytes,
    pub(super) update: Update,
}

impl Pending {
    pub(super) fn new(hash: u64, known: Option<Record>, below: Option<BelowValue>) -> Self {
        Self {
            hash,
            known,
            below,
            wholes: Vec::new(),
            updates: Vec::new(),
        }
    }
}

impl Changes<'_> {
    /// Merges the events of keys with updates.
    pub(super) fn merge_all(&mut self) -> Result<(), StreamError> {
        for (key, pending) in std::mem::take(&mut self.pending) {
            self.merge(key, pending)?;
        }
        Ok(())
    }

    fn merge(&mut self, key: Bytes, mut new: Pending) -> Result<(), StreamError> {
        let known = new.known.take();
        let head = Head::of(&key);
        new.updates.sort_by_key(|update| update.place);
        self.drop_repeated(&head, known.as_ref(), &mut new.updates)?;
        let is_new = known.is_none();
        let record = match self.next(known.as_ref(), &new)? {
            Some(record) => {
                if let Some(whole) = known.and_then(whole_of) {
                    self.batch.put(&*self.overlay.events, head.whole(), whole.encode());
                }
                self.counted.applied += new.updates.len() as u64;
                Some(record)
            }
            None => self.again(&key, &head, known, &mut new)?,
        };
        for update in new.updates {
            let text = update.text;
            self.batch.put(&*self.overlay.events, head.update(&update.place), text);
        }
        if let Some(record) = record {
            if is_new {
                self.new_keys.push(new.hash);
            }
            self.write(&key, &record);
        }
        Ok(())
    }

    /// Drops updates with identifiers that are known, and, of those in order, equal ones that follow one another.
    fn drop_repeated(
        &mut self,
        head: &Head,
        known: Option<&Record>,
        updates: &mut Vec<NewUpdate>,
    ) -> Result<(), StreamError> {
        let before = updates.len();
        updates.dedup_by_key(|update| update.place);
        if known.is_some_and(|known| known.merged.is_some()) {
            // A topic that has lost its end was read again.
            let has_lost = !self.overlay.lost.lock().is_empty();
            for update in std::mem::take(updates) {
                if !(update.has_id || has_lost) || self.overlay.events.get(&head.update(&update.place))?.is_none() {
                    updates.push(update);
                }
            }
        }
        self.counted.repeated += (before - updates.len()) as u64;
        Ok(())
    }

    /// The record of a key after updates that can be applied to its present value; `None` if all its events have to
    /// be merged again.
    fn next(&mut self, known: Option<&Record>, new: &Pending) -> Result<Option<Record>, StreamError> {
        let last_ms = known.map_or(0, |known| known.time_ms);
        let merged = known.and_then(|known| known.merged);
        let merged = merged.unwrap_or(Merged {
            ordered_ms: last_ms,
            all_fit: true,
        });
        let is_next = |new: &NewUpdate| new.place.time_ms > last_ms;
        // Between values that have expired the order matters.
        let lives = last_ms < self.overlay.options.expires_ms(merged.ordered_ms);
        let is_free = |new: &NewUpdate| lives && new.update.is_sum() && new.place.time_ms > merged.ordered_ms;
        let all_next = new.updates.iter().all(is_next);
        let all_free = || merged.all_fit && new.updates.iter().all(|new| is_next(new) || is_free(new));
        if !new.wholes.is_empty() || new.updates.is_empty() || !(all_next || all_free()) {
            return Ok(None);
        }
        let options = &self.overlay.options;
        let start = match known {
            Some(known) => Start::of(options, last_ms, known.value.clone()),
            None => Start::below(new.below.clone()),
        };
        let updates = new.updates.iter().map(|new| Ok((new.place, &new.update)));
        let (record, unfit) = self.overlay.merge(start, merged, updates)?;
        // If one does not fit, the order matters.
        if !record.merged.is_some_and(|merged| merged.all_fit) && !all_next {
            return Ok(None);
        }
        self.counted.unfit += unfit;
        Ok(Some(record))
    }

    /// The record of a key after all its events; `None` if nothing has changed. Leaves the updates that have to be
    /// kept.
    fn again(
        &mut self,
        key: &Bytes,
        head: &Head,
        known: Option<Record>,
        new: &mut Pending,
    ) -> Result<Option<Record>, StreamError> {
        let overlay = self.overlay;
        let is_first = known.is_none();
        let was_merged = known.as_ref().is_some_and(|known| known.merged.is_some());
        let mut whole = match was_merged {
            true => overlay.whole(head)?,
            false => known.and_then(whole_of),
        };
        let is_late = |time_ms| {
            whole
                .as_ref()
                .is_some_and(|whole| whole.is_folded && time_ms <= whole.time_ms)
        };
        let before = new.wholes.len() + new.updates.len();
        new.wholes.retain(|new| !is_late(new.time_ms));
        new.updates.retain(|new| !is_late(new.place.time_ms));
        self.counted.late += (before - new.wholes.len() - new.updates.len()) as u64;
        let mut is_replaced = false;
        for new in std::mem::take(&mut new.wholes) {
            match whole.as_ref().is_some_and(|known| known.rank() >= new.rank()) {
                true => self.counted.superseded += 1,
                false => {
                    self.counted.applied += 1;
                    (whole, is_replaced) = (Some(new), true);
                }
            }
        }
        let from_ms = whole.as_ref().map_or(0, |whole| whole.time_ms);
        let before = new.updates.len();
        new.updates.retain(|new| new.place.time_ms >= from_ms);
        self.counted.superseded += (before - new.updates.len()) as u64;
        self.counted.applied += new.updates.len() as u64;
        if !is_replaced && new.updates.is_empty() {
            return Ok(None);
        }
        let mut kept = None;
        if was_merged {
            for event_key in overlay.replaced(head, Some(from_ms))?.take(DELETED_MAX - self.replaced) {
                self.batch.delete(&*overlay.events, event_key?);
                self.replaced += 1;
            }
            kept = Some(overlay.parsed_updates(head, from_ms)?);
        }
        let fresh = new.updates.iter().map(|new| Ok((new.place, new.update.clone())));
        let mut updates = in_order(kept.into_iter().flatten(), fresh).peekable();
        let has_updates = updates.peek().is_some();
        self.write_whole(head, whole.as_ref(), was_merged, !has_updates);
        let center = whole.as_ref().map_or(0, |whole| whole.center);
        let start = match whole {
            Some(whole) => Start::of(&overlay.options, whole.time_ms, whole.value),
            None if is_first => Start::below(new.below.clone()),
            None => Start::below(overlay.below(key)?),
        };
        if !has_updates {
            return Ok(Some(Record {
                time_ms: from_ms,
                merged: None,
                is_folded: false,
                center,
                value: start.value,
            }));
        }
        let merged = Merged {
            ordered_ms: from_ms,
            all_fit: true,
        };
        let (record, unfit) = overlay.merge(start, merged, updates)?;
        self.counted.unfit += unfit;
        Ok(Some(record))
    }

    /// Keeps the whole value of a key beside its updates, if it has any.
    fn write_whole(&mut self, head: &Head, whole: Option<&Whole>, was_merged: bool, is_alone: bool) {
        match whole {
            Some(whole) if !is_alone => self.batch.put(&*self.overlay.events, head.whole(), whole.encode()),
            _ if was_merged => self.batch.delete(&*self.overlay.events, head.whole()),
            _ => {}
        }
    }
}

/// The updates of two lists that are in order, in order.
fn in_order(
    one: impl Iterator<Item = Result<(Place, Update), StreamError>>,
    other: impl Iterator<Item = Result<(Place, Update), StreamError>>,
) -> impl Iterator<Item = Result<(Place, Update), StreamError>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(Ok((place, _))), Some(Ok((earlier, _)))) if earlier < place => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

/// Converts a record without updates to a whole value.
fn whole_of(record: Record) -> Option<Whole> {
    record.merged.is_none().then_some(Whole {
        time_ms: record.time_ms,
        is_folded: record.is_folded,
        center: record.center,
        value: record.value,
    })
}

impl Overlay {
    /// The record after updates were applied to a value, and the number of updates that do not fit. An update after the end of the
    /// value, or of the one that earlier updates have made, begins without a value.
    pub(super) fn merge<U: Borrow<Update>>(
        &self,
        start: Start,
        mut merged: Merged,
        updates: impl Iterator<Item = Result<(Place, U), StreamError>>,
    ) -> Result<(Record, u64), StreamError> {
        let Start {
            mut time_ms,
            mut expires_ms,
            value,
        } = start;
        let (options, rules) = (&self.options, self.rules.load());
        let mut content = Content::of(value, &rules);
        let mut unfit = 0;
        for update in updates {
            let (place, update) = update?;
            let update = update.borrow();
            let is_over = expires_ms <= place.time_ms;
            if is_over {
                content = Content::of(None, &rules);
            }
            if is_over || time_ms == 0 && options.lifetimes.is_some() {
                // Whether an earlier update belongs to the former value depends on its time.
                merged.ordered_ms = merged.ordered_ms.max(place.time_ms);
            }
            unfit += u64::from(content.apply(update).is_err());
            time_ms = time_ms.max(place.time_ms);
            expires_ms = options.expires_ms(time_ms);
            if !update.is_sum() {
                merged.ordered_ms = merged.ordered_ms.max(place.time_ms);
            }
        }
        merged.all_fit &= unfit == 0 && !content.is_near_limit();
        let record = Record {
            time_ms,
            merged: Some(merged),
            is_folded: false,
            center: 0,
            value: content.value(),
        };
        Ok((record, unfit))
    }

    /// The version's value of a key in the table, whether or not it has expired by now.
    pub(super) fn below(&self, table_key: &[u8]) -> Result<Option<BelowValue>, StreamError> {
        let key = table_key.get(PLACE_BYTES..).unwrap_or_default();
        let below = (self.base)(key).map_err(|reason| StreamError::Version { reason })?;
        let lifetimes = self.options.lifetimes;
        Ok(below.map(|(value, time_ms)| BelowValue {
            value,
            expires_ms: lifetimes.map_or(u64::MAX, |lifetimes| lifetimes.expires_unix_ms(time_ms)),
        }))
    }

    pub(super) fn whole(&self, head: &Head) -> Result<Option<Whole>, StreamError> {
        let key = head.whole();
        let whole = self.events.get(&key)?;
        let decode = |whole| Whole::decode(whole).ok_or_else(|| self.damaged(&head.table_key()));
        whole.map(decode).transpose()
    }

    /// The updates of a key that are kept, from a time on: their keys in the table, their places, their texts.
    /// Updates before its whole value have no effect.
    fn updates(
        &self,
        head: &Head,
        from_ms: u64,
    ) -> Result<impl Iterator<Item = Result<(Bytes, Place, Bytes), StreamError>>, StreamError> {
        let [_, to] = head.updates();
        let scan = self.events.scan(&head.updates_from(from_ms), Some(&to))?;
        Ok(scan.map(move |entry: Result<(Bytes, Bytes), EngineError>| {
            let (event_key, text) = entry?;
            let place = head.place(&event_key).ok_or_else(|| self.damaged(&head.table_key()))?;
            Ok((event_key, place, text))
        }))
    }

    /// The same, parsed one after the other: they may be many, and long.
    pub(super) fn parsed_updates(
        &self,
        head: &Head,
        from_ms: u64,
    ) -> Result<impl Iterator<Item = Result<(Place, Update), StreamError>>, StreamError> {
        let updates = self.updates(head, from_ms)?;
        Ok(updates.map(|update| {
            let (event_key, place, text) = update?;
            Ok((place, self.parsed(&event_key, &text)?))
        }))
    }

    fn parsed(&self, event_key: &[u8], text: &[u8]) -> Result<Update, StreamError> {
        Update::parse(text).map_err(|_| self.damaged(event_key))
    }

    /// The keys of the updates of a key that have no effect any more: those before a time, or all.
    fn replaced(
        &self,
        head: &Head,
        before_ms: Option<u64>,
    ) -> Result<impl Iterator<Item = Result<Bytes, StreamError>>, StreamError> {
        let [from, all] = head.updates();
        let to = before_ms.map_or(all, |before_ms| head.updates_from(before_ms));
        let scan = self.events.scan(&from, Some(&to))?;
        Ok(scan.map(|entry| Ok(entry?.0)))
    }

    /// Folds updates up to a time, which must be settled, unless there are groups after this one. Folds at most
    /// `keys_max` keys, from a key in the table of events on. Returns the key at which the next batch begins, if
    /// there are more.
    ///
    /// # Errors
    /// An error of the engine or of the version, or damaged data.
    pub(crate) fn fold(
        &self,
        until_ms: u64,
        group: u32,
        from: &[u8],
        keys_max: usize,
    ) -> Result<Option<Vec<u8>>, StreamError> {
        let mut from = from.to_vec();
        for _ in 0..keys_max {
            let Some((event_key, _)) = self.events.scan(&from, None)?.next().transpose()? else {
                return Ok(None);
            };
            let damaged = || self.damaged(&event_key);
            let head = Head::of_event(&event_key).ok_or_else(damaged)?;
            // The rest of one with many updates is next.
            let [updates, after] = head.updates();
            from = if self.fold_key(&head, until_ms, group)? {
                after
            } else {
                updates
            };
        }
        Ok(Some(from))
    }

    /// Folds the updates of one key. Returns whether none is left that can be folded.
    fn fold_key(&self, head: &Head, until_ms: u64, group: u32) -> Result<bool, StreamError> {
        // The lock: no event of the key is applied meanwhile.
        let progress = self.lock()?;
        if progress.groups.keys().next_back().is_some_and(|&newest| newest > group) {
            return Ok(true);
        }
        let first = self.updates(head, 0)?.next().transpose()?;
        if first.is_none_or(|(_, place, _)| place.time_ms > until_ms) {
            return Ok(true);
        }
        let table_key = Bytes::from(head.table_key());
        if !progress.partitions().contains(self.partition_of(&table_key)) {
            // The partition was given up, and is not deleted yet.
            return Ok(true);
        }
        let mut record = match self.table.get(&table_key)?.map(Record::decode) {
            Some(Some(record)) => record,
            _ => return Err(self.damaged(&table_key)),
        };
        let whole = match record.merged {
            Some(_) => self.whole(head)?,
            None => None,
        };
        let from_ms = whole.as_ref().map_or(0, |whole| whole.time_ms);
        let mut changes = Changes::new(self, BTreeMap::new());
        for event_key in self.replaced(head, record.merged.map(|_| from_ms))?.take(DELETED_MAX) {
            changes.batch.delete(&*self.events, event_key?);
        }
        if !changes.batch.is_empty() {
            self.write(changes.batch)?;
            return Ok(false);
        }
        let (mut folded, mut bytes) = (Vec::new(), 0);
        let (mut is_all, mut is_done) = (true, true);
        for update in self.updates(head, from_ms)? {
            let (event_key, place, text) = update?;
            bytes += text.len();
            is_done =
                place.time_ms > until_ms || folded.is_empty() || folded.len() < FOLDED_MAX && bytes < FOLDED_BYTES_MAX;
            if place.time_ms > until_ms || !is_done {
                is_all = false;
                break;
            }
            folded.push((place, self.parsed(&event_key, &text)?));
            changes.batch.delete(&*self.events, event_key);
        }
        let Some((last, _)) = folded.last() else {
            return Ok(true);
        };
        let time_ms = last.time_ms;
        match (is_all, &mut record.merged) {
            (false, Some(merged)) => {
                let start = match whole {
                    Some(whole) => Start::of(&self.options, whole.time_ms, whole.value),
                    None => Start::below(self.below(&table_key)?),
                };
                let (made, _) = self.merge(start, *merged, folded.into_iter().map(Ok))?;
                let whole = Whole {
                    time_ms,
                    is_folded: true,
                    center: 0,
                    value: made.value,
                };
                changes.batch.put(&*self.events, head.whole(), whole.encode());
                merged.ordered_ms = merged.ordered_ms.max(time_ms);
            }
            _ => {
                changes.batch.delete(&*self.events, head.whole());
                record.merged = None;
                record.is_folded = true;
            }
        }
        changes.write(&table_key, &record);
        self.write(changes.batch)?;
        Ok(is_done)
    }
}
