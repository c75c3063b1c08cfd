//! Reading at a quorum: keys of one or several versioned stores, in one go.
//!
//! Each key is asked of as many replicas as its store prefers, the nearest first, and of further ones as these
//! fail or are late, until as many have answered as it requires; what they hold is joined. Afterwards those that
//! answered less are sent the join: read repair. The invariants: a node is asked for a key once, until a newer
//! topology makes it worth asking again; every key is answered by the deadline; what is answered is the join of
//! what `reads` replicas hold, each of them another node.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use fondaco_model::versioned::Record;
use fondaco_model::{NodeId, PartitionId};
use smallvec::SmallVec;

use super::asks::{Asks, Conduct, Due, NEVER, Stage};
use super::counts::count;
use super::operation::{AskId, Moment, Operation, Outgoing};
use super::pause::Pause;
use super::replicas::{Home, Nodes, Store, is_well};
use super::reply::{ReplicaErrorCode, ReplicaReply};
use super::request::{KeyRecord, RecordPart, ReplicaOperation, ReplicaRequest};
use super::shortfall::{NoQuorum, QuorumPart, Trouble, Troubles};
use super::{PREFERRED_WAIT_US, micros};
use crate::error::ClientError;
use crate::key::WireKey;
use crate::options::{Partial, ReadOptions};
use crate::read::{Failure, KEYS_MAX, SUB_REQUEST_KEYS_MAX};

/// Records of one repair together: beyond, another request carries the rest.
const REPAIR_RECORDS_MAX: usize = 64;

/// Places of keys in the operation.
type KeyPlaces = SmallVec<[u32; 4]>;

/// A read of keys at the quorums of their stores.
#[derive(Debug)]
pub struct Get {
    keys: Arc<Vec<WireKey>>,
    options: ReadOptions,
    home: Arc<Home>,
    /// A node that is asked before all others, if it has the key.
    first: Option<NodeId>,
    deadline_us: u64,
    stores: SmallVec<[Store; 1]>,
    states: SmallVec<[KeyState; 1]>,
    asks: Asks<Purpose>,
    unanswered: usize,
    /// When those keys are answered that have been by enough replicas, and by fewer than preferred.
    settle_at_us: u64,
    pause: Pause,
    failed: Option<ClientError>,
    is_repaired: bool,
}

/// Why a replica is asked.
#[derive(Debug)]
enum Purpose {
    /// What it holds under keys.
    Read {
        store: u16,
        keys: KeyPlaces,
        /// Whether what it takes tells how long reads take: others are asked in bad times.
        teaches: bool,
    },
    /// To take records.
    Repair { store: u16, records: Vec<KeyRecord> },
}

/// Why reads are planned: it decides whose budget they are charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    First,
    /// Others failed.
    Retry,
    /// Others were never reached, or are not to be asked.
    Redirect,
    /// Others take long.
    Hedge,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct KeyState {
    store: u16,
    partition: u32,
    /// Who may still be asked, the next one last.
    candidates: Nodes,
    /// Who is asked and counted on.
    pending: Nodes,
    /// Who is asked and counted on no more.
    given_up: Nodes,
    answers: SmallVec<[Answer; 3]>,
    /// The join of all answers.
    merged: Record,
    troubles: Troubles,
    /// It waits for a newer topology, or for nodes to catch up.
    waiting: bool,
    in_flux: bool,
    outcome: Option<Result<(), ClientError>>,
}

/// What one replica holds under a key.
#[derive(Debug)]
struct Answer {
    node: NodeId,
    record: Option<Bytes>,
}

impl Get {
    /// Begins to read keys. `first` is asked before all other replicas.
    ///
    /// # Errors
    /// [`ClientError::TooManyKeys`]; and with [`Partial::Fail`] whatever is wrong with a key's store.
    pub fn start(
        keys: Arc<Vec<WireKey>>,
        options: ReadOptions,
        home: Arc<Home>,
        first: Option<NodeId>,
        moment: &Moment<'_>,
    ) -> Result<Self, ClientError> {
        if keys.len() > KEYS_MAX {
            return Err(ClientError::TooManyKeys {
                keys: keys.len(),
                keys_max: KEYS_MAX,
            });
        }
        moment.counts.reads.fetch_add(keys.len() as u64, Relaxed);
        let whole_us = micros(options.deadline);
        let mut get = Self {
            asks: Asks::new(options.attempt.map_or(whole_us / 2, micros)),
            deadline_us: moment.now_us.saturating_add(whole_us),
            unanswered: keys.len(),
            keys,
            options,
            home,
            first,
            stores: SmallVec::new(),
            states: SmallVec::new(),
            settle_at_us: NEVER,
            pause: Pause::default(),
            failed: None,
            is_repaired: false,
        };
        get.resolve(moment);
        get.plan_all(Cause::First, moment);
        match get.failed.take() {
            Some(error) => Err(error),
            None => Ok(get),
        }
    }

