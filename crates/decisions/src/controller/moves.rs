//! Whether the moves of partitions that have begun may switch, or have failed.

use fondaco_model::cluster::{NodeMark, PlanRecord, ReplicaReport, StoreRecord, StuckStore};
use fondaco_model::versioned::{Compared, Other, has_enough};
use fondaco_model::{NodeId, PartitionCount, PartitionId, PartitionSet, RoutingTable, StoreKind, first_replicas};

use super::Input;
use crate::layout::Layouts;
use crate::readiness::Reports;

/// The evidence about the moves under way.
pub(super) struct Moves<'a> {
    input: &'a Input<'a>,
    table: &'a RoutingTable,
    /// The reports about each store whose data moves carry.
    carried: Vec<Reports<'a>>,
    /// Whether a node has been away for so long that no move waits for it.
    is_gone: &'a dyn Fn(NodeId) -> bool,
    /// Whether a node has been away since the plan was made, or for longer: a store that only such nodes have may be left behind.
    is_lost: &'a dyn Fn(NodeId) -> bool,
}

/// Data that a next owner has not proved to have.
pub(super) struct Lacking<'a> {
    store: &'a StoreRecord,
    node: NodeId,
    /// Its report of a version, if it has sent one.
    replica: Option<&'a ReplicaReport>,
}

impl<'a> Moves<'a> {
    pub(super) fn new(
        layouts: &mut Layouts,
        input: &'a Input<'a>,
        is_gone: &'a dyn Fn(NodeId) -> bool,
        is_lost: &'a dyn Fn(NodeId) -> bool,
    ) -> Self {
        let table = &input.table.record;
        let stores = input.carried.iter().filter(|_| table.is_moving());
        Self {
            input,
            table,
            carried: stores.map(|store| input.reports(layouts, store)).collect(),
            is_gone,
            is_lost,
        }
    }

    /// The data that the partition moves without if it switches now; `None` if it has to wait for some of it.
    pub(super) fn left_behind(&self, partition: PartitionId, next: &[NodeId]) -> Option<Vec<Lacking<'a>>> {
        let lacking: Vec<Lacking<'a>> = self
            .carried
            .iter()
            .flat_map(|reports| self.lacking(reports, partition, next))
            .collect();
        let is_stuck = |one: &Lacking<'_>| self.is_stuck(one.store, one.replica, partition, next);
        lacking.iter().all(is_stuck).then_some(lacking)
    }

    /// The owners of a partition that have a store, and the next ones.
    fn lists<'l>(
        &self,
        store: &StoreRecord,
        partition: PartitionId,
        next: &'l [NodeId],
    ) -> (&'a [NodeId], &'l [NodeId]) {
        let copies = self.input.view.copies(store);
        let owners = self.table.owners(partition);
        (
            first_replicas(owners, copies.owners),
            first_replicas(next, copies.joint),
        )
    }

    /// The data of a store that next owners of a partition have not proved to have, of all kept versions. An owner that stays one
    /// and is gone is not waited for: the move changes nothing for it. At least one of the next owners is there
    /// ([`failure`](Self::failure)).
    fn lacking(&self, reports: &Reports<'a>, partition: PartitionId, next: &[NodeId]) -> Vec<Lacking<'a>> {
        let store = reports.store;
        let (owners, next) = self.lists(store, partition, next);
        let mut lacking = Vec::new();
        if owners == next {
            // Nothing changes for this store.
            return lacking;
        }
        let stays_away = |node: &NodeId| owners.contains(node) && (self.is_gone)(*node);
        for node in next.iter().copied().filter(|node| !stays_away(node)) {
            if store.definition.kind == StoreKind::Versioned && !reports.is_synchronised(node, partition) {
                let replica = None;
                lacking.push(Lacking { store, node, replica });
            }
            for version in store.versions.kept() {
                let replica = reports.replica(node, version);
                if replica.is_none_or(|replica| lacks(reports, node, replica, partition)) {
                    lacking.push(Lacking { store, node, replica });
                }
            }
        }
        lacking
    }

    /// Why a begun move is given up; `None` as long as it may succeed.
    pub(super) fn failure(&self, partition: PartitionId, next: &[NodeId]) -> Option<String> {
        let absent = absent(self.table.owners(partition), next, self.is_gone);
        absent.or_else(|| {
            let mut stores = self.carried.iter();
            stores.find_map(|reports| self.failure_of_store(reports, partition, next))
        })
    }

    fn failure_of_store(&self, reports: &Reports<'_>, partition: PartitionId, next: &[NodeId]) -> Option<String> {
        let store = reports.store;
        let copies = self.input.view.copies(store);
        // Of a store with fewer replicas, a new order of the owners moves a replica, too.
        let (owners, firsts) = self.lists(store, partition, next);
        if copies.owners != copies.joint
            && let Some(&node) = firsts.iter().find(|node| (self.is_gone)(**node))
        {
            return Some(format!("node {node}, one of its next replicas, is absent"));
        }
        let mut receivers = firsts.iter().copied().filter(|node| !owners.contains(node));
        receivers.find_map(|node| {
            if (self.is_gone)(node) {
                return Some(absent_receiver(node));
            }
            if let Some(few) = self.too_few(store, owners, node) {
                return Some(few);
            }
            let mut replicas = store
                .versions
                .kept()
                .filter_map(|version| reports.replica(node, version));
            let failed = replicas.find(|&replica| {
                let failed = replica.gave_up && lacks(reports, node, replica, partition);
                failed && !self.is_stuck(store, Some(replica), partition, next)
            })?;
            let name = &store.definition.name;
            Some(format!("store \"{name}\": {}", could_not_fetch(node, Some(failed))))
        })
    }

    /// Why a node can never have all records of a partition: too many of its owners are gone to compare it with. Those that an
    /// operator has given up do not count.
    fn too_few(&self, store: &StoreRecord, owners: &[NodeId], receiver: NodeId) -> Option<String> {
        let settings = store.definition.versioned?;
        let is_leaving = |node| {
            let record = self.input.view.nodes.get(&node);
            record.is_some_and(|node| node.record.mark == Some(NodeMark::Leaving))
        };
        let is_gone = self.is_gone;
        let enough = has_enough(&settings, owners, receiver, |node| Other {
            is_live: false,
            is_given_up: is_gone(node) && is_leaving(node),
            compared: (!is_gone(node)).then_some(Compared::Whole),
        });
        let gone = owners.iter().filter(|&&node| is_gone(node)).map(NodeId::to_string);
        let (gone, name): (Vec<String>, _) = (gone.collect(), &store.definition.name);
        let gone = gone.join(", ");
        (!enough)
            .then(|| format!("node {receiver} cannot have all records of store {name}: its owners {gone} are absent"))
    }

    /// Whether a partition moves without a store, which is fetched later if that becomes possible: the nodes that give up replicas
    /// of it are absent, and the next owner fails to fetch it. As long as another owner has it, all attempts must fail.
    fn is_stuck(
        &self,
        store: &StoreRecord,
        replica: Option<&ReplicaReport>,
        partition: PartitionId,
        next: &[NodeId],
    ) -> bool {
        let (owners, next) = self.lists(store, partition, next);
        let is_lost = |node: &NodeId| (self.is_lost)(*node);
        let mut giving = owners.iter().filter(|node| !next.contains(node)).peekable();
        let has_lost = giving.peek().is_some() && giving.all(is_lost);
        has_lost
            && replica.is_some_and(|replica| match owners.iter().all(is_lost) {
                true => replica.error.is_some(),
                false => replica.gave_up,
            })
    }
}

