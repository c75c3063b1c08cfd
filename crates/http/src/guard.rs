//! The checks that every request passes before it is answered: its host and origin, the token, the number of requests
//! at a time, and the time limit.
//!
//! Without a token, a browser on a machine that reaches the port has the rights of its user. A web page must not be
//! able to use it: the page's own name may resolve to the address of this port (DNS rebinding), and then the browser
//! takes the port for the page's origin and lets the page read all answers. The request still carries the page's name
//! in `Host`. So a port without a token only answers to IP addresses, to `localhost` and to its advertised name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fondaco_api::AuditEntry;
use fondaco_cluster::Audit;
use fondaco_model::StoreName;
use fondaco_model::cluster::ControlRole;
use fondaco_node::BufferBudget;
use fondaco_protocol::{RequestKey, SeenSignatures, Signature, SignedRequest, TIME_HEADER, Unacceptable, now_unix_ms};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use crate::admission::{REQUESTS_MAX, admit};
use crate::app::App;
use crate::callers::{CSRF_HEADER, Caller, Users};
use crate::connections::Connections;
use crate::error::ApiError;
use crate::records::MERGE_BYTES_MAX;
use crate::rights;
use crate::rights::Right;
use crate::traffic::Traffic;
use crate::uploads::{MANIFEST_BYTES_MAX, drain};

/// The longest body of a request, in bytes: a lookup of many long keys.
pub(super) const BODY_BYTES_MAX: usize = 16 << 20;

/// A handler's note about a change, for the record of changes that people make.
#[derive(Debug, Clone)]
pub(super) struct AuditNote(pub(super) String);

/// How long a request may take. Pushes are only started by one, so no request takes long.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// How long the body of a refused request is waited for.
const REFUSED_BODY_TIME_MAX: Duration = Duration::from_secs(1);

/// The longest body of a signed request: the longest of all requests.
const SIGNED_BODY_BYTES_MAX: usize = MERGE_BYTES_MAX;
/// The longest body of an unknown caller: a name and a password.
pub(super) const OPEN_BODY_BYTES_MAX: usize = 64 << 10;

/// How much memory a request uses whose body is written to the disk as it arrives, in bytes.
const STREAMED_BYTES: u64 = 1 << 20;

/// The checks and limits of the port.
#[derive(Clone)]
pub(super) struct Guard {
    token: Option<Arc<str>>,
    /// The key with which other processes of the cluster sign.
    signed: Option<Arc<Signed>>,
    /// The advertised name of this port. The operator chose it, so no web page is served under it.
    advertised: Option<Arc<str>>,
    /// The users of the cluster, where there is a token.
    users: Option<Arc<Users>>,
    audit: Arc<Audit>,
    requests: Arc<Connections>,
    /// The same for requests of unknown callers, which take no place from others.
    open_requests: Arc<Connections>,
    traffic: Arc<Traffic>,
    buffers: BufferBudget,
}

/// Verifies signed requests.
struct Signed {
    key: RequestKey,
    /// `host:port`, as other processes know this port.
    recipient: String,
    seen: Mutex<SeenSignatures>,
}

/// The facts about the sender that a request shows at once.
enum Admitted {
    /// The caller; with the signature, if the request is signed.
    As(Caller, Option<Signature>),
    /// Perhaps a user, as these headers say.
    User(Method, HeaderMap),
}

/// Why a request is refused.
enum Stranger {
    /// No token or a wrong one, or a signature that is not valid for this request.
    Unproven,
    /// The clocks of the two processes differ too much.
    WrongTime,
    /// It was sent a second time.
    Repeated,
    /// Too many signed requests have come within a minute.
    TooMany,
    /// The body differs from the signed one, or is too long.
    WrongBody,
    /// A browser with a session sends a change without the header that the pages of the console send.
    WrongPage,
}

impl Guard {
    /// A guard that requires `token`, if there is one. `own` is this port's `host:port` for other processes; `name` is
    /// its host if the operator chose it.
    pub(super) fn new(token: Option<&str>, own: &str, name: Option<&str>, app: &App, buffers: BufferBudget) -> Self {
        let traffic = Arc::clone(&app.traffic);
        let signed = token.map(|token| Signed {
            key: RequestKey::new(token),
            recipient: own.to_owned(),
            seen: Mutex::default(),
        });
        Self {
            requests: Connections::new(REQUESTS_MAX, traffic.evicted()),
            open_requests: Connections::new(REQUESTS_MAX, traffic.evicted()),
            traffic,
            buffers,
            token: token.map(Into::into),
            signed: signed.map(Arc::new),
            advertised: name.and_then(name_of_host).map(Into::into),
            users: app.users.clone(),
            audit: Arc::clone(&app.audit),
        }
    }

