//! `/v1/stores/{store}/schemas/records`: how many records of a store have each schema.
//!
//! Any process answers: it asks the live nodes. A node counts the partitions of which it is the first owner, by one routing table and
//! without the nodes that the asking process knows to be absent, so that each key counts once. Versions whose values are all of one
//! schema are counted by their manifest. All others, events and versioned stores are read in one sequential pass, page by page, as
//! backups read them, and no longer than the caller waits. No count is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco_api::{ErrorResource, SchemaCount, SchemaRecords};
use fondaco_format::{ScanPosition, Version};
use fondaco_model::cluster::StoreRecord;
use fondaco_model::versioned::Record;
use fondaco_model::{PartitionCount, PartitionId, StoreName, VersionNumber};
use fondaco_protocol::now_unix_ms;
use fondaco_replica::Replicas;
use fondaco_schema::read_id;
use fondaco_stream::Overlay;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{QueryOf, StorePath};
use crate::error::ApiError;
use crate::first_owners::{FirstOwners, own_partitions};

/// How long a caller waits for the counts unless it says so, in seconds.
const SECONDS_DEFAULT: u64 = 30;

/// How long a caller may wait for the counts, in seconds.
const SECONDS_MAX: u64 = 3600;

/// How long a node counts for one answer to the process that asks.
const PAGE_TIME_MAX: Duration = Duration::from_millis(500);

/// About how many bytes of records of a versioned store are read at a time.
const PAGE_BYTES: usize = 1 << 20;

/// About how many records of a version, or of events, are read at a time.
const PAGE_RECORDS: usize = 10_000;

/// The query of a request for counts.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// How long to wait for nodes that count, in seconds: 1 to 3600.
    #[param(default = 30)]
    seconds: Option<u64>,
    /// Between nodes: count only the partitions that the answering node owns first, by the routing table of this epoch.
    epoch: Option<u64>,
    /// Between nodes: the numbers of absent nodes, joined by commas. The next owners count their partitions.
    #[serde(default)]
    without: String,
    /// Between nodes: the version to count.
    #[param(value_type = Option<u64>)]
    version: Option<VersionNumber>,
    /// Between nodes: whether to count the events on top of the version instead.
    #[serde(default)]
    events: bool,
    /// Between nodes: the `next` of the answer before.
    after: Option<String>,
}

/// Count the records of a store by their schemas. Nodes read all records, unless a manifest has the number.
#[utoipa::path(get, path = "/v1/stores/{store}/schemas/records", tag = "schemas", params(("store" = String, Path, description = "The store"), Asked), responses(
    (status = 200, description = "The counts, and the nodes that could not count in time", body = SchemaRecords),
    (status = "default", description = "An error: invalid_request, store_not_found, old_routing, unavailable", body = ErrorResource),
))]
pub(super) async fn count(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(asked): QueryOf<Asked>,
) -> Result<Json<SchemaRecords>, ApiError> {
    if let Some(epoch) = asked.epoch {
        // Shared with backups, so that clients get most of the disk. The semaphore is never closed.
        let _permit = app.limits.pages.acquire().await.ok();
        return app.blocking(move |app| page(app, &name, epoch, &asked)).await.map(Json);
    }
    let seconds = asked.seconds.unwrap_or(SECONDS_DEFAULT);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let message = format!("invalid seconds {seconds}: use 1 to {SECONDS_MAX}");
        return Err(ApiError::invalid(message));
    }
    let plan = app.blocking(move |app| {
        let store = store_of(app, &name)?;
        let first_owners = FirstOwners::of(app, &store)?;
        let targets = targets(&store, &first_owners);
        Ok((first_owners, targets))
    });
    let (first_owners, targets) = plan.await?;
    Ok(Json(count_all(&app, first_owners, targets, seconds).await))
}

/// The record of a store whose values have schemas.
fn store_of(app: &App, name: &StoreName) -> Result<StoreRecord, ApiError> {
    let store = app.operator.store(name)?;
    let value_type = store.definition.value_type;
    match value_type.has_schemas() {
        true => Ok(store),
        false => Err(ApiError::invalid(format!(
            "values of type {value_type} have no schemas: store {name:?} has no counts by schema"
        ))),
    }
}

