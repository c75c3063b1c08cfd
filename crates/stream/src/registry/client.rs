//! A registry of schemas outside of the cluster, asked over HTTP by Confluent's interface: `GET /schemas/ids/{id}`.

use std::time::Duration;

use fondaco_model::RegistryAddress;
use fondaco_schema::TEXT_BYTES_MAX;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::StatusCode;
use ureq::{Agent, Error};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long to wait until a registry that lacks a schema is asked again: one of its servers may be behind the others.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The longest answer: a text in JSON may be longer than itself.
const ANSWER_BYTES_MAX: u64 = 6 * TEXT_BYTES_MAX as u64 + 4096;
/// The code of the answer that there is no such schema.
const NO_SCHEMA: u32 = 40403;

/// Asks registries. Cheap to clone.
#[derive(Clone)]
pub struct RegistryClient(Agent);

/// A schema of a registry.
#[derive(Debug, Deserialize)]
pub(super) struct OutsideSchema {
    pub(super) schema: String,
    /// None is Avro.
    #[serde(default, rename = "schemaType")]
    pub(super) schema_type: Option<String>,
    /// Other schemas that it refers to.
    #[serde(default)]
    pub(super) references: Vec<serde_json::Value>,
}

/// The answer of a registry that refuses.
#[derive(Deserialize)]
struct Refusal {
    error_code: u32,
}

/// The answer of one server.
enum Answer {
    Schema(OutsideSchema),
    Missing,
    TooLong,
}

/// Why there is no schema of a registry for the values of a store.
#[derive(Debug)]
pub enum Unfound {
    /// It may be found later.
    Yet(String),
    /// It is missing, or cannot be used.
    Ever(String),
}

impl Default for RegistryClient {
    fn default() -> Self {
        Self::new()
    }
}

