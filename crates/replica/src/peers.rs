//! Connections to the replicas of other nodes, for background work: hints and exchanges.

use std::fmt;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaRequest};

/// The other nodes of the cluster.
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// Sends a request to a node. Returns at once; `answer` is called once, with an error if the node cannot be reached: within the
    /// request's timeout or soon after, or within that time since bytes of a long value last moved.
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply);
}

/// The error for a reply that does not fit the request.
pub(crate) fn unexpected(node: NodeId) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::Other,
        format!("unexpected reply from node {node}: do both nodes run the same version?"),
    )
}
