//! The present state of stores, versions and pushes, from the records of the cluster and the reports of nodes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fondaco_fetch::FetchProgress;
use fondaco_model::cluster::{
    ClusterView, LostQuorum, PushRecord, ReplicaReport, ReplicaState, StoreRecord, Topology, VersionDetail,
    unready_partition, used_bytes,
};
use fondaco_model::{NodeId, PartitionSet, StoreDefinition, VersionNumber};

use crate::agent::AgentWork;
use crate::mirror::Mirror;

/// A store as it is now.
#[derive(Debug, Clone)]
pub(crate) struct StoreStatus {
    /// Its definition by the operator.
    pub(crate) definition: StoreDefinition,
    /// How many nodes hold each partition.
    pub(crate) replicas: u32,
    /// How many nodes are to hold each partition, while a plan changes that.
    pub(crate) replicas_next: Option<u32>,
    /// When it was created, in milliseconds since 1970.
    pub(crate) created_unix_ms: u64,
    /// Its versions, the current one first, then those most recently current.
    pub(crate) versions: Vec<VersionStatus>,
    /// The push under way or the last one.
    pub(crate) push: Option<PushStatus>,
    /// Nodes that do not have the current version yet.
    pub(crate) late: Vec<NodeId>,
    /// About how many keys a versioned store has; `None` if no node has reported.
    pub(crate) keys: Option<u64>,
    /// How many bytes one copy has; `None` if that is unknown.
    pub(crate) used_bytes: Option<u64>,
    /// Whether it takes no writes but deletions, because it is larger than its space quota.
    pub(crate) over_quota: bool,
    /// The partitions that have too few live replicas; `None` if the live nodes are unknown.
    pub(crate) lost: Option<LostQuorum>,
}

/// A version as it is now.
#[derive(Debug, Clone)]
pub(crate) struct VersionStatus {
    /// Its number.
    pub(crate) version: VersionNumber,
    /// Whether it is the current one.
    pub(crate) current: bool,
    /// The directory of its files on this node, if there are any.
    pub(crate) dir: Option<PathBuf>,
    /// The facts in its manifest.
    pub(crate) detail: Option<VersionDetail>,
    /// Whether every partition has a node that can serve it.
    pub(crate) state: Availability,
    /// The nodes' reports of it.
    pub(crate) nodes: BTreeMap<NodeId, ReplicaReport>,
}

/// Whether a version can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Availability {
    /// Every partition of it.
    Whole,
    /// Not every partition yet.
    Incomplete,
    /// Not every partition, for this reason.
    Failed(String),
}

/// A push as it is now.
#[derive(Debug, Clone)]
pub(crate) struct PushStatus {
    /// Its record.
    pub(crate) record: PushRecord,
    /// Its progress on this node, while it runs.
    pub(crate) progress: Option<FetchProgress>,
    /// The nodes' reports of it, while it runs.
    pub(crate) nodes: BTreeMap<NodeId, ReplicaReport>,
    /// While it runs, the absent nodes that should have it, each with the time when this process saw it leave, in
    /// milliseconds since 1970.
    pub(crate) absent: Vec<(NodeId, Option<u64>)>,
}

/// The effects of a push.
#[derive(Debug, Clone)]
pub(crate) struct DryRun {
    /// The number that the version would get, if nothing else is pushed before.
    pub(crate) version: VersionNumber,
    /// Its source.
    pub(crate) source: String,
    /// How many records it has.
    pub(crate) records: u64,
    /// How many bytes its files have.
    pub(crate) bytes_total: u64,
    /// How many bytes it would use on the disk of this node.
    pub(crate) needed_bytes: u64,
    /// Whether files would be linked here instead of copied.
    pub(crate) links: bool,
}

/// The inputs of the status of stores.
pub(crate) struct Seen<'a> {
    mirror: &'a Mirror,
    view: &'a ClusterView,
    topology: Option<Topology>,
    agent: Option<&'a AgentWork>,
}

