//! Following the changes of a store through a control port, with retries while the cluster does not answer.

use std::time::Duration;

use fondaco_admin::{AdminError, Client, Endpoint};
use fondaco_api::ChangePage;
use fondaco_model::StoreName;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// How long a process is asked to wait for changes, in milliseconds.
const WAIT_MS: u64 = 10_000;

/// The pause before a request is repeated; it doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A program that follows a store.
pub struct StoreFollower {
    client: Client,
    store: StoreName,
    position: String,
    decode: bool,
    pause: Duration,
}

/// The next changes, or the reason for which the follower has to wait.
pub enum Followed {
    /// Some changes.
    Page(ChangePage),
    /// None, and the request may be repeated at once.
    Nothing(ChangePage),
    /// The cluster did not answer: repeat the request after a pause.
    Failed(AdminError, Duration),
}

impl StoreFollower {
    /// A follower that begins at `now`, `beginning`, `version:NUMBER`, `time:MILLISECONDS`, or a position. `decode` asks for values as JSON.
    ///
    /// # Errors
    /// The endpoint is invalid.
    pub fn new(endpoint: &Endpoint, store: StoreName, from: String, decode: bool) -> Result<Self, AdminError> {
        Ok(Self {
            client: endpoint.client()?,
            store,
            position: from,
            decode,
            pause: PAUSE_MIN,
        })
    }

    /// Where it continues.
    pub fn position(&self) -> &str {
        &self.position
    }

    /// Asks for at most this many changes; waits some seconds for them if `waits`.
    ///
    /// # Errors
    /// The store cannot be followed from there.
    pub fn next(&mut self, limit: usize, waits: bool) -> Result<Followed, AdminError> {
        let path = format!(
            "/v1/stores/{}/changes?from={}&limit={limit}&wait_ms={}&decode={}",
            self.store,
            utf8_percent_encode(&self.position, NON_ALPHANUMERIC),
            if waits { WAIT_MS } else { 0 },
            self.decode,
        );
        let page = match self.client.get::<ChangePage>(&path) {
            Ok(page) => page,
            Err(error) if is_passing(&error) => {
                let pause = self.pause;
                self.pause = (pause * 2).min(PAUSE_MAX);
                return Ok(Followed::Failed(error, pause));
            }
            Err(error) => return Err(error),
        };
        self.pause = PAUSE_MIN;
        self.position.clone_from(&page.position);
        Ok(match page.changes.is_empty() {
            true => Followed::Nothing(page),
            false => Followed::Page(page),
        })
    }
}

/// Whether the same request may succeed later.
fn is_passing(error: &AdminError) -> bool {
    match error {
        AdminError::Refused { code, .. } => {
            matches!(
                &**code,
                "unavailable" | "overloaded" | "request_timeout" | "old_routing"
            )
        }
        AdminError::Unreachable { .. } | AdminError::Broken { .. } => true,
        _ => false,
    }
}
