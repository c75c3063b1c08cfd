//! `/v1/stores/{store}/events` and `/v1/stores/{store}/stream`: logging events, and how far they were read.

use axum::Json;
use axum::extract::State;
use fondaco_model::StreamSource;
use fondaco_model::cluster::operator::OperatorError;
use fondaco_stream::{Event, Poison};

use super::app::App;
use super::body::{JsonBody, StorePath};
use super::error::{ApiError, ErrorResource};
use super::resources::{EventsLogged, NewEvents, StreamStatus};
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
        let events: Vec<Event> = new
            .events
            .into_iter()
            .map(|event| Event {
                key: event.key.into(),
                value: event.value.map(Into::into),
                time_ms: event.time_unix_ms,
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
