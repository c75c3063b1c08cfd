//! Completed work, reported to its connection from any thread. Each piece of work is reported once, however it ends:
//! dropping a [`Completer`] reports that the work is lost.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use fondaco_protocol::replica::{Held, ReplicaError, ReplicaErrorCode, ReplicaReply};
use parking_lot::{Mutex, MutexGuard};

use crate::server::buffers::{BufferBudget, Charge, FREE_BYTES};
use crate::server::commands::operation::Answer;

/// Answers that are longer are charged to the [budget](BufferBudget) from when they are there until they are written.
pub(super) const LONG_BYTES: usize = 64 * 1024;

/// Where an answer belongs: a request, and a key of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u64,
    pub(super) key: usize,
}

/// Work that is done.
pub(super) struct Done {
    pub(super) place: Place,
    /// The hash of the key that may be worked on further.
    pub(super) key_hash: Option<u64>,
    pub(super) finding: Finding,
    /// The memory that a long answer is charged with.
    pub(super) charge: Option<Charge>,
}

/// The outcome of work.
pub(super) enum Finding {
    /// The answer for a key.
    Key(Answer),
    /// The reply of this node's own replica.
    Replica(ReplicaReply),
    /// Not known: its task ended before.
    Lost,
}

impl Finding {
    /// How long the values in it are.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Key(answer) => answer.bytes(),
            Self::Replica(ReplicaReply::Records(records)) => records.iter().flatten().map(Held::told_bytes).sum(),
            Self::Replica(ReplicaReply::Written(record)) => record.len(),
            Self::Replica(_) | Self::Lost => 0,
        }
    }
}

/// Work that threads have completed, and that the connection has not taken note of.
#[derive(Default)]
pub(super) struct Completed(Mutex<Completions>);

#[derive(Default)]
struct Completions {
    done: Vec<Done>,
    /// The connection, while it waits for something to be done.
    waiting: Option<Waker>,
}

impl Completed {
    fn lock(&self) -> MutexGuard<'_, Completions> {
        // A list, whole whichever thread panicked.
        self.0.lock()
    }

    fn report(&self, done: Done) {
        let waiting = {
            let mut completions = self.lock();
            completions.done.push(done);
            completions.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Waits until there is something to take note of.
    pub(super) async fn wait(&self) {
        poll_fn(|context| {
            let mut completions = self.lock();
            if !completions.done.is_empty() {
                return Poll::Ready(());
            }
            completions.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Exchanges what there is to take note of for an empty list.
    pub(super) fn swap(&self, done: &mut Vec<Done>) {
        std::mem::swap(&mut self.lock().done, done);
    }
}

/// Reports to a connection that work is done: in any case, once.
pub(in crate::server) struct Completer {
    completed: Arc<Completed>,
    /// The place of the work, and the hash of its key, until it is reported.
    pending: Option<(Place, Option<u64>)>,
}

impl Completer {
    pub(super) fn new(completed: &Arc<Completed>, place: Place, key_hash: Option<u64>) -> Self {
        Self {
            completed: Arc::clone(completed),
            pending: Some((place, key_hash)),
        }
    }

    /// Reports the answer for a key.
    pub(in crate::server) fn answer(self, answer: Answer) {
        self.answer_charged(answer, None);
    }

    /// The same of an answer that is charged already, if it is long.
    pub(super) fn answer_charged(mut self, answer: Answer, charge: Option<Charge>) {
        self.report(Finding::Key(answer), charge);
    }

    /// Reports the answer of the replica. Records that are long, and for which there is no room, are refused, so that many
    /// requests for them do not fill memory; but one answer at a time has room in any case.
    pub(in crate::server) fn reply(mut self, reply: ReplicaReply, budget: &BufferBudget) {
        let is_read = matches!(reply, ReplicaReply::Records(_));
        let finding = Finding::Replica(reply);
        let bytes = finding.bytes();
        if bytes <= LONG_BYTES {
            return self.report(finding, None);
        }
        let (mut charge, bytes) = (budget.charge(), charged_bytes(bytes));
        if is_read && !charge.try_room_for(bytes) {
            drop(finding);
            let error = ReplicaError::new(ReplicaErrorCode::Overloaded, no_room(budget));
            return self.report(Finding::Replica(ReplicaReply::Error(error)), None);
        }
        charge.set(bytes);
        self.report(finding, Some(charge));
    }

    fn report(&mut self, finding: Finding, charge: Option<Charge>) {
        if let Some((place, key_hash)) = self.pending.take() {
            self.completed.report(Done {
                place,
                key_hash,
                finding,
                charge,
            });
        }
    }
}

/// The bytes that an answer with values of this length is charged with: it is held until it is copied into the replies.
pub(super) fn charged_bytes(bytes: usize) -> u64 {
    FREE_BYTES + 2 * bytes as u64
}

/// Why there is no room for a long answer.
pub(super) fn no_room(budget: &BufferBudget) -> String {
    format!(
        "{} bytes of long requests and replies are held, and {} may be: read fewer long values at a time, or give the process \
         more memory",
        budget.charged_bytes(),
        budget.bytes_max()
    )
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.report(Finding::Lost, None);
    }
}
