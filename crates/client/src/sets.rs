//! Queries over the sets of ids of many keys: computed where the keys are, merged here.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_graph::Selection;
use fondaco_ids::{Budget, Computation, IdSet, SetAnswer, SetQuery};
use fondaco_model::cluster::TopologyStore;
use fondaco_model::{StoreName, ValueType};
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

/// The result to read of keys.
#[derive(Debug, Clone)]
pub enum What {
    /// Their values.
    Values,
    /// Their sets.
    Sets,
    /// A computation over their sets.
    Computation(Computation),
}

impl What {
    /// The same for a part of the keys, which contains the first of all keys or not.
    pub fn of_part(&self, has_first: bool) -> Self {
        match self {
            Self::Values => Self::Values,
            Self::Sets => Self::Sets,
            Self::Computation(computation) => Self::Computation(computation.of_part(has_first).clone()),
        }
    }
}

/// The result that was read.
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

    /// Reads the result of keys of one store. Servers merge it with that of their own keys; [`Client::sets`] is built
    /// on it. The first key is that of the query, unless it is [a part](What::of_part) without it.
    ///
    /// # Errors
    /// As [`Client::sets`].
    pub async fn find(&self, keys: Vec<WireKey>, what: &What, options: &SetOptions) -> Result<Computed, ClientError> {
        let Some(first) = keys.first() else {
            return Ok(Computed::default());
        };
        let What::Computation(computation) = what else {
            let has_members =
                matches!(what, What::Sets) && self.inner().computed_by(first.store())? == ComputedBy::ReaderOfMembers;
            return match has_members {
                true => self.inner().members(keys, &options.read).await,
                false => Computed::try_from(self.read(keys, &options.read).await?),
            };
        };
        match (self.inner().computed_by(first.store())?, computation) {
            (ComputedBy::ReaderOfMembers, Computation::Select(selection)) => {
                select(self.read(keys, &options.read).await?, selection)
            }
            (ComputedBy::ReaderOfMembers, _) => {
                let sets = self.inner().members(keys, &options.read).await?;
                apply(sets, computation, options.ids_max)
            }
            (ComputedBy::Reader, _) => {
                let sets = Computed::try_from(self.read(keys, &options.read).await?)?;
                apply(sets, computation, options.ids_max)
            }
            (ComputedBy::Nodes, _) => {
                if let Some(other) = keys.iter().find(|key| key.store() != first.store()) {
                    return Err(ClientError::NoIds {
                        store: other.store().into(),
                        reason: "all keys of a query are of one store".into(),
                    });
                }
                let computed = self.inner().compute(keys, computation.clone(), &options.read).await?;
                Computed::try_from(computed)
            }
        }
    }
}

impl TryFrom<BatchReply> for Computed {
    type Error = ClientError;

    fn try_from(mut reply: BatchReply) -> Result<Self, ClientError> {
        Ok(Self {
            pinned: reply.stores.pop(),
            requests: reply.sub_requests,
            elements: reply.values.into_iter().collect::<Result<_, _>>()?,
        })
    }
}

/// Computes over sets that were read.
fn apply(read: Computed, computation: &Computation, ids_max: usize) -> Result<Computed, ClientError> {
    let sets = read.elements.iter();
    let sets = sets.map(|value| value.as_deref().map(IdSet::parse).transpose());
    let sets = sets.collect::<Result<Vec<_>, _>>()?;
    let partial = computation.apply(&sets, &mut Budget::of_ids(ids_max))?;
    Ok(Computed {
        elements: partial.into_iter().map(|element| element.map(Bytes::from)).collect(),
        ..read
    })
}

/// Those of the vertices that were read that a selection wants.
fn select(read: BatchReply, selection: &[u8]) -> Result<Computed, ClientError> {
    let selection = Selection::parse(selection).map_err(|error| ClientError::Graph(format!("ERR {error}")))?;
    let mut read = Computed::try_from(read)?;
    for element in &mut read.elements {
        if let Some(vertex) = element.take() {
            let selected = selection.apply(&vertex);
            *element = selected.map_err(|error| ClientError::Graph(format!("WRONGTYPE {error}")))?;
        }
    }
    Ok(read)
}

/// Where it is computed over the sets of a store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ComputedBy {
    /// By the nodes that have them: those of a batch store.
    Nodes,
    /// By the reader, which reads values at their quorums: those of a versioned store of ids.
    Reader,
    /// By the reader, which reads their members: those of a versioned graph.
    ReaderOfMembers,
}

impl Inner {
    fn computed_by(self: &Arc<Self>, store: &str) -> Result<ComputedBy, ClientError> {
        let snapshot = self.newest()?;
        let known: Option<&TopologyStore> = snapshot.directory.store(store).map(|(_, store)| store);
        let known = known.ok_or_else(|| ClientError::UnknownStore { store: store.into() })?;
        match known.value_type.has_sets() {
            true => Ok(match (known.versioned, known.value_type) {
                (None, _) => ComputedBy::Nodes,
                (Some(_), ValueType::Graph) => ComputedBy::ReaderOfMembers,
                (Some(_), _) => ComputedBy::Reader,
            }),
            false => Err(ClientError::NoIds {
                store: store.into(),
                reason: format!("its values are {}", known.value_type).into(),
            }),
        }
    }
}
