//! The cluster as this process sees it: all entries that it watches, kept up to date.
//!
//! It decides nothing and writes nothing. While the coordination service does not answer, the last view stays, and a
//! process that starts meanwhile begins with the view that it remembers. An entry that cannot be parsed leaves its
//! former record in place: it must not blind the process to all others. So does the missing entry of a store that no
//! record declares dropped.
//!
//! Several entries may be written at once, and are told one by one. Of stores that were swapped by one write, the view has all new records
//! or none: requests never see the new version of one of them beside the old one of another.
//!
//! A service that shows another cluster than before, or older entries, was emptied or restored from an older copy. It
//! counts as not answering: the last view stays until an operator has decided which entries are true.
//!
//! The mirror ends with its session: its thread does not keep the session alive.

mod reading;
mod sighting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fondaco_catalog::{Settings, SharedAccess};
use fondaco_coordination::{Coordination, CoordinationError, EntryPath, WatchEvent};
use fondaco_decisions::{Discontinuity, RecordPath};
use fondaco_model::Identity;
use fondaco_model::cluster::ClusterView;
use fondaco_protocol::now_unix_ms;
use parking_lot::Mutex;
use reading::{Found, Problems, Reading};

use crate::change_signal::ChangeSignal;
use crate::error::ClusterError;
use crate::layout;
use crate::setting_changes::take_up;

pub(crate) use reading::parse;
pub use sighting::{Origin, Sighting};

/// How soon a failed read is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// How long it waits for events when nothing is left to read.
const IDLE: Duration = Duration::from_secs(5);

/// The view of a process. Clones share it.
#[derive(Clone)]
pub struct Mirror(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Held from reading an entry until it is in the state, so that an older record never replaces a newer one.
    reading: Mutex<()>,
    /// Raised after each change; the first is the mirror's own.
    signals: Mutex<Vec<Arc<ChangeSignal>>>,
    own: Arc<ChangeSignal>,
    decides: bool,
    /// Settings, updated here when they change.
    settings: Arc<Settings>,
    /// Users, updated here when they change.
    access: Arc<SharedAccess>,
    events: AtomicU64,
    full: AtomicU64,
}

/// Counters of the mirror's reads, for metrics.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    /// Events of its watch.
    pub events: u64,
    /// How often it read all entries.
    pub full: u64,
}

#[derive(Default)]
struct State {
    sighting: Sighting,
    problems: Problems,
    /// Why the service's entries are rejected, while they are.
    discontinuity: Option<Discontinuity>,
    stale_since: Option<Instant>,
    /// When nodes left that this process had seen, in milliseconds since 1970.
    absent_since_unix_ms: BTreeMap<Identity, u64>,
}

/// The entries to read.
#[derive(Default)]
struct Pending {
    all: bool,
    paths: BTreeSet<EntryPath>,
}

impl Mirror {
    /// Begins to mirror, on a thread that ends with the session. Controllers mirror reports, too.
    pub fn start(
        coordination: &Arc<dyn Coordination>,
        decides: bool,
        settings: Arc<Settings>,
        access: Arc<SharedAccess>,
        remembered: Option<ClusterView>,
    ) -> Result<(Self, JoinHandle<()>), ClusterError> {
        let mut state = State::default();
        if let Some(view) = remembered {
            crate::access::take_up(&view, &access);
            state.sighting.view = Arc::new(view);
            state.sighting.origin = Origin::Memory;
            // The remembered view was not confirmed since.
            state.stale_since = Some(Instant::now());
        }
        let own = Arc::new(ChangeSignal::default());
        let mirror = Self(Arc::new(Shared {
            state: Mutex::new(state),
            reading: Mutex::default(),
            signals: Mutex::new(vec![Arc::clone(&own)]),
            own,
            decides,
            settings,
            access,
            events: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }));
        let watch = coordination.watch(&layout::watched(decides)?)?;
        let session = Arc::downgrade(coordination);
        let shared = Arc::clone(&mirror.0);
        let thread = std::thread::Builder::new()
            .name("mirror".into())
            .spawn(move || {
                let mut pending = Pending::default();
                loop {
                    let patience = if pending.is_empty() { IDLE } else { RETRY };
                    let event = watch.next(patience);
                    shared.events.fetch_add(u64::from(event.is_some()), Relaxed);
                    match event {
                        Some(WatchEvent::Everything) => pending.all = true,
                        Some(WatchEvent::Changed(paths)) => pending.paths.extend(paths),
                        Some(WatchEvent::Suspended) => shared.suspend(),
                        Some(WatchEvent::Closed) => return,
                        None => {}
                    }
                    if !shared.catch_up(&session, &mut pending) {
                        return;
                    }
                }
            })
            .map_err(ClusterError::io("start", "mirror thread"))?;
        Ok((mirror, thread))
    }