impl<'a> Seen<'a> {
    /// From the mirror of a process, its view with reports, and its agent, if it has one.
    pub(crate) fn new(mirror: &'a Mirror, view: &'a ClusterView, agent: Option<&'a AgentWork>) -> Self {
        Self {
            mirror,
            view,
            topology: Topology::of(view),
            agent,
        }
    }

    /// A store as it is now.
    pub(crate) fn store(&self, record: &StoreRecord) -> StoreStatus {
        let (view, name) = (self.view, &record.definition.name);
        let versions = record.versions.kept().map(|version| {
            let nodes = reports(view, record, version);
            VersionStatus {
                version,
                current: record.versions.current() == Some(version),
                dir: self
                    .agent
                    .filter(|agent| agent.has_open(name, version))
                    .map(|agent| agent.data_dir().version(name, version)),
                detail: record.details.get(&version).cloned(),
                state: match unready_partition(view, name, version) {
                    None => Availability::Whole,
                    // Without reports nothing is known against it: the coordination service does not answer.
                    Some(_) if view.reports.is_empty() => Availability::Whole,
                    Some(_) => availability(&nodes),
                },
                nodes,
            }
        });
        let topology = self.topology.as_ref();
        StoreStatus {
            definition: StoreDefinition {
                versioned: view.settings(record),
                ..record.definition.clone()
            },
            replicas: shown_replicas(view, record),
            replicas_next: replicas_next(view, record),
            created_unix_ms: record.created_unix_ms,
            versions: versions.collect(),
            push: self.push(record),
            late: record.late.iter().copied().collect(),
            keys: keys(view, record),
            used_bytes: used_bytes(view, record),
            over_quota: record.over_quota,
            lost: topology.and_then(|topology| Some(topology.lost_quorum(topology.stores.get(name)?))),
        }
    }

    /// The push of a store as it is now; `None` if there was none.
    pub(crate) fn push(&self, record: &StoreRecord) -> Option<PushStatus> {
        let push = record.push.clone()?;
        let runs = !push.state.is_end();
        let name = &record.definition.name;
        Some(PushStatus {
            progress: self
                .agent
                .filter(|_| runs)
                .and_then(|agent| agent.progress(name, push.version)),
            nodes: match runs {
                true => reports(self.view, record, push.version),
                false => BTreeMap::new(),
            },
            absent: match runs {
                true => self.absent_owners(record),
                false => Vec::new(),
            },
            record: push,
        })
    }

    /// The absent nodes that should hold a store, each with the time when this process saw it leave.
    fn absent_owners(&self, record: &StoreRecord) -> Vec<(NodeId, Option<u64>)> {
        let replicas = self.view.replicas(record);
        let table = self.view.routing.as_ref().map(|routing| &routing.record);
        let owners = table.map(|table| table.owned(replicas)).unwrap_or_default();
        let absent = owners.into_keys().filter(|&node| !self.view.is_live(node));
        let since = |node| {
            let record = &self.view.nodes.get(&node)?.record;
            self.mirror.absent_since_unix_ms(&record.identity)
        };
        absent.map(|node| (node, since(node))).collect()
    }
}

/// How many nodes hold each partition of a store. If the placement gives every node or group a replica, or the store is
/// everywhere, the number of nodes or groups.
fn shown_replicas(view: &ClusterView, record: &StoreRecord) -> u32 {
    let table = view.routing.as_ref().map(|routing| &routing.record);
    let replicas = view.replicas(record);
    let longest = table.and_then(|table| match record.definition.everywhere {
        true => Some(table.owned(replicas).len()),
        false => table.all_owners().iter().map(Vec::len).max(),
    });
    let nodes_initial = || {
        view.cluster
            .as_ref()
            .map_or(1, |cluster| cluster.nodes_initial as usize)
    };
    replicas.min(longest.unwrap_or_else(nodes_initial)) as u32
}

/// The number of replicas that a plan under way gives a store.
fn replicas_next(view: &ClusterView, record: &StoreRecord) -> Option<u32> {
    let plans = view.plans.values().filter(|plan| plan.record.state.is_under_way());
    let mut counts = plans.filter_map(|plan| plan.record.count.as_ref());
    let count = counts.find(|count| count.id == record.id)?;
    Some(count.next.replicas).filter(|&next| next as usize != view.replicas(record))
}

