//! The control port of a node, as the command line speaks to it.
//!
//! It knows paths, the token, TLS, and what an error looks like. What is asked and what the answers
//! mean is up to the commands.

use std::fs;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http};

use fondaco_control::http::{ErrorResource, FRAME_BYTES_MAX, NEXT_HEADER, NodeStatus, StoreResource};

use crate::arguments::ControlPort;

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a request may take: longer than the node allows itself.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(120);
/// The longest answer: the most that a look-up of several keys answers, in base 64, as JSON.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The longest page of records: the longest record behind those that fill one.
const PAGE_BYTES_MAX: u64 = FRAME_BYTES_MAX as u64 + (8 << 20);

/// The type of bodies that are JSON.
const JSON: &str = "application/json";

const ADVICE_ON_TLS: &str = "trust its certificate with --ca FILE, if it is the right one";

/// A node's control port.
pub struct Client {
    agent: Agent,
    /// `http://host:port`, without a slash at the end.
    base: String,
    authorization: Option<String>,
}

/// What the node refused, and why.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The code of the error, for programs.
    pub code: String,
    /// What it says to people.
    pub message: String,
}

impl Client {
    /// A client of this port; nothing is sent yet.
    pub fn new(port: &ControlPort) -> anyhow::Result<Self> {
        let base = match port.http.split_once("://") {
            Some(("http" | "https", _)) => port.http.trim_end_matches('/').to_owned(),
            Some(_) => bail!(
                "invalid address {:?}: use host:port, or an http or https URL",
                port.http
            ),
            None if port.tls.is_wanted() => format!("https://{}", port.http),
            None => format!("http://{}", port.http),
        };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // What the environment says of proxies is meant for the web, not for one's own nodes.
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(REQUEST_TIME_MAX));
        if let Some(path) = &port.tls.ca {
            let pem = fs::read(path).with_context(|| format!("cannot read the certificates in {path:?}"))?;
            let mut certificates = Vec::new();
            for item in parse_pem(&pem) {
                if let PemItem::Certificate(certificate) =
                    item.with_context(|| format!("{path:?} is not a PEM file of certificates"))?
                {
                    certificates.push(certificate);
                }
            }
            if certificates.is_empty() {
                bail!("{path:?} holds no certificate: use a PEM file");
            }
            let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates));
            config = config.tls_config(tls.build());
        }
        Ok(Self {
            agent: config.build().new_agent(),
            base,
            authorization: port.token.as_ref().map(|token| format!("Bearer {token}")),
        })
    }

    /// Asks for something.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.read(self.send(http::Method::GET, path, None)?)
    }

    /// Asks for bytes.
    pub fn get_bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        let limited = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        limited.read_to_vec().with_context(|| self.broken())
    }

    /// Asks for a page of records; with it comes where the next one begins, if there is one.
    pub fn get_page(&self, path: &str) -> anyhow::Result<(Vec<u8>, Option<String>)> {
        let mut answer = self.send(http::Method::GET, path, None)?;
        let next = answer.headers().get(NEXT_HEADER).map(|next| next.to_str());
        let next = next.transpose().with_context(|| self.broken())?.map(str::to_owned);
        let limited = answer.body_mut().with_config().limit(PAGE_BYTES_MAX);
        Ok((limited.read_to_vec().with_context(|| self.broken())?, next))
    }

    /// Sends something, and reads the answer.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.read(self.send(http::Method::POST, path, Some((JSON, &serde_json::to_vec(body)?)))?)
    }

    /// Sends bytes; the answer, if there is one, is not read.
    pub fn post_bytes(&self, path: &str, body: &[u8]) -> anyhow::Result<()> {
        let body = Some(("application/octet-stream", body));
        self.send(http::Method::POST, path, body).map(drop)
    }

    /// Changes something, and reads what it is then.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        self.read(self.send(http::Method::PATCH, path, Some((JSON, &serde_json::to_vec(body)?)))?)
    }

    /// Deletes something; the answer, if there is one, is not read.
    pub fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send(http::Method::DELETE, path, None).map(drop)
    }

    /// The node.
    pub fn status(&self) -> anyhow::Result<NodeStatus> {
        self.get("/v1/status")
    }

    /// A store; `None` if there is none of this name.
    pub fn store(&self, name: &fondaco_model::StoreName) -> anyhow::Result<Option<StoreResource>> {
        match self.get(&format!("/v1/stores/{name}")) {
            Ok(store) => Ok(Some(store)),
            Err(error) if is_refused(&error, "store_not_found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// Sends a request, with a body of this type if there is one.
    fn send(
        &self,
        method: http::Method,
        path: &str,
        body: Option<(&str, &[u8])>,
    ) -> anyhow::Result<http::Response<Body>> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header(http::header::AUTHORIZATION, authorization);
        }
        let answer = match body {
            Some((kind, body)) => {
                let request = request.header(http::header::CONTENT_TYPE, kind);
                self.agent.run(request.body(body).with_context(|| self.invalid())?)
            }
            None => self.agent.run(request.body(()).with_context(|| self.invalid())?),
        };
        let mut answer = answer.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = answer.body_mut().read_to_string().with_context(|| self.broken())?;
        Err(match serde_json::from_str::<ErrorResource>(&text) {
            Ok(ErrorResource { error }) if error.code == "unauthorized" => {
                anyhow!("{} needs a token: give it with --token or FONDACO_TOKEN", self.base)
            }
            Ok(ErrorResource { error }) => anyhow::Error::new(Refused {
                code: error.code,
                message: error.message,
            }),
            Err(_) => anyhow!("{} answered {status}, but not as fondaco does: check --http", self.base),
        })
    }

    fn read<T: DeserializeOwned>(&self, mut answer: http::Response<Body>) -> anyhow::Result<T> {
        let limited = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        limited.read_json().with_context(|| self.broken())
    }

    fn unreachable(&self, error: ureq::Error) -> anyhow::Error {
        let advice = match &error {
            ureq::Error::Rustls(_) | ureq::Error::Tls(_) => ADVICE_ON_TLS,
            // What rustls says of a certificate comes wrapped as an error of the stream.
            ureq::Error::Io(io) if io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => ADVICE_ON_TLS,
            ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => {
                "is a node running there? Start one with fondaco dev, or say where with --http or FONDACO_HTTP"
            }
            _ => "check --http, and the node's log",
        };
        anyhow!("cannot reach {}: {error}; {advice}", self.base)
    }

    fn broken(&self) -> String {
        format!(
            "{} gave an answer that this release does not understand; check its version",
            self.base
        )
    }

    fn invalid(&self) -> String {
        format!(
            "{:?} is not an address, or the token has characters that none has",
            self.base
        )
    }
}

/// Whether the node refused with this code.
pub fn is_refused(error: &anyhow::Error, code: &str) -> bool {
    error
        .downcast_ref::<Refused>()
        .is_some_and(|refused| refused.code == code)
}