    /// What was read: for each key what the replicas hold under it, or why that is not known. To be taken once,
    /// when the operation is answered.
    ///
    /// # Errors
    /// With [`Partial::Fail`], the error of a key that has no answer.
    pub fn take_answer(&mut self) -> Result<Vec<Result<Record, ClientError>>, ClientError> {
        debug_assert!(self.is_answered());
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let record = |state: &mut KeyState| match state.outcome.take() {
            Some(Ok(())) => Ok(std::mem::take(&mut state.merged)),
            Some(Err(error)) => Err(error),
            // `is_answered` says that there is none; who asks too early is told so.
            None => Err(ClientError::Timeout { deadline_ms: 0 }),
        };
        Ok(self.states.iter_mut().map(record).collect())
    }

    /// How many requests to replicas there are, those to be sent included.
    pub fn requests(&self) -> u32 {
        self.asks.len()
    }

    /// Finds the store and the partition of every key.
    fn resolve(&mut self, moment: &Moment<'_>) {
        let (keys, directory) = (Arc::clone(&self.keys), moment.latest);
        let partitions = directory.topology().partitions;
        for (place, key) in keys.iter().enumerate() {
            let known = self.stores.iter().rposition(|store| store.name.as_str() == key.store());
            let store = match known {
                Some(known) => Ok(known),
                None => Store::of(directory, key.store()).map(|store| {
                    self.stores.push(store);
                    self.stores.len() - 1
                }),
            };
            self.states.push(KeyState {
                partition: partitions.partition_of(key.slot()).get(),
                ..KeyState::default()
            });
            match store {
                Ok(store) => {
                    self.states[place].store = store as u16;
                    self.find_candidates(place, moment);
                }
                Err(error) => self.fail(place, error),
            }
        }
    }

    fn find_candidates(&mut self, key: usize, moment: &Moment<'_>) {
        let state = &self.states[key];
        let store = &self.stores[usize::from(state.store)];
        let mut nodes = store.owners(moment.latest, PartitionId::new(state.partition));
        self.home.nearest_first(&mut nodes, moment.latest);
        if let Some(place) = nodes.iter().position(|&node| Some(node) == self.first) {
            nodes[..=place].rotate_right(1);
        }
        let state = &mut self.states[key];
        state.answers.retain(|answer| nodes.contains(&answer.node));
        nodes.retain(|node| {
            let answered = state.answers.iter().any(|answer| answer.node == *node);
            !answered && !state.pending.contains(node) && !state.given_up.contains(node)
        });
        nodes.reverse();
        state.candidates = nodes;
    }

    /// Plans to ask for all keys that are not answered and have nobody under way.
    fn plan_all(&mut self, cause: Cause, moment: &Moment<'_>) {
        let open = |&key: &u32| {
            let state = &self.states[key as usize];
            state.outcome.is_none() && !state.waiting
        };
        let keys: KeyPlaces = (0..self.states.len() as u32).filter(open).collect();
        self.plan(&keys, cause, moment);
    }

