//! The rules for the values of a hybrid store while events are read: schemas are registered meanwhile.
//!
//! A value may name a schema that this node does not know. Then a [`SchemaFinder`] looks for it, on a thread of its own, and the topic
//! partition waits for its answer. A value is refused only if the schema was missing *after* the event was read. So of the
//! replicas of a partition none drops an event because it hears of a schema later than another one.
//!
//! Values with the numbers of a registry outside of the cluster are stored with the store's own schema ids. Schemas of a store are
//! never taken back. So once a foreign schema is registered in the store, or clashes with a schema of it, that holds for all nodes.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use fondaco_model::ValueType;
use fondaco_schema::{
    Schema, Schemas, Update, ValueError, ValueRules, check_value, put_id, read_id, read_message_indexes,
    read_registry_id,
};
use parking_lot::{Condvar, Mutex};

use crate::error::StreamError;
use crate::event::Poison;

/// How long threads of the ingest wait for the answer to a new question. Without one, they do other work, and the partition waits.
const ANSWERED_AT_ONCE: Duration = Duration::from_secs(1);

/// How long the values of a foreign schema are refused before the registry is asked again.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// How many schemas of a registry are remembered; with more, all are asked for again.
const FOREIGN_MAX: usize = 10_000;

/// Finds schemas that events name. Calls may wait for a network.
pub trait SchemaFinder: Send + Sync {
    /// All schemas that the store has now: also one that another process registered just before the call.
    ///
    /// # Errors
    /// Why that is unknown: it is tried again.
    fn present(&self) -> Result<Arc<Schemas>, String>;

    /// The schema with this number in the registry of the events' producers; of Protobuf, the message with these indexes in it. It
    /// is registered in the store if the store lacks it.
    ///
    /// # Errors
    /// Why that is unknown: it is tried again.
    fn foreign(&self, number: u32, message: &[u32]) -> Result<Foreign, String>;
}

/// A schema of a registry outside of the cluster, for a store.
#[derive(Debug, Clone)]
pub enum Foreign {
    /// Its payloads are of this schema of the store.
    Schema(u16, Schema),
    /// Its payloads are JSON, and so are the store's values.
    Json,
    /// Values of it cannot be stored, and why.
    Refused(String),
}

/// The present rules of one store. All its overlays share them.
#[derive(Default)]
pub struct LiveRules {
    rules: ArcSwap<ValueRules>,
    /// None if all schemas are known.
    finder: Option<Arc<dyn SchemaFinder>>,
    /// Whether values have the numbers of a registry outside of the cluster.
    is_foreign: bool,
    questions: Arc<Questions>,
}

#[derive(Default)]
struct Questions {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Questions that are being asked, or had no answer last.
    asked: BTreeMap<Missing, Asked>,
    /// When the last look began that has found all schemas of the store.
    present_at: Option<Instant>,
    /// Schemas of the registry outside, and when each was found.
    foreign: HashMap<ForeignName, (Instant, Foreign)>,
}

#[derive(Default)]
struct Asked {
    /// Since when it is being asked, if it is.
    running: Option<Instant>,
    /// Why the last attempt had no answer.
    failure: Option<String>,
}

/// The number of a schema in the registry outside, and the indexes of Protobuf's message in it.
type ForeignName = (u32, Vec<u32>);

/// The schema that is missing before a value can be admitted or refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missing {
    /// The schemas that the store has now.
    Present,
    /// The schema of the registry outside.
    Foreign(ForeignName),
}

/// Why a value is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// It does not fit.
    Poison(Poison),
    /// That is unknown before [`LiveRules::find`] has found this.
    Unknown(Missing),
}

impl LiveRules {
    /// Begins with these rules. Without a finder, the schemas among them are all that there are.
    pub fn new(rules: ValueRules, finder: Option<Arc<dyn SchemaFinder>>) -> Self {
        Self {
            rules: ArcSwap::from_pointee(rules),
            finder,
            is_foreign: false,
            questions: Arc::default(),
        }
    }

