//! How a member of a development cluster reaches the cluster: its control port lists, stops and starts members.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use fondaco_api::DevMember;

/// Why a member of a development cluster is not stopped or started.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// There is no such member.
    #[error(
        "no member {member:?} of a development cluster is here: fondaco dev --nodes 3 makes one, and lists its members when it starts"
    )]
    NotFound {
        /// Its name.
        member: String,
    },
    /// It cannot be stopped or started now.
    #[error("member {member:?} {reason}")]
    Busy {
        /// Its name.
        member: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// The cluster is stopping.
    #[error("the node is stopping: try again when it is back")]
    Stopping,
    /// It did not start.
    #[error("{0}")]
    NotStarted(String),
}

/// The members of a development cluster.
pub trait DevMembers: Send + Sync {
    /// All of them.
    fn list(&self) -> Vec<DevMember>;

    /// Stops a member, unless it is the member that received the request.
    ///
    /// # Errors
    /// There is no such member, it does not run, or it received the request.
    fn stop(&self, name: &str, asked: Option<SocketAddr>) -> Result<(), MemberError>;

    /// Starts a member.
    ///
    /// # Errors
    /// There is no such member, it runs, or it does not start.
    fn start(self: Arc<Self>, name: &str) -> Result<(), MemberError>;
}

/// The cluster, as its members refer to it: a weak reference.
#[derive(Clone)]
pub struct DevHandle(Weak<dyn DevMembers>);

impl DevHandle {
    /// The handle of a member.
    pub fn new(members: Weak<dyn DevMembers>) -> Self {
        Self(members)
    }

    pub(crate) fn members(&self) -> Vec<DevMember> {
        self.0.upgrade().map(|members| members.list()).unwrap_or_default()
    }

    pub(crate) fn stop(&self, name: &str, asked: SocketAddr) -> Result<(), MemberError> {
        self.upgrade()?.stop(name, Some(asked))
    }

    pub(crate) fn start(&self, name: &str) -> Result<(), MemberError> {
        self.upgrade()?.start(name)
    }

    fn upgrade(&self) -> Result<Arc<dyn DevMembers>, MemberError> {
        self.0.upgrade().ok_or(MemberError::Stopping)
    }
}
