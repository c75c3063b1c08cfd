//! Pushes: a version is fetched, opened, and swapped in, by a thread of its own.
//!
//! The number of a version is given out, durably, before the first byte is fetched. The swap is one
//! metadata write. A push that fails or is cancelled deletes its files before it says so; one that is
//! interrupted, by a stop or a crash, is resumed at the next start.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use fondaco_format::{MANIFEST_FILE, Version};
use fondaco_model::{PushEvent, PushState, StoreName, VersionNumber};
use fondaco_node::{FetchControl, FetchError, FetchPlan, FetchProgress, FetchTarget, PageCache};
use fondaco_storage::Location;

use super::{Inner, Opened, PUSHES_MAX, PushRecord, Store, Stores};
use crate::data_dir::delete_tree;
use crate::error::ControlError;
use crate::tuning::Tuning;

/// A push whose thread runs.
pub(super) struct RunningPush {
    control: Arc<FetchControl>,
    thread: Option<JoinHandle<()>>,
}

/// A push as it is now.
#[derive(Debug, Clone)]
pub struct PushStatus {
    /// What is remembered of it.
    pub record: PushRecord,
    /// How far it is, while it runs.
    pub progress: Option<FetchProgress>,
}

/// What a push would do.
#[derive(Debug, Clone)]
pub struct DryRun {
    /// The number that the version would get, if nothing else is pushed before.
    pub version: VersionNumber,
    /// Where it would come from.
    pub source: String,
    /// How many records it has.
    pub records: u64,
    /// How many bytes its files have.
    pub bytes_total: u64,
    /// How many bytes it would take on the disk.
    pub needed_bytes: u64,
    /// Whether files would be linked and not copied.
    pub links: bool,
}

/// What the thread of a push is given.
struct Job {
    name: StoreName,
    version: VersionNumber,
    location: Location,
    /// The plan, where it was made already.
    plan: Option<FetchPlan>,
    control: Arc<FetchControl>,
}

impl Stores {
    /// Checks all that can be checked of a push, and changes nothing.
    ///
    /// # Errors
    /// What the push itself would be refused for.
    pub fn dry_run(&self, name: &StoreName, source: &str) -> Result<DryRun, ControlError> {
        let version = {
            let state = self.0.running_state()?;
            let store = state.store(name)?;
            store.check_no_push()?;
            store.record.versions.clone().allocate()
        };
        let location: Location = source.parse()?;
        let plan = self.0.plan(name, version, &location)?;
        Ok(DryRun {
            version,
            source: location.to_string(),
            records: plan.manifest().records,
            bytes_total: plan.manifest().files_bytes(),
            needed_bytes: plan.needed_bytes(),
            links: plan.links(),
        })
    }

    /// Begins to push what lies at a source. Returns when the push is under way.
    ///
    /// # Errors
    /// No such store, another push of it, too many pushes, a source that cannot be fetched.
    pub fn push(&self, name: &StoreName, source: &str) -> Result<PushStatus, ControlError> {
        let location: Location = source.parse()?;
        let location = absolute(location)?;
        // Reading the manifest may take long, and is done without holding anybody up.
        self.0.running_state()?.store(name)?.check_no_push()?;
        let version = self.0.state().store(name)?.record.versions.clone().allocate();
        let plan = self.0.plan(name, version, &location)?;

        let mut state = self.0.running_state()?;
        let running = state.stores.values().filter(|store| store.push.is_some()).count();
        let store = state.store_mut(name)?;
        store.check_no_push()?;
        if running >= PUSHES_MAX {
            return Err(ControlError::TooManyPushes { max: PUSHES_MAX });
        }
        let mut version = version;
        self.0.commit(store, |record| {
            version = record.versions.allocate();
            record.push = Some(PushRecord {
                version,
                source: location.to_string(),
                state: PushState::Fetching,
                error: None,
                bytes_total: plan.manifest().files_bytes(),
                records: plan.manifest().records,
                started_unix_ms: (self.0.parts.now_unix_ms)(),
                ended_unix_ms: None,
            });
        })?;
        tracing::info!(store = %name, %version, source = %location, "push begins");
        self.0.start(store, version, location, Some(plan));
        // It was set a moment ago.
        store
            .push_status()
            .ok_or_else(|| ControlError::PushNotFound { store: name.clone() })
    }

    /// The push of a store that is under way, or the last one.
    ///
    /// # Errors
    /// No such store, or it was never pushed to.
    pub fn push_status(&self, name: &StoreName) -> Result<PushStatus, ControlError> {
        let state = self.0.state();
        let status = state.store(name)?.push_status();
        status.ok_or_else(|| ControlError::PushNotFound { store: name.clone() })
    }

