//! Keys of versioned stores: looked up in this node's memory, or read at the quorums of their replicas for a window. The
//! [queue](crate::server::queue) gives its requests to the [client](Forwarder::client) itself.

use fondaco_catalog::{Catalog, VersionedStore};
use fondaco_client::quorum::{AddedMeanwhile, EditOptions, WriteTimes};
use fondaco_client::{ClientError, ReadOptions};
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Record, Resolution, resolve};
use fondaco_protocol::now_unix_ms;
use fondaco_replica::{Recalled, Replicas};

use super::{Answered, Answers, Forwarder, Steered, UnderWay, Wanted, error_reply, wire_keys};
use crate::single_value::value_of;

impl Forwarder {
    /// Whether keys of a store may be answered by this node's own replica alone.
    pub(crate) fn may_recall(&self, catalog: &Catalog, store: &VersionedStore) -> bool {
        self.asks_one(catalog, store).is_some()
    }

    /// Looks up keys of a store in this node's memory, if one replica may answer. `take` gets the index of each key that this
    /// node may answer for, in order, with the state of the key, and returns whether it wants more.
    #[inline]
    pub(crate) fn recall<'a>(
        &self,
        catalog: &Catalog,
        store: &VersionedStore,
        keys: impl Iterator<Item = &'a [u8]>,
        take: impl FnMut(usize, Recalled<'_>) -> bool,
    ) {
        if let Some((replicas, topology)) = self.asks_one(catalog, store) {
            let keys = keys.map(|key| (store.slots.slot(key), key));
            replicas.recall(store.id.get(), keys, topology.epoch, take);
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

    /// The values of keys of versioned stores, one answer for each key, in order.
    pub(crate) async fn read_versioned(&self, catalog: &Catalog, keys: &[Wanted<'_>], steered: Steered) -> Answers {
        let records = match (self.client(), wire_keys(catalog, keys)) {
            (Ok(client), Ok(wire_keys)) => {
                let _under_way = self.under_way(keys.len());
                client.get_records(wire_keys, &steered.apply(self.read_options())).await
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        let (records, room) = match records {
            Ok(found) => found,
            Err(error) => return Answers::failed(keys.len(), &error),
        };
        let now_unix_ms = now_unix_ms();
        let value = |wanted: &Wanted<'_>, record: Result<Record, ClientError>| {
            let record = record.map_err(|error| error_reply(&error))?;
            let store = catalog.versioned(wanted.store);
            let current = match store {
                Some(store) => value_of(&record, store, now_unix_ms)?.map(|current| current.value),
                None => resolve(&record, Resolution::default(), now_unix_ms)
                    .values
                    .into_iter()
                    .next(),
            };
            Ok(current)
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

    /// Keys that are under way from now until the result is dropped.
    pub(crate) fn under_way(&self, keys: usize) -> UnderWay {
        UnderWay::of(self, keys)
    }

    pub(crate) fn write_times(&self) -> WriteTimes {
        WriteTimes {
            deadline: self.deadline(),
            attempt: None,
        }
    }

    pub(crate) fn edit_options(&self, added: AddedMeanwhile) -> EditOptions {
        EditOptions {
            times: self.write_times(),
            added,
            room: self.options.room.clone(),
        }
    }

    pub(crate) fn read_options(&self) -> ReadOptions {
        ReadOptions {
            deadline: self.deadline(),
            ..self.options.clone()
        }
    }
}
