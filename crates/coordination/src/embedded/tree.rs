//! The tree in memory: entries, their owners, and the watches.
//!
//! Changes to durable entries are on disk before they are applied here. Ephemeral entries exist only here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::disk::{Disk, Put, Stored};
use crate::election::{Lead, in_order};
use crate::entry::{Change, Entry, Revision, check_changes};
use crate::error::CoordinationError;
use crate::path::EntryPath;
use crate::watch::Feed;

/// A session, numbered in the order in which they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionNumber(u64);

pub(super) struct Tree {
    disk: Disk,
    nodes: BTreeMap<EntryPath, Node>,
    /// The last revision that was assigned.
    revision: u64,
    sessions: u64,
    candidates: u64,
    watches: Vec<Watching>,
    candidacies: Vec<Candidacy>,
}

struct Node {
    entry: Entry,
    /// The session that owns it, if it is ephemeral.
    owner: Option<SessionNumber>,
}

struct Watching {
    session: SessionNumber,
    prefixes: Vec<EntryPath>,
    feed: Feed,
}

struct Candidacy {
    election: EntryPath,
    entry: EntryPath,
    lead: Lead,
}

impl Tree {
    pub(super) fn open(root: &Path) -> Result<Self, CoordinationError> {
        let (disk, Stored { entries, revision }) = Disk::open(root)?;
        let node = |(path, entry)| (path, Node { entry, owner: None });
        Ok(Self {
            disk,
            nodes: entries.into_iter().map(node).collect(),
            revision,
            sessions: 0,
            candidates: 0,
            watches: Vec::new(),
            candidacies: Vec::new(),
        })
    }

    pub(super) fn read(&self, path: &EntryPath) -> Option<&Entry> {
        self.nodes.get(path).map(|node| &node.entry)
    }

    pub(super) fn children(&self, path: &EntryPath) -> Vec<String> {
        let name = |below: &EntryPath| {
            let rest = &below.as_str()[path.as_str().len() + 1..];
            rest.split('/').next().unwrap_or(rest).to_owned()
        };
        let names: BTreeSet<_> = self.below(path).map(name).collect();
        names.into_iter().collect()
    }

    /// The paths below a path, without the path itself. Siblings such as `a-b` sort between `a` and `a/b`.
    fn below(&self, path: &EntryPath) -> impl Iterator<Item = &EntryPath> {
        let from_here = self.nodes.range(path..).map(|(below, _)| below);
        let related = from_here.take_while(|below| below.as_str().starts_with(path.as_str()));
        related.filter(move |below| below.is_within(path) && *below != path)
    }

    pub(super) fn transact(&mut self, changes: &[Change]) -> Result<Option<Revision>, CoordinationError> {
        check_changes(changes)?;
        self.believe_the_disk()?;
        for change in changes {
            self.check_revision(change.path(), change.expected())?;
            self.check_above(change.path())?;
        }
        let revision = self.next_revision();
        let mut puts = Vec::new();
        for change in changes {
            let bytes = match change {
                Change::Check { .. } => continue,
                Change::Write { bytes, .. } => Some(bytes.clone()),
                Change::Delete { .. } => None,
            };
            let entry = bytes.map(|bytes| Entry { bytes, revision });
            let path = change.path().clone();
            puts.push(Put { path, entry });
        }
        let durable: Vec<_> = puts
            .iter()
            .filter(|put| !self.is_ephemeral(&put.path))
            .cloned()
            .collect();
        if let Err(error) = self.disk.commit(&durable, revision) {
            // If the disk cannot be read now, it is read again before the next change.
            let _ = self.believe_the_disk();
            return Err(error);
        }
        let is_written = puts.iter().any(|put| put.entry.is_some());
        self.apply(puts);
        Ok(is_written.then_some(revision))
    }

    pub(super) fn create_ephemeral(
        &mut self,
        session: SessionNumber,
        path: &EntryPath,
        bytes: &[u8],
    ) -> Result<Revision, CoordinationError> {
        check_changes(&[Change::Write {
            path: path.clone(),
            bytes: bytes.to_vec(),
            expected: None,
        }])?;
        self.check_revision(path, None)?;
        self.check_above(path)?;
        if let Some(below) = self.below(path).next() {
            return Err(CoordinationError::BelowEphemeral { path: below.clone() });
        }
        let entry = Entry {
            bytes: bytes.to_vec(),
            revision: self.next_revision(),
        };
        let (revision, owner) = (entry.revision, Some(session));
        self.nodes.insert(path.clone(), Node { entry, owner });
        self.notify_watches(path);
        Ok(revision)
    }

