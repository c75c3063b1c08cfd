//! What the engines of a node have lost of what was acknowledged, and what of it an operator gives up.
//!
//! Where other nodes own a partition too, it is compared with them, and has all again. One that this node owns alone cannot
//! be had again: reads of it are refused, since they would give what is older than what was acknowledged, until an operator who
//! knows says that this is all there is.

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

/// Something that an engine has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its name: another one if more is lost.
    pub id: String,
    /// The engine.
    pub engine: EngineKind,
    /// What, in words.
    pub lost: String,
    /// How many partitions wait for it to be had from other nodes, or to be given up.
    pub partitions_behind: usize,
    /// How many of these no other node has.
    pub partitions_alone: usize,
}

/// The identities of engines that have directories or databases of their own.
pub(crate) fn identities(engines: &Engines) -> BTreeMap<String, u64> {
    let identity = |(kind, engine): (EngineKind, &Arc<dyn Engine>)| Some((kind.to_string(), engine.identity()?));
    engines.by_kind().filter_map(identity).collect()
}

/// The kinds of engines whose tables are in the node's data directory.
pub(crate) fn local(engines: &Engines) -> Vec<String> {
    let local = engines.by_kind().filter(|(_, engine)| engine.is_local());
    local.map(|(kind, _)| kind.to_string()).collect()
}

/// Lets engines whose directories or databases are not those that they were remember that they have lost what was in them.
pub(crate) fn note_other_directories(engines: &Engines, known: &BTreeMap<String, u64>) -> Result<(), ReplicasError> {
    for (kind, engine) in engines.by_kind() {
        if let (Some(identity), Some(known)) = (engine.identity(), known.get(&kind.to_string()))
            && identity != *known
        {
            engine.note_loss(&format!(
                "the directory or database of engine {:?} is another one than it was: what was in that is not here",
                kind.to_string()
            ))?;
        }
    }
    Ok(())
}

impl Shared {
    /// Whether an engine has lost something that was neither had again nor given up.
    pub(crate) fn has_lost(&self) -> bool {
        self.incarnation.has_unsynced_loss() || self.engines.iter().any(|engine| engine.lost_writes().is_some())
    }

    /// Whether a loss of power may have taken what a store had acknowledged before it was on the disk.
    pub(crate) fn lacks_unsynced(&self, store: &HeldStore) -> bool {
        let kind = self.kinds[store.engine_at].to_string();
        store.settings.durability == Durability::Log && self.incarnation.unsynced_loss(&kind).is_some()
    }

    /// Whether something that a store had acknowledged is known to be lost, or may be by what is known.
    pub(crate) fn is_lost(&self, store: &HeldStore) -> bool {
        store.engine.lost_writes().is_some() || self.lacks_unsynced(store)
    }

    /// What a loss of power may have taken from each engine, in words.
    pub(crate) fn unsynced_losses(&self) -> impl Iterator<Item = Option<String>> {
        self.kinds
            .iter()
            .map(|kind| self.incarnation.unsynced_loss(&kind.to_string()))
    }

    /// All that was lost is here again.
    pub(crate) fn forget_losses(&self) {
        for engine in &self.engines {
            if engine.lost_writes().is_some()
                && let Err(error) = engine.forget_loss()
            {
                tracing::warn!(%error, "the next start takes something for lost that is here again");
            }
        }
    }
}

impl Replicas {
    /// What engines have lost, and was neither had from other nodes nor given up. One that found it a moment ago is left
    /// out until it goes on.
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

    /// Gives up what an engine has lost: what is here is all there is. `None` if there is no loss of this name, or not
    /// any more.
    ///
    /// # Errors
    /// What the storage says: then it is not given up.
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
            "an operator gave this up: what is here is taken for all there is"
        );
        Ok(Some(loss))
    }

    /// What cannot be read of what is stored, in words, engine by engine.
    pub fn unreadable(&self) -> Vec<String> {
        self.shared
            .engines
            .iter()
            .filter_map(|engine| engine.damage())
            .collect()
    }
}

/// The name of a loss, made from what is lost: an operator cannot accept a loss that was never shown.
fn id_of(engine: EngineKind, lost: &str) -> String {
    format!("{engine}-{:08x}", xxh3_64(lost.as_bytes()) as u32)
}
