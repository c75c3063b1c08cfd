//! How one request is to be carried out.

use std::sync::Arc;
use std::time::Duration;

use fondaco_model::versioned::VectorClock;

use crate::read::{NodeChoice, Sticky, ValueBudget};

/// What happens to a request of which some keys have no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partial {
    /// It fails, with the error of one of them, at once.
    #[default]
    Fail,
    /// It yields what there is, and an error for each other key.
    PerKey,
}

/// How one request is to be carried out.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// How long all of it may take. What is left of it is passed on to the nodes. 1 s unless said.
    pub deadline: Duration,
    /// How long one node may take before another is asked instead; half of the deadline unless said.
    pub attempt: Option<Duration>,
    /// What happens when some keys have no answer.
    pub partial: Partial,
    /// Whether a second node may be asked when the first takes longer than others do.
    pub hedge: bool,
    /// Which replica is asked first.
    pub choice: Arc<dyn NodeChoice>,
    /// What bounds the values of all requests that share it, in bytes; nothing unless said. A key whose
    /// value finds no room fails with [`ClientError::NoRoom`](crate::ClientError::NoRoom).
    pub room: Option<Arc<ValueBudget>>,
}

/// How a key of a versioned store is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOptions {
    /// What the write takes the place of: what was read with this context. Of all that was acknowledged before,
    /// unless said.
    pub context: Option<VectorClock>,
    /// How long the value is there; as the settings of the store say, unless said.
    pub ttl: Option<Duration>,
    /// How long it may take until the write is acknowledged. 1 s unless said.
    pub deadline: Duration,
    /// How long one replica may take before it is counted on no more; a quarter of the deadline unless said.
    pub attempt: Option<Duration>,
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
            choice: Arc::new(Sticky),
            room: None,
        }
    }
}
