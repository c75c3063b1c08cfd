//! Telling a connection, from whichever thread, that work which it waits for is done. Each piece of work is told of once,
//! whatever becomes of it: dropping a [`Completer`] says that the work is lost.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use fondaco_protocol::replica::{Held, ReplicaError, ReplicaErrorCode, ReplicaReply};
use parking_lot::{Mutex, MutexGuard};

use super::super::operation::Answer;
use crate::server::buffers::{BufferBudget, Charge, FREE_BYTES};

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
    /// What a long answer is charged with.
    pub(super) charge: Option<Charge>,
}

/// What came of it.
pub(super) enum Finding {
    /// Of what was asked of a key.
    Key(Answer),
    /// Of what was asked of this node's own replica.
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

/// What a connection was told, by whichever threads, and has not taken note of.
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

    fn tell(&self, done: Done) {
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

/// Tells a connection that work is done: in any case, once.
pub(in crate::server) struct Completer {
    told: Arc<Completed>,
    /// What it is about, until it is told.
    untold: Option<(Place, Option<u64>)>,
}

impl Completer {
    pub(super) fn new(told: &Arc<Completed>, place: Place, key_hash: Option<u64>) -> Self {
        Self {
            told: Arc::clone(told),
            untold: Some((place, key_hash)),
        }
    }

    /// Says what came of a key.
    pub(in crate::server) fn answer(self, answer: Answer) {
        self.answer_charged(answer, None);
    }

    /// The same of an answer that is charged already, if it is.
    pub(super) fn answer_charged(mut self, answer: Answer, charge: Option<Charge>) {
        self.tell(Finding::Key(answer), charge);
    }

    /// Says what the replica has answered. Records that are long, and for which there is no room, are refused, so that many
    /// requests for them do not fill memory; but one answer at a time has room in any case.
    pub(in crate::server) fn reply(mut self, reply: ReplicaReply, budget: &BufferBudget) {
        let is_read = matches!(reply, ReplicaReply::Records(_));
        let finding = Finding::Replica(reply);
        let bytes = finding.bytes();
        if bytes <= LONG_BYTES {
            return self.tell(finding, None);
        }
        let (mut charge, bytes) = (budget.charge(), charged_bytes(bytes));
        if is_read && !charge.try_room_for(bytes) {
            drop(finding);
            let error = ReplicaError::new(ReplicaErrorCode::Overloaded, no_room(budget));
            return self.tell(Finding::Replica(ReplicaReply::Error(error)), None);
        }
        charge.set(bytes);
        self.tell(finding, Some(charge));
    }

    fn tell(&mut self, finding: Finding, charge: Option<Charge>) {
        if let Some((place, key_hash)) = self.untold.take() {
            self.told.tell(Done {
                place,
                key_hash,
                finding,
                charge,
            });
        }
    }
}

/// What an answer is charged with whose values have so many bytes: it is there until it is copied into the replies.
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
        self.tell(Finding::Lost, None);
    }
}
