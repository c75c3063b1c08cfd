//! The look-ups of a pipeline, done together.
//!
//! Requests that only look keys up (`GET`, `MGET`, `EXISTS`, …) are gathered from what a client has
//! sent, and their keys walk through the steps of a look-up side by side: while one key's records are
//! still on their way from memory, others are hashed and searched. A single request is a window of
//! one.
//!
//! Replies are written in the order of the requests. Where one needs the disk, the window pauses at a
//! [`WindowCursor`], to be resumed with the value. A window with keys that are not held here is not run at all
//! before other nodes have answered for those: see `connection::forward`.

mod add;
mod events;

use std::cell::{OnceCell, RefCell};
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Instant;

use fondaco_catalog::{Catalog, StoreId};
use fondaco_format::{ColdRead, FormatError, Lookup, Probe, Value, Version};
use fondaco_metrics::{Counter, LoopMetrics};
use fondaco_resp::Reply;
use fondaco_resp::command::CommandId;

use super::buffers::FREE_BYTES;
use super::commands::look_ups::{LookUp, Said, write_late};
use super::commands::operation::Combined;
use super::refusal;
use crate::forward::{Steered, StoreVersion, ValueAnswer};

/// When a window holds this many keys, it is run before more requests are read.
pub(in crate::server) const WINDOW_KEYS: usize = 64;
/// The values of a batch of this many keys are sent as they come.
pub(in crate::server) const STREAMED_KEYS_MIN: usize = 1000;

/// Replies are sent when they pass this, also in the middle of a pipeline or of an `MGET`.
pub(in crate::server) const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// Requests that wait to be answered together.
#[derive(Default)]
pub(in crate::server) struct Window {
    requests: Vec<Request>,
    keys: Vec<Key>,
    /// The bytes of all keys: the input that they were parsed from may be gone before they are answered.
    key_bytes: Vec<u8>,
    /// How many keys replicas or other nodes have to be asked for.
    remote: usize,
    /// How many such keys it may have; `None` before the first.
    remote_max: Option<usize>,
    /// How many keys are read from the version of a canary.
    canary: usize,
    /// Since when it has keys of stores with a canary.
    watched_since: Option<Instant>,
    /// Whether there may be later events on top of what versions have for keys.
    has_events: bool,
    /// How many keys of hybrid stores the disk has to be read for first.
    cold_events: usize,
    /// The answers of later events.
    known: Vec<ValueAnswer>,
    /// The options of a `FONDACO.MGET`, which is alone in its window.
    steered: Option<Steered>,
    /// The places of keys without an answer, of a request that lists them at its end.
    late: RefCell<Vec<usize>>,
    /// The first error that was answered.
    failure: OnceCell<Box<str>>,
}

struct Request {
    command: CommandId,
    look_up: LookUp,
    reply: Combined,
    /// Its keys are those from where the request before ended to here.
    keys_end: u32,
    /// How long it may take, if that is limited.
    timeout_ms: Option<u64>,
    /// Whether keys without an answer are listed behind the values.
    lists_late: bool,
    /// The rate of requests that the reply begins with, if it was asked for.
    rate: Option<u32>,
}

struct Key {
    start: u32,
    end: u32,
    /// The place of its store in [`Catalog::stores`].
    store: u16,
    place: KeyPlace,
    /// Whether it is read from the version of its store's canary, and no version was named.
    is_canary: bool,
}

/// The place of the answer for a key.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) enum KeyPlace {
    /// In an open version, or in the later events on top of it.
    Version { version: u16, probe: Probe },
    /// In memory, in the later events on top of a version: at this place among the answers that the window knows.
    Known(u32),
    /// In the later events of this open version, or in the version itself.
    Events(u16),
    /// With replicas.
    Replicas,
    /// With other nodes.
    Nodes,
}

/// The place at which a window is resumed: a key of a request, with the sum of the request so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct WindowCursor {
    request: usize,
    pub(in crate::server) key: usize,
    begun: bool,
    sum: i64,
}

/// How far a window came.
pub(in crate::server) enum Run {
    /// All requests are answered.
    Done,
    /// The key at this place needs the disk, and this read of it.
    Cold(WindowCursor, ColdRead),
    /// The replies that are ready should be sent before those from this place on: they are long enough.
    Full(WindowCursor),
    /// The value of the key at this place is so long that its reply may have to wait for memory.
    Long(WindowCursor),
}

