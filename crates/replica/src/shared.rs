//! The state that all threads of the replicas share.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use fondaco_engine::{Engine, Table};
use fondaco_model::versioned::{Change, EngineKind, Update};
use fondaco_model::{NodeId, PartitionCount};
use fondaco_protocol::replica::{
    KeyRecord, Known, KnownKey, OnReply, RecordPart, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply,
    ReplicaRequest,
};
use parking_lot::Mutex;

use crate::disk_space::DiskSpace;
use crate::error::ReplicasError;
use crate::hints::book::HintBook;
use crate::host::Host;
use crate::membership::dropped_stores::Dropping;
use crate::membership::incarnation::Incarnation;
use crate::metrics::{ReplicaCounter, ReplicaMetrics};
use crate::options::{ReplicaOptions, ReplicatedStore};
use crate::pace::Pace;
use crate::partition::Partition;
use crate::peers::Peers;
use crate::reads::{Readers, Wanted};
use crate::store::{HeldStore, Holding, Place};
use crate::table_key::partition_at;
use crate::worker::Signal;
use crate::writes::answer::{Answer, Parts};
use crate::writes::commit::{Job, Put, Task};
use crate::writes::committer::{ShardDots, Work};
use crate::writes::queue::Queue;

/// The size of a queued job without its data, in bytes.
const JOB_BYTES: usize = 256;

/// A write of a request, or a part of one, that waits for its shard.
pub(crate) struct Waiting {
    pub(crate) shard: usize,
    /// The size of its data, in bytes.
    pub(crate) bytes: usize,
    pub(crate) store: Arc<HeldStore>,
    /// It must not begin after this time.
    pub(crate) deadline: Option<Instant>,
    pub(crate) task: Task,
    pub(crate) answer: OnReply,
}

/// The part of a request for one shard.
struct Portion {
    shard: usize,
    bytes: usize,
    records: Vec<(Place, Bytes)>,
}

/// The state that all threads share.
pub(crate) struct Shared {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) options: ReplicaOptions,
    /// The disk engine is the first.
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) kinds: Vec<EngineKind>,
    pub(crate) hints: Arc<dyn Table>,
    pub(crate) hint_book: HintBook,
    pub(crate) holding: ArcSwap<Holding>,
    /// How many partitions there were when the process heard of the cluster.
    pub(crate) first_count: OnceLock<PartitionCount>,
    /// Held while the stores are changed, or while all partitions of an engine fall behind.
    pub(crate) changing: Mutex<()>,
    pub(crate) incarnation: Incarnation,
    pub(crate) metrics: ReplicaMetrics,
    pub(crate) disk_space: DiskSpace,
    pub(crate) shards: Vec<Queue<Work>>,
    /// One for each shard.
    pub(crate) dots: Vec<ShardDots>,
    pub(crate) readers: Readers,
    pub(crate) peers: Arc<dyn Peers>,
    /// Nodes that came back, and were not compared with since.
    pub(crate) returned: Mutex<BTreeSet<NodeId>>,
    pub(crate) handoff: Arc<Signal>,
    pub(crate) exchanging: Arc<Signal>,
    pub(crate) moving: Arc<Signal>,
    /// The pace of all exchanges.
    pub(crate) exchange_pace: Arc<Mutex<Pace>>,
    /// See [`Self::move_rate`]; 0 is no limit.
    pub(crate) move_bytes_per_second: AtomicU64,
    pub(crate) growing: Arc<Signal>,
    pub(crate) dropping: Dropping,
    /// How many partitions are followed.
    pub(crate) change_logs: Arc<AtomicUsize>,
    /// The id of the next log of changes. It begins at random: logs of this process have similar ids, so that positions are short.
    pub(crate) change_log_id: AtomicU64,
    pub(crate) started: Instant,
}

