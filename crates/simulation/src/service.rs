//! The simulated coordination service: a single copy that is always up, as ZooKeeper appears to its clients.
//!
//! It has conditional, atomic writes; sessions that expire when they are silent, together with their entries and
//! candidacies; and watches that report that an entry has changed, but not its value. The network decides whether
//! messages arrive. Writes of an expired session are refused: so a leader that was paused for a while can do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fondaco_decisions::{Change, RecordPath};
use fondaco_model::cluster::ClusterView;

use crate::record::{self, Read, Value};

/// The timeout of a silent session, in milliseconds.
pub(crate) const SESSION_TIMEOUT_MS: u64 = 6_000;

/// The load of the coordination service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoordinationCounts {
    /// Entries read.
    pub reads: u64,
    /// Entries written and deleted, including those that ended with their session.
    pub writes: u64,
    /// Changes refused because another process was faster.
    pub conflicts: u64,
    /// Watches set: one for each prefix that a session watches, and one for each waiting candidate.
    pub watches: u64,
    /// Changes that watches reported.
    pub notifications: u64,
    /// Sessions begun.
    pub sessions: u64,
}

impl CoordinationCounts {
    /// The load since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            conflicts: self.conflicts - before.conflicts,
            watches: self.watches - before.watches,
            notifications: self.notifications - before.notifications,
            sessions: self.sessions - before.sessions,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) entries: BTreeMap<RecordPath, Entry>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    pub(crate) counts: CoordinationCounts,
    /// Whether expected revisions are ignored; only with a flaw.
    unconditional: bool,
    /// Sessions with pending notifications.
    pub(crate) to_tell: Vec<u64>,
    revision: u64,
    last_session: u64,
    /// Candidates for leader: the first one leads.
    candidates: Vec<u64>,
    snapshots: [Option<(u64, Arc<ClusterView>)>; 2],
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) value: Arc<Value>,
    pub(crate) revision: u64,
    owner: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) process: usize,
    pub(crate) connection: u64,
    /// Whether it also watches reports.
    reports: bool,
    deadline_ms: u64,
    changed: BTreeSet<RecordPath>,
}

impl Service {
    /// A service without entries; `unconditional` makes it ignore revisions.
    pub(crate) fn new(unconditional: bool) -> Self {
        Self {
            unconditional,
            ..Self::default()
        }
    }

    /// Begins a session, or continues one on a new connection. Returns its number.
    pub(crate) fn hello(
        &mut self,
        session: Option<u64>,
        process: usize,
        connection: u64,
        reports: bool,
        now_ms: u64,
    ) -> u64 {
        let number = session.filter(|session| self.sessions.contains_key(session));
        let number = number.unwrap_or_else(|| {
            self.last_session += 1;
            self.counts.sessions += 1;
            self.last_session
        });
        // The prefixes: cluster, routing, numbers, nodes, announcements, routers, stores, and reports.
        self.counts.watches += 7 + u64::from(reports);
        let session = Session {
            process,
            connection,
            reports,
            deadline_ms: now_ms + SESSION_TIMEOUT_MS,
            changed: BTreeSet::new(),
        };
        self.sessions.insert(number, session);
        number
    }

    /// Records a message of a session. Returns whether the session still exists, on this connection.
    pub(crate) fn heard(&mut self, session: u64, connection: u64, now_ms: u64) -> bool {
        let session = self.sessions.get_mut(&session);
        let session = session.filter(|session| session.connection == connection);
        session.is_some_and(|session| {
            session.deadline_ms = now_ms + SESSION_TIMEOUT_MS;
            true
        })
    }

    /// Expires the sessions that were silent for too long. Returns the new leader, if it changed.
    pub(crate) fn expire(&mut self, now_ms: u64) -> Option<u64> {
        let leader = self.candidates.first().copied();
        let expired = self
            .sessions
            .iter()
            .filter(|(_, session)| session.deadline_ms <= now_ms);
        let expired: Vec<u64> = expired.map(|(&number, _)| number).collect();
        for number in expired {
            self.sessions.remove(&number);
            self.candidates.retain(|&candidate| candidate != number);
            let own = self.entries.iter().filter(|(_, entry)| entry.owner == Some(number));
            let own: Vec<RecordPath> = own.map(|(path, _)| path.clone()).collect();
            for path in own {
                self.set(path, None, None);
            }
        }
        let now = self.candidates.first().copied();
        now.filter(|_| now != leader)
    }

