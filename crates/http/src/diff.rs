//! `/v1/stores/{store}/diff`: the keys that were added, removed and changed between two versions of a store.
//!
//! Any process answers: it asks the first live owner of each partition, which compares both versions on its own disk. Chunks with
//! equal checksums are not read. Expiry and events on top of versions do not count. No difference is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use fondaco_api::{ErrorResource, VersionDiff};
use fondaco_decisions::operator::OperatorError;
use fondaco_format::{Comparison, FormatError, Version};
use fondaco_model::cluster::StoreRecord;
use fondaco_model::{DiffCounts, PartitionId, StoreKind, StoreName, VersionNumber};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{QueryOf, StorePath};
use crate::differences::DiffCounter;
use crate::error::ApiError;
use crate::first_owners::{FirstOwners, own_partitions};

/// How long a caller waits unless it says so, in seconds.
const SECONDS_DEFAULT: u64 = 600;

/// How long a caller may wait, in seconds.
pub(super) const SECONDS_MAX: u64 = 86_400;

/// How long a node compares for one answer to the process that asks.
const PAGE_TIME_MAX: Duration = Duration::from_millis(500);

/// The query of a request for differences.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// The former version.
    #[param(value_type = u64, minimum = 1)]
    from: VersionNumber,
    /// The later version.
    #[param(value_type = u64, minimum = 1)]
    to: VersionNumber,
    /// How long to wait for the nodes, in seconds: 1 to 86400.
    #[param(default = 600)]
    seconds: Option<u64>,
    /// A JSON list of fields: the records of the later version whose values lack them, or have nulls there, are counted in `nulls`.
    nulls: Option<String>,
    /// Between nodes: compare only the partitions that the answering node owns first, by the routing table of this epoch.
    epoch: Option<u64>,
    /// Between nodes: the numbers of absent nodes, joined by commas. The next owners compare their partitions.
    #[serde(default)]
    without: String,
    /// Between nodes: the `next` of the answer before.
    after: Option<String>,
}

/// Compare two versions of a store: how many keys were added, removed and changed, by field where values have fields. Nodes read
/// the chunks that differ.
#[utoipa::path(get, path = "/v1/stores/{store}/diff", tag = "stores", params(("store" = String, Path, description = "The store"), Asked), responses(
    (status = 200, description = "The sums, and the nodes that could not compare in time", body = VersionDiff),
    (status = "default", description = "An error: invalid_request, store_not_found, versioned_store, version_not_found, old_routing, unavailable", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(asked): QueryOf<Asked>,
) -> Result<Json<VersionDiff>, ApiError> {
    if let Some(epoch) = asked.epoch {
        // Shared with backups, so that clients get most of the disk. The semaphore is never closed.
        let _permit = app.limits.pages.acquire().await.ok();
        return app.blocking(move |app| page(app, &name, epoch, &asked)).await.map(Json);
    }
    let nulls = asked.nulls()?;
    let seconds = asked.seconds.unwrap_or(SECONDS_DEFAULT);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let message = format!("invalid seconds {seconds}: use 1 to {SECONDS_MAX}");
        return Err(ApiError::invalid(message));
    }
    compare(&app, name, (asked.from, asked.to), seconds, &nulls)
        .await
        .map(Json)
}

impl Asked {
    fn nulls(&self) -> Result<Vec<String>, ApiError> {
        let fields = self.nulls.as_deref().map_or(Ok(Vec::new()), serde_json::from_str);
        fields.map_err(|error| ApiError::invalid(format!("\"nulls\" is no JSON list of texts: {error}")))
    }
}

/// The differences between two versions, from all nodes, and the nulls in some fields of the later one.
pub(super) async fn compare(
    app: &App,
    name: StoreName,
    (from, to): (VersionNumber, VersionNumber),
    seconds: u64,
    nulls: &[String],
) -> Result<VersionDiff, ApiError> {
    let mut target = format!("/v1/stores/{name}/diff?from={from}&to={to}");
    if !nulls.is_empty() {
        let list = serde_json::json!(nulls).to_string();
        target += &format!("&nulls={}", utf8_percent_encode(&list, NON_ALPHANUMERIC));
    }
    let first_owners = app.blocking(move |app| FirstOwners::of(app, &store_of(app, &name, from, to)?));
    let first_owners = first_owners.await?;
    let target = format!("{target}&{}", first_owners.query());
    let next = |page: &VersionDiff| page.next.clone();
    let (pages, missing) = first_owners.ask(app, vec![target], seconds, next).await;
    let mut counts = DiffCounts::default();
    pages.into_iter().for_each(|page| counts.add(page.counts));
    counts.equal = counts.keys_before.saturating_sub(counts.gone + counts.changed);
    Ok(VersionDiff {
        from: from.get(),
        to: to.get(),
        counts,
        missing,
        next: None,
    })
}

