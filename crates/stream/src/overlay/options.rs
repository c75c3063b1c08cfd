//! The options of an overlay, and the names of its tables.

use fondaco_format::Lifetimes;
use fondaco_model::cluster::VersionEvents;
use fondaco_model::{PartitionCount, Partitioner, StoreName, StreamSettings, VersionNumber};

/// The prefix of the names of all overlays' tables.
const OVERLAY_PREFIX: &str = "overlay-1-";
const PROGRESS: &str = "-progress";
const EVENTS: &str = "-events";

/// The options of an overlay, which are fixed when it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayOptions {
    /// The store.
    pub store: StoreName,
    /// Its number, which another store may have later.
    pub store_id: u16,
    /// When it was created, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The version below.
    pub version: VersionNumber,
    /// How many partitions it was built for.
    pub partitions: PartitionCount,
    /// Events at or before this time are in the version already, in milliseconds since 1970.
    pub as_of_ms: Option<u64>,
    /// How much later than it happened an event may be logged, in milliseconds: later ones do not count.
    pub grace_ms: u64,
    /// How records are assigned to the topic's partitions.
    pub partitioner: Partitioner,
    /// How long events, and the records of the version, live, if they expire.
    pub lifetimes: Option<Lifetimes>,
}

impl OverlayOptions {
    /// The options for a version with this number, this many partitions, and this time of its build in milliseconds since 1970. The
    /// caller adds which store of its name it is.
    pub fn of_version(
        store: &StoreName,
        (version, partitions, built_unix_ms): (VersionNumber, PartitionCount, u64),
        events: &VersionEvents,
        settings: &StreamSettings,
    ) -> Self {
        Self {
            store: store.clone(),
            store_id: 0,
            created_unix_ms: 0,
            version,
            partitions,
            as_of_ms: events.as_of_unix_ms,
            grace_ms: settings.grace_ms,
            partitioner: settings.partitioner,
            lifetimes: events.ttl_ms.map(|ttl_ms| Lifetimes {
                ttl_ms,
                undated_unix_ms: events.undated_unix_ms.unwrap_or(built_unix_ms),
            }),
        }
    }

    /// The store's number, when it was created, and the version, if a table is one of an overlay.
    pub fn of_table(name: &str) -> Option<(u16, u64, VersionNumber)> {
        let rest = name.strip_prefix(OVERLAY_PREFIX)?;
        let rest = rest
            .strip_suffix(PROGRESS)
            .or(rest.strip_suffix(EVENTS))
            .unwrap_or(rest);
        let mut parts = rest.split('-');
        let found = (
            parts.next()?.parse().ok()?,
            parts.next()?.parse().ok()?,
            parts.next()?.parse().ok()?,
        );
        let version = VersionNumber::new(found.2)?;
        parts.next().is_none().then_some((found.0, found.1, version))
    }

    /// The names of its tables: its records, how far it has come, and events that are kept beside their effects.
    pub fn tables(&self) -> [String; 3] {
        let Self {
            store_id,
            created_unix_ms,
            version,
            ..
        } = self;
        tables_of(format!("{OVERLAY_PREFIX}{store_id}-{created_unix_ms}-{version}"))
    }

    /// The names of all tables of the overlay whose table this is: that which says how far it has come.
    pub(super) fn tables_with(progress: &str) -> Option<[String; 3]> {
        Self::of_table(progress)?;
        Some(tables_of(progress.strip_suffix(PROGRESS)?.to_owned()))
    }
}

fn tables_of(name: String) -> [String; 3] {
    let (progress, events) = (format!("{name}{PROGRESS}"), format!("{name}{EVENTS}"));
    [name, progress, events]
}