    /// Asks the push of a store to stop, and waits until it has, and its files are deleted.
    ///
    /// # Errors
    /// No such store, it was never pushed to, or the push has ended.
    pub fn cancel_push(&self, name: &StoreName) -> Result<PushStatus, ControlError> {
        let thread = {
            let mut state = self.0.running_state()?;
            let store = state.store_mut(name)?;
            match &mut store.push {
                Some(push) => {
                    push.control.cancel();
                    push.thread.take()
                }
                None if store.record.push.is_some() => return Err(ControlError::PushEnded { store: name.clone() }),
                None => return Err(ControlError::PushNotFound { store: name.clone() }),
            }
        };
        if let Some(thread) = thread {
            // A panic in there was printed; the status says how far it came.
            let _ = thread.join();
        }
        self.push_status(name)
    }

    /// Interrupts all pushes, to be resumed at the next start, and waits until they have stopped. No
    /// change is taken on any more.
    pub fn stop(&self) {
        self.0.stopping.store(true, Relaxed);
        let threads: Vec<_> = {
            let mut state = self.0.state();
            let pushes = state.stores.values_mut().filter_map(|store| store.push.as_mut());
            pushes
                .filter_map(|push| {
                    push.control.interrupt();
                    push.thread.take()
                })
                .collect()
        };
        for thread in threads {
            // A panic in there was printed; the push is resumed from what is on disk.
            let _ = thread.join();
        }
    }
}

