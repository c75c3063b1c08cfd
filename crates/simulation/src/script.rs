//! Steps at fixed times, for runs that measure.

use fondaco_decisions::Change;
use fondaco_decisions::operator::{self, MoveCosts, PlanRequest};
use fondaco_model::cluster::ClusterView;
use fondaco_model::{Move, NodeId, PartitionId, StoreDefinition};

use crate::process::Role;
use crate::scenario::Step;
use crate::world::World;

impl World {
    /// Executes a step of the script. An operator's request is written immediately.
    pub(crate) fn step(&mut self, step: Step) {
        self.at_steps.push(self.service.counts);
        let view = self.service.snapshot(true);
        let Ok(name) = "store0".parse() else { return };
        let change = match step {
            Step::Create => operator::create_store(&view, StoreDefinition::batch(name), 0).ok(),
            Step::Push => {
                let detail = self.sources.build(self.partitions);
                operator::push(&view, &name, detail, operator::PushTerms::default(), 0).ok()
            }
            Step::EndLeader => {
                let leads = |role: &Role| matches!(role, Role::Controller(leading) if leading.controller.is_some());
                if let Some(leader) = self.processes.iter().position(|process| leads(&process.role)) {
                    self.remove(leader);
                }
                None
            }
            Step::EndNode => {
                let up =
                    |process: &crate::process::Process| process.running.is_up && matches!(process.role, Role::Node(_));
                if let Some(node) = self.processes.iter().position(up) {
                    self.remove(node);
                }
                None
            }
            Step::Move(count) => {
                if let Some(change) = self.plan_of_moves(&view, count) {
                    self.apply(&change);
                }
                let view = self.service.snapshot(true);
                let number = view.plans.keys().last().copied().unwrap_or(1);
                operator::run_plan(&view, number).ok()
            }
            Step::Count => None,
        };
        if let Some(change) = change {
            self.apply(&change);
        }
    }

    /// A plan that moves the first partitions, each to a random node.
    fn plan_of_moves(&mut self, view: &ClusterView, count: u32) -> Option<Change> {
        let table = &view.routing.as_ref()?.record;
        let nodes: Vec<NodeId> = view.nodes.keys().copied().collect();
        let moves = (0..count).map(PartitionId::new).filter_map(|partition| {
            let owners = table.owners(partition);
            let to = nodes[self.rng.usize(..nodes.len())];
            let from = owners.first().copied();
            (!owners.contains(&to)).then_some(Move {
                partition,
                from,
                to: Some(to),
            })
        });
        let request = PlanRequest {
            moves: moves.collect(),
            ..PlanRequest::default()
        };
        let costs = MoveCosts {
            bytes: &|_| 1,
            rates: [0; 2],
        };
        let proposed = operator::propose_plan(view, &request, &costs, 0);
        proposed.ok().map(|(_, change)| change)
    }
}
