//! The batcher of an event loop: passes all writes of one turn of the loop, from its connections and its coordinator,
//! to the commit threads together, and returns their outcomes together.
//!
//! Waking a thread costs more than merging a record. A loop that passed on each write by itself would wake the commit
//! thread for each; the thread would commit groups of one, and wake the loop for each. So writes are collected, per
//! shard and store, until the turn ends or there are enough of them. Reads from memory are answered at once.
//!
//! The invariant: each request and each write is answered once, on the loop. Only a read that waits for the disk is answered
//! on another thread.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fondaco_model::NodeId;
use fondaco_protocol::replica::{LocalReplica, OnReply, ReplicaReply, ReplicaRequest};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::replicas::Replicas;
use crate::shared::Waiting;
use crate::store::HeldStore;
use crate::writes::answer::Answer;
use crate::writes::commit::{Job, Task};
use crate::writes::direct::{DirectAnswer, DirectEnd, DirectPlace, DirectWrite, DirectWrites};

/// How many writes are enough to wake a thread before the turn ends. Few, so that they are still in the processor's
/// caches when they are committed.
const BATCH_ENOUGH: usize = 32;

/// The maximum number of writes in a batch.
const BATCH_MAX: usize = 256;

/// The maximum bytes of a batch, except for its last write.
const BATCH_BYTES_MAX: usize = 128 << 10;

/// The batcher of one event loop, with direct writes of the type `W`. [`hand_over`](Self::hand_over) and
/// [`tell`](Self::tell) must run on the loop.
pub struct WriteBatcher<W> {
    replicas: Arc<Replicas>,
    gathered: Mutex<Vec<Batch<W>>>,
    /// The first write of a batch has arrived.
    begun: Notify,
    ended: Arc<Ended<W>>,
}

/// Writes to one store on one shard: writes of one store that wait for the disk do not delay other stores.
struct Batch<W> {
    shard: usize,
    store: Arc<HeldStore>,
    /// Requests to the replica, each with its size in bytes.
    jobs: Vec<(Job, usize)>,
    direct: Direct<W>,
    /// The size of all of them, in bytes.
    bytes: usize,
    together: Arc<Together<W>>,
}

/// The direct writes of a batch: one job.
struct Direct<W> {
    places: Vec<DirectPlace>,
    writes: Vec<W>,
    bytes: usize,
    deadline: Option<Instant>,
}

/// The replies of a batch. Once the last write has ended, the loop gets them all.
struct Together<W> {
    done: Mutex<Done<W>>,
    ended: Arc<Ended<W>>,
}

/// Outcomes that shards return to a loop.
struct Ended<W> {
    done: Mutex<Done<W>>,
    filled: Notify,
}

struct Done<W> {
    requests: Vec<(OnReply, ReplicaReply)>,
    writes: Vec<(W, DirectEnd)>,
}

/// Direct writes that were passed to a shard.
struct HandedOver<W> {
    writes: Vec<W>,
    together: Arc<Together<W>>,
}

impl<W: DirectWrite> WriteBatcher<W> {
    /// A batcher for these replicas.
    pub fn new(replicas: Arc<Replicas>) -> Self {
        Self {
            replicas,
            gathered: Mutex::default(),
            begun: Notify::new(),
            ended: Arc::new(Ended {
                done: Mutex::default(),
                filled: Notify::new(),
            }),
        }
    }

    /// Makes a write that needs no coordinator, with its size in bytes. It is refused if it does not begin within the
    /// timeout.
    pub fn write(&self, place: DirectPlace, bytes: usize, timeout: Duration, write: W) {
        let (shard, store) = (place.shard, Arc::clone(&place.store));
        self.gather(shard, &store, bytes, |batch| {
            let direct = &mut batch.direct;
            if direct.writes.is_empty() {
                direct.deadline = self.replicas.shared.host.now().checked_add(timeout);
            }
            direct.bytes += bytes;
            direct.places.push(place);
            direct.writes.push(write);
        });
    }

    /// Passes on the collected writes whenever there are any, for ever. If a connection is woken in a turn of the loop
    /// before this is, its writes go into the same batch.
    pub async fn hand_over(self: Arc<Self>) {
        loop {
            self.begun.notified().await;
            self.hand_over_all();
        }
    }

    /// Passes on the collected writes if there are enough. Call it between the requests of two connections, so that
    /// those of one connection are answered together.
    pub fn hand_over_enough(&self) {
        if lock(&self.gathered).iter().any(|batch| batch.len() >= BATCH_ENOUGH) {
            self.hand_over_all();
        }
    }