    pub(super) fn begin_session(&mut self) -> SessionNumber {
        self.sessions += 1;
        SessionNumber(self.sessions)
    }

    pub(super) fn end_session(&mut self, session: SessionNumber) {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner == Some(session));
        let paths: Vec<_> = owned.map(|(path, _)| path.clone()).collect();
        for candidacy in self
            .candidacies
            .extract_if(.., |candidacy| paths.contains(&candidacy.entry))
        {
            candidacy.lead.set(false);
        }
        for watching in self.watches.extract_if(.., |watching| watching.session == session) {
            watching.feed.closed();
        }
        self.apply(paths.into_iter().map(|path| Put { path, entry: None }).collect());
    }

    pub(super) fn watch(&mut self, session: SessionNumber, prefixes: Vec<EntryPath>, feed: Feed) {
        self.watches.push(Watching {
            session,
            prefixes,
            feed,
        });
    }

    /// Removes watches that were dropped.
    pub(super) fn forget_watches(&mut self) {
        self.watches.retain(|watching| watching.feed.is_wanted());
    }

    /// Returns the entry of the candidate.
    pub(super) fn join_election(
        &mut self,
        session: SessionNumber,
        election: &EntryPath,
        candidate: &[u8],
        lead: Lead,
    ) -> Result<EntryPath, CoordinationError> {
        self.candidates += 1;
        let entry = election.join(&format!("candidate-{:010}", self.candidates))?;
        self.create_ephemeral(session, &entry, candidate)?;
        self.candidacies.push(Candidacy {
            election: election.clone(),
            entry: entry.clone(),
            lead,
        });
        self.settle_elections();
        Ok(entry)
    }

    pub(super) fn leave_election(&mut self, entry: &EntryPath) {
        self.candidacies.retain(|candidacy| candidacy.entry != *entry);
        if self.nodes.contains_key(entry) {
            let (path, entry) = (entry.clone(), None);
            self.apply(vec![Put { path, entry }]);
        }
    }

    fn check_revision(&self, path: &EntryPath, expected: Option<Revision>) -> Result<(), CoordinationError> {
        match self.read(path).map(|entry| entry.revision) == expected {
            true => Ok(()),
            false => Err(CoordinationError::Conflict { path: path.clone() }),
        }
    }

    fn check_above(&self, path: &EntryPath) -> Result<(), CoordinationError> {
        let mut above = path.parent();
        while let Some(parent) = above {
            if self.is_ephemeral(&parent) {
                return Err(CoordinationError::BelowEphemeral { path: path.clone() });
            }
            above = parent.parent();
        }
        Ok(())
    }

    fn is_ephemeral(&self, path: &EntryPath) -> bool {
        self.nodes.get(path).is_some_and(|node| node.owner.is_some())
    }

    fn next_revision(&mut self) -> Revision {
        self.revision += 1;
        Revision::new(self.revision)
    }

    /// After a failed write, the tree is set to the contents of the disk, as a restart would find them.
    fn believe_the_disk(&mut self) -> Result<(), CoordinationError> {
        let Some(Stored { entries, revision }) = self.disk.reopen()? else {
            return Ok(());
        };
        self.revision = self.revision.max(revision);
        let durable = self.nodes.iter().filter(|(_, node)| node.owner.is_none());
        let gone = durable.filter(|(path, _)| !entries.contains_key(path));
        let gone: Vec<_> = gone.map(|(path, _)| (path.clone(), None)).collect();
        let found = entries.into_iter().map(|(path, entry)| (path, Some(entry)));
        let changed = found.filter(|(path, entry)| self.read(path) != entry.as_ref());
        let puts = changed.chain(gone).map(|(path, entry)| Put { path, entry }).collect();
        self.apply(puts);
        Ok(())
    }

    fn apply(&mut self, puts: Vec<Put>) {
        for Put { path, entry } in puts {
            match entry {
                Some(entry) => {
                    let owner = self.nodes.get(&path).and_then(|node| node.owner);
                    self.nodes.insert(path.clone(), Node { entry, owner });
                }
                None => drop(self.nodes.remove(&path)),
            }
            self.notify_watches(&path);
        }
        self.settle_elections();
    }

    fn notify_watches(&self, path: &EntryPath) {
        let concerned = |watching: &&Watching| watching.prefixes.iter().any(|prefix| path.is_within(prefix));
        for watching in self.watches.iter().filter(concerned) {
            watching.feed.changed(path);
        }
    }

    fn settle_elections(&self) {
        for Candidacy { election, entry, lead } in &self.candidacies {
            let candidates = in_order(self.children(election));
            lead.set(candidates.first().is_some_and(|first| first == entry.name()));
        }
    }
}
