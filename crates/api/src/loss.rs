//! Acknowledged writes that an engine of a node has lost.

use fondaco_model::versioned::EngineKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Acknowledged writes that an engine of the node does not have any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LossResource {
    /// Its id, which changes if more is lost.
    #[schema(example = "log-5f3a9c21")]
    pub id: String,
    /// The engine.
    pub engine: EngineKind,
    /// A description of the loss.
    pub lost: String,
    /// How many partitions of versioned stores are not read here until they are recovered from other nodes, or the loss
    /// is accepted.
    pub partitions_behind: u64,
    /// How many of these no other node has: they are not read until the loss is accepted.
    pub partitions_alone: u64,
}

/// The losses of a node's engines.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LossList {
    /// The losses.
    pub losses: Vec<LossResource>,
}
