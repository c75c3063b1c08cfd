//! The new record of each write, given the stored record and earlier writes of the group.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_engine::{Hot, Pair, Table};
use fondaco_model::NodeId;
use fondaco_model::versioned::{Change as UpdateChange, RECORD_BYTES_MAX, Record, RecordError};
use fondaco_protocol::replica::{PutOver, ReplicaError, ReplicaErrorCode, ReplicaReply};

use super::{Group, HINTS_ENGINE_AT, Put, engine_error};
use crate::error::ReplicasError;
use crate::membership::incarnation::Lasting;
use crate::metrics::ReplicaCounter;
use crate::partition::{Change, Partition, UNREADABLE};
use crate::store::{HeldStore, Place, not_here};
use crate::table_key::hint_key;
use crate::writes::put::written;

/// A record to be stored.
enum Stored<'a> {
    Record(&'a Record),
    /// The received bytes, which share a buffer with other data.
    Bytes(&'a [u8]),
}

impl Stored<'_> {
    /// The key and the record in a buffer of their own: a look-up of the key finds the record next to it in memory.
    fn behind(self, key: &[u8]) -> Pair {
        let record_bytes = match self {
            Self::Record(record) => record.encoded_bytes(),
            Self::Bytes(bytes) => bytes.len(),
        };
        let mut both = Vec::with_capacity(key.len() + record_bytes);
        both.extend_from_slice(key);
        match self {
            Self::Record(record) => record.encode(&mut both),
            Self::Bytes(bytes) => both.extend_from_slice(bytes),
        }
        Pair::new(both, key.len())
    }
}

