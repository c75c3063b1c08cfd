//! Changes of entries as values: the writes of a decision, and the entries that it depends on.
//!
//! A change is carried out whole or not at all. If an entry that it names has another revision than expected, another
//! process was faster: the change is discarded, and the decision made again on the present entries.

use std::fmt;

use fondaco_model::cluster::{
    ClusterRecord, ClusterView, DroppedStore, NodeRecord, Numbers, PlanRecord, Revised, SchemaKey, SchemaRecord,
    StoreRecord, UserName, UserRecord,
};
use fondaco_model::{Identity, NodeId, RoutingTable, StoreName};
use serde::Serialize;

/// Writes that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// A change that makes these writes, and depends on no other entry.
    pub(super) fn of(writes: impl IntoIterator<Item = Write>) -> Self {
        Self {
            writes: writes.into_iter().collect(),
            unchanged: Vec::new(),
        }
    }

    /// The same change, which also depends on the routing table, if there is one.
    pub(super) fn while_same_routing(mut self, view: &ClusterView) -> Self {
        let revision = view.routing.as_ref().map(|table| table.revision);
        self.unchanged
            .extend(revision.map(|revision| (RecordPath::Routing, revision)));
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

impl Write {
    /// Writes a record over the entry with this revision; `None` if there must be no such entry.
    pub(super) fn of(expected: Option<u64>, record: impl Into<Record>) -> Self {
        let record = record.into();
        Self {
            path: record.path(),
            expected,
            record: Some(record),
        }
    }

    /// Replaces an entry.
    pub(super) fn over<T: Into<Record>>(before: &Revised<T>, record: T) -> Self {
        Self::of(Some(before.revision), record)
    }

    /// Deletes the entry with this revision.
    pub(super) fn delete(path: RecordPath, revision: u64) -> Self {
        Self {
            path,
            expected: Some(revision),
            record: None,
        }
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
    /// A schema, by the number of its store and its own.
    Schema(SchemaKey),
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
            Some(("schemas", key)) => {
                let (store, id) = key.split_once('-')?;
                let (store, id) = (store.parse().ok()?, id.parse().ok()?);
                Some(Self::Schema(SchemaKey { store, id }))
            }
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
            Self::Schema(key) => write!(f, "schemas/{key}"),
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
    /// At [`RecordPath::Schema`].
    Schema(Box<SchemaRecord>),
    /// At [`RecordPath::Plan`].
    Plan(Box<PlanRecord>),
    /// At [`RecordPath::User`].
    User(Box<UserRecord>),
}

impl Record {
    /// The entry that the record is written at.
    pub fn path(&self) -> RecordPath {
        match self {
            Self::Cluster(_) => RecordPath::Cluster,
            Self::Routing(_) => RecordPath::Routing,
            Self::Numbers(_) => RecordPath::Numbers,
            Self::Node(node) => RecordPath::Node(node.id),
            Self::Store(store) => RecordPath::Store(store.definition.name.clone()),
            Self::Dropped(dropped) => RecordPath::Dropped(dropped.record.id),
            Self::Schema(schema) => RecordPath::Schema(schema.key()),
            Self::Plan(plan) => RecordPath::Plan(plan.number),
            Self::User(user) => RecordPath::User(user.name.clone()),
        }
    }
}

/// Makes each type of records a [`Record`]; large ones are boxed.
macro_rules! records {
    ($($variant:ident($record:ty)),*) => {
        $(impl From<$record> for Record {
            fn from(record: $record) -> Self {
                Self::$variant(record.into())
            }
        })*
    };
}

records!(
    Cluster(ClusterRecord),
    Routing(RoutingTable),
    Numbers(Numbers),
    Node(NodeRecord),
    Store(StoreRecord),
    Dropped(DroppedStore),
    Schema(SchemaRecord),
    Plan(PlanRecord),
    User(UserRecord)
);

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
            RecordPath::Schema(SchemaKey { store: 7, id: 130 }),
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
            "schemas/7",
            "election/c_1",
            "routers/7",
        ] {
            assert_eq!(RecordPath::parse(path), None, "{path}");
        }
    }
}
