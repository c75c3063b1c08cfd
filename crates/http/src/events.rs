//! `/v1/events`: changes as server-sent events, for pages that stay up to date. Each event only names the resources to read
//! again.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use fondaco_api::ErrorResource;
use fondaco_cluster::report_period;
use fondaco_model::cluster::ClusterView;
use futures_core::Stream;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::ApiError;

/// How often the state is compared.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How often something is sent, at least: otherwise a lost connection is not noticed.
const ALIVE: Duration = Duration::from_secs(15);

/// The state that a page may show, as it was last.
struct Seen {
    view: Arc<ClusterView>,
    settings: Option<u64>,
    decision: u64,
    audited: u64,
}

/// An event of the stream.
#[derive(ToSchema)]
pub(super) struct Event {
    /// `hello` at first; `change` after a change; `load` when there may be new figures.
    event: &'static str,
    /// JSON: of a change `{"what": ["nodes", …]}`, else `{}`.
    data: String,
}

/// Wait for changes: `text/event-stream` with the events `hello`, `change` (`{"what": ["nodes", …]}`) and `load`.
#[utoipa::path(get, path = "/v1/events", tag = "load", responses(
    (status = 200, description = "The events", content_type = "text/event-stream", body = Event),
    (status = "default", description = "An error: overloaded", body = ErrorResource),
))]
pub(super) async fn stream(State(app): State<App>) -> Result<Response, ApiError> {
    let permit = Arc::clone(&app.limits.streams).try_acquire_owned();
    let permit = permit.map_err(|_| ApiError::new("overloaded", "too many streams of events are open: close some"))?;
    let (sender, receiver) = mpsc::channel(8);
    let theirs = app.weak();
    let period = report_period(&app.settings.settings);
    drop(app);
    tokio::spawn(async move {
        let _permit = permit;
        let Some(mut seen) = theirs.upgrade().map(|app| Seen::now(&app)) else {
            return;
        };
        if send(&sender, Event::plain("hello")).await.is_err() {
            return;
        }
        let (mut since_load, mut since_any) = (Duration::ZERO, Duration::ZERO);
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = sender.closed() => return,
            }
            (since_load, since_any) = (since_load + POLL_INTERVAL, since_any + POLL_INTERVAL);
            // The process must be able to end while pages are open.
            let Some(app) = theirs.upgrade() else { return };
            let now = Seen::now(&app);
            drop(app);
            let what = now.differs_in(&seen);
            seen = now;
            if !what.is_empty() {
                let event = Event {
                    event: "change",
                    data: serde_json::json!({ "what": what }).to_string(),
                };
                if send(&sender, event).await.is_err() {
                    return;
                }
                since_any = Duration::ZERO;
            }
            if since_load >= period {
                since_load = Duration::ZERO;
                if send(&sender, Event::plain("load")).await.is_err() {
                    return;
                }
                since_any = Duration::ZERO;
            }
            if since_any >= ALIVE {
                since_any = Duration::ZERO;
                if sender.send(Ok(Bytes::from_static(b": alive\n\n"))).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(streamed(receiver))
}

/// The answer with a stream of server-sent events.
pub(super) fn streamed(events: mpsc::Receiver<Result<Bytes, Infallible>>) -> Response {
    let mut response = Body::from_stream(Events(events)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The events of a stream.
struct Events(mpsc::Receiver<Result<Bytes, Infallible>>);

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

async fn send(sender: &mpsc::Sender<Result<Bytes, Infallible>>, event: Event) -> Result<(), ()> {
    let text = format!("event: {}\ndata: {}\n\n", event.event, event.data);
    sender.send(Ok(Bytes::from(text))).await.map_err(|_| ())
}

impl Event {
    /// An event that says nothing else.
    fn plain(event: &'static str) -> Self {
        Self {
            event,
            data: "{}".to_owned(),
        }
    }
}

impl Seen {
    fn now(app: &App) -> Self {
        let sighting = app.operator.mirror().sighting();
        let decision = app
            .controller
            .as_ref()
            .map_or(0, |controller| controller.journal().next_number());
        Self {
            view: sighting.view,
            settings: sighting.settings.map(|settings| settings.revision),
            decision,
            audited: app.audit.added(),
        }
    }

    fn differs_in(&self, former: &Self) -> Vec<&'static str> {
        let mut what = Vec::new();
        if !Arc::ptr_eq(&self.view, &former.view) {
            let (now, then) = (&*self.view, &*former.view);
            let differs = [
                (
                    now.nodes != then.nodes || now.announcements != then.announcements,
                    "nodes",
                ),
                (now.routers != then.routers, "routers"),
                (now.stores != then.stores || now.reports != then.reports, "stores"),
                (now.plans != then.plans, "plans"),
                (now.routing != then.routing, "routing"),
                (now.users != then.users, "users"),
            ];
            what.extend(
                differs
                    .into_iter()
                    .filter(|(differs, _)| *differs)
                    .map(|(_, what)| what),
            );
            // Other processes may have recorded the changes that led to it.
            if !what.is_empty() {
                what.push("audit");
            }
        }
        if self.audited != former.audited && !what.contains(&"audit") {
            what.push("audit");
        }
        if self.settings != former.settings {
            what.push("settings");
        }
        if self.decision != former.decision {
            what.push("decisions");
        }
        what
    }
}
