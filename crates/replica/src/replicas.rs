//! The public face of a node's replicas: cluster state, requests, status and shutdown.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use arc_swap::{ArcSwap, Guard};
use fondaco_engine::KeyMemory;
use fondaco_model::versioned::HashTree;
use fondaco_model::{NodeId, PartitionCount, PartitionSet};
use fondaco_protocol::replica::{LocalReplica, OnReply, ReplicaReply, ReplicaRequest};
use parking_lot::{Mutex, MutexGuard};

use crate::anti_entropy::{reconciling, tombstone_collection, tree_builder};
use crate::background::Background;
use crate::disk_space::DiskSpace;
use crate::error::ReplicasError;
use crate::hints::book::HintBook;
use crate::hints::handoff;
use crate::host::{Host, LocalHost};
use crate::membership::dropped_stores::Dropping;
use crate::membership::incarnation::{Incarnation, Opening};
use crate::membership::lost_writes::Scope;
use crate::membership::{dropped_stores, storage_rollback};
use crate::metrics::{ReplicaCounter, ReplicaMetrics};
use crate::options::{Engines, ReplicaOptions};
use crate::pace::Pace;
use crate::peers::Peers;
use crate::reads::Readers;
use crate::shared::Shared;
use crate::store::Holding;
use crate::worker::{Signal, Worker};
use crate::writes::committer::{Committers, ShardDots};
use crate::writes::queue::Queue;

/// The table of hints. Tables of earlier layouts have other names, and are not read.
const HINTS: &str = "hints-3";

/// How many requests may wait for reads from the disk.
const READS_WAITING_MAX: usize = 4096;

/// The replicas of a node. Event loops, the agent and the control port share it. Dropping it shuts it down cleanly.
#[derive(Debug)]
pub struct Replicas {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Option<Threads>>,
}

/// The threads, in the order of shutdown.
#[derive(Debug)]
struct Threads {
    background: Vec<Worker>,
    readers: Vec<JoinHandle<()>>,
    committers: Committers,
}

/// The status of a store on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// How many partitions there are, as far as this node knows.
    pub partitions: PartitionCount,
    /// The partitions that are held, now or under the plan in progress.
    pub held: PartitionSet,
    /// Those that have everything that the owners had when they were assigned to this node.
    pub synchronised: PartitionSet,
    /// Partitions that are no longer held, and not deleted yet.
    pub surplus: usize,
    /// How many keys there are, including deleted ones, in partitions whose hash trees are built.
    pub keys: u64,
    /// How many partitions that are.
    pub counted: usize,
    /// How many keys had a time to live in the last sweep.
    pub expiring: u64,
    /// How many partitions have no hash tree yet, or get a new one because it became too small.
    pub trees_missing: usize,
}

