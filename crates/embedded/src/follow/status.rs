//! The state that a reader shares with the thread that follows a store: the present version, and the status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fondaco_fetch::{FetchControl, FetchProgress};
use fondaco_model::VersionNumber;
use parking_lot::{Condvar, Mutex};

use crate::error::EmbeddedError;
use crate::events::StreamProgress;
use crate::snapshot::Open;

/// The state of a reader that follows a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has the current version of the cluster.
    Current,
    /// It fetches the current version, or damaged files of it. It still reads the version before.
    Fetching,
    /// It has the files of the current version of a hybrid store, and reads the stream on top of it. It still reads the version before,
    /// if there is one.
    CatchingUp,
    /// It has the current version of a hybrid store, but the topic had deleted events before they were read: see
    /// [`StreamProgress::lost`]. It ends when a version that has their effects is swapped in.
    EventsLost,
    /// A fetch failed, and will be retried.
    Retrying,
    /// No control port answers, or none answers as it should.
    Unreachable,
    /// The cluster has no such store. The last version is still read.
    NoStore,
    /// The store has no version yet.
    NoVersion,
    /// The thread ended by a panic, perhaps of the function that is called after a swap. The last version is still read.
    Stopped,
}

impl State {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Fetching => "fetching",
            Self::CatchingUp => "catching up",
            Self::EventsLost => "events lost",
            Self::Retrying => "retrying",
            Self::Unreachable => "unreachable",
            Self::NoStore => "no store",
            Self::NoVersion => "no version",
            Self::Stopped => "stopped",
        }
    }
}

/// The status of a reader that follows a store.
#[derive(Debug, Clone)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// The version that it reads; `None` before the first one.
    pub version: Option<VersionNumber>,
    /// The current version of the cluster, as far as it is known.
    pub target: Option<VersionNumber>,
    /// The progress of the fetch under way.
    pub progress: Option<FetchProgress>,
    /// Why it has not the current version, or why the cluster cannot be asked; `None` if all is well.
    pub error: Option<String>,
    /// How long ago the cluster answered last; `None` if it has not answered since the start.
    pub contact_age: Option<Duration>,
    /// How far the stream on top of the version was read; `None` for batch stores, and before the first version.
    pub stream: Option<StreamProgress>,
}

/// The state that both sides share.
pub(crate) struct Shared {
    pub(crate) current: ArcSwapOption<Open>,
    facts: Mutex<Facts>,
    changed: Condvar,
}

/// The facts of the status.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) state: Option<State>,
    pub(super) target: Option<VersionNumber>,
    pub(super) control: Option<Arc<FetchControl>>,
    pub(super) error: Option<String>,
    pub(super) contact: Option<Instant>,
}

impl Facts {
    /// Records the state of the current version of the cluster, which is here. Whether the cluster answers is another matter.
    pub(super) fn settle(&mut self, state: State) {
        if self.state != Some(State::Unreachable) {
            self.state = Some(state);
            self.error = None;
        }
    }
}

impl Shared {
    /// A version that is opened by itself: its status does not change.
    pub(crate) fn of_one(open: Open) -> Self {
        Self::new(Some(Arc::new(open)), Some(State::Current))
    }

    /// The last version of a store that is followed.
    pub(super) fn following(current: Option<Arc<Open>>) -> Self {
        Self::new(current, None)
    }

    fn new(current: Option<Arc<Open>>, state: Option<State>) -> Self {
        Self {
            current: ArcSwapOption::new(current),
            facts: Mutex::new(Facts {
                state,
                ..Facts::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Replaces the present version by the current one of the cluster.
    pub(super) fn swap(&self, open: Arc<Open>) {
        self.change(|facts| {
            facts.settle(open.state());
            self.current.store(Some(open));
        });
    }

    /// Changes facts.
    pub(super) fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock());
        self.changed.notify_all();
    }

    pub(crate) fn version(&self) -> Option<VersionNumber> {
        self.current.load().as_ref().and_then(|open| open.number)
    }

    pub(crate) fn status(&self) -> Status {
        self.status_of(&self.facts.lock())
    }

    fn status_of(&self, facts: &Facts) -> Status {
        let current = self.current.load();
        let stream = current.as_ref().and_then(|open| open.layer.as_ref());
        Status {
            state: facts.state.unwrap_or(State::Unreachable),
            version: self.version(),
            target: facts.target,
            progress: facts.control.as_ref().map(|control| control.progress()),
            error: facts.error.clone(),
            contact_age: facts.contact.map(|contact| contact.elapsed()),
            stream: stream.map(|layer| layer.progress()),
        }
    }

    /// Waits until the status satisfies a condition.
    pub(crate) fn wait(&self, timeout: Duration, holds: impl Fn(&Status) -> bool) -> Result<(), EmbeddedError> {
        let deadline = Instant::now() + timeout;
        let mut facts = self.facts.lock();
        loop {
            let status = self.status_of(&facts);
            if holds(&status) {
                return Ok(());
            }
            if self.changed.wait_until(&mut facts, deadline).timed_out() && !holds(&self.status_of(&facts)) {
                return Err(EmbeddedError::Timeout {
                    waited: timeout,
                    version: status.version,
                    state: status.state,
                    reason: status.error.map_or_else(String::new, |error| format!(": {error}")),
                });
            }
        }
    }
}
