//! Acknowledged writes that the engines of a node have lost, and the losses that an operator accepts.
//!
//! If other nodes own a partition too, it is compared with them, and restored. If only this node owns it, it cannot be
//! restored: reads are refused, since they would return older values than those acknowledged, until an operator accepts
//! the loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use fondaco_engine::Engine;
use fondaco_model::versioned::{Durability, EngineKind};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ReplicasError;
use crate::options::Engines;
use crate::replicas::Replicas;
use crate::shared::Shared;
use crate::store::HeldStore;

/// A loss of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its id, which changes if more is lost.
    pub id: String,
    /// The engine.
    pub engine: EngineKind,
    /// A description of the lost data.
    pub lost: String,
    /// How many partitions wait until they are restored or given up.
    pub partitions_behind: usize,
    /// How many of these only this node has.
    pub partitions_alone: usize,
}

/// The identities of engines that have their own directories or databases.
pub(crate) fn identities(engines: &Engines) -> BTreeMap<String, u64> {
    let identity = |(kind, engine): (EngineKind, &Arc<dyn Engine>)| Some((kind.to_string(), engine.identity()?));
    engines.by_kind().filter_map(identity).collect()
}

/// The kinds of engines whose tables are in the node's data directory.
pub(crate) fn local(engines: &Engines) -> Vec<String> {
    let local = engines.by_kind().filter(|(_, engine)| engine.is_local());
    local.map(|(kind, _)| kind.to_string()).collect()
}

/// Makes engines record a loss if their directories or databases are not the former ones.
pub(crate) fn note_other_directories(engines: &Engines, known: &BTreeMap<String, u64>) -> Result<(), ReplicasError> {
    for (kind, engine) in engines.by_kind() {
        if let (Some(identity), Some(known)) = (engine.identity(), known.get(&kind.to_string()))
            && identity != *known
        {
            engine.note_loss(&format!(
                "the directory or database of engine {:?} was replaced: the data of the former one is lost here",
                kind.to_string()
            ))?;
        }
    }
    Ok(())
}

impl Shared {
    /// Whether an engine has a loss that was neither restored nor given up.
    pub(crate) fn has_lost(&self) -> bool {
        self.incarnation.has_unsynced_loss() || self.engines.iter().any(|engine| engine.lost_writes().is_some())
    }

    /// Whether a loss of power may have taken writes that a store had acknowledged before they were on the disk.
    pub(crate) fn lacks_unsynced(&self, store: &HeldStore) -> bool {
        let kind = self.kinds[store.engine_at].to_string();
        store.settings.durability == Durability::Log && self.incarnation.unsynced_loss(&kind).is_some()
    }

    /// Whether acknowledged writes of a store are lost, or may be.
    pub(crate) fn is_lost(&self, store: &HeldStore) -> bool {
        store.engine.lost_writes().is_some() || self.lacks_unsynced(store)
    }

    /// Describes what a loss of power may have taken from each engine.
    pub(crate) fn unsynced_losses(&self) -> impl Iterator<Item = Option<String>> {
        self.kinds
            .iter()
            .map(|kind| self.incarnation.unsynced_loss(&kind.to_string()))
    }

    /// All lost data is restored.
    pub(crate) fn forget_losses(&self) {
        for engine in &self.engines {
            if engine.lost_writes().is_some()
                && let Err(error) = engine.forget_loss()
            {
                tracing::warn!(%error, "cannot delete the record of a loss: the next start assumes it again");
            }
        }
    }
}

impl Replicas {
    /// The losses of engines that were neither restored from other nodes nor given up. A loss that was found a moment
    /// ago is left out until its engine resumes.
    pub fn losses(&self) -> Vec<Loss> {
        let holding = self.holding();
        let engines = self.shared.engines.iter();
        let known = engines.map(|engine| engine.lost_writes().filter(|_| !engine.waits_after_loss()));
        let lost = known.zip(self.shared.unsynced_losses());
        let texts = lost.map(|(known, unsynced)| known.into_iter().chain(unsynced).collect());
        let loss = |(at, lost): (usize, Vec<String>)| {
            let lost = (!lost.is_empty()).then(|| lost.join("; "))?;
            let engine = self.shared.kinds[at];
            let (mut behind, mut alone) = (0, 0);
            for store in holding.stores.values().filter(|store| store.engine_at == at) {
                for partition in store.partitions.values().filter(|partition| partition.is_behind()) {
                    behind += 1;
                    alone += usize::from(!holding.has_others(store, partition.id()));
                }
            }
            Some(Loss {
                id: id_of(engine, &lost),
                engine,
                lost,
                partitions_behind: behind,
                partitions_alone: alone,
            })
        };
        texts.enumerate().filter_map(loss).collect()
    }

    /// Accepts the loss of an engine: its present data is complete from now on. `None` if there is no loss with this
    /// id.
    ///
    /// # Errors
    /// The error of the storage: then the loss is not accepted.
    pub fn accept_loss(&self, id: &str) -> Result<Option<Loss>, ReplicasError> {
        let Some(loss) = self.losses().into_iter().find(|loss| loss.id == id) else {
            return Ok(None);
        };
        let holding = self.holding();
        let Some(at) = self.shared.kinds.iter().position(|kind| *kind == loss.engine) else {
            return Ok(None);
        };
        self.shared.engines[at].forget_loss()?;
        self.shared.incarnation.forget_unsynced_loss(&loss.engine.to_string())?;
        for store in holding.stores.values().filter(|store| store.engine_at == at) {
            store.partitions.values().for_each(|partition| partition.caught_up());
        }
        tracing::warn!(
            lost = loss.lost,
            "an operator accepted this loss: the present data counts as complete"
        );
        Ok(Some(loss))
    }

    /// Describes the stored data that cannot be read, by engine.
    pub fn unreadable(&self) -> Vec<String> {
        self.shared
            .engines
            .iter()
            .filter_map(|engine| engine.damage())
            .collect()
    }
}

/// The id of a loss, made from its description: an operator cannot accept a loss that was never shown.
fn id_of(engine: EngineKind, lost: &str) -> String {
    format!("{engine}-{:08x}", xxh3_64(lost.as_bytes()) as u32)
}