    /// Whether the request names a host that a web page may have made to point here. Requests without a host pass:
    /// browsers never send them.
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

    /// Whether a web page elsewhere may have made a browser send this. Without a token, any program that can connect
    /// has access, also a browser on the same machine.
    fn is_foreign(&self, request: &Request) -> bool {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let Some(origin) = header(header::ORIGIN) else {
            return false;
        };
        let host = header(header::HOST).unwrap_or_default();
        let page = origin.split_once("://").map_or("", |(_, page)| page);
        self.token.is_none() && page != host
    }

    /// The sender of a request: a caller that proves to have the token, another process, or a user. Returns the signature if
    /// the request is signed.
    fn admit(&self, request: &Request) -> Result<Admitted, Stranger> {
        let (Some(token), Some(signed)) = (&self.token, &self.signed) else {
            return Ok(Admitted::As(Caller::admin(""), None));
        };
        let given = request.headers().get(header::AUTHORIZATION);
        let given = given.map_or(&b""[..], HeaderValue::as_bytes);
        if let Some(given) = std::str::from_utf8(given)
            .ok()
            .filter(|given| Signature::is_meant(given))
        {
            let signature = given.parse().map_err(|()| Stranger::Unproven)?;
            return signed
                .admit(request, &signature)
                .map(|()| Admitted::As(Caller::node(), Some(signature)));
        }
        let is_token = given.split_at_checked("Bearer ".len()).is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && given.ct_eq(token.as_bytes()).into()
        });
        if is_token {
            return Ok(Admitted::As(Caller::admin("token"), None));
        }
        Ok(Admitted::User(request.method().clone(), request.headers().clone()))
    }

    /// The user whom the headers of a request name.
    async fn user(&self, method: &Method, headers: &HeaderMap) -> Result<Caller, Stranger> {
        let users = self.users.as_ref().ok_or(Stranger::Unproven)?;
        let caller = users.of(headers).await.ok_or(Stranger::Unproven)?;
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        if !is_read && let Some(csrf) = &caller.csrf {
            let shown = headers.get(CSRF_HEADER).map_or(&b""[..], HeaderValue::as_bytes);
            if !bool::from(shown.ct_eq(csrf.as_bytes())) {
                return Err(Stranger::WrongPage);
            }
        }
        Ok(caller)
    }
}

impl Signed {
    fn admit(&self, request: &Request, signature: &Signature) -> Result<(), Stranger> {
        let target = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
        let range = request.headers().get(header::RANGE);
        let range = range.map_or(Ok(""), HeaderValue::to_str);
        let signed = SignedRequest {
            method: request.method().as_str(),
            target,
            recipient: &self.recipient,
            range: range.map_err(|_| Stranger::Unproven)?,
        };
        if !self.key.verifies(&signed, signature) {
            return Err(Stranger::Unproven);
        }
        // Only valid signatures are remembered: senders without the token cannot fill the memory.
        let accepted = self.seen.lock().accept(signature, now_unix_ms());
        accepted.map_err(|reason| match reason {
            Unacceptable::Time => Stranger::WrongTime,
            Unacceptable::Again => Stranger::Repeated,
            Unacceptable::TooMany => Stranger::TooMany,
        })
    }
}

/// The request with its body in memory, if that is the signed body.
async fn with_body(request: Request, signature: &Signature) -> Result<Request, Stranger> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, SIGNED_BODY_BYTES_MAX).await;
    let body = body.map_err(|_| Stranger::WrongBody)?;
    match signature.is_of_body(&body) {
        true => Ok(Request::from_parts(parts, Body::from(body))),
        false => Err(Stranger::WrongBody),
    }
}

