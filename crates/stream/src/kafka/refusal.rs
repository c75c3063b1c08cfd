//! Why brokers refuse connections: wrong credentials, or certificates that do not fit. librdkafka says so beside the
//! question that failed, which only knows that no broker has answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// How long a refusal explains errors. librdkafka repeats one that goes on after 30 s.
const EXPLAINS: Duration = Duration::from_secs(60);

/// The last refusal of any broker, of all consumers of a Kafka.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<Option<(Instant, String)>>>);

impl Refusals {
    /// Why there was an error, as text: that is the refusal behind it, if there was one of late.
    pub(crate) fn reason(&self, error: &KafkaError) -> String {
        match &*self.0.lock() {
            Some((at, reason)) if at.elapsed() < EXPLAINS => reason.clone(),
            _ => without_value(error),
        }
    }

    /// Takes note that a broker has answered.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

impl ClientContext for Refusals {
    fn error(&self, error: KafkaError, reason: &str) {
        let remedy = match error.rdkafka_error_code() {
            // That is where each partition ends.
            Some(RDKafkaErrorCode::PartitionEOF) => return,
            Some(RDKafkaErrorCode::Authentication) => "sasl.mechanism, sasl.username and sasl.password",
            Some(RDKafkaErrorCode::SSL) => "ssl.ca.location, and ssl.certificate.location if brokers ask for one",
            _ => {
                tracing::warn!(%error, reason, "Kafka");
                return;
            }
        };
        let refusal = format!("{reason}: check {remedy} in the section [kafka] of the node's configuration");
        tracing::warn!(reason = refusal, "Kafka refuses a connection");
        *self.0.lock() = Some((Instant::now(), refusal));
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
