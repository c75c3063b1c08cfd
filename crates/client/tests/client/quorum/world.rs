//! A cluster without sockets and threads: replicas that keep records, whose answers are late, lost or errors, and
//! operations that run concurrently, in the order that a seed gives.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use fondaco_client::operation::{AskId, Environment, Operation, Outgoing};
use fondaco_client::quorum::{Home, WriteTimes};
use fondaco_client::read::Failure;
use fondaco_model::cluster::{Topology, TopologyNode, TopologyStore};
use fondaco_model::versioned::{DotSource, Over, Record, ReplicaId, Update, VectorClock, VersionedSettings};
use fondaco_model::{NodeId, PartitionCount};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{
    ReplicaCommand, ReplicaError, ReplicaErrorCode, ReplicaOperation, ReplicaReply, ReplicaRequest,
};
use fondaco_simulation::{Agenda, Caller};

pub use crate::records::Flaw;
use crate::records::{Hints, Records, carry_out};

pub const DEADLINE_US: u64 = 1_000_000;
/// How long an operation may continue after its deadline, to store hints.
pub const AFTERWARDS_US: u64 = 1_000_000;

/// The rates of faults: chances in a thousand, for each request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub unsent: u32,
    /// The connection breaks; the request was carried out or not.
    pub lost: u32,
    /// No answer ever comes; the request was carried out or not.
    pub never: u32,
    pub errors: u32,
    /// The request, or its answer, arrives after the timeout of an attempt.
    pub slow: u32,
}

/// The state of a replica.
pub struct Replica {
    pub records: Records,
    pub hints: Hints,
    dots: DotSource,
    pub is_up: bool,
    /// The errors that it answers to these commands.
    pub refuses: BTreeMap<&'static str, ReplicaErrorCode>,
    /// For each command, the epoch before which it refuses requests as made by an old table.
    pub old_before: BTreeMap<&'static str, u64>,
    /// The extra delay of its answers.
    pub delay_us: u64,
    /// The extra delay before it carries out a command.
    pub late_us: BTreeMap<&'static str, u64>,
}

/// An operation that can be downcast to its type.
pub trait AnyOperation: Operation<Request = ReplicaRequest, Reply = ReplicaReply> + Any {}

impl<O: Operation<Request = ReplicaRequest, Reply = ReplicaReply> + Any> AnyOperation for O {}

/// An operation in progress.
struct Running {
    operation: Box<dyn AnyOperation>,
    began_us: u64,
    asked: Asked,
    is_told: bool,
}

/// A request of an operation: the node and the command.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub list: Vec<(NodeId, ReplicaCommand, ReplicaOperation)>,
}

enum Event {
    Reply(usize, AskId, ReplicaReply),
    Failure(usize, AskId, Failure),
    Request(usize, AskId, NodeId, Box<ReplicaRequest>),
}

pub struct World {
    pub random: Rng,
    pub faults: Faults,
    pub flaw: Option<Flaw>,
    pub now_us: u64,
    pub replicas: BTreeMap<NodeId, Replica>,
    pub caller: Caller,
    pub home: Arc<Home>,
    events: Agenda<Event>,
    running: Vec<Running>,
}

/// The numbers of nodes, replicas and zones, and the settings of the only store, `s`.
#[derive(Debug)]
pub struct Shape {
    pub nodes: u32,
    pub replicas: u32,
    pub zones: u32,
    pub settings: VersionedSettings,
}

impl Shape {
    /// Three nodes with all partitions, one zone, and a majority for reads and writes.
    pub fn three() -> Self {
        Self::of(3, 3)
    }

