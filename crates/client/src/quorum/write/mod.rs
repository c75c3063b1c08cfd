//! Writes at a quorum: one value or tombstone of one key.
//!
//! One replica takes the write first: it gives the value a dot, and answers the resulting record. All other replicas
//! then merge this record, and the write is done when as many as the store requires have it. A write must cover all
//! that were acknowledged before, however wrong clocks are. Therefore a read quorum of replicas is first asked for
//! contexts, and the write replaces what these cover and nothing else. For a replica that does not take the record,
//! another node keeps a hint.
//!
//! A slow replica may take the write after another one was asked and the write was acknowledged. Then the write exists
//! twice. All replicas get the same context and time, so the late copy replaces nothing newer, and is older than
//! anything that replaced the write. If a partition has only one replica, that replica overwrites its whole record
//! without being asked for a context first: therefore no other replica is asked to take such a write as long as the
//! first may still take it.
//!
//! `prepare` covers the time before the write is taken, `spread` the time after, `events` the events from outside.
//!
//! While a plan changes the owners of the partition, the next or former owners take the record as well, and the write
//! is done when both tables have a quorum: it can then be read at a quorum of either. The tables are those known when
//! the write is done. A replica that knows a newer table refuses to be counted: the write then waits for the newer
//! topology, and continues under it.
//!
//! The invariants:
//!
//! - A write reported as done is on `writes` distinct nodes.
//! - No replica is asked twice to take it first, unless it was not a replica the first time.
//! - A write that must be made once is not given to another replica while one may have taken it, even one that has lost
//!   ownership.
//! - A failed write is never reported as done, though it may be on some nodes, and spread to the others later.

mod events;
mod known;
mod prepare;
mod spread;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{Change, Quorums, Update, VectorClock};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::PutOver;
use smallvec::SmallVec;

use super::counts::count;
use super::micros;
use super::no_quorum::{NoQuorum, QuorumPart, ReplicaFailures, WriteFate};
use super::replicas::{Home, Nodes, Store, is_well};
use crate::asks::{Asks, NEVER};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::link::LONG_BYTES;
use crate::operation::Environment;

/// How long hints are stored after the deadline of the write, by which it is answered.
const HINT_TIME_US: u64 = 1_000_000;

/// The values that a write replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// All values that were acknowledged before.
    All,
    /// The values that this context covers, and nothing else.
    Context(VectorClock),
    /// Everything, on condition that this context covers it; else [`ClientError::Conflict`].
    Unchanged(VectorClock),
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The caller's context and this write: a write with this context replaces it. If unseen siblings exist that no
    /// context can exclude, only the caller's old context.
    pub context: VectorClock,
}

/// How long a write may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTimes {
    /// Until it must be acknowledged.
    pub deadline: Duration,
    /// Until a replica that does not answer no longer counts; a quarter of the deadline by default.
    pub attempt: Option<Duration>,
}

/// A write of one key at the quorum of its store.
#[derive(Debug)]
pub struct Write {
    key: WireKey,
    store: Store,
    home: Arc<Home>,
    intent: Intent,
    update: Update,
    deadline_us: u64,
    /// The epoch of the routing table that determines the replicas.
    epoch: u64,
    /// The replicas, in the order in which they are asked to take the write; then the next or former replicas under a
    /// plan.
    owners: SmallVec<[Owner; 4]>,
    /// The current replicas among the owners.
    current: Nodes,
    /// The next or former replicas under a plan, if they differ.
    joint: Option<Nodes>,
    asks: Asks<Purpose>,
    /// The merged contexts of the writer and of the replicas that answered theirs. It does not change while a replica
    /// may take the write.
    context: VectorClock,
    /// The replicas that were asked to take the write first, including those that lost ownership.
    tries: SmallVec<[Try; 2]>,
    /// The resulting record, once a replica has taken the write.
    record: Option<Bytes>,
    /// The context returned to the caller.
    known: VectorClock,
    /// Nodes that keep a hint.
    keepers: SmallVec<[NodeId; 1]>,
    replica_failures: ReplicaFailures,
    /// A replica answered that it is not one: the topology is old.
    in_flux: bool,
    backoff: Backoff,
    /// When it is done although fewer replicas than preferred have it.
    settle_at_us: u64,
    outcome: Outcome,
}

/// Whether the caller has its answer.
#[derive(Debug)]
enum Outcome {
    Open,
    Ready(Result<Written, ClientError>),
    Taken,
}

/// Replicas that must have a quorum with the record.
struct Group<'a> {
    nodes: &'a Nodes,
    quorums: Quorums,
}

/// Why a replica is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// For its context of the key.
    Context,
    /// To take the write first.
    Put { over: PutOver },
    /// To merge the record.
    Merge,
    /// To keep the record for another node.
    Hint { target: NodeId },
}

/// A replica of the key.
#[derive(Debug)]
struct Owner {
    node: NodeId,
    seen: Step,
    kept: Step,
    hint: Step,
}