    /// Plans to ask for keys, of as many replicas as they need besides those that are counted on. Those that
    /// cannot have enough fail, or, where a newer topology may help, wait.
    fn plan(&mut self, keys: &[u32], cause: Cause, moment: &Moment<'_>) {
        let mut wanted: SmallVec<[(u16, NodeId, u32); 4]> = SmallVec::new();
        for &key in keys {
            let nodes = self.choose(key as usize, cause, moment);
            let store = self.states[key as usize].store;
            wanted.extend(nodes.into_iter().map(|node| (store, node, key)));
        }
        wanted.sort_unstable();
        for group in wanted.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            for part in group.chunks(SUB_REQUEST_KEYS_MAX) {
                let (store, node, _) = part[0];
                let keys: KeyPlaces = part.iter().map(|&(_, _, key)| key).collect();
                match self.may(cause, moment) {
                    true => {
                        let late_us = self.options.hedge && cause != Cause::Hedge;
                        let late_us = late_us
                            .then(|| moment.steering.hedge_threshold_us(keys.len()))
                            .flatten();
                        keys.iter()
                            .for_each(|&key| self.states[key as usize].pending.push(node));
                        let teaches = cause == Cause::First;
                        self.asks.plan(node, Purpose::Read { store, keys, teaches }, late_us);
                    }
                    false if cause == Cause::Retry => {
                        let troubles = keys.iter().map(|&key| key as usize);
                        troubles.for_each(|key| self.states[key].troubles.add(node, Trouble::NoBudget));
                    }
                    false => keys
                        .iter()
                        .for_each(|&key| self.states[key as usize].candidates.push(node)),
                }
            }
        }
        keys.iter().for_each(|&key| self.check(key as usize, moment));
    }

    /// Whether the budgets allow another request.
    fn may(&self, cause: Cause, moment: &Moment<'_>) -> bool {
        match cause {
            Cause::First => {
                moment.steering.deposit();
                true
            }
            Cause::Redirect => true,
            Cause::Retry => {
                let may = moment.steering.take_retry();
                moment.counts.retries.fetch_add(u64::from(may), Relaxed);
                may
            }
            Cause::Hedge => {
                let may = moment.steering.take_hedge();
                moment.counts.hedges.fetch_add(u64::from(may), Relaxed);
                may
            }
        }
    }

    /// Takes the candidates that are to be asked for a key now.
    fn choose(&mut self, key: usize, cause: Cause, moment: &Moment<'_>) -> Nodes {
        let state = &mut self.states[key];
        let settings = &self.stores[usize::from(state.store)].settings;
        let answered = state.answers.iter().map(|answer| answer.node);
        let mut counted: Nodes = answered.chain(state.pending.iter().copied()).collect();
        let before = counted.len();
        let wanted = match cause {
            Cause::First => settings.preferred_reads.max(settings.reads),
            Cause::Retry | Cause::Redirect => settings.reads,
            Cause::Hedge if state.answers.len() as u32 >= settings.reads => 0,
            Cause::Hedge => before as u32 + 1,
        };
        let directory = moment.latest;
        while let Some(&node) = state.candidates.last() {
            let enough = counted.len() as u32 >= wanted;
            // Nobody is waited for who is not there, but in need.
            let needed = (counted.len() as u32) < settings.reads;
            if enough || !(needed && cause != Cause::Hedge || is_well(directory, node)) {
                break;
            }
            counted.extend(state.candidates.pop());
        }
        if cause != Cause::Hedge {
            let zones = |nodes: &Nodes| self.home.other_zones(nodes.iter().copied(), directory);
            while zones(&counted) < settings.zone_reads {
                let adds_zone = |&node: &NodeId| {
                    let with: Nodes = counted.iter().copied().chain([node]).collect();
                    zones(&with) > zones(&counted)
                };
                let Some(place) = state.candidates.iter().rposition(adds_zone) else {
                    break;
                };
                counted.push(state.candidates.remove(place));
            }
        }
        counted.drain(..before);
        counted
    }

    /// Whether a key has its answer by now, or cannot have one.
    fn check(&mut self, key: usize, moment: &Moment<'_>) {
        let state = &self.states[key];
        if state.outcome.is_some() {
            return;
        }
        let settings = &self.stores[usize::from(state.store)].settings;
        if self.has_enough(key, moment) {
            if state.answers.len() as u32 >= settings.preferred_reads || state.pending.is_empty() {
                return self.succeed(key);
            }
            self.settle_at_us = self.settle_at_us.min(moment.now_us.saturating_add(PREFERRED_WAIT_US));
            return;
        }
        let answered = state.answers.iter().map(|answer| answer.node);
        let open = answered
            .chain(state.pending.iter().copied())
            .chain(state.given_up.iter().copied());
        let open: Nodes = open.collect();
        let count = open.len() as u32;
        if count >= settings.reads && self.home.other_zones(open, moment.latest) >= settings.zone_reads {
            return;
        }
        if state.in_flux && !state.waiting {
            self.states[key].waiting = true;
            self.pause.begin(moment.now_us);
        } else if !state.in_flux {
            let error = self.shortfall(key, moment);
            self.fail(key, error);
        }
    }

    fn shortfall(&self, key: usize, moment: &Moment<'_>) -> ClientError {
        let state = &self.states[key];
        if let Some(refusal) = state.troubles.refusal() {
            return refusal;
        }
        count(&moment.counts.no_quorum);
        let store = &self.stores[usize::from(state.store)];
        let has_answered = |node: NodeId| state.answers.iter().any(|answer| answer.node == node);
        let owners = store.owners(moment.latest, PartitionId::new(state.partition));
        let silent = owners.into_iter().filter(|&node| !has_answered(node));
        let asked = |node: NodeId| state.pending.contains(&node) || state.given_up.contains(&node);
        ClientError::NoQuorum(Arc::new(NoQuorum {
            part: QuorumPart::Reads,
            had: state.answers.len() as u32,
            required: store.settings.reads,
            zones_had: self
                .home
                .other_zones(state.answers.iter().map(|answer| answer.node), moment.latest),
            zones_required: store.settings.zone_reads,
            missing: state.troubles.missing(silent, asked, moment.latest),
        }))
    }

    fn succeed(&mut self, key: usize) {
        let state = &mut self.states[key];
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

    /// What one replica holds under a key has come. Returns what is wrong with it, if something is.
    fn take(&mut self, key: usize, node: NodeId, record: Option<Bytes>) -> Result<(), Trouble> {
        let state = &mut self.states[key];
        let is_known = state.answers.iter().any(|answer| answer.record == record);
        if let Some(record) = record.as_ref().filter(|_| !is_known) {
            let record = Record::decode(record.clone()).map_err(|_| Trouble::Unreadable)?;
            state.merged = match state.merged.is_empty() {
                true => record,
                false => state.merged.merge(&record),
            };
        }
        state.answers.push(Answer { node, record });
        Ok(())
    }

    /// Something is wrong with what a node says, or does not say, of a key.
    fn trouble(&mut self, key: usize, node: NodeId, trouble: Trouble) {
        self.states[key].in_flux |= trouble.is_elsewhere();
        if trouble.is_elsewhere() {
            self.pause.want_refresh();
        }
        self.states[key].troubles.add(node, trouble);
    }

    /// After some of these keys had trouble: asks others, or gives up.
    fn go_on(&mut self, keys: &[u32], cause: Cause, moment: &Moment<'_>) {
        let open = |&&key: &&u32| {
            let state = &self.states[key as usize];
            state.outcome.is_none() && !state.waiting
        };
        let keys: KeyPlaces = keys.iter().filter(open).copied().collect();
        let refused = |key: &u32| self.states[*key as usize].troubles.refusal();
        let refused: SmallVec<[(u32, ClientError); 1]> =
            keys.iter().filter_map(|key| Some((*key, refused(key)?))).collect();
        for (key, error) in refused {
            self.fail(key as usize, error);
        }
        self.plan(&keys, cause, moment);
        self.finish(moment);
    }

    /// When the last key is answered: whatever is still under way is no longer heard, and replicas are repaired.
    fn finish(&mut self, moment: &Moment<'_>) {
        if !self.is_answered() || std::mem::replace(&mut self.is_repaired, true) {
            return;
        }
        self.asks.end_all();
        self.settle_at_us = NEVER;
        let mut wanted: Vec<(u16, NodeId, KeyRecord)> = Vec::new();
        for (state, key) in self.states.iter().zip(&**self.keys) {
            let differ = state.answers.windows(2).any(|two| two[0].record != two[1].record);
            if !differ || !matches!(state.outcome, Some(Ok(()))) {
                continue;
            }
            let merged = Bytes::from(state.merged.to_bytes());
            let behind = state
                .answers
                .iter()
                .filter(|answer| answer.record.as_ref() != Some(&merged));
            wanted.extend(behind.map(|answer| {
                let record = KeyRecord {
                    key: key.as_bytes().slice_ref(key.key()),
                    record: merged.clone(),
                };
                (state.store, answer.node, record)
            }));
        }
        wanted.sort_by_key(|&(store, node, _)| (store, node));
        moment.counts.repairs.fetch_add(wanted.len() as u64, Relaxed);
        let mut wanted = wanted.into_iter().peekable();
        while let Some((store, node, record)) = wanted.next() {
            let mut records = vec![record];
            while records.len() < REPAIR_RECORDS_MAX
                && let Some((_, _, record)) = wanted.next_if(|next| (next.0, next.1) == (store, node))
            {
                records.push(record);
            }
            self.asks.plan(node, Purpose::Repair { store, records }, None);
        }
        // What repairs is not in a hurry, and ends all the same.
        self.deadline_us = self
            .deadline_us
            .max(moment.now_us.saturating_add(micros(self.options.deadline)));
    }

    /// Takes the keys of a read that ends, and who was asked for them from those that are counted on.
    fn keys_of(&mut self, id: AskId) -> Option<(NodeId, KeyPlaces)> {
        let ask = self.asks.get(id);
        let node = ask.node;
        let Purpose::Read { keys, .. } = &ask.purpose else {
            return None;
        };
        let keys = keys.clone();
        for &key in &keys {
            let state = &mut self.states[key as usize];
            state.pending.retain(|pending| *pending != node);
            state.given_up.retain(|given_up| *given_up != node);
        }
        Some((node, keys))
    }

    /// The time is over.
    fn time_out(&mut self, moment: &Moment<'_>) {
        for key in 0..self.states.len() {
            if self.states[key].outcome.is_none() {
                let enough = self.has_enough(key, moment);
                match enough {
                    true => self.succeed(key),
                    false => {
                        let error = self.shortfall(key, moment);
                        self.fail(key, error);
                    }
                }
            }
        }
        self.finish(moment);
    }

    fn has_enough(&self, key: usize, moment: &Moment<'_>) -> bool {
        let state = &self.states[key];
        let settings = &self.stores[usize::from(state.store)].settings;
        let answered = state.answers.iter().map(|answer| answer.node);
        state.answers.len() as u32 >= settings.reads
            && self.home.other_zones(answered, moment.latest) >= settings.zone_reads
    }
}

