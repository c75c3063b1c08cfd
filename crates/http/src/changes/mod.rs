//! `/v1/stores/{store}/changes`: following the changes of a store, as pages of JSON or as server-sent events; for RESP, see
//! [`change_reader`].
//!
//! - `position`: how far a follower has come, as opaque text;
//! - `follow`: the frame, whatever the kind of the store;
//! - `views`: batch and hybrid stores: joins the parts of all nodes, which `owners` asks;
//! - `part`: the part that a node has: comparisons of versions, and events on top of them;
//! - `records`: versioned stores, both the joining process and the part of a node;
//! - `followers`: limits and counts.
//!
//! A follower pulls: what it has not read is nowhere in memory, however slow it is. The bound is what is kept: versions, and events in the
//! topic.

mod follow;
mod followers;
mod owners;
mod part;
mod position;
mod reader;
mod records;
mod views;

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use fondaco_api::{ChangePage, ChangeResource, ErrorResource, LookupValue};
use fondaco_model::StoreName;
use fondaco_model::cluster::StoreRecord;
use fondaco_node::FollowedChange;
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use self::follow::{Begin, Step, read};
use self::followers::Follower;
use crate::app::{App, WeakApp};
use crate::body::{QueryOf, StorePath};
use crate::error::ApiError;
use crate::events::streamed;
use crate::lookup::{decoded, lookup_value};

pub(super) use self::part::{__path_part, part};
pub use followers::Followers;
pub use reader::change_reader;

/// How many changes a page has unless the client says so, and at most.
const LIMIT_DEFAULT: usize = 1000;
const LIMIT_MAX: usize = 10_000;

/// How long a request for a page may wait for changes: it has to be answered within 30 s.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a stream of events is silent at most.
const ALIVE: Duration = Duration::from_secs(10);

/// About how much of a stream is made at a time, in bytes.
const PIECE_BYTES: usize = 128 << 10;

/// The header by which browsers continue a stream of events.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The query of a follower.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Where to begin: `now`, `beginning`, `version:NUMBER`, `time:MILLISECONDS`, or a position.
    #[serde(default = "now")]
    #[param(default = "now")]
    from: String,
    /// How many changes a page has at most: 1 to 10000.
    #[param(default = 1000)]
    limit: Option<usize>,
    /// How long a page waits for changes, in milliseconds, up to 20000.
    #[serde(default)]
    #[param(default = 0)]
    wait_ms: u64,
    /// Whether values are JSON, by the type that the store declares.
    #[serde(default)]
    decode: bool,
}

fn now() -> String {
    "now".to_owned()
}

/// Follow the changes of a store. With `Accept: text/event-stream` as a stream of server-sent events, each with its position
/// as its id, that continues after the header `Last-Event-ID`; else one page of them.
#[utoipa::path(get, path = "/v1/stores/{store}/changes", tag = "changes", params(
    ("store" = String, Path, description = "The store"), Asked,
    ("Last-Event-ID" = Option<String>, Header, description = "Of a stream: the position to continue after, instead of `from`"),
), responses(
    (status = 200, description = "The changes; in a stream, each is the data of an event `change`, and an error that ends it is that of an event `error`", content(
        (ChangePage = "application/json"), (ChangeResource = "text/event-stream"))),
    (status = "default", description = "An error: invalid_request, store_not_found, not_followable, nothing_served, old_members, too_far_behind, overloaded, unavailable", body = ErrorResource),
))]
pub(super) async fn follow_store(
    State(app): State<App>,
    StorePath(name): StorePath,
    QueryOf(asked): QueryOf<Asked>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_streamed = header(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    let from = header(LAST_EVENT_ID).filter(|_| is_streamed).unwrap_or(&asked.from);
    let begin = Begin::parse(from)?;
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!(
            "invalid limit {limit}: use 1 to {LIMIT_MAX}"
        )));
    }
    let wait = Duration::from_millis(asked.wait_ms);
    if wait > WAIT_MAX {
        let (wait_ms, max_ms) = (asked.wait_ms, WAIT_MAX.as_millis());
        return Err(ApiError::invalid(format!(
            "invalid wait_ms {wait_ms}: use 0 to {max_ms}"
        )));
    }
    let follower = app.limits.followers.enter(&name)?;
    let weak = app.weak();
    if is_streamed {
        // The first answer says whether it can be followed at all.
        let first = read(&weak, &name, begin, (limit, Duration::ZERO), &follower).await?;
        let stream = ChangeStream {
            app: weak,
            name,
            limit,
            decode: asked.decode,
            follower,
        };
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(stream.run(first, sender));
        return Ok(streamed(receiver));
    }
    drop(app);
    let step = read(&weak, &name, begin, (limit, wait), &follower).await?;
    let app = weak.upgrade().ok_or_else(ending)?;
    app.limits.followers.count_sent(step.changes.len());
    let mut changes = Vec::with_capacity(step.changes.len());
    for change in step.changes {
        changes.push(resource(&app, &name, change, asked.decode).await);
    }
    let page = ChangePage {
        changes,
        position: step.position.encode(),
        lag_events: step.lag_events,
        waits_for: step.waits_for,
    };
    Ok(Json(page).into_response())
}

