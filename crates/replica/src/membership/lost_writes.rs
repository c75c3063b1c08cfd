//! The record of acknowledged writes that are lost on this node, or may be. It is a part of the incarnation file, so that
//! a loss is noted in one step with the new incarnation that it requires. A loss stays in the record until the writes
//! are restored from other nodes, or an operator gives them up.
//!
//! | sign of a loss | noticed by | noted |
//! |---|---|---|
//! | a log is damaged, missing or shorter than before; a database went back while the process was down | an engine that is opened | [`note_losses_of`], before the engine changes anything |
//! | an engine has another directory or database | its identity, in the incarnation file | when the file is opened |
//! | the machine was rebooted while writes were not synced | the boot id, in the incarnation file | when the file is opened |
//! | the data directory is an older copy | its count, which the coordination service has too | [`Replicas::went_back`](crate::Replicas::went_back) |
//! | a database went back while the process runs | [`Engine::pending_loss`](fondaco_engine::Engine::pending_loss) | `storage_rollback`, before the engine resumes |

use std::io;
use std::path::Path;
use std::sync::Arc;

use fondaco_engine::{LossNotes, OnLoss};
use fondaco_model::versioned::{Durability, EngineKind};
use serde::{Deserialize, Serialize};

use crate::host::LocalHost;
use crate::membership::incarnation::note_lost;

/// The maximum length of the description of an engine's losses: the first losses say the most.
const LOST_BYTES_MAX: usize = 4096;

/// All losses, in the order in which they were noted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LostWrites(Vec<Lost>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lost {
    engine: EngineKind,
    scope: Scope,
    text: String,
}

/// The writes of an engine that a loss concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// All of them.
    All,
    /// Those of stores with durability `log`: they were acknowledged before they were on the disk.
    Unsynced,
}

impl LostWrites {
    /// Notes a loss. A loss that is noted already, or that follows many others, changes nothing.
    pub(crate) fn note(&mut self, engine: EngineKind, scope: Scope, text: &str) {
        let known = self.described(engine, Some(scope));
        if known.is_none_or(|known| !known.contains(text) && known.len() <= LOST_BYTES_MAX) {
            let text = text.to_owned();
            self.0.push(Lost { engine, scope, text });
        }
    }

    /// Describes the losses of an engine, all or those with this scope; `None` if there are none.
    pub(crate) fn described(&self, engine: EngineKind, scope: Option<Scope>) -> Option<String> {
        let own = self.0.iter().filter(|lost| lost.engine == engine);
        let texts = own.filter(|lost| scope.is_none_or(|scope| lost.scope == scope));
        let texts: Vec<&str> = texts.map(|lost| &*lost.text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Whether writes of a store in this engine, with this durability, are lost.
    pub(crate) fn concern(&self, engine: EngineKind, durability: Durability) -> bool {
        let concerns = |lost: &Lost| lost.scope == Scope::All || durability == Durability::Log;
        self.0.iter().any(|lost| lost.engine == engine && concerns(lost))
    }

    /// Whether an engine has lost writes that were on the disk: their dots must not be given again.
    pub(crate) fn have_synced(&self) -> bool {
        self.0.iter().any(|lost| lost.scope == Scope::All)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the losses of an engine.
    pub(crate) fn forget(&mut self, engine: EngineKind) {
        self.0.retain(|lost| lost.engine != engine);
    }
}

/// Makes an engine of this kind note the losses that it finds when it is opened, in the record of the replicas in a
/// directory. It must be opened before the replicas are.
pub fn note_losses_of(engine: EngineKind, dir: &Path) -> OnLoss {
    let host = LocalHost::new(dir);
    OnLoss::Note(Arc::new(EngineLosses { host, engine }))
}

#[derive(Debug)]
struct EngineLosses {
    host: LocalHost,
    engine: EngineKind,
}

impl LossNotes for EngineLosses {
    fn note(&self, lost: &str) -> io::Result<()> {
        note_lost(&self.host, self.engine, lost).map_err(io::Error::other)
    }
}
