//! The client of a node's control port.
//!
//! It handles paths, the token, TLS and error replies. The requests and the meaning of the answers are up to the
//! commands.

use std::fs;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use fondaco_api::{ErrorResource, FRAME_BYTES_MAX, NEXT_HEADER, NodeStatus, StoreResource};
pub use fondaco_backup::{Refused, is_refused};
use fondaco_fetch::agent_trusting;
use fondaco_protocol::{
    RequestKey, SIGNED_MS_MAX, SignedRequest, TIME_HEADER, now_unix_ms, refused_certificate, trusting,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::{Agent, Body, http};

use crate::commands::WrongUsage;
use crate::control_port::ControlPort;
use crate::{resp, wire};

/// The default address of the control port.
const DEFAULT: &str = "127.0.0.1:6580";
/// The timeout for making a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// The timeout of a request: longer than the node's own limit.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);
/// The longest answer: the largest answer of a batch lookup, in base64, as JSON.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The longest page of records: a full page followed by the longest record.
const PAGE_BYTES_MAX: u64 = FRAME_BYTES_MAX as u64 + (8 << 20);

/// The content type of JSON bodies.
const JSON: &str = "application/json";

/// The content type of binary bodies.
const BYTES: &str = "application/octet-stream";

/// The advice for a certificate that is refused.
pub const ADVICE_ON_TLS: &str = "trust it with --ca FILE, which has the certificate or that of its authority, and name the \
                                 process as the certificate does";

/// A client of a node's control port.
pub struct Client {
    agent: Agent,
    /// `http://host:port`, without a slash at the end.
    base: String,
    proof: Proof,
    /// How far the node's clock is ahead of this one. It stays 0 until a signature is refused for its time.
    ahead_ms: AtomicI64,
}

/// How the client authenticates.
enum Proof {
    None,
    /// Sends the token.
    Token(String),
    /// Signs each request with the token.
    Signature(RequestKey),
}

impl Client {
    /// Makes a client of this port. It sends no request, unless only the RESP port is known: then it asks there for the
    /// control port.
    pub fn new(port: &ControlPort) -> anyhow::Result<Self> {
        let http = match (&port.http, &port.resp) {
            (Some(http), _) => http.clone(),
            (None, Some(resp)) => resp::http_address(port, resp)?,
            (None, None) => DEFAULT.to_owned(),
        };
        let base = match http.split_once("://") {
            Some(("http" | "https", _)) => http.trim_end_matches('/').to_owned(),
            Some(_) => bail!("invalid address {http:?}: use host:port, or an http or https URL"),
            None if port.tls.is_wanted() => format!("https://{http}"),
            None => format!("http://{http}"),
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Proxy settings of the environment are meant for the web, not for the cluster's own nodes.
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(REQUEST_TIME_MAX));
        let config = config.build();
        let agent = match &port.tls.ca {
            None => config.new_agent(),
            Some(path) => {
                let pem = fs::read(path).with_context(|| format!("cannot read the certificates in {path:?}"))?;
                let tls = trusting(&pem).with_context(|| format!("cannot trust the certificates in {path:?}"))?;
                agent_trusting(config, tls)
            }
        };
        Ok(Self {
            agent,
            base,
            proof: port.token.clone().map_or(Proof::None, Proof::Token),
            ahead_ms: AtomicI64::new(0),
        })
    }

    /// A client of a node whose address was read from the cluster. Anyone with write access there could have put the
    /// address in, so requests are signed with the token, and the token itself is never sent.
    pub fn of_node(port: &ControlPort) -> anyhow::Result<Self> {
        let mut client = Self::new(port)?;
        if let Proof::Token(token) = &client.proof {
            client.proof = Proof::Signature(RequestKey::new(token));
        }
        Ok(client)
    }

    /// Sends GET, and parses the JSON answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.read(self.send(http::Method::GET, path, None)?)
    }

    /// Sends GET, and returns the bytes of the answer.
    pub fn get_bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        let limited = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        limited.read_to_vec().with_context(|| self.broken())
    }

    /// Reads a page of records; returns it with the start of the next page, if there is one.
    pub fn get_page(&self, path: &str) -> anyhow::Result<(Vec<u8>, Option<String>)> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        let next = answer.headers().get(NEXT_HEADER).map(|next| next.to_str());
        let next = next.transpose().with_context(|| self.broken())?.map(str::to_owned);
        let limited = answer.body_mut().with_config().limit(PAGE_BYTES_MAX);
        Ok((limited.read_to_vec().with_context(|| self.broken())?, next))
    }

    /// Sends POST with JSON, and parses the answer.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.read(self.send(http::Method::POST, path, Some((JSON, &serde_json::to_vec(body)?)))?)
    }

    /// Sends POST with JSON, and ignores the body of the answer.
    pub fn post_json(&self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        self.send(http::Method::POST, path, Some((JSON, body))).map(drop)
    }

    /// Sends POST with bytes, and ignores the body of the answer.
    pub fn post_bytes(&self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        self.send(http::Method::POST, path, Some((BYTES, body))).map(drop)
    }

    /// Sends POST with bytes, and parses the answer.
    pub fn post_bytes_for<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> anyhow::Result<T> {
        self.read(self.send(http::Method::POST, path, Some((BYTES, body)))?)
    }

    /// Sends PUT with bytes, and parses the answer.
    pub fn put_bytes<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> anyhow::Result<T> {
        self.read(self.send(http::Method::PUT, path, Some((BYTES, body)))?)
    }

    /// Sends PATCH with JSON, and returns the new state.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.read(self.send(http::Method::PATCH, path, Some((JSON, &serde_json::to_vec(body)?)))?)
    }

    /// Sends PUT with JSON, and parses the answer.
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.read(self.send(http::Method::PUT, path, Some((JSON, &serde_json::to_vec(body)?)))?)
    }

    /// Sends DELETE, and ignores the body of the answer.
    pub fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(http::Method::DELETE, path, None).map(drop)
    }

    /// Sends DELETE, and parses the answer.
    pub fn delete_for<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.read(self.send(http::Method::DELETE, path, None)?)
    }

    /// The node's status.
    pub fn status(&self) -> anyhow::Result<NodeStatus> {
        self.get("/v1/status")
    }

    /// The RESP port of the process.
    pub fn resp_address(&self) -> anyhow::Result<String> {
        let address = self.status()?.resp_addr.with_context(|| {
            format!(
                "the process at {} does not serve RESP: name a node or a router with --http or --resp",
                self.base
            )
        })?;
        Ok(resp::reachable(&address, resp::host(&self.base)))
    }

    /// A store; `None` if there is none of this name.
    pub fn store(&self, name: &fondaco_model::StoreName) -> anyhow::Result<Option<StoreResource>> {
        match self.get(&format!("/v1/stores/{name}")) {
            Ok(store) => Ok(Some(store)),
            Err(error) if is_refused(&error, "store_not_found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The address of the control port, as a URL.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Sends a request, with a body of this content type if there is one.
    fn send(
        &self,
        method: http::Method,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> anyhow::Result<http::Response<Body>> {
        let mut answer = self.try_once(&method, path, body)?;
        if answer.status() == http::StatusCode::UNAUTHORIZED && self.follow_clock(&answer) {
            answer = self.try_once(&method, path, body)?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = answer.body_mut().read_to_string().with_context(|| self.broken())?;
        Err(match serde_json::from_str::<ErrorResource>(&text) {
            Ok(ErrorResource { error }) if error.code == "unauthorized" => anyhow::Error::new(Refused {
                message: match self.proof {
                    Proof::None => format!("{} needs a token: give it with --token or FONDACO_TOKEN", self.base),
                    Proof::Token(_) | Proof::Signature(_) => format!(
                        "{} refuses the token: it is wrong; give the right one with --token or FONDACO_TOKEN",
                        self.base
                    ),
                },
                code: error.code,
            }),
            Ok(ErrorResource { error }) => anyhow::Error::new(Refused {
                code: error.code,
                message: error.message,
            }),
            Err(_) => anyhow!("{} answered {status}, but not as fondaco does: check --http", self.base),
        })
    }

    fn try_once(
        &self,
        method: &http::Method,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> anyhow::Result<http::Response<Body>> {
        let url = format!("{}{path}", self.base);
        let mut request = http::Request::builder().method(method).uri(url);
        let authorization = match &self.proof {
            Proof::None => None,
            Proof::Token(token) => Some(format!("Bearer {token}")),
            Proof::Signature(key) => {
                let signed = SignedRequest {
                    method: method.as_str(),
                    target: path,
                    recipient: self.base.split_once("://").map_or("", |(_, recipient)| recipient),
                    range: "",
                };
                let unix_ms = now_unix_ms().saturating_add_signed(self.ahead_ms.load(Relaxed));
                let content = body.map_or(&b""[..], |(_, body)| body);
                Some(key.sign(&signed, content, unix_ms).to_string())
            }
        };
        if let Some(authorization) = authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        let answer = match body {
            Some((kind, body)) => {
                let request = request.header(http::header::CONTENT_TYPE, kind);
                self.agent.run(request.body(body).with_context(|| self.invalid())?)
            }
            None => self.agent.run(request.body(()).with_context(|| self.invalid())?),
        };
        answer.map_err(|error| self.unreachable(error))
    }

    /// Adopts the clock of the node, if it refused a signature for its time. Returns whether to try again.
    fn follow_clock(&self, answer: &http::Response<Body>) -> bool {
        let told = answer.headers().get(TIME_HEADER);
        let told: Option<u64> = told.and_then(|value| value.to_str().ok()?.parse().ok());
        let ahead = told.and_then(|told| told.checked_signed_diff(now_unix_ms()));
        let (Proof::Signature(_), Some(ahead)) = (&self.proof, ahead) else {
            return false;
        };
        self.ahead_ms.swap(ahead, Relaxed).abs_diff(ahead) > SIGNED_MS_MAX / 2
    }

    fn read<T: DeserializeOwned>(&self, mut answer: http::Response<Body>) -> anyhow::Result<T> {
        let limited = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let bytes = limited.read_to_vec().with_context(|| self.broken())?;
        serde_json::from_slice(&bytes).with_context(|| self.broken())
    }

    fn unreachable(&self, error: ureq::Error) -> anyhow::Error {
        let address = self.base.split_once("://").map_or(&*self.base, |(_, address)| address);
        let tls = self.base.starts_with("https://");
        let spoken = wire::spoken_at(address).and_then(|spoken| spoken.instead_of_http(address, tls));
        let refused = match &error {
            ureq::Error::Io(error) => refused_certificate(error),
            ureq::Error::Rustls(error) => refused_certificate(error),
            _ => None,
        };
        let why = match (spoken, refused, &error) {
            (Some(spoken), ..) => spoken,
            (None, Some(reason), _) => format!("{reason}; {ADVICE_ON_TLS}"),
            (None, None, ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound) => format!(
                "{error}; is a node running there? Start one with fondaco dev, or give its address with --http or FONDACO_HTTP"
            ),
            (None, None, _) => format!("{error}; check --http, and the node's log"),
        };
        let message = format!("cannot reach {}: {why}", self.base);
        let code = "unreachable".to_owned();
        anyhow::Error::new(Refused { code, message })
    }

    fn broken(&self) -> String {
        format!(
            "{} gave an answer that this release does not understand; check its version",
            self.base
        )
    }

    fn invalid(&self) -> String {
        format!("{:?} is not an address, or the token has invalid characters", self.base)
    }
}

/// The code of an error, for programs: the code that the node returned, or one for a local failure.
pub fn code(error: &anyhow::Error) -> &str {
    match error.downcast_ref::<Refused>() {
        Some(refused) => &refused.code,
        None if error.is::<WrongUsage>() => "wrong_usage",
        None => "failed",
    }
}
