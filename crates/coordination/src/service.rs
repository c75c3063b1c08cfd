//! The interface of every implementation of coordination.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::election::{Election, in_order};
use crate::entry::{Change, Entry, Revision};
use crate::error::CoordinationError;
use crate::path::EntryPath;
use crate::watch::Watch;

/// A session with a tree of entries. Dropping it ends the session: its ephemeral entries are deleted, it leaves its
/// elections, its watches close.
///
/// All calls block on the disk or the network, so an event loop must not make them. Each can fail with
/// [`CoordinationError::Unavailable`] while the service does not answer; the operation may have been done nevertheless,
/// or may still be done. Before that, the call retries by itself, and finds out whether the operation was done if only
/// the answer was lost.
pub trait Coordination: Send + Sync {
    /// Reads of this session that begin after it see all that any session had written before it.
    ///
    /// # Errors
    /// The tree cannot be reached.
    fn sync(&self) -> Result<(), CoordinationError>;

    /// The entry at a path; `None` if it does not exist.
    ///
    /// # Errors
    /// The tree cannot be reached or read.
    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError>;

    /// Writes an entry, which must be at the expected revision, or must not exist if that is `None`. Durable when it
    /// returns. An ephemeral entry stays ephemeral. Returns the new revision.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision; nothing is changed then.
    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError>;

    /// Deletes an entry, which must be at the expected revision. Durable when it returns.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it is at another revision, or missing.
    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError>;

    /// The names directly below a path that are entries or have entries below them, in order. A name that no longer has
    /// entries below it may be among them.
    ///
    /// # Errors
    /// The tree cannot be reached or read.
    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError>;

    /// The entries directly below a path, by name: [`children`](Self::children) and all their entries, read at once.
    /// They may be from different moments.
    ///
    /// # Errors
    /// The tree cannot be reached or read.
    fn read_children(&self, path: &EntryPath) -> Result<BTreeMap<String, Entry>, CoordinationError>;

    /// Makes all changes or none. Durable when it returns. Returns the new revision of all entries written; `None` if
    /// none was written.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] with the first entry that is at another revision than expected; nothing is
    /// changed then.
    fn transact(&self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError>;

    /// Creates an ephemeral entry, deleted with this session, at the latest a session timeout after its process died.
    /// No entry can be below it.
    ///
    /// # Errors
    /// [`CoordinationError::Conflict`] if it exists: in another session, or in one of an earlier process, which ends
    /// within a session timeout.
    fn create_ephemeral(&self, path: &EntryPath, bytes: &[u8]) -> Result<Revision, CoordinationError>;

    /// Watches all changes at and below these paths, from now on. The first event is
    /// [`WatchEvent::Everything`](crate::WatchEvent::Everything).
    ///
    /// # Errors
    /// A session that has ended.
    fn watch(&self, prefixes: &[EntryPath]) -> Result<Watch, CoordinationError>;

    /// Joins the election at this path. The first candidate leads until it leaves or its session ends; then the next
    /// one leads. After a lost session the candidate joins again, at the end of the queue.
    ///
    /// # Errors
    /// The tree cannot be reached or written.
    fn elect(&self, path: &EntryPath, candidate: &[u8]) -> Result<Election, CoordinationError>;

    /// The bytes that the leader of an election published; `None` if there is no leader.
    ///
    /// # Errors
    /// The tree cannot be reached or read.
    fn leader(&self, election: &EntryPath) -> Result<Option<Vec<u8>>, CoordinationError> {
        for candidate in in_order(self.children(election)?) {
            // The first candidate may have left since: then the next one leads.
            if let Some(entry) = self.read(&election.join(&candidate)?)? {
                return Ok(Some(entry.bytes));
            }
        }
        Ok(None)
    }

    /// The current state of this session.
    fn session(&self) -> Session;
}

/// A session at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// How often a session was made, from 1; 0 before the first. When it has grown, earlier ephemeral entries are gone,
    /// and their owner creates them again.
    pub generation: u64,
    /// Whether the service answers.
    pub state: SessionState,
}

/// Whether the service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// It answers.
    Connected,
    /// It does not answer. Ephemeral entries may be gone already; earlier reads may be stale.
    Suspended {
        /// When it stopped answering.
        since: Instant,
    },
    /// The session was ended.
    Closed,
}
