//! What every implementation of coordination offers.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::election::{Election, in_order};
use crate::entry::{Change, Entry, Revision};
use crate::error::CoordinationError;
use crate::path::EntryPath;
use crate::watch::Watch;

/// A session with a tree of entries. Dropping it ends the session: its ephemeral entries go, it leaves its
/// elections, its watches close.
///
/// All calls wait for the disk or the network, so that an event loop must not make them. Each can fail with
/// [`CoordinationError::Unavailable`] while the service does not answer; what was asked for may have been
/// done nevertheless, or may yet be. Before that, a call tries again by itself, and finds out whether it was
/// done when only the answer was lost.
pub trait Coordination: Send + Sync {
    /// The entry at a path; `None` if there is none.
    ///
    /// # Errors
    /// A tree that cannot be reached or read.
    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError>;

    /// Writes an entry, which must be at the expected revision now, or not exist if that is `None`. Durable
    /// when it returns. An ephemeral entry stays one. Returns the new revision.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision; nothing is changed then.
    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError>;

    /// Deletes an entry, which must be at the expected revision now. Durable when it returns.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision, or not there.
    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError>;

    /// The names right below a path that are entries or have some below them, in order. A name that no
    /// longer has entries below it may be among them.
    ///
    /// # Errors
    /// A tree that cannot be reached or read.
    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError>;

    /// The entries right below a path, by name: [`children`](Self::children) and all their entries, asked
    /// for at once. They may be from different moments.
    ///
    /// # Errors
    /// A tree that cannot be reached or read.
    fn read_children(&self, path: &EntryPath) -> Result<BTreeMap<String, Entry>, CoordinationError>;

    /// Makes all changes or none. Durable when it returns. Returns the revision that all entries written
    /// have now; `None` if none was written.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] with the first entry that is at another revision than expected;
    /// nothing is changed then.
    fn transact(&self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError>;

    /// Makes an entry that goes with this session, at the latest a session timeout after its process died.
    /// Nothing can be below it.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if there is one: another session's, or that of an earlier process,
    /// which is gone in a session timeout.
    fn create_ephemeral(&self, path: &EntryPath, bytes: &[u8]) -> Result<Revision, CoordinationError>;

    /// Tells of all changes at and below these paths, from now on. The first event is
    /// [`WatchEvent::Everything`](crate::WatchEvent::Everything).
    ///
    /// # Errors
    /// A session that has ended.
    fn watch(&self, prefixes: &[EntryPath]) -> Result<Watch, CoordinationError>;

    /// Joins an election among all who name this path. The first to have joined leads until it leaves or its
    /// session goes; then the next does. After a lost session it is joined again, at the end of the queue.
    ///
    /// # Errors
    /// A tree that cannot be reached or written.
    fn elect(&self, path: &EntryPath, candidate: &[u8]) -> Result<Election, CoordinationError>;

    /// What the leader of an election said of itself; `None` if there is none.
    ///
    /// # Errors
    /// A tree that cannot be reached or read.
    fn leader(&self, election: &EntryPath) -> Result<Option<Vec<u8>>, CoordinationError> {
        for candidate in in_order(self.children(election)?) {
            // Who was first may have left since: then the next leads.
            if let Some(entry) = self.read(&election.join(&candidate)?)? {
                return Ok(Some(entry.bytes));
            }
        }
        Ok(None)
    }

    /// How this session is now.
    fn session(&self) -> Session;
}

/// A session at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// How often a session was made, from 1; 0 before the first. When it has grown, the ephemeral entries of
    /// before are gone, and their owner makes them again.
    pub generation: u64,
    /// Whether the service answers.
    pub state: SessionState,
}

/// Whether the service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It does.
    Connected,
    /// It does not. Ephemeral entries may be gone already; what was read may be old.
    Suspended {
        /// Since when.
        since: Instant,
    },
    /// The session was ended.
    Closed,
}
