//! Coordinators, which run the real operations over the simulated network, and record their outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use fondaco_client::ClientError;
use fondaco_client::operation::{AskId, Environment, Operation, Outgoing};
use fondaco_client::quorum::{Get, Home, Update, Write};
use fondaco_client::read::Failure;
use fondaco_model::cluster::Topology;
use fondaco_model::versioned::{Record, Resolution, VectorClock, resolve};
use fondaco_model::{NodeId, RoutingTable};
use fondaco_protocol::replica::{PutOver, ReplicaCommand, ReplicaOperation, ReplicaReply, ReplicaRequest};
use parking_lot::Mutex;

use super::delivery::serve_own;
use super::history::WriteNumber;
use super::message::{Asker, Event, Happening, Matter};
use super::scenario::Flaw;
use super::sums::AddNumber;
use super::topology::id;
use super::world::{Process, World};
use crate::kernel::Caller;

/// The coordinator of one process.
#[derive(Debug)]
pub(super) struct Coordinator {
    home: Arc<Home>,
    caller: Caller,
    table: Arc<RoutingTable>,
    operations: BTreeMap<u64, Running>,
    /// The last values read of each key, with their context.
    read: BTreeMap<Bytes, (VectorClock, Vec<Bytes>)>,
}

impl Coordinator {
    /// An operation in progress, and its view of the present.
    fn running(&mut self, number: u64, now_us: u64, now_unix_ms: u64) -> Option<(&mut Running, Environment<'_>)> {
        let env = self.caller.env(now_us, now_unix_ms);
        Some((self.operations.get_mut(&number)?, env))
    }
}

/// An operation in progress.
#[derive(Debug)]
struct Running {
    work: Work,
    doing: Doing,
    /// The values that an update has read, for each attempt.
    bases: Bases,
    puts: u32,
    is_told: bool,
    wake_us: u64,
}

/// The values that an update has read, for each attempt.
pub(super) type Bases = Arc<Mutex<Vec<Vec<Bytes>>>>;

/// A real operation.
#[derive(Debug)]
pub(super) enum Work {
    Get(Box<Get>),
    Write(Box<Write>),
    Update(Box<Update>),
}

/// The operation of a client.
#[derive(Debug, Clone)]
pub(super) enum Doing {
    Read {
        key: Bytes,
        began_us: u64,
    },
    /// A write, over all present values or only over those read.
    Write {
        number: WriteNumber,
        over_all: bool,
    },
    Add(AddNumber),
}

impl Work {
    fn operation(&mut self) -> &mut dyn Operation<Request = ReplicaRequest, Reply = ReplicaReply> {
        match self {
            Self::Get(get) => &mut **get,
            Self::Write(write) => &mut **write,
            Self::Update(update) => &mut **update,
        }
    }
}

impl Coordinator {
    pub(super) fn new(home: Home, topology: Topology, table: Arc<RoutingTable>) -> Self {
        Self {
            caller: Caller::new(topology, home.zone.as_deref()),
            home: Arc::new(home),
            table,
            operations: BTreeMap::new(),
            read: BTreeMap::new(),
        }
    }

    /// The routing table that it uses.
    pub(super) fn table(&self) -> &Arc<RoutingTable> {
        &self.table
    }

    /// The nodes that it believes to be live.
    pub(super) fn live(&self) -> BTreeSet<NodeId> {
        let members = self.caller.directory.members().iter();
        members.filter(|member| member.live).map(|member| member.id).collect()
    }

    /// The last values read of a key, with their context.
    pub(super) fn read_last(&self, key: &Bytes) -> Option<&(VectorClock, Vec<Bytes>)> {
        self.read.get(key)
    }

    /// Whether no operation is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// The suspended nodes that must be probed.
    pub(super) fn to_probe(&self, now_us: u64) -> Vec<NodeId> {
        let due = |at_us: u64| at_us <= now_us;
        let members = self.caller.directory.members().iter();
        let members =
            members.filter(|member| member.health.is_suspended() && member.health.probe_at_us().is_some_and(due));
        members.map(|member| member.id).collect()
    }

    /// Records the result of a probe.
    pub(super) fn probed(&self, node: NodeId, is_there: bool, now_us: u64) {
        if let Some(member) = self.caller.directory.member(node) {
            match is_there {
                true => member.health.probe_succeeded(now_us),
                false => member.health.probe_failed(now_us),
            }
        }
    }
}

