//! Fetches from a node that has the files already, over its HTTP port.
//!
//! A file is requested in ranges, each held in memory until it is used: a fetch that is slowed down keeps no connection
//! of its peer busy. A peer that does not hold a file answers 404, a busy one 503 with `Retry-After`. Requests are
//! [signed](RequestKey) with the token of the cluster, which is never sent.

use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use fondaco_model::{StoreName, VersionNumber};
use ureq::http::{StatusCode, header};
use ureq::{Agent, Body, http};

use crate::error::FetchError;
use crate::https::agent_trusting;
use crate::source::{FetchSource, PageCache, SourceError};
use fondaco_protocol::{
    RequestKey, SIGNED_MS_MAX, SignedRequest, TIME_HEADER, TrustError, in_words, now_unix_ms, trusting,
};

/// The largest range of a request, in bytes.
const RANGE_BYTES: u64 = 4 << 20;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// How long the answer with a range may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// How long to wait for a busy peer that gives no time.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// How a node reaches its peers. One client for all fetches: it keeps connections.
#[derive(Clone)]
pub struct PeerClient {
    agent: Agent,
    key: Option<RequestKey>,
    scheme: &'static str,
}

impl PeerClient {
    /// A client that signs requests with this token, if there is one. With certificates, as PEM, it uses TLS and trusts
    /// only these.
    ///
    /// # Errors
    /// [`FetchError::PeerCertificates`] if there is no certificate in the PEM.
    pub fn new(token: Option<&str>, certificates_pem: Option<&[u8]>) -> Result<Self, FetchError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Proxy settings of the environment are meant for the web, not for one's own nodes.
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(ANSWER_TIME_MAX));
        let config = config.build();
        let agent = match certificates_pem {
            None => config.new_agent(),
            Some(pem) => {
                let unusable = |error: TrustError| FetchError::PeerCertificates {
                    reason: error.to_string(),
                };
                agent_trusting(config, trusting(pem).map_err(unusable)?)
            }
        };
        Ok(Self {
            agent,
            key: token.map(RequestKey::new),
            scheme: if certificates_pem.is_some() { "https" } else { "http" },
        })
    }

    /// The same over TLS with the certificates that the system trusts, if it was made without certificates.
    #[must_use]
    pub fn over_tls(self) -> Self {
        Self {
            scheme: "https",
            ..self
        }
    }

    /// The files of a version on the peer with this HTTP address, host and port.
    pub fn source(&self, address: &str, store: &StoreName, version: VersionNumber) -> PeerSource {
        self.files(address, &format!("/v1/stores/{store}/versions/{version}/files"))
    }

    /// The files of an upload on the peer with this HTTP address, host and port.
    pub fn upload(&self, address: &str, store: &StoreName, upload: &str) -> PeerSource {
        self.files(address, &format!("/v1/stores/{store}/uploads/{upload}/files"))
    }

    fn files(&self, address: &str, path: &str) -> PeerSource {
        PeerSource {
            port: self.port(address),
            path: path.into(),
        }
    }

    /// The control port with this HTTP address, host and port.
    pub fn port(&self, address: &str) -> PeerPort {
        PeerPort {
            client: self.clone(),
            address: address.into(),
            ahead_ms: Arc::default(),
        }
    }
}

/// The control port of another process.
#[derive(Clone)]
pub struct PeerPort {
    client: PeerClient,
    /// Host and port as the process advertises them: signatures are valid for this recipient only.
    address: Arc<str>,
    /// By how much its clock is ahead of this one, known after it has refused a signature for its time.
    ahead_ms: Arc<AtomicI64>,
}

/// The longest answer to a request for JSON.
const JSON_BYTES_MAX: u64 = 64 << 20;

impl PeerPort {
    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks for JSON. Returns the status of the answer, and its body.
    ///
    /// # Errors
    /// It does not answer.
    pub fn get(&self, target: &str) -> io::Result<(StatusCode, Vec<u8>)> {
        self.ask("GET", target, b"")
    }

    /// Sends JSON. Returns the status of the answer, and its body.
    ///
    /// # Errors
    /// It does not answer.
    pub fn post(&self, target: &str, body: &[u8]) -> io::Result<(StatusCode, Vec<u8>)> {
        self.ask("POST", target, body)
    }

    fn ask(&self, method: &str, target: &str, body: &[u8]) -> io::Result<(StatusCode, Vec<u8>)> {
        let mut answer = self.send(method, target, "", body, ANSWER_TIME_MAX)?;
        if answer.status() == StatusCode::UNAUTHORIZED && self.follow_clock(&answer) {
            answer = self.send(method, target, "", body, ANSWER_TIME_MAX)?;
        }
        let found = answer.body_mut().with_config().limit(JSON_BYTES_MAX).read_to_vec();
        Ok((answer.status(), found.map_err(as_io)?))
    }