/// About how many keys a versioned store has, from the reports of the nodes that hold its partitions.
fn keys(view: &ClusterView, record: &StoreRecord) -> Option<u64> {
    record.definition.versioned?;
    let partitions = view.partitions()?.get();
    let reports = view.reports.values();
    let reports = reports.filter_map(|report| report.stores.get(&record.definition.name));
    let (keys, held) = reports
        .filter(|report| report.id == record.id)
        .fold((0, 0), |(keys, held), report| {
            (keys + u128::from(report.keys), held + u128::from(report.held))
        });
    (held > 0).then(|| (keys * u128::from(partitions) / held) as u64)
}

/// How many characters the ranges of a store's lost partitions may have.
const PARTITIONS_SHOWN_MAX: usize = 100;

/// How many stores with lost quorums are named.
const LOST_SHOWN_MAX: usize = 10;

/// Messages about stores that have partitions without a quorum, each with its remedy.
pub(crate) fn lost_quorums(view: &ClusterView) -> Vec<String> {
    let Some(topology) = Topology::of(view) else {
        return Vec::new();
    };
    let partitions = topology.partitions.get();
    let lost = topology.lost_quorums();
    let absent = topology.nodes.iter().filter(|(_, node)| !node.live);
    let absent: Vec<String> = absent.map(|(id, _)| format!("node {id}")).collect();
    let remedy = match absent.as_slice() {
        [] => "check the replicas and zones that the store requires".to_owned(),
        absent => format!("start {}", absent.join(", ")),
    };
    let mut said: Vec<String> = lost
        .iter()
        .take(LOST_SHOWN_MAX)
        .map(|(name, lost)| {
            let (reads, writes) = (lost.reads.len(), lost.writes.len());
            let what = match topology.stores[*name].versioned {
                None => format!(
                    "{reads} of {partitions} partitions have no live replica: {}",
                    shown_partitions(&lost.reads)
                ),
                Some(settings) => format!(
                    "{reads} of {partitions} partitions have no read quorum and {writes} no write quorum \
                     (N {}, R {}, W {}): reads {}, writes {}",
                    shown_replicas(view, &view.stores[*name].record),
                    settings.reads,
                    settings.writes,
                    shown_partitions(&lost.reads),
                    shown_partitions(&lost.writes)
                ),
            };
            format!("store \"{name}\": {what}: {remedy}")
        })
        .collect();
    if lost.len() > LOST_SHOWN_MAX {
        said.push(format!("and {} more stores", lost.len() - LOST_SHOWN_MAX));
    }
    said
}

/// The partitions of a set, as ranges; of very many, the first.
fn shown_partitions(partitions: &PartitionSet) -> String {
    let text = partitions.to_string();
    match text.char_indices().nth(PARTITIONS_SHOWN_MAX) {
        None if text.is_empty() => "none".to_owned(),
        None => text,
        Some((end, _)) => {
            let whole = text[..end].rfind(',').unwrap_or(end);
            format!("{},…", &text[..whole])
        }
    }
}

/// The nodes' reports of a version of this store, and not of another store of its name.
fn reports(view: &ClusterView, record: &StoreRecord, version: VersionNumber) -> BTreeMap<NodeId, ReplicaReport> {
    let said = |(&node, report): (&NodeId, &fondaco_model::cluster::ReportRecord)| {
        let store = report.stores.get(&record.definition.name)?;
        let replica = store.versions.get(&version).filter(|_| store.id == record.id)?;
        Some((node, replica.clone()))
    };
    view.reports.iter().filter_map(said).collect()
}

fn availability(nodes: &BTreeMap<NodeId, ReplicaReport>) -> Availability {
    let failed = nodes.iter().find(|(_, replica)| replica.state == ReplicaState::Failed);
    match failed {
        Some((node, replica)) => {
            let reason = replica.error.as_deref().unwrap_or("it gives no reason");
            Availability::Failed(format!("node {node}: {reason}"))
        }
        None => Availability::Incomplete,
    }
}
