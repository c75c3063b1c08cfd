//! The thread of a node's agent: one pass after the other, each followed by its actions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fondaco_cluster::{Bootstrap, Ending, Origin, PeerTopology};
use fondaco_coordination::Coordination;
use fondaco_decisions::{Agent, AgentAction, LocalReplicas, Membership, ReplicaKey, ServingSet};
use fondaco_model::cluster::{ClusterView, Revised, StoreRecord};
use fondaco_model::{NodeId, StoreName};
use fondaco_protocol::now_unix_ms;

use crate::counting::Counting;
use crate::error::AgentError;
use crate::fetches::Job;
use crate::memory::Memory;
use crate::node_file::NodeFile;
use crate::presence::{Announced, Presence};
use crate::publishing::Publishing;
use crate::shared::Shared;
use crate::streams::Streams;
use crate::uploads::UploadSource;
use crate::versioned::VersionedStores;

/// How often a pass begins when nothing changes.
const TICK: Duration = Duration::from_secs(1);

/// The parts of the thread.
pub(super) struct WorkParts {
    pub(super) shared: Arc<Shared>,
    pub(super) coordination: Arc<dyn Coordination>,
    pub(super) bootstrap: Option<Bootstrap>,
    pub(super) node_id: Option<NodeId>,
    pub(super) node_file: NodeFile,
    pub(super) presence: Presence,
    pub(super) peer_topology: PeerTopology,
    pub(super) publishing: Publishing,
    pub(super) streams: Arc<Streams>,
    pub(super) versioned: VersionedStores,
    pub(super) counting: Counting,
}

/// The thread.
pub(super) struct Work {
    parts: WorkParts,
    memory: Option<Memory>,
    /// The view of the last pass: results that depend on it alone are not computed again.
    seen: Option<Arc<ClusterView>>,
    agent: Option<Agent>,
    serving: Option<ServingSet>,
    /// Whether requests should see a change although the serving set is the same.
    is_dirty: bool,
    started: Instant,
}

impl Work {
    pub(super) fn new(parts: WorkParts) -> Self {
        Self {
            parts,
            memory: None,
            seen: None,
            agent: None,
            serving: None,
            is_dirty: false,
            started: Instant::now(),
        }
    }

    /// Makes passes until it is stopped, or the node must not take part.
    pub(super) fn run(&mut self, ending: &Ending) {
        let shared = Arc::clone(&self.parts.shared);
        while !ending.has_come() {
            let seen = shared.change_signal.count();
            let pass = shared.passes.begin();
            let outcome = self.reconcile();
            shared.passes.end(pass);
            match outcome {
                Ok(()) => {}
                Err(error) if error.is_fatal() => {
                    tracing::error!(%error, "this node must not take part in the cluster: it serves nothing");
                    self.parts.publishing.withdraw();
                    shared.fatal.send_replace(Some(Arc::new(error)));
                    shared.noted.raise();
                    return;
                }
                Err(error) => tracing::warn!(%error, "the node could not complete all actions: trying again"),
            }
            shared.change_signal.wait(seen, TICK);
        }
        self.parts.counting.end();
    }

