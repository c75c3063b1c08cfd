//! The leading controller decides from time to time whether partitions should move, and has plans made or run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::{Setting, Settings};
use fondaco_cluster::load_window;
use fondaco_decisions::balance::{
    BalanceInput, BalanceMode, Decision, Departure, NodeLoad, Outcome, PartitionState, decide,
};
use fondaco_decisions::operator::{AnalyzerPlan, MoveCosts, analyzer_plan};
use fondaco_decisions::{Change, Record};
use fondaco_model::cluster::{ClusterView, NodeMark, PlanMaker, PlanState};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::now_unix_ms;

use crate::balance_settings::{balance_settings, decision_period, move_rates};
use crate::cluster_load::ClusterLoad;
use crate::journal::{Journal, Kept};
use crate::machines::Machines;

/// The inputs of decisions, and their state in a term.
pub(crate) struct Balancer {
    pub(crate) cluster_load: Arc<ClusterLoad>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) settings: Arc<Settings>,
    /// When the last decision was made; `None` in a term before the first.
    last: Option<Instant>,
    struggled: std::collections::BTreeSet<NodeId>,
    /// Machines on demand, if there is a hook.
    machines: Option<Machines>,
    /// The epoch of the routing table in the last pass, to notice that partitions have moved.
    epoch: u64,
}

impl Balancer {
    pub(crate) fn new(
        cluster_load: Arc<ClusterLoad>,
        journal: Arc<Journal>,
        settings: Arc<Settings>,
        machines: Option<Machines>,
    ) -> Self {
        Self {
            cluster_load,
            journal,
            settings,
            last: Some(Instant::now()),
            struggled: Default::default(),
            machines,
            epoch: 0,
        }
    }

    /// How often the hook for machines has failed for the request under way.
    pub(crate) fn hook_failures(&self) -> u32 {
        self.machines.as_ref().map_or(0, Machines::failures)
    }

    /// When the next decision is to be made.
    pub(crate) fn wait(&self) -> Duration {
        let period = decision_period(&self.settings);
        self.last
            .map_or(Duration::ZERO, |last| period.saturating_sub(last.elapsed()))
    }

    /// Decides, if it is time to. Returns the change that makes a plan or runs it.
    pub(crate) fn decide_if_due(
        &mut self,
        view: &ClusterView,
        absent_ms: impl Fn(NodeId) -> u64,
    ) -> Option<(Change, Kept)> {
        if let Some(table) = &view.routing {
            if self.epoch != 0 && self.epoch != table.record.epoch() {
                self.cluster_load.settle();
            }
            self.epoch = table.record.epoch();
        }
        if !self.wait().is_zero() {
            return None;
        }
        self.last = Some(Instant::now());
        if self.settings.get(Setting::BalanceMode) == 0 {
            return None;
        }
        let input = input_of(&self.cluster_load, &self.settings, view, absent_ms)?;
        let input = BalanceInput {
            number: self.journal.next_number(),
            machines: self.machines.as_mut().and_then(|machines| machines.input(view)),
            struggled: self.struggled.clone(),
            ..input
        };
        let decision = decide(&input);
        if let (Some(machines), Some(known), Some(decided)) = (&mut self.machines, &input.machines, &decision.machines)
        {
            machines.carry_out(view, &known.state, decided);
        }
        self.struggled.clone_from(&decision.struggling);
        let mut kept = Kept {
            input: Some(input),
            decision,
            plan: None,
        };
        match self.plan(view, &kept.decision) {
            None => {
                kept.plan = proposed_already(view, &kept.decision);
                self.journal.add(kept);
                None
            }
            Some(change) => {
                let plan = change.writes.iter().find_map(|write| match &write.record {
                    Some(Record::Plan(plan)) => Some(plan.number),
                    _ => None,
                });
                kept.plan = plan;
                Some((change, kept))
            }
        }
    }

    /// The plan of a decision, as a change; `None` if nothing moves, or the same is proposed already.
    fn plan(&self, view: &ClusterView, decision: &Decision) -> Option<Change> {
        let Outcome::Move { next, leaving, .. } = &decision.outcome else {
            return None;
        };
        let sizes = self.cluster_load.sizes();
        let fallback = view.partition_bytes();
        let costs = MoveCosts {
            bytes: &|partition| sizes.get(&partition).copied().unwrap_or(fallback),
            rates: move_rates(&self.settings),
        };
        let plan = AnalyzerPlan {
            next,
            leaving,
            reason: decision.reasons.join("; "),
            runs: decision.mode == BalanceMode::Act,
        };
        analyzer_plan(view, &plan, &costs, now_unix_ms())
    }
}

