//! `/v1/stores/{store}/events` and `/v1/stores/{store}/stream`: logging events, the progress of reading them, and their
//! effects.

use std::time::Instant;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::Uri;
use axum::response::Response;
use fondaco_agent::AgentWork;
use fondaco_api::{
    CHANGED_TO_DATED, CHANGED_TO_VALUE, ErrorResource, EventsLogged, FailedStream, Frame, NewEvent, NewEvents,
    PoisonList, PoisonRecord, StreamStatus, VersionStream,
};
use fondaco_decisions::operator::OperatorError;
use fondaco_format::ScanPosition;
use fondaco_model::{NodeId, PartitionId, StoreName, StreamSource, VersionNumber};
use fondaco_protocol::now_unix_ms;
use fondaco_schema::ValueRules;
use fondaco_stream::{Change, Event, Feed, Poison, SettledPage, StreamError, topic_partition};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::App;
use crate::body::{JsonBody, PathTexts, QueryOf, StorePath};
use crate::error::ApiError;
use crate::other_nodes;
use crate::other_nodes::{Answers, ask_a_node};
use crate::records::page_response;

/// Log events of a hybrid store whose source is `log`. They survive the end of the process, and are served soon after.
#[utoipa::path(post, path = "/v1/stores/{store}/events", tag = "streams", params(("store" = String, Path, description = "The store")), request_body = NewEvents, responses(
    (status = 200, description = "All events are logged", body = EventsLogged),
    (status = "default", description = "An error: invalid_request, store_not_found, not_hybrid, no_log, quota", body = ErrorResource),
))]
pub(super) async fn log(
    State(app): State<App>,
    StorePath(name): StorePath,
    JsonBody(new): JsonBody<NewEvents>,
) -> Result<Json<EventsLogged>, ApiError> {
    let logged = app.blocking(move |app| {
        let store = app.operator.store(&name)?;
        let Some(stream) = &store.definition.stream else {
            return Err(OperatorError::NotHybrid { store: name }.into());
        };
        let log = app.events.as_ref().ok_or_else(ApiError::no_event_log)?;
        let topic = match &stream.source {
            StreamSource::Log(partitions) => log.topic(&store.log_topic(), *partitions)?,
            StreamSource::Kafka { .. } => return Err(ApiError::no_event_log()),
        };
        let rules = app.agent.as_ref().and_then(|agent| agent.streams().rules(&store));
        let rules = rules.map(|rules| ValueRules::clone(&rules.load())).unwrap_or_default();
        let each = new.events.into_iter().enumerate();
        let events = each.map(|(at, event)| event_of(event, &rules).map_err(|reason| invalid_event(at, &reason)));
        let events: Vec<Event> = events.collect::<Result<_, _>>()?;
        let now_unix_ms = now_unix_ms();
        for (at, event) in events.iter().enumerate() {
            event
                .check(now_unix_ms, stream.clock_ahead_ms)
                .map_err(|Poison(reason)| invalid_event(at, &reason))?;
        }
        if let Some(quota) = stream.write_keys_per_second
            && !topic.admits(events.len(), quota, Instant::now())
        {
            return Err(ApiError::over_write_quota(&name, quota));
        }
        topic.append(&events, now_unix_ms)?;
        Ok(events.len() as u64)
    });
    Ok(Json(EventsLogged { logged: logged.await? }))
}

/// An event with the value as it is stored; or why it cannot be one.
fn event_of(event: NewEvent, rules: &ValueRules) -> Result<Event, String> {
    let change = match (event.value, event.json, event.update) {
        (None, None, Some(update)) => Change::Update(update.to_string().into()),
        (None, Some(json), None) => {
            let value = rules.of_json(&json).map_err(|error| error.to_string())?;
            Change::Put(value.into())
        }
        (Some(value), None, None) => {
            rules.check(value.as_bytes()).map_err(|error| error.to_string())?;
            Change::Put(value.into())
        }
        (None, None, None) => Change::Delete,
        _ => return Err("it has two of value, json and update: it can have one of them".to_owned()),
    };
    Ok(Event {
        key: event.key.into(),
        change,
        time_ms: event.time_unix_ms,
        id: event.id.map(Into::into),
    })
}

/// An event that cannot be applied: none was logged.
fn invalid_event(at: usize, reason: &str) -> ApiError {
    ApiError::invalid(format!(
        "event number {at}, counted from 0: {reason}; no event was logged"
    ))
}

