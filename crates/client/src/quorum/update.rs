//! Read-modify-write: read at a quorum, decide, and write on condition that nothing was written meanwhile; otherwise
//! try again.
//!
//! All coordinators ask one replica to take the write, the first healthy one of the routing table, which accepts one of
//! several concurrent changes. It is not a lock: while coordinators disagree about which nodes are healthy, two changes
//! may both pass. They are then siblings, like two concurrent writes. None is lost.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_model::NodeId;
use fondaco_model::versioned::{self, Record, Resolution, VectorClock};
use fondaco_protocol::WireKey;
use fondaco_protocol::replica::{ReplicaReply, ReplicaRequest};

use super::counts::count;
use super::get::Get;
use super::replicas::{Home, Store, is_well};
use super::write::{Intent, Write, WriteTimes};
use crate::asks::NEVER;
use crate::error::ClientError;
use crate::operation::{AskId, Described, Environment, Operation, Outgoing};
use crate::options::ReadOptions;
use crate::read::{Failure, HeldBudget, ValueBudget};

/// The limit of attempts of a change, each on the newest record.
const TRIES_MAX: u32 = 16;
/// The first backoff after a conflict; each further one is up to twice as long.
const REST_FIRST_US: u64 = 500;
const REST_LAST_US: u64 = 32_000;

/// The result of a change function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The key stays as it is: nothing is written.
    Keep,
    /// The key gets this value.
    Put {
        /// The value.
        value: Bytes,
        /// When the value expires.
        expiry: Expiry,
    },
    /// The key gets this value, in which some fields are new: in a store that resolves by field, the others keep the times
    /// of their writes.
    PutFields {
        /// The whole value.
        value: Bytes,
        /// The new fields, and those that were removed.
        fields: Box<[Box<str>]>,
        /// When the value expires.
        expiry: Expiry,
    },
    /// The key is deleted.
    Delete,
}

/// How additions to a counter between the read and the write are handled. In other stores, any write meanwhile is a
/// conflict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddedMeanwhile {
    /// They are a conflict: for changes that depend on the number.
    #[default]
    Conflicts,
    /// They stay, on top of the written number: for changes that do not depend on the number, and should not fail
    /// because of additions.
    Stays,
}

/// Options of a change.
#[derive(Debug, Clone)]
pub struct EditOptions {
    /// How long it may take, including the read.
    pub times: WriteTimes,
    /// How to handle concurrent additions to a counter.
    pub added: AddedMeanwhile,
    /// The memory limit for the values read, shared with other requests.
    pub room: Option<Arc<ValueBudget>>,
}

impl From<WriteTimes> for EditOptions {
    fn from(times: WriteTimes) -> Self {
        Self {
            times,
            added: AddedMeanwhile::default(),
            room: None,
        }
    }
}

/// When a value expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expiry {
    /// According to the settings of the store.
    #[default]
    Store,
    /// Never.
    Never,
    /// At this time, in milliseconds since 1970.
    At {
        /// The time.
        unix_ms: u64,
    },
}

/// The result of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// The record before the change.
    pub before: Record,
    /// The context after the change, which covers it; `None` if nothing was written.
    pub context: Option<VectorClock>,
}

/// Decides the change, given the record and the time in milliseconds since 1970. It may be called several times.
pub type Decide = Box<dyn FnMut(&Record, u64) -> Edit + Send>;

/// A change of one key.
pub struct Update {
    key: WireKey,
    options: EditOptions,
    home: Arc<Home>,
    decide: Decide,
    deadline_us: u64,
    phase: Phase,
    /// The id of the phase's first request.
    base: AskId,
    tries: u32,
    /// Source of the random backoff.
    random: fastrand::Rng,
    before: Option<Record>,
    /// The record's share of the memory limit.
    room: HeldBudget,
    outcome: Option<Result<Updated, ClientError>>,
    is_answered: bool,
}

/// The current phase.
enum Phase {
    Reading(Box<Get>),
    Writing(Box<Write>),
    Resting { until_us: u64 },
}

impl Expiry {
    /// The expiry of a value written now, in milliseconds since 1970, given the store's time to live; `None` for never.
    pub(crate) fn unix_ms(self, ttl_ms: Option<u64>, now_unix_ms: u64) -> Option<u64> {
        match self {
            Self::Store => ttl_ms.map(|ttl_ms| now_unix_ms.saturating_add(ttl_ms)),
            Self::Never => None,
            Self::At { unix_ms } => Some(unix_ms),
        }
    }
}

impl Update {
    /// Begins to change a key. The backoff between tries is drawn from `seed`.
    ///
    /// # Errors
    /// Any error of the key's store.
    pub fn start(
        key: WireKey,
        decide: Decide,
        options: EditOptions,
        home: Arc<Home>,
        seed: u64,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        let deadline_us = env.now_us.saturating_add(super::micros(options.times.deadline));
        let get = read(&key, &options, options.times, &home, env)?;
        Ok(Self {
            key,
            options,
            home,
            decide,
            deadline_us,
            phase: Phase::Reading(Box::new(get)),
            base: 0,
            tries: 1,
            random: fastrand::Rng::with_seed(seed),
            before: None,
            room: HeldBudget::default(),
            outcome: None,
            is_answered: false,
        })
    }

