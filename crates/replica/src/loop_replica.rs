//! This node's replica as one event loop asks it: what the loop asks in one turn is handed over together, and answered
//! together.
//!
//! To wake a thread costs more than to merge a record. Whoever hands each write over by itself wakes the thread that
//! commits for each, which then commits groups of one, and wakes the loop for each. So requests of all connections of a
//! loop, and of its coordinator, are gathered until the turn ends; then the loop commits each shard's part of them
//! itself, if nothing is to be waited for, or else the shard gets its part at once, and what comes of it comes back at
//! once. Reads that memory answers are answered where they are asked.
//!
//! The invariant: whatever was asked is answered once, on the loop or, where the disk is read, on another thread.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fondaco_client::quorum::{LocalReplica, OnReply, ReplicaReply, ReplicaRequest};
use fondaco_model::NodeId;
use tokio::sync::Notify;

use crate::answer::Answer;
use crate::commit::Job;
use crate::committer::commit_now;
use crate::direct::AT_ONCE_BYTES_MAX;
use crate::replicas::Replicas;
use crate::shared::Waiting;

/// How many writes are gathered for a shard before they are handed over without waiting for the turn to end.
const BATCH_MAX: usize = 256;
/// How many bytes they may bring before they are: so many, and a short write more, the loop still commits itself.
const BATCH_BYTES_MAX: usize = 96 * 1024;

/// The replica of the node, for one event loop. [`hand_over`](Self::hand_over) and [`tell`](Self::tell) must run on it.
pub struct LoopReplica {
    replicas: Arc<Replicas>,
    gathered: Mutex<Vec<Batch>>,
    /// Something was gathered.
    begun: Notify,
    ended: Arc<Ended>,
}

/// Writes that go to one shard, of one store: what waits for the disk in one store delays no other.
struct Batch {
    of: (usize, u16),
    /// Whether it need not wait for a disk.
    is_at_once: bool,
    jobs: Vec<Job>,
    /// How many bytes each of them brings, and all of them.
    bytes: Vec<usize>,
    bytes_of_all: usize,
    together: Arc<Together>,
}

/// Writes that were handed over together. When the last of them has ended, the loop is told of all.
pub(crate) struct Together {
    answered: Mutex<Vec<Answered>>,
    ended: Arc<Ended>,
}

/// Who is to be told, and what.
type Answered = (OnReply, ReplicaReply);

/// What shards hand back to a loop.
#[derive(Default)]
struct Ended {
    answered: Mutex<Vec<Answered>>,
    told: Notify,
}

impl LoopReplica {
    /// What an event loop asks of these replicas.
    pub fn new(replicas: Arc<Replicas>) -> Self {
        Self {
            replicas,
            gathered: Mutex::default(),
            begun: Notify::new(),
            ended: Arc::default(),
        }
    }

    /// Hands over what was gathered, each time that something was, for ever. Whoever is woken in a turn of the loop
    /// before this is has its requests handed over with those of others.
    pub async fn hand_over(self: Arc<Self>) {
        loop {
            self.begun.notified().await;
            let gathered = std::mem::take(&mut *lock(&self.gathered));
            gathered.into_iter().for_each(|batch| self.enqueue(batch));
        }
    }

    /// Tells those who asked what came of it, for ever.
    pub async fn tell(self: Arc<Self>) {
        loop {
            self.ended.told.notified().await;
            let answered = std::mem::take(&mut *lock(&self.ended.answered));
            answered.into_iter().for_each(|(answer, reply)| answer(reply));
        }
    }

    fn gather(&self, waiting: Waiting) {
        let Waiting {
            shard,
            bytes,
            store,
            deadline,
            task,
            answer,
        } = waiting;
        let mut gathered = lock(&self.gathered);
        let is_first = gathered.is_empty();
        let of = (shard, store.id);
        let at = gathered.iter().position(|batch| batch.of == of).unwrap_or_else(|| {
            gathered.push(Batch {
                of,
                is_at_once: store.writes_at_once(),
                jobs: Vec::new(),
                bytes: Vec::new(),
                bytes_of_all: 0,
                together: Arc::new(Together {
                    answered: Mutex::default(),
                    ended: Arc::clone(&self.ended),
                }),
            });
            gathered.len() - 1
        });
        let batch = &mut gathered[at];
        let job = Job {
            store: Some(store),
            deadline,
            task,
            answer: Answer::together(&batch.together, answer),
        };
        batch.jobs.push(job);
        batch.bytes.push(bytes);
        batch.bytes_of_all += bytes;
        let is_full = batch.jobs.len() >= BATCH_MAX || batch.bytes_of_all >= BATCH_BYTES_MAX;
        let full = is_full.then(|| gathered.remove(at));
        drop(gathered);
        match full {
            Some(batch) => self.enqueue(batch),
            None if is_first => self.begun.notify_one(),
            None => {}
        }
    }

    fn enqueue(&self, batch: Batch) {
        let Batch {
            of: (shard, _),
            is_at_once,
            mut jobs,
            bytes,
            bytes_of_all,
            ..
        } = batch;
        let shared = &self.replicas.shared;
        if is_at_once && bytes_of_all <= AT_ONCE_BYTES_MAX {
            commit_now(shared, shard, &mut jobs);
        }
        shared.enqueue_all(shard, jobs.into_iter().zip(bytes));
    }
}

impl LocalReplica for LoopReplica {
    fn node(&self) -> Option<NodeId> {
        self.replicas.node()
    }

    fn request(&self, request: ReplicaRequest, answer: OnReply) {
        let shared = &self.replicas.shared;
        shared.begin(request, answer, |waiting| self.gather(waiting));
    }
}

impl Together {
    /// One of them has ended.
    pub(crate) fn ended(&self, answer: OnReply, reply: ReplicaReply) {
        lock(&self.answered).push((answer, reply));
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        let own = self.answered.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_first = {
            let mut answered = lock(&self.ended.answered);
            let is_first = answered.is_empty();
            answered.append(own);
            is_first && !answered.is_empty()
        };
        // Waking another thread costs a system call.
        if is_first {
            self.ended.told.notify_one();
        }
    }
}

impl fmt::Debug for LoopReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopReplica").finish_non_exhaustive()
    }
}

/// Lists, whole whoever panicked.
fn lock<T>(list: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
