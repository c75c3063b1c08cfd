//! The way to the replicas of other nodes, for what no client waits for: hints and exchanges.

use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

use fondaco_model::NodeId;
use fondaco_protocol::replica::{OnReply, ReplicaError, ReplicaErrorCode, ReplicaReply, ReplicaRequest};

/// How much longer than a request may take its answer is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// The other nodes of the cluster.
pub trait Peers: fmt::Debug + Send + Sync + 'static {
    /// Asks a node. It returns at once; `answer` is called once, within the request's time or soon after it:
    /// with an error, if the node cannot be reached.
    fn ask(&self, node: NodeId, request: ReplicaRequest, answer: OnReply);
}

/// Asks by `ask`, and waits for the answer of a node.
///
/// # Errors
/// What it answered instead, or that it did not.
pub(crate) fn wait(node: NodeId, timeout_ms: u64, ask: impl FnOnce(OnReply)) -> Result<ReplicaReply, ReplicaError> {
    let timeout = Duration::from_millis(timeout_ms) + GRACE;
    let (sender, receiver) = mpsc::sync_channel(1);
    // Whoever waited too long has gone.
    ask(Box::new(move |reply| drop(sender.try_send(reply))));
    match receiver.recv_timeout(timeout) {
        Ok(ReplicaReply::Error(error)) => Err(error),
        Ok(reply) => Ok(reply),
        Err(_) => Err(ReplicaError::new(
            ReplicaErrorCode::Timeout,
            format!("node {node} did not answer within {} ms", timeout.as_millis()),
        )),
    }
}

/// What is said of a reply to something else.
pub(crate) fn unexpected(node: NodeId) -> ReplicaError {
    ReplicaError::new(
        ReplicaErrorCode::Other,
        format!("node {node} answered something else than it was asked: do both run the same version?"),
    )
}