/// The processes to ask: the answering one alone, or all live nodes.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    /// Whether only the answering process reports its progress, instead of all live nodes.
    #[serde(default)]
    #[param(default = false)]
    own: bool,
}

/// How far the live nodes have read the stream of a hybrid store.
#[utoipa::path(get, path = "/v1/stores/{store}/stream", tag = "streams", params(("store" = String, Path, description = "The store"), Whose), responses(
    (status = 200, description = "The stream as the nodes have read it, the answering one first", body = StreamStatus),
    (status = "default", description = "An error: store_not_found, not_hybrid", body = ErrorResource),
))]
pub(super) async fn show(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(Whose { own }): QueryOf<Whose>,
) -> Result<Json<StreamStatus>, ApiError> {
    let target = format!("/v1/stores/{name}/stream?own=true");
    let status = app.blocking(move |app| {
        if app.operator.store(&name)?.definition.stream.is_none() {
            return Err(OperatorError::NotHybrid { store: name }.into());
        }
        let node = app.node().map(NodeId::get);
        let streams = || app.agent.iter().map(|agent| agent.streams());
        let versions = streams().flat_map(|streams| streams.status(&name));
        let failed = streams().flat_map(|streams| streams.failures(&name));
        Ok(StreamStatus {
            versions: versions.map(|status| VersionStream { node, ..status.into() }).collect(),
            failed: failed
                .map(|(version, error)| FailedStream {
                    node,
                    version: version.get(),
                    error,
                })
                .collect(),
            silent: Vec::new(),
        })
    });
    let mut status = status.await?;
    if own {
        return Ok(Json(status));
    }
    let Answers { answers, silent } = other_nodes::ask::<StreamStatus>(&app, &target).await;
    for (node, answer) in answers {
        let node = Some(node.get());
        let versions = answer.versions.into_iter();
        status
            .versions
            .extend(versions.map(|version| VersionStream { node, ..version }));
        let failed = answer.failed.into_iter();
        status
            .failed
            .extend(failed.map(|failed| FailedStream { node, ..failed }));
    }
    status.silent = silent.into_iter().map(NodeId::get).collect();
    Ok(Json(status))
}

/// The records of a hybrid store's topic that are no events, as the live nodes have read them.
#[utoipa::path(get, path = "/v1/stores/{store}/stream/poison", tag = "streams", params(("store" = String, Path, description = "The store"), Whose), responses(
    (status = 200, description = "The records", body = PoisonList),
    (status = "default", description = "An error: store_not_found, not_hybrid", body = ErrorResource),
))]
pub(super) async fn poison(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(Whose { own }): QueryOf<Whose>,
) -> Result<Json<PoisonList>, ApiError> {
    let target = format!("/v1/stores/{name}/stream/poison?own=true");
    let list = app.blocking(move |app| {
        let definition = app.operator.store(&name)?.definition;
        let Some(stream) = definition.stream else {
            return Err(OperatorError::NotHybrid { store: name }.into());
        };
        let mut records = Vec::new();
        for (version, overlay) in app.agent.iter().flat_map(|agent| agent.streams().overlays(&name)) {
            let of_version = overlay.poisoned()?.into_iter();
            records.extend(of_version.map(|(number, offset, reason)| {
                let (topic, partition) = topic_partition(number);
                PoisonRecord {
                    version: version.get(),
                    topic,
                    partition,
                    offset,
                    reason,
                }
            }));
        }
        let source = stream.source.to_string();
        Ok(PoisonList {
            source,
            records,
            silent: Vec::new(),
        })
    });
    let mut list = list.await?;
    if own {
        return Ok(Json(list));
    }
    let Answers { answers, silent } = other_nodes::ask::<PoisonList>(&app, &target).await;
    list.records
        .extend(answers.into_iter().flat_map(|(_, answer)| answer.records));
    // Replicas read the same records.
    let place = |record: &PoisonRecord| (record.version, record.topic, record.partition, record.offset);
    list.records.sort_by_key(place);
    list.records.dedup_by_key(|record| place(record));
    list.silent = silent.into_iter().map(NodeId::get).collect();
    Ok(Json(list))
}

/// About how many bytes a page of changes has; it has at least one key.
const PAGE_BYTES: usize = 1 << 20;

/// The query of a request for changes.
#[derive(Deserialize)]
struct Asked {
    version: VersionNumber,
    until_unix_ms: u64,
    #[serde(default)]
    after: u64,
    #[serde(default)]
    dated: bool,
    #[serde(default)]
    expired: bool,
}