/// The present input of the analyzer, for a decision or for advice; `None` before there is a routing table.
pub fn input_of(
    cluster_load: &ClusterLoad,
    settings: &Settings,
    view: &ClusterView,
    absent_ms: impl Fn(NodeId) -> u64,
) -> Option<BalanceInput> {
    let (cluster, table) = (view.cluster.as_ref()?, &view.routing.as_ref()?.record);
    let window_ms = load_window(settings).as_millis() as u64;
    let settings = balance_settings(settings);
    let means: std::collections::BTreeMap<NodeId, _> = view
        .nodes
        .keys()
        .filter_map(|&node| Some((node, cluster_load.mean(node, window_ms)?)))
        .collect();
    let owners: std::collections::BTreeSet<NodeId> = table.all_owners().iter().flatten().copied().collect();
    let node = |(&id, node): (
        &NodeId,
        &fondaco_model::cluster::Revised<fondaco_model::cluster::NodeRecord>,
    )| {
        let record = &node.record;
        let resources = means.get(&id).map(|mean| mean.resources).unwrap_or_default();
        NodeLoad {
            node: id,
            zone: record.zone.clone(),
            group: record.group.clone(),
            host: record.host.clone(),
            weight: record.weight,
            live: view.is_live(id),
            absent_ms: absent_ms(id),
            // One that has replaced a node is a node like any other.
            backup: record.backup && !owners.contains(&id),
            leaving: record.mark == Some(NodeMark::Leaving),
            maintenance: record.mark == Some(NodeMark::Maintenance),
            known: means.contains_key(&id),
            cpu: (round(resources.cpu), round(resources.cpu_max)),
            memory: (resources.memory, resources.memory_max),
            disk: (resources.disk, resources.disk_max),
            requests: round(resources.requests),
        }
    };
    let sizes = cluster_load.sizes();
    let fallback = view.partition_bytes();
    let partition = |partition: PartitionId| {
        let owners = table.owners(partition);
        let load = |node: &NodeId| means.get(node).and_then(|mean| mean.partitions.get(&partition));
        PartitionState {
            owners: owners.to_vec(),
            requests: owners
                .iter()
                .map(|node| round(load(node).map_or(0.0, |load| load.requests)))
                .collect(),
            costs: owners
                .iter()
                .map(|node| round(load(node).map_or(0.0, |load| load.cost())))
                .collect(),
            bytes: sizes.get(&partition).copied().unwrap_or(fallback),
        }
    };
    let now = now_unix_ms();
    let plans = || view.plans.values().map(|plan| &plan.record);
    let ended = plans().filter(|plan| plan.state == PlanState::Done && !plan.next.is_empty());
    Some(BalanceInput {
        number: 0,
        at_unix_ms: now,
        placement: cluster.placement,
        replicas: view.list_length(),
        plan: plans().find(|plan| plan.state.is_under_way()).map(|plan| plan.number),
        nodes: view.nodes.iter().map(node).collect(),
        partitions: table.partitions().partitions().map(partition).collect(),
        struggled: Default::default(),
        departures: departures(view, now.saturating_sub(settings.stay_ms)),
        // A clock that was far ahead must not delay all decisions until then.
        moved_unix_ms: ended
            .filter_map(|plan| plan.ended_unix_ms)
            .filter(|&at| at <= now.saturating_add(settings.cool_down_ms))
            .max(),
        hot_keys: cluster_load.hot_keys(),
        machines: None,
        settings,
    })
}

/// The plan that proposes what a decision would move.
fn proposed_already(view: &ClusterView, decision: &Decision) -> Option<u64> {
    let Outcome::Move { next, .. } = &decision.outcome else {
        return None;
    };
    let mut plans = view.plans.values().map(|plan| &plan.record);
    let same =
        plans.find(|plan| plan.state == PlanState::Proposed && plan.by == PlanMaker::Analyzer && plan.next == *next);
    same.map(|plan| plan.number)
}

/// The replicas that have left nodes since a time, by whatever plan.
fn departures(view: &ClusterView, since_unix_ms: u64) -> Vec<Departure> {
    let plans = view.plans.values().map(|plan| &plan.record);
    let run =
        plans.filter(|plan| !matches!(plan.state, PlanState::Proposed | PlanState::Replaced) && plan.count.is_none());
    let moves = run.flat_map(|plan| {
        let at_unix_ms = plan.ended_unix_ms.unwrap_or(plan.made_unix_ms);
        let moves = plan
            .moves()
            .into_iter()
            .filter(|one| !plan.given_up.contains_key(&one.partition));
        moves.filter_map(move |one| {
            Some(Departure {
                partition: one.partition,
                node: one.from?,
                at_unix_ms,
            })
        })
    });
    moves.filter(|one| one.at_unix_ms > since_unix_ms).collect()
}

/// To four digits after the point: more are noise.
fn round(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
