//! Telling a connection, from whichever thread, that work which it waits for is done. Each piece of work is told of once,
//! whatever becomes of it: who drops a [`Teller`] says that it is lost.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use fondaco_client::quorum::{Held, ReplicaReply};

use super::operation::Answer;

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
}

/// What came of it.
pub(super) enum Finding {
    /// Of what was asked of a key.
    Key(Answer),
    /// Of what was asked of this node's own replica.
    Replica(ReplicaReply),
    /// Nobody knows: its task ended before.
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
pub(super) struct Told(Mutex<Tidings>);

#[derive(Default)]
struct Tidings {
    done: Vec<Done>,
    /// The connection, while it waits for something to be done.
    waiting: Option<Waker>,
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, Tidings> {
        // A list, whole whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, done: Done) {
        let waiting = {
            let mut tidings = self.lock();
            tidings.done.push(done);
            tidings.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// Waits until there is something to take note of.
    pub(super) async fn wait(&self) {
        poll_fn(|context| {
            let mut tidings = self.lock();
            if !tidings.done.is_empty() {
                return Poll::Ready(());
            }
            tidings.waiting = Some(context.waker().clone());
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
pub(in crate::server) struct Teller {
    told: Arc<Told>,
    /// What it is about, until it is told.
    untold: Option<(Place, Option<u64>)>,
}

impl Teller {
    pub(super) fn new(told: &Arc<Told>, place: Place, key_hash: Option<u64>) -> Self {
        Self {
            told: Arc::clone(told),
            untold: Some((place, key_hash)),
        }
    }

    /// Says what came of a key.
    pub(in crate::server) fn answer(mut self, answer: Answer) {
        self.tell(Finding::Key(answer));
    }

    /// Says what the replica has answered.
    pub(in crate::server) fn reply(mut self, reply: ReplicaReply) {
        self.tell(Finding::Replica(reply));
    }

    fn tell(&mut self, finding: Finding) {
        if let Some((place, key_hash)) = self.untold.take() {
            self.told.tell(Done {
                place,
                key_hash,
                finding,
            });
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tell(Finding::Lost);
    }
}
