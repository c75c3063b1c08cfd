//! The versions that are or were current here, and how the last one is opened at the start.

use std::sync::Arc;

use super::cluster::{Target, VersionId};
use super::place::{Place, Remembered};
use crate::error::EmbeddedError;
use crate::events::{Layer, StreamOf, Streams};
use crate::snapshot::{Open, open_version};

/// A version that is or was current here.
pub(super) struct Held {
    pub(super) id: VersionId,
    pub(super) store_created_unix_ms: u64,
    pub(super) stream: Option<StreamOf>,
    /// `None` if it was not opened since the start.
    pub(super) open: Option<Arc<Open>>,
}

impl Held {
    /// Whether it is the version with these events on top. Another store may have a version with the same content.
    pub(super) fn is_of(&self, target: &Target) -> bool {
        let is_same_store = self.store_created_unix_ms == target.store_created_unix_ms;
        self.id == target.id
            && match (&self.stream, &target.stream) {
                (None, None) => true,
                (Some(own), Some(other)) => is_same_store && own.events == other.events,
                _ => false,
            }
    }

    pub(super) fn layer(&self) -> Option<&Arc<Layer>> {
        self.open.as_ref()?.layer.as_ref()
    }
}

/// The last version that can be opened, and those before it.
pub(super) fn open_last(place: &Place, remembered: Vec<Remembered>, streams: &Streams) -> (Option<Held>, Vec<Held>) {
    let (mut current, mut others) = (None, Vec::new());
    for remembered in remembered {
        let id = remembered.id();
        let mut held = Held {
            id,
            store_created_unix_ms: remembered.store_created_unix_ms,
            stream: remembered.stream,
            open: None,
        };
        if current.is_some() {
            others.push(held);
            continue;
        }
        let dir = place.version_dir(id);
        let opened = open_version(&dir).and_then(|mut version| version.warm_and_close().map(|()| version));
        let opened = opened
            .map_err(EmbeddedError::from)
            .and_then(|version| Open::new(version, Some(id.number)))
            .and_then(|open| open.with_events(streams, held.stream.as_ref(), held.store_created_unix_ms));
        match opened {
            Ok(open) => {
                held.open = Some(Arc::new(open));
                current = Some(held);
            }
            Err(error) => tracing::warn!(?dir, %error, "a version cannot be opened"),
        }
    }
    (current, others)
}
