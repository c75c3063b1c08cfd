//! Clients of the store, each with a coordinator that drives the real operations over the simulated network. What
//! they do and see is written down as history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fondaco_client::quorum::{
    AskId, Edit, Expiry, Get, Home, Intent, Moment, Operation, QuorumCounters, ReplicaOperation, ReplicaReply, Update,
    Write,
};
use fondaco_client::read::{Directory, Failure, HealthPolicy, Steering, SteeringPolicy};
use fondaco_client::{ClientError, Partial, ReadOptions, WireKey};
use fondaco_model::NodeId;
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{self, Record, Resolution, VectorClock, resolve};

use super::history::{Knows, WriteNumber};
use super::message::{Asker, Event, Happening, Matter};
use super::sums::AddNumber;
use super::world::World;

/// How long an operation may take.
const DEADLINE: Duration = Duration::from_secs(1);

/// The most that is added at a time.
const ADD_MAX: u32 = 9;

/// Coordinates the operations of one process.
#[derive(Debug)]
pub(super) struct Coordinator {
    home: Arc<Home>,
    directory: Arc<Directory>,
    steering: Steering,
    counts: QuorumCounters,
    operations: BTreeMap<u64, Running>,
    /// What was read last under each key, with its context.
    read: BTreeMap<Bytes, (VectorClock, Vec<Bytes>)>,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    work: Work,
    doing: Doing,
    /// What an update has read, try by try.
    bases: Bases,
    puts: u32,
    is_told: bool,
    wake_us: u64,
}

type Bases = Arc<Mutex<Vec<Vec<Bytes>>>>;

#[derive(Debug)]
enum Work {
    Get(Box<Get>),
    Write(Box<Write>),
    Update(Box<Update>),
}

/// What a client has begun.
#[derive(Debug, Clone)]
enum Doing {
    Read { key: Bytes, began_us: u64 },
    Write(WriteNumber),
    Add(AddNumber),
}

impl Work {
    fn operation(&mut self) -> &mut dyn Operation {
        match self {
            Self::Get(get) => &mut **get,
            Self::Write(write) => &mut **write,
            Self::Update(update) => &mut **update,
        }
    }
}

impl Coordinator {
    pub(super) fn new(home: Home, topology: Topology) -> Self {
        let zone = home.zone.as_deref();
        Self {
            directory: Arc::new(Directory::new(Arc::new(topology), zone, HealthPolicy::default(), None)),
            home: Arc::new(home),
            steering: Steering::new(&SteeringPolicy::default()),
            counts: QuorumCounters::default(),
            operations: BTreeMap::new(),
            read: BTreeMap::new(),
        }
    }

    /// The nodes that it takes to be there.
    pub(super) fn live(&self) -> BTreeSet<NodeId> {
        let members = self.directory.members().iter();
        members.filter(|member| member.live).map(|member| member.id).collect()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// The nodes that it has stopped to ask, and that are to be probed.
    pub(super) fn to_probe(&self, now_us: u64) -> Vec<NodeId> {
        let due = |at_us: u64| at_us <= now_us;
        let members = self.directory.members().iter();
        let members =
            members.filter(|member| member.health.is_suspended() && member.health.probe_at_us().is_some_and(due));
        members.map(|member| member.id).collect()
    }

    /// A node was probed.
    pub(super) fn probed(&self, node: NodeId, is_there: bool, now_us: u64) {
        if let Some(member) = self.directory.member(node) {
            match is_there {
                true => member.health.probe_succeeded(now_us),
                false => member.health.probe_failed(now_us),
            }
        }
    }
}

impl World {
    /// A client does something.
    pub(super) fn operate(&mut self) {
        let process = self.rng.usize(..self.processes.len());
        if !self.processes[process].is_running(self.now_us) {
            return;
        }
        let key = Bytes::from(format!("k{}", self.rng.usize(..self.scenario.keys)));
        let choice = self.rng.u8(..100);
        if self.scenario.counts() {
            match choice {
                0..40 => self.begin_get(process, key),
                _ => self.begin_add(process, key),
            }
            return;
        }
        match choice {
            0..40 => self.begin_get(process, key),
            40..62 => self.begin_write(process, key, true, true),
            62..80 => self.begin_write(process, key, true, false),
            80..87 => self.begin_write(process, key, false, true),
            87..92 => self.begin_write(process, key, false, false),
            _ => self.begin_update(process, key),
        }
    }

