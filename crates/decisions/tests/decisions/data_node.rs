//! A data node whose decisions are carried out.

use std::collections::BTreeMap;

use fondaco_decisions::{Agent, AgentAction, FailedFetch, LocalFetch, LocalReplicas, LocalVersion, ServingSet};
use fondaco_model::cluster::{ReplicaReport, ReplicaState, ReportRecord};
use fondaco_model::{NodeId, PartitionId, PartitionSet, VersionNumber};

use crate::fixture::{Cluster, name, node, version};

/// A node whose actions are carried out at once.
pub struct Node {
    pub agent: Agent,
    pub local: LocalReplicas,
    pub serving: ServingSet,
    pub report: ReportRecord,
}

impl Node {
    pub fn new(number: u32) -> Self {
        Self {
            agent: Agent::new(node(number)),
            local: LocalReplicas::default(),
            serving: ServingSet::default(),
            report: ReportRecord::default(),
        }
    }

    /// Looks, and carries out all actions except fetches. Returns the actions.
    pub fn look(&mut self, cluster: &Cluster, now_ms: u64) -> Vec<AgentAction> {
        let actions = self.agent.decide(&cluster.view, &self.local, now_ms);
        for action in &actions {
            match action.clone() {
                AgentAction::Publish(serving) => self.serving = serving,
                AgentAction::Report(report) => self.report = report,
                AgentAction::Drop { store, version } => {
                    let key = (store, version);
                    self.local.versions.remove(&key).expect("it is there");
                }
                AgentAction::DropPartitions {
                    store,
                    version,
                    partitions,
                } => {
                    let local = self.local.versions.get_mut(&(store, version)).expect("it is there");
                    local.open = local.open.without(&partitions);
                }
                AgentAction::StopFetch { store, version, .. } => _ = self.local.fetches.remove(&(store, version)),
                AgentAction::Fetch { .. } => {}
            }
        }
        actions
    }

    /// Looks, and completes all fetches.
    pub fn catch_up(&mut self, cluster: &Cluster, now_ms: u64) {
        for action in self.look(cluster, now_ms) {
            if let AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                ..
            } = action
            {
                self.has(store.as_str(), version, &detail.manifest_checksum, partitions);
            }
        }
        self.look(cluster, now_ms);
    }

    pub fn has(&mut self, store: &str, version: VersionNumber, checksum: &str, partitions: PartitionSet) {
        let entry = self.local.versions.entry((name(store), version));
        let local = entry.or_insert_with(|| LocalVersion {
            manifest_checksum: Some(checksum.to_owned()),
            ..LocalVersion::default()
        });
        local.open = local.open.with(&partitions);
    }

    pub fn fetching(&mut self, store: &str, version: VersionNumber, checksum: &str) {
        let fetch = LocalFetch {
            manifest_checksum: checksum.to_owned(),
            partitions: PartitionSet::EMPTY,
            bytes_done: 0,
            seconds_left: None,
            bytes_total: 100,
        };
        self.local.fetches.insert((name(store), version), fetch);
    }

    /// All fetches among these actions fail.
    pub fn fails(&mut self, actions: &[AgentAction], error: &str, now_ms: u64) {
        for action in actions {
            let AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                ..
            } = action
            else {
                continue;
            };
            let failed = FailedFetch {
                source: detail.source.clone(),
                manifest_checksum: detail.manifest_checksum.clone(),
                partitions: partitions.clone(),
                error: error.to_owned(),
                for_good: false,
            };
            self.agent.fetch_failed(&(store.clone(), *version), failed, now_ms);
        }
    }

    /// A version of a store on the disk.
    pub fn on_disk(&mut self, store: &str, number: u64) -> &mut LocalVersion {
        self.local.versions.get_mut(&(name(store), version(number))).unwrap()
    }

    /// The report of a version.
    pub fn reported(&self, store: &str, number: u64) -> &ReplicaReport {
        &self.report.stores[store].versions[&version(number)]
    }

    pub fn state(&self, store: &str, number: u64) -> ReplicaState {
        self.reported(store, number).state
    }

    pub fn serves(&self, store: &str) -> Vec<u64> {
        let versions = self.serving.stores[store].versions.keys();
        versions.map(|version| version.get()).collect()
    }
}

pub fn fetches(actions: &[AgentAction]) -> Vec<(&str, u64)> {
    let fetch = |action| match action {
        &AgentAction::Fetch { ref store, version, .. } => Some((store.as_str(), version.get())),
        _ => None,
    };
    actions.iter().filter_map(fetch).collect()
}

/// A fetch to be begun.
#[derive(Debug, Clone)]
pub struct Fetch {
    pub partitions: PartitionSet,
    pub peers: Vec<NodeId>,
    pub relays: BTreeMap<PartitionId, NodeId>,
    pub is_move: bool,
}

/// The first fetch of these actions.
pub fn first_fetch(actions: Vec<AgentAction>) -> Option<Fetch> {
    actions.into_iter().find_map(|action| match action {
        AgentAction::Fetch {
            partitions,
            peers,
            relays,
            is_move,
            ..
        } => Some(Fetch {
            partitions,
            peers,
            relays,
            is_move,
        }),
        _ => None,
    })
}

/// Where the first action is that drops a version.
pub fn drop_at(actions: &[AgentAction]) -> Option<usize> {
    let mut actions = actions.iter();
    actions.position(|action| matches!(action, AgentAction::Drop { .. }))
}