    /// Makes a session a candidate for leader. Returns whether it leads immediately.
    pub(crate) fn stand(&mut self, session: u64) -> bool {
        if !self.candidates.contains(&session) {
            self.candidates.push(session);
            self.counts.watches += u64::from(self.candidates.len() > 1);
        }
        self.candidates.first() == Some(&session)
    }

    /// Applies a change completely or not at all.
    pub(crate) fn apply(&mut self, change: &Change) -> bool {
        let revision = |path: &RecordPath| self.entries.get(path).map(|entry| entry.revision);
        let mut unchanged = change.unchanged.iter().map(|(path, expected)| (path, Some(*expected)));
        let mut written = change.writes.iter().map(|write| (&write.path, write.expected));
        let as_expected = unchanged.all(|(path, expected)| revision(path) == expected)
            && written.all(|(path, expected)| revision(path) == expected);
        if !as_expected && !self.unconditional {
            self.counts.conflicts += 1;
            return false;
        }
        for write in &change.writes {
            let value = write.record.clone().map(|record| Arc::new(Value::from(record)));
            self.set(write.path.clone(), value, None);
        }
        true
    }

    /// Writes an entry that ends with a session. Returns false if another session owns it.
    pub(crate) fn put_ephemeral(&mut self, session: u64, path: RecordPath, value: Arc<Value>) -> bool {
        let free = self.entries.get(&path).is_none_or(|entry| entry.owner == Some(session));
        if free {
            self.set(path, Some(value), Some(session));
        }
        free
    }

    /// Writes an entry unconditionally.
    pub(crate) fn set(&mut self, path: RecordPath, value: Option<Arc<Value>>, owner: Option<u64>) {
        self.revision += 1;
        self.counts.writes += 1;
        let is_report = matches!(path, RecordPath::Report(_));
        for (&number, session) in &mut self.sessions {
            if session.reports || !is_report {
                if session.changed.is_empty() {
                    self.to_tell.push(number);
                }
                session.changed.insert(path.clone());
            }
        }
        let revision = self.revision;
        match value {
            Some(value) => {
                let entry = Entry { value, revision, owner };
                self.entries.insert(path, entry);
            }
            None => _ = self.entries.remove(&path),
        }
    }

    /// The changes to report to a session: each watch fires once.
    pub(crate) fn take_changed(&mut self, session: u64) -> BTreeSet<RecordPath> {
        let session = self.sessions.get_mut(&session);
        let changed = session
            .map(|session| std::mem::take(&mut session.changed))
            .unwrap_or_default();
        self.counts.notifications += changed.len() as u64;
        changed
    }

    /// Reads entries.
    pub(crate) fn read(&mut self, paths: &BTreeSet<RecordPath>) -> Vec<Read> {
        self.counts.reads += paths.len() as u64;
        let read = |path: &RecordPath| {
            let entry = self.entries.get(path);
            (
                path.clone(),
                entry.map(|entry| (Arc::clone(&entry.value), entry.revision)),
            )
        };
        paths.iter().map(read).collect()
    }

    /// Reads all entries, with reports or without.
    pub(crate) fn read_all(&mut self, reports: bool) -> Vec<Read> {
        let paths = self.entries.keys();
        let paths = paths.filter(|path| reports || !matches!(path, RecordPath::Report(_)));
        let paths = paths.cloned().collect();
        self.read(&paths)
    }

    /// All entries as a view, shared by all callers with the same arguments.
    pub(crate) fn snapshot(&mut self, reports: bool) -> Arc<ClusterView> {
        let slot = usize::from(reports);
        if let Some((revision, view)) = &self.snapshots[slot]
            && *revision == self.revision
        {
            return Arc::clone(view);
        }
        let view = Arc::new(self.view(reports));
        self.snapshots[slot] = Some((self.revision, Arc::clone(&view)));
        view
    }

    fn view(&self, reports: bool) -> ClusterView {
        let mut view = ClusterView::default();
        let entries = self.entries.iter();
        let entries = entries.filter(|(path, _)| reports || !matches!(path, RecordPath::Report(_)));
        for (path, entry) in entries {
            let read = (path.clone(), Some((Arc::clone(&entry.value), entry.revision)));
            record::put(&mut view, &read);
        }
        view
    }
}
