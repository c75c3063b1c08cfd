//! What keeps the replicas of a node from being opened or changed.

use std::io;
use std::path::{Path, PathBuf};

use fondaco_engine::EngineError;

/// Why the replicas of a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplicasError {
    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The file that says which dots were given is not understood.
    #[error(
        "{path:?} is no record of incarnations: {reason}; if it cannot be restored, delete it and the directory \
         that it is in, and let the other replicas fill it again"
    )]
    InvalidIncarnation {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No engine of this kind was set up.
    #[error("store {store:?} is to be kept by engine {engine:?}, which is not set up on this node: set it up")]
    NoEngine {
        /// The store.
        store: String,
        /// The engine.
        engine: String,
    },
    /// What was held of a store before is still being deleted.
    #[error("what this node held of store {store:?} is being deleted: it is opened when that is done")]
    BeingDeleted {
        /// The store.
        store: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ReplicasError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
