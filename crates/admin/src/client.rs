//! The client of a node's control port.
//!
//! It handles paths, the token, TLS and error replies. The requests and the meaning of the answers are up to the caller.

use std::fs;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_api::{ErrorResource, FRAME_BYTES_MAX, NEXT_HEADER, NodeStatus, StoreResource};
use fondaco_fetch::agent_trusting;
use fondaco_model::StoreName;
use fondaco_protocol::{
    RequestKey, SIGNED_MS_MAX, SignedRequest, TIME_HEADER, now_unix_ms, refused_certificate, trusting,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::{Agent, Body, http};

use crate::endpoint::Endpoint;
use crate::error::AdminError;
use crate::{port_protocol, resp};

/// The timeout for making a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// The longest answer: the largest answer of a batch lookup, in base64, as JSON.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The longest page of records: a full page followed by the longest record.
const PAGE_BYTES_MAX: u64 = FRAME_BYTES_MAX as u64 + (8 << 20);

/// The content type of JSON bodies.
const JSON: &str = "application/json";

/// The content type of binary bodies.
const BYTES: &str = "application/octet-stream";

/// The advice for a certificate that is refused.
pub(crate) const ADVICE_ON_TLS: &str = "trust it with --ca FILE, which has the certificate or that of its authority, and name the \
                                 process as the certificate does";

/// A client of a node's control port.
///
/// # Errors
/// Every request fails if the process cannot be reached, refuses, or gives an answer that cannot be read.
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
    /// Sends the token, if there is one.
    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, AdminError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Proxy settings of the environment are meant for the web, not for the cluster's own nodes.
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(endpoint.request_time_max));
        let config = config.build();
        let agent = match &endpoint.ca {
            None => config.new_agent(),
            Some(path) => {
                let path = path.clone();
                let pem = match fs::read(&path) {
                    Ok(pem) => pem,
                    Err(source) => return Err(AdminError::Certificates { path, source }),
                };
                match trusting(&pem) {
                    Ok(tls) => agent_trusting(config, tls),
                    Err(source) => return Err(AdminError::NotTrusted { path, source }),
                }
            }
        };
        Ok(Self {
            agent,
            base: endpoint.base_url()?,
            proof: endpoint.token.clone().map_or(Proof::None, Proof::Token),
            ahead_ms: AtomicI64::new(0),
        })
    }

    /// Signs requests with the token, if there is one.
    pub(crate) fn signing(endpoint: &Endpoint) -> Result<Self, AdminError> {
        let mut client = Self::new(endpoint)?;
        if let Proof::Token(token) = &client.proof {
            client.proof = Proof::Signature(RequestKey::new(token));
        }
        Ok(client)
    }

    /// Sends GET, and parses the JSON answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.read(self.send(http::Method::GET, path, None)?)
    }

    /// Sends GET, and returns the bytes of the answer.
    pub fn get_bytes(&self, path: &str) -> Result<Vec<u8>, AdminError> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        self.body(&mut answer, ANSWER_BYTES_MAX)
    }

    /// Reads a page of records; returns it with the start of the next page, if there is one.
    pub fn get_page(&self, path: &str) -> Result<(Vec<u8>, Option<String>), AdminError> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        let next = answer.headers().get(NEXT_HEADER).map(|next| next.to_str());
        let next = next
            .transpose()
            .map_err(|error| self.not_parsed(error.into()))?
            .map(str::to_owned);
        Ok((self.body(&mut answer, PAGE_BYTES_MAX)?, next))
    }

    /// Sends POST with JSON, and parses the answer.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, AdminError> {
        self.read(self.send(http::Method::POST, path, Some((JSON, &json(body)?)))?)
    }

    /// Sends POST with bytes, and ignores the body of the answer.
    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Result<(), AdminError> {
        self.send(http::Method::POST, path, Some((BYTES, body))).map(drop)
    }

    /// Sends POST with bytes, and parses the answer.
    pub fn post_bytes_for<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, AdminError> {
        self.read(self.send(http::Method::POST, path, Some((BYTES, body)))?)
    }

    /// Sends PUT with bytes, and parses the answer.
    pub fn put_bytes<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, AdminError> {
        self.read(self.send(http::Method::PUT, path, Some((BYTES, body)))?)
    }

    /// Sends PATCH with JSON, and returns the new state.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, AdminError> {
        self.read(self.send(http::Method::PATCH, path, Some((JSON, &json(body)?)))?)
    }

    /// Sends PUT with JSON, and parses the answer.
    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, AdminError> {
        self.read(self.send(http::Method::PUT, path, Some((JSON, &json(body)?)))?)
    }

    /// Sends DELETE, and ignores the body of the answer.
    pub fn delete(&self, path: &str) -> Result<(), AdminError> {
        self.send(http::Method::DELETE, path, None).map(drop)
    }

    /// Sends DELETE, and parses the answer.
    pub fn delete_for<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.read(self.send(http::Method::DELETE, path, None)?)
    }

    /// The node's status.
    pub fn status(&self) -> Result<NodeStatus, AdminError> {
        self.get("/v1/status")
    }

    /// The RESP port of the process.
    pub fn resp_address(&self) -> Result<String, AdminError> {
        let address = self.status()?.resp_addr.ok_or_else(|| AdminError::NoResp {
            address: self.base.clone(),
        })?;
        Ok(resp::reachable(&address, resp::host(&self.base)))
    }

    /// A store; `None` if no store has this name.
    pub fn store(&self, name: &StoreName) -> Result<Option<StoreResource>, AdminError> {
        match self.get(&format!("/v1/stores/{name}")) {
            Ok(store) => Ok(Some(store)),
            Err(error) if error.code() == "store_not_found" => Ok(None),
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
    ) -> Result<http::Response<Body>, AdminError> {
        let mut answer = self.try_once(&method, path, body)?;
        if answer.status() == http::StatusCode::UNAUTHORIZED && self.follow_clock(&answer) {
            answer = self.try_once(&method, path, body)?;
        }
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = answer.body_mut().read_to_string().map_err(|error| self.broken(error))?;
        let Ok(ErrorResource { error }) = serde_json::from_str::<ErrorResource>(&text) else {
            return Err(AdminError::NotFondaco {
                address: self.base.clone(),
                status: status.to_string(),
            });
        };
        let message = match (&*error.code, &self.proof) {
            ("unauthorized", Proof::None) => {
                format!("{} needs a token: give it with --token or FONDACO_TOKEN", self.base)
            }
            ("unauthorized", Proof::Token(_) | Proof::Signature(_)) => format!(
                "{} refuses the token: it is wrong; give the right one with --token or FONDACO_TOKEN",
                self.base
            ),
            _ => error.message,
        };
        Err(AdminError::Refused {
            code: error.code,
            message,
        })
    }

    fn try_once(
        &self,
        method: &http::Method,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> Result<http::Response<Body>, AdminError> {
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
                self.agent.run(request.body(body).map_err(|error| self.invalid(error))?)
            }
            None => self.agent.run(request.body(()).map_err(|error| self.invalid(error))?),
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

    fn read<T: DeserializeOwned>(&self, mut answer: http::Response<Body>) -> Result<T, AdminError> {
        let bytes = self.body(&mut answer, ANSWER_BYTES_MAX)?;
        serde_json::from_slice(&bytes).map_err(|error| self.not_parsed(error.into()))
    }

    fn body(&self, answer: &mut http::Response<Body>, bytes_max: u64) -> Result<Vec<u8>, AdminError> {
        let limited = answer.body_mut().with_config().limit(bytes_max);
        limited.read_to_vec().map_err(|error| self.broken(error))
    }

    fn unreachable(&self, error: ureq::Error) -> AdminError {
        let address = self.base.split_once("://").map_or(&*self.base, |(_, address)| address);
        let tls = self.base.starts_with("https://");
        let spoken = port_protocol::spoken_at(address).and_then(|spoken| spoken.instead_of_http(address, tls));
        let refused = match &error {
            ureq::Error::Io(error) => refused_certificate(error),
            ureq::Error::Rustls(error) => refused_certificate(error),
            _ => None,
        };
        let reason = match (spoken, refused, &error) {
            (Some(spoken), ..) => spoken,
            (None, Some(reason), _) => format!("{reason}; {ADVICE_ON_TLS}"),
            (None, None, ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound) => format!(
                "{error}; is a node running there? Start one with fondaco dev, or give its address with --http or FONDACO_HTTP"
            ),
            (None, None, _) => format!("{error}; check --http, and the node's log"),
        };
        AdminError::Unreachable {
            address: self.base.clone(),
            reason,
        }
    }

    fn broken(&self, source: ureq::Error) -> AdminError {
        AdminError::Broken {
            address: self.base.clone(),
            source,
        }
    }

    fn not_parsed(&self, source: Box<dyn std::error::Error + Send + Sync>) -> AdminError {
        AdminError::NotParsed {
            address: self.base.clone(),
            source,
        }
    }

    fn invalid(&self, source: http::Error) -> AdminError {
        AdminError::InvalidRequest {
            address: self.base.clone(),
            source,
        }
    }
}

/// The body of a request, as JSON.
fn json(body: &impl Serialize) -> Result<Vec<u8>, AdminError> {
    serde_json::to_vec(body).map_err(AdminError::NotJson)
}
