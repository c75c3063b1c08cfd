//! Reads at a quorum: keys of one or several versioned stores, in one operation.
//!
//! Each key is read from as many replicas as its store prefers, the nearest first, and from further ones as these fail
//! or are late, until as many have answered as the store requires. Their records are merged. Replicas that answered an
//! older record are then sent the merged record: read repair.
//!
//! If all replicas have the same record, it travels once:
//!
//! - The replica in the coordinator's own process mostly answers at once. Replicas asked after the first answer receive
//!   its digest, and send their record only if it differs.
//! - Of the replicas that are asked at the same time, and are all needed, the nearest sends the record, and the others
//!   its digest. A replica with another digest is then asked for its record; so is another replica if the nearest
//!   fails.
//!
//! The invariants:
//!
//! - A node is asked for the record of a key once, until a newer topology makes it worth asking again, or it left the
//!   key out of an answer that was full.
//! - Every key is answered by the deadline.
//! - The answer is the merged records of `reads` replicas, each on another node.
//!
//! A set of a versioned graph, whose members are records of their own, is read in the same way: replicas answer the members that
//! they have and those that they know to be removed, and both are united. Digests, hedging and read repair are of records only: to
//! read a set takes as long as it is large, also elsewhere.
//!
//! `plan` decides which nodes are asked, `events` takes what comes from outside, `digests` handles digests, and
//! `repair` the read repair.

mod digests;
mod events;
mod plan;
mod repair;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fondaco_ids::Members;
use fondaco_model::NodeId;
use fondaco_model::versioned::Record;
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{KeyRecord, RecordPart};
use smallvec::SmallVec;

use self::plan::Cause;
use super::counts::count;
use super::no_quorum::{NoQuorum, QuorumPart, ReplicaFailures};
use super::replicas::{Home, Nodes, Store};
use super::{PREFERRED_WAIT_US, micros};
use crate::asks::{Asks, NEVER};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::operation::{Environment, Operation};
use crate::options::{Partial, ReadOptions};
use crate::read::{HeldBudget, KEYS_MAX};

/// Indices of keys in the operation.
type KeyPlaces = SmallVec<[u32; 4]>;

/// The question to a replica about each of several keys.
type Questions = SmallVec<[Question; 1]>;

/// A read of keys at the quorums of their stores.
#[derive(Debug)]
pub struct Get {
    keys: Arc<Vec<WireKey>>,
    /// The part that is read of each key: its record, or the members of its set.
    part: RecordPart,
    options: ReadOptions,
    home: Arc<Home>,
    /// A node that is asked before all others, if it has the key.
    first: Option<NodeId>,
    deadline_us: u64,
    /// The epoch of the routing table that determines the replicas.
    epoch: u64,
    stores: SmallVec<[Store; 1]>,
    states: SmallVec<[KeyState; 1]>,
    asks: Asks<Purpose>,
    unanswered: usize,
    /// When to answer keys that have enough answers, but fewer than preferred.
    settle_at_us: u64,
    backoff: Backoff,
    failed: Option<ClientError>,
    is_repaired: bool,
    /// The records' share of the memory limit.
    room: HeldBudget,
}

/// Why a replica is asked.
#[derive(Debug)]
enum Purpose {
    /// To read its records.
    Read {
        store: u16,
        keys: KeyPlaces,
        /// The question about each of these keys.
        questions: Questions,
        /// Whether its latency is a sample for the threshold: requests made when others fail are not.
        teaches: bool,
        cause: Cause,
    },
    /// To store records.
    Repair { store: u16, records: Vec<KeyRecord> },
}

/// A question to a replica about a key.
#[derive(Debug, Clone)]
enum Question {
    /// The record.
    Record,
    /// The record, if it differs from the one with this digest, which another replica answered.
    Other(Bytes),
    /// The digest of the record: another replica is asked for the whole record.
    Digest,
}

/// The state of one key.
#[derive(Debug, Default)]
struct KeyState {
    store: u16,
    /// Nodes that may still be asked, the next one last.
    candidates: Nodes,
    /// Nodes that are asked and expected to answer.
    pending: Nodes,
    /// Nodes that are asked and no longer expected to answer.
    given_up: Nodes,
    /// Nodes that lost ownership after they were asked: their answers are merged but do not count towards the quorum.
    former: Nodes,
    /// A node that is asked for the record, and expected to answer.
    teller: Option<NodeId>,
    /// Nodes that answered only the digest of their record. They stay in `pending` until another node has answered a
    /// record.
    told: SmallVec<[(NodeId, u64); 1]>,
    answers: SmallVec<[Answer; 3]>,
    /// The merged records of all answers.
    merged: Record,
    /// The members that all answers know of, if members are read.
    members: Option<Box<Members>>,
    replica_failures: ReplicaFailures,
    /// It waits for a newer topology, or for nodes to catch up.
    waiting: bool,
    in_flux: bool,
    outcome: Option<Result<(), ClientError>>,
}

