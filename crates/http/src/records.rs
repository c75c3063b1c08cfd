//! The records of versioned stores, for backups: this node's records of a partition and its hints for other nodes, page
//! by page, and records to be merged into this node's.
//!
//! Reads and writes here concern this replica alone: no other node is asked. The backup asks enough nodes to see every
//! acknowledged write.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, Uri, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fondaco_api::{ErrorResource, FRAME_BYTES_MAX, Frame, NEXT_HEADER};
use fondaco_decisions::operator::OperatorError;
use fondaco_model::{PartitionCount, PartitionId, StoreName};
use fondaco_protocol::replica::{KeyRecord, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest};
use fondaco_replica::{RecordsPage, Replicas};
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::app::App;
use crate::body::{BytesBody, PathTexts, StorePath};
use crate::error::ApiError;
use crate::other_nodes::ask_a_node;

/// About how many bytes of records a page has; a page has at least one record.
const PAGE_BYTES: usize = 1 << 20;

/// How long the body of a request to merge records may be, in bytes: the longest record fits.
pub(super) const MERGE_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// How long records may wait to be merged, in milliseconds.
const MERGE_TIME_MAX_MS: u64 = 20_000;

/// The query of a request about records.
#[derive(Deserialize)]
struct Asked {
    /// Where a page begins: the position given by the page before.
    after: Option<String>,
    /// How many partitions there are, as far as the caller knows.
    partitions: Option<u32>,
    /// The epoch of the routing table by which this node was chosen.
    epoch: Option<u64>,
    /// The creation time of the store that is meant.
    created_unix_ms: Option<u64>,
}

impl Asked {
    fn of(uri: &Uri) -> Result<Self, ApiError> {
        let query = Query::try_from_uri(uri);
        let Query(asked) = query.map_err(|error| ApiError::invalid(format!("invalid query: {error}")))?;
        Ok(asked)
    }

    fn epoch(&self) -> Option<NonZeroU64> {
        self.epoch.and_then(NonZeroU64::new)
    }
}

/// Read this node's records of a partition of a versioned store, page by page. For backups.
#[utoipa::path(get, path = "/v1/stores/{store}/partitions/{partition}/records", tag = "backups", params(
    ("store" = String, Path, description = "The store"),
    ("partition" = u32, Path, description = "The partition"),
    ("after" = Option<String>, Query, description = "The position to continue at: the header `fondaco-next` of the page before"),
    ("partitions" = u32, Query, description = "How many partitions there are: refused if they were split meanwhile"),
    ("epoch" = Option<u64>, Query, description = "The epoch of the routing table by which this node was chosen: refused if it is too old"),
    ("created_unix_ms" = Option<u64>, Query, description = "The creation time of the store that is meant: another store of this name is not found"),
), responses(
    (status = 200, description = "Keys with their records, in the order of the hashes of the keys", body = Vec<u8>, content_type = "application/octet-stream",
        headers(("fondaco-next" = String, description = "The position of the next page; a last page has none"))),
    (status = "default", description = "An error: invalid_request, store_not_found, not_versioned, old_routing, unavailable", body = ErrorResource),
))]
pub(super) async fn partition(
    State(app): State<App>,
    PathTexts((store, partition)): PathTexts<(StoreName, u32)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::of(&uri)?;
    let epoch = asked.epoch();
    let partitions = asked.partitions.map(PartitionCount::try_from).transpose();
    let partitions = partitions.map_err(|error| ApiError::invalid(error.to_string()))?;
    let partitions =
        partitions.ok_or_else(|| ApiError::invalid("say how many partitions there are: ?partitions=64"))?;
    let partition = (partitions, PartitionId::new(partition));
    page(&app, &store, asked, move |replicas, store, after| {
        let held = replicas.records_page(store, partition, epoch, after, PAGE_BYTES);
        held.map_err(|message| ApiError::new("internal", message))?
            .ok_or_else(|| {
                let (partitions, partition) = partition;
                let message = format!(
                    "this node does not own partition {partition} of {partitions}: read the routing table again"
                );
                ApiError::new("old_routing", message)
            })
    })
    .await
}

/// Read the hints that this node stores for other nodes of a versioned store, page by page. For backups.
#[utoipa::path(get, path = "/v1/stores/{store}/hints", tag = "backups", params(
    ("store" = String, Path, description = "The store"),
    ("after" = Option<String>, Query, description = "The position to continue at: the header `fondaco-next` of the page before"),
    ("created_unix_ms" = Option<u64>, Query, description = "The creation time of the store that is meant: another store of this name is not found"),
), responses(
    (status = 200, description = "Keys with their records, in no order", body = Vec<u8>, content_type = "application/octet-stream",
        headers(("fondaco-next" = String, description = "The position of the next page; a last page has none"))),
    (status = "default", description = "An error: invalid_request, store_not_found, not_versioned, unavailable", body = ErrorResource),
))]
pub(super) async fn hints(State(app): State<App>, StorePath(store): StorePath, uri: Uri) -> Result<Response, ApiError> {
    page(&app, &store, Asked::of(&uri)?, |replicas, store, after| {
        let kept = replicas.hints_page(store, after, PAGE_BYTES);
        kept.map_err(|message| ApiError::new("internal", message))
    })
    .await
}

