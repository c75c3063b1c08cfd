//! The next actions of a data node.
//!
//! For each store, a node wants the kept versions and the one being pushed, with the partitions that the routing table
//! and the plan under way give it. It fetches wanted replicas that it lacks. It drops unwanted ones after a grace
//! period, in which requests that have pinned them end. So a node that is new, was away or lost its disk catches up by
//! itself.
//!
//! Besides its inputs, an agent remembers only times, failures, and its last report.

mod evidence;
mod failures;
mod fetch;
mod local;
mod report;
mod serving;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::cluster::{ClusterView, ReportRecord, VersionDetail};
use fondaco_model::{NodeId, PartitionId, PartitionSet, StoreName, VersionNumber};

use super::clock::WatchedClock;
use super::layout::Layouts;
use failures::Failures;
pub use failures::{FETCH_ATTEMPTS_MAX, FailedFetch};
pub use fetch::FETCHES_MAX;
pub use local::{LocalFetch, LocalReplicas, LocalVersion, LocalVersioned, ReplicaKey};
pub use report::REPORT_PROGRESS_MS;
pub use serving::{ServingSet, ServingStore};
use wanted::{Want, wants};

/// How long a version that was served stays open and on the disk after it is no longer kept, in milliseconds: requests
/// that have pinned it end in this time.
pub const DROP_GRACE_MS: u64 = 5_000;

/// An action for a node. Each is returned again until it is done.
#[expect(clippy::large_enum_variant, reason = "few are made, and each is carried out at once")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAction {
    /// Fetch and verify partitions of a version, and open them.
    Fetch {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// Its missing partitions.
        partitions: PartitionSet,
        /// Its source, and the checksum that its manifest must have.
        detail: VersionDetail,
        /// Nodes that may have some of it, to be asked in this order if the source fails.
        peers: Vec<NodeId>,
        /// Of a push: the peers that fetch some of these partitions from the source now. To read each partition from a
        /// distant source once, wait for these peers.
        relays: BTreeMap<PartitionId, NodeId>,
        /// Whether moves give these partitions to the node: it does not own them yet.
        is_move: bool,
        /// Whether to open them at once, and to read on demand what look-ups need.
        on_demand: bool,
    },
    /// Stop a fetch. Its useless files are dropped next.
    StopFetch {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// Its partitions that are not wanted any more: their files beside an open version are deleted with it.
        unwanted: PartitionSet,
    },
    /// Let requests see these versions, and no others.
    Publish(ServingSet),
    /// Close a version, and delete all of it. It is in no serving set any more.
    Drop {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
    },
    /// Close partitions of a version that is otherwise kept, and delete their files.
    DropPartitions {
        /// The store.
        store: StoreName,
        /// The version.
        version: VersionNumber,
        /// The partitions.
        partitions: PartitionSet,
    },
    /// Write this as the node's report.
    Report(ReportRecord),
}

/// The decision logic of a data node.
#[derive(Debug)]
pub struct Agent {
    node: NodeId,
    clock: WatchedClock,
    layouts: Layouts,
    failures: BTreeMap<ReplicaKey, Failures>,
    /// Since when each unwanted version has been unwanted.
    unwanted_since_ms: BTreeMap<ReplicaKey, u64>,
    /// The unwanted partitions of wanted versions, and since when they have been unwanted.
    surplus_since_ms: BTreeMap<ReplicaKey, (PartitionSet, u64)>,
    published: Option<ServingSet>,
    reported: Option<(ReportRecord, u64)>,
    /// Local versions that are not wanted, and that no record allows to be deleted.
    unexplained: BTreeSet<ReplicaKey>,
}