impl Operation for Get {
    fn next_send(&mut self, moment: &Moment<'_>) -> Option<Outgoing> {
        let id = self.asks.next(moment.now_us)?;
        count(&moment.counts.requests);
        let ask = self.asks.get(id);
        let (store, operation) = match &ask.purpose {
            Purpose::Read { store, keys, .. } => {
                let key = |&place: &u32| {
                    let key = &self.keys[place as usize];
                    key.as_bytes().slice_ref(key.key())
                };
                let operation = ReplicaOperation::Get {
                    part: RecordPart::Full,
                    keys: keys.iter().map(key).collect(),
                };
                (store, operation)
            }
            Purpose::Repair { store, records } => {
                let records = records.clone();
                (store, ReplicaOperation::Merge { records })
            }
        };
        let store = &self.stores[usize::from(*store)];
        Some(Outgoing {
            id,
            node: ask.node,
            deadline_us: self.deadline_us,
            request: ReplicaRequest {
                store_id: store.id,
                store: store.name.clone(),
                timeout_ms: self.deadline_us.saturating_sub(moment.now_us).div_ceil(1000),
                operation,
            },
        })
    }

    fn on_reply(&mut self, id: AskId, reply: ReplicaReply, moment: &Moment<'_>) {
        let conduct = match &reply {
            ReplicaReply::Error(error) if error.code == ReplicaErrorCode::Other => Conduct::Failed,
            ReplicaReply::Records(_) | ReplicaReply::Done | ReplicaReply::Error(_) => Conduct::Well,
            _ => Conduct::Failed,
        };
        let Some(stage) = self.asks.answered(id, conduct, moment) else {
            return;
        };
        let Some((node, keys)) = self.keys_of(id) else {
            if reply != ReplicaReply::Done {
                count(&moment.counts.repairs_failed);
            }
            return;
        };
        let ask = self.asks.get(id);
        let teaches = matches!(ask.purpose, Purpose::Read { teaches: true, .. });
        if stage == Stage::Pending && teaches && !ask.is_late {
            let took_us = moment.now_us.saturating_sub(ask.sent_us);
            moment.steering.note_answered(keys.len(), took_us);
        }
        let mut cause = Cause::Retry;
        let mut had_trouble = |get: &mut Self, key: u32, trouble: Trouble| {
            if trouble.is_elsewhere() {
                cause = Cause::Redirect;
            }
            get.trouble(key as usize, node, trouble);
        };
        match reply {
            ReplicaReply::Records(records) if records.len() == keys.len() => {
                for (&key, record) in keys.iter().zip(records) {
                    if self.states[key as usize].outcome.is_some() {
                        continue;
                    }
                    let taken = match record {
                        Ok(record) => self.take(key as usize, node, record),
                        Err(error) => Err(Trouble::Error(error)),
                    };
                    if let Err(trouble) = taken {
                        had_trouble(self, key, trouble);
                    }
                }
            }
            ReplicaReply::Error(error) => {
                for &key in &keys {
                    had_trouble(self, key, Trouble::Error(error.clone()));
                }
            }
            _ => keys.iter().for_each(|&key| had_trouble(self, key, Trouble::Nonsense)),
        }
        self.go_on(&keys, cause, moment);
    }

