//! A session with the coordination service that counts its requests, for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use fondaco_coordination::{
    Change, Coordination, CoordinationError, Election, Entry, EntryPath, Revision, Session, Watch,
};

/// The session. It ends with its last owner, as the wrapped session would.
pub struct MeteredCoordination {
    session: Arc<dyn Coordination>,
    counts: Arc<Counts>,
}

/// Counters of a session's requests.
#[derive(Debug, Default)]
pub struct Counts {
    reads: AtomicU64,
    writes: AtomicU64,
    watches: AtomicU64,
    conflicts: AtomicU64,
    failures: AtomicU64,
}

impl MeteredCoordination {
    /// Wraps a session in counters.
    pub fn around(session: Arc<dyn Coordination>) -> (Arc<dyn Coordination>, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let metered_coordination = Self {
            session,
            counts: Arc::clone(&counts),
        };
        (Arc::new(metered_coordination), counts)
    }

    fn note<T>(&self, kind: &AtomicU64, outcome: Result<T, CoordinationError>) -> Result<T, CoordinationError> {
        kind.fetch_add(1, Relaxed);
        match &outcome {
            Ok(_) => {}
            Err(CoordinationError::Conflict { .. }) => drop(self.counts.conflicts.fetch_add(1, Relaxed)),
            Err(_) => drop(self.counts.failures.fetch_add(1, Relaxed)),
        }
        outcome
    }
}

impl Counts {
    /// Each counter: its name, its meaning, its value.
    pub fn all(&self) -> [(&'static str, &'static str, u64); 5] {
        [
            (
                "coordination_reads",
                "requests to read entries, or folders of them",
                self.reads.load(Relaxed),
            ),
            (
                "coordination_writes",
                "requests to write or delete entries",
                self.writes.load(Relaxed),
            ),
            (
                "coordination_watches",
                "watches and candidacies started",
                self.watches.load(Relaxed),
            ),
            (
                "coordination_conflicts",
                "writes refused because another process was faster",
                self.conflicts.load(Relaxed),
            ),
            (
                "coordination_failures",
                "requests that the coordination service did not answer, or refused",
                self.failures.load(Relaxed),
            ),
        ]
    }
}

impl Coordination for MeteredCoordination {
    fn sync(&self) -> Result<(), CoordinationError> {
        self.note(&self.counts.reads, self.session.sync())
    }

    fn read(&self, path: &EntryPath) -> Result<Option<Entry>, CoordinationError> {
        self.note(&self.counts.reads, self.session.read(path))
    }

    fn write(&self, path: &EntryPath, bytes: &[u8], expected: Option<Revision>) -> Result<Revision, CoordinationError> {
        self.note(&self.counts.writes, self.session.write(path, bytes, expected))
    }

    fn delete(&self, path: &EntryPath, expected: Revision) -> Result<(), CoordinationError> {
        self.note(&self.counts.writes, self.session.delete(path, expected))
    }

    fn children(&self, path: &EntryPath) -> Result<Vec<String>, CoordinationError> {
        self.note(&self.counts.reads, self.session.children(path))
    }

    fn read_children(&self, path: &EntryPath) -> Result<BTreeMap<String, Entry>, CoordinationError> {
        self.note(&self.counts.reads, self.session.read_children(path))
    }

    fn transact(&self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError> {
        self.note(&self.counts.writes, self.session.transact(changes))
    }

    fn create_ephemeral(&self, path: &EntryPath, bytes: &[u8]) -> Result<Revision, CoordinationError> {
        self.note(&self.counts.writes, self.session.create_ephemeral(path, bytes))
    }

    fn watch(&self, prefixes: &[EntryPath]) -> Result<Watch, CoordinationError> {
        self.note(&self.counts.watches, self.session.watch(prefixes))
    }

    fn elect(&self, path: &EntryPath, candidate: &[u8]) -> Result<Election, CoordinationError> {
        self.note(&self.counts.watches, self.session.elect(path, candidate))
    }

    fn leader(&self, election: &EntryPath) -> Result<Option<Vec<u8>>, CoordinationError> {
        self.note(&self.counts.reads, self.session.leader(election))
    }

    fn session(&self) -> Session {
        self.session.session()
    }
}