/// One replica's record of a key.
#[derive(Debug)]
struct Answer {
    node: NodeId,
    record: Option<Bytes>,
}

impl Get {
    /// Begins to read keys. `first` is asked before all other replicas.
    ///
    /// # Errors
    /// [`ClientError::TooManyKeys`]; and with [`Partial::Fail`] any error of a key's store.
    pub fn start(
        keys: Arc<Vec<WireKey>>,
        options: ReadOptions,
        home: Arc<Home>,
        first: Option<NodeId>,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        let mut get = Self::new(keys, RecordPart::Full, (options, home), env);
        get.first = first;
        get.begin(env)
    }

    /// Begins to read the members of sets, whose keys these are.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn members(
        keys: Arc<Vec<WireKey>>,
        options: ReadOptions,
        home: Arc<Home>,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        Self::new(keys, RecordPart::Members, (options, home), env).begin(env)
    }

    fn new(
        keys: Arc<Vec<WireKey>>,
        part: RecordPart,
        (options, home): (ReadOptions, Arc<Home>),
        env: &Environment<'_>,
    ) -> Self {
        let whole_us = micros(options.deadline);
        Self {
            asks: Asks::new(options.attempt.map_or(whole_us / 2, micros)),
            deadline_us: env.now_us.saturating_add(whole_us),
            epoch: env.latest.topology().epoch,
            unanswered: keys.len(),
            keys,
            part,
            room: HeldBudget::of(options.room.clone()),
            options,
            home,
            first: None,
            stores: SmallVec::new(),
            states: SmallVec::new(),
            settle_at_us: NEVER,
            backoff: Backoff::default(),
            failed: None,
            is_repaired: false,
        }
    }

    fn begin(mut self, env: &Environment<'_>) -> Result<Self, ClientError> {
        if self.keys.len() > KEYS_MAX {
            return Err(ClientError::TooManyKeys {
                keys: self.keys.len(),
                keys_max: KEYS_MAX,
            });
        }
        env.counts.reads.fetch_add(self.keys.len() as u64, Relaxed);
        self.resolve(env);
        self.plan_all(Cause::First, env);
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// The answer: for each key the merged record of the replicas, or why it is unknown. Call it once, when the
    /// operation is answered.
    ///
    /// # Errors
    /// With [`Partial::Fail`], the error of a key that has no answer.
    pub fn take_answer(&mut self) -> Result<Vec<Result<Record, ClientError>>, ClientError> {
        self.answers(|state| std::mem::take(&mut state.merged))
    }

    /// The answer of [`members`](Self::members): for each key the members that the replicas know of, or why they are unknown.
    ///
    /// # Errors
    /// As [`take_answer`](Self::take_answer).
    pub fn take_members(&mut self) -> Result<Vec<Result<Members, ClientError>>, ClientError> {
        self.answers(|state| state.members.take().map_or_else(Members::default, |members| *members))
    }

    fn answers<T>(&mut self, take: impl Fn(&mut KeyState) -> T) -> Result<Vec<Result<T, ClientError>>, ClientError> {
        debug_assert!(self.is_answered());
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let taken = |state: &mut KeyState| match state.outcome.take() {
            Some(Ok(())) => Ok(take(state)),
            Some(Err(error)) => Err(error),
            // Before `is_answered` holds there is no answer: calling too early gets this error.
            None => Err(ClientError::Timeout { deadline_ms: 0 }),
        };
        Ok(self.states.iter_mut().map(taken).collect())
    }

    /// The records' share of the memory limit: take it with the records, and drop it with them.
    pub fn take_room(&mut self) -> HeldBudget {
        std::mem::take(&mut self.room)
    }

    /// The number of requests to replicas, unsent ones included.
    pub fn requests(&self) -> u32 {
        self.asks.len()
    }

    /// Finds the store of every key.
    fn resolve(&mut self, env: &Environment<'_>) {
        let (keys, directory) = (Arc::clone(&self.keys), env.latest);
        for (place, key) in keys.iter().enumerate() {
            let known = self.stores.iter().rposition(|store| store.name.as_str() == key.store());
            let store = match known {
                Some(known) => Ok(known),
                None => Store::of(directory, key.store()).map(|store| {
                    self.stores.push(store);
                    self.stores.len() - 1
                }),
            };
            self.states.push(KeyState::default());
            match store {
                Ok(store) => {
                    self.states[place].store = store as u16;
                    self.find_candidates(place, env);
                }
                Err(error) => self.fail(place, error),
            }
        }
    }

    fn find_candidates(&mut self, key: usize, env: &Environment<'_>) {
        let state = &self.states[key];
        let store = &self.stores[usize::from(state.store)];
        let mut nodes = store.owners(env.latest, self.keys[key].slot());
        self.home.nearest_first(&mut nodes, env.latest);
        if let Some(place) = nodes.iter().position(|&node| Some(node) == self.first) {
            nodes[..=place].rotate_right(1);
        }
        let state = &mut self.states[key];
        // A quorum mixed from two tables is not a quorum.
        state.answers.retain(|answer| nodes.contains(&answer.node));
        state.former.retain(|node| !nodes.contains(node));
        // Nodes that answered only a digest are asked again.
        for (node, _) in state.told.drain(..) {
            state.pending.retain(|pending| *pending != node);
        }
        for asked in [&mut state.pending, &mut state.given_up] {
            state
                .former
                .extend(asked.iter().copied().filter(|node| !nodes.contains(node)));
            asked.retain(|node| nodes.contains(node));
        }
        nodes.retain(|node| {
            let answered = state.answers.iter().any(|answer| answer.node == *node);
            !answered && !state.pending.contains(node) && !state.given_up.contains(node)
        });
        nodes.reverse();
        state.candidates = nodes;
    }

    /// Answers a key if it has enough answers by now, or can no longer get them.
    fn check(&mut self, key: usize, env: &Environment<'_>) {
        let state = &self.states[key];
        if state.outcome.is_some() {
            return;
        }
        let settings = &self.stores[usize::from(state.store)].settings;
        if self.has_enough(key, env) {
            if state.answers.len() as u32 >= settings.preferred_reads || state.pending.is_empty() {
                return self.succeed(key, env);
            }
            self.settle_at_us = self.settle_at_us.min(env.now_us.saturating_add(PREFERRED_WAIT_US));
            return;
        }
        let answered = state.answers.iter().map(|answer| answer.node);
        let open = answered
            .chain(state.pending.iter().copied())
            .chain(state.given_up.iter().copied());
        let open: Nodes = open.collect();
        let count = open.len() as u32;
        if count >= settings.reads && self.home.other_zones(open, env.latest) >= settings.zone_reads {
            return;
        }
        if state.in_flux && !state.waiting {
            self.states[key].waiting = true;
            self.backoff.begin(env.now_us);
        } else if !state.in_flux {
            let error = self.no_quorum_error(key, env);
            self.fail(key, error);
        }
    }

    fn no_quorum_error(&self, key: usize, env: &Environment<'_>) -> ClientError {
        let state = &self.states[key];
        if let Some(refusal) = state.replica_failures.refusal() {
            return refusal;
        }
        count(&env.counts.no_quorum);
        let store = &self.stores[usize::from(state.store)];
        // A digest counts as an answer here, though it does not suffice without a record.
        let told = state.told.iter().map(|&(node, _)| node);
        let answered: Nodes = state.answers.iter().map(|answer| answer.node).chain(told).collect();
        let has_answered = |node: NodeId| answered.contains(&node);
        let owners = store.owners(env.latest, self.keys[key].slot());
        // A replica that may still answer is not missing: the read fails early because that answer would not be enough.
        let is_late = env.now_us >= self.deadline_us;
        let is_missing = |node: NodeId| !has_answered(node) && (is_late || !state.pending.contains(&node));
        let (silent, had): (Nodes, Nodes) = owners.into_iter().partition(|&node| is_missing(node));
        let asked = |node: NodeId| state.pending.contains(&node) || state.given_up.contains(&node);
        ClientError::NoQuorum(Arc::new(NoQuorum {
            part: QuorumPart::Reads,
            of_write: None,
            had: had.len() as u32,
            required: store.settings.reads,
            zones_had: self.home.other_zones(had.iter().copied(), env.latest),
            zones_required: store.settings.zone_reads,
            zones_missing: self.home.zones_missing(&silent, &had, env.latest),
            missing: state.replica_failures.missing(silent.into_iter(), asked, env.latest),
        }))
    }

    /// When it ends at the latest.
    pub(super) fn deadline_us(&self) -> u64 {
        self.deadline_us
    }

    fn succeed(&mut self, key: usize, env: &Environment<'_>) {
        let state = &mut self.states[key];
        if state.merged.siblings().len() > 1 {
            count(&env.counts.siblings);
        }
        debug_assert!(state.outcome.is_none());
        state.outcome = Some(Ok(()));
        state.waiting = false;
        self.unanswered -= 1;
    }

    fn fail(&mut self, key: usize, error: ClientError) {
        if self.options.partial == Partial::Fail {
            self.failed.get_or_insert_with(|| error.clone());
        }
        let state = &mut self.states[key];
        debug_assert!(state.outcome.is_none());
        state.outcome = Some(Err(error));
        state.waiting = false;
        self.unanswered -= 1;
    }

    fn has_enough(&self, key: usize, env: &Environment<'_>) -> bool {
        let state = &self.states[key];
        let settings = &self.stores[usize::from(state.store)].settings;
        let answered = state.answers.iter().map(|answer| answer.node);
        state.answers.len() as u32 >= settings.reads
            && self.home.other_zones(answered, env.latest) >= settings.zone_reads
    }
}