    pub fn of(nodes: u32, replicas: u32) -> Self {
        Self {
            nodes,
            replicas,
            zones: 1,
            settings: VersionedSettings::of(replicas),
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut VersionedSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub fn zones(mut self, zones: u32) -> Self {
        self.zones = zones;
        self
    }

    /// The topology with these nodes live. Node `n` is in zone `(n - 1) % zones`, and each partition is owned by
    /// the nodes from its own number on.
    pub fn topology(&self, live: impl Fn(NodeId) -> bool) -> Topology {
        let node = |number: u32| {
            let (address, zone) = (format!("10.0.0.{number}:6500"), (number - 1) % self.zones);
            let node = TopologyNode {
                live: live(id(number)),
                ..TopologyNode::live(address, format!("zone-{zone}"))
            };
            (id(number), node)
        };
        let owners = |partition: u32| {
            let owner = |place: u32| id((partition + place) % self.nodes + 1);
            (0..self.replicas).map(owner).collect()
        };
        let store = TopologyStore::versioned(self.replicas, self.settings);
        Topology::first(
            PartitionCount::try_from(16).unwrap(),
            (0..16).map(owners).collect(),
            (1..=self.nodes).map(node),
            [("s".parse().unwrap(), store)],
        )
    }
}

pub fn id(number: u32) -> NodeId {
    NodeId::new(number).unwrap()
}

pub fn key(text: &str) -> WireKey {
    WireKey::new(&"s".parse().unwrap(), text.as_bytes()).unwrap()
}

pub fn times() -> WriteTimes {
    Duration::from_micros(DEADLINE_US).into()
}

impl World {
    /// A world of this shape, with a coordinator in the process of a node, or in a process without a replica.
    pub fn new(seed: u64, shape: &Shape, home: Option<u32>) -> Self {
        let topology = shape.topology(|_| true);
        let zone = home.map(|home| topology.nodes[&id(home)].zone.clone());
        let replica = |number: u32| {
            let replica = ReplicaId {
                node: id(number),
                incarnation: 1,
            };
            let replica = Replica {
                records: BTreeMap::new(),
                hints: BTreeMap::new(),
                dots: DotSource::new(replica, 0),
                is_up: true,
                refuses: BTreeMap::new(),
                old_before: BTreeMap::new(),
                delay_us: 0,
                late_us: BTreeMap::new(),
            };
            (id(number), replica)
        };
        Self {
            random: Rng::with_seed(seed),
            faults: Faults::default(),
            flaw: None,
            now_us: 1,
            replicas: (1..=shape.nodes).map(replica).collect(),
            caller: Caller::new(topology, zone.as_deref()),
            home: Arc::new(Home {
                node: home.map(id),
                zone,
            }),
            events: Agenda::default(),
            running: Vec::new(),
        }
    }

    /// All coordinators get a newer topology.
    pub fn adopt(&mut self, topology: Topology) {
        self.caller.learn(topology, self.home.zone.as_deref());
        for at in 0..self.running.len() {
            let env = self.caller.env(self.now_us, unix_ms(self.now_us));
            if self.running[at].operation.wants_directory() {
                self.running[at].operation.on_directory(&env);
            }
            self.send(at);
        }
    }

    pub fn env(&self) -> Environment<'_> {
        self.caller.env(self.now_us, unix_ms(self.now_us))
    }

    pub fn replica(&mut self, number: u32) -> &mut Replica {
        self.replicas.get_mut(&id(number)).unwrap()
    }

    /// Makes a replica answer a command with an error.
    pub fn refuse(&mut self, number: u32, command: &'static str, code: ReplicaErrorCode) {
        self.replica(number).refuses.insert(command, code);
    }

    fn happens(&mut self, chance: u32) -> bool {
        self.random.u32(..1000) < chance
    }

    /// Starts an operation. Returns its number.
    pub fn begin(&mut self, operation: Box<dyn AnyOperation>) -> usize {
        self.running.push(Running {
            operation,
            began_us: self.now_us,
            asked: Asked::default(),
            is_told: false,
        });
        let at = self.running.len() - 1;
        self.send(at);
        at
    }

    /// The operation with this number, which must have this type.
    pub fn operation<O: AnyOperation + 'static>(&mut self, at: usize) -> &mut O {
        let operation: &mut dyn Any = &mut *self.running[at].operation;
        operation.downcast_mut().unwrap()
    }

    pub fn asked(&self, at: usize) -> &Asked {
        &self.running[at].asked
    }

    fn send(&mut self, at: usize) {
        loop {
            let env = self.caller.env(self.now_us, unix_ms(self.now_us));
            let Some(outgoing) = self.running[at].operation.next_send(&env) else {
                return;
            };
            let Outgoing { id, node, request, .. } = outgoing;
            let command = request.operation.command();
            let asked = (node, command, request.operation.clone());
            self.running[at].asked.list.push(asked);
            let replica = &self.replicas[&node];
            let delays = [replica.late_us.get(command.name()), Some(&replica.delay_us)];
            let is_at_once = delays.into_iter().flatten().all(|&delay_us| delay_us == 0);
            if command == ReplicaCommand::Get && self.home.node == Some(node) && replica.is_up && is_at_once {
                // The local replica has the record in memory, and answers before other replicas are asked.
                let reply = self.serve(node, request);
                let env = self.caller.env(self.now_us, unix_ms(self.now_us));
                self.running[at].operation.on_reply(id, reply, &env);
                continue;
            }
            self.deliver(at, id, node, request);
        }
    }

