//! One role's session with the tree of its process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::tree::{SessionNumber, Tree};
use crate::election::{Election, Lead};
use crate::entry::{Change, Entry, Revision};
use crate::error::CoordinationError;
use crate::on_drop::OnDrop;
use crate::path::EntryPath;
use crate::service::{Coordination, Session, SessionState};
use crate::watch::{Feed, Watch};

pub(super) struct EmbeddedSession {
    tree: Arc<Mutex<Tree>>,
    number: SessionNumber,
}

impl EmbeddedSession {
    pub(super) fn begin(tree: Arc<Mutex<Tree>>) -> Self {
        let number = tree.lock().begin_session();
        Self { tree, number }
    }
}

impl Coordination for EmbeddedSession {
    fn sync(&self) -> Result<(), CoordinationError> {
        // There is one copy of the tree.
        Ok(())
    }

    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError> {
        Ok(self.tree.lock().read(path).cloned())
    }

    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError> {
        let revision = self.transact(&[Change::Write {
            path: path.clone(),
            bytes: bytes.to_vec(),
            expected,
        }])?;
        // A write always returns a revision.
        revision.ok_or_else(|| CoordinationError::Conflict { path: path.clone() })
    }

    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError> {
        let path = path.clone();
        self.transact(&[Change::Delete { path, expected }]).map(drop)
    }

    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError> {
        Ok(self.tree.lock().children(path))
    }

    fn read_children(&self, path: &EntryPath) -> Result<BTreeMap<String, Entry>, CoordinationError> {
        let tree = self.tree.lock();
        let mut entries = BTreeMap::new();
        for name in tree.children(path) {
            if let Some(entry) = tree.read(&path.join(&name)?) {
                entries.insert(name, entry.clone());
            }
        }
        Ok(entries)
    }

    fn transact(&self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError> {
        self.tree.lock().transact(changes)
    }

    fn create_ephemeral(&self, path: &EntryPath, bytes: &[u8]) -> Result<Revision, CoordinationError> {
        self.tree.lock().create_ephemeral(self.number, path, bytes)
    }

    fn watch(&self, prefixes: &[EntryPath]) -> Result<Watch, CoordinationError> {
        let (watch, feed) = Feed::new();
        feed.everything();
        self.tree.lock().watch(self.number, prefixes.to_vec(), feed);
        // A watch does not keep the file open.
        let tree = Arc::downgrade(&self.tree);
        let forget = move || {
            if let Some(tree) = tree.upgrade() {
                tree.lock().forget_watches();
            }
        };
        Ok(watch.ending_with(OnDrop::new(forget)))
    }

    fn elect(&self, path: &EntryPath, candidate: &[u8]) -> Result<Election, CoordinationError> {
        let lead = Lead::default();
        let entry = self
            .tree
            .lock()
            .join_election(self.number, path, candidate, lead.clone())?;
        let tree = Arc::clone(&self.tree);
        Ok(Election::new(
            lead,
            OnDrop::new(move || tree.lock().leave_election(&entry)),
        ))
    }

    fn session(&self) -> Session {
        Session {
            generation: 1,
            state: SessionState::Connected,
        }
    }
}

impl Drop for EmbeddedSession {
    fn drop(&mut self) {
        self.tree.lock().end_session(self.number);
    }
}
