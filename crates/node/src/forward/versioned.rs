//! Keys of versioned stores: read and written at the quorums of their replicas, wherever those are, this node
//! included.

use std::sync::Arc;

use fondaco_catalog::{Catalog, VersionedStore};
use fondaco_client::quorum::{AddedMeanwhile, Decide, EditOptions, Intent, Updated, WriteTimes, Written};
use fondaco_client::{ClientError, ReadOptions};
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Record, Resolution, Update};
use fondaco_protocol::WireKey;
use fondaco_protocol::now_unix_ms;
use fondaco_replica::Replicas;

use super::{Answered, Answers, Forwarder, UnderWay, ValueAnswer, Wanted, told, wire_keys};
use crate::single_value::value_of;

impl Forwarder {
    /// The value of a key, if this node has it in memory and need ask no other: its store is read from one
    /// replica.
    pub(crate) fn recall(&self, catalog: &Catalog, store: &VersionedStore, key: &[u8]) -> Option<ValueAnswer> {
        let (replicas, topology) = self.asks_one(catalog, store)?;
        let record = replicas.recall(store.id.get(), store.slots.slot(key), key, topology.epoch)?;
        let Some(record) = record else { return Some(Ok(None)) };
        let settings = &store.settings;
        // Most records do not end, and need no clock.
        let now_unix_ms = record.next_expiry_unix_ms().map_or(0, |_| now_unix_ms());
        let current = value_of(&record, settings.resolution, now_unix_ms);
        Some(
            current
                .map(|current| current.map(|current| current.value))
                .map_err(Arc::from),
        )
    }

    /// The same of several keys, one after the other, for who takes no more than the bytes of values that there is not
    /// more to: `take` is given each, or none where there is none, and says whether it wants more. It ends with the first
    /// that is not so.
    pub(crate) fn recall_plain(
        &self,
        catalog: &Catalog,
        store: &VersionedStore,
        keys: &[&[u8]],
        take: impl FnMut(Option<&[u8]>) -> bool,
    ) {
        if let Some((replicas, topology)) = self.asks_one(catalog, store)
            && store.settings.resolution != Resolution::Counter
        {
            let keys = keys.iter().map(|key| (store.slots.slot(key), *key));
            replicas.recall_plain(store.id.get(), keys, topology.epoch, take);
        }
    }

    /// This node's own replicas, and the routing table by which a key may be theirs, if a store is read from one
    /// replica.
    fn asks_one<'a>(&'a self, catalog: &'a Catalog, store: &VersionedStore) -> Option<(&'a Replicas, &'a Topology)> {
        let settings = &store.settings;
        if settings.reads > 1 || settings.preferred_reads > 1 || settings.zone_reads > 0 {
            return None;
        }
        let topology = catalog.membership()?.topology();
        Some((self.shared.config.replicas.as_deref()?, topology))
    }

    /// Has memory asked for what is under keys that are looked up soon, as they are on the wire: those of the first one's
    /// store, if this node has them.
    pub(crate) fn prefetch<'a>(&self, catalog: &'a Catalog, wire_keys: impl Iterator<Item = &'a [u8]> + Clone) {
        let first = wire_keys.clone().next().and_then(|key| catalog.versioned_on_wire(key));
        let (Some((store, _)), Some(replicas)) = (first, &self.shared.config.replicas) else {
            return;
        };
        let keys = wire_keys.filter_map(|wire_key| {
            let (of, key) = catalog.versioned_on_wire(wire_key)?;
            (of.id == store.id).then(|| (store.slots.slot(key), key))
        });
        replicas.prefetch(store.id.get(), keys);
    }

    /// The values of keys of versioned stores, one answer for each key, in order.
    pub(crate) async fn read_versioned(&self, catalog: &Catalog, keys: &[Wanted<'_>]) -> Answers {
        let records = match (self.client(), wire_keys(catalog, keys)) {
            (Ok(client), Ok(wire_keys)) => {
                let _under_way = self.under_way(keys.len());
                client.get_records(wire_keys, &self.read_options()).await
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let (records, room) = match records {
            Ok(found) => found,
            Err(error) => return Answers::failed(keys.len(), &error),
        };
        let now_unix_ms = now_unix_ms();
        let value = |wanted: &Wanted<'_>, record: Result<Record, ClientError>| {
            let record = record.map_err(|error| told(&error))?;
            let store = catalog.versioned(wanted.store);
            let resolution = store.map(|store| store.settings.resolution).unwrap_or_default();
            let current = value_of(&record, resolution, now_unix_ms)?;
            Ok(current.map(|current| current.value))
        };
        let answered = |(wanted, record)| Answered {
            value: value(wanted, record),
            source: None,
        };
        Answers {
            each: keys.iter().zip(records).map(answered).collect(),
            room,
        }
    }

    /// The record of a key: what the replicas that were asked hold together.
    ///
    /// # Errors
    /// The error to answer with.
    pub(crate) async fn read_record(&self, key: WireKey) -> Result<Record, String> {
        let failed = |error: ClientError| told(&error).to_string();
        let client = self.client().map_err(failed)?;
        let (mut records, _room) = client
            .get_records(vec![key], &self.read_options())
            .await
            .map_err(failed)?;
        // One key has one record.
        records.pop().unwrap_or(Ok(Record::default())).map_err(failed)
    }

    /// Writes a key.
    ///
    /// # Errors
    /// Whatever keeps it from being written; a conflict, if that was asked for.
    pub(crate) async fn write_record(
        &self,
        key: WireKey,
        intent: Intent,
        update: Update,
    ) -> Result<Written, ClientError> {
        self.client()?.write(key, intent, update, self.write_times()).await
    }

    /// Writes a key, and tells what came of it; it returns when nothing is left to be done for it.
    pub(crate) async fn write_record_to_the_end(
        &self,
        key: WireKey,
        intent: Intent,
        update: Update,
        answer: impl FnOnce(Result<Written, ClientError>),
    ) {
        match self.client() {
            Ok(client) => {
                let times = self.write_times();
                client.write_to_the_end(key, intent, update, times, answer).await;
            }
            Err(error) => answer(Err(error)),
        }
    }

    /// Changes a key: what is decided on what is there is written, if no other write comes meanwhile.
    ///
    /// # Errors
    /// Whatever keeps it from being read or written; a conflict, when others were faster again and again.
    pub(crate) async fn edit_record(
        &self,
        key: WireKey,
        decide: Decide,
        added: AddedMeanwhile,
    ) -> Result<Updated, ClientError> {
        let options = EditOptions {
            times: self.write_times(),
            added,
            room: self.options.room.clone(),
        };
        self.client()?.edit(key, decide, options).await
    }

    /// Keys that are under way from now until the result is dropped.
    pub(crate) fn under_way(&self, keys: usize) -> UnderWay {
        UnderWay::of(self, keys)
    }

    fn write_times(&self) -> WriteTimes {
        WriteTimes {
            deadline: self.deadline(),
            attempt: None,
        }
    }

    pub(super) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            deadline: self.deadline(),
            ..self.options.clone()
        }
    }
}
