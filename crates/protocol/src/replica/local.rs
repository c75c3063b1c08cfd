//! The replica within the same process: reached without a socket.

use std::fmt;

use fondaco_model::NodeId;

use super::reply::ReplicaReply;
use super::request::ReplicaRequest;

/// Takes the answer to a request, on any thread.
pub type OnReply = Box<dyn FnOnce(ReplicaReply) + Send>;

/// The local replica of a node, for the coordinators in its process.
///
/// A client that has one asks it instead of the node's own address.
pub trait LocalReplica: fmt::Debug + Send + Sync {
    /// The node's number; `None` before it has one.
    fn node(&self) -> Option<NodeId>;

    /// Carries a request out. It returns at once; `answer` is called once, now or later, on this thread or on
    /// another.
    fn request(&self, request: ReplicaRequest, answer: OnReply);
}