impl Agent {
    /// The agent of a node that has its number.
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            clock: WatchedClock::default(),
            layouts: Layouts::default(),
            failures: BTreeMap::new(),
            unwanted_since_ms: BTreeMap::new(),
            surplus_since_ms: BTreeMap::new(),
            published: None,
            reported: None,
            unexplained: BTreeSet::new(),
        }
    }

    /// Local versions that the node does not want, but that no record allows to be deleted: they are kept. As of the
    /// last decision.
    pub fn unexplained(&self) -> &BTreeSet<ReplicaKey> {
        &self.unexplained
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Closes the partitions without records that the node does not want: they have no files that a fetch brings and a
    /// drop takes away, so only the routing table says which node has them. To be called before
    /// [`decide`](Self::decide), and before the streams of open partitions are read.
    pub fn close_foreign_empty(&mut self, view: &ClusterView, versions: &mut BTreeMap<ReplicaKey, LocalVersion>) {
        let Some(wants) = wants(view, self.node, &mut self.layouts) else {
            return;
        };
        for (key, version) in versions {
            if let Some(want) = wants.get(key) {
                version.open = version.open.without(&version.empty.without(&want.partitions));
            }
        }
    }

    /// The actions to take now, in this order. To be called whenever the view or the local replicas have changed, and
    /// every second. The first call must come after all versions on the disk were opened, so that the first report is
    /// complete.
    pub fn decide(&mut self, view: &ClusterView, local: &LocalReplicas, monotonic_ms: u64) -> Vec<AgentAction> {
        let at_ms = self.clock.advance(monotonic_ms);
        let Some(wants) = wants(view, self.node, &mut self.layouts) else {
            return Vec::new();
        };
        self.failures
            .retain(|key, failures| wants.get(key).is_some_and(|want| failures.are_of(want.detail)));
        let mut actions = Vec::new();
        let drops = match view.remembered || view.is_partial {
            true => Vec::new(),
            false => self.drops(view, local, &wants, at_ms),
        };
        let serving = serving::serving_set(view, self.node, local, &drops);
        if self.published.as_ref() != Some(&serving) {
            self.published = Some(serving.clone());
            actions.push(AgentAction::Publish(serving));
        }
        actions.extend(drops);
        if view.remembered {
            return actions;
        }
        self.fetches(view, local, &wants, at_ms, &mut actions);
        actions.extend(self.report(view, local, &wants, at_ms));
        actions
    }

    /// To be called when a fetch has failed: it is retried after a while.
    pub fn fetch_failed(&mut self, key: &ReplicaKey, failed: FailedFetch, monotonic_ms: u64) {
        let at_ms = self.clock.advance(monotonic_ms);
        self.failures.entry(key.clone()).or_default().add(failed, at_ms);
    }

    /// Why versions that the node wants are not here, as far as fetches of them have failed.
    pub fn failures(&self) -> impl Iterator<Item = (&ReplicaKey, &str)> {
        let failures = self.failures.iter();
        failures.filter_map(|(key, failures)| Some((key, failures.error()?)))
    }

    /// To be called when the last report is gone or was not written: the next decision returns it again.
    pub fn forget_report(&mut self) {
        self.reported = None;
    }

    /// The replicas to drop: versions that records allow to be deleted and whose grace period is over, versions with a
    /// wrong manifest under a wanted number, and partitions that went to other nodes. A node that comes back keeps those
    /// that moved without their data: it may have the last copy.
    fn drops(
        &mut self,
        view: &ClusterView,
        local: &LocalReplicas,
        wants: &BTreeMap<ReplicaKey, Want<'_>>,
        at_ms: u64,
    ) -> Vec<AgentAction> {
        let mut drops = Vec::new();
        let is_unwanted = |key: &ReplicaKey| local.versions.contains_key(key) && !wants.contains_key(key);
        self.unwanted_since_ms.retain(|key, _| is_unwanted(key));
        self.unexplained.clear();
        // Requests ended with the node's earlier process: versions released before this start have no readers.
        let is_first = self.published.is_none();
        self.surplus_since_ms
            .retain(|key, _| wants.contains_key(key) && local.versions.contains_key(key));
        for (key, version) in &local.versions {
            let (store, number) = key;
            let gone = match wants.get(key) {
                Some(want) => !version.is_the_one(want.detail),
                None if is_kept(view, key) && view.stuck(store).any(|(_, former)| former.contains(&self.node)) => false,
                None if !evidence::is_given_up(view, store, *number) => {
                    self.unexplained.insert(key.clone());
                    false
                }
                None => {
                    let since_ms = *self.unwanted_since_ms.entry(key.clone()).or_insert(at_ms);
                    let served = view
                        .stores
                        .get(store)
                        .is_none_or(|store| !store.record.gave_up(*number));
                    is_first || !served || version.answered().is_empty() || at_ms - since_ms >= DROP_GRACE_MS
                }
            };
            if gone {
                // A fetch that writes to it is stopped first, and has ended by a later look.
                if !local.fetches.contains_key(key) {
                    drops.push(AgentAction::Drop {
                        store: store.clone(),
                        version: *number,
                    });
                }
                continue;
            }
            let Some(want) = wants.get(key) else { continue };
            let stuck = view.stuck(store).filter(|(_, former)| former.contains(&self.node));
            let stuck: PartitionSet = stuck.map(|(partition, _)| partition).collect();
            let stuck = stuck.among(
                view.partitions().unwrap_or(want.detail.partitions),
                want.detail.partitions,
            );
            let surplus = version.open.without(&want.partitions).without(&stuck);
            if surplus.is_empty() {
                self.surplus_since_ms.remove(key);
                continue;
            }
            let since = self.surplus_since_ms.entry(key.clone());
            let since = since.or_insert_with(|| (surplus.clone(), at_ms));
            if since.0 != surplus {
                *since = (surplus.clone(), at_ms);
            }
            if at_ms - since.1 >= DROP_GRACE_MS && !local.fetches.contains_key(key) {
                drops.push(AgentAction::DropPartitions {
                    store: store.clone(),
                    version: *number,
                    partitions: surplus,
                });
            }
        }
        drops
    }
}

/// Whether a version is served, or kept for rollback.
fn is_kept(view: &ClusterView, (store, version): &ReplicaKey) -> bool {
    let store = view.stores.get(store);
    store.is_some_and(|store| store.record.versions.kept().any(|kept| kept == *version))
}