impl Store {
    pub(super) fn check_no_push(&self) -> Result<(), ControlError> {
        match (&self.push, &self.record.push) {
            (Some(_), Some(push)) => Err(ControlError::PushInProgress {
                store: self.record.definition.name.clone(),
                version: push.version,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn push_status(&self) -> Option<PushStatus> {
        Some(PushStatus {
            record: self.record.push.clone()?,
            progress: self.push.as_ref().map(|push| push.control.progress()),
        })
    }
}

impl Inner {
    /// Resumes the pushes that a stop or a crash interrupted.
    pub(super) fn resume_pushes(self: &Arc<Self>) {
        let mut state = self.state();
        for store in state.stores.values_mut() {
            let Some(push) = store.record.push.clone().filter(|push| !push.state.is_end()) else {
                continue;
            };
            tracing::info!(store = %store.record.definition.name, version = %push.version, "push resumes");
            match push.source.parse() {
                Ok(location) => self.start(store, push.version, location, None),
                Err(error) => self.end_in_failure(store, &ControlError::InvalidSource(error)),
            }
        }
    }

    fn start(self: &Arc<Self>, store: &mut Store, version: VersionNumber, location: Location, plan: Option<FetchPlan>) {
        let control = Arc::new(FetchControl::new(Arc::clone(&self.parts.clock)));
        let job = Job {
            name: store.record.definition.name.clone(),
            version,
            location,
            plan,
            control: Arc::clone(&control),
        };
        let inner = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("push".into())
            .spawn(move || inner.run(job));
        match thread {
            Ok(thread) => {
                let thread = Some(thread);
                store.push = Some(RunningPush { control, thread });
            }
            Err(error) => {
                let error = ControlError::io("start", "push thread")(error);
                self.end_in_failure(store, &error);
            }
        }
    }

    /// The thread of a push.
    fn run(self: Arc<Self>, job: Job) {
        // The state survives a panic: see `Inner::state`. Without an end, the store could never be
        // pushed to again.
        let work = AssertUnwindSafe(|| self.fetch(&job).and_then(|version| self.swap_in(&job, version)));
        let outcome = catch_unwind(work).unwrap_or(Err(ControlError::PushPanicked));
        let Err(error) = outcome else { return };
        if let ControlError::Fetch(FetchError::Interrupted) = error {
            if let Some(store) = self.state().stores.get_mut(&job.name) {
                store.push = None;
            }
            return;
        }
        let swapped = |store: &Store| store.record.versions.contains(job.version);
        if self.state().stores.get(&job.name).is_some_and(swapped) {
            // It failed after the one write that counts: the version is current, now or after a restart.
            tracing::error!(store = %job.name, version = %job.version, %error, "push swapped, and failed after it");
            if let Some(store) = self.state().stores.get_mut(&job.name) {
                store.push = None;
            }
            return;
        }
        // Deleting first: nothing of a push that says it failed is on the disk.
        for dir in self.dirs(&job) {
            if let Err(error) = delete_tree(&dir) {
                tracing::warn!(?dir, %error, "could not delete, the next start will try again");
            }
        }
        if let Some(store) = self.state().stores.get_mut(&job.name) {
            self.end_in_failure(store, &error);
            store.push = None;
        }
    }

    /// Remembers that a push failed or was cancelled.
    fn end_in_failure(&self, store: &mut Store, error: &ControlError) {
        let event = match error {
            ControlError::Fetch(FetchError::Cancelled) => PushEvent::Cancelled,
            _ => PushEvent::Failed,
        };
        let now = (self.parts.now_unix_ms)();
        let name = store.record.definition.name.clone();
        tracing::warn!(store = %name, %error, "push {event}");
        let end = |push: &mut PushRecord| {
            push.advance(event, now);
            push.error = (event == PushEvent::Failed).then(|| error.to_string());
        };
        let committed = self.commit(store, |record| record.push.iter_mut().for_each(end));
        if let Err(error) = committed {
            // The push has ended all the same; were the node to start again, it would try once more.
            tracing::error!(store = %name, %error, "could not remember the end of a push");
            store.record.push.iter_mut().for_each(end);
        }
    }

    fn plan(&self, name: &StoreName, version: VersionNumber, location: &Location) -> Result<FetchPlan, ControlError> {
        let [fetching_dir, version_dir] = [
            self.parts.data_dir.fetching(name, version),
            self.parts.data_dir.version(name, version),
        ];
        let source = (self.parts.sources)(location.clone());
        let target = self.target(name, &fetching_dir, &version_dir);
        Ok(FetchPlan::new(&*source, &target)?)
    }

    fn target<'a>(
        &self,
        store: &'a StoreName,
        fetching_dir: &'a std::path::Path,
        version_dir: &'a std::path::Path,
    ) -> FetchTarget<'a> {
        FetchTarget {
            store,
            partitions: self.parts.partitions,
            fetching_dir,
            version_dir,
            reserve_bytes: self.parts.reserve_bytes,
        }
    }

    fn dirs(&self, job: &Job) -> [PathBuf; 2] {
        [
            self.parts.data_dir.fetching(&job.name, job.version),
            self.parts.data_dir.version(&job.name, job.version),
        ]
    }

    /// Brings the version here, unless it is, and opens it.
    fn fetch(&self, job: &Job) -> Result<Version, ControlError> {
        let [fetching_dir, version_dir] = self.dirs(job);
        if !version_dir.join(MANIFEST_FILE).exists() {
            let source = (self.parts.sources)(job.location.clone());
            let target = self.target(&job.name, &fetching_dir, &version_dir);
            let made;
            let plan = match &job.plan {
                Some(plan) => plan,
                None => {
                    made = FetchPlan::new(&*source, &target)?;
                    &made
                }
            };
            let cache = self.page_cache(plan.manifest().files_bytes());
            let tuning = Tuning::new(&self.parts.settings, &self.parts.metrics);
            plan.run(&*source, &target, cache, &job.control, &tuning)?;
        }
        let version = Version::open(&version_dir)?;
        version.warm()?;
        Ok(version)
    }

    /// Pages of a new version may stay if all that is served fits into half of the memory with it.
    fn page_cache(&self, bytes: u64) -> PageCache {
        let catalog = self.parts.catalog.load();
        let served = catalog.stores();
        let served = served.iter().filter_map(|store| store.version());
        let served: u64 = served.map(|version| version.manifest().files_bytes()).sum();
        match served.saturating_add(bytes) <= self.parts.memory_bytes / 2 {
            true => PageCache::Keep,
            false => PageCache::DropBehind,
        }
    }

    /// Makes the version current: one metadata write, then requests see it.
    fn swap_in(&self, job: &Job, version: Version) -> Result<(), ControlError> {
        let mut state = self.state();
        job.control.check()?;
        let store = state.store_mut(&job.name)?;
        let now = (self.parts.now_unix_ms)();
        self.commit(store, |record| {
            record
                .push
                .iter_mut()
                .for_each(|push| push.advance(PushEvent::Fetched, now));
        })?;
        let mut expired = Vec::new();
        self.commit(store, |record| {
            record.versions.make_current(job.version);
            expired = record.versions.expire(record.definition.backups);
            record
                .push
                .iter_mut()
                .for_each(|push| push.advance(PushEvent::Swapped, now));
        })?;
        store.open.insert(job.version, Opened::Open(version.into()));
        self.publish(store);
        self.swaps.fetch_add(1, Relaxed);
        tracing::info!(store = %job.name, version = %job.version, "pushed and swapped");
        self.discard(store, &expired);
        store.push = None;
        Ok(())
    }
}

/// A relative path would mean something else after a restart.
fn absolute(location: Location) -> Result<Location, ControlError> {
    match location.local_path() {
        Some(path) => std::path::absolute(path)
            .map(Location::local)
            .map_err(ControlError::io("resolve", path)),
        None => Ok(location),
    }
}
