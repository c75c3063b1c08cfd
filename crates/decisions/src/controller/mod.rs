//! The next changes of the leading controller.
//!
//! It is a function of its view, and of how long it has seen it. It remembers only times: since when a node has been
//! absent, and when a fetch last made progress. So a new leader continues where the previous one stopped; at worst it
//! waits again for late nodes.
//!
//! Each change depends on the revisions of all entries that it was decided on. If another change came first, it fails,
//! and the next look decides anew.

mod canary;
mod gates;
mod moves;
mod nodes;
mod plan;
mod push;

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::cluster::{ClusterView, Revised, StoreRecord};
use fondaco_model::{Copies, NodeId, RoutingTable};

use super::change::{Change, Write};
use super::clock::{Now, WatchedClock};
use super::layout::Layouts;
use super::readiness::Reports;
use super::space::is_over_quota;
pub use gates::awaits_comparison;
pub(super) use gates::stale;
use push::{Pushes, Step};

/// How patient a controller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a node must have been away before pushes continue without it, in milliseconds.
    pub absent_after_ms: u64,
    /// How long a fetch may make no progress before pushes continue without its node, in milliseconds.
    pub stall_after_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            absent_after_ms: 10_000,
            stall_after_ms: 600_000,
        }
    }
}

/// The decision logic of the leading controller.
#[derive(Debug, Default)]
pub struct Controller {
    patience: Patience,
    clock: WatchedClock,
    layouts: Layouts,
    /// Since when nodes have been away, by the watched clock.
    absent_since_ms: BTreeMap<NodeId, u64>,
    pushes: Pushes,
    problems: Vec<String>,
}

/// The input of a decision about stores.
struct Input<'a> {
    view: &'a ClusterView,
    table: &'a Revised<RoutingTable>,
    now: Now,
    /// The present time of the watched clock.
    at_ms: u64,
    /// The stores whose data moves carry: all stores, and the dropped ones that can be restored.
    carried: Vec<&'a StoreRecord>,
}

impl<'a> Input<'a> {
    /// The reports of nodes about a store.
    fn reports(&self, layouts: &mut Layouts, store: &'a StoreRecord) -> Reports<'a> {
        let layout = layouts.of(&self.table.record, self.view.copies(store));
        Reports::of(self.view, store, layout)
    }
}

impl Controller {
    /// The limit of changes of one look; the next look makes more.
    pub const CHANGES_MAX: usize = 256;

