//! All entries of the coordination service, as a process saw them at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::plan::PlanRecord;
use super::record::{
    Announcement, ClusterRecord, DroppedStore, NodeMark, NodeRecord, Numbers, ReportRecord, RouterRecord, SchemaKey,
    SchemaRecord, StoreRecord,
};
use super::user::{UserName, UserRecord};
use crate::name::StoreName;
use crate::node::{Identity, NodeId};
use crate::partition::{PartitionCount, PartitionId};
use crate::partition_set::PartitionSet;
use crate::protocol::protocol;
use crate::routing::{Copies, EVERYWHERE, RoutingTable};
use crate::versioned::VersionedSettings;

/// An entry with its revision: a conditional write names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revised<T> {
    /// The entry.
    pub record: T,
    /// Its revision when it was read.
    pub revision: u64,
}

/// A cluster as a process sees it. Not every process sees all: only controllers watch reports.
///
/// Decisions trust a view: it has all entries, and within one process it never goes back in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Whether it was remembered from an earlier run, while the coordination service cannot be reached. It may be old:
    /// its versions are served, but none is fetched or dropped.
    pub remembered: bool,
    /// Whether the entries of some stores could not be parsed. Stores that are missing here may exist: nothing is
    /// dropped because they are missing.
    pub is_partial: bool,
    /// The constant properties; `None` before the cluster was made.
    pub cluster: Option<ClusterRecord>,
    /// The routing table; `None` before there are enough nodes.
    pub routing: Option<Revised<RoutingTable>>,
    /// The numbers given out last; `None` before the first.
    pub numbers: Option<Revised<Numbers>>,
    /// All nodes that ever had a number: a record is never deleted, so that no number is ever reused.
    pub nodes: BTreeMap<NodeId, Revised<NodeRecord>>,
    /// The live nodes.
    pub announcements: BTreeMap<Identity, Announcement>,
    /// The live routers.
    pub routers: BTreeMap<Identity, RouterRecord>,
    /// All stores.
    pub stores: BTreeMap<StoreName, Revised<StoreRecord>>,
    /// The last dropped stores, by their numbers.
    pub dropped: BTreeMap<u16, Revised<DroppedStore>>,
    /// The schemas of stores, of dropped ones too.
    pub schemas: BTreeMap<SchemaKey, Revised<SchemaRecord>>,
    /// The plans: proposed, under way, and the last ones that ended.
    pub plans: BTreeMap<u64, Revised<PlanRecord>>,
    /// The users.
    pub users: BTreeMap<UserName, Revised<UserRecord>>,
    /// The reports of nodes about their replicas.
    pub reports: BTreeMap<NodeId, ReportRecord>,
}

impl ClusterView {
    /// Whether a node is live: a node has announced itself with the identity that has this number.
    pub fn is_live(&self, node: NodeId) -> bool {
        let record = self.nodes.get(&node);
        record.is_some_and(|node| self.announcements.contains_key(&node.record.identity))
    }

    /// The nodes without those that are gone for good.
    pub fn listed_nodes(&self) -> impl Iterator<Item = &Revised<NodeRecord>> {
        let nodes = self.nodes.values();
        nodes.filter(|node| !node.record.forgotten || self.is_live(node.record.id))
    }

    /// The [protocol](protocol) in force: the lowest one of all members, so that each of them understands all that is
    /// written. An absent node counts, unless an operator has given it up and it has no partitions any more: until then it may
    /// have the only copy of its data.
    pub fn protocol(&self) -> u32 {
        let owns_any = |node: NodeId| {
            let lists = self.routing.as_ref().map(|table| table.record.all_owners());
            lists.unwrap_or_default().iter().any(|owners| owners.contains(&node))
        };
        let is_given_up =
            |node: &NodeRecord| node.mark == Some(NodeMark::Leaving) && !self.is_live(node.id) && !owns_any(node.id);
        let nodes = self.nodes.values().map(|node| &node.record);
        let nodes = nodes.filter(|node| !is_given_up(node)).map(|node| node.protocol);
        // The entry of a node that has just come back is newer than its record.
        let live = self.announcements.values().map(|node| node.protocol);
        let routers = self.routers.values().map(|router| router.protocol);
        nodes.chain(live).chain(routers).min().unwrap_or_else(protocol)
    }

    /// The schemas of the store with this number, oldest first.
    pub fn schemas_of(&self, store: u16) -> impl DoubleEndedIterator<Item = &SchemaRecord> {
        let range = SchemaKey { store, id: 0 }..=SchemaKey { store, id: u16::MAX };
        self.schemas.range(range).map(|(_, schema)| &schema.record)
    }

    /// The plan that is under way: one at a time.
    pub fn plan_under_way(&self) -> Option<&Revised<PlanRecord>> {
        self.plans.values().find(|plan| plan.record.state.is_under_way())
    }

    /// How many partitions there are; `None` before there is a cluster.
    pub fn partitions(&self) -> Option<PartitionCount> {
        let table = self.routing.as_ref().map(|table| table.record.partitions());
        table.or(self.cluster.as_ref().map(|cluster| cluster.partitions))
    }

