//! Queries over the sets of ids of many keys: computed where the keys are, merged here.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_ids::{Budget, Computation, IdSet, SetAnswer, SetQuery};
use fondaco_model::StoreName;
use fondaco_model::cluster::TopologyStore;
use fondaco_protocol::WireKey;

use crate::client::{Client, Inner};
use crate::error::ClientError;
use crate::options::ReadOptions;
use crate::read::{BatchReply, PinnedStore};

/// Options of one query over sets of ids.
#[derive(Debug, Clone)]
pub struct SetOptions {
    /// How keys are read, or asked for.
    pub read: ReadOptions,
    /// The most ids of the answer, and of what one node answers; a million by default.
    pub ids_max: usize,
}

impl Default for SetOptions {
    fn default() -> Self {
        Self {
            read: ReadOptions::default(),
            ids_max: 1_000_000,
        }
    }
}

impl Client {
    /// Answers a query over the sets of keys of one store of [ids](fondaco_model::ValueType::Ids).
    ///
    /// Nodes compute over those keys of a batch store that they have, so that results travel, and not sets. The sets of a
    /// versioned store are read with its quorum, and computed over here.
    ///
    /// # Errors
    /// [`ClientError::NoIds`], [`ClientError::Ids`], and any reason why a key cannot be read.
    pub async fn sets<K: AsRef<[u8]>>(
        &self,
        store: &StoreName,
        keys: &[K],
        query: &SetQuery,
        options: &SetOptions,
    ) -> Result<SetAnswer, ClientError> {
        let keys: Result<Vec<WireKey>, _> = keys.iter().map(|key| WireKey::new(store, key.as_ref())).collect();
        let keys = keys?;
        let (elements, _) = self.compute(keys, query.computation(), options).await?;
        Ok(query.merge(&elements, &mut Budget::of_ids(options.ids_max))?)
    }

    /// What is computed over keys of one store: an element for each key, and the version of a batch store that it is of.
    /// For servers, which merge it with what they have themselves; [`Client::sets`] is built on it. The first key is that of
    /// the query, unless [`Computation::of_part`] was asked for a part without it.
    ///
    /// # Errors
    /// As [`Client::sets`].
    pub async fn compute(
        &self,
        keys: Vec<WireKey>,
        computation: Computation,
        options: &SetOptions,
    ) -> Result<(Vec<Option<Bytes>>, Option<PinnedStore>), ClientError> {
        let Some(first) = keys.first() else {
            return Ok((Vec::new(), None));
        };
        let inner = self.inner();
        if !inner.has_ids(first.store())? {
            let read = self.read(keys, &options.read).await?;
            return Ok((apply(read, &computation, options.ids_max)?, None));
        }
        if let Some(other) = keys.iter().find(|key| key.store() != first.store()) {
            return Err(ClientError::NoIds {
                store: other.store().into(),
                reason: "all keys of a query are of one store".into(),
            });
        }
        let mut reply = inner.compute(keys, computation, &options.read).await?;
        let pinned = reply.stores.pop();
        Ok((reply.values.into_iter().collect::<Result<_, _>>()?, pinned))
    }
}

/// Computes over values that were read.
fn apply(read: BatchReply, computation: &Computation, ids_max: usize) -> Result<Vec<Option<Bytes>>, ClientError> {
    let values: Vec<Option<Bytes>> = read.values.into_iter().collect::<Result<_, _>>()?;
    let sets = values
        .iter()
        .map(|value| value.as_deref().map(IdSet::parse).transpose());
    let sets = sets.collect::<Result<Vec<_>, _>>()?;
    let partial = computation.apply(&sets, &mut Budget::of_ids(ids_max))?;
    Ok(partial.into_iter().map(|element| element.map(Bytes::from)).collect())
}

impl Inner {
    /// Whether nodes compute over the sets of a store: it is a batch store.
    fn has_ids(self: &Arc<Self>, store: &str) -> Result<bool, ClientError> {
        let snapshot = self.current.load_full().ok_or_else(|| self.no_topology(0))?;
        let known: Option<&TopologyStore> = snapshot.directory.store(store).map(|(_, store)| store);
        let known = known.ok_or_else(|| ClientError::UnknownStore { store: store.into() })?;
        match known.value_type.has_sets() {
            true => Ok(known.versioned.is_none()),
            false => Err(ClientError::NoIds {
                store: store.into(),
                reason: format!("its values are {}", known.value_type).into(),
            }),
        }
    }
}
