//! Requests that are not carried out: refused, longer than allowed, or no requests at all.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_catalog::{Membership, Setting};
use fondaco_metrics::Counter;
use fondaco_resp::command::is_http;
use fondaco_resp::{Limits, ProtocolError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::requests::Taking;
use super::{Connection, Turn};
use crate::server::event_loop::LoopContext;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Answers the next request, of this many bytes, with an error, when all before it is answered.
    #[cold]
    pub(super) fn refuse(&mut self, bytes: usize, refusal: &str, taking: &Taking<'_>) -> Option<Turn> {
        if let Some(turn) = self.answer_before(taking) {
            return Some(turn);
        }
        let rest = &self.input[self.consumed..];
        let name = self.arguments.get(0, rest).unwrap_or_default();
        if is_http(name) {
            // A browser that was led here by a web page: the rest is not trusted.
            self.context.metrics.add(Counter::ProtocolErrors, 1);
            tracing::warn!(client = self.client.address, "dropped a client that speaks HTTP");
            self.session.closing = true;
            return None;
        }
        let mut refusal = Cow::Borrowed(refusal);
        if name.eq_ignore_ascii_case(b"exec") {
            // It ends the transaction all the same: a client takes the following requests as outside of it.
            self.session.transaction = None;
            let reason = refusal.strip_prefix("ERR ").unwrap_or(&refusal);
            refusal = Cow::Owned(format!("EXECABORT Transaction discarded because of: {reason}"));
        } else if let Some(transaction) = &mut self.session.transaction {
            transaction.refuse();
        }
        self.consumed += bytes;
        self.session.asking = false;
        note_moved(&self.context, &refusal);
        let start = self.output.len();
        self.reply().error(&refusal);
        self.mute_from(start);
        None
    }

    /// Whether the process is one of several, and this client did not wait in vain a moment ago: requests for stores that
    /// do not exist must not become slow.
    #[cold]
    pub(super) fn may_await_stores(&self) -> bool {
        let catalog = self.context.shared.catalog.load();
        let has_others = |membership: &Arc<Membership>| membership.topology().nodes.len() > 1;
        let waited = self
            .waited_in_vain
            .is_some_and(|at| at.elapsed() < STORES_WAIT_INTERVAL);
        !waited && catalog.membership().is_some_and(has_others)
    }

    /// Waits for a newer list of stores: another process may have answered that the store of the next request exists, and
    /// this one hears of it a moment later.
    #[cold]
    pub(super) async fn await_stores(&mut self) {
        let context = Rc::clone(&self.context);
        let mut topology = context.shared.catalog.topology();
        let is_missing = || self.names_no_store(&context.shared.catalog.load());
        let was_missing = is_missing();
        let known = async { while topology.changed().await.is_ok() && is_missing() {} };
        let _ = timeout(STORES_WAIT_MAX, known).await;
        self.waited_in_vain = (!was_missing || is_missing()).then(Instant::now);
    }

    /// Skips a request with an argument over the limit as far as it has come, and answers it at its end. Returns whether it has ended.
    pub(super) fn skip_request(&mut self, limits: &Limits) -> bool {
        let Some(skip) = &mut self.skip else { return true };
        match skip.take(&self.input[self.consumed..]) {
            Ok(bytes) => self.consumed += bytes,
            Err(error) => {
                self.skip = None;
                self.end_after(error);
                return true;
            }
        }
        if !skip.is_done() {
            self.needed = 0;
            return false;
        }
        let (length, max) = (skip.length, limits.bulk_bytes_max);
        self.skip = None;
        if let Some(transaction) = &mut self.session.transaction {
            transaction.refuse();
        }
        let start = self.output.len();
        self.reply().error(&format!(
            "ERR an argument has {length} bytes, and may have {max}: the setting bulk-bytes-max says so"
        ));
        self.mute_from(start);
        true
    }

    /// Has the connection end after this error, as no further request can be found.
    pub(super) fn end_after(&mut self, error: ProtocolError) {
        self.context.metrics.add(Counter::ProtocolErrors, 1);
        self.reply().error(&format!("ERR {error}"));
        self.session.closing = true;
    }

    /// The limits of requests, tighter before the client has authenticated.
    pub(super) fn limits(&self) -> Limits {
        let settings = &self.context.shared.settings;
        let request_bytes_max = request_bytes_max(self.context.shared.config.buffers.bytes_max());
        let limits = Limits {
            // Longer ones are skipped: a request that has room for none of its arguments would end the connection.
            bulk_bytes_max: (settings.get(Setting::BulkBytesMax) as usize).min(request_bytes_max - BESIDES_BULK_BYTES),
            arguments_max: settings.get(Setting::ArgumentsMax) as usize,
            request_bytes_max,
            ..Limits::default()
        };
        if self.session.is_authenticated() {
            limits
        } else {
            limits.unauthenticated()
        }
    }
}

/// How long a request of a store that is not known waits for a newer list of stores: other processes hear of a new one
/// within this time.
const STORES_WAIT_MAX: Duration = Duration::from_millis(250);

/// How often a client's requests wait so.
const STORES_WAIT_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a request is refused because its store is not known.
pub(super) fn is_for_no_store(refusal: &str) -> bool {
    refusal.starts_with("NOSTORE ")
}

/// Counts a refusal that sends the client to another node.
pub(super) fn note_moved(context: &LoopContext, refusal: &str) {
    if refusal.starts_with("MOVED ") {
        context.metrics.add(Counter::Moved, 1);
    }
}

/// The longest request, in bytes, whatever memory there is: what one client may make a node buffer.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The bytes that a request may have besides its longest argument: for a key, and for the protocol.
const BESIDES_BULK_BYTES: usize = 128 * 1024;

/// The longest request where all connections have this many bytes: its buffer may be twice as long.
pub(super) fn request_bytes_max(buffer_bytes_max: u64) -> usize {
    let bytes = usize::try_from(buffer_bytes_max / 2).unwrap_or(REQUEST_BYTES_MAX);
    bytes.clamp(2 * BESIDES_BULK_BYTES, REQUEST_BYTES_MAX)
}