/// A replica that was asked to take the write first.
#[derive(Debug)]
struct Try {
    node: NodeId,
    over: PutOver,
    fate: Fate,
    /// It cannot store the write for a local reason: its disk is full, or its record of the key is damaged.
    is_unable: bool,
}

/// The state of a write at a replica that was asked to take it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may have taken it, or may still do so.
    Unknown,
    /// It has not taken it, and will not.
    Refused,
    /// It does not consider itself a replica: under a newer topology it may be asked again.
    Elsewhere,
}

/// The progress of a replica with one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unasked,
    Asked,
    /// Asked, and no longer expected; it may still do it.
    Late,
    Done,
    Failed,
    /// It will never be done, and is not needed.
    Moot,
}

impl Write {
    /// Begins to write.
    ///
    /// # Errors
    /// Any error of the key's store.
    pub fn start(
        key: WireKey,
        intent: Intent,
        update: Update,
        times: WriteTimes,
        home: Arc<Home>,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        let store = Store::of(env.latest, key.store())?;
        count(&env.counts.writes);
        env.steering.deposit();
        let long_us = long_us(&update);
        // Two replicas one behind the other: one takes it, the others merge it.
        let whole_us = micros(times.deadline).saturating_add(2 * long_us);
        let mut write = Self {
            key,
            store,
            home,
            deadline_us: env.now_us.saturating_add(whole_us),
            epoch: 0,
            owners: SmallVec::new(),
            current: Nodes::new(),
            joint: None,
            asks: Asks::new(
                times
                    .attempt
                    .map_or(micros(times.deadline) / 4, micros)
                    .saturating_add(long_us),
            ),
            context: match &intent {
                Intent::All => VectorClock::default(),
                Intent::Context(context) | Intent::Unchanged(context) => context.clone(),
            },
            tries: SmallVec::new(),
            intent,
            update,
            record: None,
            known: VectorClock::default(),
            keepers: SmallVec::new(),
            replica_failures: ReplicaFailures::default(),
            in_flux: false,
            backoff: Backoff::default(),
            settle_at_us: NEVER,
            outcome: Outcome::Open,
        };
        write.find_owners(env);
        write.advance(env);
        Ok(write)
    }

    /// The result. Call it once, when the operation is answered.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`], [`ClientError::Conflict`], [`ClientError::Refused`], or [`ClientError::UnknownStore`]
    /// when the store was dropped meanwhile.
    pub fn take_answer(&mut self) -> Result<Written, ClientError> {
        match std::mem::replace(&mut self.outcome, Outcome::Taken) {
            Outcome::Ready(answer) => answer,
            // Calling before `is_answered`, or twice, gets this error.
            Outcome::Open | Outcome::Taken => Err(ClientError::Timeout { deadline_ms: 0 }),
        }
    }

    /// The number of requests to replicas, unsent ones included.
    pub fn requests(&self) -> u32 {
        self.asks.len()
    }

    fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open)
    }

    /// Takes the owners from the newest directory. The state of former owners stays, except for their failures.
    fn find_owners(&mut self, env: &Environment<'_>) {
        // With the quorums of the same table.
        if let Ok(store) = Store::of(env.latest, self.store.name.as_str())
            && store.id == self.store.id
        {
            self.store = store;
        }
        let mut nodes = self.store.owners(env.latest, self.key.slot());
        match self.intent {
            // All coordinators that change the key thus meet at one replica, which lets only the first one pass.
            Intent::Unchanged(_) => nodes.sort_by_key(|&node| !is_well(env.latest, node)),
            Intent::All | Intent::Context(_) => self.home.nearest_first(&mut nodes, env.latest),
        }
        self.epoch = env.latest.topology().epoch;
        self.current.clone_from(&nodes);
        self.joint = self.store.joint_owners(env.latest, self.key.slot());
        for &node in self.joint.iter().flatten() {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        self.tries.retain(|tried| tried.fate != Fate::Elsewhere);
        let mut former = std::mem::take(&mut self.owners);
        let owner = |node: NodeId| {
            let Some(place) = former.iter().position(|owner| owner.node == node) else {
                return Owner::new(node);
            };
            let mut owner = former.swap_remove(place);
            for step in [&mut owner.seen, &mut owner.kept, &mut owner.hint] {
                if matches!(step, Step::Failed | Step::Moot) {
                    *step = Step::Unasked;
                }
            }
            owner
        };
        self.owners = nodes.into_iter().map(owner).collect();
    }

    fn owner(&mut self, node: NodeId) -> Option<&mut Owner> {
        self.owners.iter_mut().find(|owner| owner.node == node)
    }

    /// The groups of replicas, each of which must have a quorum with the record.
    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let current = Group {
            nodes: &self.current,
            quorums: self.store.settings.quorums(self.current.len() as u32),
        };
        let joint = self.joint.iter().map(|nodes| Group {
            nodes,
            quorums: self.store.joint,
        });
        std::iter::once(current).chain(joint)
    }

    /// Takes the next steps after an event.
    fn advance(&mut self, env: &Environment<'_>) {
        // A write is never acknowledged under a table that is known to be old.
        if self.is_open() && self.epoch != env.latest.topology().epoch {
            self.find_owners(env);
        }
        if self.backoff.is_on() {
            return;
        }
        match self.record {
            None if self.is_open() => self.prepare(env),
            None => {}
            Some(_) => self.spread(env),
        }
    }

    /// Succeeds: enough replicas have the record.
    fn succeed(&mut self) {
        let context = std::mem::take(&mut self.known);
        self.outcome = Outcome::Ready(Ok(Written { context }));
        self.settle_at_us = NEVER;
    }

    /// Fails; outstanding answers are ignored.
    fn fail(&mut self, error: ClientError) {
        debug_assert!(self.is_open());
        self.outcome = Outcome::Ready(Err(error));
        self.settle_at_us = NEVER;
        self.backoff.end();
        self.asks.end_all();
    }

    /// There are not enough replicas: waits for a newer topology if that may help, otherwise fails.
    fn come_short(&mut self, part: QuorumPart, env: &Environment<'_>) {
        match self.in_flux {
            true => self.backoff.begin(env.now_us),
            false => self.fail_short(part, env),
        }
    }

    /// Fails: there are not enough replicas.
    fn fail_short(&mut self, part: QuorumPart, env: &Environment<'_>) {
        count(&env.counts.no_quorum);
        let settings = &self.store.settings;
        let did = |owner: &Owner| match part {
            QuorumPart::Reads => owner.seen == Step::Done,
            QuorumPart::Writes => owner.kept == Step::Done,
        };
        let is_short = |group: &Group<'_>| !self.is_quorum(&group.quorums, self.holders(group.nodes), env);
        let group = match part {
            QuorumPart::Reads => None,
            QuorumPart::Writes => self.groups().find(is_short),
        };
        let (group, quorums) = group.map_or((&self.current, settings.quorums(0)), |group| {
            (group.nodes, group.quorums)
        });
        let in_group = |owner: &&Owner| group.contains(&owner.node);
        let (mut had, required, zones_required): (Nodes, u32, u32) = match part {
            QuorumPart::Reads => (Nodes::new(), settings.reads, 0),
            QuorumPart::Writes => (self.holders(group), quorums.writes, quorums.zone_writes),
        };
        // A replica that may still do it is not missing: the write fails early because that replica would not be
        // enough.
        let is_late = env.now_us >= self.deadline_us;
        let is_asked = |owner: &Owner| match part {
            QuorumPart::Reads => owner.seen == Step::Asked,
            QuorumPart::Writes => owner.kept == Step::Asked,
        };
        let mut missing = Nodes::new();
        for owner in self.owners.iter().filter(in_group) {
            if !did(owner) && (is_late || !is_asked(owner)) {
                missing.push(owner.node);
            } else if !had.contains(&owner.node) {
                had.push(owner.node);
            }
        }
        let others = self.owners.iter().map(|owner| owner.node);
        let others = others.filter(|node| !missing.contains(node));
        let others: Nodes = others.chain(had.iter().copied()).collect();
        let is_of_part = |purpose: Purpose| match part {
            QuorumPart::Reads => purpose == Purpose::Context,
            QuorumPart::Writes => matches!(purpose, Purpose::Put { .. } | Purpose::Merge),
        };
        let asked = |node: NodeId| {
            let mut asks = self.asks.all();
            asks.any(|ask| ask.node == node && is_of_part(ask.purpose))
        };
        let shortfall = NoQuorum {
            part,
            of_write: Some(match self.record.is_some() || self.may_be_taken() {
                true => WriteFate::Unknown,
                false => WriteFate::NotDone,
            }),
            had: had.len() as u32,
            required,
            zones_had: self.home.other_zones(had.iter().copied(), env.latest),
            zones_required,
            zones_missing: self.home.zones_missing(&missing, &others, env.latest),
            missing: self.replica_failures.missing(missing.into_iter(), asked, env.latest),
        };
        self.fail(ClientError::NoQuorum(Arc::new(shortfall)));
    }

    /// The latest end of the operation: hints may still be stored after the caller has its answer.
    fn ends_at_us(&self) -> u64 {
        match self.is_open() {
            true => self.deadline_us,
            false => self.deadline_us.saturating_add(HINT_TIME_US),
        }
    }
}

/// How much longer a replica may take for a long value than for others, once it has come: to copy, write and sync it.
fn long_us(update: &Update) -> u64 {
    const BYTES_PER_US: usize = 8;
    match &update.change {
        Change::Put(value) if value.len() >= LONG_BYTES => (value.len() / BYTES_PER_US) as u64,
        _ => 0,
    }
}

impl Owner {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            seen: Step::Unasked,
            kept: Step::Unasked,
            hint: Step::Unasked,
        }
    }
}