    fn begin_get(&mut self, process: usize, key: Bytes) {
        let Some(wire) = self.wire_key(&key) else { return };
        let options = ReadOptions {
            deadline: DEADLINE,
            partial: Partial::PerKey,
            ..ReadOptions::default()
        };
        let (coordinator, moment) = self.moment(process);
        let home = Arc::clone(&coordinator.home);
        let work = Get::start(Arc::new(vec![wire]), options, home, None, &moment);
        let doing = Doing::Read {
            key,
            began_us: self.now_us,
        };
        self.begin(process, work.map(|get| Work::Get(get.into())), doing, Bases::default());
    }

    fn begin_add(&mut self, process: usize, key: Bytes) {
        let by = self.rng.u32(1..=ADD_MAX);
        let update = versioned::Update::add(by.into(), self.unix_ms(process), None);
        let number = self.sums.add_began(&key, by, self.now_us);
        self.note(|| format!("{process} adds {by} to {key:?}: {number:?}"));
        self.begin_writing(process, &key, Intent::All, update, Doing::Add(number));
    }

    /// A plain write over all, or one over what was read last.
    fn begin_write(&mut self, process: usize, key: Bytes, is_put: bool, over_all: bool) {
        let value = is_put.then(|| self.new_value());
        let now_unix_ms = self.unix_ms(process);
        let update = match &value {
            Some(value) => versioned::Update::put(value.clone(), now_unix_ms, None),
            None => versioned::Update::delete(now_unix_ms),
        };
        let (intent, knows) = match over_all {
            true => (Intent::All, Knows::All),
            false => {
                let read = self.processes[process].coordinator.read.get(&key);
                let (context, values) = read.cloned().unwrap_or_default();
                (Intent::Context(context), Knows::Read(values))
            }
        };
        let words = format!("{process} writes {value:?} under {key:?} over {knows:?}");
        let number = self.history.write_began(&key, value, knows, self.now_us);
        self.note(|| format!("{words}: {number:?}"));
        self.begin_writing(process, &key, intent, update, Doing::Write(number));
    }

    fn begin_writing(&mut self, process: usize, key: &Bytes, intent: Intent, update: versioned::Update, doing: Doing) {
        let Some(key) = self.wire_key(key) else { return };
        let (coordinator, moment) = self.moment(process);
        let home = Arc::clone(&coordinator.home);
        let work = Write::start(key, intent, update, DEADLINE.into(), home, &moment);
        self.begin(
            process,
            work.map(|write| Work::Write(write.into())),
            doing,
            Bases::default(),
        );
    }

    fn begin_update(&mut self, process: usize, key: Bytes) {
        let Some(wire) = self.wire_key(&key) else { return };
        let value = self.new_value();
        let seed = self.rng.u64(..);
        let knows = Knows::Read(Vec::new());
        let number = self.history.write_began(&key, Some(value.clone()), knows, self.now_us);
        self.note(|| format!("{process} changes {key:?} to {value:?}: {number:?}"));
        let bases = Bases::default();
        let theirs = Arc::clone(&bases);
        let decide = move |record: &Record, _| {
            theirs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(values(record));
            Edit::Put {
                value: value.clone(),
                expiry: Expiry::Never,
            }
        };
        let (coordinator, moment) = self.moment(process);
        let home = Arc::clone(&coordinator.home);
        let work = Update::start(wire, Box::new(decide), DEADLINE.into(), home, seed, &moment);
        self.begin(
            process,
            work.map(|update| Work::Update(update.into())),
            Doing::Write(number),
            bases,
        );
    }

