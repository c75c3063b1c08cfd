//! One request as a state machine: begun, asked what to send, in the end turned into its answer.
//!
//! What comes back from outside is in `events`, who is asked in `plan`. The invariants: all values of a
//! store are from one version; a node is asked for a key once, until a newer topology makes it worth
//! asking again; every request ends at its deadline.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use fondaco_model::{NodeId, VersionNumber};
use fondaco_protocol::WireKey;
use smallvec::SmallVec;

use super::directory::Directory;
use super::reply::{BatchReply, PinnedStore};
use super::room::HeldRoom;
use super::state::{KeyState, NEVER, Part, Purpose, Stage, Sub, SubId};
use super::steering::Steering;
use crate::error::ClientError;
use crate::options::{Partial, ReadOptions};

/// The most keys of one request.
pub const KEYS_MAX: usize = 1 << 20;
/// The most keys of one sub-request: more are divided, so that others on the same connection do not wait
/// for all of them.
pub const SUB_REQUEST_KEYS_MAX: usize = 1024;
/// The most sub-requests of one request that are under way at a time.
pub const SUB_REQUESTS_UNDER_WAY_MAX: usize = 64;

/// One request.
#[derive(Debug)]
pub struct Read {
    pub(super) keys: Arc<Vec<WireKey>>,
    pub(super) directory: Arc<Directory>,
    pub(super) options: ReadOptions,
    pub(super) turn: u64,
    pub(super) attempt_us: u64,
    pub(super) deadline_us: u64,
    /// The time of what happened last.
    pub(super) now_us: u64,
    pub(super) states: SmallVec<[KeyState; 1]>,
    pub(super) parts: SmallVec<[Part; 1]>,
    pub(super) subs: SmallVec<[Sub; 2]>,
    /// The first sub-request that may still have to be sent.
    pub(super) unsent: usize,
    pub(super) pending: usize,
    pub(super) unanswered: usize,
    /// How many keys wait.
    pub(super) waiting: usize,
    /// When keys that wait are asked for again; [`NEVER`] if none do.
    pub(super) resume_at_us: u64,
    pub(super) pause_us: u64,
    pub(super) repins: u32,
    pub(super) refresh: bool,
    pub(super) suspended: SmallVec<[NodeId; 1]>,
    /// What the values take of the room that there is for them.
    pub(super) room: HeldRoom,
    /// The error that the whole request fails with.
    pub(super) failed: Option<ClientError>,
}

/// What to send: `FONDACO.READ store-id version timeout-ms store key …`.
#[derive(Debug, Clone, Copy)]
pub struct SubRequest<'a> {
    /// Its number within the request: what comes back is told with it.
    pub id: SubId,
    /// Whom to ask.
    pub node: NodeId,
    /// The number of the store to ask for: its name may be another's by now.
    pub store_id: u16,
    /// The version to ask for.
    pub version: VersionNumber,
    /// When the request as a whole ends.
    pub deadline_us: u64,
    /// Which keys of the request. They are of one store.
    pub keys: &'a [u32],
}

impl Read {
    /// Begins a request for these keys.
    ///
    /// # Errors
    /// [`ClientError::TooManyKeys`]; and with [`Partial::Fail`] whatever is wrong with a key's store.
    pub fn start(
        keys: Arc<Vec<WireKey>>,
        options: ReadOptions,
        directory: Arc<Directory>,
        steering: &Steering,
        now_us: u64,
    ) -> Result<Self, ClientError> {
        if keys.len() > KEYS_MAX {
            return Err(ClientError::TooManyKeys {
                keys: keys.len(),
                keys_max: KEYS_MAX,
            });
        }
        steering.counts.requests.fetch_add(1, Relaxed);
        steering.counts.keys.fetch_add(keys.len() as u64, Relaxed);
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(NEVER / 2);
        let whole_us = micros(options.deadline);
        let mut read = Self {
            turn: steering.next_turn(),
            attempt_us: options.attempt.map_or(whole_us / 2, micros),
            deadline_us: now_us.saturating_add(whole_us),
            now_us,
            states: SmallVec::with_capacity(keys.len()),
            parts: SmallVec::new(),
            subs: SmallVec::new(),
            unsent: 0,
            pending: 0,
            unanswered: keys.len(),
            waiting: 0,
            resume_at_us: NEVER,
            pause_us: super::plan::PAUSE_FIRST_US,
            repins: 0,
            refresh: false,
            suspended: SmallVec::new(),
            room: HeldRoom::of(options.room.clone()),
            failed: None,
            keys,
            directory,
            options,
        };
        read.resolve();
        if read.failed.is_none() {
            let all = (0..read.keys.len() as u32).filter(|&key| read.states[key as usize].answer.is_none());
            let all = all.collect();
            read.plan(all, Purpose::First, steering);
        }
        match read.failed.take() {
            Some(error) => Err(error),
            None => Ok(read),
        }
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
                None => self.part_of(key.store(), &directory, &mut part_of_id),
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
    fn part_of(&mut self, name: &str, directory: &Directory, part_of_id: &mut Vec<u16>) -> Result<u16, ClientError> {
        let Some((name, store)) = directory.store(name) else {
            return Err(ClientError::UnknownStore { store: name.into() });
        };
        let id = usize::from(store.id);
        if let Some(&part @ 1..) = part_of_id.get(id) {
            return Ok(part - 1);
        }
        let part = Part::of(name, store).ok_or_else(|| ClientError::NoVersion { store: name.clone() })?;
        self.parts.push(part);
        if self.keys.len() > 1 {
            part_of_id.resize(part_of_id.len().max(id + 1), 0);
            part_of_id[id] = self.parts.len() as u16;
        }
        Ok(self.parts.len() as u16 - 1)
    }

    /// What to send next; nothing until something comes back, when it is the other's turn.
    pub fn next_send(&mut self, steering: &Steering, now_us: u64) -> Option<SubRequest<'_>> {
        if self.is_done() {
            return None;
        }
        while self.pending < SUB_REQUESTS_UNDER_WAY_MAX {
            let id = self.unsent;
            let sub = self.subs.get_mut(id)?;
            self.unsent += 1;
            let part = &self.parts[usize::from(sub.part)];
            if sub.generation != part.generation {
                sub.stage = Stage::Ended;
                continue;
            }
            sub.stage = Stage::Pending;
            sub.sent_us = now_us;
            sub.give_up_at_us = now_us.saturating_add(self.attempt_us);
            if self.options.hedge && sub.purpose != Purpose::Hedge {
                let threshold = steering.thresholds.threshold_us(sub.keys.len());
                sub.hedge_at_us = threshold.map_or(NEVER, |threshold| now_us.saturating_add(threshold));
            }
            self.pending += 1;
            steering.counts.sub_requests.fetch_add(1, Relaxed);
            match sub.purpose {
                Purpose::First => {
                    steering.retries.deposit();
                    steering.hedges.deposit();
                }
                Purpose::Retry => _ = steering.counts.retries.fetch_add(1, Relaxed),
                Purpose::Redirect => _ = steering.counts.redirects.fetch_add(1, Relaxed),
                Purpose::Hedge => _ = steering.counts.hedges.fetch_add(1, Relaxed),
            }
            let sub = &self.subs[id];
            return Some(SubRequest {
                id: id as SubId,
                node: sub.node,
                store_id: part.id,
                version: part.version,
                deadline_us: self.deadline_us,
                keys: &sub.keys,
            });
        }
        None
    }

