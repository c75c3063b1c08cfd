//! How one request is to be carried out.

use std::sync::Arc;
use std::time::Duration;

use crate::read::{NodeChoice, Sticky, ValueRoom};

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
    pub room: Option<Arc<ValueRoom>>,
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
