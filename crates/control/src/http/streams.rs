//! `/v1/stores/{store}/events` and `/v1/stores/{store}/stream`: logging events, and how far they were read.

use axum::Json;
use axum::extract::State;
use fondaco_model::StreamSource;
use fondaco_model::cluster::operator::OperatorError;
use fondaco_stream::{Change, Event, Poison};

use super::app::App;
use super::body::{JsonBody, StorePath};
use super::error::{ApiError, ErrorResource};
use super::resources::{EventsLogged, NewEvent, NewEvents, PoisonList, PoisonRecord, StreamStatus};
use crate::agent::topic_of;
use crate::error::ControlError;
use crate::now_unix_ms;

/// Log events of a hybrid store whose source is `log`. They survive the end of the process, and are served soon after.
#[utoipa::path(post, path = "/v1/stores/{store}/events", tag = "streams", params(("store" = String, Path, description = "The store")), request_body = NewEvents, responses(
    (status = 200, description = "All events are logged", body = EventsLogged),
    (status = "default", description = "An error: invalid_request, store_not_found, not_hybrid, no_log", body = ErrorResource),
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
        let log = app.events.as_ref().ok_or(ControlError::NoEventLog)?;
        let topic = match &stream.source {
            StreamSource::Log(partitions) => log.topic(&topic_of(&store), *partitions)?,
            StreamSource::Kafka { .. } => return Err(ControlError::NoEventLog),
        };
        let has_both = |event: &NewEvent| event.update.is_some() && event.value.is_some();
        if let Some(at) = new.events.iter().position(has_both) {
            let reason = "it has a value and an update: it can have one of them".to_owned();
            return Err(ControlError::InvalidEvent { at, reason });
        }
        let events: Vec<Event> = new
            .events
            .into_iter()
            .map(|event| Event {
                key: event.key.into(),
                change: match event.update {
                    Some(update) => Change::Update(update.to_string().into()),
                    None => Change::of(event.value.map(Into::into)),
                },
                time_ms: event.time_unix_ms,
                id: event.id.map(Into::into),
            })
            .collect();
        let now_unix_ms = now_unix_ms();
        for (at, event) in events.iter().enumerate() {
            event
                .check(now_unix_ms)
                .map_err(|Poison(reason)| ControlError::InvalidEvent { at, reason })?;
        }
        topic.append(&events, now_unix_ms)?;
        Ok(events.len() as u64)
    });
    Ok(Json(EventsLogged { logged: logged.await? }))
}

/// How far the answering node has read the stream of a hybrid store.
#[utoipa::path(get, path = "/v1/stores/{store}/stream", tag = "streams", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The stream as the node has read it", body = StreamStatus),
    (status = "default", description = "An error: store_not_found, not_hybrid", body = ErrorResource),
))]
pub(super) async fn show(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<StreamStatus>, ApiError> {
    let versions = app.blocking(move |app| {
        if app.operator.store(&name)?.definition.stream.is_none() {
            return Err(OperatorError::NotHybrid { store: name }.into());
        }
        let versions = app.agent.iter().flat_map(|agent| agent.streams().status(&name));
        Ok(versions.map(Into::into).collect())
    });
    Ok(Json(StreamStatus {
        versions: versions.await?,
    }))
}

/// The records of a hybrid store's topic that are no events, as the answering node has read them.
#[utoipa::path(get, path = "/v1/stores/{store}/stream/poison", tag = "streams", params(("store" = String, Path, description = "The store")), responses(
    (status = 200, description = "The records", body = PoisonList),
    (status = "default", description = "An error: store_not_found, not_hybrid", body = ErrorResource),
))]
pub(super) async fn poison(State(app): State<App>, StorePath(name): StorePath) -> Result<Json<PoisonList>, ApiError> {
    let list = app.blocking(move |app| {
        let definition = app.operator.store(&name)?.definition;
        let Some(stream) = definition.stream else {
            return Err(OperatorError::NotHybrid { store: name }.into());
        };
        let mut records = Vec::new();
        for (version, overlay) in app.agent.iter().flat_map(|agent| agent.streams().overlays(&name)) {
            let of_version = overlay.poisoned()?.into_iter();
            records.extend(of_version.map(|(partition, offset, reason)| PoisonRecord {
                version: version.get(),
                partition,
                offset,
                reason,
            }));
        }
        let source = stream.source.to_string();
        Ok(PoisonList { source, records })
    });
    Ok(Json(list.await?))
}