/// The effects of the events of a hybrid store up to a time on the keys of a partition, page by page, as the answering node
/// has read them: for a version that contains them.
#[utoipa::path(get, path = "/v1/stores/{store}/stream/changes/{partition}", tag = "streams", params(
    ("store" = String, Path, description = "The store"),
    ("partition" = u32, Path, description = "The partition, of as many as the version was built for"),
    ("version" = u64, Query, description = "The version that the events are on top of"),
    ("until_unix_ms" = u64, Query, description = "Up to which time, in milliseconds since 1970: at most the node's `settled_unix_ms`"),
    ("dated" = Option<bool>, Query, description = "Whether values come with their times"),
    ("expired" = Option<bool>, Query, description = "Whether to list, instead, the keys without events whose records in the version have expired at that time"),
    ("after" = Option<String>, Query, description = "The position to continue at: the header `fondaco-next` of the page before"),
), responses(
    (status = 200, description = "Keys, each with a byte 1 and its value, or a byte 2, the time of the value (8 bytes, little-endian, milliseconds since 1970) and the value, or a byte 0 if it was deleted or has expired, in the frames of backups; keys whose later events replace all that was before are left out", body = Vec<u8>, content_type = "application/octet-stream",
        headers(("fondaco-next" = String, description = "The position of the next page; a last page has none"))),
    (status = "default", description = "An error: invalid_request, store_not_found, not_hybrid, unavailable, not_settled", body = ErrorResource),
))]
pub(super) async fn changes(
    State(app): State<App>,
    PathTexts((store, partition)): PathTexts<(StoreName, u32)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = Query::try_from_uri(&uri);
    let Query(asked) = query.map_err(|error| ApiError::invalid(format!("invalid query: {error}")))?;
    let Asked {
        version,
        until_unix_ms,
        after,
        dated,
        expired,
    } = asked;
    // Shared with backups, so that clients get most of the disk. The semaphore is never closed.
    let _permit = app.limits.pages.acquire().await.ok();
    let page = app.blocking(move |app| {
        if app.operator.store(&store)?.definition.stream.is_none() {
            return Err(OperatorError::NotHybrid { store }.into());
        }
        let feed = app
            .agent
            .as_ref()
            .and_then(|agent| agent.streams().of_version(&store, version));
        let Some(feed) = feed else { return Ok(None) };
        let partition = PartitionId::new(partition);
        match expired {
            true => Ok(app.agent.as_ref().map_or(Ok(None), |agent| {
                expired_of(agent, &feed, (&store, version), (partition, after), until_unix_ms)
            })?),
            false => Ok(feed.settled(partition, after, until_unix_ms, PAGE_BYTES)?),
        }
    });
    let Some(SettledPage { changes, next }) = page.await? else {
        let why = format!("partition {partition} of version {version} does not answer here");
        return Err(ask_a_node(&app, &why));
    };
    let mut body = Vec::new();
    for (key, value) in changes {
        let record = match &value {
            Some((value, time_ms)) if dated => [&[CHANGED_TO_DATED], &time_ms.to_le_bytes()[..], value].concat(),
            Some((value, _)) => [&[CHANGED_TO_VALUE], &value[..]].concat(),
            None => vec![0],
        };
        // Writing to memory cannot fail.
        let _ = Frame::write(&key, &record, &mut body);
    }
    Ok(page_response(body, next.map(|next| next.to_string())))
}

/// How many records of the version a page of expired keys looks at.
const EXPIRED_RECORDS: usize = 20_000;

/// One page of the keys of a partition without events whose records in the version have expired at a time, from a hash on. `None`
/// if the partition does not answer.
fn expired_of(
    agent: &AgentWork,
    feed: &Feed,
    (store, version): (&StoreName, VersionNumber),
    (partition, after): (PartitionId, u64),
    until_unix_ms: u64,
) -> Result<Option<SettledPage>, ApiError> {
    let (overlay, open) = (feed.overlay(), agent.open_version(store, version));
    let Some(open) = open.filter(|open| open.holds(partition) && overlay.ready().contains(partition)) else {
        return Ok(None);
    };
    let position = ScanPosition { partition, hash: after };
    let listed = open.expired_from(position, until_unix_ms, EXPIRED_RECORDS);
    let (keys, next) = listed.map_err(|error| StreamError::Version {
        reason: error.to_string(),
    })?;
    let mut changes = Vec::new();
    for key in keys {
        if !overlay.has_events(&key)? {
            changes.push((key.into(), None));
        }
    }
    Ok(Some(SettledPage { changes, next }))
}