    /// Decides the fate of a request.
    fn deliver(&mut self, at: usize, id: AskId, node: NodeId, request: ReplicaRequest) {
        let near_us = 100 + self.random.u64(..900);
        if !self.replicas[&node].is_up || self.happens(self.faults.unsent) {
            let failure = Failure::Unsent("there is no connection".into());
            return self.schedule(near_us, Event::Failure(at, id, failure));
        }
        let lost = self.happens(self.faults.lost);
        let never = self.happens(self.faults.never);
        if (lost || never) && self.random.bool() {
            // It never arrived.
            if lost {
                self.schedule(near_us, Event::Failure(at, id, Failure::Lost("it broke".into())));
            }
            return;
        }
        let slow_us = u64::from(self.happens(self.faults.slow)) * self.random.u64(..DEADLINE_US);
        let command = request.operation.command().name();
        let mut late_us = self.replicas[&node].late_us.get(command).copied().unwrap_or(0);
        if slow_us > 0 && self.random.bool() {
            late_us = slow_us;
        }
        if late_us > 0 {
            return self.schedule(late_us, Event::Request(at, id, node, Box::new(request)));
        }
        let reply = match self.happens(self.faults.errors) {
            true => {
                let codes = [
                    ReplicaErrorCode::Overloaded,
                    ReplicaErrorCode::DiskFull,
                    ReplicaErrorCode::Corrupt,
                    ReplicaErrorCode::Other,
                ];
                let code = codes[self.random.usize(..codes.len())];
                ReplicaReply::Error(ReplicaError::new(code, "a fault"))
            }
            false => self.serve(node, request),
        };
        if never {
            return;
        }
        let after_us = near_us + slow_us + self.replicas[&node].delay_us;
        match lost {
            true => self.schedule(after_us, Event::Failure(at, id, Failure::Lost("it broke".into()))),
            false => self.schedule(after_us, Event::Reply(at, id, reply)),
        }
    }

    fn schedule(&mut self, after_us: u64, event: Event) {
        self.events.put(self.now_us + after_us, event);
    }

    /// Carries out a request at a replica.
    fn serve(&mut self, node: NodeId, request: ReplicaRequest) -> ReplicaReply {
        let flaw = self.flaw;
        let replica = self.replicas.get_mut(&node).unwrap();
        if let Some(&code) = replica.refuses.get(request.operation.command().name()) {
            return ReplicaReply::Error(ReplicaError::new(code, "as the test says"));
        }
        let old_before = replica.old_before.get(request.operation.command().name());
        if request
            .epoch
            .is_some_and(|epoch| old_before.is_some_and(|&before| epoch.get() < before))
        {
            return ReplicaReply::Error(ReplicaError::new(ReplicaErrorCode::OldTable, "as the test says"));
        }
        if let ReplicaOperation::Hint { target, .. } = &request.operation {
            assert_ne!(*target, node, "no node keeps a hint for itself");
        }
        let (records, hints, dots) = (&mut replica.records, &mut replica.hints, &mut replica.dots);
        carry_out(records, hints, dots, request.operation, flaw)
    }