    fn on_failure(&mut self, id: AskId, failure: Failure, moment: &Moment<'_>) {
        if self.asks.lost(id, &failure, moment).is_none() {
            return;
        }
        let Some((node, keys)) = self.keys_of(id) else {
            return count(&moment.counts.repairs_failed);
        };
        let cause = match failure {
            Failure::Unsent(_) | Failure::Full { .. } => Cause::Redirect,
            Failure::Lost(_) => Cause::Retry,
        };
        for &key in &keys {
            self.trouble(key as usize, node, Trouble::Failure(failure.clone()));
        }
        self.go_on(&keys, cause, moment);
    }

    fn on_directory(&mut self, moment: &Moment<'_>) {
        if self.is_answered() {
            return;
        }
        self.pause.end();
        for place in 0..self.stores.len() {
            let name = self.stores[place].name.clone();
            match Store::of(moment.latest, name.as_str()) {
                Ok(store) if store.id == self.stores[place].id => self.stores[place] = store,
                // Another store has the name by now, or none: this one's values are nowhere.
                _ => {
                    for key in 0..self.states.len() {
                        let state = &self.states[key];
                        if usize::from(state.store) == place && state.outcome.is_none() {
                            let store = name.as_str().into();
                            self.fail(key, ClientError::UnknownStore { store });
                        }
                    }
                }
            }
        }
        let mut again = KeyPlaces::new();
        for key in 0..self.states.len() {
            let state = &mut self.states[key];
            if state.outcome.is_none() && state.in_flux {
                (state.waiting, state.in_flux) = (false, false);
                state.troubles.clear();
                self.find_candidates(key, moment);
                again.push(key as u32);
            }
        }
        self.go_on(&again, Cause::Redirect, moment);
    }

