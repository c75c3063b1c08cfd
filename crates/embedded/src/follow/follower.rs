//! The thread that follows a store. It asks the cluster for the current version, has it fetched by another thread, and
//! swaps it in; that of a hybrid store once the stream on top of it was read. It answers a rollback while a fetch is under way.
//!
//! Level-triggered: after each event it compares what is here with the current version of the cluster, and begins the
//! next step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fondaco_durable::delete_tree;
use fondaco_fetch::{FetchControl, FetchError, SystemClock};
use fondaco_model::PartitionSet;

use super::cluster::{Cluster, Seen, Target, VersionId};
use super::fetch::Job;
use super::held::{Held, open_last};
use super::options::{FollowOptions, Swap};
use super::place::{Place, Remembered};
use super::status::{Shared, State};
use crate::error::EmbeddedError;
use crate::events::{Layer, Streams, StreamsOptions};
use crate::fallback::Fallback;
use crate::snapshot::Open;

/// The pause before the first retry of a fetch; each further one is twice as long.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The handle of the thread. Dropping it ends the thread; fetched files stay.
pub(crate) struct Following {
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        // The thread is there until it receives this, unless it has panicked.
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic was caught, and is in the status.
            let _ = thread.join();
        }
    }
}

enum Event {
    Stop,
    Fetched(Box<Result<Open, EmbeddedError>>),
    /// More partitions have read their stream.
    Ready,
}

/// A version that waits for its last reader, and then for its deletion.
struct Retired {
    held: Held,
    /// `None` if another open version has the same files.
    dir: Option<PathBuf>,
}

/// A fetch under way.
struct Running {
    target: Target,
    control: Arc<FetchControl>,
    thread: JoinHandle<()>,
}

/// When a failed fetch is retried.
struct Retry {
    id: VersionId,
    at: Instant,
    pause: Duration,
}

struct Follower {
    options: FollowOptions,
    place: Place,
    cluster: Arc<Cluster>,
    streams: Arc<Streams>,
    shared: Arc<Shared>,
    sender: Sender<Event>,
    target: Option<Target>,
    current: Option<Held>,
    /// A version whose files are here, and whose stream has yet to be read.
    next: Option<(Target, Arc<Open>)>,
    /// Former versions, the last current one first.
    kept: Vec<Held>,
    retired: Vec<Retired>,
    running: Option<Running>,
    retry: Option<Retry>,
}

/// Locks the directory, opens the last version there, and starts the thread.
pub(crate) fn follow(options: FollowOptions) -> Result<(Arc<Shared>, Following, Option<Fallback>), EmbeddedError> {
    // A fetch has hundreds of files open, and so has each open version of many chunks.
    fondaco_os::process::raise_open_files_limit();
    let place = Place::open(&options.directory, &options.store)?;
    let cluster = Arc::new(Cluster::new(&options.endpoints, &options.store)?);
    let (sender, receiver) = mpsc::channel();
    let (remembered, schemas) = place.remembered()?;
    let woken = sender.clone();
    let streams = StreamsOptions {
        store: options.store.clone(),
        root: place.root().to_owned(),
        kafka: options.kafka.clone(),
        memory_bytes: options.events_memory_bytes,
        disk_reserve_bytes: options.reserve_bytes / 2,
        // At the end of the reader, there is no receiver.
        on_ready: Arc::new(move || _ = woken.send(Event::Ready)),
        schemas,
    };
    let streams = Arc::new(Streams::new(streams, Arc::clone(&cluster)));
    let (current, kept) = open_last(&place, remembered, &streams);
    let shared = Arc::new(Shared::following(current.as_ref().and_then(|held| held.open.clone())));
    let fallback = options.fallback.then(|| Fallback::new(Arc::clone(&cluster)));
    let mut follower = Follower {
        options,
        place,
        cluster,
        streams,
        shared: Arc::clone(&shared),
        sender: sender.clone(),
        target: None,
        current,
        next: None,
        kept,
        retired: Vec::new(),
        running: None,
        retry: None,
    };
    match follower.look() {
        Ok(Seen::NoStore) if follower.current.is_none() => {
            return Err(EmbeddedError::NoStore {
                store: follower.options.store,
            });
        }
        Err(error) if follower.current.is_none() && !error.may_pass() => return Err(error),
        _ => {}
    }
    let io = EmbeddedError::io("start a thread for", follower.options.directory.clone());
    let theirs = Arc::clone(&shared);
    let run = move || {
        let run = AssertUnwindSafe(|| follower.run(&receiver));
        if catch_unwind(run).is_err() {
            theirs.change(|facts| {
                facts.state = Some(State::Stopped);
                facts.error = Some(EmbeddedError::Panicked.to_string());
            });
        }
    };
    let thread = std::thread::Builder::new()
        .name("follow".into())
        .spawn(run)
        .map_err(io)?;
    let following = Following {
        events: sender,
        thread: Some(thread),
    };
    Ok((shared, following, fallback))
}