fn ending() -> ApiError {
    ApiError::new("unavailable", "the process is ending")
}

/// A stream of server-sent events. No more is read than the client takes.
struct ChangeStream {
    app: WeakApp,
    name: StoreName,
    limit: usize,
    decode: bool,
    follower: Follower,
}

impl ChangeStream {
    async fn run(self, first: Step, sender: mpsc::Sender<Result<Bytes, Infallible>>) {
        let mut step = first;
        loop {
            if self.send(&mut step, &sender).await.is_err() {
                return;
            }
            let begin = Begin::At(step.position);
            let next = read(&self.app, &self.name, begin, (self.limit, ALIVE), &self.follower);
            let next = tokio::select! {
                next = next => next,
                () = sender.closed() => return,
            };
            step = match next {
                Ok(next) => next,
                Err(error) => {
                    let detail = serde_json::json!({ "code": error.code(), "message": error.message() });
                    let text = format!("event: error\ndata: {detail}\n\n");
                    // The client may be gone.
                    let _ = sender.send(Ok(text.into())).await;
                    return;
                }
            };
        }
    }

    /// Sends the changes of a step in pieces, as fast as the client takes them.
    async fn send(&self, step: &mut Step, sender: &mpsc::Sender<Result<Bytes, Infallible>>) -> Result<(), ()> {
        let mut text = match &step.waits_for {
            Some(reason) => format!(": waits: {}\n", reason.replace(['\r', '\n'], " ")),
            None => String::new(),
        };
        for change in std::mem::take(&mut step.changes) {
            let app = self.app.upgrade().ok_or(())?;
            let change = resource(&app, &self.name, change, self.decode).await;
            app.limits.followers.count_sent(1);
            drop(app);
            let data = serde_json::to_string(&change).map_err(|_| ())?;
            // Without an id, clients keep the one before.
            if !change.position.is_empty() {
                text += &format!("id: {}\n", change.position);
            }
            text += &format!("event: change\ndata: {data}\n\n");
            if text.len() >= PIECE_BYTES {
                let piece = std::mem::take(&mut text);
                sender.send(Ok(piece.into())).await.map_err(|_| ())?;
            }
        }
        // An id without data is remembered by the client, and no event.
        text += &format!("id: {}\n\n", step.position.encode());
        sender.send(Ok(text.into())).await.map_err(|_| ())
    }
}

/// A change as JSON.
async fn resource(app: &App, name: &StoreName, change: FollowedChange, decode: bool) -> ChangeResource {
    ChangeResource {
        key: lookup_value(change.key),
        before: match change.before {
            None => None,
            Some(before) => Some(value_of(app, name, before, decode).await),
        },
        after: value_of(app, name, change.after, decode).await,
        version: change.version,
        time_unix_ms: change.time_unix_ms,
        position: change.position,
    }
}

/// A value as JSON if that is wanted and possible: a value that does not fit its type must not end the feed.
async fn value_of(app: &App, name: &StoreName, value: Option<Vec<u8>>, decode: bool) -> Option<LookupValue> {
    let value = value?;
    match decode {
        true => Some(
            decoded(app, name, value.clone())
                .await
                .unwrap_or_else(|_| lookup_value(value)),
        ),
        false => Some(lookup_value(value)),
    }
}

/// The versions or events that a follower needs to continue are gone.
fn too_far_behind(store: &StoreRecord, why: &str) -> ApiError {
    let name = &store.definition.name;
    if store.definition.versioned.is_some() {
        let message = format!(
            "too far behind: store {name:?} cannot be followed from there, since {why}; make the copy anew: fondaco follow {name} --from \
             beginning gives all keys and then their changes"
        );
        return ApiError::new("too_far_behind", message);
    }
    let kept: Vec<String> = store.versions.kept().map(|version| version.to_string()).collect();
    let message = format!(
        "too far behind: store {name:?} cannot be followed from there, since {why}; start from the push: fondaco follow {name} --from \
         beginning gives all keys and then their changes, --from version:N the changes since a kept version ({}). To keep more: fondaco \
         store alter {name} --backups N, and a longer retention of the topic",
        kept.join(", ")
    );
    ApiError::new("too_far_behind", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_begin_are_parsed() {
        let parse = |text| Begin::parse(text).ok();
        assert_eq!(parse("now"), Some(Begin::Now));
        assert_eq!(parse("$"), Some(Begin::Now));
        assert_eq!(parse("0"), Some(Begin::Beginning));
        assert_eq!(parse("time:1800000000000"), Some(Begin::Time(1_800_000_000_000)));
        for text in [
            "",
            "version:0",
            "version:x",
            "time:-1",
            "time:2026-11-29",
            "cAA",
            "1526919030474-55",
        ] {
            let error = Begin::parse(text).unwrap_err();
            assert_eq!(error.code(), "invalid_request");
            assert!(error.message().contains(&format!("{text:?}")), "{}", error.message());
        }
    }
}
