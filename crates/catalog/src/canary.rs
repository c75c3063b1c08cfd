//! The canary of a store, as this process serves it: the version that answers some reads, and the counts of what it answers.

use std::sync::Arc;

use fondaco_model::{CanaryCounts, Share, VersionNumber, is_in_share};
use parking_lot::Mutex;

/// The canary of a store.
pub struct Canary {
    /// The index of its version among the open ones, or [`NOT_OPEN`](crate::NOT_OPEN).
    pub place: u16,
    /// Its version.
    pub number: VersionNumber,
    /// The share of the keys that this process takes for it.
    pub(crate) share: Share,
    pub(crate) meter: Arc<CanaryMeter>,
}

impl Canary {
    /// Whether a request whose first key of the store is this one reads the canary's version.
    #[inline]
    pub fn takes(&self, key: &[u8]) -> bool {
        is_in_share(self.share, key)
    }

    /// The counts of this process.
    pub fn meter(&self) -> &Arc<CanaryMeter> {
        &self.meter
    }
}

/// The counts of a process during a canary. Only requests to its store take the lock, for a few additions.
#[derive(Debug, Default)]
pub struct CanaryMeter(Mutex<CanaryCounts>);

impl CanaryMeter {
    /// Changes the counts.
    pub fn count(&self, change: impl FnOnce(&mut CanaryCounts)) {
        change(&mut self.0.lock());
    }

    /// The counts so far.
    pub fn counts(&self) -> CanaryCounts {
        *self.0.lock()
    }
}