impl IntoResponse for Stranger {
    fn into_response(self) -> Response {
        let (code, message) = match self {
            Self::Unproven => (
                "unauthorized",
                "the control port needs its token, or a user with a role: send the header \"Authorization: Bearer TOKEN\"",
            ),
            Self::WrongTime => (
                "unauthorized",
                "the request was signed too long ago by the clock of this process: set the clocks of both machines",
            ),
            Self::Repeated => (
                "unauthorized",
                "this signed request has been received before: sign a new one",
            ),
            Self::TooMany => (
                "overloaded",
                "too many signed requests were received within a minute: try again later",
            ),
            Self::WrongBody => ("unauthorized", "the body is not the one that was signed"),
            Self::WrongPage => (
                "foreign_origin",
                "a change in a session needs the header fondaco-csrf, with the value from GET /v1/session",
            ),
        };
        let mut response = ApiError::new(code, message).into_response();
        let headers = response.headers_mut();
        headers.insert(TIME_HEADER, HeaderValue::from(now_unix_ms()));
        if matches!(self, Self::Unproven) {
            // An attacker has to connect again for each guess.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// The operation that a request is for: the template of its path, and the right that it needs. An unknown path needs a viewer,
/// so that strangers do not find out the known ones.
fn operation(request: &Request) -> (String, Right) {
    let matched = request.extensions().get::<MatchedPath>();
    let path = matched.map_or_else(|| request.uri().path().to_owned(), |path| path.as_str().to_owned());
    let right = match matched {
        Some(_) => rights::right(&path, request.method()),
        None => Right::Role(ControlRole::Viewer),
    };
    (path, right)
}

/// Whether a caller may do what an operation asks for.
///
/// # Errors
/// The refusal.
fn check_right(caller: &Caller, right: Right, path: &str, request: &Request) -> Result<(), ApiError> {
    let (Right::Role(needed) | Right::Data(needed)) = right else {
        return Ok(());
    };
    if caller.role < needed {
        let message = format!("{} is a {}, and this needs the role {needed}", caller.name, caller.role);
        return Err(ApiError::new("forbidden", message));
    }
    if let Right::Data(_) = right {
        let store = store_in(path, request.uri().path());
        if !caller.may_read(store.as_ref()) {
            let message = match store {
                Some(store) => format!("{} has no right to read store {store}", caller.name),
                None => format!("{} has no right to read all stores", caller.name),
            };
            return Err(ApiError::new("forbidden", message));
        }
    }
    Ok(())
}

/// The store that a path names, where its template does.
fn store_in(template: &str, path: &str) -> Option<StoreName> {
    let mut parts = template.split('/').zip(path.split('/'));
    let (_, name) = parts.find(|(part, _)| *part == "{store}")?;
    let name = percent_encoding::percent_decode_str(name).decode_utf8().ok()?;
    name.parse().ok()
}

/// The host of `host` or `host:port`; `None` if it is malformed.
fn name_of_host(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok()?;
    let is_bare = !authority.as_str().contains('@');
    is_bare.then(|| authority.host().trim_matches(['[', ']']).to_owned())
}

/// Whether a host is an IP address or `localhost`.
fn is_address(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// How long the body of a request may become, in bytes.
fn body_bytes(request: &Request) -> u64 {
    // A longer one is refused.
    let bytes_max = BODY_BYTES_MAX.max(MERGE_BYTES_MAX).max(MANIFEST_BYTES_MAX) as u64;
    let body = request.body().size_hint();
    body.upper().map_or(BODY_BYTES_MAX as u64, |bytes| bytes.min(bytes_max))
}

pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let response = answer(&guard, request, next).await;
    guard.traffic.count(response.status());
    response
}

/// A request whose header gives the length of the body in two ways.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ambiguous;

async fn answer(guard: &Guard, request: Request, next: Next) -> Response {
    if request.extensions().get::<Ambiguous>().is_some() {
        let message = "the request has Content-Length beside Transfer-Encoding: send one of them";
        return ApiError::invalid(message).into_response();
    }
    if guard.is_misdirected(&request) {
        let message = "a control port without a token accepts no host name, since a web page may have made the name \
                       point here: use an IP address or localhost in the URL, or configure a token (token = \"…\"), \
                       or set http-advertised to the name";
        return ApiError::new("foreign_host", message).into_response();
    }
    if guard.is_foreign(&request) {
        let message = "a web page of another origin must not use the control port: configure a token";
        return ApiError::new("foreign_origin", message).into_response();
    }
    let (path, right) = operation(&request);
    let mut request = request;
    let admitted = match guard.admit(&request) {
        Ok(Admitted::As(caller, signature)) => Ok((caller, signature)),
        Ok(Admitted::User(method, headers)) => guard.user(&method, &headers).await.map(|caller| (caller, None)),
        Err(stranger) => Err(stranger),
    };
    let (caller, signature) = match admitted {
        Ok((caller, signature)) => (Some(caller), signature),
        Err(_) if right == Right::Open => (None, None),
        Err(stranger) => return refuse(request, stranger).await,
    };
    if let Some(caller) = &caller {
        if let Err(refusal) = check_right(caller, right, &path, &request) {
            tracing::warn!(user = caller.name, method = %request.method(), path, "refused at the control port");
            return refuse(request, refusal).await;
        }
        request.extensions_mut().insert(caller.clone());
    }
    // A request to no path changes nothing.
    let is_change = request.extensions().get::<MatchedPath>().is_some() && rights::is_change(&path, request.method());
    let audited = caller
        .filter(|caller| is_change && !caller.is_node)
        .map(|caller| AuditEntry {
            at_unix_ms: now_unix_ms(),
            user: caller.name,
            role: caller.role.to_string(),
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            status: 0,
            note: String::new(),
        });
    let response = limited(guard, request, next, signature, right == Right::Open).await;
    if let Some(mut entry) = audited {
        entry.status = response.status().as_u16();
        if let Some(AuditNote(note)) = response.extensions().get() {
            entry.note.clone_from(note);
        }
        let audit = Arc::clone(&guard.audit);
        // The change is made: no answer waits for its entry.
        tokio::task::spawn_blocking(move || audit.add(&entry));
    }
    response
}

/// Refuses a request, after its body: a client that still sends it when the connection is closed may never see the answer.
async fn refuse(request: Request, refusal: impl IntoResponse) -> Response {
    // With that header, a client sends the body only when it is asked for it.
    if !request.headers().contains_key(header::EXPECT) {
        let mut body = request.into_body().into_data_stream();
        let _ = tokio::time::timeout(REFUSED_BODY_TIME_MAX, drain(&mut body)).await;
    }
    refusal.into_response()
}

/// Answers a request within the limits of the port.
async fn limited(guard: &Guard, request: Request, next: Next, signature: Option<Signature>, is_open: bool) -> Response {
    let places = match is_open {
        true => &guard.open_requests,
        false => &guard.requests,
    };
    // A busy node is alive and must not be restarted for it: health checks need no place. A body, which may never come, does.
    let (request, place) = match is_open && request.body().is_end_stream() {
        true => (request, None),
        false => match admit(places, request).await {
            Ok((request, place)) => (request, Some(place)),
            Err(error) => return error.into_response(),
        },
    };
    let mut charge = guard.buffers.charge();
    let answered = async {
        // Only uploads are PUT. A signed body is buffered until its signature is verified.
        let is_streamed = request.method() == Method::PUT && signature.is_none();
        let bytes = match is_streamed {
            true => STREAMED_BYTES,
            false if is_open => body_bytes(&request).min(OPEN_BODY_BYTES_MAX as u64),
            false => body_bytes(&request),
        };
        charge.room_for(bytes).await;
        charge.set(bytes);
        match signature {
            None => next.run(request).await,
            Some(signature) => match with_body(request, &signature).await {
                Ok(request) => next.run(request).await,
                Err(stranger) => stranger.into_response(),
            },
        }
    };
    let gives_way = async {
        match &place {
            Some(place) => place.evicted().await,
            None => std::future::pending().await,
        }
    };
    let answered = async {
        tokio::select! {
            response = answered => response,
            () = gives_way => {
                let message = format!(
                    "this request waited longest of {REQUESTS_MAX} for the rest of its body: another one took its place"
                );
                ApiError::new("overloaded", message).into_response()
            }
        }
    };
    match tokio::time::timeout(REQUEST_TIME_MAX, answered).await {
        Ok(response) => response,
        Err(_) => {
            let seconds = REQUEST_TIME_MAX.as_secs();
            let message = format!("the request took more than {seconds} seconds; its work continues");
            ApiError::new("request_timeout", message).into_response()
        }
    }
}
