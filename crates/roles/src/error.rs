//! Errors of starting and stopping a process.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use fondaco_agent::AgentError;
use fondaco_cluster::ClusterError;
use fondaco_coordination::CoordinationError;
use fondaco_decisions::AdmissionError;
use fondaco_fetch::FetchError;
use fondaco_http::MemberError;

/// An error of starting or stopping a process.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// The cluster cannot be seen or changed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The node cannot do its work.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The node that was started must not take part in the cluster.
    #[error(transparent)]
    Unfit(Arc<AgentError>),
    /// A member of a development cluster is not stopped or started.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The port would be open to everyone on the network.
    #[error(
        "refusing to serve {port} on {addr}, which is not loopback, without {missing}: configure {missing}, listen on \
         127.0.0.1, or allow it: allow-insecure = true in the file, or --allow-insecure"
    )]
    Insecure {
        /// The port.
        port: &'static str,
        /// The address that it would listen on.
        addr: SocketAddr,
        /// The missing protection.
        missing: &'static str,
    },
    /// RESP checks the rights of users, and HTTP would let everyone on this machine do everything.
    #[error(
        "refusing to serve HTTP on {addr} without a token beside users: it reads and changes all stores, and asks for no \
         password; set token = \"…\" in the file (or --token, FONDACO_TOKEN), or allow it: allow-insecure = true in the \
         file, or --allow-insecure"
    )]
    UsersWithoutToken {
        /// The HTTP address.
        addr: SocketAddr,
    },
    /// A configured value is not possible.
    #[error("invalid configuration: {0}")]
    InvalidConfig(String),
    /// The RESP server did not start.
    #[error(transparent)]
    Resp(#[from] fondaco_node::ServerError),
    /// The HTTP address cannot be listened on.
    #[error("cannot listen on {addr} for HTTP: {source}; choose another address")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

impl RoleError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |error| ClusterError::io(action, path)(error).into()
    }
}

impl From<CoordinationError> for RoleError {
    fn from(error: CoordinationError) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<AdmissionError> for RoleError {
    fn from(error: AdmissionError) -> Self {
        Self::Cluster(error.into())
    }
}

impl From<FetchError> for RoleError {
    fn from(error: FetchError) -> Self {
        Self::Agent(error.into())
    }
}