impl RegistryClient {
    /// Sends no request.
    pub fn new() -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(3)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .timeout_global(Some(ANSWER_TIME_MAX));
        Self(config.build().new_agent())
    }

    /// The schema with a number: as its text, or serialized, which registries do for Protobuf.
    pub(super) fn schema(
        &self,
        registry: &RegistryAddress,
        number: u32,
        is_serialized: bool,
    ) -> Result<OutsideSchema, Unfound> {
        let named = || format!("schema {number} of the registry {registry}");
        for attempt in 0..2 {
            if attempt > 0 {
                std::thread::sleep(ASK_AGAIN);
            }
            match self.ask_any(registry, number, is_serialized) {
                Ok(Answer::Schema(schema)) => return Ok(schema),
                Ok(Answer::Missing) => {}
                Ok(Answer::TooLong) => {
                    return Err(Unfound::Ever(format!(
                        "{} has more than {TEXT_BYTES_MAX} bytes",
                        named()
                    )));
                }
                Err(reason) => return Err(Unfound::Yet(format!("{} is not given: {reason}", named()))),
            }
        }
        Err(Unfound::Ever(format!("the registry {registry} has no schema {number}")))
    }

    /// The answer of the first server that has the schema. That it is missing is only known if all servers answer.
    fn ask_any(&self, registry: &RegistryAddress, number: u32, is_serialized: bool) -> Result<Answer, String> {
        let mut failures = Vec::new();
        for url in registry.urls() {
            match self.ask(url, number, is_serialized) {
                Ok(Answer::Missing) => {}
                Ok(answer) => return Ok(answer),
                Err(reason) => failures.push(format!("{url}: {reason}")),
            }
        }
        match failures.is_empty() {
            true => Ok(Answer::Missing),
            false => Err(failures.join("; ")),
        }
    }

    fn ask(&self, url: &str, number: u32, is_serialized: bool) -> Result<Answer, String> {
        let query = if is_serialized { "?format=serialized" } else { "" };
        let request = self.0.get(format!("{url}/schemas/ids/{number}{query}"));
        let request = request.header("accept", "application/vnd.schemaregistry.v1+json, application/json");
        let mut answer = request.call().map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = match body {
            Err(Error::BodyExceedsLimit(_)) if status.is_success() => return Ok(Answer::TooLong),
            body => body.map_err(|error| error.to_string())?,
        };
        match status {
            StatusCode::OK => parsed(&body).map(Answer::Schema),
            StatusCode::NOT_FOUND if parsed(&body).is_ok_and(|refusal: Refusal| refusal.error_code == NO_SCHEMA) => {
                Ok(Answer::Missing)
            }
            // Another program may listen there.
            status => Err(format!(
                "it answers {status}, which is not the answer of a registry about a schema"
            )),
        }
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("its answer is not that of a registry: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use fondaco_testing::{HttpAnswer, free_port, serve_http};

    use super::*;

    const MISSING: HttpAnswerText = (
        "404 Not Found",
        r#"{"error_code": 40403, "message": "Schema not found"}"#,
    );

    type HttpAnswerText = (&'static str, &'static str);

    fn answer((status, body): HttpAnswerText) -> HttpAnswer {
        Some((status, body.as_bytes().to_vec()))
    }

    /// A server that gives these answers, the last one again and again; and how many requests it had.
    fn server(answers: &'static [HttpAnswerText]) -> (String, Arc<AtomicU32>) {
        let asked = Arc::<AtomicU32>::default();
        let count = Arc::clone(&asked);
        let address = serve_http(move |line, _| {
            assert_eq!(line, "GET /schemas/ids/7 HTTP/1.1");
            let at = count.fetch_add(1, Relaxed) as usize;
            answer(answers[at.min(answers.len() - 1)])
        });
        (format!("http://{}", address.unwrap()), asked)
    }

    fn asked(urls: &[&str]) -> Result<OutsideSchema, Unfound> {
        RegistryClient::new().schema(&urls.join(",").parse().unwrap(), 7, false)
    }

    #[test]
    fn a_missing_schema_is_asked_for_twice() {
        let (url, count) = server(&[MISSING]);
        let Err(Unfound::Ever(reason)) = asked(&[&url]) else {
            panic!()
        };
        assert_eq!(
            (reason, count.load(Relaxed)),
            (format!("the registry {url} has no schema 7"), 2)
        );
        let (url, _) = server(&[MISSING, ("200 OK", r#"{"schema": "\"int\""}"#)]);
        let found = asked(&[&url]).unwrap();
        assert_eq!(
            (&*found.schema, found.schema_type, found.references.len()),
            ("\"int\"", None, 0)
        );
    }

    #[test]
    fn servers_are_asked_one_after_the_other() {
        let dead = format!("http://127.0.0.1:{}", free_port());
        let (behind, _) = server(&[MISSING]);
        let (url, _) = server(&[(
            "200 OK",
            r#"{"schema": "x", "schemaType": "JSON", "references": [{"name": "y"}]}"#,
        )]);
        let found = asked(&[&dead, &behind, &url]).unwrap();
        assert_eq!(
            (found.schema_type.as_deref(), found.references.len()),
            (Some("JSON"), 1)
        );
        // The one that is away may have it.
        let Err(Unfound::Yet(reason)) = asked(&[&behind, &dead]) else {
            panic!()
        };
        assert!(reason.contains(&dead), "{reason}");
    }

    #[test]
    fn answers_of_other_programs_are_no_schemas() {
        for answer in [
            &[("404 Not Found", "<html>")][..],
            &[(
                "404 Not Found",
                r#"{"error_code": 404, "message": "HTTP 404 Not Found"}"#,
            )],
            &[("500 Internal Server Error", "{}")],
            &[("401 Unauthorized", "")],
            &[("200 OK", "hello")],
            &[("200 OK", "{}")],
        ] {
            let (url, _) = server(answer);
            let Err(Unfound::Yet(reason)) = asked(&[&url]) else {
                panic!("{answer:?}")
            };
            assert!(reason.contains(&url) && reason.contains("answer"), "{reason}");
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_not_read() {
        let body = format!(r#"{{"schema": "{}"}}"#, " ".repeat(ANSWER_BYTES_MAX as usize));
        let address = serve_http(move |_, _| Some(("200 OK", body.clone().into_bytes()))).unwrap();
        let Err(Unfound::Ever(reason)) = asked(&[&format!("http://{address}")]) else {
            panic!()
        };
        assert!(reason.ends_with("has more than 262144 bytes"), "{reason}");
    }
}
