//! Changes of entries as values: the writes of a decision, and the entries that it depends on.
//!
//! A change is carried out whole or not at all. If an entry that it names has another revision than expected, another
//! process was faster: the change is discarded, and the decision made again on the present entries.

use std::fmt;

use serde::Serialize;

use super::plan::PlanRecord;
use super::record::{ClusterRecord, DroppedStore, NodeRecord, Numbers, StoreRecord};
use super::user::{UserName, UserRecord};
use crate::name::StoreName;
use crate::node::{Identity, NodeId};
use crate::routing::RoutingTable;

/// Writes that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The writes.
    pub writes: Vec<Write>,
    /// Entries that must not have changed meanwhile although they are not written, with their revisions.
    pub unchanged: Vec<(RecordPath, u64)>,
}

/// A write of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The entry.
    pub path: RecordPath,
    /// The revision that it must have; `None` if it must not exist.
    pub expected: Option<u64>,
    /// The new record; `None` deletes the entry.
    pub record: Option<Record>,
}

impl Change {
    /// A change that writes one entry, and depends on no other.
    pub(super) fn of(path: RecordPath, expected: Option<u64>, record: Record) -> Self {
        Self {
            writes: vec![Write {
                path,
                expected,
                record: Some(record),
            }],
            unchanged: Vec::new(),
        }
    }

    /// The same change, which also depends on another entry.
    pub(super) fn while_unchanged(mut self, path: RecordPath, revision: u64) -> Self {
        self.unchanged.push((path, revision));
        self
    }

    /// The new record of a store, if the change writes one.
    pub fn store(&self) -> Option<&StoreRecord> {
        self.writes.iter().find_map(|write| match &write.record {
            Some(Record::Store(store)) => Some(&**store),
            _ => None,
        })
    }

    /// The new routing table, if the change writes it.
    pub fn routing(&self) -> Option<&RoutingTable> {
        self.writes.iter().find_map(|write| match &write.record {
            Some(Record::Routing(table)) => Some(table),
            _ => None,
        })
    }
}

/// The name of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordPath {
    /// The constant properties of the cluster.
    Cluster,
    /// The routing table.
    Routing,
    /// The numbers given out last.
    Numbers,
    /// A node.
    Node(NodeId),
    /// A live node.
    Announcement(Identity),
    /// A node's report about its replicas.
    Report(NodeId),
    /// A live router.
    Router(Identity),
    /// A store.
    Store(StoreName),
    /// A store that was dropped, by its number.
    Dropped(u16),
    /// A plan, by its number.
    Plan(u64),
    /// A user.
    User(UserName),
}

impl RecordPath {
    /// The entry at a path as [`Display`](fmt::Display) writes it; `None` for other paths.
    pub fn parse(path: &str) -> Option<Self> {
        match path.split_once('/') {
            None => match path {
                "cluster" => Some(Self::Cluster),
                "routing" => Some(Self::Routing),
                "numbers" => Some(Self::Numbers),
                _ => None,
            },
            Some(("nodes", id)) => id.parse().ok().map(Self::Node),
            Some(("announcements", identity)) => identity.parse().ok().map(Self::Announcement),
            Some(("reports", id)) => id.parse().ok().map(Self::Report),
            Some(("routers", identity)) => identity.parse().ok().map(Self::Router),
            Some(("stores", name)) => name.parse().ok().map(Self::Store),
            Some(("dropped", id)) => id.parse().ok().map(Self::Dropped),
            Some(("plans", number)) => number.parse().ok().map(Self::Plan),
            Some(("users", name)) => name.parse().ok().map(Self::User),
            Some(_) => None,
        }
    }
}

impl fmt::Display for RecordPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("cluster"),
            Self::Routing => f.write_str("routing"),
            Self::Numbers => f.write_str("numbers"),
            Self::Node(id) => write!(f, "nodes/{id}"),
            Self::Announcement(identity) => write!(f, "announcements/{identity}"),
            Self::Report(id) => write!(f, "reports/{id}"),
            Self::Router(identity) => write!(f, "routers/{identity}"),
            Self::Store(name) => write!(f, "stores/{name}"),
            Self::Dropped(id) => write!(f, "dropped/{id}"),
            Self::Plan(number) => write!(f, "plans/{number}"),
            Self::User(name) => write!(f, "users/{name}"),
        }
    }
}

/// An entry that a change writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Record {
    /// At [`RecordPath::Cluster`].
    Cluster(ClusterRecord),
    /// At [`RecordPath::Routing`].
    Routing(RoutingTable),
    /// At [`RecordPath::Numbers`].
    Numbers(Numbers),
    /// At [`RecordPath::Node`].
    Node(NodeRecord),
    /// At [`RecordPath::Store`].
    Store(Box<StoreRecord>),
    /// At [`RecordPath::Dropped`].
    Dropped(Box<DroppedStore>),
    /// At [`RecordPath::Plan`].
    Plan(Box<PlanRecord>),
    /// At [`RecordPath::User`].
    User(Box<UserRecord>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_as_they_are_written() {
        for path in [
            RecordPath::Cluster,
            RecordPath::Routing,
            RecordPath::Numbers,
            RecordPath::Node(NodeId::FIRST),
            RecordPath::Announcement(Identity::of(7)),
            RecordPath::Report(NodeId::FIRST.next()),
            RecordPath::Router(Identity::of(u128::MAX)),
            RecordPath::Store("Member-Features.v2".parse().unwrap()),
            RecordPath::Dropped(7),
            RecordPath::Plan(12),
            RecordPath::User("ann".parse().unwrap()),
        ] {
            assert_eq!(RecordPath::parse(&path.to_string()), Some(path));
        }
    }

    #[test]
    fn other_paths_are_not_parsed() {
        for path in [
            "",
            "settings",
            "nodes",
            "nodes/0",
            "stores/a/b",
            "dropped/x",
            "election/c_1",
            "routers/7",
        ] {
            assert_eq!(RecordPath::parse(path), None, "{path}");
        }
    }
}
