//! Sends spans of requests to a collector, as OTLP over HTTP in JSON.
//!
//! A thread takes spans from the queue of the process and sends them in batches. It never holds a request up: while the
//! collector is slow or away, the queue fills, and further spans are dropped and counted. The invariant: each span
//! that was taken is sent, or counted as failed.

mod encoding;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::Settings;
use fondaco_client::trace::{Span, SpanQueue};
use fondaco_cluster::{ChangeSignal, Ending, Worker};
use fondaco_metrics::NodeMetrics;
use ureq::Agent;
use ureq::http::StatusCode;

use crate::error::RoleError;

pub(crate) use encoding::Origin;

/// How often the thread looks for spans.
const PERIOD: Duration = Duration::from_millis(200);

/// How many spans go in one request.
const BATCH_SPANS_MAX: usize = 512;

/// How long a request to the collector may take, so that a stop of the process waits no longer.
const SEND_TIME_MAX: Duration = Duration::from_secs(3);

/// How often a batch is sent.
const ATTEMPTS_MAX: u32 = 4;

/// The first pause after a failure; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// The path of spans, if the setting has none.
const PATH: &str = "/v1/traces";

/// The thread that sends spans. It ends when this is dropped.
pub(crate) struct TracesWork {
    _worker: Worker,
}

impl TracesWork {
    /// Starts the thread.
    pub(crate) fn start(metrics: &NodeMetrics, settings: Arc<Settings>, origin: Origin) -> Result<Self, RoleError> {
        let signal = Arc::new(ChangeSignal::default());
        let mut exporter = Exporter {
            queue: Arc::clone(metrics.spans()),
            settings,
            origin,
            agent: agent(),
            endpoint: Arc::default(),
            batch: None,
            pause: PAUSE_FIRST,
            paused_until: None,
        };
        let theirs = Arc::clone(&signal);
        let worker = Worker::start("traces", signal, move |ending| exporter.run(&theirs, ending))?;
        Ok(Self { _worker: worker })
    }
}

struct Exporter {
    queue: Arc<SpanQueue>,
    settings: Arc<Settings>,
    origin: Origin,
    agent: Agent,
    /// Where the last batch was sent.
    endpoint: Arc<String>,
    /// Spans that are not sent yet.
    batch: Option<Batch>,
    pause: Duration,
    /// After a failure, when the next attempt is made.
    paused_until: Option<Instant>,
}

struct Batch {
    spans: Vec<Span>,
    attempts: u32,
}

/// The outcome of an attempt.
enum Sent {
    Taken,
    /// It may succeed later.
    NotNow(String),
    /// It would never succeed.
    Refused(String),
}

impl Exporter {
    fn run(&mut self, signal: &ChangeSignal, ending: &Ending) {
        loop {
            let seen = signal.count();
            let is_last = ending.has_come();
            // At the end, a collector that does not work is not waited for, nor a slow one for long.
            let until = is_last.then(|| Instant::now() + SEND_TIME_MAX);
            while until.is_none_or(|until| Instant::now() < until && self.paused_until.is_none()) && self.send_batch() {
                if ending.has_come() && !is_last {
                    break;
                }
            }
            if is_last {
                let left = self.batch.take().map_or(0, |batch| batch.spans.len());
                self.queue.note_failed(left + self.queue.take(usize::MAX).len());
                return;
            }
            if !ending.has_come() {
                signal.wait(seen, PERIOD);
            }
        }
    }

    /// Sends the next batch. Returns whether to send another one at once.
    fn send_batch(&mut self) -> bool {
        let endpoint = self.settings.traces_endpoint();
        if endpoint.is_empty() {
            let kept = self.batch.take().map_or(0, |batch| batch.spans.len());
            self.queue.note_failed(kept + self.queue.take(usize::MAX).len());
            self.endpoint = endpoint;
            return false;
        }
        if self.endpoint != endpoint {
            // Another collector may do better.
            (self.paused_until, self.pause) = (None, PAUSE_FIRST);
            self.endpoint = Arc::clone(&endpoint);
        }
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let mut batch = match self.batch.take() {
            Some(batch) => batch,
            None => Batch {
                spans: self.queue.take(BATCH_SPANS_MAX),
                attempts: 0,
            },
        };
        if batch.spans.is_empty() {
            return false;
        }
        batch.attempts += 1;
        match self.post(&endpoint, &batch.spans) {
            Sent::Taken => {
                (self.paused_until, self.pause) = (None, PAUSE_FIRST);
                return true;
            }
            Sent::NotNow(reason) if batch.attempts < ATTEMPTS_MAX => {
                tracing::debug!(%reason, %endpoint, "the collector of traces did not take spans: trying again");
                self.batch = Some(batch);
            }
            Sent::NotNow(reason) | Sent::Refused(reason) => {
                tracing::warn!(%reason, %endpoint, spans = batch.spans.len(), "the collector of traces did not take spans");
                self.queue.note_failed(batch.spans.len());
            }
        }
        self.paused_until = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_LAST);
        false
    }

    fn post(&self, endpoint: &str, spans: &[Span]) -> Sent {
        let body = encoding::request(&self.origin, spans);
        let answer = self
            .agent
            .post(url_of(endpoint))
            .header("content-type", "application/json")
            .send(&body[..]);
        // The answer's body is not read: it may be of any length.
        match answer.map(|answer| answer.status()) {
            Ok(status) if status.is_success() => Sent::Taken,
            Ok(
                status @ (StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::INTERNAL_SERVER_ERROR
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT),
            ) => Sent::NotNow(format!("it answered {status}")),
            Ok(status) => Sent::Refused(format!("it answered {status}")),
            Err(error) => Sent::NotNow(error.to_string()),
        }
    }
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(SEND_TIME_MAX))
        .user_agent(concat!("fondaco/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// The URL to send spans to: the path of OTLP is added where the setting has none.
fn url_of(endpoint: &str) -> String {
    let base = endpoint.strip_suffix('/').unwrap_or(endpoint);
    let host = base.split_once("://").map_or(base, |(_, host)| host);
    match host.contains('/') {
        true => endpoint.to_owned(),
        false => format!("{base}{PATH}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_of_spans_is_added() {
        for (endpoint, url) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c/my/traces", "https://c/my/traces"),
        ] {
            assert_eq!(url_of(endpoint), url);
        }
    }
}