    /// One pass: reads the state, and acts on it.
    fn reconcile(&mut self) -> Result<(), AgentError> {
        let mut sighting = self.parts.shared.mirror.sighting();
        let origin = sighting.origin;
        let is_true = origin == Origin::Service;
        if is_true {
            let mirror = &self.parts.shared.mirror;
            if let (None, Some(remembered)) = (&sighting.view.cluster, &self.parts.node_file.cluster) {
                return Err(AgentError::ClusterMissing {
                    remembered: remembered.clone(),
                });
            }
            if let Some(bootstrap) = &self.parts.bootstrap {
                bootstrap.found(&*self.parts.coordination, mirror)?;
            }
            sighting.view = mirror.view();
        }
        let view = Arc::clone(&sighting.view);
        let membership = Membership {
            identity: self.parts.node_file.identity.clone(),
            cluster: self.parts.node_file.cluster.clone(),
            id: self.parts.node_id.or(self.parts.node_file.id),
        };
        let admitted = membership.admission(&view)?;
        // A node that was refused above does not announce itself; a node without a number must. A node that the service
        // no longer knows must not either: it may have joined another cluster.
        let announces = is_true && sighting.is_current;
        let announced = announces.then(|| self.announce()).transpose();
        let Some(node) = admitted else {
            return announced.map(drop);
        };
        if is_true {
            self.remember_membership(&view, node)?;
        }
        // Before the replicas open anything: they may have lost data that requests ask for.
        let is_counted = self.parts.counting.raise_if_due(node, announces);
        let is_versioned = |store: &Revised<StoreRecord>| store.record.definition.versioned.is_some();
        if !is_counted && view.stores.values().any(is_versioned) {
            return announced.map(drop);
        }
        if let Some(topology) = self.parts.peer_topology.changed(&sighting, Some(node)) {
            // Requests see it with the catalog: which versions are current, and which of their partitions are here.
            self.is_dirty |= self.parts.publishing.set_topology(topology, &view, node);
        }
        let is_new = !self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &view));
        // Before the catalog: the partitions for which it lets requests in must be held by then.
        self.parts.versioned.apply(&view, node);
        let remembers = is_new && is_true;
        let epoch_of = |view: &ClusterView| view.routing.as_ref().map(|routing| routing.record.epoch());
        let is_new_table = self.seen.as_ref().is_none_or(|seen| epoch_of(seen) != epoch_of(&view));
        // A routing table is remembered before the report: a plan waits for this node to know the table, and the node
        // must still know it after a start without the service. All else is remembered when requests see it.
        let remembered = match remembers && is_new_table {
            true => self.remember(&view),
            false => Ok(()),
        };
        let reports = remembered.is_ok() && matches!(announced, Ok(Some(true)));
        self.act(&view, origin, node, reports);
        // Otherwise the view counts as not seen, and the next pass acts on it.
        remembered?;
        if remembers && let Err(error) = self.remember(&view) {
            // The node serves all the same, and tries again when the view changes.
            tracing::warn!(%error, "cannot remember the view of the cluster");
        }
        self.seen = Some(view);
        announced.map(drop)
    }

    /// Ensures that the node is announced; returns whether it is.
    fn announce(&mut self) -> Result<bool, AgentError> {
        let announced = self.parts.presence.announce()?;
        if announced == Announced::Newly
            && let Some(agent) = &mut self.agent
        {
            agent.forget_report();
        }
        Ok(announced != Announced::NotYet)
    }

    /// From now on the data directory belongs to this cluster, and the node has its number.
    fn remember_membership(&mut self, view: &ClusterView, node: NodeId) -> Result<(), AgentError> {
        let cluster = view.cluster.as_ref().map(|cluster| cluster.identity.clone());
        let file = &mut self.parts.node_file;
        if (file.id, &file.cluster) != (Some(node), &cluster) {
            file.id = Some(node);
            file.cluster = cluster;
            file.write(&self.parts.shared.disk.dir().node_file())?;
            tracing::info!(%node, "this node has its number");
        }
        Ok(())
    }

    fn remember(&mut self, view: &ClusterView) -> Result<(), AgentError> {
        let memory = Memory::of(view);
        if self.memory.as_ref() != Some(&memory) {
            memory.write(&self.parts.shared.disk.dir().view_file())?;
            self.memory = Some(memory);
        }
        Ok(())
    }

    /// Carries out the model's actions.
    fn act(&mut self, view: &ClusterView, origin: Origin, node: NodeId, is_announced: bool) {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let mut agent = self.agent.take().unwrap_or_else(|| Agent::new(node));
        self.take_ended(&mut agent, now_ms);
        let shared = Arc::clone(&self.parts.shared);
        // Before the versions: files that a fetch adds in between are seen as both, and never as neither.
        let fetches = shared.fetches.local();
        let mut versions = shared.disk.local();
        agent.close_foreign_empty(view, &mut versions);
        let schemas = self.parts.publishing.schemas();
        self.is_dirty |= self.parts.streams.reconcile(view, &schemas, &mut versions);
        let local = LocalReplicas {
            fetched_bytes: shared.fetches.fetched_bytes(|key| versions.contains_key(key)),
            fetches,
            versions,
            versioned: self.parts.versioned.local(view),
            canaries: self.parts.publishing.canaries(),
        };
        let actions = agent.decide(view, &local, now_ms);
        self.note_unexplained(agent.unexplained());
        self.note_failures(&agent);
        if let Err(error) = shared.disk.collect(|store| is_forgotten(view, store)) {
            tracing::warn!(%error, "cannot empty the trash: trying again");
        }
        for dir in shared.uploads.collect(view, node) {
            if let Err(error) = shared.disk.delete(&dir) {
                tracing::warn!(?dir, %error, "cannot delete an upload");
            }
        }
        for action in &actions {
            if let AgentAction::Publish(set) = action {
                self.count_swaps(set);
                self.parts.publishing.set_serving(set.clone());
                self.serving = Some(set.clone());
                self.is_dirty = true;
            }
        }
        self.is_dirty |= shared.reopened.swap(false, Relaxed);
        if std::mem::take(&mut self.is_dirty) {
            self.parts.publishing.publish(|store, version| {
                let why_not = shared.why_not(store, version);
                why_not.or_else(|| self.parts.streams.problem(store, version))
            });
        }
        for action in actions {
            self.carry_out(view, &mut agent, action, is_announced);
        }
        self.agent = Some(agent);
        // Without a routing table there is nothing to serve. A table comes at once, unless it waits for more nodes.
        let nodes_initial = view
            .cluster
            .as_ref()
            .map_or(0, |cluster| cluster.nodes_initial as usize);
        let is_settled = view.routing.is_some() || view.nodes.len() < nodes_initial;
        shared.note(|status| {
            status.node = Some(node);
            if is_settled {
                status.settled = origin;
            }
        });
    }

    /// Logs, once, data that is kept although no record names it.
    fn note_unexplained(&self, unexplained: &BTreeSet<ReplicaKey>) {
        let known = self.parts.shared.status.lock().unexplained.clone();
        if known == *unexplained {
            return;
        }
        for (store, version) in unexplained.difference(&known) {
            tracing::error!(%store, %version, "no record names this version or says that it was given up: it is kept");
        }
        self.parts
            .shared
            .note(|status| status.unexplained.clone_from(unexplained));
    }

    /// Takes note of why versions are not here.
    fn note_failures(&self, agent: &Agent) {
        let failures = agent.failures();
        let failures: BTreeMap<_, _> = failures.map(|(key, error)| (key.clone(), error.to_owned())).collect();
        if self.parts.shared.status.lock().failures != failures {
            self.parts.shared.note(|status| status.failures = failures);
        }
    }

    /// Tells the agent of fetches that have ended.
    fn take_ended(&mut self, agent: &mut Agent, now_ms: u64) {
        for ended in self.parts.shared.fetches.take_ended() {
            self.is_dirty = true;
            if let Some(failed) = ended.failed {
                agent.fetch_failed(&ended.key, failed, now_ms);
            }
        }
    }

    /// Counts how often the current version of a store changed for clients.
    fn count_swaps(&self, set: &ServingSet) {
        let Some(before) = &self.serving else { return };
        let swapped = set.stores.iter().filter(|(name, store)| {
            let before = before.stores.get(*name).map(|before| before.current);
            before.is_some_and(|before| before != store.current)
        });
        self.parts.shared.swaps.fetch_add(swapped.count() as u64, Relaxed);
    }

    /// Begins the next pass at once if an action has changed the local state. A failed one is tried again after the next tick: at
    /// once, it would fail as fast as the thread can try.
    fn continue_after(&self, outcome: &Result<(), AgentError>) {
        if outcome.is_ok() {
            self.parts.shared.change_signal.raise();
        }
    }

    fn carry_out(&mut self, view: &ClusterView, agent: &mut Agent, action: AgentAction, is_announced: bool) {
        let shared = &self.parts.shared;
        let outcome = match action {
            // Done already, before all others.
            AgentAction::Publish(_) => Ok(()),
            AgentAction::Fetch {
                store,
                version,
                partitions,
                detail,
                peers,
                relays,
                is_move,
                on_demand,
            } => {
                // The model asks for it again when some deletions are done.
                if shared.disk.is_behind_with_deleting() {
                    return;
                }
                let address = |peer: &NodeId| view.nodes.get(peer).map(|node| node.record.http.clone());
                let upload = UploadSource::of(&detail.source);
                shared.fetches.begin(Job {
                    node: agent.node(),
                    uploaded_at: upload.and_then(|upload| address(&upload.node)),
                    key: (store, version),
                    partitions,
                    partition_count: detail.partitions,
                    detail,
                    relays: relays
                        .iter()
                        .filter_map(|(&partition, relay)| Some((partition, address(relay)?)))
                        .collect(),
                    peers: peers.iter().filter_map(address).collect(),
                    is_move,
                    on_demand,
                });
                Ok(())
            }
            AgentAction::StopFetch {
                store,
                version,
                unwanted,
            } => {
                shared.fetches.stop(&(store, version), unwanted);
                Ok(())
            }
            AgentAction::Drop { store, version } => {
                let dropped = shared.disk.drop_version(&store, version);
                self.continue_after(&dropped);
                dropped
            }
            AgentAction::DropPartitions {
                store,
                version,
                partitions,
            } => {
                let dropped = shared.disk.drop_partitions(&store, version, &partitions);
                // The catalog still has the version with these partitions.
                self.is_dirty |= dropped.is_ok();
                self.continue_after(&dropped);
                dropped
            }
            AgentAction::Report(report) => {
                let written = match is_announced {
                    true => self.parts.presence.report(agent.node(), &report),
                    false => Err(AgentError::NotAnnounced),
                };
                if written.is_err() {
                    agent.forget_report();
                }
                match written {
                    Err(AgentError::NotAnnounced) => Ok(()),
                    written => written,
                }
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "an action of the node failed: trying again");
        }
    }
}

/// Whether a store was dropped and its data has expired.
fn is_forgotten(view: &ClusterView, store: &StoreName) -> bool {
    let mut dropped = view.dropped.values().map(|dropped| &dropped.record);
    let is_over = !view.remembered && !view.is_partial && !view.stores.contains_key(store);
    is_over
        && dropped
            .any(|dropped| dropped.record.definition.name == *store && dropped.kept_until_unix_ms <= now_unix_ms())
}