    /// A controller that has just begun to lead.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            ..Self::default()
        }
    }

    /// The changes to make now, in this order. To be called whenever the view has changed, and every second; and again
    /// at once after it returned [`CHANGES_MAX`](Self::CHANGES_MAX) changes.
    pub fn decide(&mut self, view: &ClusterView, now: Now) -> Vec<Change> {
        let mut problems = Vec::new();
        let at_ms = self.clock.advance(now.monotonic_ms);
        let Some(cluster) = view.cluster.as_ref().filter(|_| !view.remembered) else {
            self.problems = problems;
            return Vec::new();
        };
        self.note_absences(view, at_ms);
        let mut changes = nodes::admit(view, |node| self.is_absent(view, node, at_ms), &mut problems);
        match &view.routing {
            None => match nodes::first_table(cluster, view) {
                Ok(first) => changes.extend(first),
                Err(error) => problems.push(error.to_string()),
            },
            Some(table) => {
                let stores = view.stores.values().map(|store| &store.record);
                let input = Input {
                    view,
                    table,
                    now,
                    at_ms,
                    carried: stores.chain(view.restorable(now.unix_ms)).collect(),
                };
                self.pushes.forget_others(view);
                changes.extend(view.stores.values().filter_map(|store| self.store(&input, store)));
                // The switch of a move depends on all stores: it waits until nothing else changes them.
                if changes.is_empty() {
                    let is_away = |node, for_ms| has_been_away(&self.absent_since_ms, view, node, at_ms, for_ms);
                    changes.extend(plan::next_steps(&mut self.layouts, &input, self.patience, is_away));
                }
            }
        }
        changes.truncate(Self::CHANGES_MAX);
        self.problems = problems;
        changes
    }

    /// The problems that limited the last decision, for people.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// For how long a node has been absent, as far as this controller has seen, in milliseconds; 0 if it is live.
    pub fn absent_ms(&self, node: NodeId) -> u64 {
        let since_ms = self.absent_since_ms.get(&node);
        since_ms.map_or(0, |since_ms| self.clock.last().saturating_sub(*since_ms))
    }

    fn note_absences(&mut self, view: &ClusterView, at_ms: u64) {
        let absent = |node: &NodeId| !view.is_live(*node);
        self.absent_since_ms
            .retain(|node, _| view.nodes.contains_key(node) && absent(node));
        for &node in view.nodes.keys().filter(|node| absent(node)) {
            self.absent_since_ms.entry(node).or_insert(at_ms);
        }
    }

    /// Whether a node has been absent for so long that pushes no longer wait for it.
    fn is_absent(&self, view: &ClusterView, node: NodeId, at_ms: u64) -> bool {
        has_been_away(&self.absent_since_ms, view, node, at_ms, self.patience.absent_after_ms)
    }

    /// The next change of a store.
    fn store<'a>(&mut self, input: &Input<'a>, store: &'a Revised<StoreRecord>) -> Option<Change> {
        if let Some(change) = self.push_change(input, store) {
            return Some(change.while_same_routing(input.view));
        }
        let late = self.late(input, &store.record);
        let over_quota = is_over_quota(input.view, &store.record);
        if late == store.record.late && over_quota == store.record.over_quota {
            return None;
        }
        let record = StoreRecord {
            late,
            over_quota,
            ..store.record.clone()
        };
        Some(Change::of([Write::over(store, record)]).while_same_routing(input.view))
    }

    /// The next step of a store's push, and of those that it is pushed with, which is decided for the first of these stores.
    fn push_change<'a>(&mut self, input: &Input<'a>, store: &'a Revised<StoreRecord>) -> Option<Change> {
        let set = match push::set_of(input.view, store) {
            Ok(set) => set,
            Err(reason) => {
                let record = Step::Fail { reason }.apply(&store.record, input.now.unix_ms);
                return Some(Change::of([Write::over(store, record)]));
            }
        };
        if set.first()?.record.id != store.record.id {
            return None;
        }
        let steps: Vec<_> = set.iter().map(|store| self.push_step(input, &store.record)).collect();
        // Each version is compared with the one before as soon as it is there.
        if let Some(at) = steps.iter().position(|step| matches!(step, Some(Step::Compare))) {
            let record = Step::Compare.apply(&set[at].record, input.now.unix_ms);
            return Some(Change::of([Write::over(set[at], record)]));
        }
        let steps = push::joint_steps(&set, steps)?;
        let is_swap = steps.iter().all(|step| matches!(step, Step::Swap { .. }));
        let writes = set.iter().zip(steps).map(|(store, step)| {
            let record = step.apply(&store.record, input.now.unix_ms);
            Write::over(store, record)
        });
        let change = Change::of(writes);
        Some(if is_swap { change.joined(input.view) } else { change })
    }

    fn push_step<'a>(&mut self, input: &Input<'a>, store: &'a StoreRecord) -> Option<Step> {
        let push = store.push.as_ref().filter(|_| store.pushing().is_some())?;
        if let Some(lost) = push::lost_base(store, push) {
            return Some(lost);
        }
        let reports = input.reports(&mut self.layouts, store);
        self.pushes.observe(input, store, push.version, &reports);
        let mut missing = Vec::new();
        for &node in reports.layout.owned.keys() {
            if reports.is_ready(node, push.version) {
                continue;
            }
            let given_up = match self.is_absent(input.view, node, input.at_ms) {
                true => Some("it is absent".to_owned()),
                false => {
                    let replica = reports.replica(node, push.version);
                    let stall_after_ms = self.patience.stall_after_ms;
                    self.pushes.given_up(input, store, node, replica, stall_after_ms)
                }
            };
            missing.push((node, given_up));
        }
        let fetched = push::step(store, push.version, &reports.layout, &missing);
        let fetched = fetched.and_then(|step| gates::gated(store, push, step));
        match &push.canary {
            None => fetched,
            Some(of_push) => {
                let nodes = reports.layout.owned.keys();
                let counts = nodes.filter_map(|&node| reports.replica(node, push.version)?.canary);
                canary::step(store, push.version, of_push, fetched, counts, input.now.unix_ms)
            }
        }
    }

    /// The nodes that must not be asked for a store, since they do not have its current version.
    ///
    /// Without a report, nothing is known about a node: its state stays. A node does not become late if that would
    /// leave a partition without a node to ask; or, where a store has just become everywhere, before half of its nodes have
    /// all of it, since the first one would get all requests: as long as it has the partitions of its own.
    fn late<'a>(&mut self, input: &Input<'a>, store: &'a StoreRecord) -> BTreeSet<NodeId> {
        let mut late = store.late.clone();
        let Some(current) = store.versions.current() else {
            return late;
        };
        let lists = self.layouts.of(&input.table.record, Copies::of(u32::MAX as usize));
        let reports = input.reports(&mut self.layouts, store);
        let layout = &reports.layout;
        let replica = |node| reports.replica(node, current);
        let state = |node| replica(node).map(|replica| replica.state.is_ready());
        late.retain(|&node| layout.owned.contains_key(&node) && state(node) != Some(true));
        let behind = layout.owned.iter().filter(|&(&node, _)| state(node) == Some(false));
        let has_its_own = |node| {
            let own = lists.owned_by(node);
            replica(node).is_some_and(|replica| own.without(&replica.lacking) == *own)
        };
        for (&node, owned) in behind {
            let mut with = late.clone();
            with.insert(node);
            let asked = layout.owned.keys().copied();
            let asked = asked.filter(|&other| !with.contains(&other) && state(other) == Some(true));
            let enough = match store.definition.everywhere && has_its_own(node) {
                true => layout.owned.len() / 2,
                false => 1,
            };
            if asked.clone().count() >= enough && layout.covered(asked).covers(owned) {
                late = with;
            }
        }
        late
    }
}

/// Whether a node has been away for at least this time, or is unknown.
fn has_been_away(
    absent_since_ms: &BTreeMap<NodeId, u64>,
    view: &ClusterView,
    node: NodeId,
    at_ms: u64,
    for_ms: u64,
) -> bool {
    let since_ms = absent_since_ms.get(&node);
    !view.nodes.contains_key(&node) || since_ms.is_some_and(|since_ms| at_ms - since_ms >= for_ms)
}
