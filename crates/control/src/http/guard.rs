//! What every request passes before it is answered: its host and origin, the token, the number of requests at a
//! time, and the time that one may take.
//!
//! Without a token, a browser on a machine that reaches the port is as good as its user. A web page must not be able
//! to use it: the page's own name may resolve to the address of this port (DNS rebinding), and then the browser takes
//! the port for the page's origin and lets the page read all answers. The request still carries the page's name in
//! `Host`. So a port without a token only answers to IP addresses, to `localhost` and to its advertised name.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fondaco_node::BufferBudget;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::error::ApiError;

/// How many requests are answered at a time.
const REQUESTS_MAX: usize = 64;

/// How long a request may take. Pushes are only begun by one, so that none takes long.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// The paths that need no token: what asks for them has none, and learns nothing from them.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// What requests are held against.
#[derive(Clone)]
pub(super) struct Guard {
    token: Option<Arc<str>>,
    /// The name by which the cluster knows this port. The operator chose it, so that no web page is served under it.
    advertised: Option<Arc<str>>,
    requests: Arc<Semaphore>,
    traffic: Arc<Traffic>,
    buffers: BufferBudget,
}

/// What happened at the port.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// How many requests were answered, by the first digit of their status.
    answers: [AtomicU64; 6],
    /// How many connections without a request had to give way to others.
    evicted: Arc<AtomicU64>,
}

impl Traffic {
    /// Where connections are counted that had to give way to others.
    pub(crate) fn evicted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.evicted)
    }

    /// The classes of status, and how many answers each had.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
        CLASSES.into_iter().zip(self.answers.iter().map(|count| count.load(Relaxed)))
    }

    fn count(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        self.answers[if class < self.answers.len() { class } else { 0 }].fetch_add(1, Relaxed);
    }
}

impl Guard {
    /// A guard that asks for `token`, if there is one; `advertised` is this port's `host:port` for other processes.
    pub(super) fn new(
        token: Option<&str>,
        advertised: Option<&str>,
        traffic: Arc<Traffic>,
        buffers: BufferBudget,
    ) -> Self {
        Self {
            traffic,
            buffers,
            token: token.map(Into::into),
            advertised: advertised.and_then(name_of_host).map(Into::into),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }

    /// Whether the request names a host that a web page may have made to point here. Requests without a host pass: no
    /// browser sends them.
    fn is_misdirected(&self, request: &Request) -> bool {
        if self.token.is_some() {
            return false;
        }
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let headers = request.headers().get_all(header::HOST);
        let mut hosts = headers.iter().map(HeaderValue::as_bytes).chain(target);
        hosts.any(|host| !self.is_own(host))
    }

    fn is_own(&self, host: &[u8]) -> bool {
        let Some(name) = std::str::from_utf8(host).ok().and_then(name_of_host) else {
            return false;
        };
        let is_advertised = |advertised: &str| name.eq_ignore_ascii_case(advertised);
        is_address(&name) || self.advertised.as_deref().is_some_and(is_advertised)
    }

    /// Whether a web page somewhere else may have made a browser send this. Where there is no token,
    /// being able to connect is all it takes, and a browser on the same machine can.
    fn is_foreign(&self, request: &Request) -> bool {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(origin) = header(header::ORIGIN) else {
            return false;
        };
        let host = header(header::HOST).unwrap_or_default();
        let page = origin.split_once("://").map_or("", |(_, page)| page);
        self.token.is_none() && page != host
    }

    fn admits(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        if is_open(request) {
            return true;
        }
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.and_then(|value| value.as_bytes().split_at_checked("Bearer ".len()));
        given.is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && given.ct_eq(token.as_bytes()).into()
        })
    }
}

fn is_open(request: &Request) -> bool {
    OPEN_PATHS.contains(&request.uri().path())
}

/// The host of `host` or `host:port`; `None` if it is neither.
fn name_of_host(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let is_bare = !authority.as_str().contains('@');
    is_bare.then(|| authority.host().trim_matches(['[', ']']).to_owned())
}

/// Whether a host is an IP address, or this machine.
fn is_address(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// How long the body of a request may become, in bytes.
fn body_bytes(request: &Request) -> u64 {
    // A longer one is refused.
    let bytes_max = super::BODY_BYTES_MAX.max(super::records::MERGE_BYTES_MAX) as u64;
    let body = request.body().size_hint();
    body.upper()
        .map_or(super::BODY_BYTES_MAX as u64, |bytes| bytes.min(bytes_max))
}

pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let response = answer(&guard, request, next).await;
    guard.traffic.count(response.status());
    response
}

async fn answer(guard: &Guard, request: Request, next: Next) -> Response {
    if guard.is_misdirected(&request) {
        let message = "a control port without a token answers no host name, since a web page may have made the name \
                       point here: use an IP address or localhost in the URL, or configure a token (token = \"…\"), \
                       or set http-advertised to the name";
        return ApiError::new("foreign_host", message).into_response();
    }
    if guard.is_foreign(&request) {
        let message = "a web page of another origin may not use the control port: configure a token";
        return ApiError::new("foreign_origin", message).into_response();
    }
    if !guard.admits(&request) {
        let message = "the control port needs its token: send the header \"Authorization: Bearer TOKEN\"";
        return ApiError::new("unauthorized", message).into_response();
    }
    let permit = guard.requests.try_acquire();
    // A node that is busy is alive, and shall not be restarted for it.
    if permit.is_err() && !is_open(&request) {
        let message = format!("{REQUESTS_MAX} requests are being answered: try again");
        return ApiError::new("overloaded", message).into_response();
    }
    let mut charge = guard.buffers.charge();
    let answered = async {
        let bytes = body_bytes(&request);
        charge.room_for(bytes).await;
        charge.set(bytes);
        next.run(request).await
    };
    match tokio::time::timeout(REQUEST_TIME_MAX, answered).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = REQUEST_TIME_MAX.as_secs();
            let message = format!("the request took more than {seconds} seconds; what it began goes on");
            ApiError::new("unavailable", message).into_response()
        }
    }
}