impl Replicas {
    /// Opens the data in `dir`, and starts the threads. It holds no partitions before it receives the cluster state.
    ///
    /// # Errors
    /// A directory or an engine that cannot be used, or threads that cannot be started.
    pub fn open(
        dir: &Path,
        engines: &Engines,
        peers: Arc<dyn Peers>,
        options: ReplicaOptions,
    ) -> Result<Self, ReplicasError> {
        fondaco_durable::create_directory(dir).map_err(ReplicasError::io("create", dir))?;
        let shared = Shared::open(Arc::new(LocalHost::new(dir)), engines, peers, options, false)?;
        let committers = Committers::start(&shared)?;
        let readers = shared.readers.start(shared.options.readers.max(1))?;
        let worker = |(name, signal, work): (&'static str, Arc<Signal>, Chore)| {
            let (theirs, counting, their_signal) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&signal));
            let panicked = move || counting.metrics.add(ReplicaCounter::Panics, 1);
            Worker::start(name, signal, move || work(&theirs, &their_signal), panicked)
        };
        let background = chores(&shared).into_iter().map(worker).collect::<Result<_, _>>()?;
        let threads = Threads {
            background,
            readers,
            committers,
        };
        Ok(Self {
            shared,
            threads: Mutex::new(Some(threads)),
        })
    }

    /// The same without threads: the driver commits, reads and runs the chores.
    pub(crate) fn without_threads(
        host: Arc<dyn Host>,
        engines: &Engines,
        peers: Arc<dyn Peers>,
        options: ReplicaOptions,
    ) -> Result<Self, ReplicasError> {
        Ok(Self {
            shared: Shared::open(host, engines, peers, options, true)?,
            threads: Mutex::new(None),
        })
    }

    /// Carries out a request of a coordinator or another replica. It never blocks; `answer` is called once, now or
    /// later, on the thread that has the answer, and must not block either.
    pub fn request(&self, request: ReplicaRequest, answer: impl FnOnce(ReplicaReply) + Send + 'static) {
        self.shared.request(request, Box::new(answer));
    }

    /// The status of a store on this node; `None` if the store is unknown.
    pub fn status(&self, store: u16) -> Option<ReplicaStatus> {
        let holding = self.shared.holding.load();
        let store = holding.stores.get(&store)?;
        let mut status = ReplicaStatus {
            partitions: holding.count(),
            held: PartitionSet::EMPTY,
            synchronised: PartitionSet::EMPTY,
            surplus: store.surplus.iter().filter(|partition| !partition.is_cleared()).count(),
            keys: 0,
            counted: 0,
            expiring: 0,
            trees_missing: 0,
        };
        for partition in store.partitions.values() {
            status.held.insert(partition.id());
            if holding.may_switch(store, partition) {
                status.synchronised.insert(partition.id());
            }
            match partition.with_tree(HashTree::keys) {
                Some(keys) => {
                    status.keys += keys;
                    status.counted += 1;
                }
                None => status.trees_missing += usize::from(store.is_compared()),
            }
            status.trees_missing += usize::from(partition.has_crowded_tree());
            status.expiring += partition.expiring();
        }
        if !store.is_compared() {
            status.keys = store.table.approximate_len();
            status.counted = status.held.len();
        }
        Some(status)
    }

    /// The time of the oldest record that waits as a hint, or an earlier time, in milliseconds since 1970; `None` if
    /// there are no hints.
    pub fn oldest_hint_unix_ms(&self) -> Option<u64> {
        self.shared.hint_book.oldest_unix_ms()
    }

    /// How many partitions lost acknowledged writes here that are not restored yet.
    pub fn partitions_behind(&self) -> usize {
        let holding = self.shared.holding.load();
        let partitions = holding.stores.values().flat_map(|store| store.partitions.values());
        partitions.filter(|partition| partition.is_behind()).count()
    }

    /// How many records were found damaged here and are not repaired yet; a lower bound if there are many.
    pub fn records_damaged(&self) -> usize {
        let holding = self.shared.holding.load();
        let partitions = holding.stores.values().flat_map(|store| store.partitions.values());
        partitions.map(|partition| partition.damaged()).sum()
    }

    /// Describes the stores with damaged records that are not repaired yet, and the remedy, which depends on whether
    /// other nodes have the records too.
    pub fn damaged_stores(&self, is_shared: bool) -> Vec<String> {
        let remedy = match is_shared {
            true => "they are replaced from other replicas; check the disk",
            false => "no other node has them: set or delete them, or restore a backup, and check the disk",
        };
        let holding = self.shared.holding.load();
        let damage = holding.stores.values().filter_map(|store| {
            let partitions = store.partitions.values();
            let partitions = partitions.filter(|partition| holding.has_others(store, partition.id()) == is_shared);
            let records: usize = partitions.map(|partition| partition.damaged()).sum();
            let name = &store.name;
            (records > 0)
                .then(|| format!("{records} records of store {name:?} are damaged or cannot be read: {remedy}"))
        });
        damage.collect()
    }

    /// How many nodes have hints waiting for them.
    pub fn hinted_nodes(&self) -> usize {
        self.shared.hint_book.nodes().len()
    }

    /// Why every write that makes a record longer is refused; `None` if the disk has room.
    pub fn writes_refused(&self) -> Option<String> {
        self.shared.check_space().err()
    }

    /// The memory that keys take in the engine that keeps all keys in memory, and its limit; `None` if there is no such
    /// engine.
    pub fn key_memory(&self) -> Option<KeyMemory> {
        self.shared.engines.iter().find_map(|engine| engine.key_memory())
    }

    /// Why writes of new keys are refused by stores that keep all keys in memory; `None` if there is room.
    pub fn keys_refused(&self) -> Option<String> {
        let mut checked = self.shared.engines.iter().map(|engine| engine.check_new_keys());
        checked.find_map(Result::err).map(|full| full.to_string())
    }

    /// How many writes are waiting to be committed.
    pub fn waiting(&self) -> usize {
        self.shared.shards.iter().map(Queue::len).sum()
    }

    /// The size of the tables of all stores, in bytes: on the disk, or in memory.
    pub fn bytes(&self) -> u64 {
        self.shared.engines.iter().map(|engine| engine.disk_bytes()).sum()
    }

    /// The bytes of live records of all stores, and of the events of hybrid stores, as far as the engines count them.
    pub fn live_bytes(&self) -> u64 {
        self.shared.engines.iter().map(|engine| engine.live_bytes()).sum()
    }

    /// A counter, since the start.
    pub fn counter(&self, counter: ReplicaCounter) -> u64 {
        self.shared.metrics.get(counter)
    }

    /// Limits the bytes a second that this node receives of partitions that move to it; 0 is no limit.
    pub fn set_move_rate(&self, bytes_per_second: u64) {
        self.shared.move_bytes_per_second.store(bytes_per_second, Relaxed);
    }

    /// The host: its clock, and its random numbers.
    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.shared.host
    }

    /// The current holding.
    pub(crate) fn holding(&self) -> Guard<Arc<Holding>> {
        self.shared.holding.load()
    }

    /// Ends the threads when all waiting writes are committed, and records that nothing was lost. Later requests are
    /// refused.
    pub fn close(&self) {
        let Some(threads) = self.threads().take() else { return };
        let Threads {
            background,
            readers,
            mut committers,
        } = threads;
        drop(background);
        let last = committers.end(&self.shared);
        self.shared.readers.close();
        let read = readers.into_iter().map(JoinHandle::join).filter(Result::is_err).count();
        debug_assert_eq!(read, 0, "a reader thread panicked");
        self.note_end(last);
    }

    /// Records that nothing was lost, with the last counter of all dots; `None` if that is unknown.
    pub(crate) fn note_end(&self, last: Option<u64>) {
        let synced = self.shared.engines.iter().try_for_each(|engine| engine.sync());
        match (synced, last) {
            (Ok(()), Some(last)) => {
                if let Err(error) = self.shared.incarnation.end(last) {
                    tracing::warn!(%error, "the next start begins a new incarnation");
                }
            }
            (Err(error), _) => tracing::error!(%error, "the last writes may not survive a loss of power"),
            (Ok(()), None) => tracing::error!("a commit thread has panicked"),
        }
    }

    fn threads(&self) -> MutexGuard<'_, Option<Threads>> {
        self.threads.lock()
    }
}

