//! The present state of stores, versions and pushes as resources, from the records of the cluster and the reports of nodes.

use std::collections::BTreeMap;

use fondaco_agent::AgentWork;
use fondaco_api::{
    AbsentNode, CanaryNode, CanaryResource, PushResource, ReplicaResource, StoreResource, VersionDiff, VersionResource,
    VersionState, WithoutQuorum,
};
use fondaco_cluster::Mirror;
use fondaco_decisions::{unready_partition, used_bytes};
use fondaco_model::cluster::{ClusterView, ReplicaReport, ReplicaState, StoreRecord, Topology};
use fondaco_model::{CanaryRecord, NodeId, PartitionSet, PushState, StoreChange, StreamChange, VersionNumber};
use fondaco_protocol::now_unix_ms;

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
    pub(crate) fn store(&self, record: &StoreRecord) -> StoreResource {
        let (view, definition) = (self.view, &record.definition);
        let topology = self.topology.as_ref();
        let lost = topology.and_then(|topology| Some(topology.lost_quorum(topology.stores.get(&definition.name)?)));
        StoreResource {
            name: definition.name.to_string(),
            kind: definition.kind,
            replicas: shown_replicas(view, record),
            replicas_next: replicas_next(view, record),
            space_used_bytes: used_bytes(view, record),
            over_space_quota: record.over_quota,
            options: StoreChange {
                replicas: None,
                ..StoreChange::of(definition)
            },
            versioned: view.settings(record),
            stream: definition.stream.as_ref().map(StreamChange::of),
            stream_problem: None,
            created_unix_ms: record.created_unix_ms,
            current_version: record.versions.current().map(VersionNumber::get),
            versions: record
                .versions
                .kept()
                .map(|version| self.version(record, version))
                .collect(),
            push: self.push(record),
            late: record.late.iter().map(|node| node.get()).collect(),
            keys: keys(view, record),
            without_quorum: lost.map(|lost| WithoutQuorum {
                reads: lost.reads.len() as u64,
                writes: lost.writes.len() as u64,
            }),
        }
    }

    /// A version of a store as it is now.
    fn version(&self, record: &StoreRecord, version: VersionNumber) -> VersionResource {
        let (view, name) = (self.view, &record.definition.name);
        let nodes = reports(view, record, version);
        let current = record.versions.current() == Some(version);
        let (state, error) = match unready_partition(view, name, version) {
            // Without reports nothing is known against it: the coordination service does not answer.
            Some(_) if !view.reports.is_empty() => unready_state(&nodes),
            _ if current => (VersionState::Serving, None),
            _ => (VersionState::Ready, None),
        };
        let agent = self.agent.filter(|agent| agent.has_open(name, version));
        let detail = record.details.get(&version);
        VersionResource {
            version: version.get(),
            state,
            current,
            records: detail.map(|detail| detail.records),
            partitions: detail.map(|detail| detail.partitions.get()),
            bytes: detail.map(|detail| detail.bytes),
            index_bytes: detail.map(|detail| detail.index_bytes),
            chunks: detail.map(|detail| detail.chunks),
            built_unix_ms: detail.map(|detail| detail.built_unix_ms),
            as_of_unix_ms: detail.and_then(|detail| detail.events?.as_of_unix_ms),
            stream_from_unix_ms: detail
                .filter(|_| record.definition.stream.is_some())
                .map(|detail| detail.events.unwrap_or_default().from_unix_ms),
            ttl_ms: detail.and_then(|detail| detail.events?.ttl_ms),
            undated_unix_ms: detail.and_then(|detail| detail.events?.undated_unix_ms),
            compression: detail.map(|detail| detail.compression.clone()),
            source: detail.map(|detail| detail.source.clone()),
            checksum: detail.map(|detail| detail.manifest_checksum.clone()),
            directory: agent.map(|agent| agent.data_dir().version(name, version).display().to_string()),
            error,
            nodes: replicas(nodes),
        }
    }

    /// The push of a store as it is now; `None` if the store was never pushed.
    pub(crate) fn push(&self, record: &StoreRecord) -> Option<PushResource> {
        let push = record.push.clone()?;
        let runs = !push.state.is_end();
        let agent = self.agent.filter(|_| runs);
        let progress = agent.and_then(|agent| agent.progress(&record.definition.name, push.version));
        let (mut nodes, absent) = match runs {
            true => (reports(self.view, record, push.version), self.absent_owners(record)),
            false => (BTreeMap::new(), Vec::new()),
        };
        let own = progress.unwrap_or_default();
        if let (1, Some(only)) = (nodes.len(), nodes.values_mut().next())
            && progress.is_some()
        {
            // This is the only node, and knows more than its last report says.
            only.bytes_done = own.bytes_done;
            only.bytes_total = own.bytes_total;
            only.seconds_left = own.seconds_left;
        }
        let awaits_confirmation = push.awaits_confirmation();
        let canary = push.canary.map(|canary| canary_resource(canary, &nodes));
        let sum = |of: fn(&ReplicaReport) -> u64| nodes.values().map(of).sum::<u64>();
        let (done, total) = (sum(|node| node.bytes_done), sum(|node| node.bytes_total));
        let fetching = nodes.values().filter(|node| node.state == ReplicaState::Fetching);
        let rate = fetching.clone().filter_map(|node| {
            let left = node.bytes_total.saturating_sub(node.bytes_done);
            left.checked_div(node.seconds_left?)
        });
        let rate = rate.sum();
        let left: Option<Vec<u64>> = fetching.map(|node| node.seconds_left).collect();
        let swapped = push.state == PushState::Swapped;
        Some(PushResource {
            version: push.version.get(),
            source: push.source,
            state: push.state,
            error: push.error,
            gates: push.gates,
            awaits_confirmation,
            compared: push
                .compared
                .filter(|compared| compared.error.is_none())
                .map(|compared| VersionDiff {
                    from: compared.from.get(),
                    to: push.version.get(),
                    counts: compared.counts,
                    missing: Vec::new(),
                    next: None,
                }),
            records: push.records,
            bytes_total: if total > 0 { total } else { push.bytes_total },
            bytes_done: if swapped { push.bytes_total } else { done },
            files_total: own.files_total,
            files_done: own.files_done,
            rate_bytes_per_second: match nodes.len() {
                1 => own.rate_bytes_per_second,
                _ => rate,
            },
            rate_limit_bytes_per_second: own.rate_limit_bytes_per_second,
            seconds_left: left.and_then(|left| left.into_iter().max()),
            started_unix_ms: push.started_unix_ms,
            ended_unix_ms: push.ended_unix_ms,
            run: push.run,
            repeated: false,
            with: push.with,
            canary,
            nodes: replicas(nodes),
            absent,
        })
    }

    /// The absent nodes that should hold a store.
    fn absent_owners(&self, record: &StoreRecord) -> Vec<AbsentNode> {
        let replicas = self.view.replicas(record);
        let table = self.view.routing.as_ref().map(|routing| &routing.record);
        let owners = table.map(|table| table.owned(replicas)).unwrap_or_default();
        let absent = owners.into_keys().filter(|&node| !self.view.is_live(node));
        let since = |node| {
            let record = &self.view.nodes.get(&node)?.record;
            self.mirror.absent_since_unix_ms(&record.identity)
        };
        let absent = absent.map(|node| AbsentNode {
            node: node.get(),
            since_unix_ms: since(node),
        });
        absent.collect()
    }
}

