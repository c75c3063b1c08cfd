//! The rules for the values of a hybrid store while events are read: schemas are registered meanwhile.
//!
//! A value may name a schema that this node does not know. Then a [`SchemaFinder`] looks for it, on a thread of its own, and the topic
//! partition waits for its answer. A value is refused only if the schema was missing *after* the event was read. So of the
//! replicas of a partition none drops an event because it hears of a schema later than another one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use fondaco_schema::{Schemas, Update, ValueRules, read_id};
use parking_lot::{Condvar, Mutex};

use crate::error::StreamError;
use crate::event::Poison;

/// How long a thread of the ingest waits for an answer. Without one, it does other work, and the partition waits.
const ANSWERED_AT_ONCE: Duration = Duration::from_secs(1);

/// Finds schemas that events name. Calls may wait for a network.
pub trait SchemaFinder: Send + Sync {
    /// All schemas that the store has now: also one that another process registered just before the call.
    ///
    /// # Errors
    /// Why that is unknown: it is tried again.
    fn present(&self) -> Result<Arc<Schemas>, String>;
}

/// The present rules of one store. All its overlays share them.
#[derive(Default)]
pub struct LiveRules {
    rules: ArcSwap<ValueRules>,
    /// None if all schemas are known.
    finder: Option<Arc<dyn SchemaFinder>>,
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
}

#[derive(Default)]
struct Asked {
    is_running: bool,
    /// Why the last attempt had no answer.
    failure: Option<String>,
}

/// What has to be known before a value can be admitted or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missing {
    /// The schemas that the store has now.
    Present,
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
            questions: Arc::default(),
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
    pub(crate) fn admit(&self, value: &Bytes, read_at: Instant) -> Result<Bytes, NotAdmitted> {
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
            Ok(()) => Ok(value.clone()),
            Err(error) => {
                let value_type = rules.value_type();
                let reason = format!("the values of the store are of type {value_type}: {error}");
                Err(NotAdmitted::Poison(Poison(reason)))
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

    /// Looks for what is missing. Once it returns without an error, [`admit`](Self::admit) knows it.
    ///
    /// # Errors
    /// There is no answer yet: the caller has to try again later.
    pub(crate) fn find(self: &Arc<Self>, missing: Missing) -> Result<(), StreamError> {
        let Some(finder) = &self.finder else { return Ok(()) };
        let unanswered = |reason: Option<&String>| StreamError::Schemas {
            reason: reason.map_or_else(|| "the answer is late".to_owned(), Clone::clone),
        };
        let mut state = self.questions.state.lock();
        let asked = state.asked.entry(missing).or_default();
        if !asked.is_running {
            asked.is_running = true;
            let (rules, finder) = (Arc::clone(self), Arc::clone(finder));
            let thread = std::thread::Builder::new().name("find schemas".to_owned());
            if let Err(error) = thread.spawn(move || rules.ask(&*finder, missing)) {
                asked.is_running = false;
                let reason = format!("a thread cannot be started: {error}");
                return Err(StreamError::Schemas { reason });
            }
        }
        let deadline = Instant::now() + ANSWERED_AT_ONCE;
        loop {
            let is_late = self.questions.answered.wait_until(&mut state, deadline).timed_out();
            match state.asked.get(&missing) {
                None => return Ok(()),
                Some(asked) if is_late || !asked.is_running => return Err(unanswered(asked.failure.as_ref())),
                Some(_) => {}
            }
        }
    }

    /// Asks, and notes the answer.
    fn ask(&self, finder: &dyn SchemaFinder, missing: Missing) {
        let began = Instant::now();
        // One that panics has no answer, and must not be waited for.
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match missing {
            Missing::Present => finder.present(),
        }));
        let found = found.unwrap_or_else(|_| Err("the search for it panicked: see the log".to_owned()));
        let mut state = self.questions.state.lock();
        let failure = match found {
            Ok(schemas) => {
                let value_type = self.load().value_type();
                self.set_locked(ValueRules::new(value_type, schemas));
                state.present_at = Some(began);
                None
            }
            Err(reason) => Some(reason),
        };
        match (state.asked.entry(missing), failure) {
            (Entry::Occupied(mut asked), failure @ Some(_)) => {
                *asked.get_mut() = Asked {
                    is_running: false,
                    failure,
                };
            }
            (Entry::Occupied(asked), None) => _ = asked.remove(),
            (Entry::Vacant(_), _) => {}
        }
        drop(state);
        self.questions.answered.notify_all();
    }
}

fn has_unknown_id(rules: &ValueRules, value: &[u8]) -> bool {
    rules.value_type().has_schemas() && read_id(value).is_ok_and(|(id, _)| rules.schemas().get(id).is_none())
}
