//! Why brokers refuse connections: wrong credentials, or certificates that do not fit. librdkafka says so beside the
//! question that failed, which only knows that no broker has answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// How long a refusal explains errors. librdkafka repeats one that lasts after 30 s.
const EXPLAINS: Duration = Duration::from_secs(60);
/// How often the same is logged: librdkafka repeats some errors many times a second.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The events that the consumers of a Kafka cluster receive besides answers.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<Heard>>);

#[derive(Default)]
struct Heard {
    /// The last refusal of any broker.
    refusal: Option<(Instant, String)>,
    /// When what was logged last.
    logged: HashMap<String, Instant>,
}

impl Refusals {
    /// Why there was an error, as text: that is the refusal behind it, if there was one of late.
    pub(crate) fn reason(&self, error: &KafkaError) -> String {
        match &self.0.lock().refusal {
            Some((at, reason)) if at.elapsed() < EXPLAINS => reason.clone(),
            _ => without_value(error),
        }
    }

    /// Takes note that a broker has answered.
    pub(super) fn clear(&self) {
        self.0.lock().refusal = None;
    }

    /// Whether it is time to log something of this kind.
    fn logs(&self, kind: String) -> bool {
        let now = Instant::now();
        let logged = &mut self.0.lock().logged;
        let logs = logged.get(&kind).is_none_or(|at| now - *at >= LOG_EVERY);
        if logs {
            logged.insert(kind, now);
        }
        logs
    }
}

impl ClientContext for Refusals {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // Errors of connections, above all, which `error` gets, too.
        if (level as i32) <= RDKafkaLogLevel::Warning as i32 && self.logs(facility.to_owned()) {
            tracing::warn!(facility, message, "librdkafka");
        } else {
            tracing::debug!(facility, message, "librdkafka");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let remedy = match code {
            // That is where each partition ends.
            Some(RDKafkaErrorCode::PartitionEOF) => return,
            Some(RDKafkaErrorCode::Authentication) => "sasl.mechanism, sasl.username and sasl.password",
            Some(RDKafkaErrorCode::SSL) => "ssl.ca.location, and ssl.certificate.location if brokers ask for one",
            _ => {
                if self.logs(format!("{code:?}")) {
                    tracing::warn!(%error, reason, "Kafka");
                }
                return;
            }
        };
        let refusal = format!("{reason}: check {remedy} in the section [kafka] of the node's configuration");
        if self.logs(format!("{code:?}")) {
            tracing::warn!(reason = refusal, "Kafka refuses a connection");
        }
        self.0.lock().refusal = Some((Instant::now(), refusal));
    }
}

impl ConsumerContext for Refusals {}

/// An error as text, without the value of a property: it may be a password.
pub(crate) fn without_value(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, property, _) => {
            format!("property {property:?} in the section [kafka] of the node's configuration: {reason}")
        }
        error => error.to_string(),
    }
}
