//! A simulated operator: makes any valid request at any time, with the real functions.

use std::collections::BTreeSet;

use fondaco_decisions::operator::{self, MoveCosts, PlanRequest};
use fondaco_model::cluster::PlanState;
use fondaco_model::{NodeId, StoreChange, StoreDefinition, StoreName};

use crate::controller::describe;
use crate::link::Request;
use crate::world::World;

/// How long the data of dropped stores is kept, in milliseconds.
const DROPPED_KEPT_MS: u64 = 60_000;

impl World {
    /// The operator makes a random request, based on its view.
    pub(crate) fn operate(&mut self, process: usize) {
        if !self.processes[process].view_is_whole {
            return;
        }
        let view = self.processes[process].view.clone();
        let unix_ms = self.now_of(process).unix_ms;
        let name: StoreName = match format!("store{}", self.rng.usize(..self.scenario.stores)).parse() {
            Ok(name) => name,
            Err(_) => return,
        };
        let kept: Vec<_> = {
            let store = view.stores.get(&name);
            store
                .map(|store| store.record.versions.kept().collect())
                .unwrap_or_default()
        };
        let change = match self.rng.u32(..100) {
            0..40 if view.stores.contains_key(&name) => {
                let detail = self.sources.build(self.partitions);
                operator::push(&view, &name, detail, operator::PushTerms::default(), unix_ms).ok()
            }
            0..45 => {
                let mut definition = StoreDefinition::batch(name);
                definition.backups = self.rng.u32(0..3);
                definition.everywhere = self.rng.u32(..4) == 0;
                definition.tolerate_failures = Some(self.rng.u32(0..4)).filter(|&tolerated| tolerated < 3);
                operator::create_store(&view, definition, unix_ms).ok()
            }
            45..55 => operator::cancel_push(&view, &name, None, unix_ms).ok(),
            55..65 => operator::roll_back(&view, &name, None).ok().flatten(),
            65..75 if !kept.is_empty() => {
                let version = kept[self.rng.usize(..kept.len())];
                operator::swap(&view, &name, version).ok().flatten()
            }
            75..82 => {
                let change = self.alteration();
                operator::alter_store(&view, &name, &change, unix_ms).ok()
            }
            82..85 => operator::drop_store(&view, &name, unix_ms, DROPPED_KEPT_MS).ok(),
            85..96 => {
                let pick = |rng: &mut fastrand::Rng, often: u32| -> BTreeSet<NodeId> {
                    let nodes = view.nodes.keys().copied();
                    nodes.filter(|_| rng.u32(..100) < often).collect()
                };
                let mut plans = view.plans.values();
                let proposed = plans.find(|plan| plan.record.state == PlanState::Proposed);
                match proposed {
                    Some(plan) => operator::run_plan(&view, plan.record.number).ok(),
                    None => {
                        let request = PlanRequest {
                            add: pick(&mut self.rng, 60),
                            remove: pick(&mut self.rng, 20),
                            even: self.rng.bool(),
                            moves_per_node: Some(self.rng.u32(1..9)),
                            ..PlanRequest::default()
                        };
                        let costs = MoveCosts {
                            bytes: &|_| 1,
                            rates: [0, 0],
                        };
                        let proposed = operator::propose_plan(&view, &request, &costs, unix_ms);
                        proposed.ok().map(|(_, change)| change)
                    }
                }
            }
            96..98 => {
                let last = view.plans.keys().last().copied().unwrap_or(1);
                operator::pause_plan(&view, last, self.rng.bool()).ok()
            }
            98 => {
                // Some runs have many partitions after a while.
                let few = view.partitions().is_some_and(|partitions| partitions.get() < 256);
                few.then(|| operator::split_partitions(&view).ok()).flatten()
            }
            _ => operator::cancel_plan(&view, None, unix_ms).ok(),
        };
        if let Some(change) = change {
            self.note(|| format!("operator writes {}", describe(&change)));
            let change = Box::new(change);
            self.request(process, Request::Apply { change });
        }
    }

    /// A random change of a batch store.
    fn alteration(&mut self) -> StoreChange {
        let everywhere = self.rng.u32(..4) == 0;
        let replicas = match everywhere || self.rng.bool() {
            true => None,
            false => Some(self.rng.u32(1..4)),
        };
        StoreChange {
            backups: Some(self.rng.u32(0..3)),
            replicas: Some(replicas),
            everywhere: Some(everywhere),
            tolerate_failures: Some(Some(self.rng.u32(0..4)).filter(|&tolerated| tolerated < 3)),
            ..StoreChange::default()
        }
    }
}
