//! A simulated controller: it is a candidate for leader, and while it leads, it writes the changes that the real
//! controller decides on.

use fondaco_decisions::{Change, Controller, Patience, Record, RecordPath, Write};
use fondaco_model::cluster::{ClusterView, ReplicaState};

use crate::link::Request;
use crate::process::Role;
use crate::scenario::Flaw;
use crate::world::World;

impl World {
    /// A controller becomes leader: it reads everything before it decides anything.
    pub(crate) fn leads(&mut self, process: usize) {
        let patience = match self.scenario.flaw {
            Some(Flaw::NeverGivesUp) => Patience {
                absent_after_ms: u64::MAX,
                stall_after_ms: u64::MAX,
            },
            _ => self.scenario.patience,
        };
        let Role::Controller(leading) = &mut self.processes[process].role else {
            return;
        };
        if leading.controller.is_some() {
            return;
        }
        leading.controller = Some(Controller::new(patience));
        leading.knows = false;
        self.note(|| format!("controller {process} leads"));
        self.read_everything(process);
    }

    /// The leader decides, unless its last change is still pending.
    pub(crate) fn look_as_controller(&mut self, process: usize) {
        let now = self.now_of(process);
        let view = self.processes[process].view.clone();
        let flaw = self.scenario.flaw;
        let Role::Controller(leading) = &mut self.processes[process].role else {
            return;
        };
        if !leading.knows || leading.under_way > 0 {
            return;
        }
        let Some(controller) = &mut leading.controller else {
            return;
        };
        let mut changes = match flaw.and_then(|flaw| falsified(flaw, &view)) {
            Some(view) => controller.decide(&view, now),
            None => controller.decide(&view, now),
        };
        match flaw {
            Some(Flaw::LateForEver) => changes.retain(|change| !clears_late(change, &view)),
            Some(Flaw::FinishesPlansAtOnce) => changes.extend(finish_at_once(&view)),
            _ => {}
        }
        leading.under_way = changes.len();
        for change in changes {
            self.note(|| format!("controller {process} writes {}", describe(&change)));
            let change = Box::new(change);
            self.request(process, Request::Apply { change });
        }
    }

    /// A change was applied, or refused: the controller finds out by looking.
    pub(crate) fn applied(&mut self, process: usize) {
        if let Role::Controller(leading) = &mut self.processes[process].role {
            leading.under_way = leading.under_way.saturating_sub(1);
        }
    }
}

/// A short description of a change.
pub(crate) fn describe(change: &Change) -> String {
    let writes = change.writes.iter().map(|write| match (&write.record, change.store()) {
        (Some(_), Some(store)) => {
            let push = store
                .push
                .as_ref()
                .map(|push| (push.version.get(), push.state, push.error.clone()));
            let current = store.versions.current().map(|version| version.get());
            format!(
                "{} = {{current {current:?}, late {:?}, push {push:?}}}",
                write.path, store.late
            )
        }
        (Some(Record::Node(node)), _) => format!("{} at {}, {}", write.path, node.resp, node.identity),
        (Some(_), None) => write.path.to_string(),
        (None, _) => format!("the end of {}", write.path),
    });
    writes.collect::<Vec<_>>().join(", ")
}

/// The false view of a leader with a flaw.
fn falsified(flaw: Flaw, view: &ClusterView) -> Option<ClusterView> {
    let mut view = view.clone();
    let table = &view.routing.as_ref()?.record;
    let epoch = table.epoch();
    let facts: Vec<_> = {
        let stores = view.stores.iter();
        let facts = stores.map(|(name, store)| (name.clone(), store.record.id, view.replicas(&store.record)));
        facts.collect()
    };
    match flaw {
        Flaw::SwapsBeforeReady => {
            let reports = view.reports.values_mut();
            let stores = reports.flat_map(|report| report.stores.values_mut());
            for replica in stores.flat_map(|store| store.versions.values_mut()) {
                replica.state = ReplicaState::Ready;
            }
        }
        Flaw::BelievesOldReports => {
            for report in view.reports.values_mut() {
                report.epoch = epoch;
                for (name, id, replicas) in &facts {
                    if let Some(store) = report.stores.get_mut(name) {
                        store.id = *id;
                        store.replicas = *replicas as u32;
                    }
                }
            }
        }
        _ => return None,
    }
    Some(view)
}

fn clears_late(change: &Change, view: &ClusterView) -> bool {
    let after = change.store();
    let before = after.and_then(|store| view.stores.get(&store.definition.name));
    match (before, after) {
        (Some(before), Some(after)) => after.late.len() < before.record.late.len(),
        _ => false,
    }
}

fn finish_at_once(view: &ClusterView) -> Option<Change> {
    let table = view
        .routing
        .as_ref()
        .filter(|table| table.record.begun().next().is_some())?;
    Some(Change {
        writes: vec![Write {
            path: RecordPath::Routing,
            expected: Some(table.revision),
            record: Some(Record::Routing(table.record.finished())),
        }],
        unchanged: Vec::new(),
    })
}
