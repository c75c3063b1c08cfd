//! Decisions, with their reasons.

use std::collections::{BTreeMap, BTreeSet};

use fondaco_model::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::input::{BalanceMode, Resource};
use super::machines::MachineDecision;

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// Its number, from 1 in each term of a leader.
    pub number: u64,
    /// When it was made, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The mode of the cluster then.
    pub mode: BalanceMode,
    /// Its outcome.
    pub outcome: Outcome,
    /// Why, for people: a sentence for each step of the reasoning.
    pub reasons: Vec<String>,
    /// Problems that moves do not solve, each with a remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// The nodes that struggle.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub struggling: BTreeSet<NodeId>,
    /// The decision about machines, if there is a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachineDecision>,
}

/// The outcome of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing moves.
    Nothing,
    /// Partitions should move.
    Move {
        /// The partitions with their next owners.
        next: BTreeMap<PartitionId, Vec<NodeId>>,
        /// The moves, with what is expected of each; empty if they follow from nodes that come and go.
        moves: Vec<BalanceMove>,
        /// The nodes that lose all their partitions for good.
        leaving: BTreeSet<NodeId>,
    },
}

/// A move that relieves a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalanceMove {
    /// The partition.
    pub partition: PartitionId,
    /// The node that gives it up.
    pub from: NodeId,
    /// The node that gets it.
    pub to: NodeId,
    /// The resource that the first node has too little of.
    pub resource: Resource,
    /// The level of the first node before and after.
    pub from_level: (f64, f64),
    /// The level of the second node before and after.
    pub to_level: (f64, f64),
    /// The bytes that have to be fetched.
    pub bytes: u64,
}

/// A problem that moves do not solve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub help: String,
}

impl Decision {
    /// Adds a sentence to the reasons.
    pub(super) fn explain(&mut self, reason: impl Into<String>) {
        self.reasons.push(reason.into());
    }

    /// Whether partitions should move.
    pub fn moves(&self) -> bool {
        matches!(self.outcome, Outcome::Move { .. })
    }

    /// Whether something moves, a machine is requested or returned, or there is advice.
    pub fn is_notable(&self) -> bool {
        self.moves() || self.request().is_some() || !self.advice.is_empty()
    }

    /// The number of the request to the hook that the decision begins, if it begins one.
    pub fn request(&self) -> Option<u64> {
        self.machines.as_ref().and_then(|machines| machines.begun)
    }
}
