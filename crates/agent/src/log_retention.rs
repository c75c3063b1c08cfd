//! The topics of stores in the log of the process, whose events are deleted once no version needs them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_model::cluster::{ClusterView, StoreRecord};
use fondaco_model::{StreamSettings, StreamSource};
use fondaco_protocol::now_unix_ms;
use fondaco_stream::{EventLog, StreamError};
use parking_lot::Mutex;

/// How often events are deleted.
const PERIOD: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(super) struct LogRetention {
    log: Arc<EventLog>,
    /// When events were last deleted.
    deleted_at: Mutex<Option<Instant>>,
}

/// The events to delete.
#[derive(Debug, Default, PartialEq, Eq)]
struct Excess {
    /// Topics, how many partitions they have, and the time before which events are not needed, in milliseconds since 1970.
    before: Vec<(String, u32, u64)>,
    /// Topics of stores that were dropped, and cannot be restored any more.
    topics: Vec<String>,
}

impl LogRetention {
    pub(super) fn new(log: Arc<EventLog>) -> Self {
        let deleted_at = Mutex::default();
        Self { log, deleted_at }
    }

    /// Deletes what is not needed any more, on a thread of its own, if it is time to.
    pub(super) fn delete_unneeded(&self, view: &ClusterView) {
        let mut deleted_at = self.deleted_at.lock();
        if view.remembered || view.is_partial || deleted_at.is_some_and(|deleted_at| deleted_at.elapsed() < PERIOD) {
            return;
        }
        *deleted_at = Some(Instant::now());
        let excess = Excess::of(view, now_unix_ms());
        if excess == Excess::default() {
            return;
        }
        let log = Arc::clone(&self.log);
        let thread = std::thread::Builder::new().name("trim log".to_owned());
        let spawned = thread.spawn(move || {
            if let Err(error) = excess.delete(&log) {
                tracing::warn!(%error, "cannot delete events of the log: trying again");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot start a thread that deletes events of the log: trying again");
        }
    }
}

impl Excess {
    fn of(view: &ClusterView, now_unix_ms: u64) -> Self {
        let mut excess = Self::default();
        for store in view.stores.values().map(|store| &store.record) {
            if let Some((settings, partitions)) = log_of(store) {
                let before = needed_from(store, settings, now_unix_ms);
                excess.before.push((store.log_topic(), partitions, before));
            }
        }
        for dropped in view.dropped.values().map(|dropped| &dropped.record) {
            if log_of(&dropped.record).is_some() && dropped.kept_until_unix_ms <= now_unix_ms {
                excess.topics.push(dropped.record.log_topic());
            }
        }
        excess
    }

    fn delete(&self, log: &EventLog) -> Result<(), StreamError> {
        for (topic, partitions, before) in &self.before {
            log.topic(topic, *partitions)?.trim(*before)?;
        }
        log.delete(&self.topics)
    }
}

fn log_of(store: &StoreRecord) -> Option<(&StreamSettings, u32)> {
    let settings = store.definition.stream.as_ref()?;
    match settings.source {
        StreamSource::Log(partitions) => Some((settings, partitions)),
        StreamSource::Kafka { .. } => None,
    }
}

/// From when on events are needed. Versions read the stream from a time on, again where a partition moves. One that is
/// pushed now may contain events up to an earlier time only: at most as long ago as events may be late.
fn needed_from(store: &StoreRecord, settings: &StreamSettings, now_unix_ms: u64) -> u64 {
    let of_next = now_unix_ms
        .saturating_sub(settings.rewind_ms)
        .saturating_sub(settings.grace_ms);
    let events = store.details.values().filter_map(|detail| detail.events);
    events.map(|events| events.from_unix_ms).fold(of_next, u64::min)
}
