//! The rules that hold at every step, and the final state that the cluster must reach.
//!
//! The oracle knows everything: all writes with their times, and the content of every disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fondaco_decisions::Change;
use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::{PartitionSet, RoutingTable, StoreName, VersionNumber};
use fondaco_protocol::WireKey;

use crate::data::build_of;
use crate::process::{ReaderRead, Role};
use crate::world::World;

/// For how long a node's loss may excuse that a version went live without it: old reports live as long as their
/// session, and a decision as long as a message takes.
const LOSS_EXCUSED_MS: u64 = 40_000;

/// The history.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// Each build that became a version: its store, and whether it was ever current.
    builds: BTreeMap<u64, Built>,
    /// The time at which the cluster settled.
    pub(crate) settled_ms: Option<u64>,
    pub(crate) last_swap_ms: u64,
    pub(crate) reads_answered: u64,
    pub(crate) reads_failed: u64,
    pub(crate) pushes: BTreeMap<(u16, StoreName, VersionNumber), fondaco_model::PushState>,
}

#[derive(Debug)]
struct Built {
    /// The number of its store.
    id: u16,
    store: StoreName,
    version: VersionNumber,
    live: bool,
}

impl World {
    /// Applies a change, and checks its effect.
    pub(crate) fn apply(&mut self, change: &Change) {
        let before = self.service.snapshot(false);
        if !self.service.apply(change) {
            self.note(|| "  … refused".to_owned());
            return;
        }
        if let Some(after) = change.store() {
            self.store_written(&before, after);
        }
        if let (Some(after), Some(table)) = (change.routing(), &before.routing) {
            self.table_written(&before, &table.record, after);
        }
    }

    fn store_written(&mut self, before: &ClusterView, after: &StoreRecord) {
        let name = &after.definition.name;
        for (&version, detail) in &after.details {
            let built = Built {
                id: after.id,
                store: name.clone(),
                version,
                live: false,
            };
            let build = build_of(&detail.manifest_checksum);
            self.oracle.builds.entry(build).or_insert(built);
        }
        if let Some(push) = &after.push {
            let key = (after.id, name.clone(), push.version);
            let former = self.oracle.pushes.insert(key, push.state);
            if former.is_some_and(|former| former.is_end() && former != push.state) {
                self.violation(format!("push {}-{} ended twice", name, push.version));
            }
        }
        let former = before.stores.get(name).map(|store| &store.record);
        let former = former.filter(|former| former.id == after.id);
        let current = after.versions.current();
        if let Some(version) = current.filter(|_| current != former.and_then(|former| former.versions.current())) {
            let Some(detail) = after.details.get(&version) else {
                return self.violation(format!("{name}-{version} went live, but is unknown"));
            };
            let build = build_of(&detail.manifest_checksum);
            if let Some(built) = self.oracle.builds.get_mut(&build) {
                built.live = true;
            }
            self.oracle.last_swap_ms = self.now_ms;
            if let Some(table) = &before.routing {
                let replicas = before.replicas(after);
                self.must_be_ready(&table.record, name, version, build, replicas, "went live");
            }
        }
    }

    fn table_written(&mut self, before: &ClusterView, former: &RoutingTable, after: &RoutingTable) {
        if former.all_owners() == after.all_owners() {
            return;
        }
        for (name, store) in &before.stores {
            let record = &store.record;
            for version in record.versions.kept() {
                let Some(detail) = record.details.get(&version) else {
                    continue;
                };
                let build = build_of(&detail.manifest_checksum);
                let replicas = before.replicas(record);
                self.must_be_ready(after, name, version, build, replicas, "was moved");
            }
        }
    }

    /// Checks that each partition of a version has a node that holds it, or lost it a short time ago.
    fn must_be_ready(
        &mut self,
        table: &RoutingTable,
        name: &StoreName,
        version: VersionNumber,
        build: u64,
        replicas: usize,
        what: &str,
    ) {
        let holders = self.holders(name, version, build);
        // Versions are built for as many partitions as there were at first.
        let owned = table.owned(replicas);
        let missing = table.partitions().partitions().find(|&partition| {
            let built = self.partitions.covering(partition, table.partitions());
            let mut owners = owned.iter().filter(|(_, owned)| owned.contains(partition));
            !owners.any(|(owner, _)| {
                holders
                    .get(&owner.get())
                    .is_some_and(|(held, excused)| *excused || held.contains(built))
            })
        });
        if let Some(partition) = missing {
            self.violation(format!(
                "{name}-{version} {what}, but no node has partition {partition} ready"
            ));
        }
    }

    /// The partitions of a version that each node holds, by the node's number, and whether the node has lost its disk
    /// recently.
    fn holders(&self, name: &StoreName, version: VersionNumber, build: u64) -> BTreeMap<u32, (PartitionSet, bool)> {
        let mut holders = BTreeMap::new();
        let key = (name.clone(), version);
        for (place, process) in self.processes.iter().enumerate() {
            let Role::Node(node) = &process.role else { continue };
            let Some(id) = self.number_of(place) else { continue };
            let held = node.disk.versions.get(&key).filter(|held| held.build == build);
            let held = held.map(|held| held.held.clone()).unwrap_or_default();
            let excused = node
                .lost_ms
                .is_some_and(|lost_ms| self.now_ms < lost_ms + LOSS_EXCUSED_MS);
            holders.insert(id, (held, excused));
        }
        holders
    }