    /// The present state.
    pub fn sighting(&self) -> Sighting {
        self.0.state.lock().sighting.clone()
    }

    /// The present view of the cluster.
    pub fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.0.state.lock().sighting.view)
    }

    /// Whether the coordination service has ever answered, or an earlier view is remembered.
    pub fn has_seen(&self) -> bool {
        self.0.state.lock().sighting.origin != Origin::Nothing
    }

    /// When the coordination service stopped answering; `None` while it answers.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.state.lock().stale_since
    }

    /// When a node left, in milliseconds since 1970; `None` if it is live, or this process has never seen it.
    pub fn absent_since_unix_ms(&self, node: &Identity) -> Option<u64> {
        self.0.state.lock().absent_since_unix_ms.get(node).copied()
    }

    /// Entries that cannot be parsed, and why.
    pub fn problems(&self) -> Vec<String> {
        let state = self.0.state.lock();
        let problem = |(path, reason): (&EntryPath, &String)| format!("metadata entry {path:?}: {reason}");
        let discontinuity = state.discontinuity.iter().map(Discontinuity::to_string);
        discontinuity.chain(state.problems.iter().map(problem)).collect()
    }

    /// Why the service's entries are rejected; `None` if they are not.
    pub fn discontinuity(&self) -> Option<Discontinuity> {
        self.0.state.lock().discontinuity.clone()
    }

    /// The counters of its reads so far.
    pub fn reads(&self) -> Reads {
        Reads {
            events: self.0.events.load(Relaxed),
            full: self.0.full.load(Relaxed),
        }
    }

    /// Raises a signal after every change from now on.
    pub fn raise_on_change(&self, change_signal: &Arc<ChangeSignal>) {
        self.0.signals.lock().push(Arc::clone(change_signal));
    }

    /// The signal that is raised after every change.
    pub(crate) fn own_signal(&self) -> &ChangeSignal {
        &self.0.own
    }

    /// Reads some entries now, instead of at the next event of the watch.
    ///
    /// # Errors
    /// They cannot be read; the former view stays.
    pub(crate) fn refresh(
        &self,
        coordination: &dyn Coordination,
        paths: &[EntryPath],
    ) -> Result<(), CoordinationError> {
        let pending = Pending {
            all: false,
            paths: paths.iter().cloned().collect(),
        };
        self.0.read(coordination, &pending)?;
        self.0.raise_all();
        Ok(())
    }

    /// Waits until `holds` is true of the present state, at most for `timeout`. Returns whether it is.
    pub fn wait_until(&self, timeout: Duration, mut holds: impl FnMut(&Sighting) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let seen = self.0.own.count();
            if holds(&self.sighting()) {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            self.0.own.wait(seen, left);
        }
    }
}

impl Shared {
    fn suspend(&self) {
        let mut state = self.state.lock();
        state.stale_since.get_or_insert_with(Instant::now);
        state.sighting.is_current = false;
        drop(state);
        tracing::warn!("the coordination service does not answer: continuing with the last view");
        self.raise_all();
    }

    fn raise_all(&self) {
        self.signals
            .lock()
            .iter()
            .for_each(|change_signal| change_signal.raise());
    }

