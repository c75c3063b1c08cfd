//! Changes of stores, as this server gets them for its clients: from the process's control port, which joins those of all nodes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use fondaco_model::StoreName;

/// The changes that a client asks for.
#[derive(Debug, Clone)]
pub struct ChangesWanted {
    /// The store, which the client may read.
    pub store: StoreName,
    /// Where to begin.
    pub from: String,
    /// How many changes at most.
    pub count: usize,
    /// How long to wait for some.
    pub wait: Duration,
}

/// A change of one key; with an empty key the news that another version is current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedChange {
    /// The key.
    pub key: Vec<u8>,
    /// The value before, if that is kept; `None` in it if the key had none.
    pub before: Option<Option<Vec<u8>>>,
    /// The value since; `None` if the key was deleted.
    pub after: Option<Vec<u8>>,
    /// The version that has the value, or on top of which its event is.
    pub version: u64,
    /// The time of the event, in milliseconds since 1970.
    pub time_unix_ms: Option<u64>,
    /// Where to continue after it; empty if only a later change can be continued.
    pub position: String,
}

impl FollowedChange {
    /// How many bytes it takes, about.
    pub fn bytes(&self) -> usize {
        let values = self.before.iter().flatten().chain(&self.after);
        self.key.len() + values.map(Vec::len).sum::<usize>() + self.position.len()
    }
}

/// Reads changes of stores.
pub trait ChangeReader: Send + Sync {
    /// The next changes; empty if no change comes in time.
    ///
    /// # Errors
    /// The error to answer with, its code first.
    fn read(
        &self,
        wanted: ChangesWanted,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<FollowedChange>, String>> + Send + '_>>;
}

impl fmt::Debug for dyn ChangeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeReader")
    }
}
