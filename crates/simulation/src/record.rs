//! The entries of the simulated coordination service, and their conversion into a view.

use std::sync::Arc;

use fondaco_decisions::{Record, RecordPath};
use fondaco_model::RoutingTable;
use fondaco_model::cluster::{
    Announcement, ClusterRecord, ClusterView, DroppedStore, NodeRecord, Numbers, PlanRecord, ReportRecord, Revised,
    RouterRecord, StoreRecord,
};

/// The value of an entry.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Cluster(ClusterRecord),
    Routing(RoutingTable),
    Numbers(Numbers),
    Node(NodeRecord),
    Announcement(Announcement),
    Report(ReportRecord),
    Router(RouterRecord),
    Store(Box<StoreRecord>),
    Dropped(Box<DroppedStore>),
    Plan(Box<PlanRecord>),
}

/// The result of reading an entry: `None` if the entry does not exist.
pub(crate) type Read = (RecordPath, Option<(Arc<Value>, u64)>);

impl From<Record> for Value {
    fn from(record: Record) -> Self {
        match record {
            Record::Cluster(cluster) => Self::Cluster(cluster),
            Record::Routing(table) => Self::Routing(table),
            Record::Numbers(numbers) => Self::Numbers(numbers),
            Record::Node(node) => Self::Node(node),
            Record::Store(store) => Self::Store(store),
            Record::Dropped(dropped) => Self::Dropped(dropped),
            Record::Plan(plan) => Self::Plan(plan),
            Record::Schema(schema) => unreachable!("no simulated operator registers schemas: {schema:?}"),
            Record::User(user) => unreachable!("no simulated operator makes users: {user:?}"),
        }
    }
}

/// Adds an entry to a view, or removes it.
pub(crate) fn put(view: &mut ClusterView, (path, found): &Read) {
    let Some((value, revision)) = found else {
        return take(view, path);
    };
    let revision = *revision;
    match (path, (**value).clone()) {
        (RecordPath::Cluster, Value::Cluster(record)) => view.cluster = Some(record),
        (RecordPath::Routing, Value::Routing(record)) => view.routing = Some(Revised { record, revision }),
        (RecordPath::Numbers, Value::Numbers(record)) => view.numbers = Some(Revised { record, revision }),
        (RecordPath::Node(id), Value::Node(record)) => _ = view.nodes.insert(*id, Revised { record, revision }),
        (RecordPath::Announcement(identity), Value::Announcement(record)) => {
            view.announcements.insert(identity.clone(), record);
        }
        (RecordPath::Report(id), Value::Report(record)) => _ = view.reports.insert(*id, record),
        (RecordPath::Router(identity), Value::Router(record)) => _ = view.routers.insert(identity.clone(), record),
        (RecordPath::Store(name), Value::Store(record)) => {
            let record = *record;
            view.stores.insert(name.clone(), Revised { record, revision });
        }
        (RecordPath::Dropped(id), Value::Dropped(record)) => {
            let record = *record;
            view.dropped.insert(*id, Revised { record, revision });
        }
        (RecordPath::Plan(number), Value::Plan(record)) => {
            let record = *record;
            view.plans.insert(*number, Revised { record, revision });
        }
        (path, value) => unreachable!("{value:?} was written at {path}"),
    }
}

fn take(view: &mut ClusterView, path: &RecordPath) {
    match path {
        RecordPath::Cluster => view.cluster = None,
        RecordPath::Routing => view.routing = None,
        RecordPath::Numbers => view.numbers = None,
        RecordPath::Node(id) => _ = view.nodes.remove(id),
        RecordPath::Announcement(identity) => _ = view.announcements.remove(identity),
        RecordPath::Report(id) => _ = view.reports.remove(id),
        RecordPath::Router(identity) => _ = view.routers.remove(identity),
        RecordPath::Store(name) => _ = view.stores.remove(name),
        RecordPath::Dropped(id) => _ = view.dropped.remove(id),
        RecordPath::Schema(key) => _ = view.schemas.remove(key),
        RecordPath::Plan(number) => _ = view.plans.remove(number),
        RecordPath::User(name) => _ = view.users.remove(name),
    }
}