    /// Reads the pending entries. Returns whether the session still exists.
    fn catch_up(&self, session: &Weak<dyn Coordination>, pending: &mut Pending) -> bool {
        let Some(coordination) = session.upgrade() else {
            return false;
        };
        if pending.is_empty() {
            return true;
        }
        match self.read(&*coordination, pending) {
            Ok(()) => {
                *pending = Pending::default();
                self.raise_all();
            }
            Err(error) => tracing::warn!(%error, "cannot read metadata: trying again"),
        }
        true
    }

    fn read(&self, coordination: &dyn Coordination, pending: &Pending) -> Result<(), CoordinationError> {
        let _reading = self.reading.lock();
        // While entries are rejected, a change alone does not show whether the rest continues the former view.
        let all = pending.all || self.state.lock().discontinuity.is_some();
        match self.read_locked(coordination, pending, all)? {
            // An operator has decided which entries are true: read all of them.
            Taken::Adopted if !all => self.read_locked(coordination, pending, true).map(drop),
            _ => Ok(()),
        }
    }

    fn read_locked(
        &self,
        coordination: &dyn Coordination,
        pending: &Pending,
        all: bool,
    ) -> Result<Taken, CoordinationError> {
        let (former, problems) = {
            let state = self.state.lock();
            (state.sighting.clone(), state.problems.clone())
        };
        self.full.fetch_add(u64::from(all), Relaxed);
        let mut reading = Reading::new(coordination, &former, problems);
        match all {
            true => reading.read_all(self.decides)?,
            false => reading.read_some(&pending.paths)?,
        }
        reading.complete()?;
        if let Err(discontinuity) = reading.check_continues() {
            self.discontinue(discontinuity);
            return Ok(Taken::Nothing);
        }
        // With the changed entries alone, the view would keep the missing ones.
        if !all && reading.is_adopted() {
            return Ok(Taken::Adopted);
        }
        let found = reading.finish();
        let before = former.settings.as_ref().map(|before| before.revision);
        if let Some(changed) = found.settings.as_ref().filter(|found| Some(found.revision) != before) {
            let before = former.settings.as_ref().map(|before| &before.record);
            take_up(&changed.record, &self.settings, before);
        }
        if found.view.users != former.view.users {
            crate::access::take_up(&found.view, &self.access);
        }
        self.accept(found, all);
        Ok(Taken::All)
    }

    /// Makes the result of a pass, over all entries or over some, the present state.
    fn accept(&self, found: Found, all: bool) {
        let Found {
            mut view,
            settings,
            problems,
        } = found;
        let mut state = self.state.lock();
        let origin = match all {
            true => Origin::Service,
            false => state.sighting.origin,
        };
        // A store that cannot be parsed still exists: nothing of it may be given up.
        let of_stores = |path: &EntryPath| matches!(RecordPath::parse(path.as_str()), Some(RecordPath::Store(_)));
        view.remembered = origin != Origin::Service;
        view.is_partial = problems.keys().any(of_stores);
        let left = state.sighting.view.announcements.keys().cloned().collect::<Vec<_>>();
        state
            .absent_since_unix_ms
            .extend(left.into_iter().map(|node| (node, now_unix_ms())));
        state
            .absent_since_unix_ms
            .retain(|node, _| !view.announcements.contains_key(node));
        state.sighting = Sighting {
            view: Arc::new(view),
            settings,
            origin,
            is_current: all || state.sighting.is_current,
        };
        state.problems = problems;
        if all {
            state.stale_since = None;
            state.discontinuity = None;
        }
    }

    /// Keeps the last view.
    fn discontinue(&self, discontinuity: Discontinuity) {
        let mut state = self.state.lock();
        state.stale_since.get_or_insert_with(Instant::now);
        state.sighting.is_current = false;
        if state.discontinuity.as_ref() != Some(&discontinuity) {
            tracing::error!(%discontinuity, "the entries of the coordination service do not continue the former ones");
            state.discontinuity = Some(discontinuity);
        }
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        !self.all && self.paths.is_empty()
    }
}

/// The part of the read entries that was accepted.
#[derive(PartialEq, Eq)]
enum Taken {
    /// All of them.
    All,
    /// All of them, since an operator declared them true.
    Adopted,
    Nothing,
}
