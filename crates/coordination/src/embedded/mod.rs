//! Coordination within one process, in one directory.
//!
//! Every role of the process has a session of its own, as it would have with a service: ephemeral entries
//! and candidacies go when their session is dropped. They never survive the process, since they are only in
//! memory. All other entries are in memory too, and durable: see [`disk`] for how.

mod disk;
mod session;
mod tree;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use self::session::EmbeddedSession;
use self::tree::Tree;
use crate::error::CoordinationError;
use crate::service::Coordination;

/// Coordination in a directory, which belongs to this process alone.
pub struct EmbeddedCoordination {
    tree: Arc<Mutex<Tree>>,
}

impl EmbeddedCoordination {
    /// Opens the tree in a directory, made if need be. The caller holds the lock on it.
    ///
    /// # Errors
    /// A directory that cannot be made, an entry that cannot be read or is corrupt.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, CoordinationError> {
        let tree = Tree::open(root.into())?;
        Ok(Self {
            tree: Arc::new(Mutex::new(tree)),
        })
    }

    /// Begins a session. It works on when this is dropped.
    pub fn session(&self) -> Arc<dyn Coordination> {
        Arc::new(EmbeddedSession::begin(Arc::clone(&self.tree)))
    }
}