/// A background chore.
type Chore = fn(&Arc<Shared>, &Arc<Signal>) -> Pin<Box<dyn Future<Output = ()>>>;

/// All chores, each with its name and its signal.
pub(crate) fn chores(shared: &Arc<Shared>) -> [(&'static str, Arc<Signal>, Chore); 7] {
    let own = || Signal::new(&shared.host);
    [
        ("handoff", Arc::clone(&shared.handoff), |shared, signal| {
            let rate = shared.options.handoff_bytes_per_second;
            Box::pin(handoff::run(Background::new(shared, signal, rate)))
        }),
        ("reconcile", Arc::clone(&shared.exchanging), |shared, signal| {
            Box::pin(reconciling::run(Background::exchanging(shared, signal)))
        }),
        ("move", Arc::clone(&shared.moving), |shared, signal| {
            Box::pin(reconciling::run_moves(Background::moving(shared, signal)))
        }),
        ("sweep", own(), |shared, signal| {
            let rate = shared.options.scan_bytes_per_second;
            Box::pin(tombstone_collection::run(Background::new(shared, signal, rate)))
        }),
        ("grow", Arc::clone(&shared.growing), |shared, signal| {
            let rate = shared.options.scan_bytes_per_second;
            Box::pin(tree_builder::run(Background::new(shared, signal, rate)))
        }),
        ("drop", Arc::clone(&shared.dropping.signal), |shared, signal| {
            Box::pin(dropped_stores::run(Background::new(shared, signal, None)))
        }),
        ("go on", own(), |shared, signal| {
            Box::pin(storage_rollback::run(Background::new(shared, signal, None)))
        }),
    ]
}

impl Shared {
    /// Opens the stored data. `is_driven` if there are no threads.
    fn open(
        host: Arc<dyn Host>,
        engines: &Engines,
        peers: Arc<dyn Peers>,
        options: ReplicaOptions,
        is_driven: bool,
    ) -> Result<Arc<Self>, ReplicasError> {
        let metrics = ReplicaMetrics::default();
        let hints = engines.disk().open_table(HINTS)?;
        let local = engines.by_kind().filter(|(_, engine)| engine.is_local());
        let opening = Opening {
            engines: engines
                .by_kind()
                .filter_map(|(kind, engine)| Some((kind, engine.identity()?)))
                .collect(),
            boot_id: options.boot_id.clone(),
            local_engines: local.map(|(kind, _)| kind).collect(),
        };
        let incarnation = Incarnation::open(&host, opening)?;
        for (engine, _) in engines.by_kind() {
            if let Some(lost) = incarnation.lost(engine, None) {
                tracing::error!(
                    %engine,
                    lost,
                    "acknowledged writes were lost on this node, or may be: other replicas may have them"
                );
            }
            if incarnation.lost(engine, Some(Scope::All)).is_some() {
                metrics.add(ReplicaCounter::DamagedLogs, 1);
            }
        }
        let shard = |_| Queue::new(options.queue_items_max, options.queue_bytes_max);
        let shared = Arc::new(Self {
            engines: engines.all().map(Arc::clone).collect(),
            kinds: engines.kinds(),
            hints,
            hint_book: HintBook::default(),
            holding: ArcSwap::default(),
            first_count: OnceLock::new(),
            changing: Mutex::default(),
            incarnation,
            metrics,
            disk_space: DiskSpace::new(&host, options.reserve_bytes),
            shards: (0..options.shards.max(1)).map(shard).collect(),
            dots: (0..options.shards.max(1)).map(|_| ShardDots::default()).collect(),
            readers: Readers::new(READS_WAITING_MAX, is_driven),
            peers,
            returned: Mutex::default(),
            handoff: Signal::new(&host),
            exchanging: Signal::new(&host),
            moving: Signal::new(&host),
            exchange_pace: Arc::new(Mutex::new(Pace::new(options.exchange_bytes_per_second, host.now()))),
            move_bytes_per_second: AtomicU64::new(0),
            growing: Signal::new(&host),
            dropping: Dropping::new(Signal::new(&host)),
            change_logs: Arc::default(),
            change_log_id: AtomicU64::new(host.random()),
            started: host.now(),
            host,
            options,
        });
        Ok(shared)
    }
}

impl LocalReplica for Replicas {
    fn node(&self) -> Option<NodeId> {
        self.shared.holding.load().cluster.as_ref().map(|cluster| cluster.node)
    }

    fn request(&self, request: ReplicaRequest, answer: OnReply) {
        self.shared.request(request, answer);
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.close();
    }
}