    /// The result. Call it once, when the operation is answered.
    ///
    /// # Errors
    /// [`ClientError::NoQuorum`]; [`ClientError::Conflict`] after too many conflicts.
    pub fn take_answer(&mut self) -> Result<Updated, ClientError> {
        debug_assert!(self.is_answered);
        let early = Err(ClientError::Timeout { deadline_ms: 0 });
        self.outcome.take().unwrap_or(early)
    }

    fn answer(&mut self, outcome: Result<Updated, ClientError>) {
        self.outcome = Some(outcome);
        self.is_answered = true;
    }

    /// The time left for the rest of the change.
    fn times_left(&self, env: &Environment<'_>) -> WriteTimes {
        let left_us = self.deadline_us.saturating_sub(env.now_us);
        WriteTimes {
            deadline: std::time::Duration::from_micros(left_us),
            attempt: self.options.times.attempt,
        }
    }

    /// Enters the next phase, if the current one is done.
    fn advance(&mut self, env: &Environment<'_>) {
        while !self.is_answered {
            let next = match &mut self.phase {
                Phase::Reading(get) if get.is_answered() => {
                    // Longer than at first if the record is long.
                    self.deadline_us = self.deadline_us.max(get.deadline_us());
                    let read = get.take_answer().map(|mut records| records.pop());
                    self.room = get.take_room();
                    // One key has one answer: a read yields as many as it has keys.
                    match read.and_then(|record| record.unwrap_or_else(|| Ok(Record::default()))) {
                        Ok(record) => self.write(record, env),
                        Err(ClientError::NoQuorum(shortfall)) => {
                            Err(ClientError::NoQuorum(Arc::new(shortfall.before_a_write())))
                        }
                        Err(error) => Err(error),
                    }
                }
                Phase::Writing(write) if write.is_answered() => match write.take_answer() {
                    Ok(written) => {
                        let before = self.before.take().unwrap_or_default();
                        let context = Some(written.context);
                        return self.answer(Ok(Updated { before, context }));
                    }
                    Err(ClientError::Conflict { .. }) if self.tries < TRIES_MAX => {
                        count(&env.counts.conflicts);
                        let rest_us = REST_FIRST_US.saturating_mul(1 << self.tries).min(REST_LAST_US);
                        self.tries += 1;
                        let until_us = env.now_us.saturating_add(self.random.u64(rest_us / 2..=rest_us));
                        Ok(Some(Phase::Resting { until_us }))
                    }
                    Err(error) => Err(error),
                },
                Phase::Resting { until_us } if env.now_us >= *until_us => {
                    self.room = HeldBudget::default();
                    let times = self.times_left(env);
                    read(&self.key, &self.options, times, &self.home, env)
                        .map(|get| Some(Phase::Reading(Box::new(get))))
                }
                _ => return,
            };
            match next {
                Ok(Some(phase)) => self.enter(phase),
                Ok(None) => {}
                Err(error) => self.answer(Err(error)),
            }
        }
    }

    /// Writes the decision about the record; `None` if it changes nothing.
    fn write(&mut self, record: Record, env: &Environment<'_>) -> Result<Option<Phase>, ClientError> {
        let now_unix_ms = env.now_unix_ms;
        let edit = (self.decide)(&record, now_unix_ms);
        let store = Store::of(env.latest, self.key.store())?;
        let context = record.context().clone();
        let is_counter = store.settings.resolution == Resolution::Counter;
        let set = |value, expires| versioned::Update::set_counter(&record, value, now_unix_ms, expires);
        let update = match edit {
            Edit::Keep => {
                let (before, context) = (record, None);
                self.answer(Ok(Updated { before, context }));
                return Ok(None);
            }
            Edit::Delete if is_counter => set(None, None),
            Edit::Delete => versioned::Update::delete(now_unix_ms),
            Edit::PutFields { value, fields, expiry } if store.settings.resolution == Resolution::Fields => {
                let expires = expiry.unix_ms(store.settings.ttl_ms, now_unix_ms);
                versioned::Update::put_fields(&record, value, &fields, now_unix_ms, expires)
            }
            Edit::Put { value, expiry } | Edit::PutFields { value, expiry, .. } => {
                let expires = expiry.unix_ms(store.settings.ttl_ms, now_unix_ms);
                match fondaco_resp::parse_integer(&value).filter(|_| is_counter) {
                    Some(number) => set(Some(number), expires),
                    None => versioned::Update::put(value, now_unix_ms, expires),
                }
            }
        };
        let sets_counter = matches!(update.change, versioned::Change::SetCounter { .. });
        let intent = match sets_counter && self.options.added == AddedMeanwhile::Stays {
            true => Intent::Context(context),
            false => Intent::Unchanged(context),
        };
        self.before = Some(record);
        let (key, home, times) = (self.key.clone(), Arc::clone(&self.home), self.times_left(env));
        let write = Write::start(key, intent, update, times, home, env)?;
        Ok(Some(Phase::Writing(Box::new(write))))
    }