/// The record of a store that has both versions, which can be compared.
fn store_of(app: &App, name: &StoreName, from: VersionNumber, to: VersionNumber) -> Result<StoreRecord, ApiError> {
    let store = store_with(app, name, &[from, to])?;
    if let (Some(before), Some(after)) = (store.details.get(&from), store.details.get(&to))
        && before.partitions != after.partitions
    {
        let message = format!(
            "version {from} of store {name:?} has {} partitions, and version {to} has {}: compare versions that were built for the \
             same number",
            before.partitions, after.partitions
        );
        return Err(ApiError::invalid(message));
    }
    Ok(store)
}

/// The record of a store that keeps, holds or fetches all of these versions.
pub(super) fn store_with(app: &App, name: &StoreName, versions: &[VersionNumber]) -> Result<StoreRecord, ApiError> {
    let store = app.operator.store(name)?;
    if store.definition.kind == StoreKind::Versioned {
        return Err(OperatorError::Versioned { store: name.clone() }.into());
    }
    let has = |version| store.versions.contains(version) || store.pushed() == Some(version);
    if let Some(&version) = versions.iter().find(|&&version| !has(version)) {
        let kept: Vec<_> = store.versions.kept().map(|version| version.to_string()).collect();
        return Err(OperatorError::VersionNotFound {
            store: name.clone(),
            version,
            kept: kept.join(", "),
        }
        .into());
    }
    Ok(store)
}

/// Compares on this node, from a position on, for a while.
fn page(app: &App, name: &StoreName, epoch: u64, asked: &Asked) -> Result<VersionDiff, ApiError> {
    let store = store_of(app, name, asked.from, asked.to)?;
    let (count, own) = own_partitions(app, &store, epoch, &asked.without)?;
    let agent = app.agent.as_ref();
    let open = |version| -> Result<Arc<Version>, ApiError> {
        let version = agent.and_then(|agent| agent.open_version(name, version));
        version.ok_or_else(|| not_here(name))
    };
    let (before, after) = (open(asked.from)?, open(asked.to)?);
    let counter = DiffCounter::new(before.manifest(), after.manifest(), asked.nulls()?);
    let position = asked.after.as_deref().unwrap_or("0");
    let invalid = || ApiError::invalid(format!("invalid position {position:?}"));
    let (first, hash) = position.split_once('.').unwrap_or((position, "0"));
    let first: u32 = first.parse().map_err(|_| invalid())?;
    let mut hash: u64 = hash.parse().map_err(|_| invalid())?;
    let built_for = after.manifest().partitions;
    let (begun, mut counts) = (Instant::now(), DiffCounts::default());
    for partition in own.into_iter().filter(|partition| partition.get() >= first) {
        // A partition of versions that were built for fewer is compared with the first one that it has keys of.
        let of_version = built_for.covering(partition, count);
        let former = partition.get().checked_sub(1).map(PartitionId::new);
        if former.is_some_and(|former| built_for.covering(former, count) == of_version) {
            continue;
        }
        let next = compare_partition((&before, &after), &counter, (of_version, hash), begun, &mut counts);
        let next = next.map_err(|error| match error {
            FormatError::NotHeld { .. } => not_here(name),
            error @ FormatError::Incomparable { .. } => ApiError::invalid(error.to_string()),
            error => error.into(),
        })?;
        hash = 0;
        if let Some(next) = next {
            return Ok(answer(asked, counts, Some(format!("{partition}.{next}"))));
        }
    }
    Ok(answer(asked, counts, None))
}

/// Compares a partition from a hash on, for a while; returns the hash to continue at.
fn compare_partition(
    (before, after): (&Version, &Version),
    counter: &DiffCounter,
    (partition, from): (PartitionId, u64),
    begun: Instant,
    counts: &mut DiffCounts,
) -> Result<Option<u64>, FormatError> {
    if begun.elapsed() >= PAGE_TIME_MAX {
        return Ok(Some(from));
    }
    let mut comparison = Comparison::new(before, after, partition, from, counter.needs_everything())?;
    if from == 0 {
        let sums = |version: &Version| {
            let chunks = version.manifest().chunks.iter();
            let chunks = chunks.filter(|chunk| chunk.partition == partition);
            chunks.fold((0, 0), |(keys, bytes), chunk| {
                (keys + chunk.records, bytes + chunk.data.bytes)
            })
        };
        let ((keys_before, bytes_before), (keys_after, bytes_after)) = (sums(before), sums(after));
        counts.keys_before += keys_before;
        counts.keys_after += keys_after;
        counts.bytes_before += bytes_before;
        counts.bytes_after += bytes_after;
    }
    while let Some(found) = comparison.step()? {
        found.iter().for_each(|compared| counter.count(compared, counts));
        if begun.elapsed() >= PAGE_TIME_MAX {
            return Ok(comparison.position());
        }
    }
    Ok(None)
}

fn answer(asked: &Asked, counts: DiffCounts, next: Option<String>) -> VersionDiff {
    VersionDiff {
        from: asked.from.get(),
        to: asked.to.get(),
        counts,
        missing: Vec::new(),
        next,
    }
}

fn not_here(store: &StoreName) -> ApiError {
    let message = format!(
        "this node does not have both versions of store {store:?} in all its partitions yet: ask again in a moment"
    );
    ApiError::new("unavailable", message)
}