/// The outcomes of look-ups, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::server) struct Tally {
    pub(in crate::server) hot: u64,
    pub(in crate::server) cold: u64,
    pub(in crate::server) absent: u64,
    pub(in crate::server) failed: u64,
}

impl Tally {
    /// Adds the counts of further look-ups.
    pub(in crate::server) fn add(&mut self, other: Self) {
        self.hot += other.hot;
        self.cold += other.cold;
        self.absent += other.absent;
        self.failed += other.failed;
    }

    /// Adds these counts to the counters of a loop.
    pub(in crate::server) fn count_in(self, metrics: &LoopMetrics) {
        metrics.add(Counter::HotLookups, self.hot);
        metrics.add(Counter::ColdLookups, self.cold);
        metrics.add(Counter::AbsentLookups, self.absent);
        metrics.add(Counter::FailedLookups, self.failed);
    }

    /// Counts the answer for a key of a versioned store.
    pub(in crate::server) fn count_replicas(&mut self, answer: &ValueAnswer) {
        match answer {
            Ok(value) => {
                self.hot += 1;
                self.absent += u64::from(value.is_none());
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// The answer for one key: its value, or why it is not known, as an error begins with its code.
pub(in crate::server) type Answer<'a> = Result<Option<&'a [u8]>, &'a dyn Display>;

impl Window {
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(in crate::server) fn is_full(&self) -> bool {
        self.keys.len() >= WINDOW_KEYS || self.steered.is_some()
    }

    /// The options of its requests for the nodes to ask.
    pub(in crate::server) fn steered(&self) -> Steered {
        self.steered.unwrap_or_default()
    }

    pub(in crate::server) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key on the wire is of the same store as the last key, which is a batch or hybrid store.
    #[inline]
    pub(in crate::server) fn is_of_last_store(&self, wire_key: &[u8], catalog: &Catalog) -> bool {
        self.keys.last().is_some_and(|last| {
            let name = catalog.stores()[usize::from(last.store)].name.as_str().as_bytes();
            let is_same = wire_key.starts_with(name) && wire_key.get(name.len()) == Some(&b':');
            is_same && catalog.versioned(last.store).is_none()
        })
    }

    /// Whether replicas or other nodes have to be asked.
    #[inline]
    pub(in crate::server) fn is_split(&self) -> bool {
        self.remote + self.cold_events > 0
    }

    /// Where the answer for the key at a place is.
    #[inline]
    pub(in crate::server) fn place(&self, at: usize) -> KeyPlace {
        self.keys[at].place
    }

    /// The answer for the key at a place, if it is known.
    #[inline]
    pub(in crate::server) fn known(&self, at: usize) -> Option<&ValueAnswer> {
        match self.keys[at].place {
            KeyPlace::Known(place) => self.known.get(place as usize),
            _ => None,
        }
    }

    /// Whether its values are sent as they come, in the order of its keys: it is one large batch.
    pub(in crate::server) fn is_streamed(&self) -> bool {
        self.keys.len() >= STREAMED_KEYS_MIN
            && self.canary == 0
            && matches!(&self.requests[..], [one] if one.reply == Combined::Array)
    }

    /// Whether other nodes are asked for all keys at once, at the current versions of their stores.
    pub(in crate::server) fn is_with_nodes(&self) -> bool {
        let is_with_nodes = |key: &Key| matches!(key.place, KeyPlace::Nodes);
        self.canary == 0 && !self.is_streamed() && self.keys.iter().all(is_with_nodes)
    }

    /// How many keys are looked up here.
    pub(in crate::server) fn local_keys(&self) -> usize {
        self.keys.len() - self.remote
    }

    /// The first error that was answered, its code first.
    pub(in crate::server) fn failure(&self) -> Option<&str> {
        self.failure.get().map(|failure| &**failure)
    }

    /// The commands of all requests, each with the store of its first key, unless another node asks.
    pub(in crate::server) fn commands<'a>(
        &'a self,
        catalog: &'a Catalog,
    ) -> impl Iterator<Item = (CommandId, Option<StoreId>)> + 'a {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.keys_end));
        self.requests.iter().zip(starts).map(|(request, start)| {
            let is_clients = request.command != CommandId::FondacoRead;
            let first = self
                .keys
                .get(start as usize)
                .filter(|_| is_clients && start < request.keys_end);
            let store = first.and_then(|key| catalog.stores().get(usize::from(key.store)));
            (request.command, store.map(|store| store.id))
        })
    }

    pub(in crate::server) fn clear(&mut self) {
        const KEPT_MAX: usize = 4096;
        self.requests.clear();
        self.keys.clear();
        self.key_bytes.clear();
        self.remote = 0;
        self.remote_max = None;
        self.canary = 0;
        self.watched_since = None;
        self.has_events = false;
        self.cold_events = 0;
        self.known.clear();
        self.steered = None;
        self.late.take();
        self.failure.take();
        self.keys.shrink_to(KEPT_MAX);
        self.known.shrink_to(KEPT_MAX);
        self.key_bytes.shrink_to(KEPT_MAX * 16);
    }

    /// The key at a place: its bytes, and the place of its store in [`Catalog::stores`].
    pub(in crate::server) fn key(&self, at: usize) -> (&[u8], u16) {
        let key = &self.keys[at];
        (&self.key_bytes[key.start as usize..key.end as usize], key.store)
    }

    /// The version that the key at a place is looked up in; `None` if it is not looked up in one here.
    pub(in crate::server) fn version<'a>(&self, at: usize, catalog: &'a Catalog) -> Option<&'a Arc<Version>> {
        match self.keys[at].place {
            KeyPlace::Version { version, .. } => Some(catalog.version(version)),
            _ => None,
        }
    }

