//! A node: the real overlays and feeds of its versions, on a disk that outlives its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use fondaco_engine::Engine;
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, Partitioner, StoreName, VersionNumber, slot_of_key};
use fondaco_stream::{
    Alarm, Batch, BegunElsewhere, ClockReading, Event, Feed, FeedOptions, Lifetimes, Logged, Overlay, OverlayOptions,
    Poison, Source, StreamError, take_step,
};
use parking_lot::Mutex;

use super::events::base;
use super::scenario::Flaw;
use super::topic::Topic;
use crate::kernel::{FaultyDisk, WriteFailure};

const STORE_ID: u16 = 1;
const CREATED_UNIX_MS: u64 = 7;
/// A long time, in milliseconds.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A version of the store.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) number: VersionNumber,
    pub(super) as_of_ms: Option<u64>,
    /// The time of its records.
    pub(super) data_ms: u64,
    pub(super) start_ms: u64,
    /// How many losses of records there were before.
    pub(super) losses: u64,
    /// Whether there were more since then.
    pub(super) has_lost: bool,
}

/// The state that all nodes share.
pub(super) struct Shared {
    pub(super) seed: u64,
    pub(super) store: StoreName,
    pub(super) partitions: PartitionCount,
    /// How many partitions the topic has, if it is partitioned as the store is.
    pub(super) partitioned: Option<PartitionCount>,
    pub(super) grace_ms: u64,
    pub(super) lag_ms_max: u64,
    pub(super) ttl_ms: Option<u64>,
    pub(super) flaw: Option<Flaw>,
    pub(super) is_traced: bool,
    pub(super) began: Instant,
    pub(super) topic: Mutex<Topic>,
    pub(super) nodes: Mutex<Vec<Weak<Node>>>,
    /// Versions that a node has begun with after records were deleted, when no other one could tell where it had begun.
    pub(super) begun_late: Mutex<BTreeSet<VersionNumber>>,
}

impl Shared {
    pub(super) fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.partitions.partition_of(slot_of_key(&self.store, key))
    }

    /// Where an event of a key belongs in the topic, if it is partitioned as the store is.
    pub(super) fn topic_partition_of(&self, key: &[u8]) -> Option<u32> {
        let count = self.partitioned?;
        Some(count.partition_of(slot_of_key(&self.store, key)).get())
    }

    /// Whether a node with these partitions reads a partition of the topic.
    pub(super) fn reads(&self, held: &PartitionSet, topic_partition: u32) -> bool {
        let own = self.partitioned.map(|count| held.among(self.partitions, count));
        own.is_none_or(|own| own.contains(PartitionId::new(topic_partition)))
    }

    pub(super) fn options(&self, version: &Version) -> OverlayOptions {
        OverlayOptions {
            store: self.store.clone(),
            store_id: STORE_ID,
            created_unix_ms: CREATED_UNIX_MS,
            version: version.number,
            partitions: self.partitions,
            as_of_ms: version.as_of_ms,
            grace_ms: self.grace_ms,
            partitioner: match self.partitioned {
                Some(_) => Partitioner::Store,
                None => Partitioner::Any,
            },
            lifetimes: self.ttl_ms.map(|ttl_ms| Lifetimes {
                ttl_ms,
                undated_unix_ms: version.data_ms,
            }),
        }
    }
}

pub(super) struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) number: usize,
    pub(super) disk: FaultyDisk,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    /// The running process.
    life: Option<Life>,
    /// The partitions that are assigned to it.
    held: PartitionSet,
    /// How far its clock is off.
    clock_off_ms: i64,
    is_paused: bool,
    is_version_open: bool,
    /// Whether the process is killed after this step.
    is_dying: bool,
    /// Whether something happens while a step waits for the topic.
    is_busy: bool,
    /// Events that come in the midst of a step.
    coming: Vec<(u32, Result<Event, Poison>)>,
    notes: Vec<String>,
}

/// A process.
#[derive(Default)]
struct Life {
    feeds: BTreeMap<VersionNumber, Arc<Feed>>,
}