    fn send(
        &self,
        method: &str,
        target: &str,
        range: &str,
        body: &[u8],
        time_max: Duration,
    ) -> io::Result<http::Response<Body>> {
        let url = format!("{}://{}{target}", self.client.scheme, self.address);
        let mut request = http::Request::builder().method(method).uri(url);
        if !range.is_empty() {
            request = request.header(header::RANGE, range);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &self.client.key {
            let signed = SignedRequest {
                method,
                target,
                recipient: &self.address,
                range,
            };
            let unix_ms = now_unix_ms().saturating_add_signed(self.ahead_ms.load(Relaxed));
            request = request.header(header::AUTHORIZATION, key.sign(&signed, body, unix_ms).to_string());
        }
        let answer = match body {
            b"" => {
                let request = request.body(()).map_err(io::Error::other)?;
                let request = self.client.agent.configure_request(request);
                self.client.agent.run(request.timeout_global(Some(time_max)).build())
            }
            body => self.client.agent.run(request.body(body).map_err(io::Error::other)?),
        };
        answer.map_err(as_io)
    }

    /// Uses the peer's clock from now on, if it differs so much from this one that the peer refuses signatures. If the
    /// peer lies about its clock, the signatures are still valid nowhere else.
    fn follow_clock(&self, answer: &http::Response<Body>) -> bool {
        let header = answer.headers().get(TIME_HEADER);
        let sent_ms: Option<u64> = header.and_then(|value| value.to_str().ok()?.parse().ok());
        let Some(ahead) = sent_ms.and_then(|sent_ms| sent_ms.checked_signed_diff(now_unix_ms())) else {
            return false;
        };
        let before = self.ahead_ms.swap(ahead, Relaxed);
        before.abs_diff(ahead) > SIGNED_MS_MAX / 2
    }
}

/// The files of a version on another node.
#[derive(Clone)]
pub struct PeerSource {
    port: PeerPort,
    path: Arc<str>,
}

impl PeerSource {
    /// Requests some bytes of a file. Returns them, and the length of the whole file.
    fn range(&self, file: &str, offset: u64, bytes: u64, time_max: Duration) -> Result<(Vec<u8>, u64), SourceError> {
        debug_assert!(bytes > 0);
        let last = offset + bytes - 1;
        let range = format!("bytes={offset}-{last}");
        let target = format!("{}/{file}", self.path);
        let mut answer = self.port.send("GET", &target, &range, b"", time_max)?;
        if answer.status() == StatusCode::UNAUTHORIZED && self.port.follow_clock(&answer) {
            answer = self.port.send("GET", &target, &range, b"", time_max)?;
        }
        let length = match answer.status() {
            StatusCode::PARTIAL_CONTENT => total_length(&answer, offset)?,
            // The range begins at the end: there are no bytes.
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok((Vec::new(), offset)),
            StatusCode::NOT_FOUND => return Err(SourceError::Missing),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                return Err(SourceError::Busy {
                    retry_after: retry_after(&answer),
                });
            }
            status => return Err(failed(format!("it answered {status} to a request for a range"))),
        };
        let body = answer.body_mut().with_config().limit(bytes).read_to_vec();
        let body = body.map_err(as_io)?;
        if body.is_empty() {
            return Err(failed("it answered with an empty range".to_owned()));
        }
        Ok((body, length))
    }
}

impl FetchSource for PeerSource {
    fn name(&self) -> String {
        format!("{}://{}{}", self.port.client.scheme, self.port.address, self.path)
    }

    fn local_dir(&self) -> Option<&Path> {
        None
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        let mut reader = PeerReader::open(self, file, 0)?;
        if reader.end > bytes_max {
            let bytes = reader.end;
            return Err(failed(format!(
                "it has {bytes} bytes, more than the {bytes_max} allowed"
            )));
        }
        let mut content = Vec::with_capacity(reader.end as usize);
        reader.read_to_end(&mut content)?;
        Ok(content)
    }

    fn open(&self, file: &str, offset: u64, _: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        Ok(Box::new(PeerReader::open(self, file, offset)?))
    }

    fn read_range(&self, file: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, SourceError> {
        Ok(self.range(file, range.start, range.end - range.start, time_max)?.0)
    }
}

/// Reads a file on a peer range by range.
struct PeerReader {
    source: PeerSource,
    file: String,
    /// The present range, and how much of it was used.
    range: Vec<u8>,
    used: usize,
    /// The start of the next range, and the length of the file.
    next: u64,
    end: u64,
}

impl PeerReader {
    fn open(source: &PeerSource, file: &str, offset: u64) -> Result<Self, SourceError> {
        let (range, end) = source.range(file, offset, RANGE_BYTES, ANSWER_TIME_MAX)?;
        Ok(Self {
            source: source.clone(),
            file: file.to_owned(),
            next: offset + range.len() as u64,
            range,
            used: 0,
            end,
        })
    }
}

impl Read for PeerReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.range.len() {
            if self.next >= self.end {
                return Ok(0);
            }
            let bytes = RANGE_BYTES.min(self.end - self.next);
            (self.range, _) = self.source.range(&self.file, self.next, bytes, ANSWER_TIME_MAX)?;
            self.used = 0;
            self.next += self.range.len() as u64;
        }
        let count = buffer.len().min(self.range.len() - self.used);
        buffer[..count].copy_from_slice(&self.range[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

/// The length of the file, from `Content-Range: bytes FIRST-LAST/LENGTH`, if it begins at the requested offset.
fn total_length(answer: &http::Response<Body>, offset: u64) -> Result<u64, SourceError> {
    let text = answer.headers().get(header::CONTENT_RANGE);
    let text = text.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parsed = text.strip_prefix("bytes ").and_then(|rest| {
        let (range, length) = rest.split_once('/')?;
        let (first, _) = range.split_once('-')?;
        Some((first.parse::<u64>().ok()?, length.parse::<u64>().ok()?))
    });
    match parsed {
        Some((first, length)) if first == offset => Ok(length),
        _ => Err(failed(format!(
            "it answered with the range {text:?} to a request from {offset}"
        ))),
    }
}

fn retry_after(answer: &http::Response<Body>) -> Duration {
    let value = answer.headers().get(header::RETRY_AFTER);
    let seconds = value.and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(RETRY_AFTER_DEFAULT, Duration::from_secs)
}

fn as_io(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => in_words(error),
        error => io::Error::other(error),
    }
}

fn failed(reason: String) -> SourceError {
    SourceError::Failed(io::Error::other(reason))
}
