//! The stream of a version, as the cluster describes it. It is remembered in the directory, so that a reader starts without the cluster.

use fondaco_api::{StoreResource, VersionResource};
use fondaco_model::cluster::VersionEvents;
use fondaco_model::{PartitionCount, StoreName, StreamSettings, ValueType, VersionNumber};
use fondaco_stream::OverlayOptions;
use serde::{Deserialize, Serialize};

use crate::error::EmbeddedError;

/// The stream of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamOf {
    pub(crate) settings: StreamSettings,
    pub(crate) value_type: ValueType,
    pub(crate) events: VersionEvents,
    built_unix_ms: u64,
}

impl StreamOf {
    /// The stream of a version of a store; `None` if the store has none.
    ///
    /// # Errors
    /// The cluster does not say where it begins.
    pub(crate) fn of(store: &StoreResource, version: &VersionResource) -> Result<Option<Self>, EmbeddedError> {
        let Some(change) = &store.stream else { return Ok(None) };
        let not_described = || EmbeddedError::StreamNotDescribed {
            store: store.name.clone(),
            version: version.version,
        };
        let source = change.source.clone().ok_or_else(not_described)?;
        let built_unix_ms = version.built_unix_ms.ok_or_else(not_described)?;
        Ok(Some(Self {
            settings: StreamSettings::of(source).with(change),
            value_type: store.value_type(),
            events: VersionEvents {
                from_unix_ms: version.stream_from_unix_ms.ok_or_else(not_described)?,
                as_of_unix_ms: version.as_of_unix_ms,
                ttl_ms: version.ttl_ms,
                undated_unix_ms: version.undated_unix_ms,
            },
            built_unix_ms,
        }))
    }

    /// The options of the overlay of the version.
    pub(super) fn options(
        &self,
        store: &StoreName,
        created_unix_ms: u64,
        version: VersionNumber,
        partitions: PartitionCount,
    ) -> OverlayOptions {
        OverlayOptions {
            created_unix_ms,
            ..OverlayOptions::of_version(
                store,
                (version, partitions, self.built_unix_ms),
                &self.events,
                &self.settings,
            )
        }
    }
}