    /// Enters a phase: outcomes of the previous one are ignored from now on.
    fn enter(&mut self, phase: Phase) {
        self.base += match &self.phase {
            Phase::Reading(get) => get.requests(),
            Phase::Writing(write) => write.requests(),
            Phase::Resting { .. } => 0,
        };
        self.phase = phase;
    }

    fn operation(&self) -> Option<&dyn Operation<Request = ReplicaRequest, Reply = ReplicaReply>> {
        match &self.phase {
            Phase::Reading(get) => Some(&**get),
            Phase::Writing(write) => Some(&**write),
            Phase::Resting { .. } => None,
        }
    }

    fn operation_mut(&mut self) -> Option<&mut dyn Operation<Request = ReplicaRequest, Reply = ReplicaReply>> {
        match &mut self.phase {
            Phase::Reading(get) => Some(&mut **get),
            Phase::Writing(write) => Some(&mut **write),
            Phase::Resting { .. } => None,
        }
    }
}

/// Reads a key to be changed. The replica that will take the write is asked first: a write that it has not seen cannot
/// cause a conflict.
fn read(
    key: &WireKey,
    options: &EditOptions,
    times: WriteTimes,
    home: &Arc<Home>,
    env: &Environment<'_>,
) -> Result<Get, ClientError> {
    let store = Store::of(env.latest, key.store())?;
    let owners = store.owners(env.latest, key.slot());
    let first = owners.iter().copied().find(|&node| is_well(env.latest, node));
    let options = ReadOptions {
        deadline: times.deadline,
        attempt: Some(times.attempt.unwrap_or(times.deadline / 4)),
        room: options.room.clone(),
        ..ReadOptions::default()
    };
    let keys = Arc::new(vec![key.clone()]);
    Get::start(keys, options, Arc::clone(home), first, env)
}

impl Operation for Update {
    type Request = ReplicaRequest;
    type Reply = ReplicaReply;

    fn described(&self) -> Option<Described<'_>> {
        Some(Described {
            name: "quorum update",
            store: self.key.store(),
            keys: 1,
        })
    }

    fn role(&self, id: AskId) -> &'static str {
        let id = id.saturating_sub(self.base);
        self.operation().map_or("", |operation| operation.role(id))
    }

    fn next_send(&mut self, env: &Environment<'_>) -> Option<Outgoing<ReplicaRequest>> {
        let base = self.base;
        let mut outgoing = self.operation_mut()?.next_send(env)?;
        outgoing.id += base;
        Some(outgoing)
    }

    fn on_reply(&mut self, id: AskId, reply: ReplicaReply, env: &Environment<'_>) {
        let Some(id) = id.checked_sub(self.base) else { return };
        if let Some(operation) = self.operation_mut() {
            operation.on_reply(id, reply, env);
        }
        self.advance(env);
    }

    fn on_failure(&mut self, id: AskId, failure: Failure, env: &Environment<'_>) {
        let Some(id) = id.checked_sub(self.base) else { return };
        if let Some(operation) = self.operation_mut() {
            operation.on_failure(id, failure, env);
        }
        self.advance(env);
    }

    fn on_directory(&mut self, env: &Environment<'_>) {
        if let Some(operation) = self.operation_mut() {
            operation.on_directory(env);
        }
        self.advance(env);
    }

    fn on_time(&mut self, env: &Environment<'_>) {
        match self.operation_mut() {
            Some(operation) if env.now_us >= operation.wake_at_us() => operation.on_time(env),
            Some(_) | None => {}
        }
        self.advance(env);
    }

    fn wake_at_us(&self) -> u64 {
        match (&self.phase, self.operation()) {
            (Phase::Resting { until_us }, _) => *until_us,
            (_, operation) => operation.map_or(NEVER, |operation| operation.wake_at_us()),
        }
    }

    fn wants_directory(&self) -> bool {
        self.operation().is_some_and(|operation| operation.wants_directory())
    }

    fn take_refresh(&mut self) -> bool {
        self.operation_mut().is_some_and(|operation| operation.take_refresh())
    }

    fn take_suspended(&mut self) -> Option<NodeId> {
        self.operation_mut()?.take_suspended()
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }

    fn is_over(&self) -> bool {
        let operation = self.operation();
        self.is_answered && operation.is_none_or(|operation| operation.is_over())
    }
}

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Update")
            .field("key", &self.key)
            .field("tries", &self.tries)
            .field("is_answered", &self.is_answered)
            .finish_non_exhaustive()
    }
}
