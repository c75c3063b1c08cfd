//! Acknowledged writes that the engines of a node have lost, and the losses that an operator accepts.
//!
//! If other nodes own a partition too, it is compared with them, and restored. If only this node owns it, it cannot be
//! restored: reads are refused, since they would return older values than those acknowledged, until an operator accepts
//! the loss.

use fondaco_model::versioned::EngineKind;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ReplicasError;
use crate::membership::lost_writes::Scope;
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

impl Shared {
    /// Whether acknowledged writes of a store are lost, or may be.
    pub(crate) fn is_lost(&self, store: &HeldStore) -> bool {
        self.incarnation
            .is_lost(self.kinds[store.engine_at], store.settings.durability)
    }
}

impl Replicas {
    /// Describes the losses of an engine that concern all its data, and were neither restored nor given up.
    pub fn lost_writes(&self, engine: EngineKind) -> Option<String> {
        self.shared.incarnation.lost(engine, Some(Scope::All))
    }

    /// The losses of engines that were neither restored from other nodes nor given up. A loss that was found a moment
    /// ago is left out until its engine resumes.
    pub fn losses(&self) -> Vec<Loss> {
        let holding = self.holding();
        let loss = |(at, &engine): (usize, &EngineKind)| {
            let lost = self.shared.incarnation.lost(engine, None)?;
            if self.shared.engines[at].pending_loss().is_some() {
                return None;
            }
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
        self.shared.kinds.iter().enumerate().filter_map(loss).collect()
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
        self.shared.incarnation.forget_lost(loss.engine)?;
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
