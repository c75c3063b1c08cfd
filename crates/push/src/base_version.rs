//! The version that an incremental push changes.

use std::path::Path;

use fondaco_admin::{Client, Endpoint};
use fondaco_api::StoreResource;
use fondaco_model::{StoreName, ValueType};

use crate::error::PushError;
use crate::observer::Job;
use crate::version_copy::VersionCopy;

/// Finds the current version of a store, or fetches it to a temporary directory in `work`.
pub(crate) fn find(
    client: &Client,
    endpoint: &Endpoint,
    (name, store): (&StoreName, &StoreResource),
    has_final_values: bool,
    work: &Path,
    job: Job<'_>,
) -> Result<VersionCopy, PushError> {
    if store.value_type() == ValueType::Graph && !has_final_values {
        return Err(PushError::Unfit(format!(
            "store {name:?} is a graph, whose records depend on each other: push all its edges, without --incremental"
        )));
    }
    if store.versions.iter().all(|version| !version.current) {
        return Err(PushError::Unfit(format!(
            "store {name:?} has no version to change: push all records first, without --incremental"
        )));
    }
    VersionCopy::of_current(client, endpoint, (name, store), None, work, job)
}
