//! Writing at a quorum: one value, or one tombstone, under one key.
//!
//! One replica takes the write first: it gives the value a dot, and answers the record that comes of it. That is
//! then merged by all other replicas, and the write is done when as many as the store requires have it. So that a
//! write covers all that were acknowledged before, however wrong clocks are, a read quorum of replicas is asked
//! before what they have seen, and the write takes the place of that and of nothing else. For a replica that does
//! not take the record, another node keeps it as a hint.
//!
//! A replica that is slow to take the write may do so after another one was asked to and the write was acknowledged.
//! Then it is there twice. All are given the same context and the same time, so the late copy takes the place of
//! nothing that came since, and is older than whatever took the place of the write. Only where a partition has one
//! replica, that one is told to write over all that it holds, without having been asked before: so nobody else is
//! asked to take such a write as long as it may.
//!
//! What happens before the write is taken is in `prepare`, what after it in `spread`, what comes from outside in
//! `events`.
//!
//! While a plan changes who has the partition, those who will have it, or had it, take the record as well, and the
//! write is done when it is so by both tables: then it is read at a quorum of the one as of the other. By which tables
//! is decided anew when it is done, as they are known then. A replica that knows better refuses to be counted: then
//! the write waits for a newer topology, and goes on by that.
//!
//! The invariants: who is told that a write is done has it on `writes` nodes, each another one; no
//! replica is asked twice to take it first, unless it was no replica the first time; what is to be made once is not
//! given to another replica while one may have taken it, though it be none any more; one that fails is never
//! reported as done, though it may be on some nodes, and come to the others later.

mod events;
mod known;
mod prepare;
mod spread;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::versioned::{Update, VectorClock};
use fondaco_model::{NodeId, PartitionId};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::PutOver;
use smallvec::SmallVec;

use super::counts::count;
use super::micros;
use super::no_quorum::{NoQuorum, QuorumPart, ReplicaFailures};
use super::replicas::{Home, Nodes, Store, is_well};
use crate::asks::{Asks, NEVER};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::operation::Moment;

/// For how long hints are stored after the deadline of the write: it is answered by then.
const HINT_TIME_US: u64 = 1_000_000;

/// What a write takes the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Of all that was acknowledged before.
    All,
    /// Of what this context covers, and of nothing else.
    Context(VectorClock),
    /// Of all that is there, on condition that this context covers it; else [`ClientError::Conflict`].
    Unchanged(VectorClock),
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What its maker knew, and this write: a write with this context takes its place. Where values stand beside it
    /// that the maker never saw, and that no context tells from it, only what its maker knew.
    pub context: VectorClock,
}

/// How long a write may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTimes {
    /// Until it is acknowledged.
    pub deadline: Duration,
    /// Until a replica that does not answer is counted on no more; a quarter of the deadline unless said.
    pub attempt: Option<Duration>,
}

/// A write of one key at the quorum of its store.
#[derive(Debug)]
pub struct Write {
    key: WireKey,
    store: Store,
    partition: PartitionId,
    home: Arc<Home>,
    intent: Intent,
    update: Update,
    deadline_us: u64,
    /// The epoch of the routing table that says who the replicas are.
    epoch: u64,
    /// The replicas, in the order in which they are asked to take the write; then those that a plan makes replicas, or
    /// has made none.
    owners: SmallVec<[Owner; 4]>,
    /// Those of them that are replicas now.
    current: Nodes,
    /// Those that a plan makes replicas, or has made none, if they are others.
    joint: Option<Nodes>,
    asks: Asks<Purpose>,
    /// What the writer, and the replicas that told it, have seen. It stays as it is while a replica may take it.
    context: VectorClock,
    /// The replicas that were asked to take the write first, those that are none any more included.
    tries: SmallVec<[Try; 2]>,
    /// The record that came of the write, once a replica has taken it.
    record: Option<Bytes>,
    /// What who made the write is told to know then.
    known: VectorClock,
    /// Nodes that keep a hint.
    keepers: SmallVec<[NodeId; 1]>,
    replica_failures: ReplicaFailures,
    /// A replica said that it is none: the topology is old.
    in_flux: bool,
    backoff: Backoff,
    /// When it is done although fewer than preferred have it.
    settle_at_us: u64,
    outcome: Outcome,
}

/// Whether the caller has what it waits for.
#[derive(Debug)]
enum Outcome {
    Open,
    Ready(Result<Written, ClientError>),
    Taken,
}

/// Why a replica is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// What it has seen of the key.
    Context,
    /// To take the write first.
    Put { over: PutOver },
    /// To take the record.
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
    /// It cannot store the write, for a reason of its own: its disk is full, or what it has of the key is damaged.
    is_unable: bool,
}

/// What became of a write at a replica that was asked to take it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may have taken it, or do so yet.
    Unknown,
    /// It has not, and will not.
    Refused,
    /// It is no replica by what it knows: by a newer topology it may be asked again.
    Elsewhere,
}

/// How far a replica is with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unasked,
    Asked,
    /// Asked, and counted on no more; it may still do it.
    Late,
    Done,
    Failed,
    /// It will never be done, and need not be.
    Moot,
}