    /// The keys, as they were given.
    pub fn keys(&self) -> &Arc<Vec<WireKey>> {
        &self.keys
    }

    /// Whether there is nothing more to wait for.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.unanswered == 0 || self.failed.is_some()
    }

    /// When [`Read::on_time`] is to be called, at the latest.
    pub fn wake_at_us(&self) -> u64 {
        let pending = self.subs.iter().filter(|sub| sub.stage == Stage::Pending);
        let timers = pending.map(|sub| sub.hedge_at_us.min(sub.give_up_at_us));
        timers.fold(self.deadline_us.min(self.resume_at_us), u64::min)
    }

    /// Whether a newer topology is wanted: answered once for each time that it is.
    pub fn take_refresh(&mut self) -> bool {
        std::mem::take(&mut self.refresh)
    }

    /// Whether [`Read::on_directory`] is worth calling when there is a newer one.
    pub fn wants_directory(&self) -> bool {
        self.parts.iter().any(|part| part.in_flux)
    }

    /// A node that was suspended for what this request saw of it, to be probed from now on. To be asked
    /// until there is none.
    pub fn take_suspended(&mut self) -> Option<NodeId> {
        self.suspended.pop()
    }

    /// The answer, once [`Read::is_done`].
    ///
    /// # Errors
    /// With [`Partial::Fail`], the error of a key that has no answer.
    pub fn finish(self) -> Result<BatchReply, ClientError> {
        debug_assert!(self.is_done());
        if let Some(error) = self.failed {
            return Err(error);
        }
        let unanswered = || {
            // `is_done` says that there is none; who asks too early is told so.
            Err(ClientError::Timeout { deadline_ms: 0 })
        };
        let sent = |purposes: &[Purpose]| {
            let sent = self.subs.iter().take(self.unsent);
            sent.filter(|sub| sub.sent_us != NEVER && purposes.contains(&sub.purpose))
                .count() as u32
        };
        let pinned = |part: Part| PinnedStore {
            name: part.name,
            id: part.id,
            version: part.version,
        };
        Ok(BatchReply {
            retried: sent(&[Purpose::Retry, Purpose::Redirect]),
            room: self.room,
            hedged: sent(&[Purpose::Hedge]),
            sub_requests: sent(&[Purpose::First, Purpose::Retry, Purpose::Redirect, Purpose::Hedge]),
            stores: self.parts.into_iter().map(pinned).collect(),
            values: self
                .states
                .into_iter()
                .map(|key| key.answer.unwrap_or_else(unanswered))
                .collect(),
        })
    }

    /// A key has its value. It fails if there is no room for that.
    pub(super) fn answer(&mut self, key: usize, value: Option<Bytes>, steering: &Steering) {
        if let Some(value) = &value
            && let Err(bytes_max) = self.room.take(value.len())
        {
            return self.give_up_key(key, ClientError::NoRoom { bytes_max }, steering);
        }
        let state = &mut self.states[key];
        debug_assert!(state.answer.is_none());
        self.waiting -= usize::from(std::mem::replace(&mut state.waiting, false));
        state.answer = Some(Ok(value));
        self.unanswered -= 1;
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
    }
}
