//! Coordination within one process, in one directory.
//!
//! Every role of the process has its own session, as with a service: when a session is dropped, its ephemeral entries
//! and candidacies are removed. They never survive the process, since they are only in memory. All other entries are in
//! memory too, and durable: see [`disk`].

mod disk;
mod session;
mod tree;

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use self::session::EmbeddedSession;
use self::tree::Tree;
use crate::error::CoordinationError;
use crate::service::Coordination;

/// Coordination in a directory, which belongs to this process alone.
pub struct EmbeddedCoordination {
    tree: Arc<Mutex<Tree>>,
}

impl EmbeddedCoordination {
    /// Opens the tree in a directory, and creates it if needed. The caller holds the lock on it.
    ///
    /// # Errors
    /// A directory or file that cannot be created, a file that cannot be read or is damaged, a directory that contains
    /// other files.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, CoordinationError> {
        let tree = Tree::open(root.as_ref())?;
        Ok(Self {
            tree: Arc::new(Mutex::new(tree)),
        })
    }

    /// Begins a session. It stays valid when this value is dropped.
    pub fn session(&self) -> Arc<dyn Coordination> {
        Arc::new(EmbeddedSession::begin(Arc::clone(&self.tree)))
    }
}