    /// The number of a process in the cluster.
    fn number_of(&self, process: usize) -> Option<u32> {
        let view = self.service.entries.iter();
        let mut nodes = view.filter_map(|(_, entry)| match &*entry.value {
            crate::record::Value::Node(node) => Some(node),
            _ => None,
        });
        let address = crate::node::address(process);
        nodes.find(|node| node.resp == address).map(|node| node.id.get())
    }

    /// Checks the result of a read.
    pub(crate) fn read_ended(&mut self, keys: Arc<Vec<WireKey>>, read: ReaderRead) {
        let begun_ms = read.begun_ms;
        let mut reply = match read.read.finish() {
            Ok(reply) => reply,
            Err(error) => return self.violation(format!("a read that allows errors by key failed: {error}")),
        };
        if let Some(taken) = read.taken {
            if taken.len() != keys.len() {
                let counts = (taken.len(), keys.len());
                return self.violation(format!("a read of {} keys has {} answers", counts.1, counts.0));
            }
            taken.into_iter().for_each(|(at, answer)| reply.values[at] = answer);
        }
        let mut of_store = BTreeMap::<&str, BTreeSet<u64>>::new();
        let mut broken = None;
        for (key, value) in keys.iter().zip(&reply.values) {
            let value = match value {
                Ok(value) => value,
                Err(error) => {
                    self.oracle.reads_failed += 1;
                    let settled = self.oracle.settled_ms.is_some_and(|settled_ms| begun_ms >= settled_ms);
                    if settled && self.is_served(key) {
                        broken = Some(format!("{key:?} cannot be read in a healthy cluster: {error}"));
                    }
                    continue;
                }
            };
            self.oracle.reads_answered += 1;
            let build = value
                .as_ref()
                .and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
            let built = build.and_then(|build| self.oracle.builds.get(&build));
            let (Some(build), Some(built)) = (build, built) else {
                broken = Some(format!("{key:?} has the value {value:?}, which no version has"));
                continue;
            };
            let pinned = reply.stores.iter().find(|store| store.name.as_str() == key.store());
            let pinned = pinned.map(|store| (store.id, store.version));
            if built.store.as_str() != key.store() || Some((built.id, built.version)) != pinned || !built.live {
                broken = Some(format!("{key:?} was read at {pinned:?}, but has a value of {built:?}"));
            }
            of_store.entry(key.store()).or_default().insert(build);
        }
        if let Some((store, builds)) = of_store.iter().find(|(_, builds)| builds.len() > 1) {
            broken = Some(format!("an answer mixes the builds {builds:?} of {store}"));
        }
        if let Some(broken) = broken {
            self.violation(broken);
        }
    }

    /// Whether a store has a current version.
    fn is_served(&mut self, key: &WireKey) -> bool {
        let view = self.service.snapshot(false);
        let store = view.stores.get(key.store());
        store.is_some_and(|store| store.record.versions.current().is_some())
    }

    /// Fails with the reason if the cluster is not settled yet.
    pub(crate) fn is_settled(&mut self) -> Result<(), String> {
        let view = self.service.snapshot(true);
        let Some(table) = &view.routing else {
            return match self.scenario.nodes > 0 {
                true => Err("there is no routing table".to_owned()),
                false => Ok(()),
            };
        };
        if table.record.is_moving() {
            return Err("a plan is in progress".to_owned());
        }
        for (name, store) in &view.stores {
            if let Some(version) = store.record.pushing() {
                return Err(format!("push {name}-{version} is in progress"));
            }
            if !store.record.late.is_empty() {
                return Err(format!("{name} has the late nodes {:?}", store.record.late));
            }
        }
        for (place, process) in self.processes.iter().enumerate() {
            let Role::Node(node) = &process.role else { continue };
            if self.removed.contains(&place) {
                continue;
            }
            let Some(agent) = &node.agent else {
                return Err(format!("process {place} has no number"));
            };
            if !view.is_live(agent.node()) {
                return Err(format!("process {place} is absent"));
            }
            let mut wanted = BTreeMap::new();
            for (name, store) in &view.stores {
                let record = &store.record;
                let copies = view.copies(record);
                let partitions: PartitionSet = table.record.partitions_of(agent.node(), copies).collect();
                let partitions = partitions.among(table.record.partitions(), self.partitions);
                if !partitions.is_empty() {
                    let kept = record.versions.kept();
                    wanted.extend(kept.map(|version| ((name.clone(), version), partitions.clone())));
                }
            }
            let held = |key| node.disk.versions.get(key).map(|version| &version.held);
            let differs = wanted.iter().find(|(key, partitions)| held(key) != Some(*partitions));
            if let Some((key, partitions)) = differs {
                return Err(format!(
                    "process {place} holds {:?} of {key:?}, not {partitions:?}",
                    held(key)
                ));
            }
            if let Some(key) = node.disk.versions.keys().find(|key| !wanted.contains_key(key)) {
                return Err(format!("process {place} still has {key:?}"));
            }
            let served = |(name, version): &(StoreName, VersionNumber)| {
                let store = node.serving.stores.get(name)?;
                store.versions.get(version)
            };
            if let Some((key, _)) = wanted.iter().find(|(key, partitions)| served(key) != Some(*partitions)) {
                return Err(format!("process {place} does not serve {key:?}"));
            }
            for (name, store) in &view.stores {
                let current = node.serving.stores.get(name).and_then(|store| store.current);
                if current != store.record.versions.current() {
                    return Err(format!(
                        "process {place} believes that {current:?} is the current version of {name}"
                    ));
                }
            }
        }
        Ok(())
    }
}
