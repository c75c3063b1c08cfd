//! The fetches that an agent begins and stops.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::cluster::ClusterView;
use fondaco_model::{NodeId, PartitionId, PartitionSet};

use super::wanted::{Urgency, Want};
use super::{Agent, AgentAction, LocalFetch, LocalReplicas, ReplicaKey};

/// How many fetches a node runs at a time.
pub const FETCHES_MAX: usize = 8;

/// How many of them are reserved for versions that are being pushed: a push waits for each node only for a short time,
/// while a new node may catch up for hours.
const PUSHED_FETCHES: usize = 2;

/// How many of them may be moves of a plan, which have a rate of their own: slow ones do not delay fetches of data that the node lacks.
const MOVE_FETCHES_MAX: usize = 3;

/// How many of them may be of versions for rollback: nothing waits for those.
const BACKUP_FETCHES_MAX: usize = FETCHES_MAX / 2;

/// How many nodes wait for one relay of a partition, and take it from there.
const RELAY_FAN_OUT: usize = 2;

impl Agent {
    /// Stops unwanted fetches, and begins missing ones: the most urgent first, as many as may run.
    pub(super) fn fetches(
        &mut self,
        view: &ClusterView,
        local: &LocalReplicas,
        wants: &BTreeMap<ReplicaKey, Want<'_>>,
        at_ms: u64,
        actions: &mut Vec<AgentAction>,
    ) {
        for (key, fetch) in &local.fetches {
            // Partitions of a cancelled plan end the fetch, too. Its other partitions are fetched again by the next
            // one.
            let want = wants.get(key);
            let want = want.filter(|want| want.detail.manifest_checksum == fetch.manifest_checksum);
            let unwanted = match want {
                Some(want) => fetch.partitions.without(&want.partitions),
                None => fetch.partitions.clone(),
            };
            if want.is_none() || !unwanted.is_empty() {
                actions.push(AgentAction::StopFetch {
                    store: key.0.clone(),
                    version: key.1,
                    unwanted,
                });
            }
        }
        let mut missing = Vec::new();
        for (key, want) in wants {
            let version = local.versions.get(key);
            if local.fetches.contains_key(key) || version.is_some_and(|version| !version.is_the_one(want.detail)) {
                continue;
            }
            let partitions = match version {
                Some(version) => want.partitions.without(&version.open.without(&version.damaged)),
                None => want.partitions.clone(),
            };
            if partitions.is_empty() {
                self.failures.remove(key);
                continue;
            }
            let partitions = match self.failures.get_mut(key) {
                None => partitions,
                Some(failures) => {
                    failures.keep(&partitions);
                    failures.due(&partitions, want.urgency, at_ms)
                }
            };
            if !partitions.is_empty() {
                missing.push((want.urgency, key, want, partitions));
            }
        }
        let is_move = |want: &Want<'_>, partitions: &PartitionSet| {
            want.urgency != Urgency::Pushed && partitions.iter().all(|partition| !want.owned.contains(partition))
        };
        missing.sort_by_key(|(urgency, key, want, partitions)| (*urgency, is_move(want, partitions), *key));
        let moves = |(key, fetch): &(&ReplicaKey, &LocalFetch)| {
            wants.get(*key).is_some_and(|want| is_move(want, &fetch.partitions))
        };
        let mut moves = local.fetches.iter().filter(moves).count();
        let count = |urgency: Urgency| {
            let is_it = |key: &&ReplicaKey| wants.get(*key).is_some_and(|want| want.urgency == urgency);
            local.fetches.keys().filter(is_it).count()
        };
        let mut running = local.fetches.len();
        let mut others = running - count(Urgency::Pushed);
        let mut backups = count(Urgency::Backup);
        for (urgency, key, want, partitions) in missing {
            let room = match urgency {
                Urgency::Pushed => true,
                Urgency::Current => others < FETCHES_MAX - PUSHED_FETCHES,
                Urgency::Backup => others < FETCHES_MAX - PUSHED_FETCHES && backups < BACKUP_FETCHES_MAX,
            };
            let is_move = is_move(want, &partitions);
            if running >= FETCHES_MAX || !room || is_move && moves >= MOVE_FETCHES_MAX {
                continue;
            }
            // Partitions that the node owns come first, and by themselves: those that move to it have a rate of their own.
            let own = partitions.without(&partitions.without(&want.owned));
            let partitions = if is_move || urgency == Urgency::Pushed {
                partitions
            } else {
                own
            };
            running += 1;
            moves += usize::from(is_move);
            others += usize::from(urgency != Urgency::Pushed);
            backups += usize::from(urgency == Urgency::Backup);
            actions.push(AgentAction::Fetch {
                store: key.0.clone(),
                version: key.1,
                peers: self.peers(view, want, &partitions),
                relays: self.relays(view, want, &partitions),
                partitions,
                is_move,
                on_demand: want.on_demand && !is_move,
                detail: want.detail.clone(),
            });
        }
    }

    /// The relays of partitions of a push. The first live owner of each reads the source; the others form a tree below it, so
    /// that no node sends a partition to many others. A node waits only for nodes before it in the list of owners, so no two wait
    /// for each other.
    fn relays(&self, view: &ClusterView, want: &Want<'_>, partitions: &PartitionSet) -> BTreeMap<PartitionId, NodeId> {
        let Some(table) = view.routing.as_ref().filter(|_| want.urgency == Urgency::Pushed) else {
            return BTreeMap::new();
        };
        let everywhere: BTreeSet<NodeId> = match want.store.definition.everywhere {
            true => table.record.all_owners().iter().flatten().copied().collect(),
            false => BTreeSet::new(),
        };
        let relay = |partition: PartitionId| {
            let one: PartitionSet = [partition].into_iter().collect();
            let first = one
                .among(want.detail.partitions, table.record.partitions())
                .iter()
                .next()?;
            let owners = table.record.owners(first);
            let others = everywhere.iter().filter(|node| !owners.contains(node));
            let mut live = owners.iter().chain(others).copied().collect::<Vec<NodeId>>();
            live.retain(|&node| node == self.node || view.is_live(node));
            let relay = match live.iter().position(|&node| node == self.node) {
                Some(0) => return None,
                Some(own) => (own - 1) / RELAY_FAN_OUT,
                // Moves give it the partition.
                None => 0,
            };
            Some((partition, *live.get(relay)?))
        };
        partitions.iter().filter_map(relay).collect()
    }

    /// The live nodes that may have some of these partitions: those of the node's own zone first. Each node begins with
    /// those after itself, so that not all ask the same node.
    fn peers(&self, view: &ClusterView, want: &Want<'_>, partitions: &PartitionSet) -> Vec<NodeId> {
        let Some(table) = &view.routing else {
            return Vec::new();
        };
        // Also nodes that should no longer hold it: they may still have it.
        let partitions = partitions.among(want.detail.partitions, table.record.partitions());
        let owners = partitions.iter().flat_map(|partition| table.record.owners(partition));
        let stuck = view.stuck(&want.store.definition.name);
        let stuck = stuck.filter(|(partition, _)| partitions.contains(*partition));
        let owners = owners.chain(stuck.flat_map(|(_, former)| former));
        // A late node has nothing; but of a store that is everywhere it may well have its own partitions.
        let is_avoided = want.urgency == Urgency::Current && !want.store.definition.everywhere;
        let is_late = |node: &NodeId| is_avoided && want.store.late.contains(node);
        let peers: BTreeSet<NodeId> = owners
            .copied()
            .filter(|node| *node != self.node && !is_late(node))
            .collect();
        let after = peers.range(self.node..).chain(peers.range(..self.node));
        let mut peers: Vec<NodeId> = after.copied().filter(|&node| view.is_live(node)).collect();
        let zone = |node: NodeId| view.nodes.get(&node).map(|node| &node.record.zone);
        peers.sort_by_key(|&peer| zone(peer) != zone(self.node));
        peers
    }
}
