//! The result of a request.

use bytes::Bytes;
use fondaco_model::{StoreName, VersionNumber};
use smallvec::SmallVec;

use super::effort::Effort;
use super::state::Part;
use super::value_budget::HeldBudget;
use crate::error::ClientError;

/// A store of a request, and the version that it was read at.
///
/// The name alone does not identify the store: it may be dropped, and another one created under its name, with versions
/// from 1 again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedStore {
    /// Its name.
    pub name: StoreName,
    /// Its number, which is never reused.
    pub id: u16,
    /// The version that all values are from.
    pub version: VersionNumber,
}

impl PinnedStore {
    pub(super) fn of(part: &Part) -> Self {
        Self {
            name: part.name.clone(),
            id: part.id,
            version: part.version,
        }
    }
}

/// The answer to a request.
///
/// Values are slices of the buffer in which they were received, which lives as long as any of them: copy a small value
/// that is kept for long.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchReply {
    /// For each key, in order, its value, `None` if it does not exist, or an error.
    pub values: Vec<Result<Option<Bytes>, ClientError>>,
    /// For each store of the request, the version that all its values are from.
    pub stores: SmallVec<[PinnedStore; 1]>,
    /// How many sub-requests were sent.
    pub sub_requests: u32,
    /// How many of these were retries and redirects.
    pub retried: u32,
    /// How many of these were hedges.
    pub hedged: u32,
    /// How many nodes the keys of batch stores took, how evenly, and where the time went.
    pub effort: Effort,
    /// The values' share of the memory limit: drop it with them.
    pub room: HeldBudget,
}

impl BatchReply {
    /// The indices of the keys without an [answer in time](ClientError::is_late): they may exist or not.
    pub fn late(&self) -> impl Iterator<Item = usize> + '_ {
        let values = self.values.iter().enumerate();
        values.filter_map(|(at, value)| value.as_ref().is_err_and(ClientError::is_late).then_some(at))
    }
}
