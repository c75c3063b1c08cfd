//! The entry of a candidate for the leadership, by which other processes find the leading controller.

use serde::{Deserialize, Serialize};

/// The entry of a candidate, for clients that look up the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its HTTP address, `host:port`.
    pub http: String,
}