    fn on_time(&mut self, moment: &Moment<'_>) {
        if moment.now_us >= self.deadline_us {
            match self.is_answered() {
                true => self.asks.end_all(),
                false => self.time_out(moment),
            }
            return;
        }
        while let Some(due) = self.asks.due(moment) {
            match due {
                Due::Late(id) => {
                    if let Purpose::Read { keys, teaches, .. } = &self.asks.get(id).purpose {
                        let keys = keys.clone();
                        if *teaches {
                            moment.steering.note_exceeded(keys.len());
                        }
                        self.go_on(&keys, Cause::Hedge, moment);
                    }
                }
                Due::GivenUp(id) => {
                    let Some((node, keys)) = self.keys_of(id) else {
                        continue;
                    };
                    for &key in &keys {
                        self.states[key as usize].given_up.push(node);
                        self.trouble(key as usize, node, Trouble::TimedOut);
                    }
                    self.go_on(&keys, Cause::Retry, moment);
                }
            }
        }
        if moment.now_us >= self.settle_at_us {
            self.settle_at_us = NEVER;
            for key in 0..self.states.len() {
                if self.states[key].outcome.is_none() && self.has_enough(key, moment) {
                    self.succeed(key);
                }
            }
            self.finish(moment);
        }
        if self.pause.is_over(moment.now_us) {
            self.on_directory(moment);
        }
    }

    fn wake_at_us(&self) -> u64 {
        let timers = [self.asks.due_at_us(), self.settle_at_us, self.pause.ends_at_us()];
        timers.into_iter().fold(self.deadline_us, u64::min)
    }

    fn wants_directory(&self) -> bool {
        self.states.iter().any(|state| state.in_flux && state.outcome.is_none())
    }

    fn take_refresh(&mut self) -> bool {
        self.pause.take_refresh()
    }

    fn take_suspended(&mut self) -> Option<NodeId> {
        self.asks.take_suspended()
    }

    fn is_answered(&self) -> bool {
        self.unanswered == 0 || self.failed.is_some()
    }

    fn is_over(&self) -> bool {
        self.is_answered() && self.asks.open().next().is_none()
    }
}