/// Answers with a page, when the limit allows it.
async fn page(
    app: &App,
    store: &StoreName,
    asked: Asked,
    read: impl FnOnce(&Replicas, u16, Option<&[u8]>) -> Result<RecordsPage, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let after = asked
        .after
        .as_ref()
        .map(|after| URL_SAFE_NO_PAD.decode(after))
        .transpose();
    let after = after.map_err(|error| ApiError::invalid(format!("invalid position \"after\": {error}")))?;
    let (id, replicas) = replicas_of(app, store, &asked)?;
    // The semaphore is never closed.
    let _permit = app.limits.pages.acquire().await.ok();
    let read = app.blocking(move |_| read(&replicas, id, after.as_deref()));
    let RecordsPage { records, next, .. } = read.await?;
    let bytes = records.iter().map(|pair| Frame::bytes_of(&pair.key, &pair.record));
    let mut body = Vec::with_capacity(bytes.sum());
    for KeyRecord { key, record } in records {
        // Writing to memory cannot fail.
        let _ = Frame::write(&key, &record, &mut body);
    }
    Ok(page_response(body, next.map(|next| URL_SAFE_NO_PAD.encode(next))))
}

/// A page of frames, with the position of the next one.
pub(super) fn page_response(frames: Vec<u8>, next: Option<String>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    let next = next.map(|next| (HeaderName::from_static(NEXT_HEADER), next));
    (kind, AppendHeaders(next), frames).into_response()
}

/// Merge records into this node's records of a versioned store: newer ones stay. For restoring backups.
#[utoipa::path(post, path = "/v1/stores/{store}/records", tag = "backups", params(
    ("store" = String, Path, description = "The store"),
    ("epoch" = Option<u64>, Query, description = "The epoch of the routing table by which this node was chosen: refused if it is too old"),
    ("created_unix_ms" = Option<u64>, Query, description = "The creation time of the store that is meant: another store of this name is not found"),
),
    request_body(content = Vec<u8>, description = "Keys with their records, in the format of pages", content_type = "application/octet-stream"), responses(
    (status = 204, description = "They are merged, and as durable as the store's writes"),
    (status = "default", description = "An error: invalid_request, store_not_found, not_versioned, old_routing, body_too_large, overloaded, unavailable, not_enough_space", body = ErrorResource),
))]
pub(super) async fn merge(
    State(app): State<App>,
    StorePath(store): StorePath,
    uri: Uri,
    BytesBody(body): BytesBody,
) -> Result<StatusCode, ApiError> {
    let asked = Asked::of(&uri)?;
    let records = parse(&body)?;
    let (store_id, replicas) = replicas_of(&app, &store, &asked)?;
    let (sender, receiver) = oneshot::channel();
    let request = ReplicaRequest {
        epoch: asked.epoch(),
        store_id,
        store,
        timeout_ms: MERGE_TIME_MAX_MS,
        operation: ReplicaOperation::Merge { records },
    };
    replicas.request(request, move |reply| {
        // The caller may be gone.
        let _ = sender.send(reply);
    });
    match receiver.await {
        Ok(ReplicaReply::Done) => Ok(StatusCode::NO_CONTENT),
        Ok(ReplicaReply::Error(error)) => {
            let code = match error.code {
                ReplicaErrorCode::Overloaded | ReplicaErrorCode::Timeout => "overloaded",
                ReplicaErrorCode::NotHere | ReplicaErrorCode::NoStore => "unavailable",
                ReplicaErrorCode::OldTable => "old_routing",
                ReplicaErrorCode::DiskFull | ReplicaErrorCode::KeysFull => "not_enough_space",
                ReplicaErrorCode::BadKey => "invalid_request",
                _ => "internal",
            };
            Err(ApiError::new(code, error.to_string()))
        }
        Ok(_) | Err(_) => Err(ApiError::new("unavailable", "the node is stopping: try again")),
    }
}

fn parse(body: &Bytes) -> Result<Vec<KeyRecord>, ApiError> {
    let mut input = &body[..];
    let mut records = Vec::new();
    let invalid = |error| ApiError::invalid(format!("the body is not keys with their records: {error}"));
    while let Some(Frame { key, record }) = Frame::read(&mut input).map_err(invalid)? {
        records.push(KeyRecord {
            key: key.into(),
            record: record.into(),
        });
    }
    match records.is_empty() {
        true => Err(ApiError::invalid("the body is empty: send keys with their records")),
        false => Ok(records),
    }
}

/// The number of the store that is meant, and the replicas of this node.
fn replicas_of(app: &App, name: &StoreName, asked: &Asked) -> Result<(u16, Arc<Replicas>), ApiError> {
    let view = app.operator.mirror().view();
    let store = view.stores.get(name);
    let is_meant = |created_unix_ms| asked.created_unix_ms.is_none_or(|meant| meant == created_unix_ms);
    let Some(store) = store.filter(|store| is_meant(store.record.created_unix_ms)) else {
        return Err(OperatorError::StoreNotFound { store: name.clone() }.into());
    };
    if store.record.definition.versioned.is_none() {
        return Err(OperatorError::NotVersioned { store: name.clone() }.into());
    }
    match &app.cluster_client.replicas {
        Some(replicas) => Ok((store.record.id, Arc::clone(replicas))),
        None => Err(ask_a_node(app, "this process holds no records")),
    }
}
