//! Changes of a versioned store's quorums. Those of its number of replicas are made by a plan, since the next owners need the
//! records that the present ones have.
//!
//! The store's definition changes when they have them. A batch or hybrid store needs no plan: a node that does not have its
//! partitions yet is not asked for them.

use fondaco_model::cluster::{ClusterView, PlanCount, PlanMaker, PlanRecord, PlanState, Revised, StoreRecord};
use fondaco_model::versioned::{Quorums, VersionedSettings};
use fondaco_model::{RoutingTable, StoreChange, first_replicas};

use super::OperatorError;
use super::lists::{ReplicasMax, lengthened};
use super::plan::{check_no_plan, next_number, saved};
use crate::change::{Change, RecordPath, Write};

/// The settings that a versioned store is to have with this number of replicas: majorities stay majorities, unless the change
/// says otherwise.
pub(super) fn next_settings(
    view: &ClusterView,
    store: &StoreRecord,
    replicas: u32,
    change: &StoreChange,
) -> Option<VersionedSettings> {
    let settings = view.settings(store)?;
    let replicas_now = view.replicas(store) as u32;
    let followed = match replicas == replicas_now {
        true => settings,
        false => settings.with(&settings.follow_replicas(replicas_now, replicas)),
    };
    let change = change.versioned.as_ref();
    Some(change.map_or(followed, |change| followed.with(change)))
}

/// A change of a versioned store's quorums.
pub(super) struct QuorumChange<'a> {
    pub(super) view: &'a ClusterView,
    pub(super) before: &'a Revised<StoreRecord>,
    /// The store after all other changes, with the quorums that it is to have.
    pub(super) record: StoreRecord,
    pub(super) now: Quorums,
    pub(super) next: Quorums,
    /// Whether the operator chose the number of reads or of writes.
    pub(super) names_quorums: bool,
}

