//! What a request yields.

use bytes::Bytes;
use fondaco_model::{StoreName, VersionNumber};
use smallvec::SmallVec;

use super::value_budget::HeldBudget;
use crate::error::ClientError;

/// A store of a request, and the version that it was read at.
///
/// A name alone would not tell which store it was: one may be dropped, and another created under its name,
/// whose versions begin at 1 again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedStore {
    /// Its name.
    pub name: StoreName,
    /// Its number, given when it was created and never to another.
    pub id: u16,
    /// The version that all values are from.
    pub version: VersionNumber,
}

/// The answer to a request.
///
/// Values are parts of the buffer that they were received in, which lives as long as one of them: who
/// keeps a small value for long should copy it.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchReply {
    /// For each key, in order, its value, or none, or why that is not known.
    pub values: Vec<Result<Option<Bytes>, ClientError>>,
    /// For each store that was asked the version that all its values are from.
    pub stores: SmallVec<[PinnedStore; 1]>,
    /// How many sub-requests were sent.
    pub sub_requests: u32,
    /// How many of these were retries and redirects.
    pub retried: u32,
    /// How many of these were hedges.
    pub hedged: u32,
    /// The room that the values take: to be dropped with them.
    pub room: HeldBudget,
}
