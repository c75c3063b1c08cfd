//! How a member of a development cluster reaches the cluster: its control port lists, stops and starts members.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use crate::error::ControlError;
use crate::http::resources::DevMember;

/// The members of a development cluster.
pub(crate) trait DevMembers: Send + Sync {
    fn list(&self) -> Vec<DevMember>;

    /// Stops a member, unless it is the member that received the request.
    fn stop(&self, name: &str, asked: Option<SocketAddr>) -> Result<(), ControlError>;

    fn start(self: Arc<Self>, name: &str) -> Result<(), ControlError>;
}

/// The cluster, as its members refer to it: a weak reference.
#[derive(Clone)]
pub(crate) struct DevHandle(Weak<dyn DevMembers>);

impl DevHandle {
    pub(crate) fn new(members: Weak<dyn DevMembers>) -> Self {
        Self(members)
    }

    pub(crate) fn members(&self) -> Vec<DevMember> {
        self.0.upgrade().map(|members| members.list()).unwrap_or_default()
    }

    pub(crate) fn stop(&self, name: &str, asked: SocketAddr) -> Result<(), ControlError> {
        self.upgrade()?.stop(name, Some(asked))
    }

    pub(crate) fn start(&self, name: &str) -> Result<(), ControlError> {
        self.upgrade()?.start(name)
    }

    fn upgrade(&self) -> Result<Arc<dyn DevMembers>, ControlError> {
        self.0.upgrade().ok_or(ControlError::Stopping)
    }
}
