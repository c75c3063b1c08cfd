//! One request as a state machine: started, asked for its sub-requests, and finally turned into its answer.
//!
//! `events` handles outside events, `plan` chooses the nodes. The invariants: all values of a store are from one
//! version, and the versions of all stores are those of one topology. A node is asked for a key once, until a newer topology makes it worth asking again. Every request ends at
//! its deadline.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use fondaco_ids::Computation;
use fondaco_model::{StoreFanOut, VersionNumber};
use fondaco_protocol::WireKey;
use smallvec::SmallVec;

use super::controller::FanOut;
use super::directory::Directory;
use super::effort::Tally;
use super::planner::{Sticky, Strategy, named};
use super::reply::{BatchReply, PinnedStore};
use super::state::{KeyPlaces, KeyState, Part, Purpose, Sub};
use super::streamed::HandingOut;
use super::value_budget::HeldBudget;
use crate::asks::{Asks, NEVER};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::operation::{AskId, Environment, Operation, Outgoing};
use crate::options::{CanaryChoice, Partial, ReadOptions};

/// The most keys of one request.
pub const KEYS_MAX: usize = 1 << 20;
/// The most keys of one sub-request: larger ones are split, so that other requests on the same connection need not wait
/// for all of them.
pub const SUB_REQUEST_KEYS_MAX: usize = 1024;
/// The most keys of one sub-request for a computation, whose answer is small.
pub const COMPUTATION_KEYS_MAX: usize = 1 << 16;
/// The most outstanding sub-requests of one request.
pub const SUB_REQUESTS_UNDER_WAY_MAX: usize = 64;

/// One request.
#[derive(Debug)]
pub struct Read {
    pub(super) keys: Arc<Vec<WireKey>>,
    pub(super) directory: Arc<Directory>,
    pub(super) options: ReadOptions,
    /// The computation of nodes over the keys' sets of ids; `None` if they send the values.
    pub(super) computation: Option<Arc<Computation>>,
    pub(super) turn: u64,
    /// The number of groups to ask, if the strategy heeds it.
    pub(super) fan_out: usize,
    pub(super) deadline_us: u64,
    pub(super) states: SmallVec<[KeyState; 1]>,
    pub(super) parts: SmallVec<[Part; 1]>,
    pub(super) asks: Asks<Sub>,
    pub(super) unanswered: usize,
    /// The number of waiting keys.
    pub(super) waiting: usize,
    /// The backoff of waiting keys.
    pub(super) backoff: Backoff,
    pub(super) repins: u32,
    pub(super) tally: Tally,
    /// The values' share of the memory limit.
    pub(super) room: HeldBudget,
    /// The answers to be handed out before all are there, if the caller takes them so.
    pub(super) handing_out: Option<HandingOut>,
    /// The error that the whole request fails with.
    pub(super) failed: Option<ClientError>,
}

/// A request to a node: `FONDACO.READ envelope store-id version store key …`.
#[derive(Debug, Clone)]
pub struct BatchRequest {
    /// The number of the store, since its name may belong to another store by now.
    pub store_id: u16,
    /// The version to ask for.
    pub version: VersionNumber,
    /// Indices of its keys in the operation. They are of one store.
    pub places: KeyPlaces,
    /// The computation over the keys' sets of ids; `None` for their values.
    pub computation: Option<Arc<Computation>>,
    /// All keys of the operation.
    all: Arc<Vec<WireKey>>,
}

impl BatchRequest {
    /// The computation of this node, which depends on whether it has the first key of the operation. That is its
    /// first key, too, since keys stay in their order.
    pub fn computation_of_part(&self) -> Option<&Computation> {
        let has_first = self.places.first() == Some(&0);
        Some(self.computation.as_ref()?.of_part(has_first))
    }

    /// The keys to look up, at least one.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &WireKey> {
        self.places.iter().map(|&place| &self.all[place as usize])
    }

    /// The name of their store.
    pub fn store(&self) -> &str {
        self.keys().next().map_or("", WireKey::store)
    }
}

/// The fan-out of the store of the first key.
fn fan_out_of(keys: &[WireKey], directory: &Directory) -> Option<StoreFanOut> {
    let key = keys.first().filter(|_| directory.has_fan_outs())?;
    directory.store(key.store())?.1.fan_out
}

impl Read {
    /// Begins a request for these keys.
    ///
    /// # Errors
    /// [`ClientError::TooManyKeys`]; and with [`Partial::Fail`] any error of a key's store.
    pub fn start(keys: Arc<Vec<WireKey>>, options: ReadOptions, env: &Environment<'_>) -> Result<Self, ClientError> {
        Self::begin(keys, options, None, env)
    }

