//! The way to the replicas of other nodes, for what no client waits for: hints and exchanges.

use std::fmt;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaRequest};

/// The other nodes of the cluster.
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// Asks a node. It returns at once; `answer` is called once, within the request's time or soon after it:
    /// with an error, if the node cannot be reached.
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply);
}

/// What is said of a reply to something else.
pub(crate) fn unexpected(node: NodeId) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::Other,
        format!("node {node} answered something else than it was asked: do both run the same version?"),
    )
}
