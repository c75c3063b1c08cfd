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

/// What is wanted of keys.
#[derive(Debug, Clone)]
pub enum What {
    /// Their values.
    Values,
    /// What is computed over them.
    Computation(Computation),
}

impl What {
    /// What is wanted of a part of the keys, which has the first of all or not.
    pub fn of_part(&self, has_first: bool) -> Self {
        match self {
            Self::Values => Self::Values,
            Self::Computation(computation) => Self::Computation(computation.of_part(has_first).clone()),
        }
    }
}

/// What was found of keys.
#[derive(Debug, Default)]
pub struct Computed {
    /// An element for each key.
    pub elements: Vec<Option<Bytes>>,
    /// The version of a batch store that it is of.
    pub pinned: Option<PinnedStore>,
    /// The number of requests to nodes.
    pub requests: u32,
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
        let what = What::Computation(query.computation());
        let computed = self.find(keys, &what, options).await?;
        Ok(query.merge(&computed.elements, &mut Budget::of_ids(options.ids_max))?)
    }

    /// What is wanted of keys of one store. For servers, which merge it with what they have themselves; [`Client::sets`] is
    /// built on it. The first key is that of the query, unless it is [a part](What::of_part) without it.
    ///
    /// # Errors
    /// As [`Client::sets`].
    pub async fn find(&self, keys: Vec<WireKey>, what: &What, options: &SetOptions) -> Result<Computed, ClientError> {
        let Some(first) = keys.first() else {
            return Ok(Computed::default());
        };
        let inner = self.inner();
        let mut reply = match what {
            What::Values => self.read(keys, &options.read).await?,
            What::Computation(computation) => {
                if !inner.computes_over(first.store())? {
                    let read = self.read(keys, &options.read).await?;
                    return apply(read, computation, options.ids_max);
                }
                if let Some(other) = keys.iter().find(|key| key.store() != first.store()) {
                    return Err(ClientError::NoIds {
                        store: other.store().into(),
                        reason: "all keys of a query are of one store".into(),
                    });
                }
                inner.compute(keys, computation.clone(), &options.read).await?
            }
        };
        Ok(Computed {
            pinned: reply.stores.pop(),
            requests: reply.sub_requests,
            elements: reply.values.into_iter().collect::<Result<_, _>>()?,
        })
    }
}

/// Computes over values that were read.
fn apply(read: BatchReply, computation: &Computation, ids_max: usize) -> Result<Computed, ClientError> {
    let requests = read.sub_requests;
    let values: Vec<Option<Bytes>> = read.values.into_iter().collect::<Result<_, _>>()?;
    let sets = values
        .iter()
        .map(|value| value.as_deref().map(IdSet::parse).transpose());
    let sets = sets.collect::<Result<Vec<_>, _>>()?;
    let partial = computation.apply(&sets, &mut Budget::of_ids(ids_max))?;
    Ok(Computed {
        elements: partial.into_iter().map(|element| element.map(Bytes::from)).collect(),
        pinned: None,
        requests,
    })
}

impl Inner {
    /// Whether nodes compute over the sets of a store: it is a batch store.
    fn computes_over(self: &Arc<Self>, store: &str) -> Result<bool, ClientError> {
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
