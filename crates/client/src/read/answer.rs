//! What a node says to a sub-request, and what follows from its errors.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// What came back for one sub-request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One element for each key, in their order.
    Elements(SmallVec<[Element; 1]>),
    /// An error for all keys.
    Error(Bytes),
}

/// What came back for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// Its value, or none.
    Value(Option<Bytes>),
    /// An error: its first word is its code.
    Error(Bytes),
}

/// Why nothing came back for a sub-request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It never left: there is no connection. Costs the cluster nothing, so a retry is free.
    Unsent(Arc<str>),
    /// It never left: the node has its fill of requests already.
    Full {
        /// How many.
        in_flight: usize,
    },
    /// It was sent, and the connection ended before an answer.
    Lost(Arc<str>),
}

/// What an error of a node means for the keys it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The version or the keys are not there: the topology is old, or the node is.
    Elsewhere,
    /// The node cannot answer this now; another one may. It says nothing against the node.
    KeysFailed,
    /// The node does not answer as it should; another one may.
    NodeFailed,
    /// Nobody will answer this.
    Refused,
}

impl Verdict {
    /// What an error means, by its code. An unknown one is a failure: another node may know better.
    pub(super) fn of(error: &[u8]) -> Self {
        match error.split(|&byte| byte == b' ').next().unwrap_or_default() {
            b"VERSIONGONE" | b"NOTHERE" | b"NOSTORE" | b"NOVERSION" => Self::Elsewhere,
            b"TIMEOUT" | b"OVERLOADED" | b"BUSY" | b"CORRUPT" => Self::KeysFailed,
            b"NOPERM" | b"NOAUTH" | b"WRONGPASS" | b"BADKEY" => Self::Refused,
            _ => Self::NodeFailed,
        }
    }
}