/// The paths that each node is asked for, one after the other.
fn targets(store: &StoreRecord, first_owners: &FirstOwners) -> Vec<String> {
    let name = &store.definition.name;
    let target = format!("/v1/stores/{name}/schemas/records?{}", first_owners.query());
    if store.definition.versioned.is_some() {
        return vec![target];
    }
    let events = store.versions.current().filter(|_| store.definition.stream.is_some());
    let events = events.map(|version| format!("{target}&version={version}&events=true"));
    let versions = store.versions.kept();
    versions
        .map(|version| format!("{target}&version={version}"))
        .chain(events)
        .collect()
}

/// Asks all nodes at the same time.
async fn count_all(app: &App, first_owners: FirstOwners, targets: Vec<String>, seconds: u64) -> SchemaRecords {
    let next = |page: &SchemaRecords| page.next.clone();
    let (pages, missing) = first_owners.ask(app, targets, seconds, next).await;
    let mut sums = BTreeMap::new();
    for count in pages.into_iter().flat_map(|page| page.counts) {
        *sums.entry((count.version, count.events, count.schema)).or_default() += count.records;
    }
    SchemaRecords {
        counts: counts_of(sums),
        missing,
        next: None,
    }
}

/// The version, whether it is about events, and the schema, each with a number of records.
type Sums = BTreeMap<(Option<u64>, bool, Option<u16>), u64>;

fn counts_of(sums: Sums) -> Vec<SchemaCount> {
    let count = |((version, events, schema), records)| SchemaCount {
        schema,
        version,
        events,
        records,
    };
    sums.into_iter().map(count).collect()
}

/// Counts on this node, from a position on, for a while.
fn page(app: &App, name: &StoreName, epoch: u64, asked: &Asked) -> Result<SchemaRecords, ApiError> {
    let store = store_of(app, name)?;
    let (count, own) = own_partitions(app, &store, epoch, &asked.without)?;
    let invalid = |what: &str, text: &str| ApiError::invalid(format!("invalid {what} {text:?}"));
    let after = asked.after.as_deref().unwrap_or("0");
    let (first, mut cursor) = match after.split_once('.') {
        Some((first, cursor)) => (first, Some(cursor.to_owned())),
        None => (after, None),
    };
    let first: u32 = first.parse().map_err(|_| invalid("position", after))?;
    let subject = Subject::of(app, &store, asked)?;
    let own = own.into_iter().filter(|partition| partition.get() >= first);
    let (begun, mut found, mut next) = (Instant::now(), BTreeMap::new(), None);
    'all: for partition in own {
        loop {
            if begun.elapsed() >= PAGE_TIME_MAX {
                let cursor = cursor.map_or_else(String::new, |cursor| format!(".{cursor}"));
                next = Some(format!("{partition}{cursor}"));
                break 'all;
            }
            cursor = subject.count((count, partition), cursor.as_deref(), &mut found)?;
            if cursor.is_none() {
                break;
            }
        }
    }
    let version = asked.version.map(VersionNumber::get);
    let found = found.into_iter();
    Ok(SchemaRecords {
        counts: counts_of(
            found
                .map(|(schema, records)| ((version, asked.events, schema), records))
                .collect(),
        ),
        missing: Vec::new(),
        next,
    })
}

/// How many records have each schema; `None` is for values that begin with no schema id.
type Found = BTreeMap<Option<u16>, u64>;

fn add(found: &mut Found, value: Option<&[u8]>) {
    let schema = value.and_then(|value| read_id(value).ok()).map(|(id, _)| id);
    *found.entry(schema).or_default() += 1;
}

/// The records that are counted.
enum Subject {
    Replicas(Arc<Replicas>, u16),
    Version(Arc<Version>),
    Events(Arc<Overlay>),
}

impl Subject {
    fn of(app: &App, store: &StoreRecord, asked: &Asked) -> Result<Self, ApiError> {
        let name = &store.definition.name;
        let agent = app.agent.as_ref();
        let found = match (store.definition.versioned, asked.version) {
            (Some(_), None) => {
                let replicas = app.cluster_client.replicas.as_ref();
                replicas.map(|replicas| Self::Replicas(Arc::clone(replicas), store.id))
            }
            (None, Some(version)) if asked.events => {
                let overlays = agent.map(|agent| agent.streams().overlays(name)).unwrap_or_default();
                let mut overlays = overlays.into_iter();
                let found = overlays.find(|(number, _)| *number == version);
                found.map(|(_, overlay)| Self::Events(overlay))
            }
            (None, Some(version)) => agent
                .and_then(|agent| agent.open_version(name, version))
                .map(Self::Version),
            _ => {
                let message = format!("store {name:?} is counted by version if, and only if, it has versions");
                return Err(ApiError::invalid(message));
            }
        };
        found.ok_or_else(|| not_here(name))
    }