    /// Begins a request for what nodes compute over the sets of ids of these keys. A node answers for all keys that it is
    /// asked for together: the first has the result, if the computation [merges](Computation::merges) them.
    ///
    /// # Errors
    /// As [`Read::start`].
    pub fn compute(
        keys: Arc<Vec<WireKey>>,
        computation: Computation,
        options: ReadOptions,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        Self::begin(keys, options, Some(Arc::new(computation)), env)
    }

    fn begin(
        keys: Arc<Vec<WireKey>>,
        mut options: ReadOptions,
        computation: Option<Arc<Computation>>,
        env: &Environment<'_>,
    ) -> Result<Self, ClientError> {
        if let (None, Some(of_store)) = (&options.strategy, fan_out_of(&keys, env.latest)) {
            options.strategy = Some(named(of_store.strategy));
            options.fan_out = of_store
                .groups
                .map_or(FanOut::All, |groups| FanOut::Groups(groups as usize));
        }
        if keys.len() > KEYS_MAX {
            return Err(ClientError::TooManyKeys {
                keys: keys.len(),
                keys_max: KEYS_MAX,
            });
        }
        let counts = &env.steering.counts;
        counts.requests.fetch_add(1, Relaxed);
        counts.keys.fetch_add(keys.len() as u64, Relaxed);
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(NEVER / 2);
        let whole_us = micros(options.deadline);
        let mut read = Self {
            turn: env.steering.next_turn(),
            // The node for one key is the same for any fan-out.
            fan_out: match options.strategy.as_deref().and_then(|strategy| strategy.for_many()) {
                Some(strategy) if keys.len() > 1 && strategy.heeds_fan_out() => {
                    options.fan_out.groups(env.latest, keys.len(), env.now_us)
                }
                _ => 1,
            },
            deadline_us: env.now_us.saturating_add(whole_us),
            states: SmallVec::with_capacity(keys.len()),
            parts: SmallVec::new(),
            // A computation that takes long would take as long elsewhere.
            asks: Asks::new(match computation {
                None => options.attempt.map_or(whole_us / 2, micros),
                Some(_) => options.attempt.map_or(whole_us, micros),
            }),
            unanswered: keys.len(),
            waiting: 0,
            backoff: Backoff::default(),
            repins: 0,
            tally: Tally::new(env.now_us),
            room: HeldBudget::of(options.room.clone()),
            handing_out: None,
            failed: None,
            directory: Arc::clone(env.latest),
            keys,
            options,
            computation,
        };
        read.resolve();
        if read.failed.is_none() {
            let all = (0..read.keys.len() as u32).filter(|&key| read.states[key as usize].answer.is_none());
            let all = all.collect();
            read.ask_for(all, Purpose::First, env);
        }
        read.count_effort(env);
        match read.failed.take() {
            Some(error) => Err(error),
            None => Ok(read),
        }
    }

    pub(super) fn strategy(&self) -> &dyn Strategy {
        self.options.strategy.as_deref().unwrap_or(&Sticky)
    }

    /// Finds the store and the partition of every key.
    fn resolve(&mut self) {
        let (keys, directory) = (Arc::clone(&self.keys), Arc::clone(&self.directory));
        let partitions = directory.topology().partitions;
        // The part of each store by the store's number, counted from 1; 0 for none. Keys may name
        // thousands of stores.
        let mut part_of_id: Vec<u16> = Vec::new();
        let mut last = None;
        for (place, key) in keys.iter().enumerate() {
            let same = |part: &u16| self.parts[usize::from(*part)].name.as_str() == key.store();
            let part = match last.filter(same) {
                Some(part) => Ok(part),
                None => self.part_of(key, &directory, &mut part_of_id),
            };
            last = part.as_ref().ok().copied();
            self.states.push(KeyState {
                part: last.unwrap_or(u16::MAX),
                partition: partitions.partition_of(key.slot()),
                pending: 0,
                waiting: false,
                stranded: false,
                asked: SmallVec::new(),
                answer: None,
            });
            if let Err(error) = part {
                self.fail(place, error);
            }
        }
    }

