//! What a request yields.

use bytes::Bytes;
use fondaco_model::{StoreName, VersionNumber};
use smallvec::SmallVec;

use crate::error::ClientError;

/// The answer to a request.
///
/// Values are parts of the buffer that they were received in, which lives as long as one of them: who
/// keeps a small value for long should copy it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchReply {
    /// For each key, in order, its value, or none, or why that is not known.
    pub values: Vec<Result<Option<Bytes>, ClientError>>,
    /// For each store that was asked the version that all its values are from.
    pub versions: SmallVec<[(StoreName, VersionNumber); 1]>,
    /// How many sub-requests were sent.
    pub sub_requests: u32,
    /// How many of these were retries and redirects.
    pub retried: u32,
    /// How many of these were hedges.
    pub hedged: u32,
}