    /// Counts some records of a partition, from a position in it on; returns the next position in it.
    fn count(
        &self,
        (count, partition): (PartitionCount, PartitionId),
        after: Option<&str>,
        found: &mut Found,
    ) -> Result<Option<String>, ApiError> {
        let invalid = || ApiError::invalid(format!("invalid position {after:?}"));
        if let Self::Replicas(replicas, store) = self {
            let after = after.map(|after| URL_SAFE_NO_PAD.decode(after)).transpose();
            let after = after.map_err(|_| invalid())?;
            return count_replica(replicas, *store, (count, partition), after.as_deref(), found);
        }
        let built_for = match self {
            Self::Version(version) => version.manifest().partitions,
            Self::Events(overlay) => overlay.options().partitions,
            Self::Replicas(..) => count,
        };
        let own = built_for.covering(partition, count);
        // A partition of a version that was built for fewer is counted with the first one that it has keys of.
        let before = partition.get().checked_sub(1).map(PartitionId::new);
        if before.is_some_and(|before| built_for.covering(before, count) == own) {
            return Ok(None);
        }
        let hash: u64 = after.map_or(Ok(0), str::parse).map_err(|_| invalid())?;
        let next = match self {
            Self::Version(version) => count_version(version, ScanPosition { partition: own, hash }, found)?,
            Self::Events(overlay) if overlay.ready().contains(own) => {
                overlay.each_value((own, hash), PAGE_RECORDS, |value| add(found, Some(value)))?
            }
            Self::Events(overlay) => return Err(not_here(&overlay.options().store)),
            Self::Replicas(..) => None,
        };
        Ok(next.map(|next| next.to_string()))
    }
}

/// Counts some records of a partition of a versioned store. Of concurrent values of a key the latest counts.
fn count_replica(
    replicas: &Replicas,
    store: u16,
    partition: (PartitionCount, PartitionId),
    after: Option<&[u8]>,
    found: &mut Found,
) -> Result<Option<String>, ApiError> {
    let page = replicas.records_page(store, partition, None, after, PAGE_BYTES);
    let page = page.map_err(|message| ApiError::new("internal", message))?;
    let page = page.ok_or_else(|| {
        let message = format!(
            "partition {} is not complete on this node: ask again in a moment",
            partition.1
        );
        ApiError::new("unavailable", message)
    })?;
    let now_unix_ms = now_unix_ms();
    for pair in page.records {
        let Ok(record) = Record::decode(pair.record) else {
            add(found, None);
            continue;
        };
        let siblings = record.siblings().iter();
        let values = siblings.filter_map(|sibling| Some((sibling, sibling.value_at(now_unix_ms)?)));
        if let Some((_, value)) = values.max_by_key(|(sibling, _)| (sibling.written_unix_ms, sibling.dot)) {
            add(found, Some(value));
        }
    }
    Ok(page.next.map(|next| URL_SAFE_NO_PAD.encode(next)))
}

/// Counts some records of a partition of a version, or all of them by the manifest.
fn count_version(version: &Version, position: ScanPosition, found: &mut Found) -> Result<Option<u64>, ApiError> {
    let manifest = version.manifest();
    if !version.holds(position.partition) {
        return Err(not_here(&manifest.store));
    }
    if let [schema] = &manifest.value_schemas[..] {
        let chunks = manifest
            .chunks
            .iter()
            .filter(|chunk| chunk.partition == position.partition);
        *found.entry(Some(schema.id)).or_default() += chunks.map(|chunk| chunk.records).sum::<u64>();
        return Ok(None);
    }
    let (records, next) = version.scan_partition(position, PAGE_RECORDS)?;
    records.iter().for_each(|(_, value)| add(found, Some(value)));
    let next = next.filter(|next| next.partition == position.partition);
    Ok(next.map(|next| next.hash))
}

fn not_here(store: &StoreName) -> ApiError {
    let message = format!("this node does not have all its partitions of store {store:?} yet: ask again in a moment");
    ApiError::new("unavailable", message)
}
