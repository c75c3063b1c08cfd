//! The replica within the same process, called without a socket.

use std::fmt;

use fondaco_model::NodeId;

use super::reply::ReplicaReply;
use super::request::ReplicaRequest;

/// Receives the reply to a request, on any thread.
pub type OnReply = Box<dyn FnOnce(ReplicaReply) + Send>;

/// The local replica of a node, for the coordinators in its process.
///
/// A client that has one calls it instead of connecting to the node.
pub trait LocalReplica: fmt::Debug + Send + Sync {
    /// The node's number; `None` before it has one.
    fn node(&self) -> Option<NodeId>;

    /// Carries out a request. It returns at once; `answer` is called once, now or later, on this or another thread.
    fn request(&self, request: ReplicaRequest, answer: OnReply);
}
