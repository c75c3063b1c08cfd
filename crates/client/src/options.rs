//! Options of one request.

use std::sync::Arc;
use std::time::Duration;

use fondaco_model::versioned::VectorClock;

use crate::read::{FanOut, Strategy, ValueBudget};

/// How a request handles keys without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partial {
    /// It fails at once, with the error of one of them.
    #[default]
    Fail,
    /// It returns the values that were found, and an error for each other key.
    PerKey,
}

/// Options of one look-up.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// How long the whole request may take; 1 s by default. The time left is passed on to the nodes.
    pub deadline: Duration,
    /// How long one node may take before another is asked instead; half of the deadline by default.
    pub attempt: Option<Duration>,
    /// How to handle keys without an answer.
    pub partial: Partial,
    /// Whether a second node may be asked when the first one is slower than usual.
    pub hedge: bool,
    /// The strategy that chooses the replicas to ask. Without it, the strategy and the fan-out of the first key's
    /// store apply, or else [`Sticky`](crate::read::Sticky).
    pub strategy: Option<Arc<dyn Strategy>>,
    /// How many groups of nodes a request of several keys asks, if the strategy is given and heeds it: [`ClusterAware`] does.
    ///
    /// [`ClusterAware`]: crate::read::ClusterAware
    pub fan_out: FanOut,
    /// A limit on the values of all requests that share it, in bytes; none by default. A key whose value exceeds it
    /// fails with [`ClientError::NoRoom`](crate::ClientError::NoRoom).
    pub room: Option<Arc<ValueBudget>>,
    /// The choice between the current version and the canary's, for stores with a canary under way.
    pub canary: CanaryChoice,
}

/// The version that a request reads of a store with a canary under way. All its keys of the store are of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CanaryChoice {
    /// As the terms of the canary say for the request's first key of the store, and for the zone of the client.
    #[default]
    ByFirstKey,
    /// The current version.
    Current,
    /// That of the canary.
    Canary,
}

/// Options of a write of one key of a versioned store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// The write replaces the values read with this context; by default, all values acknowledged before.
    pub context: Option<VectorClock>,
    /// The value's time to live; by default, that of the store's settings.
    pub ttl: Option<Duration>,
    /// How long it may take until the write is acknowledged; 1 s by default.
    pub deadline: Duration,
    /// How long one replica may take before it no longer counts; a quarter of the deadline by default.
    pub attempt: Option<Duration>,
}

impl ReadOptions {
    /// The same options for a request that ends at this deadline with the values that came in time. For each other key it has
    /// the [error](crate::ClientError::is_late).
    pub fn within(self, deadline: Duration) -> Self {
        Self {
            deadline,
            partial: Partial::PerKey,
            ..self
        }
    }
}

impl Default for PutOptions {
    fn default() -> Self {
        Self {
            context: None,
            ttl: None,
            deadline: Duration::from_secs(1),
            attempt: None,
        }
    }
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            attempt: None,
            partial: Partial::default(),
            hedge: true,
            strategy: None,
            fan_out: FanOut::default(),
            room: None,
            canary: CanaryChoice::default(),
        }
    }
}