    fn begin(&mut self, process: usize, work: Result<Work, ClientError>, doing: Doing, bases: Bases) {
        let Ok(work) = work else {
            self.outcome.failed += 1;
            return;
        };
        self.last_number += 1;
        let running = Running {
            work,
            doing,
            bases,
            puts: 0,
            is_told: false,
            wake_us: u64::MAX,
        };
        let number = self.last_number;
        self.processes[process].coordinator.operations.insert(number, running);
        self.drive(process, number);
    }

    /// Tells an operation that something happened, and does what it wants then.
    pub(super) fn operation_answered(
        &mut self,
        process: usize,
        number: u64,
        ask: AskId,
        answer: Result<ReplicaReply, Failure>,
    ) {
        self.tell(process, number, |operation, moment| match answer {
            Ok(reply) => operation.on_reply(ask, reply, moment),
            Err(failure) => operation.on_failure(ask, failure, moment),
        });
    }

    /// It is time for an operation to look at the clock.
    pub(super) fn wake_operation(&mut self, process: usize, number: u64) {
        if let Some(running) = self.processes[process].coordinator.operations.get_mut(&number) {
            running.wake_us = u64::MAX;
        }
        let now_us = self.now_us;
        self.tell(process, number, |operation, moment| {
            if now_us >= operation.wake_at_us() {
                operation.on_time(moment);
            }
        });
    }

    /// A coordinator learns which nodes are there.
    pub(super) fn learn(&mut self, process: usize, live: &BTreeSet<NodeId>) {
        if self.processes[process].coordinator.live() == *live {
            return;
        }
        let topology = Arc::new(self.topology(live));
        let coordinator = &mut self.processes[process].coordinator;
        let (zone, former) = (coordinator.home.zone.as_deref(), Some(&*coordinator.directory));
        let directory = Directory::new(topology, zone, HealthPolicy::default(), former);
        coordinator.directory = Arc::new(directory);
        let numbers: Vec<u64> = coordinator.operations.keys().copied().collect();
        for number in numbers {
            self.tell(process, number, |operation, moment| {
                if operation.wants_directory() {
                    operation.on_directory(moment);
                }
            });
        }
    }

