//! Steps at fixed times, for runs that measure.

use fondaco_model::StoreDefinition;
use fondaco_model::cluster::operator;

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
                operator::push(&view, &name, detail, 0).ok()
            }
            Step::EndLeader => {
                let leads = |role: &Role| matches!(role, Role::Controller(leading) if leading.controller.is_some());
                if let Some(leader) = self.processes.iter().position(|process| leads(&process.role)) {
                    self.remove(leader);
                }
                None
            }
            Step::EndNode => {
                let up = |process: &crate::process::Process| process.up && matches!(process.role, Role::Node(_));
                if let Some(node) = self.processes.iter().position(up) {
                    self.remove(node);
                }
                None
            }
            Step::Count => None,
        };
        if let Some(change) = change {
            self.apply(&change);
        }
    }
}