    /// Answers requests, and reports the outcomes of direct writes, for ever.
    pub async fn tell(self: Arc<Self>, mut ended: impl FnMut(Vec<(W, DirectEnd)>)) {
        loop {
            self.ended.filled.notified().await;
            let Done { requests, writes } = std::mem::take(&mut *lock(&self.ended.done));
            requests.into_iter().for_each(|(answer, reply)| answer(reply));
            if !writes.is_empty() {
                ended(writes);
            }
        }
    }

    fn request(&self, waiting: Waiting) {
        let Waiting {
            shard,
            bytes,
            store,
            deadline,
            task,
            answer,
        } = waiting;
        self.gather(shard, &store, bytes, |batch| {
            let together = Arc::clone(&batch.together);
            let job = Job {
                store: Some(Arc::clone(&store)),
                deadline,
                task,
                answer: Answer::to(Box::new(move |reply| {
                    lock(&together.done).requests.push((answer, reply))
                })),
            };
            batch.jobs.push((job, bytes));
        });
    }

    /// Adds a write of this size to the batch of its shard, and passes the batch on if it is full.
    fn gather(&self, shard: usize, store: &Arc<HeldStore>, bytes: usize, put: impl FnOnce(&mut Batch<W>)) {
        let mut gathered = lock(&self.gathered);
        let is_first = gathered.is_empty();
        let is_of = |batch: &Batch<W>| batch.shard == shard && Arc::ptr_eq(&batch.store, store);
        let at = gathered.iter().position(is_of).unwrap_or_else(|| {
            gathered.push(Batch::new(shard, store, &self.ended));
            gathered.len() - 1
        });
        let batch = &mut gathered[at];
        put(batch);
        batch.bytes += bytes;
        let is_full = batch.len() >= BATCH_MAX || batch.bytes >= BATCH_BYTES_MAX;
        let full = is_full.then(|| gathered.swap_remove(at));
        drop(gathered);
        match full {
            Some(batch) => self.enqueue(batch),
            None if is_first => self.begun.notify_one(),
            None => {}
        }
    }

    fn hand_over_all(&self) {
        let gathered = std::mem::take(&mut *lock(&self.gathered));
        gathered.into_iter().for_each(|batch| self.enqueue(batch));
    }

    fn enqueue(&self, batch: Batch<W>) {
        let Batch {
            shard,
            store,
            mut jobs,
            direct,
            together,
            ..
        } = batch;
        if !direct.writes.is_empty() {
            let (count, writes) = (direct.writes.len(), direct.writes);
            let answer = DirectAnswer::new(count, Box::new(HandedOver { writes, together }));
            let job = Job {
                store: Some(store),
                deadline: direct.deadline,
                task: Task::Direct(direct.places),
                answer: Answer::direct(answer),
            };
            jobs.push((job, direct.bytes));
        }
        self.replicas.shared.enqueue_all(shard, jobs);
    }
}

impl<W: DirectWrite> LocalReplica for WriteBatcher<W> {
    fn node(&self) -> Option<NodeId> {
        self.replicas.node()
    }

    fn request(&self, request: ReplicaRequest, answer: OnReply) {
        let shared = &self.replicas.shared;
        shared.begin(request, answer, |waiting| self.request(waiting));
    }
}

impl<W> Batch<W> {
    fn new(shard: usize, store: &Arc<HeldStore>, ended: &Arc<Ended<W>>) -> Self {
        Self {
            shard,
            store: Arc::clone(store),
            jobs: Vec::new(),
            direct: Direct {
                places: Vec::new(),
                writes: Vec::new(),
                bytes: 0,
                deadline: None,
            },
            bytes: 0,
            together: Arc::new(Together {
                done: Mutex::default(),
                ended: Arc::clone(ended),
            }),
        }
    }

    fn len(&self) -> usize {
        self.jobs.len() + self.direct.writes.len()
    }
}

impl<W: DirectWrite> DirectWrites for HandedOver<W> {
    fn at(&mut self, at: usize) -> &mut dyn DirectWrite {
        &mut self.writes[at]
    }

    fn end(self: Box<Self>, ends: Vec<DirectEnd>) {
        let Self { writes, together } = *self;
        lock(&together.done).writes.extend(writes.into_iter().zip(ends));
    }
}

impl<W> Drop for Together<W> {
    fn drop(&mut self) {
        let own = self.done.get_mut();
        let is_first = {
            let mut done = lock(&self.ended.done);
            let is_first = done.is_empty();
            done.requests.append(&mut own.requests);
            done.writes.append(&mut own.writes);
            is_first && !done.is_empty()
        };
        // Waking another thread costs a system call.
        if is_first {
            self.ended.filled.notify_one();
        }
    }
}

impl<W> Done<W> {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.writes.is_empty()
    }
}

impl<W> Default for Done<W> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            writes: Vec::new(),
        }
    }
}

impl<W> fmt::Debug for WriteBatcher<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatcher").finish_non_exhaustive()
    }
}

/// The lists are consistent even after a panic.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock()
}