    /// The part of a store, made if this is its first key.
    fn part_of(&mut self, key: &WireKey, directory: &Directory, part_of_id: &mut Vec<u16>) -> Result<u16, ClientError> {
        let Some((name, store)) = directory.store(key.store()) else {
            return Err(ClientError::UnknownStore {
                store: key.store().into(),
            });
        };
        let id = usize::from(store.id);
        if let Some(&part @ 1..) = part_of_id.get(id) {
            return Ok(part - 1);
        }
        let is_canary = match self.options.canary {
            // Computations read current versions.
            CanaryChoice::ByFirstKey => self.computation.is_none() && directory.takes_canary(store, key.key()),
            CanaryChoice::Current => false,
            CanaryChoice::Canary => true,
        };
        let part = Part::of(name, store, is_canary).ok_or_else(|| ClientError::NoVersion { store: name.clone() })?;
        self.parts.push(part);
        if self.keys.len() > 1 {
            part_of_id.resize(part_of_id.len().max(id + 1), 0);
            part_of_id[id] = self.parts.len() as u16;
        }
        Ok(self.parts.len() as u16 - 1)
    }

    /// Builds a request to a node, and counts it.
    pub(super) fn request(&self, id: AskId, env: &Environment<'_>) -> Outgoing<BatchRequest> {
        let ask = self.asks.get(id);
        let sub = &ask.purpose;
        let (steering, counts) = (env.steering, &env.steering.counts);
        counts.sub_requests.fetch_add(1, Relaxed);
        match sub.purpose {
            Purpose::First => steering.deposit(),
            Purpose::Retry => _ = counts.retries.fetch_add(1, Relaxed),
            Purpose::Redirect => _ = counts.redirects.fetch_add(1, Relaxed),
            Purpose::Hedge => _ = counts.hedges.fetch_add(1, Relaxed),
        }
        let part = &self.parts[usize::from(sub.part)];
        Outgoing {
            id,
            node: ask.node,
            deadline_us: self.deadline_us,
            request: BatchRequest {
                store_id: part.id,
                version: part.version,
                places: sub.keys.clone(),
                computation: self.computation.clone(),
                all: Arc::clone(&self.keys),
            },
        }
    }

    /// The keys, as they were given.
    pub fn keys(&self) -> &Arc<Vec<WireKey>> {
        &self.keys
    }

    /// The answer, once the operation is over.
    ///
    /// # Errors
    /// With [`Partial::Fail`], the error of a key that has no answer.
    pub fn finish(self) -> Result<BatchReply, ClientError> {
        debug_assert!(self.is_over());
        if let Some(error) = self.failed {
            return Err(error);
        }
        let unanswered = || {
            // Called too early: there is no answer yet.
            Err(ClientError::Timeout { deadline_ms: 0 })
        };
        let sent = |purposes: &[Purpose]| {
            let sent = self.asks.all().filter(|ask| ask.sent_us != NEVER);
            sent.filter(|ask| purposes.contains(&ask.purpose.purpose)).count() as u32
        };
        Ok(BatchReply {
            retried: sent(&[Purpose::Retry, Purpose::Redirect]),
            room: self.room,
            hedged: sent(&[Purpose::Hedge]),
            effort: self.tally.effort.unwrap_or_default(),
            sub_requests: sent(&[Purpose::First, Purpose::Retry, Purpose::Redirect, Purpose::Hedge]),
            stores: self.parts.iter().map(PinnedStore::of).collect(),
            values: self
                .states
                .into_iter()
                .map(|key| key.answer.unwrap_or_else(unanswered))
                .collect(),
        })
    }

    /// A key has its value. It fails if the value exceeds the memory limit.
    pub(super) fn answer(&mut self, key: usize, value: Option<Bytes>, env: &Environment<'_>) {
        if let Some(value) = &value
            && let Err(bytes_max) = self.room.take(value.len())
        {
            return self.give_up_key(key, ClientError::NoRoom { bytes_max }, env);
        }
        self.keep(key, value);
    }

    /// A key has its value, which has its memory already.
    pub(super) fn keep(&mut self, key: usize, value: Option<Bytes>) {
        let state = &mut self.states[key];
        debug_assert!(state.answer.is_none());
        self.waiting -= usize::from(std::mem::replace(&mut state.waiting, false));
        state.answer = Some(Ok(value));
        self.unanswered -= 1;
        self.note_fresh(key);
    }

    /// A key will have no value.
    pub(super) fn fail(&mut self, key: usize, error: ClientError) {
        if self.options.partial == Partial::Fail {
            self.failed.get_or_insert_with(|| error.clone());
        }
        let state = &mut self.states[key];
        debug_assert!(state.answer.is_none());
        self.waiting -= usize::from(std::mem::replace(&mut state.waiting, false));
        state.answer = Some(Err(error));
        self.unanswered -= 1;
        self.note_fresh(key);
    }
}