    fn tell(&mut self, process: usize, number: u64, what: impl FnOnce(&mut dyn Operation, &Moment<'_>)) {
        let (now_us, now_unix_ms) = (self.now_us, self.unix_ms(process));
        let Coordinator {
            directory,
            steering,
            counts,
            operations,
            ..
        } = &mut self.processes[process].coordinator;
        let Some(running) = operations.get_mut(&number) else {
            return;
        };
        let moment = Moment {
            now_us,
            now_unix_ms,
            latest: directory,
            steering,
            counts,
        };
        what(running.work.operation(), &moment);
        self.drive(process, number);
    }

    /// Sends what an operation wants sent, and writes down what came of it.
    fn drive(&mut self, process: usize, number: u64) {
        let (now_us, now_unix_ms) = (self.now_us, self.unix_ms(process));
        let life = self.processes[process].life;
        let Coordinator {
            directory,
            steering,
            counts,
            operations,
            ..
        } = &mut self.processes[process].coordinator;
        let Some(running) = operations.get_mut(&number) else {
            return;
        };
        let moment = Moment {
            now_us,
            now_unix_ms,
            latest: directory,
            steering,
            counts,
        };
        let operation = running.work.operation();
        let mut outgoing = Vec::new();
        while let Some(next) = operation.next_send(&moment) {
            outgoing.push(next);
        }
        operation.take_refresh();
        while operation.take_suspended().is_some() {}
        let (is_answered, is_over, wake_us) = (operation.is_answered(), operation.is_over(), operation.wake_at_us());
        let puts = outgoing.iter();
        let puts = puts.filter(|next| matches!(next.request.operation, ReplicaOperation::Put { .. }));
        running.puts += puts.count() as u32;
        if let (Doing::Write(write), true) = (&running.doing, running.puts > 1) {
            self.history.write_tried_again(*write);
        }
        let bases = std::mem::take(&mut *running.bases.lock().unwrap_or_else(PoisonError::into_inner));
        if let Doing::Write(write) = running.doing {
            for base in bases {
                self.history.write_read(write, base);
            }
        }
        let wants_wake = !is_over && wake_us < running.wake_us;
        if wants_wake {
            running.wake_us = wake_us;
        }
        if is_answered && !std::mem::replace(&mut running.is_told, true) {
            self.answered(process, number);
        }
        if is_over {
            self.processes[process].coordinator.operations.remove(&number);
        }
        for next in outgoing {
            let of = Matter::Operation { number, ask: next.id };
            let asker = Asker { process, life, of };
            self.send(asker, next.node, next.request.operation, next.request.timeout_ms);
        }
        if wants_wake && wake_us != u64::MAX {
            let event = Event::Wake(number);
            let after_us = wake_us.saturating_sub(now_us).max(1);
            self.after(after_us, Happening::To { process, life, event });
        }
    }

    /// A client has its answer.
    fn answered(&mut self, process: usize, number: u64) {
        let (now_us, now_unix_ms) = (self.now_us, self.unix_ms(process));
        let Some(running) = self.processes[process].coordinator.operations.get_mut(&number) else {
            return;
        };
        let doing = running.doing.clone();
        let (record, error) = match &mut running.work {
            Work::Get(get) => match get.take_answer().map(|mut records| records.pop()) {
                Ok(Some(Ok(record))) => (Some(record), None),
                Ok(Some(Err(error))) | Err(error) => (None, Some(error)),
                Ok(None) => (None, None),
            },
            Work::Write(write) => (None, write.take_answer().err()),
            Work::Update(update) => (None, update.take_answer().err()),
        };
        self.note(|| match &error {
            Some(error) => format!("{process}: {doing:?} failed: {error}"),
            None => format!("{process}: {doing:?} is answered: {:?}", record.as_ref().map(values)),
        });
        if error.is_some() {
            self.outcome.failed += 1;
            return;
        }
        self.outcome.answered += 1;
        match doing {
            Doing::Write(write) => self.history.write_acknowledged(write, now_us),
            Doing::Add(add) => self.sums.add_acknowledged(add, now_us),
            Doing::Read { key, began_us } => {
                let record = record.unwrap_or_default();
                let values = values(&record);
                let checked = match self.scenario.counts() {
                    true => self.sums.read(&key, count(&record, now_unix_ms), began_us, now_us),
                    false => self.history.read(&key, &values, began_us),
                };
                if let Err(broken) = checked {
                    self.violated(format!("{process} reads: {broken}"));
                }
                let context = record.context().clone();
                self.processes[process].coordinator.read.insert(key, (context, values));
            }
        }
    }

    fn moment(&self, process: usize) -> (&Coordinator, Moment<'_>) {
        let coordinator = &self.processes[process].coordinator;
        let moment = Moment {
            now_us: self.now_us,
            now_unix_ms: self.unix_ms(process),
            latest: &coordinator.directory,
            steering: &coordinator.steering,
            counts: &coordinator.counts,
        };
        (coordinator, moment)
    }

    fn wire_key(&self, key: &[u8]) -> Option<WireKey> {
        WireKey::new(&self.store.name, key).ok()
    }

    fn new_value(&mut self) -> Bytes {
        self.last_number += 1;
        Bytes::from(format!("v{}", self.last_number))
    }
}

/// All values that stand side by side.
pub(super) fn values(record: &Record) -> Vec<Bytes> {
    record
        .siblings()
        .iter()
        .filter_map(|sibling| sibling.value.clone())
        .collect()
}

/// What a counter comes to.
pub(super) fn count(record: &Record, now_unix_ms: u64) -> i64 {
    let resolved = resolve(record, Resolution::Counter, now_unix_ms);
    let text = resolved.value().and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