impl Node {
    pub(super) fn new(shared: &Arc<Shared>, number: usize, rng: Rng) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            number,
            disk: FaultyDisk::simulated(1, 0, true),
            state: Mutex::new(State {
                rng,
                life: Some(Life::default()),
                held: PartitionSet::EMPTY,
                clock_off_ms: 0,
                is_paused: false,
                is_version_open: true,
                is_dying: false,
                is_busy: true,
                coming: Vec::new(),
                notes: Vec::new(),
            }),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.lock().life.is_some()
    }

    /// Kills the process, if there is one. Returns its feeds, for their counts only.
    pub(super) fn kill(&self) -> BTreeMap<VersionNumber, Arc<Feed>> {
        let life = {
            let mut state = self.state.lock();
            state.is_dying = false;
            state.life.take()
        };
        self.disk.fail_writes(None);
        life.map_or_else(BTreeMap::new, |life| life.feeds)
    }

    pub(super) fn is_dying(&self) -> bool {
        self.state.lock().is_dying
    }

    pub(super) fn start(&self) {
        self.state.lock().life.get_or_insert_default();
    }

    pub(super) fn set_held(&self, held: PartitionSet) {
        self.state.lock().held = held;
    }

    pub(super) fn held(&self) -> PartitionSet {
        self.state.lock().held.clone()
    }

    pub(super) fn set_clock(&self, off_ms: i64) {
        self.state.lock().clock_off_ms = off_ms;
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        self.state.lock().is_paused = is_paused;
    }

    /// Whether the versions below can be read.
    pub(super) fn set_version_open(&self, is_open: bool) {
        self.state.lock().is_version_open = is_open;
    }

    /// Whether other things happen while a step waits for the topic.
    pub(super) fn set_busy(&self, is_busy: bool) {
        self.state.lock().is_busy = is_busy;
    }

    /// Events that are logged while a step waits for the topic.
    pub(super) fn expect(&self, events: Vec<(u32, Result<Event, Poison>)>) {
        self.state.lock().coming.extend(events);
    }

    pub(super) fn take_expected(&self) -> Vec<(u32, Result<Event, Poison>)> {
        std::mem::take(&mut self.state.lock().coming)
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().notes)
    }

    pub(super) fn feeds(&self) -> BTreeMap<VersionNumber, Arc<Feed>> {
        let state = self.state.lock();
        state
            .life
            .as_ref()
            .map_or_else(BTreeMap::new, |life| life.feeds.clone())
    }

    /// Does the periodic work of a node's agent: opens overlays of new versions, assigns partitions to them, and deletes
    /// those that are not needed any more.
    pub(super) fn look(self: &Arc<Self>, versions: &[Version]) {
        let mut feeds = self.feeds();
        if !self.is_up() {
            return;
        }
        feeds.retain(|number, _| versions.iter().any(|version| version.number == *number));
        for version in versions {
            if let Err(error) = self.look_at(version, &mut feeds) {
                self.note(|| format!("look at version {}: {error}", version.number));
            }
        }
        if let Some(life) = &mut self.state.lock().life {
            life.feeds = feeds;
        }
        for table in self.disk.tables().into_iter().flatten().rev() {
            let of = OverlayOptions::of_table(&table).map(|(_, _, version)| version);
            if of.is_some_and(|of| versions.iter().all(|version| version.number != of)) {
                // It is tried again.
                let _ = self.disk.drop_table(&table);
            }
        }
    }

    fn look_at(
        self: &Arc<Self>,
        version: &Version,
        feeds: &mut BTreeMap<VersionNumber, Arc<Feed>>,
    ) -> Result<(), StreamError> {
        let (held, is_paused) = {
            let state = self.state.lock();
            (state.held.clone(), state.is_paused)
        };
        let feed = match feeds.get(&version.number) {
            Some(feed) => Arc::clone(feed),
            // A node without a partition of a version opens nothing of it.
            None if held.is_empty() => return Ok(()),
            None => {
                let feed = Arc::new(self.open(version)?);
                feeds.insert(version.number, Arc::clone(&feed));
                feed
            }
        };
        feed.set(self.shared.lag_ms_max, is_paused);
        feed.set_held(&held)
    }

    fn open(self: &Arc<Self>, version: &Version) -> Result<Feed, StreamError> {
        let (node, number) = (Arc::downgrade(self), version.number);
        let below = move |key: &[u8]| -> Result<Option<(Bytes, Option<u64>)>, String> {
            let node = node.upgrade().ok_or("the node is gone")?;
            match node.state.lock().is_version_open {
                true => Ok(base(node.shared.seed, number, key).map(|value| (value, None))),
                false => Err("the version is not open".to_owned()),
            }
        };
        let engine: Arc<dyn Engine> = Arc::new(self.disk.clone());
        let overlay = Overlay::open(engine, self.shared.options(version), Arc::new(below), Arc::default())?;
        let shared = Arc::clone(&self.shared);
        let overlay = overlay.with_clock(Box::new(move || shared.topic.lock().now_ms));
        let source = NodeSource {
            node: Arc::downgrade(self),
        };
        let options = FeedOptions {
            start_ms: version.start_ms,
            lag_ms_max: self.shared.lag_ms_max,
            begun_elsewhere: self.others(version),
            ..FeedOptions::default()
        };
        Ok(Feed::new(Arc::new(overlay), Arc::new(source), options))
    }

    /// Asks the other nodes that are up.
    fn others(self: &Arc<Self>, version: &Version) -> BegunElsewhere {
        let (shared, own, version) = (Arc::clone(&self.shared), self.number, version.clone());
        Box::new(move |partition| {
            let nodes = shared.nodes.lock().clone();
            let others = nodes.iter().filter_map(Weak::upgrade).filter(|node| node.number != own);
            let feeds = others.filter_map(|node| node.feeds().remove(&version.number));
            let begun = feeds.filter_map(|feed| feed.status().begun.remove(&partition)).min();
            if begun.is_none() && shared.topic.lock().losses > version.losses {
                shared.begun_late.lock().insert(version.number);
            }
            Ok(begun)
        })
    }

    /// Takes the step that is due, as a thread of the node does.
    pub(super) fn step(&self) -> bool {
        let feeds: Vec<_> = self.feeds().into_values().collect();
        take_step(&feeds, &Arc::new(Alarm::default()), &|| self.now()).is_some()
    }

    fn now(&self) -> ClockReading {
        let now_ms = self.shared.topic.lock().now_ms;
        let ahead_ms = match self.shared.flaw {
            Some(Flaw::FoldsEarly) if self.number == 0 => DAY_MS as i64,
            _ => self.state.lock().clock_off_ms,
        };
        ClockReading {
            at: self.shared.began + Duration::from_millis(now_ms),
            unix_ms: now_ms.saturating_add_signed(ahead_ms),
        }
    }

    fn note(&self, what: impl FnOnce() -> String) {
        if self.shared.is_traced {
            self.state
                .lock()
                .notes
                .push(format!("node {}: {}", self.number, what()));
        }
    }

    /// Runs another step, event or fault while a step waits for the topic.
    fn meanwhile(&self) {
        let (choice, feeds, held) = {
            let mut state = self.state.lock();
            if !state.is_busy {
                return;
            }
            // One step comes in between at a time.
            state.is_busy = false;
            let feeds = state.life.as_ref().map(|life| life.feeds.clone());
            (state.rng.u8(..12), feeds.unwrap_or_default(), state.held.clone())
        };
        match choice {
            0 | 1 => _ = self.step(),
            2 => {
                for feed in feeds.values() {
                    if let Err(error) = feed.set_held(&held) {
                        self.note(|| format!("take partitions meanwhile: {error}"));
                    }
                }
            }
            3 => {
                let coming = self.take_expected();
                let mut topic = self.shared.topic.lock();
                for (partition, event) in coming {
                    let partition = partition % topic.partitions();
                    topic.append(partition, event);
                }
            }
            4 if self.state.lock().rng.u8(..20) == 0 => {
                self.note(|| "is killed in the midst of a step".to_owned());
                self.disk.fail_writes(Some(WriteFailure::All));
                self.state.lock().is_dying = true;
            }
            _ => {}
        }
        self.state.lock().is_busy = true;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.number)
    }
}