impl QuorumChange<'_> {
    /// The change: at once, or by a plan if the number of replicas changes.
    ///
    /// # Errors
    /// A plan is under way, nodes are missing, or reads would miss acknowledged writes.
    pub(super) fn carry_out(self, now_unix_ms: u64) -> Result<Change, OperatorError> {
        let Some(table) = self.view.routing.as_ref().filter(|_| self.now != self.next) else {
            return Ok(Change::of([Write::over(self.before, self.record)]));
        };
        // The quorums of the plan were checked against those that the store had then.
        let plan = self.view.plan_under_way().map(|plan| &plan.record);
        let is_of_store = |count: &PlanCount| count.id == self.record.id;
        if plan.is_some_and(|plan| plan.count.as_ref().is_some_and(is_of_store)) {
            check_no_plan(self.view)?;
        }
        match self.now.replicas == self.next.replicas {
            true => self.at_once(table),
            false => self.by_plan(table, now_unix_ms),
        }
    }

    /// Changes the quorums in the store's record, and in the routing table if that names them.
    fn at_once(self, table: &Revised<RoutingTable>) -> Result<Change, OperatorError> {
        let after = table.record.with_quorums(self.record.id, self.next);
        if after.is_none() && table.record.counts().contains_key(&self.record.id) {
            // The plan that changes its number of replicas has ended, and its moves have not.
            let number = self.view.plan_under_way().map(|plan| plan.record.number);
            let number = number.unwrap_or(next_number(self.view) - 1);
            return Err(OperatorError::PlanInProgress { number });
        }
        let store = Write::over(self.before, self.record);
        let routing = after.map(|after| Write::over(table, after));
        Ok(Change::of([store].into_iter().chain(routing)))
    }

    /// Makes a plan for another number of replicas, and runs it.
    fn by_plan(mut self, table: &Revised<RoutingTable>, now_unix_ms: u64) -> Result<Change, OperatorError> {
        check_no_plan(self.view)?;
        self.check_reads()?;
        let longer = lengthened(self.view, self.next.replicas)?;
        let lists = longer.as_ref().unwrap_or(&table.record);
        self.check_lengths(lists)?;
        let plan = self.plan(lists, now_unix_ms);
        let mut next = plan.next.values().flatten();
        if let Some(&node) = next.find(|node| !self.view.is_live(**node)) {
            return Err(OperatorError::NodeAbsent { node });
        }
        // Until the plan has switched.
        let before = &self.before.record.definition;
        let definition = &mut self.record.definition;
        definition.replicas = before.replicas;
        definition.versioned = definition.versioned.map(|settings| settings.with_quorums(&self.now));
        let mut change = saved(self.view, plan);
        change.writes.push(Write::over(self.before, self.record));
        match longer {
            Some(longer) => change.writes.push(Write::over(table, longer)),
            None => change.unchanged.push((RecordPath::Routing, table.revision)),
        }
        Ok(change)
    }

    /// The running plan that moves all partitions from the present owners in these lists to the next ones.
    fn plan(&self, lists: &RoutingTable, now_unix_ms: u64) -> PlanRecord {
        let StoreRecord { id, definition, .. } = &self.record;
        let owners = |quorums: Quorums| {
            let owners = lists.all_owners().iter();
            let owners = owners.map(|list| first_replicas(list, quorums.replicas as usize).to_vec());
            lists.partitions().partitions().zip(owners).collect()
        };
        let (now, next) = (self.now, self.next);
        PlanRecord {
            state: PlanState::Running,
            count: Some(PlanCount {
                store: definition.name.clone(),
                id: *id,
                now,
                next,
            }),
            reason: format!(
                "store {} is to have {} replicas instead of {}",
                definition.name, next.replicas, now.replicas
            ),
            made_unix_ms: now_unix_ms,
            ..PlanRecord::new(next_number(self.view), PlanMaker::Operator, owners(now), owners(next))
        }
    }

    fn check_lengths(&self, lists: &RoutingTable) -> Result<(), OperatorError> {
        let replicas = self.next.replicas;
        if lists.all_owners().iter().all(|list| list.len() >= replicas as usize) {
            return Ok(());
        }
        let ReplicasMax { number, reason } = ReplicasMax::of(self.view)?;
        Err(self.invalid(format!(
            "not all partitions can have {replicas} replicas: a store has 1 to {number}, {reason}"
        )))
    }

    /// Refuses numbers with which reads would miss acknowledged writes, of a store whose reads see all of them.
    fn check_reads(&self) -> Result<(), OperatorError> {
        let (now, next, store) = (&self.now, &self.next, &self.record.definition.name);
        let is_sloppy = self.view.settings(&self.record).is_none_or(|settings| settings.sloppy);
        if !now.overlap() || is_sloppy {
            return Ok(());
        }
        let Quorums {
            replicas,
            reads,
            writes,
            ..
        } = *next;
        let reason = match (next.overlap(), next.follow(now)) {
            (true, true) => return Ok(()),
            (false, _) if self.names_quorums => return Ok(()),
            (false, _) => format!(
                "with {reads} reads and {writes} writes of {replicas} replicas a read could miss acknowledged writes; choose R + W > \
                 {replicas}: fondaco store alter {store} --replicas {replicas} --reads R --writes W"
            ),
            (true, false) if now.replicas - now.writes < replicas => format!(
                "{reads} reads of {replicas} replicas could miss writes that {} of {} replicas have acknowledged; read more: fondaco store \
                 alter {store} --replicas {replicas} --reads {} --writes {writes}",
                now.writes,
                now.replicas,
                now.replicas - now.writes + 1
            ),
            (true, false) => format!(
                "{replicas} replicas instead of {}, with {reads} reads: a read could miss writes that {} of {} replicas have \
                 acknowledged; lower the number one by one, first: fondaco store alter {store} --replicas {}",
                now.replicas,
                now.writes,
                now.replicas,
                now.replicas.saturating_sub(1).max(1)
            ),
        };
        Err(self.invalid(reason))
    }

    fn invalid(&self, reason: String) -> OperatorError {
        OperatorError::InvalidDefinition {
            store: self.record.definition.name.clone(),
            reason,
        }
    }
}