    /// Runs until an outcome arrives or the next timer is due; `None` if there is nothing to wait for. Returns the
    /// operations that were answered by it.
    pub fn step(&mut self) -> Option<Vec<usize>> {
        let open = |running: &Running| !running.operation.is_over();
        let timer = self.running.iter().filter(|running| open(running));
        let timer = timer.map(|running| running.operation.wake_at_us()).min();
        let event = self.events.next_at();
        // An operation that was answered at its start is reported first.
        let is_untold = |running: &Running| running.operation.is_answered() && !running.is_told;
        let next_us = match (timer, event) {
            _ if self.running.iter().any(is_untold) => self.now_us,
            (None, _) => return None,
            (Some(timer), event) => timer.min(event.unwrap_or(u64::MAX)),
        };
        self.now_us = self.now_us.max(next_us);
        while self.events.next_at().is_some_and(|at_us| at_us <= self.now_us) {
            let (_, _, event) = self.events.take().unwrap();
            if let Event::Request(at, id, node, request) = event {
                let reply = self.serve(node, *request);
                self.schedule(100, Event::Reply(at, id, reply));
                continue;
            }
            let env = self.caller.env(self.now_us, unix_ms(self.now_us));
            let at = match event {
                Event::Request(..) => continue,
                Event::Reply(at, id, reply) => {
                    self.running[at].operation.on_reply(id, reply, &env);
                    at
                }
                Event::Failure(at, id, failure) => {
                    self.running[at].operation.on_failure(id, failure, &env);
                    at
                }
            };
            self.send(at);
        }
        for at in 0..self.running.len() {
            let running = &mut self.running[at];
            if !running.operation.is_over() && self.now_us >= running.operation.wake_at_us() {
                let env = self.caller.env(self.now_us, unix_ms(self.now_us));
                running.operation.on_time(&env);
                let running = &self.running[at];
                assert!(
                    running.operation.is_over() || running.operation.wake_at_us() > self.now_us,
                    "a timer that was due is due again"
                );
                self.send(at);
            }
        }
        let mut answered = Vec::new();
        for (at, running) in self.running.iter_mut().enumerate() {
            while running.operation.take_suspended().is_some() {}
            let lasted_us = self.now_us - running.began_us;
            if running.operation.is_answered() && !std::mem::replace(&mut running.is_told, true) {
                assert!(lasted_us <= DEADLINE_US, "answered after {lasted_us} us");
                answered.push(at);
            }
            assert!(
                running.operation.is_answered() || lasted_us < DEADLINE_US,
                "not answered after {lasted_us} us"
            );
            assert!(
                running.operation.is_over() || lasted_us < DEADLINE_US + AFTERWARDS_US,
                "not over after {lasted_us} us"
            );
        }
        Some(answered)
    }

    /// Runs until all operations are over.
    pub fn finish(&mut self) {
        while self.step().is_some() {}
    }

    /// Makes one replica take a write over its record, without any other replica. Returns its context afterwards.
    pub fn write_at(&mut self, number: u32, key: &WireKey, update: Update) -> VectorClock {
        let replica = self.replica(number);
        let (key, nothing) = (Bytes::copy_from_slice(key.key()), VectorClock::new());
        let record = Record::write(
            replica.records.get(&key),
            &mut replica.dots,
            Over::All(&nothing),
            update,
        )
        .unwrap();
        let context = record.context().clone();
        replica.records.insert(key, record);
        context
    }

    /// Makes replicas carry out all late requests, though no operation waits for them.
    pub fn catch_up(&mut self) {
        while let Some((_, _, event)) = self.events.take() {
            if let Event::Request(_, _, node, request) = event {
                self.serve(node, *request);
            }
        }
    }

    /// Runs until an operation is answered.
    pub fn answer(&mut self, at: usize) {
        while !self.running[at].operation.is_answered() {
            self.step().unwrap();
        }
    }

    /// How many nodes have a write, including keepers of hints if hints count.
    pub fn holders(&self, key: &WireKey, context: &VectorClock, with_hints: bool) -> usize {
        let has = |record: &Record| record.context().covers_all(context);
        let holds = |replica: &&Replica| {
            let mut hints = replica.hints.iter().filter(|((_, hinted), _)| **hinted == *key.key());
            replica.records.get(key.key()).is_some_and(has) || (with_hints && hints.any(|(_, record)| has(record)))
        };
        self.replicas.values().filter(holds).count()
    }

    /// The merged record of a key on all nodes: the state after all hints are delivered and all replicas are compared.
    pub fn healed(&self, key: &WireKey) -> Record {
        let mut healed = Record::default();
        for replica in self.replicas.values() {
            if let Some(record) = replica.records.get(key.key()) {
                healed = healed.merge(record);
            }
            for ((_, hinted), record) in &replica.hints {
                if **hinted == *key.key() {
                    healed = healed.merge(record);
                }
            }
        }
        healed
    }
}

impl Asked {
    /// The nodes that got this command, in order.
    pub fn nodes(&self, command: ReplicaCommand) -> Vec<u32> {
        let asked = self.list.iter().filter(|(_, of, _)| *of == command);
        asked.map(|(node, ..)| node.get()).collect()
    }

    /// Keepers and targets of the hints.
    pub fn hints(&self) -> Vec<(u32, u32)> {
        let hint = |(node, _, operation): &(NodeId, ReplicaCommand, ReplicaOperation)| match operation {
            ReplicaOperation::Hint { target, .. } => Some((target.get(), node.get())),
            _ => None,
        };
        self.list.iter().filter_map(hint).collect()
    }
}

fn unix_ms(now_us: u64) -> u64 {
    1_700_000_000_000 + now_us / 1000
}
