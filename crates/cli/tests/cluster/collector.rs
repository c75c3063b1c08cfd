//! A collector of traces for tests: it takes spans as OTLP over HTTP in JSON, or does not, as collectors sometimes do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fondaco_testing::{HttpAnswer, serve_http};
use parking_lot::Mutex;
use serde_json::Value;

/// The reaction of the collector to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Takes,
    /// Answers 500.
    Fails,
    /// Closes the connection without an answer.
    Closes,
    /// Never answers.
    IsSilent,
}

/// A span, as it was sent.
#[derive(Debug, Clone)]
pub struct Seen {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub kind: u64,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
    /// The role of the process that sent it.
    pub role: String,
    /// All of it, as text.
    pub text: String,
}

/// A running collector. It ends with the process.
pub struct Collector {
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    manner: Mutex<Manner>,
    spans: Mutex<Vec<Seen>>,
}

impl Collector {
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            manner: Mutex::new(Manner::Takes),
            spans: Mutex::default(),
        });
        let theirs = Arc::clone(&shared);
        let address = serve_http(move |line, body| theirs.take(line, &body)).unwrap();
        Self { address, shared }
    }

    /// The setting with which processes send spans here.
    pub fn setting(&self) -> String {
        format!("traces-endpoint=http://{}", self.address)
    }

    pub fn behave(&self, manner: Manner) {
        *self.shared.manner.lock() = manner;
    }

    /// The spans that were taken and fit.
    pub fn spans(&self, fits: impl Fn(&Seen) -> bool) -> Vec<Seen> {
        let spans = self.shared.spans.lock();
        spans.iter().filter(|span| fits(span)).cloned().collect()
    }

    /// The spans of a trace.
    pub fn trace(&self, trace: &str) -> Vec<Seen> {
        self.spans(|span| span.trace == trace)
    }
}

impl Shared {
    fn take(&self, line: &str, body: &[u8]) -> HttpAnswer {
        assert_eq!(line, "POST /v1/traces HTTP/1.1");
        let manner = *self.manner.lock();
        match manner {
            Manner::Takes => {
                let body: Value = serde_json::from_slice(body).unwrap();
                self.spans.lock().extend(parse(&body));
                Some(("200 OK", b"{}".to_vec()))
            }
            Manner::Fails => Some(("500 Internal Server Error", Vec::new())),
            Manner::Closes => None,
            Manner::IsSilent => loop {
                std::thread::park_timeout(Duration::from_secs(3600));
            },
        }
    }
}

fn parse(body: &Value) -> Vec<Seen> {
    let mut spans = Vec::new();
    for resource in body["resourceSpans"].as_array().unwrap() {
        let process = attributes(&resource["resource"]["attributes"]);
        assert_eq!(process["service.name"], "fondaco");
        for scope in resource["scopeSpans"].as_array().unwrap() {
            spans.extend(scope["spans"].as_array().unwrap().iter().map(|span| {
                let text = |name: &str| span[name].as_str().unwrap().to_owned();
                let (start, end): (u64, u64) = (
                    text("startTimeUnixNano").parse().unwrap(),
                    text("endTimeUnixNano").parse().unwrap(),
                );
                assert!(start > 1_700_000_000_000_000_000 && start <= end, "{span}");
                Seen {
                    trace: text("traceId"),
                    id: text("spanId"),
                    parent: span["parentSpanId"].as_str().map(str::to_owned),
                    name: text("name"),
                    kind: span["kind"].as_u64().unwrap(),
                    attributes: attributes(&span["attributes"]),
                    is_error: span["status"]["code"] == 2,
                    role: process["fondaco.role"].clone(),
                    text: span.to_string(),
                }
            }));
        }
    }
    spans
}

fn attributes(list: &Value) -> BTreeMap<String, String> {
    let one = |attribute: &Value| {
        let value = attribute["value"].as_object().unwrap().values().next().unwrap();
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (attribute["key"].as_str().unwrap().to_owned(), value)
    };
    list.as_array().unwrap().iter().map(one).collect()
}
