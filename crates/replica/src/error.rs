//! Errors of opening or changing the replicas of a node.

use std::io;
use std::path::{Path, PathBuf};

use fondaco_engine::EngineError;

/// Why the replicas of a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplicasError {
    /// The operating system refused.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The incarnation file, which says which dots were given, is invalid.
    #[error(
        "invalid incarnation file {path:?}: {reason}; if it cannot be restored, delete it and the directory \
         that it is in, and let the other replicas fill it again"
    )]
    InvalidIncarnation {
        /// The file.
        path: PathBuf,
        /// Why it is invalid.
        reason: String,
    },
    /// This engine is not configured.
    #[error("store {store:?} needs engine {engine:?}, which is not configured on this node: configure it")]
    NoEngine {
        /// The store.
        store: String,
        /// The engine.
        engine: String,
    },
    /// The former data of the store is still being deleted.
    #[error("the former data of store {store:?} is being deleted on this node: the store is opened after that")]
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
