//! A node's answer to a sub-request, and the meaning of its errors.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// The answer to one sub-request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// One element for each key, in their order.
    Elements(SmallVec<[Element; 1]>),
    /// An error for all keys.
    Error(Bytes),
}

/// The answer for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Element {
    /// Its value, or none.
    Value(Option<Bytes>),
    /// An error: its first word is its code.
    Error(Bytes),
}

/// Why a sub-request got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It was not sent: there is no connection. It cost the cluster nothing, so a retry is free.
    Unsent(Arc<str>),
    /// It was not sent: too many requests to the node are outstanding.
    Full {
        /// How many.
        in_flight: usize,
    },
    /// It was sent, and the connection ended before an answer.
    Lost(Arc<str>),
}

/// The meaning of a node's error for its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The node lacks the version or the keys: the topology is old, or the node is.
    Redirected,
    /// The node cannot answer now; another one may. The node's health is not affected.
    KeysFailed,
    /// The node does not answer as it should; another one may.
    NodeFailed,
    /// No node will answer this.
    Refused,
}

impl Verdict {
    /// The meaning of an error, by its code. An unknown code is a failure: another node may answer.
    pub(super) fn of(error: &[u8]) -> Self {
        match error.split(|&byte| byte == b' ').next().unwrap_or_default() {
            b"VERSIONGONE" | b"NOTHERE" | b"NOSTORE" | b"NOVERSION" => Self::Redirected,
            b"TIMEOUT" | b"OVERLOADED" | b"BUSY" | b"TRYAGAIN" | b"CORRUPT" => Self::KeysFailed,
            b"NOPERM" | b"NOAUTH" | b"WRONGPASS" | b"BADKEY" | b"LIMIT" | b"WRONGTYPE" => Self::Refused,
            _ => Self::NodeFailed,
        }
    }
}