impl Group<'_> {
    pub(super) fn put(&mut self, store: &HeldStore, put: Put) -> Result<Bytes, ReplicaError> {
        let Put {
            place,
            over,
            context,
            update,
        } = put;
        if !place.partition.is_held() {
            return Err(not_here(&store.name, place.partition.id()));
        }
        self.admit_late(store, &place)?;
        store.check_quota(&update)?;
        let before = match self.current(store.engine_at, &*store.table, &place.table_key) {
            Ok(Some(bytes)) => match self.decode(&place, &bytes) {
                Ok(record) => Ok((Some(record), Some(Record::stated_digest(&bytes)))),
                Err(error) => Err((error, Some(Record::digest(&bytes)))),
            },
            Ok(None) => Ok((None, None)),
            Err(error) => {
                if error.code == ReplicaErrorCode::Corrupt {
                    place.partition.found_damaged(place.position, UNREADABLE);
                }
                Err((error, None))
            }
        };
        let (local, before) = match before {
            Ok(before) => before,
            Err((error, digest)) => {
                let replaces =
                    over == PutOver::All && matches!(update.change, UpdateChange::Put(_) | UpdateChange::Delete);
                // If there are other owners, one of them takes the write, and its result is merged here.
                let holding = self.shared.holding.load();
                let has_others = holding.has_others(store, holding.partition_at(place.position));
                if error.code != ReplicaErrorCode::Corrupt || !replaces || has_others {
                    return Err(error);
                }
                self.replace_damaged(store, &place)?;
                (None, digest)
            }
        };
        let dots = self.dots.of(store.lasting(), place.position);
        let record = written(local, store.settings.resolution, dots, over, &context, update)?;
        let after = self.change(store, &place, before, Stored::Record(&record))?;
        self.shared.metrics.add(ReplicaCounter::Puts, 1);
        Ok(after)
    }

    /// Whether a write that was admitted for a place may be committed, if the routing table has changed since.
    pub(super) fn admit_late(&self, store: &HeldStore, place: &Place) -> Result<(), ReplicaError> {
        let holding = self.shared.holding.load();
        let admitted = holding.admit_late(store, place.position);
        admitted.inspect_err(|error| self.shared.metrics.refused(error))
    }

    /// Merges records. If memory is full for one new key, the others are still merged.
    pub(super) fn merge_all(
        &mut self,
        store: &HeldStore,
        records: impl Iterator<Item = (Place, Bytes)>,
        is_counted: bool,
    ) -> Result<ReplicaReply, ReplicaError> {
        let mut refused = None;
        for (place, record) in records {
            match self.merge(store, &place, record, is_counted) {
                Err(error) if error.code == ReplicaErrorCode::KeysFull => refused = Some(error),
                merged => merged?,
            }
        }
        refused.map_or(Ok(ReplicaReply::Done), Err)
    }

    /// Refuses the write of a key without a record, if its engine has no memory for new keys. The key may still exist
    /// with a damaged record.
    pub(crate) fn check_key(&self, store: &HeldStore, key: &[u8]) -> Result<(), ReplicaError> {
        let Err(full) = self.shared.engines[store.engine_at].check_new_keys() else {
            return Ok(());
        };
        let is_there = match self.changed(store.engine_at, &*store.table, key) {
            Some(change) => change.is_some(),
            // A key that cannot be read exists.
            None => !matches!(store.table.get_hot(key), Ok(Hot::Absent)),
        };
        match is_there {
            true => Ok(()),
            false => Err(engine_error(self.shared, &full)),
        }
    }

    /// Merges a record, which was checked before. `is_counted` if a coordinator counts on it.
    pub(super) fn merge(
        &mut self,
        store: &HeldStore,
        place: &Place,
        record: Bytes,
        is_counted: bool,
    ) -> Result<(), ReplicaError> {
        self.shared.metrics.add(ReplicaCounter::Merges, 1);
        let mut is_damaged = false;
        let before = match self.current(store.engine_at, &*store.table, &place.table_key) {
            // A damaged record is replaced by the received one.
            Err(error) if error.code == ReplicaErrorCode::Corrupt => {
                is_damaged = true;
                place.partition.found_damaged(place.position, UNREADABLE);
                None
            }
            before => before?,
        };
        let merged;
        let mut digest = before.as_ref().map(|bytes| Record::stated_digest(bytes));
        let after = match &before {
            Some(before) if *before == record => None,
            None if !is_counted && self.is_past(store, &record)? => None,
            None => Some(Stored::Bytes(&record)),
            Some(bytes) => match self.decode(place, bytes) {
                Ok(local) => {
                    merged = local.merge(&decode(record.clone())?);
                    (merged != local).then_some(Stored::Record(&merged))
                }
                Err(_) => {
                    is_damaged = true;
                    // A tree that was built meanwhile has counted the present bytes.
                    digest = Some(Record::digest(bytes));
                    Some(Stored::Bytes(&record))
                }
            },
        };
        match after {
            Some(after) => {
                if is_damaged {
                    self.replace_damaged(store, place)?;
                }
                self.change(store, place, digest, after).map(drop)
            }
            None => {
                self.shared.metrics.add(ReplicaCounter::IdleMerges, 1);
                Ok(())
            }
        }
    }

    /// The record that replaces a damaged one may be older than an acknowledged write: the partition has to be compared
    /// with others before reads may use it. It may also lack the last dots that this node gave its key: later dots must
    /// not seem to follow those, so a new incarnation begins.
    pub(crate) fn replace_damaged(&mut self, store: &HeldStore, place: &Place) -> Result<(), ReplicaError> {
        let failed = |error: ReplicasError| ReplicaError::new(ReplicaErrorCode::Other, error.to_string());
        let holding = self.shared.holding.load();
        if store.is_compared() && holding.has_others(store, holding.partition_at(place.position)) {
            place.partition.fall_behind();
            if store.lasting() == Lasting::Durable {
                self.shared.incarnation.fall_behind().map_err(failed)?;
            }
        }
        if self.dots.may_have_given(place.position) {
            self.shared.incarnation.renew().map_err(failed)?;
            self.dots.follow(&self.shared.incarnation);
        }
        Ok(())
    }

    /// Whether a record has only deletions that all replicas may have collected by now: a replica without the key has
    /// done so.
    fn is_past(&self, store: &HeldStore, record: &Bytes) -> Result<bool, ReplicaError> {
        let record = decode(record.clone())?;
        Ok(crate::anti_entropy::tombstone_collection::is_past(
            &record,
            &store.settings,
            self.now_unix_ms,
        ))
    }

    pub(super) fn hint(
        &mut self,
        store: &HeldStore,
        node: NodeId,
        place: &Place,
        record: Bytes,
    ) -> Result<(), ReplicaError> {
        let table = Arc::clone(&self.shared.hints);
        let key = hint_key(node, store.identity(), place.position, &place.key);
        let before = match self.current(HINTS_ENGINE_AT, &*table, &key) {
            // A damaged hint is lost, and must not block new ones.
            Err(error) if error.code == ReplicaErrorCode::Corrupt => None,
            before => before?.and_then(|before| decode(before).ok()),
        };
        let record = match before {
            Some(before) => before.merge(&decode(record)?).to_bytes().into(),
            None => own(&record),
        };
        check_length(&record)?;
        // Not its expiry time: a deletion that it has not seen may come long before that.
        let written_unix_ms = decode(record.clone())?.oldest_unix_ms();
        self.batch(HINTS_ENGINE_AT).put(&*table, key, record);
        self.shared.metrics.add(ReplicaCounter::HintsStored, 1);
        self.hinted.push((node, written_unix_ms));
        Ok(())
    }

    /// Writes the record of a key, whose former digest is `before`. Returns the record as stored.
    fn change(
        &mut self,
        store: &HeldStore,
        place: &Place,
        before: Option<u64>,
        after: Stored<'_>,
    ) -> Result<Bytes, ReplicaError> {
        let pair = after.behind(&place.table_key);
        let after = pair.shared_value();
        check_length(&after)?;
        if before.is_none() {
            self.check_key(store, pair.key())?;
        }
        self.note(place, before, Some(Record::stated_digest(&after)));
        self.follow(&place.partition, place.position, &pair);
        self.batch_of(store).put_pair(&*store.table, pair);
        Ok(after)
    }

    /// Notes a change by its digests.
    pub(super) fn note(&mut self, place: &Place, before: Option<u64>, after: Option<u64>) {
        let position = place.position;
        let change = Change {
            position,
            before,
            after,
        };
        self.changes.push((Arc::clone(&place.partition), change));
    }

    /// The record of a key, including earlier writes of the group.
    pub(super) fn current(
        &self,
        engine_at: usize,
        table: &dyn Table,
        key: &[u8],
    ) -> Result<Option<Bytes>, ReplicaError> {
        match self.changed(engine_at, table, key) {
            Some(change) => Ok(change),
            None => table.get(key).map_err(|error| engine_error(self.shared, &error)),
        }
    }

    /// The record of a key after earlier writes of the group, if they changed it.
    pub(crate) fn changed(&self, engine_at: usize, table: &dyn Table, key: &[u8]) -> Option<Option<Bytes>> {
        let batch = self.batches.iter().find(|batch| batch.engine_at == engine_at)?;
        batch.changes.change_of(table, key)
    }

    fn decode(&self, place: &Place, bytes: &Bytes) -> Result<Record, ReplicaError> {
        Record::decode(bytes.clone())
            .map_err(|error| self.damaged(&place.partition, (place.position, &place.key), bytes, &error))
    }

    /// The error for a damaged stored record.
    pub(crate) fn damaged(
        &self,
        partition: &Partition,
        (position, key): (u64, &Bytes),
        bytes: &[u8],
        error: &RecordError,
    ) -> ReplicaError {
        self.shared.metrics.add(ReplicaCounter::Corruptions, 1);
        tracing::error!(partition = %partition.id(), ?key, %error, "a stored record is damaged");
        partition.found_damaged(position, Record::digest(bytes));
        ReplicaError::new(ReplicaErrorCode::Corrupt, error.to_string())
    }
}

/// Copies a part of a shared buffer into one of its own: tables keep it for long.
fn own(part: &Bytes) -> Bytes {
    Bytes::copy_from_slice(part)
}

fn decode(record: Bytes) -> Result<Record, ReplicaError> {
    Record::decode(record).map_err(|error| {
        let message = format!("not merged: {error}");
        ReplicaError::new(ReplicaErrorCode::Other, message)
    })
}

pub(super) fn check_record(record: &Bytes) -> Result<(), ReplicaError> {
    decode(record.clone()).map(drop)
}

pub(crate) fn check_length(record: &[u8]) -> Result<(), ReplicaError> {
    if record.len() <= RECORD_BYTES_MAX {
        return Ok(());
    }
    Err(ReplicaError::new(
        ReplicaErrorCode::Other,
        format!(
            "the record has {} bytes with all of its concurrent values, and the limit is {RECORD_BYTES_MAX}: read them, \
             and write one with their context",
            record.len()
        ),
    ))
}