impl World {
    /// Starts an operation, if it could be created.
    pub(super) fn begin(&mut self, process: usize, work: Result<Work, ClientError>, doing: Doing, bases: Bases) {
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

    /// Passes an event to an operation, and does what the operation requests.
    pub(super) fn operation_answered(
        &mut self,
        process: usize,
        number: u64,
        ask: AskId,
        answer: Result<ReplicaReply, Failure>,
    ) {
        self.tell(process, number, |operation, env| match answer {
            Ok(reply) => operation.on_reply(ask, reply, env),
            Err(failure) => operation.on_failure(ask, failure, env),
        });
    }

    /// Wakes an operation that waits for a time.
    pub(super) fn wake_operation(&mut self, process: usize, number: u64) {
        if let Some(running) = self.processes[process].coordinator.operations.get_mut(&number) {
            running.wake_us = u64::MAX;
        }
        let now_us = self.now_us;
        self.tell(process, number, |operation, env| {
            if now_us >= operation.wake_at_us() {
                operation.on_time(env);
            }
        });
    }

    /// A coordinator learns the live nodes and the routing table. It never goes back to an older table.
    pub(super) fn learn(&mut self, process: usize, live: &BTreeSet<NodeId>, table: &Arc<RoutingTable>) {
        let known = &self.processes[process].coordinator;
        let table = match table.epoch() > known.table.epoch() {
            true => Arc::clone(table),
            false => Arc::clone(&known.table),
        };
        if known.live() == *live && known.table.epoch() == table.epoch() {
            return;
        }
        let topology = self.topology(live, &table);
        let coordinator = &mut self.processes[process].coordinator;
        coordinator.table = table;
        coordinator.caller.learn(topology, coordinator.home.zone.as_deref());
        let numbers: Vec<u64> = coordinator.operations.keys().copied().collect();
        for number in numbers {
            self.tell(process, number, |operation, env| {
                if operation.wants_directory() {
                    operation.on_directory(env);
                }
            });
        }
    }

    fn tell(
        &mut self,
        process: usize,
        number: u64,
        what: impl FnOnce(&mut dyn Operation<Request = ReplicaRequest, Reply = ReplicaReply>, &Environment<'_>),
    ) {
        let (now_us, now_unix_ms) = (self.now_us, self.unix_ms(process));
        let coordinator = &mut self.processes[process].coordinator;
        let Some((running, env)) = coordinator.running(number, now_us, now_unix_ms) else {
            return;
        };
        what(running.work.operation(), &env);
        self.drive(process, number);
    }

    /// Sends the requests of an operation, and records its outcome.
    fn drive(&mut self, process: usize, number: u64) {
        let (now_us, now_unix_ms) = (self.now_us, self.unix_ms(process));
        let life = self.processes[process].running.life;
        let Process {
            coordinator, replica, ..
        } = &mut self.processes[process];
        let Some((running, env)) = coordinator.running(number, now_us, now_unix_ms) else {
            return;
        };
        let operation = running.work.operation();
        let mut outgoing = Vec::new();
        while let Some(next) = operation.next_send(&env) {
            let is_read = next.request.operation.command() == ReplicaCommand::Get;
            let own = replica.as_ref().filter(|_| is_read && next.node == id(process));
            match own.filter(|_| self.rng.bool()) {
                Some(replica) => {
                    let reply = serve_own(self.scenario.flaw, replica, next.request);
                    operation.on_reply(next.id, reply, &env);
                }
                None => outgoing.push(next),
            }
        }
        let wants_topology = operation.take_refresh();
        while operation.take_suspended().is_some() {}
        let (is_answered, is_over, wake_us) = (operation.is_answered(), operation.is_over(), operation.wake_at_us());
        let puts = outgoing.iter();
        let puts = puts.filter(|next| matches!(next.request.operation, ReplicaOperation::Put { .. }));
        running.puts += puts.count() as u32;
        if let (Doing::Write { number, .. }, true) = (&running.doing, running.puts > 1) {
            self.history.write_tried_again(*number);
        }
        let bases = std::mem::take(&mut *running.bases.lock());
        if let Doing::Write { number, .. } = running.doing {
            for base in bases {
                self.history.write_read(number, base);
            }
        }
        let is_plain = matches!(running.doing, Doing::Write { over_all: true, .. });
        if is_plain && self.scenario.flaw == Some(Flaw::WritesOverAll) {
            outgoing.iter_mut().for_each(write_over_all);
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
            self.send(asker, next.node, next.request);
        }
        if wants_topology {
            self.ask_for_topology(process);
        }
        if wants_wake && wake_us != u64::MAX {
            let event = Event::Wake(number);
            let after_us = wake_us.saturating_sub(now_us).max(1);
            self.after(after_us, Happening::To { process, life, event });
        }
    }

    /// A client receives its result.
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
            Doing::Write { number, .. } => self.history.write_acknowledged(number, now_us),
            Doing::Add(add) => self.sums.add_acknowledged(add, now_us),
            Doing::Read { key, began_us } => {
                let record = record.unwrap_or_default();
                let values = values(&record);
                let checked = match self.scenario.settings.resolution {
                    Resolution::Counter => self.sums.read(&key, count(&record, now_unix_ms), began_us, now_us),
                    Resolution::Latest if self.scenario.promise().reads_see_writes => {
                        let latest = resolve(&record, Resolution::Latest, now_unix_ms);
                        let resolved = self.history.resolved(&key, latest.value(), began_us);
                        resolved.and(self.history.read(&key, &values, began_us))
                    }
                    _ => self.history.read(&key, &values, began_us),
                };
                if let Err(broken) = checked {
                    self.violated(format!("{process} reads: {broken}"));
                }
                let context = record.context().clone();
                self.processes[process].coordinator.read.insert(key, (context, values));
            }
        }
    }

    /// The input of an operation of a process: its home node, and the present state.
    pub(super) fn env(&self, process: usize) -> (Arc<Home>, Environment<'_>) {
        let coordinator = &self.processes[process].coordinator;
        let env = coordinator.caller.env(self.now_us, self.unix_ms(process));
        (Arc::clone(&coordinator.home), env)
    }
}

/// Makes a replica write over everything that it holds at that moment.
fn write_over_all(outgoing: &mut Outgoing<ReplicaRequest>) {
    if let ReplicaOperation::Put { over, .. } = &mut outgoing.request.operation {
        *over = PutOver::All;
    }
}

/// All concurrent values.
pub(super) fn values(record: &Record) -> Vec<Bytes> {
    record
        .siblings()
        .iter()
        .filter_map(|sibling| sibling.value.clone())
        .collect()
}

/// The total of a counter.
pub(super) fn count(record: &Record, now_unix_ms: u64) -> i64 {
    let resolved = resolve(record, Resolution::Counter, now_unix_ms);
    let text = resolved.value().and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