impl Follower {
    fn run(mut self, events: &Receiver<Event>) {
        let mut next_look = Instant::now() + self.options.poll_interval;
        loop {
            self.act();
            self.bury();
            self.feed();
            self.remember_schemas();
            match events.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Fetched(result)) => self.fetched(*result),
                Ok(Event::Ready) => {}
                Err(RecvTimeoutError::Timeout) => {
                    // An error is part of the status, and the next look may succeed.
                    let _ = self.look();
                    next_look = Instant::now() + self.options.poll_interval;
                }
            }
        }
        self.streams.close();
        self.remember_schemas();
        if let Some(running) = self.running.take() {
            running.control.interrupt();
            // Its last event has no receiver any more, and a panic was printed.
            let _ = running.thread.join();
        }
    }

    /// Asks the cluster.
    fn look(&mut self) -> Result<Seen, EmbeddedError> {
        let seen = self.cluster.look();
        let found = match &seen {
            Ok(Seen::Target(target)) => Some((**target).clone()),
            _ => None,
        };
        let retries = self.retry.is_some();
        self.shared.change(|facts| match &seen {
            Ok(seen) => {
                facts.contact = Some(Instant::now());
                facts.target = found.as_ref().map(|target| target.id.number);
                if facts.state == Some(State::Unreachable) {
                    facts.error = None;
                }
                facts.state = match seen {
                    Seen::NoStore => Some(State::NoStore),
                    Seen::NoVersion => Some(State::NoVersion),
                    // The next step tells more.
                    Seen::Target(_) => match facts.state {
                        Some(
                            State::Current | State::Fetching | State::Retrying | State::CatchingUp | State::EventsLost,
                        ) => facts.state,
                        _ if retries => Some(State::Retrying),
                        _ => Some(State::Fetching),
                    },
                };
            }
            Err(error) => {
                facts.state = Some(State::Unreachable);
                facts.error = Some(error.to_string());
            }
        });
        if seen.is_ok() {
            self.target = found;
        }
        seen
    }

    /// Begins the next step towards the current version of the cluster.
    fn act(&mut self) {
        let Some(target) = self.target.clone() else {
            self.stop_fetch();
            return;
        };
        if self.next.as_ref().is_some_and(|(next, _)| !next.is_same(&target)) {
            self.next = None;
        }
        let next = self.next.as_ref().map(|(_, open)| Arc::clone(open));
        if let Some(held) = self.current.as_ref().filter(|held| held.is_of(&target)) {
            let state = held.open.as_ref().map_or(State::Current, |open| open.state());
            self.next = None;
            self.adopt(&target);
            let lacking = self.lacking(&target);
            if lacking.is_empty() {
                self.stop_fetch();
                self.shared.change(|facts| facts.settle(state));
            } else {
                self.fetch(target, lacking);
            }
        } else if let Some(open) = self.take_open(&target).or(next) {
            self.swap_when_ready(open, target);
        } else {
            self.fetch(target, PartitionSet::EMPTY);
        }
    }

    /// Recognises the current version as one of a store that was created again with the same content.
    fn adopt(&mut self, target: &Target) {
        if let Some(held) = &mut self.current
            && held.store_created_unix_ms != target.store_created_unix_ms
        {
            held.store_created_unix_ms = target.store_created_unix_ms;
            self.trim();
        }
    }

    /// The partitions of the current version that are damaged, or wanted and not here.
    fn lacking(&self, target: &Target) -> PartitionSet {
        let Some(open) = self.current.as_ref().and_then(|held| held.open.as_ref()) else {
            return PartitionSet::EMPTY;
        };
        let damaged: PartitionSet = open.version.damaged().into_keys().collect();
        let not_held: PartitionSet = open.version.not_held().collect();
        let missing = match self.options.wanted(target.partitions) {
            Some(wanted) => wanted.without(&wanted.without(&not_held)),
            None => not_held,
        };
        damaged.with(&missing)
    }

    /// A former version that is still open.
    fn take_open(&mut self, target: &Target) -> Option<Arc<Open>> {
        let of_kept = self.kept.iter().find(|held| held.is_of(target));
        let of_retired = self
            .retired
            .iter()
            .map(|retired| &retired.held)
            .find(|held| held.is_of(target));
        of_kept.or(of_retired)?.open.clone()
    }

    /// Swaps a version in once the stream on top of it was read.
    fn swap_when_ready(&mut self, open: Arc<Open>, target: Target) {
        // A repaired version answers as it did.
        let is_here = self.current.as_ref().is_some_and(|held| held.is_of(&target));
        if is_here || open.has_caught_up(target.stream.as_ref()) {
            self.next = None;
            self.swap(open, &target);
            return;
        }
        let error = open.layer.as_ref().and_then(|layer| layer.progress().error);
        self.shared.change(|facts| {
            if facts.state != Some(State::Unreachable) {
                (facts.state, facts.error) = (Some(State::CatchingUp), error);
            }
        });
        self.next = Some((target, open));
    }

    /// The layers of the versions that are current, kept, or next.
    fn layers(&self) -> impl Iterator<Item = &Arc<Layer>> {
        let held = self.current.iter().chain(&self.kept).filter_map(Held::layer);
        held.chain(self.next.iter().filter_map(|(_, open)| open.layer.as_ref()))
    }

    /// Has the streams of these versions read.
    fn feed(&self) {
        let settings = self.target.as_ref().and_then(|target| target.stream.as_ref());
        for layer in self.layers() {
            layer.check();
            if let Some(stream) = settings {
                layer.set(&stream.settings);
            }
        }
        if let Err(error) = self.streams.feed(self.layers()) {
            self.shared.change(|facts| facts.error = Some(error.to_string()));
        }
    }

    /// Remembers schemas that are new: one that a value has must be known after a start without the cluster.
    fn remember_schemas(&self) {
        if self.streams.has_new_schemas() && self.current.is_some() {
            match self.remember() {
                Ok(()) => self.streams.note_remembered(),
                Err(error) => tracing::error!(store = %self.options.store, %error, "schemas cannot be remembered"),
            }
        }
    }

    /// Begins a fetch, unless it runs, or failed a moment ago.
    fn fetch(&mut self, target: Target, damaged: PartitionSet) {
        if let Some(running) = &self.running {
            if !running.target.is_same(&target) {
                // Its end is an event.
                running.control.cancel();
            }
            return;
        }
        if self
            .retry
            .as_ref()
            .is_some_and(|retry| retry.id == target.id && Instant::now() < retry.at)
        {
            return;
        }
        if let Err(error) = self.begin(target.clone(), damaged) {
            self.failed(target.id, &error);
        }
    }

    fn begin(&mut self, target: Target, damaged: PartitionSet) -> Result<(), EmbeddedError> {
        let id = target.id;
        self.clean(&target)?;
        let sources = self.cluster.sources(&target)?;
        let siblings = self.current.iter().chain(&self.kept).filter(|held| held.id != id);
        let job = Job {
            store: self.options.store.clone(),
            version_dir: self.place.version_dir(id),
            fetching_dir: self.place.fetching_dir(id),
            siblings: siblings.map(|held| self.place.version_dir(held.id)).collect(),
            wanted: self.options.wanted(target.partitions),
            damaged,
            rate_limit_bytes_per_second: self.options.rate_limit_bytes_per_second,
            reserve_bytes: self.options.reserve_bytes,
            streams: Arc::clone(&self.streams),
            target: target.clone(),
        };
        let control = Arc::new(FetchControl::new(SystemClock));
        let (sender, theirs) = (self.sender.clone(), Arc::clone(&control));
        let run = move || {
            let run = AssertUnwindSafe(|| job.run(&sources, &theirs));
            let result = catch_unwind(run).unwrap_or(Err(EmbeddedError::Panicked));
            if matches!(&result, Err(EmbeddedError::Fetch(FetchError::DiskFull { .. }))) {
                // The files stay for the next attempt, unless they fill the disk.
                let _ = delete_tree(&job.fetching_dir);
            }
            // At the end of the reader, there is no receiver.
            let _ = sender.send(Event::Fetched(Box::new(result)));
        };
        let thread = std::thread::Builder::new().name("fetch".into()).spawn(run);
        let thread = thread.map_err(EmbeddedError::io("start a thread for", &self.options.directory))?;
        tracing::info!(store = %self.options.store, version = %id.number, "fetch begins");
        self.shared.change(|facts| {
            facts.control = Some(Arc::clone(&control));
            facts.state = Some(State::Fetching);
        });
        self.running = Some(Running {
            target,
            control,
            thread,
        });
        Ok(())
    }

    fn stop_fetch(&self) {
        if let Some(running) = &self.running {
            running.control.cancel();
        }
    }

    /// A fetch has ended.
    fn fetched(&mut self, result: Result<Open, EmbeddedError>) {
        let Some(running) = self.running.take() else { return };
        // It has sent its last event.
        let _ = running.thread.join();
        self.shared.change(|facts| facts.control = None);
        let target = self.target.clone().filter(|target| target.is_same(&running.target));
        match (result, target) {
            (Ok(open), Some(target)) => self.swap_when_ready(Arc::new(open), target),
            // The cluster has gone to another version meanwhile.
            (Ok(_), None) | (Err(EmbeddedError::Fetch(FetchError::Cancelled | FetchError::Interrupted)), _) => {}
            (Err(error), _) => self.failed(running.target.id, &error),
        }
    }

    fn failed(&mut self, id: VersionId, error: &EmbeddedError) {
        tracing::warn!(store = %self.options.store, version = %id.number, %error, "a fetch failed");
        let before = self.retry.take().filter(|retry| retry.id == id);
        let pause = before.map_or(RETRY_MIN, |retry| retry.pause * 2);
        // Another attempt would end the same way, until an operator does something.
        let is_for_good = matches!(error, EmbeddedError::Fetch(error) if error.is_for_good());
        let pause = match is_for_good {
            true => self.options.retry_max,
            false => pause.min(self.options.retry_max),
        };
        let at = Instant::now() + pause;
        self.retry = Some(Retry { id, at, pause });
        self.shared.change(|facts| {
            facts.state = Some(State::Retrying);
            facts.error = Some(error.to_string());
        });
    }

    /// Makes a version current, and gives up those that are not kept any more.
    fn swap(&mut self, open: Arc<Open>, target: &Target) {
        let id = target.id;
        self.retry = None;
        self.kept.retain(|held| held.id != id);
        self.retired.retain(|retired| retired.held.id != id);
        let now = Held {
            id,
            store_created_unix_ms: target.store_created_unix_ms,
            stream: target.stream.clone(),
            open: Some(Arc::clone(&open)),
        };
        let before = self.current.replace(now);
        let from = before.as_ref().map(|held| held.id.number);
        match before {
            // Its files were repaired.
            Some(held) if held.id == id => self.retired.push(Retired { held, dir: None }),
            Some(held) => self.kept.insert(0, held),
            None => {}
        }
        self.trim();
        self.shared.swap(open);
        tracing::info!(store = %self.options.store, version = %id.number, "swapped");
        if let (Some(on_swap), true) = (&self.options.on_swap, from != Some(id.number)) {
            on_swap(&Swap { from, to: id.number });
        }
    }

    /// Gives up former versions beyond the limit, and those of a store of the same name before. Remembers the others.
    fn trim(&mut self) {
        let Some(current) = &self.current else { return };
        let store = current.store_created_unix_ms;
        let (kept, mut given_up): (Vec<Held>, Vec<Held>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|held| held.store_created_unix_ms == store);
        self.kept = kept;
        given_up.extend(self.kept.drain(self.options.keep.min(self.kept.len())..));
        if let Err(error) = self.remember() {
            // The version is served all the same. A start without the cluster opens the one before.
            tracing::error!(store = %self.options.store, %error, "the current version cannot be remembered");
            self.kept.extend(given_up);
            return;
        }
        for held in given_up {
            let dir = Some(self.place.version_dir(held.id));
            self.retired.push(Retired { held, dir });
        }
    }

    fn remember(&self) -> Result<(), EmbeddedError> {
        let remembered = self.current.iter().chain(&self.kept).map(|held| Remembered {
            version: held.id.number,
            checksum: held.id.checksum,
            store_created_unix_ms: held.store_created_unix_ms,
            stream: held.stream.clone(),
        });
        self.place.remember(remembered.collect(), self.streams.schemas())
    }

    /// Drops and deletes versions that no reader has any more.
    fn bury(&mut self) {
        let before = self.retired.len();
        self.retired.retain_mut(|retired| {
            // A count of one cannot rise again: there is no other reference to clone.
            if retired
                .held
                .open
                .as_ref()
                .is_some_and(|open| Arc::strong_count(open) > 1)
            {
                return true;
            }
            retired.held.open = None;
            if let Some(dir) = &retired.dir {
                match delete_tree(dir) {
                    Ok(()) => tracing::info!(?dir, "deleted"),
                    Err(error) => tracing::warn!(?dir, %error, "could not delete; the next fetch will try again"),
                }
            }
            false
        });
        if self.retired.len() < before {
            self.delete_events(None);
        }
    }

    /// Deletes the events on top of versions that are not here any more.
    fn delete_events(&self, wanted: Option<&Target>) {
        let held = self.current.iter().chain(&self.kept);
        let held = held.chain(self.retired.iter().map(|retired| &retired.held));
        let held = held.map(|held| (held.store_created_unix_ms, held.id.number));
        let targets = wanted
            .into_iter()
            .chain(self.running.iter().map(|running| &running.target));
        let targets = targets.chain(self.next.iter().map(|(target, _)| target));
        let targets = targets.map(|target| (target.store_created_unix_ms, target.id.number));
        let needed: Vec<_> = held.chain(targets).collect();
        if let Err(error) = self.streams.keep_only(&needed) {
            tracing::warn!(store = %self.options.store, %error, "cannot delete events of versions that are gone");
        }
    }

    /// Deletes what earlier fetches and processes have left, except for this version.
    fn clean(&self, target: &Target) -> Result<(), EmbeddedError> {
        let id = target.id;
        self.delete_events(Some(target));
        let held = self.current.iter().chain(&self.kept);
        let ids = held
            .chain(self.retired.iter().map(|retired| &retired.held))
            .map(|held| held.id);
        let mut needed: Vec<PathBuf> = ids.chain([id]).map(|id| self.place.version_dir(id)).collect();
        needed.push(self.place.fetching_dir(id));
        for dir in self.place.dirs()?.iter().filter(|dir| !needed.contains(dir)) {
            delete_tree(dir).map_err(EmbeddedError::io("delete", dir))?;
        }
        Ok(())
    }
}