    /// For how many partitions a version may be built: as many as there are, or were before splits.
    pub fn buildable(&self) -> Option<RangeInclusive<PartitionCount>> {
        let first = self.cluster.as_ref()?.partitions;
        Some(first..=self.partitions()?)
    }

    /// About how many bytes a partition has on a node: the kept versions of batch stores, divided evenly.
    pub fn partition_bytes(&self) -> u64 {
        let Some(table) = &self.routing else { return 0 };
        let stores = self.stores.values().map(|store| &store.record);
        let kept = stores.flat_map(|store| store.versions.kept().filter_map(|version| store.details.get(&version)));
        let bytes: u64 = kept.map(|detail| detail.bytes).sum();
        bytes / u64::from(table.record.partitions().get())
    }

    /// The dropped stores whose records nodes still replicate, so that they can be restored whole: the last dropped one of
    /// each name that no other store has, if it is versioned, its data outlives a process, and is kept at this time of day.
    pub fn restorable(&self, now_unix_ms: u64) -> impl Iterator<Item = &StoreRecord> {
        let taken: BTreeSet<u16> = self.stores.values().map(|store| store.record.id).collect();
        let mut last = BTreeMap::<&StoreName, &DroppedStore>::new();
        for Revised { record, .. } in self.dropped.values() {
            let known = last.entry(&record.record.definition.name).or_insert(record);
            if record.dropped_unix_ms >= known.dropped_unix_ms {
                *known = record;
            }
        }
        last.retain(|name, dropped| {
            let is_free = !self.stores.contains_key(*name) && !taken.contains(&dropped.record.id);
            is_free && dropped.kept_until_unix_ms > now_unix_ms
        });
        let records = last.into_values().map(|dropped| &dropped.record);
        records.filter(|store| {
            let settings = store.definition.versioned;
            settings.is_some_and(|settings| !settings.engine.is_volatile())
        })
    }

    /// The partitions of a store that moved without it, each with its former owners. These may have the last copies.
    pub fn stuck<'a>(&'a self, store: &StoreName) -> impl Iterator<Item = (PartitionId, &'a [NodeId])> {
        let record = self.stores.get(store).map(|store| &store.record);
        let plans = self.plans.values().map(|plan| &plan.record);
        let stuck = plans.filter_map(move |plan| Some((plan, plan.stuck.get(store)?)));
        let stuck = stuck.filter(move |(_, stuck)| record.is_some_and(|record| stuck.is_missed(record)));
        stuck.flat_map(|(plan, stuck)| {
            let before = plan
                .before
                .iter()
                .filter(|(partition, _)| stuck.partitions.contains(**partition));
            let count = self.partitions().unwrap_or(stuck.count);
            before.flat_map(move |(&partition, owners)| {
                // There may be more partitions now.
                let now = PartitionSet::from_iter([partition]).among(stuck.count, count);
                let now: Vec<_> = now.iter().collect();
                now.into_iter().map(move |partition| (partition, owners.as_slice()))
            })
        })
    }

    /// How many replicas a store has: the operator's number, or the cluster's, even if there are fewer nodes; or [`EVERYWHERE`].
    pub fn replicas(&self, store: &StoreRecord) -> usize {
        self.copies(store).owners
    }

    /// The same, and the number that it is about to have, or had.
    pub fn copies(&self, store: &StoreRecord) -> Copies {
        let replicas = self.replicas_defined(store);
        let table = self.routing.as_ref().map(|table| &table.record);
        let table = table.filter(|_| store.definition.versioned.is_some());
        table.map_or(Copies::of(replicas), |table| table.copies(store.id, replicas))
    }

    /// The settings of a versioned store, with the quorums of the owners.
    pub fn settings(&self, store: &StoreRecord) -> Option<VersionedSettings> {
        let settings = store.definition.versioned?;
        let counts = self
            .routing
            .as_ref()
            .and_then(|table| table.record.counts().get(&store.id));
        Some(counts.map_or(settings, |counts| settings.with_quorums(&counts.now)))
    }

    /// The number in its definition.
    fn replicas_defined(&self, store: &StoreRecord) -> usize {
        if store.definition.everywhere {
            return EVERYWHERE as usize;
        }
        let cluster = self.cluster.as_ref();
        let cluster = cluster.map_or(1, |cluster| cluster.placement.replicas(cluster.replicas));
        store.definition.replicas.unwrap_or(cluster) as usize
    }

    /// How many nodes a list of the routing table should have, if the cluster has as many: enough for each store, and for those
    /// that can be restored.
    pub fn list_length(&self) -> u32 {
        let Some(cluster) = &self.cluster else { return 1 };
        if cluster.placement.is_whole() {
            return cluster.replicas;
        }
        let dropped = self.dropped.values().map(|dropped| &dropped.record.record);
        let stores = self.stores.values().map(|store| &store.record).chain(dropped);
        let own = stores.filter_map(|store| store.definition.replicas);
        let counts = self.routing.iter().flat_map(|table| table.record.counts().values());
        let counted = counts.flat_map(|counts| [Some(counts.now), counts.joint]).flatten();
        let all = own.chain(counted.map(|quorums| quorums.replicas));
        all.max().unwrap_or(0).max(cluster.replicas)
    }
}