impl Lacking<'_> {
    /// Notes in a plan that a partition moves without it.
    pub(super) fn note(&self, plan: &mut PlanRecord, partition: PartitionId, count: PartitionCount) {
        let new = StuckStore {
            id: self.store.id,
            newest: self.store.versions.kept().max(),
            partitions: PartitionSet::EMPTY,
            count,
            error: could_not_fetch(self.node, self.replica),
        };
        let name = self.store.definition.name.clone();
        let known = plan.stuck.remove(&name).filter(|known| known.id == new.id);
        let partitions = known.map_or(PartitionSet::EMPTY, |known| known.partitions);
        let stuck = plan.stuck.entry(name).or_insert(StuckStore { partitions, ..new });
        stuck.partitions.insert(partition);
    }
}

fn could_not_fetch(node: NodeId, replica: Option<&ReplicaReport>) -> String {
    let error = replica.and_then(|replica| replica.error.as_deref());
    let error = error.unwrap_or("it gives no reason");
    format!("node {node} could not fetch it: {error}")
}

/// Whether a node with this report cannot take over a partition yet. Of a store that is everywhere a node without partitions needs
/// all, as it is asked for all of them from then on; the others are asked for them already.
fn lacks(reports: &Reports<'_>, node: NodeId, replica: &ReplicaReport, partition: PartitionId) -> bool {
    match reports.store.definition.everywhere && reports.layout.owned_by(node).is_empty() {
        true => !replica.lacking.is_empty(),
        false => replica.lacking.contains(partition),
    }
}

/// Why a partition cannot move to its next owners, if that is because nodes are gone.
pub(super) fn absent(owners: &[NodeId], next: &[NodeId], is_gone: &dyn Fn(NodeId) -> bool) -> Option<String> {
    let mut receivers = next.iter().filter(|node| !owners.contains(node));
    if let Some(&node) = receivers.find(|&&node| is_gone(node)) {
        return Some(absent_receiver(node));
    }
    let are_all_gone = next.iter().all(|&node| is_gone(node));
    are_all_gone.then(|| "the nodes that were to keep it are absent".to_owned())
}

fn absent_receiver(node: NodeId) -> String {
    format!("node {node}, which was to get it, is absent")
}
