//! What an engine of a node has lost.

use fondaco_model::versioned::EngineKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::EngineName;

/// Something that was acknowledged, and that an engine of the node does not have any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LossResource {
    /// Its name: another one if more is lost.
    #[schema(example = "log-5f3a9c21")]
    pub id: String,
    /// The engine.
    #[schema(value_type = EngineName)]
    pub engine: EngineKind,
    /// What is lost, in words.
    pub lost: String,
    /// How many partitions of versioned stores are not read here until it is had from other nodes, or given up.
    pub partitions_behind: u64,
    /// How many of these no other node has: they wait until it is given up.
    pub partitions_alone: u64,
}

/// What the engines of a node have lost.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LossList {
    /// The losses.
    pub losses: Vec<LossResource>,
}
