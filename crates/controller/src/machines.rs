//! Carries out decisions about machines: the state is written to the coordination service first, then the hook is called.

use std::sync::Arc;

use fondaco_cluster::layout::MACHINES;
use fondaco_coordination::{Coordination, CoordinationError, EntryPath, Revision};
use fondaco_decisions::balance::{
    MachineAction, MachineDecision, MachineInput, MachineRequest, MachineSettings, MachineState,
};
use fondaco_model::NodeId;
use fondaco_model::cluster::ClusterView;
use serde_json::{Value, json};

use crate::config::MachinesConfig;
use crate::hook::Caller;

/// The machines of a term of a leader.
pub(crate) struct Machines {
    coordination: Arc<dyn Coordination>,
    caller: Caller,
    settings: MachineSettings,
    /// The revision of the entry when it was read last.
    revision: Option<Revision>,
    idle_since_unix_ms: Option<u64>,
    /// How often the hook has failed for the request under way.
    failures: u32,
}

impl Machines {
    pub(crate) fn new(config: &MachinesConfig, coordination: Arc<dyn Coordination>) -> Self {
        Self {
            coordination,
            caller: Caller::new(config.hook.clone(), config.timeout),
            settings: config.settings.clone(),
            revision: None,
            idle_since_unix_ms: None,
            failures: 0,
        }
    }

    /// How often the hook has failed for the request under way.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The input of a decision; `None` if the entry cannot be read: then nothing is decided about machines.
    pub(crate) fn input(&mut self, view: &ClusterView) -> Option<MachineInput> {
        let state = match self.read() {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(error, "the state of machines cannot be read");
                return None;
            }
        };
        let http = state.pending.as_ref().and_then(|request| request.http.as_deref());
        let at = |node: &&NodeId| {
            view.nodes
                .get(*node)
                .is_some_and(|node| Some(&*node.record.http) == http)
        };
        let joined = view.nodes.keys().filter(at).find(|&&node| view.is_live(node)).copied();
        Some(MachineInput {
            settings: self.settings.clone(),
            joined,
            // After the question whether it is calling, an answer may come: it waits for the next decision.
            calling: self.caller.is_calling(),
            answer: self.caller.take(),
            idle_since_unix_ms: self.idle_since_unix_ms,
            state,
        })
    }

    fn read(&mut self) -> Result<MachineState, String> {
        let path: EntryPath = MACHINES.parse().map_err(|error: CoordinationError| error.to_string())?;
        let entry = self.coordination.read(&path).map_err(|error| error.to_string())?;
        self.revision = entry.as_ref().map(|entry| entry.revision);
        let state = entry.map(|entry| serde_json::from_slice(&entry.bytes)).transpose();
        Ok(state
            .map_err(|error| format!("entry {MACHINES:?}: {error}"))?
            .unwrap_or_default())
    }

    /// Records the decision, and calls the hook if that is due.
    pub(crate) fn carry_out(&mut self, view: &ClusterView, before: &MachineState, decided: &MachineDecision) {
        self.idle_since_unix_ms = decided.idle_since_unix_ms;
        self.failures = decided.state.pending.as_ref().map_or(0, |request| request.failures);
        if decided.state != *before
            && let Err(error) = self.write(&decided.state)
        {
            // The next decision starts from the recorded state. The hook repeats its answer to a number that it knows.
            return tracing::warn!(error, "the state of machines cannot be written");
        }
        if let Some(request) = decided.state.pending.as_ref().filter(|_| decided.call) {
            let body = call(view, request);
            tracing::info!(%body, "the hook is called");
            self.caller.call(request.number, body.to_string().into_bytes());
        }
    }

    fn write(&self, state: &MachineState) -> Result<(), String> {
        let path: EntryPath = MACHINES.parse().map_err(|error: CoordinationError| error.to_string())?;
        let bytes = serde_json::to_vec(state).map_err(|error| error.to_string())?;
        let written = self.coordination.write(&path, &bytes, self.revision);
        written.map(drop).map_err(|error| error.to_string())
    }
}

/// The request to a hook.
fn call(view: &ClusterView, request: &MachineRequest) -> Value {
    let cluster = view.cluster.as_ref().map(|cluster| cluster.identity.to_string());
    let id = |number: u64| format!("{}-{number}", cluster.as_deref().unwrap_or("cluster"));
    let mut body = json!({
        "request": id(request.number),
        "reason": request.reason,
        "attempt": request.failures + 1,
    });
    let about = |body: &mut Value, node: NodeId| {
        body["node"] = node.get().into();
        if let Some(node) = view.nodes.get(&node) {
            body["http"] = node.record.http.as_str().into();
            body["resp"] = node.record.resp.as_str().into();
        }
    };
    match &request.action {
        MachineAction::Request { zone, group, resource } => {
            body["action"] = "request".into();
            body["zone"] = zone.as_str().into();
            body["resource"] = json!(resource);
            if let Some(group) = group {
                body["group"] = group.as_str().into();
            }
        }
        MachineAction::Enlarge { node, resource } => {
            body["action"] = "enlarge".into();
            body["resource"] = json!(resource);
            about(&mut body, *node);
        }
        MachineAction::Return { node, machine } => {
            body["action"] = "return".into();
            about(&mut body, *node);
            if let Some(machine) = machine {
                body["machine"] = id(*machine).into();
            }
        }
    }
    body
}