/// The topic as a node reads it.
struct NodeSource {
    node: Weak<Node>,
}

impl NodeSource {
    fn ask<T>(&self, ask: impl FnOnce(&mut Topic) -> Result<T, StreamError>) -> Result<T, StreamError> {
        let Some(node) = self.node.upgrade() else {
            return Err(StreamError::Panicked);
        };
        node.meanwhile();
        let answer = ask(&mut node.shared.topic.lock());
        node.meanwhile();
        answer
    }
}

impl Source for NodeSource {
    fn partitions(&self) -> Result<u32, StreamError> {
        self.ask(|topic| topic.count())
    }

    fn identity(&self) -> Option<u128> {
        Some(self.node.upgrade()?.shared.topic.lock().identity)
    }

    fn offset_at(&self, partition: u32, time_ms: u64) -> Result<u64, StreamError> {
        self.ask(|topic| topic.offset_at(partition, time_ms))
    }

    fn first(&self, partition: u32) -> Result<u64, StreamError> {
        self.ask(|topic| topic.first(partition))
    }

    fn read(&self, _reader: u64, partition: u32, offset: u64, _bytes_max: usize) -> Result<Batch, StreamError> {
        let mut batch = self.ask(|topic| topic.read(partition, offset))?;
        let flaw = self.node.upgrade().filter(|node| node.number == 0);
        match flaw.and_then(|node| node.shared.flaw) {
            Some(Flaw::OrdersByArrival) => {
                for record in &mut batch.records {
                    if let Ok(event) = &mut record.event {
                        event.time_ms = None;
                    }
                }
            }
            Some(Flaw::FoldsEarly) => {
                if let Some(last) = batch.records.last() {
                    batch.records.push(Logged {
                        offset: last.offset,
                        logged_ms: last.logged_ms + DAY_MS,
                        event: Err(Poison("a clock that is ahead".to_owned())),
                    });
                }
            }
            Some(Flaw::OffsetsApart) | None => {}
        }
        Ok(batch)
    }
}