    /// Since when it has keys of stores with a canary, if it has any.
    #[inline]
    pub(in crate::server) fn watched_since(&self) -> Option<Instant> {
        self.watched_since
    }

    /// How many requests it has.
    pub(in crate::server) fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// Whether the key at a place is read from the version of its store's canary, and no version was named.
    pub(in crate::server) fn reads_canary(&self, at: usize) -> bool {
        self.keys[at].is_canary
    }

    /// The version that the key at a place is read from, if no version was named.
    pub(in crate::server) fn source(&self, at: usize, catalog: &Catalog) -> Option<StoreVersion> {
        let key = &self.keys[at];
        StoreVersion::of_read(catalog, key.store, key.is_canary)
    }

    /// The places of keys that are read from the current version, not from one that a request names.
    pub(in crate::server) fn unpinned(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.requests.iter().map(|request| request.keys_end as usize));
        let requests = self.requests.iter().zip(starts);
        let unpinned = requests.filter(|(request, _)| request.command != CommandId::FondacoRead);
        unpinned.flat_map(|(request, start)| start..request.keys_end as usize)
    }

    /// How long the request at a place may take, if that is limited.
    pub(in crate::server) fn timeout_ms(&self, place: &WindowCursor) -> Option<u64> {
        self.requests.get(place.request)?.timeout_ms
    }

    /// Looks one key up, without waiting; [`Lookup::Absent`] if its answer is not in a version that is open here.
    #[inline]
    pub(in crate::server) fn look_up<'a>(&'a self, at: usize, catalog: &'a Catalog) -> Result<Lookup<'a>, FormatError> {
        let key = &self.keys[at];
        let KeyPlace::Version { version, probe } = &key.place else {
            return Ok(Lookup::Absent);
        };
        let bytes = &self.key_bytes[key.start as usize..key.end as usize];
        catalog.version(*version).lookup(probe, bytes)
    }

    #[inline]
    fn prefetch(&self, at: usize, catalog: &Catalog) {
        if let Some(key) = self.keys.get(at)
            && let KeyPlace::Version { version, probe } = &key.place
        {
            catalog.version(*version).prefetch(probe);
        }
    }

    /// Answers requests until one needs the disk, or there are enough replies to be sent.
    #[inline]
    pub(in crate::server) fn run(&self, catalog: &Catalog, reply: &mut Reply<'_>, tally: &mut Tally) -> Run {
        debug_assert!(!self.is_split());
        let mut place = WindowCursor::default();
        let mut prefetched = match self.keys.len() {
            0 | 1 => usize::MAX,
            _ => 0,
        };
        while self.begin(&mut place, reply) {
            if reply.buffer.len() > OUTPUT_BYTES_MAX {
                return Run::Full(place);
            }
            // A group is searched while the next one is on its way from memory.
            while prefetched < place.key.saturating_add(Version::GROUP) {
                (prefetched..prefetched + Version::GROUP).for_each(|at| self.prefetch(at, catalog));
                prefetched += Version::GROUP;
            }
            if let Some(answer) = self.known(place.key) {
                tally.count_replicas(answer);
                self.answer_with(&mut place, answer, reply);
                continue;
            }
            match self.look_up(place.key, catalog) {
                Ok(Lookup::Found(value)) if value.len() as u64 > FREE_BYTES => return Run::Long(place),
                Ok(Lookup::Found(value)) => {
                    if self.answer_found(&mut place, &value, reply) {
                        tally.hot += 1;
                    }
                }
                Ok(Lookup::Absent) => {
                    tally.hot += 1;
                    tally.absent += 1;
                    self.answer(&mut place, Ok(None), reply);
                }
                Ok(Lookup::Cold(read)) => return Run::Cold(place, read),
                Err(error) => {
                    tally.failed += 1;
                    self.answer(&mut place, Err(&Failure(&error)), reply);
                }
            }
        }
        Run::Done
    }

    /// Moves a place to the next key that waits for an answer, beginning and ending requests on the
    /// way; false at the end.
    #[inline]
    pub(in crate::server) fn begin(&self, place: &mut WindowCursor, reply: &mut Reply<'_>) -> bool {
        while let Some(request) = self.requests.get(place.request) {
            if !place.begun {
                place.begun = true;
                place.sum = 0;
                if request.reply == Combined::Array {
                    let keys = request.keys_end as usize - place.key;
                    reply.array(keys + usize::from(request.rate.is_some()) + usize::from(request.lists_late));
                    if let Some(rate) = request.rate {
                        reply.integer(rate.into());
                    }
                }
            }
            if place.key < request.keys_end as usize {
                return true;
            }
            if request.reply == Combined::Sum {
                reply.integer(place.sum);
            }
            if request.lists_late {
                write_late(self.failure(), &self.late.take(), reply);
            }
            place.begun = false;
            place.request += 1;
        }
        false
    }

    /// Answers the key at a place with the answer of a replica or of another node, and moves on to the next.
    pub(in crate::server) fn answer_with(&self, place: &mut WindowCursor, answer: &ValueAnswer, reply: &mut Reply<'_>) {
        match answer {
            Ok(value) => self.answer(place, Ok(value.as_deref()), reply),
            Err(error) => self.answer(place, Err(error), reply),
        }
    }

    /// Answers the key at a place with a value that was found in memory, and moves on to the next; or neither,
    /// if the disk could not give all of its bytes: it is to be looked up again then.
    #[inline]
    pub(in crate::server) fn answer_found(
        &self,
        place: &mut WindowCursor,
        value: &Value<'_>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let (before, reply_bytes) = (*place, reply.buffer.len());
        self.answer(place, Ok(Some(value)), reply);
        let is_intact = value.is_intact();
        if !is_intact {
            *place = before;
            reply.buffer.truncate(reply_bytes);
        }
        is_intact
    }

    /// Answers the key at a place, and moves on to the next.
    #[inline]
    pub(in crate::server) fn answer(&self, place: &mut WindowCursor, answer: Answer<'_>, reply: &mut Reply<'_>) {
        let request = &self.requests[place.request];
        place.key += 1;
        let value = match answer {
            Ok(value) => value,
            // The sum would be wrong: the error takes its place.
            Err(error) => {
                let error = error.to_string();
                match request.lists_late {
                    // Such a request is alone in its window.
                    true => {
                        self.late.borrow_mut().push(place.key - 1);
                        reply.null();
                    }
                    false => reply.error(&error),
                }
                let _ = self.failure.set(error.into());
                if request.reply == Combined::Sum {
                    place.key = request.keys_end as usize;
                    place.begun = false;
                    place.request += 1;
                }
                return;
            }
        };
        // The values that a window looks up do not expire, or are not asked when.
        match (request.reply, request.look_up.of(value, None, 0)) {
            (Combined::Sum, Said::Integer(number)) => place.sum += number,
            (_, said) => said.write(reply),
        }
    }
}

/// A failed look-up, as it is answered.
pub(in crate::server) struct Failure<'a>(pub(in crate::server) &'a FormatError);

impl Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&refusal::failure(self.0))
    }
}