impl Write {
    /// Begins to write.
    ///
    /// # Errors
    /// Whatever is wrong with the key's store.
    pub fn start(
        key: WireKey,
        intent: Intent,
        update: Update,
        times: WriteTimes,
        home: Arc<Home>,
        moment: &Moment<'_>,
    ) -> Result<Self, ClientError> {
        let store = Store::of(moment.latest, key.store())?;
        count(&moment.counts.writes);
        moment.steering.deposit();
        let whole_us = micros(times.deadline);
        let mut write = Self {
            partition: moment.latest.topology().partitions.partition_of(key.slot()),
            key,
            store,
            home,
            deadline_us: moment.now_us.saturating_add(whole_us),
            epoch: 0,
            owners: SmallVec::new(),
            current: Nodes::new(),
            joint: None,
            asks: Asks::new(times.attempt.map_or(whole_us / 4, micros)),
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
        write.find_owners(moment);
        write.advance(moment);
        Ok(write)
    }

    /// What came of it. To be taken once, when the operation is answered.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`], [`ClientError::Conflict`], [`ClientError::Refused`], or
    /// [`ClientError::UnknownStore`] when the store was dropped meanwhile.
    pub fn take_answer(&mut self) -> Result<Written, ClientError> {
        match std::mem::replace(&mut self.outcome, Outcome::Taken) {
            Outcome::Ready(answer) => answer,
            // `is_answered` says when it is there; who asks too early, or again, is told so.
            Outcome::Open | Outcome::Taken => Err(ClientError::Timeout { deadline_ms: 0 }),
        }
    }

    /// How many requests to replicas there are, those to be sent included.
    pub fn requests(&self) -> u32 {
        self.asks.len()
    }

    fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open)
    }

    /// Takes the owners that the newest directory tells of. What is known of those that were owners before stays,
    /// but for their failures.
    fn find_owners(&mut self, moment: &Moment<'_>) {
        let mut nodes = self.store.owners(moment.latest, self.partition);
        match self.intent {
            // So that all who change the key meet at one replica, and one of them sees that another was first.
            Intent::Unchanged(_) => nodes.sort_by_key(|&node| !is_well(moment.latest, node)),
            Intent::All | Intent::Context(_) => self.home.nearest_first(&mut nodes, moment.latest),
        }
        self.epoch = moment.latest.topology().epoch;
        self.current.clone_from(&nodes);
        self.joint = self.store.joint_owners(moment.latest, self.partition);
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

    /// Those of whom a quorum must have the record, each for itself.
    fn groups(&self) -> impl Iterator<Item = &Nodes> {
        std::iter::once(&self.current).chain(&self.joint)
    }

    /// Does what is next, after anything has come.
    fn advance(&mut self, moment: &Moment<'_>) {
        // Nothing is acknowledged by a table that is known to be old.
        if self.is_open() && self.epoch != moment.latest.topology().epoch {
            self.find_owners(moment);
        }
        if self.backoff.is_on() {
            return;
        }
        match self.record {
            None if self.is_open() => self.prepare(moment),
            None => {}
            Some(_) => self.spread(moment),
        }
    }

    /// Enough have the record.
    fn succeed(&mut self) {
        let context = std::mem::take(&mut self.known);
        self.outcome = Outcome::Ready(Ok(Written { context }));
        self.settle_at_us = NEVER;
    }

    /// It fails; what is under way is no longer heard.
    fn fail(&mut self, error: ClientError) {
        debug_assert!(self.is_open());
        self.outcome = Outcome::Ready(Err(error));
        self.settle_at_us = NEVER;
        self.backoff.end();
        self.asks.end_all();
    }

    /// There are not enough replicas: it waits for a newer topology if that may help, else it fails.
    fn come_short(&mut self, part: QuorumPart, moment: &Moment<'_>) {
        match self.in_flux {
            true => self.backoff.begin(moment.now_us),
            false => self.fail_short(part, moment),
        }
    }

    /// There are not enough replicas.
    fn fail_short(&mut self, part: QuorumPart, moment: &Moment<'_>) {
        count(&moment.counts.no_quorum);
        let settings = &self.store.settings;
        let did = |owner: &Owner| match part {
            QuorumPart::Reads => owner.seen == Step::Done,
            QuorumPart::Writes => owner.kept == Step::Done,
        };
        let is_short = |group: &&Nodes| !self.is_quorum(self.holders(group), moment);
        let group = match part {
            QuorumPart::Reads => None,
            QuorumPart::Writes => self.groups().find(is_short),
        };
        let group = group.unwrap_or(&self.current);
        let in_group = |owner: &&Owner| group.contains(&owner.node);
        let (mut had, required, zones_required): (Nodes, u32, u32) = match part {
            QuorumPart::Reads => (Nodes::new(), settings.reads, 0),
            QuorumPart::Writes => (self.holders(group), settings.writes, settings.zone_writes),
        };
        // A replica that may still do it is not missing: the write fails early because it would not be enough.
        let is_late = moment.now_us >= self.deadline_us;
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
            had: had.len() as u32,
            required,
            zones_had: self.home.other_zones(had.iter().copied(), moment.latest),
            zones_required,
            zones_missing: self.home.zones_missing(&missing, &others, moment.latest),
            missing: self.replica_failures.missing(missing.into_iter(), asked, moment.latest),
        };
        self.fail(ClientError::NoQuorum(Arc::new(shortfall)));
    }

    /// When nothing is waited for any more: hints may still be stored when the caller has its answer.
    fn ends_at_us(&self) -> u64 {
        match self.is_open() {
            true => self.deadline_us,
            false => self.deadline_us.saturating_add(HINT_TIME_US),
        }
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
