//! Machines on demand: the requests to the hook, and their state.
//!
//! A hook is a program or an address outside of fondaco that starts, enlarges and takes back machines. The
//! [state](MachineState) is one entry in coordination. A request is in it before the hook is called, and stays there until it
//! has ended: a new leader calls the hook again, with the same number.

pub(super) mod capacity;
pub(super) mod requests;

use std::collections::BTreeMap;

use fondaco_model::NodeId;
use serde::{Deserialize, Serialize};

use super::input::Resource;

/// When machines are requested and returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSettings {
    /// How many nodes a cluster keeps at least.
    pub nodes_min: u32,
    /// How many nodes a cluster has at most.
    pub nodes_max: u32,
    /// How long after a request the next one waits, in milliseconds.
    pub cool_down_ms: u64,
    /// How long a cluster must be calm enough for one node fewer before a node is returned, in milliseconds.
    pub calm_ms: u64,
    /// Whether the hook can enlarge nodes.
    pub enlarges: bool,
    /// Whether any node may be returned, or only those that came through the hook.
    pub returns_all: bool,
}

/// The state of machines on demand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineState {
    /// The number of the last request; 0 before the first.
    pub last: u64,
    /// The request under way: one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<MachineRequest>,
    /// The nodes that came through the hook, with the numbers of the requests for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<NodeId, u64>,
    /// When the last request ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// Its number: the hook carries out each number once, however often it is called.
    pub number: u64,
    /// The action of the hook.
    pub action: MachineAction,
    /// Why, for people.
    pub reason: String,
    /// When it was made, in milliseconds since 1970.
    pub made_unix_ms: u64,
    /// From when on the hook is called, again if it was called before, in milliseconds since 1970.
    pub due_unix_ms: u64,
    /// How often the hook failed.
    #[serde(default)]
    pub failures: u32,
    /// Why it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The HTTP address of the new node, once the hook has started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
}

/// An action of the hook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase", deny_unknown_fields)]
pub enum MachineAction {
    /// Start a node.
    Request {
        /// The zone in which it is needed most.
        zone: String,
        /// The group in which it is needed most, if nodes have groups.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// The resource that the cluster has too little of.
        resource: Resource,
    },
    /// Give a node more of what it has.
    Enlarge {
        /// The node.
        node: NodeId,
        /// The resource that it has too little of.
        resource: Resource,
    },
    /// Take a machine back.
    Return {
        /// The node, which leaves and has no partitions any more.
        node: NodeId,
        /// The number of the request through which it came, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<u64>,
    },
}

/// An answer of the hook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase", deny_unknown_fields)]
pub enum HookAnswer {
    /// It is done.
    Done {
        /// The HTTP address of the node that was started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        http: Option<String>,
    },
    /// It takes longer: the hook is to be called again.
    Pending,
    /// It says that it failed: nothing was started for this request.
    Failed {
        /// Why.
        reason: String,
    },
    /// It did not answer: its effects are unknown.
    Lost {
        /// Why.
        reason: String,
    },
}

/// The input of decisions about machines, beside the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineInput {
    /// The settings.
    pub settings: MachineSettings,
    /// The state.
    pub state: MachineState,
    /// The answer of the hook since the last decision, with the number of its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<(u64, HookAnswer)>,
    /// Whether a call of the hook is under way.
    #[serde(default)]
    pub calling: bool,
    /// The live node at the address at which the hook has started one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<NodeId>,
    /// Since when one node fewer would do, by the last decision, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since_unix_ms: Option<u64>,
}

/// A decision about machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineDecision {
    /// The next state.
    pub state: MachineState,
    /// Whether the hook is to be called for the request under way, after the state is stored.
    pub call: bool,
    /// The request that this decision begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<u64>,
    /// Since when one node fewer would do, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since_unix_ms: Option<u64>,
}

impl MachineState {
    /// Begins a request.
    pub(super) fn begin(&mut self, action: MachineAction, reason: String, now_unix_ms: u64) -> u64 {
        debug_assert!(self.pending.is_none(), "one request at a time");
        self.last += 1;
        self.pending = Some(MachineRequest {
            number: self.last,
            action,
            reason,
            made_unix_ms: now_unix_ms,
            due_unix_ms: now_unix_ms,
            failures: 0,
            error: None,
            http: None,
        });
        self.last
    }
}