/// A canary, with the counts that nodes report, or those at its end.
fn canary_resource(canary: CanaryRecord, nodes: &BTreeMap<NodeId, ReplicaReport>) -> CanaryResource {
    let of_node = |(node, report): (&NodeId, &ReplicaReport)| {
        let (node, counts) = (node.get(), report.canary?);
        Some(CanaryNode { node, counts })
    };
    let nodes: Vec<CanaryNode> = nodes.iter().filter_map(of_node).collect();
    let mut counts = canary.counts;
    nodes.iter().for_each(|node| counts.add(&node.counts));
    CanaryResource {
        elapsed_ms: canary.elapsed_ms(now_unix_ms()),
        terms: canary.terms,
        state: canary.state,
        against: canary.against,
        reason: canary.reason,
        counts,
        nodes,
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

/// The replicas of a version, in the order of node numbers.
fn replicas(nodes: BTreeMap<NodeId, ReplicaReport>) -> Vec<ReplicaResource> {
    let replica = |(node, report): (NodeId, ReplicaReport)| ReplicaResource {
        node: node.get(),
        state: report.state,
        bytes_done: report.bytes_done,
        bytes_total: report.bytes_total,
        reads_stream: report.reads_stream,
        on_demand: report.on_demand,
        error: report.error,
    };
    nodes.into_iter().map(replica).collect()
}

/// The state of a version that lacks a partition, and why it failed, if it did.
fn unready_state(nodes: &BTreeMap<NodeId, ReplicaReport>) -> (VersionState, Option<String>) {
    let failed = nodes.iter().find(|(_, replica)| replica.state == ReplicaState::Failed);
    match failed {
        Some((node, replica)) => {
            let reason = replica.error.as_deref().unwrap_or("it gives no reason");
            (VersionState::Failed, Some(format!("node {node}: {reason}")))
        }
        None => (VersionState::Fetching, None),
    }
}
