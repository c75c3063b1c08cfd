//! Mirrors: the changes of a store, written to a topic of Kafka, from the last position in the topic on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use fondaco_admin::{AdminError, Endpoint};
use fondaco_api::{ChangePage, LookupValue};
use fondaco_model::StoreName;
use fondaco_push::CancelToken;
use fondaco_stream::{MirrorError, MirrorTopic, Mirrored, TopicAddress};

use crate::follow::{Followed, StoreFollower};

/// How many changes are in a transaction.
const CHANGES_AT_ONCE: usize = 1000;

/// How long to wait before a topic that did not answer is opened again.
const OPEN_PAUSE: Duration = Duration::from_secs(2);

/// Between two looks at whether it is to end.
const STEP: Duration = Duration::from_millis(50);

/// A store that is mirrored to a topic.
#[derive(Debug, Clone)]
pub struct Mirror {
    /// The store.
    pub store: StoreName,
    /// How its cluster is reached.
    pub endpoint: Endpoint,
    /// The topic.
    pub topic: TopicAddress,
    /// The properties of librdkafka that the brokers ask for.
    pub properties: BTreeMap<String, String>,
    /// Where to begin if the topic has no position.
    pub from: String,
    /// Whether to begin there although the topic has a position, or messages of other producers.
    pub restart: bool,
    /// Whether to end when there are no more changes for now.
    pub until_now: bool,
}

/// The counts of a mirror's work.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct MirrorReport {
    /// How many changes were written.
    pub changes: u64,
    /// How many of these were deletions.
    pub deletions: u64,
    /// Where it ended.
    pub position: String,
}

/// Why a store is not mirrored.
#[derive(Debug, thiserror::Error)]
pub enum MirrorFailure {
    /// The store cannot be followed.
    #[error(transparent)]
    Store(#[from] AdminError),
    /// The changes cannot be written.
    #[error(transparent)]
    Topic(#[from] MirrorError),
}

impl Mirror {
    /// Mirrors until it is cancelled. `note` is told why it waits.
    ///
    /// # Errors
    /// The store cannot be followed from the last position, or the topic cannot be written to. A cluster or brokers that do not answer are
    /// waited for.
    pub fn run(&self, cancel: &CancelToken, note: &mut dyn FnMut(&str)) -> Result<MirrorReport, MirrorFailure> {
        let mut report = MirrorReport::default();
        let mut restart = self.restart;
        while !cancel.is_cancelled() {
            let opened = MirrorTopic::open(&self.topic, &self.properties, self.store.as_str(), self.restart);
            let written = opened.map_err(MirrorFailure::from).and_then(|(mut topic, position)| {
                let position = position.filter(|_| !restart).unwrap_or_else(|| self.from.clone());
                restart = false;
                let follower = StoreFollower::new(&self.endpoint, self.store.clone(), position, false)?;
                self.carry_over(follower, &mut topic, cancel, &mut report, note)
            });
            match written {
                Ok(()) => return Ok(report),
                Err(MirrorFailure::Topic(error)) if error.is_passing() => {
                    note(&error.to_string());
                    pause(OPEN_PAUSE, cancel);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Carries changes over until it is to end.
    fn carry_over(
        &self,
        mut follower: StoreFollower,
        topic: &mut MirrorTopic,
        cancel: &CancelToken,
        report: &mut MirrorReport,
        note: &mut dyn FnMut(&str),
    ) -> Result<(), MirrorFailure> {
        while !cancel.is_cancelled() {
            match follower.next(CHANGES_AT_ONCE, !self.until_now)? {
                Followed::Page(page) => {
                    write(topic, &page)?;
                    report.changes += page.changes.len() as u64;
                    let deletions = page.changes.iter().filter(|change| change.after.is_none());
                    report.deletions += deletions.count() as u64;
                    report.position = page.position;
                }
                Followed::Nothing(page) => match page.waits_for {
                    Some(reason) => {
                        note(&reason);
                        pause(STEP, cancel);
                    }
                    None if self.until_now => break,
                    None => {}
                },
                Followed::Failed(error, length) => {
                    note(&error.to_string());
                    pause(length, cancel);
                }
            }
        }
        Ok(())
    }
}

/// Writes the changes of a page in one transaction.
fn write(topic: &mut MirrorTopic, page: &ChangePage) -> Result<(), MirrorError> {
    let each = page.changes.iter();
    let bytes: Vec<_> = each
        .map(|change| (bytes_of(&change.key), change.after.as_ref().map(bytes_of)))
        .collect();
    let changes: Vec<Mirrored<'_>> = page
        .changes
        .iter()
        .zip(&bytes)
        .map(|(change, (key, value))| Mirrored {
            key,
            value: value.as_deref(),
            version: change.version,
            time_unix_ms: change.time_unix_ms,
            position: &change.position,
        })
        .collect();
    topic.write(&changes)
}

fn bytes_of(value: &LookupValue) -> Vec<u8> {
    match value {
        LookupValue::Utf8(text) => text.clone().into_bytes(),
        LookupValue::Base64(text) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap_or_default(),
        // Values are asked for as they are.
        LookupValue::Decoded(decoded) => decoded.json.to_string().into_bytes(),
    }
}

fn pause(length: Duration, cancel: &CancelToken) {
    let until = Instant::now() + length;
    while Instant::now() < until && !cancel.is_cancelled() {
        std::thread::sleep(STEP);
    }
}