impl Shared {
    /// Milliseconds since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        (self.host.now() - self.started).as_millis() as u64
    }

    /// How many bytes a second this node may receive by moves; `None` for no limit.
    pub(crate) fn move_rate(&self) -> Option<u64> {
        Some(self.move_bytes_per_second.load(Relaxed)).filter(|&rate| rate > 0)
    }

    /// The index of a store's engine.
    pub(crate) fn engine_at(&self, store: &ReplicatedStore) -> Result<usize, ReplicasError> {
        let wanted = store.settings.engine;
        let found = self.kinds.iter().position(|kind| *kind == wanted);
        found.ok_or_else(|| ReplicasError::NoEngine {
            store: store.name.to_string(),
            engine: wanted.to_string(),
        })
    }

    /// Whether more may be written to the disk than is there now.
    pub(crate) fn check_space(&self) -> Result<(), String> {
        let engines = &self.engines;
        self.disk_space
            .check(|| engines.iter().map(|engine| engine.pending_disk_bytes()).sum())
    }

    /// There is a hint for a node.
    pub(crate) fn hinted(&self, node: NodeId, written_unix_ms: u64) {
        if self.hint_book.add(node, written_unix_ms) {
            self.handoff.wake();
        }
    }

    /// Carries out a request. Returns at once; `answer` is called on the thread that has the answer.
    pub(crate) fn request(self: &Arc<Self>, request: ReplicaRequest, answer: OnReply) {
        self.begin(request, answer, |waiting| {
            let (store, answer) = (Some(&waiting.store), Answer::to(waiting.answer));
            self.enqueue(
                waiting.shard,
                waiting.bytes,
                store,
                waiting.deadline,
                waiting.task,
                answer,
            );
        });
    }

    /// Carries out a request, except for the writes that have to wait for their shard: those are passed to `queue`.
    pub(crate) fn begin(self: &Arc<Self>, request: ReplicaRequest, answer: OnReply, mut queue: impl FnMut(Waiting)) {
        let holding = self.holding.load();
        let store = match holding.store(&request) {
            Ok(store) => store,
            Err(error) => return answer(ReplicaReply::Error(error)),
        };
        let deadline = self.host.now().checked_add(Duration::from_millis(request.timeout_ms));
        let mut wait = |shard, bytes, task, answer| {
            queue(Waiting {
                shard,
                bytes,
                store: Arc::clone(store),
                deadline,
                task,
                answer,
            });
        };
        let (command, epoch) = (request.operation.command(), request.epoch);
        let counted = |error: &ReplicaError| self.metrics.refused(error);
        let place_of = |key: &Bytes| holding.place(store, key, command, epoch).inspect_err(counted);
        let admit = |partitions, partition| {
            let admitted = holding.admit_count(partitions);
            let admitted = admitted.and_then(|()| holding.admit(partition, command, epoch));
            admitted.inspect_err(counted)
        };
        match request.operation {
            ReplicaOperation::Get { part, keys } => {
                let keys = keys.iter().map(|key| (key, Wanted::Part(part)));
                crate::reads::get(self, place_of, store, keys, deadline, answer);
            }
            ReplicaOperation::GetOther { keys } => {
                let keys = keys.iter().map(|KnownKey { key, known }| match known {
                    Known::Nothing => (key, Wanted::Part(RecordPart::Full)),
                    Known::Digest(digest) => (key, Wanted::OtherThan(*digest)),
                    Known::Awaited => (key, Wanted::Digest),
                });
                crate::reads::get(self, place_of, store, keys, deadline, answer);
            }
            ReplicaOperation::Put {
                over,
                key,
                context,
                update,
                is_charged: _,
            } => match place_of(&key) {
                Ok(place) => {
                    let bytes = key.len() + value_bytes(&update);
                    let shard = self.shard_at(place.position);
                    let put = Put {
                        place,
                        over,
                        context,
                        update,
                    };
                    wait(shard, bytes, Task::Put(Box::new(put)), answer);
                }
                Err(error) => answer(ReplicaReply::Error(error)),
            },
            ReplicaOperation::Merge { records } => {
                self.split(records, place_of, answer, |portion, answer| {
                    let task = Task::Merge {
                        records: portion.records,
                        is_counted: epoch.is_some(),
                    };
                    wait(portion.shard, portion.bytes, task, answer);
                });
            }
            ReplicaOperation::Hint { target, records } => {
                let is_own = holding.cluster.as_ref().is_some_and(|cluster| cluster.node == target);
                let place = |key: &Bytes| match is_own {
                    true => place_of(key),
                    false => holding.place_anywhere(store, key),
                };
                self.split(records, place, answer, |portion, answer| {
                    let task = match is_own {
                        true => Task::Merge {
                            records: portion.records,
                            is_counted: false,
                        },
                        false => Task::Hint(target, portion.records),
                    };
                    wait(portion.shard, portion.bytes, task, answer);
                });
            }
            ReplicaOperation::Tree {
                partitions,
                partition,
                depth,
                nodes,
            } => match admit(partitions, partition) {
                Ok(()) => crate::anti_entropy::serving::tree(self, store, partition, depth, nodes, answer),
                Err(error) => answer(ReplicaReply::Error(error)),
            },
            ReplicaOperation::Sync {
                partitions,
                partition,
                depth,
                leaves,
            } => match admit(partitions, partition) {
                Ok(()) => crate::anti_entropy::serving::sync(self, store, partition, depth, leaves, answer),
                Err(error) => answer(ReplicaReply::Error(error)),
            },
            ReplicaOperation::OldestHint => answer(ReplicaReply::OldestHint {
                now_unix_ms: self.host.unix_ms(),
                oldest_unix_ms: self.hint_book.oldest_unix_ms(),
            }),
        }
    }

    /// Divides records among the shards that they belong to; each part is answered separately.
    fn split(
        &self,
        records: Vec<KeyRecord>,
        place: impl Fn(&Bytes) -> Result<Place, ReplicaError>,
        answer: OnReply,
        mut wait: impl FnMut(Portion, OnReply),
    ) {
        let mut portions: Vec<Portion> = Vec::new();
        for pair in records {
            let place = match place(&pair.key) {
                Ok(place) => place,
                Err(error) => return answer(ReplicaReply::Error(error)),
            };
            let shard = self.shard_at(place.position);
            let at = portions.iter().position(|portion| portion.shard == shard);
            let at = at.unwrap_or_else(|| {
                portions.push(Portion {
                    shard,
                    bytes: 0,
                    records: Vec::new(),
                });
                portions.len() - 1
            });
            portions[at].bytes += pair.key.len() + pair.record.len();
            portions[at].records.push((place, pair.record));
        }
        match portions.len() {
            0 => answer(ReplicaReply::Done),
            // The usual case: coordinators write one key.
            1 => portions
                .into_iter()
                .zip([answer])
                .for_each(|(portion, answer)| wait(portion, answer)),
            count => {
                let parts = Parts::new(count, answer);
                portions.into_iter().for_each(|portion| wait(portion, parts.part()));
            }
        }
    }

    /// Queues a job for its shard, or refuses it if the queue is full.
    pub(crate) fn enqueue(
        &self,
        shard: usize,
        bytes: usize,
        store: Option<&Arc<HeldStore>>,
        deadline: Option<Instant>,
        task: Task,
        answer: Answer,
    ) {
        let job = Job {
            store: store.map(Arc::clone),
            deadline,
            task,
            answer,
        };
        if let Err(Work::Job(job)) = self.shards[shard].push(Work::Job(Box::new(job)), bytes + JOB_BYTES) {
            self.refuse(shard, *job);
        }
    }

    /// Queues jobs for a shard, in order, and refuses those that do not fit. Each comes with its size in bytes.
    pub(crate) fn enqueue_all(&self, shard: usize, jobs: impl IntoIterator<Item = (Job, usize)>) {
        let jobs = jobs.into_iter();
        let items = jobs.map(|(job, bytes)| (Work::Job(Box::new(job)), bytes + JOB_BYTES));
        for refused in self.shards[shard].push_all(items) {
            if let Work::Job(job) = refused {
                self.refuse(shard, *job);
            }
        }
    }

    /// Refuses a job because the queue is full.
    fn refuse(&self, shard: usize, job: Job) {
        self.metrics.add(ReplicaCounter::Overloads, 1);
        job.answer.give(ReplicaReply::Error(overloaded(format!(
            "{} writes are queued for this shard of the node: send fewer at a time, or add nodes",
            self.shards[shard].len()
        ))));
    }

    /// Runs an action between two groups of a shard; not at all if the shard has ended.
    pub(crate) fn between(&self, shard: usize, action: impl FnOnce() + Send + 'static) {
        // The waiting task sees that it was dropped.
        drop(self.shards[shard].push_always(Work::Between(Box::new(action)), 0));
    }

    /// The shard of a partition.
    pub(crate) fn shard_of(&self, partition: &Partition) -> usize {
        let (count, id) = (self.first_count(), partition.id());
        count.covering(id, partition.count()).get() as usize % self.shards.len()
    }

    /// The shard of the partition of a position.
    pub(crate) fn shard_at(&self, position: u64) -> usize {
        partition_at(self.first_count(), position).get() as usize % self.shards.len()
    }

    /// How many partitions there were when the process heard of the cluster: partitions that are split since stay in their shard.
    fn first_count(&self) -> PartitionCount {
        match self.first_count.get() {
            Some(count) => *count,
            None => PartitionCount::ONE,
        }
    }

    /// Sends a request to a node, which may be this one. Returns at once.
    pub(crate) fn ask(self: &Arc<Self>, node: NodeId, request: ReplicaRequest, answer: OnReply) {
        let is_own = self
            .holding
            .load()
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.node == node);
        match is_own {
            true => self.request(request, answer),
            false => self.peers.ask(node, request, answer),
        }
    }

    /// A background request about a store. It carries no epoch of a routing table, since no quorum counts its reply.
    pub(crate) fn background(&self, store: &HeldStore, operation: ReplicaOperation) -> ReplicaRequest {
        ReplicaRequest {
            store_id: store.id,
            store: store.name.clone(),
            timeout_ms: self.options.peer_timeout.as_millis() as u64,
            epoch: None,
            operation,
        }
    }

    /// Makes the background compare partitions with a node soon, as with one that came back.
    pub(crate) fn compare_with(&self, node: NodeId) {
        self.returned.lock().insert(node);
        self.exchanging.wake();
    }

    /// Takes the nodes that came back since the last call.
    pub(crate) fn take_returned(&self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.returned.lock())
    }
}

fn value_bytes(update: &Update) -> usize {
    match &update.change {
        Change::Put(value) | Change::PutFields { value, .. } => value.len(),
        Change::Delete | Change::Add(_) | Change::SetCounter { .. } => 0,
    }
}

/// The error for too much at once.
pub(crate) fn overloaded(message: String) -> ReplicaError {
    ReplicaError::new(ReplicaErrorCode::Overloaded, message)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