    /// The same for values with the numbers of a registry outside of the cluster, as Confluent's serializers write them.
    pub fn with_foreign_values(rules: ValueRules, finder: Arc<dyn SchemaFinder>) -> Self {
        Self {
            is_foreign: true,
            ..Self::new(rules, Some(finder))
        }
    }

    /// Replaces the rules: a schema was registered. Schemas are never taken back: rules with fewer are older ones.
    pub fn set(&self, rules: ValueRules) {
        let _state = self.questions.state.lock();
        self.set_locked(rules);
    }

    fn set_locked(&self, rules: ValueRules) {
        let newest = |rules: &ValueRules| rules.schemas().newest().map(|(id, _)| id);
        if newest(&rules) >= newest(&self.load()) {
            self.rules.store(Arc::new(rules));
        }
    }

    /// The present rules.
    pub fn load(&self) -> Guard<Arc<ValueRules>> {
        self.rules.load()
    }

    /// The value of an event as it is stored. The event was read from its topic at this time.
    pub(crate) fn admit<'v>(&self, value: &'v Bytes, read_at: Instant) -> Result<Cow<'v, Bytes>, NotAdmitted> {
        if self.is_foreign {
            return self.admit_foreign(value).map(Cow::Owned);
        }
        let mut rules = self.load();
        if self.finder.is_some() && has_unknown_id(&rules, value) {
            // Locked, so that the answer and its time belong together.
            let state = self.questions.state.lock();
            rules = self.load();
            if has_unknown_id(&rules, value) && state.present_at.is_none_or(|at| at < read_at) {
                return Err(NotAdmitted::Unknown(Missing::Present));
            }
        }
        match rules.check(value) {
            Ok(()) => Ok(Cow::Borrowed(value)),
            Err(error) => {
                let set = set_of_text(&rules, value).map(Cow::Owned);
                set.ok_or_else(|| misfit(rules.value_type(), &error))
            }
        }
    }

    /// The same for a value with the number of a schema in a registry outside of the cluster.
    fn admit_foreign(&self, value: &Bytes) -> Result<Bytes, NotAdmitted> {
        let value_type = self.load().value_type();
        let misfit = |error| misfit(value_type, &error);
        let (number, mut payload) = read_registry_id(value).map_err(misfit)?;
        let mut message = Vec::new();
        if value_type == ValueType::Protobuf {
            (message, payload) = read_message_indexes(payload).map_err(misfit)?;
        }
        let name = (number, message);
        let state = self.questions.state.lock();
        let found = match state.foreign.get(&name) {
            Some((at, Foreign::Refused(_))) if at.elapsed() >= REFUSED_FOR => None,
            found => found.map(|(_, found)| found.clone()),
        };
        drop(state);
        match found {
            None => Err(NotAdmitted::Unknown(Missing::Foreign(name))),
            Some(Foreign::Refused(reason)) => Err(NotAdmitted::Poison(Poison(reason))),
            Some(Foreign::Json) => {
                check_value(ValueType::Json, payload).map_err(misfit)?;
                Ok(value.slice_ref(payload))
            }
            Some(Foreign::Schema(id, schema)) => {
                schema.validate(payload).map_err(misfit)?;
                let mut stored = Vec::with_capacity(2 + payload.len());
                put_id(id, &mut stored);
                stored.extend(payload);
                Ok(stored.into())
            }
        }
    }

    /// Whether the schemas that an update needs are known, of an event that was read at this time: the newest one has the fields
    /// that it names, or none had when they were looked for.
    pub(crate) fn admit_update(&self, update: &Update, read_at: Instant) -> Result<(), Missing> {
        if self.finder.is_some() && !self.load().knows_fields(update) {
            let state = self.questions.state.lock();
            if !self.load().knows_fields(update) && state.present_at.is_none_or(|at| at < read_at) {
                return Err(Missing::Present);
            }
        }
        Ok(())
    }

    /// Looks for a missing schema. Once it returns without an error, [`admit`](Self::admit) decides on the value.
    ///
    /// # Errors
    /// There is no answer yet: the caller has to try again later.
    pub(crate) fn find(self: &Arc<Self>, missing: &Missing) -> Result<(), StreamError> {
        let Some(finder) = &self.finder else { return Ok(()) };
        let mut state = self.questions.state.lock();
        let asked = state.asked.entry(missing.clone()).or_default();
        if asked.running.is_none() {
            let (rules, finder, missing) = (Arc::clone(self), Arc::clone(finder), missing.clone());
            let thread = std::thread::Builder::new().name("find schemas".to_owned());
            let spawned = thread.spawn(move || rules.ask(&*finder, missing));
            let reason = spawned.map_err(|error| format!("a thread cannot be started: {error}"));
            reason.map_err(|reason| StreamError::Schemas { reason })?;
            asked.running = Some(Instant::now());
        }
        // A question that had no answer, or is late, keeps no thread.
        let deadline = asked.running.filter(|_| asked.failure.is_none());
        let deadline = deadline.map_or_else(Instant::now, |since| since + ANSWERED_AT_ONCE);
        loop {
            let is_late = self.questions.answered.wait_until(&mut state, deadline).timed_out();
            match state.asked.get(missing) {
                None => return Ok(()),
                Some(asked) if is_late || asked.running.is_none() => {
                    let reason = asked.failure.clone();
                    let reason = reason.unwrap_or_else(|| "the answer is late".to_owned());
                    return Err(StreamError::Schemas { reason });
                }
                Some(_) => {}
            }
        }
    }

    /// Asks, and notes the answer.
    fn ask(&self, finder: &dyn SchemaFinder, missing: Missing) {
        let began = Instant::now();
        // One that panics has no answer, and must not be waited for.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match &missing {
            Missing::Present => finder.present().map(Answer::Present),
            Missing::Foreign(name) => {
                let found = finder.foreign(name.0, &name.1)?;
                Ok(Answer::Foreign(name.clone(), found))
            }
        }));
        let found = found.unwrap_or_else(|_| Err("the search for it panicked: see the log".to_owned()));
        let mut state = self.questions.state.lock();
        let failure = match found {
            Ok(Answer::Present(schemas)) => {
                let value_type = self.load().value_type();
                self.set_locked(ValueRules::new(value_type, schemas));
                state.present_at = Some(began);
                None
            }
            Ok(Answer::Foreign(name, found)) => {
                if state.foreign.len() >= FOREIGN_MAX {
                    state.foreign.clear();
                }
                state.foreign.insert(name, (Instant::now(), found));
                None
            }
            Err(reason) => Some(reason),
        };
        match (state.asked.entry(missing), failure) {
            (Entry::Occupied(mut asked), failure @ Some(_)) => {
                *asked.get_mut() = Asked { running: None, failure };
            }
            (Entry::Occupied(asked), None) => _ = asked.remove(),
            (Entry::Vacant(_), _) => {}
        }
        drop(state);
        self.questions.answered.notify_all();
    }
}

/// A set of ids that is written as text, as it is stored.
fn set_of_text(rules: &ValueRules, value: &[u8]) -> Option<Bytes> {
    let text = str::from_utf8(value)
        .ok()
        .filter(|_| rules.value_type() == ValueType::Ids)?;
    let ids = fondaco_ids::parse_text(text).ok()?;
    Some(fondaco_ids::encode(&ids).ok()?.into())
}

/// The answer of a finder.
enum Answer {
    Present(Arc<Schemas>),
    Foreign(ForeignName, Foreign),
}

fn misfit(value_type: ValueType, error: &ValueError) -> NotAdmitted {
    let reason = format!("the values of the store are of type {value_type}: {error}");
    NotAdmitted::Poison(Poison(reason))
}

fn has_unknown_id(rules: &ValueRules, value: &[u8]) -> bool {
    rules.value_type().has_schemas() && read_id(value).is_ok_and(|(id, _)| rules.schemas().get(id).is_none())
}
