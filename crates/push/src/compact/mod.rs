//! Compaction: a new version of a hybrid store from the current one and the events on top of it.
//!
//! It is an incremental push: nodes return the values that events up to a time have given to keys, and these are the
//! difference. The time is a watermark: no node expects an event up to it any more, so that no event is lost. Later ones
//! count on top.

mod files;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fondaco_admin::{Client, Endpoint};
use fondaco_api::{NodeList, StoreResource, StreamStatus, VersionResource, VersionStream};
use fondaco_builder::{BuildOptions, InputFormat, OnDuplicate, ValueSelection};
use fondaco_model::{PartitionCount, PartitionId, PartitionSet, StoreName};
use fondaco_storage::Location;

use self::files::{Files, PartFiles};
use crate::error::PushError;
use crate::observer::{INTERVAL, Job, Note, Progress};
use crate::push::{Push, Pushed, push};
use crate::rollout::Clusters;
use crate::scratch::Scratch;

/// How often another time is chosen, because a node does not know the results of events up to the first one.
const TRIES: u32 = 5;

/// The pause before another time is chosen.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A compaction.
#[derive(Debug, Clone)]
pub struct Compact {
    /// The store, which has a stream.
    pub store: StoreName,
    /// Whether to send the version to the node over its control port, because no node can read the directory of the build.
    pub upload: bool,
    /// The memory budget of the build, in bytes, at least 1 MiB; the process uses up to 256 MiB more.
    pub memory_bytes: u64,
    /// The number of threads of the build.
    pub threads: usize,
    /// An existing directory for temporary files: the current version and the new one.
    pub work: PathBuf,
}

/// The end of a compaction.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a compaction has one")]
pub enum Compacted {
    /// No event up to this time, in milliseconds since 1970, is on top of the current version: nothing was pushed.
    Nothing {
        /// The current version.
        version: u64,
        /// The time.
        until_unix_ms: u64,
    },
    /// The push of the difference.
    Pushed(Pushed),
}

/// A node with a part of the overlay.
struct Part {
    client: Client,
    partitions: PartitionSet,
}

/// The nodes to read the results of events from, each for a part of the overlay.
struct Parts {
    /// The time up to which each of them has all events.
    until_unix_ms: u64,
    nodes: Vec<Part>,
}

/// Pushes a new version of a hybrid store, which contains the events on top of the current one.
///
/// # Errors
/// The store has no stream or no version; nodes do not return the results of the events; or the push fails.
pub fn compact(endpoint: &Endpoint, options: &Compact, job: Job<'_>) -> Result<Compacted, PushError> {
    let (name, work) = (&options.store, &options.work);
    let client = endpoint.client()?;
    let store: StoreResource = client.get(&format!("/v1/stores/{name}"))?;
    if store.stream.is_none() {
        return Err(PushError::Unfit(format!(
            "store {name:?} has no stream, and so no events to put into a version"
        )));
    }
    let Some(current) = store.versions.iter().find(|version| version.current) else {
        return Err(PushError::Unfit(format!(
            "store {name:?} has no version to put events into: push one first, which may be empty"
        )));
    };
    let ttl_ms = store.stream.as_ref().and_then(|stream| stream.ttl_ms.flatten());
    let is_dated = ttl_ms.is_some() || current.undated_unix_ms.is_some();
    let scratch = Scratch::make(work)?;
    let mut tries = 0;
    let (until_unix_ms, files) = loop {
        let parts = Parts::find(&client, endpoint, name, current)?;
        match parts.collect((name, current, is_dated), &scratch.path()?, job) {
            Ok(files) => break (parts.until_unix_ms, files),
            // Updates are replaced by what they make, and partitions move.
            Err(error) if tries < TRIES && ["not_settled", "unavailable"].contains(&error.code()) => {
                tries += 1;
                job.note(Note::EventsRetried(&error));
                thread::sleep(RETRY_AFTER);
            }
            Err(error) => return Err(error),
        }
    };
    let version = current.version;
    if files.changed.is_empty() && files.deleted.is_empty() {
        return Ok(Compacted::Nothing { version, until_unix_ms });
    }
    job.note(Note::EventsRead {
        store: name,
        keys: files.count,
        until_unix_ms,
    });
    let texts = |paths: &[PathBuf]| paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let build = BuildOptions {
        format: Some(InputFormat::Parquet),
        declared: store.value_type().into(),
        value: ValueSelection::Column("value".to_owned()),
        memory_bytes: options.memory_bytes,
        threads: options.threads,
        cut_unix_ms: Some(until_unix_ms),
        // A value may expire while the pages are read.
        on_duplicate: OnDuplicate::Last,
        ..BuildOptions::new(
            name.clone(),
            // The push takes the number of the cluster, and its own directory.
            PartitionCount::ONE,
            texts(&files.changed),
            "key",
            Location::local(work.join("version")),
            work.clone(),
        )
    };
    let difference = Push {
        upload: options.upload,
        incremental: true,
        deletes: texts(&files.deleted),
        events_on: Some(version),
        ..Push::new(build)
    };
    push(&Clusters::one(endpoint.clone()), difference, job).map(Compacted::Pushed)
}

impl Parts {
    /// Asks all nodes.
    fn find(
        client: &Client,
        endpoint: &Endpoint,
        name: &StoreName,
        current: &VersionResource,
    ) -> Result<Self, PushError> {
        let list: NodeList = client.get("/v1/nodes")?;
        let mut found: Vec<(Client, VersionStream)> = Vec::new();
        for node in list.nodes.iter().filter(|node| node.live) {
            let client = endpoint.client_of_node(&node.http)?;
            let status: StreamStatus = client.get(&format!("/v1/stores/{name}/stream?own=true"))?;
            let stream = status
                .versions
                .into_iter()
                .find(|stream| stream.version == current.version);
            found.extend(stream.map(|stream| (client, stream)));
        }
        let Some(count) = found.iter().map(|(_, stream)| stream.partitions_total).max() else {
            return Err(PushError::Unfit(format!(
                "no node reads the stream of version {} of store {name:?}",
                current.version
            )));
        };
        // Of replicas one that lacks no records, and has come furthest, so that none waits for one that is behind.
        found.sort_by_key(|(_, stream)| (!stream.lost.is_empty(), std::cmp::Reverse(stream.settled_unix_ms)));
        let mut left: PartitionSet = (0..count).map(PartitionId::new).collect();
        let mut parts = Self {
            until_unix_ms: u64::MAX,
            nodes: Vec::new(),
        };
        for (client, stream) in found {
            let partitions: PartitionSet = left
                .iter()
                .filter(|partition| stream.ready.contains(*partition))
                .collect();
            if partitions.is_empty() {
                continue;
            }
            if !stream.lost.is_empty() {
                return Err(PushError::Unfit(format!(
                    "records of the topic were gone before {} read them, and no other node answers for its partitions {partitions}: push \
                     a new version",
                    client.address()
                )));
            }
            if stream.settled_unix_ms == 0 {
                return Err(PushError::Unfit(format!(
                    "{} has read too few events since it was started to know up to when it has all: log events for longer than the \
                     store's --grace, and try again",
                    client.address()
                )));
            }
            parts.until_unix_ms = parts.until_unix_ms.min(stream.settled_unix_ms);
            left = left.without(&partitions);
            parts.nodes.push(Part { client, partitions });
        }
        if !left.is_empty() {
            return Err(PushError::Unfit(format!(
                "no live node answers for partitions {left} of store {name:?}: see fondaco status"
            )));
        }
        Ok(parts)
    }

    /// Writes the changes that the events have made to files in a directory.
    fn collect(
        &self,
        (name, current, is_dated): (&StoreName, &VersionResource, bool),
        dir: &Path,
        job: Job<'_>,
    ) -> Result<Files, PushError> {
        let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let read_part = |number: usize, part: &Part| {
            let mut files = PartFiles::new(dir, number);
            for partition in part.partitions.iter() {
                let path = format!(
                    "/v1/stores/{name}/stream/changes/{partition}?version={}&until_unix_ms={}",
                    current.version, self.until_unix_ms
                );
                let of_events = match is_dated {
                    true => format!("{path}&dated=true"),
                    false => path.clone(),
                };
                // And the keys without events that have expired.
                let of_version = is_dated.then(|| format!("{path}&expired=true"));
                for path in [of_events].into_iter().chain(of_version) {
                    let mut next = Some(path.clone());
                    while let Some(page) = next.filter(|_| !is_over.load(Relaxed)) {
                        let (bytes, after) = part.client.get_page(&page)?;
                        count.fetch_add(files.add(&bytes)?, Relaxed);
                        next = after.map(|after| format!("{path}&after={after}"));
                    }
                }
            }
            files.finish()
        };
        // The others may stop if one fails.
        let read = |number, part| read_part(number, part).inspect_err(|_| is_over.store(true, Relaxed));
        let mut all = Files::default();
        thread::scope(|scope| {
            let parts = self.nodes.iter().enumerate();
            let threads: Vec<_> = parts
                .map(|(number, part)| scope.spawn(move || read(number, part)))
                .collect();
            let step = job.step();
            while threads.iter().any(|thread| !thread.is_finished()) {
                if job.is_cancelled() {
                    is_over.store(true, Relaxed);
                }
                step.show(Progress::ReadingEvents {
                    keys: count.load(Relaxed),
                });
                thread::park_timeout(INTERVAL);
            }
            for thread in threads {
                let (changed, deleted) = match thread.join() {
                    Ok(files) => files?,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                all.changed.extend(changed);
                all.deleted.extend(deleted);
            }
            Ok::<_, PushError>(())
        })?;
        if job.is_cancelled() {
            let text = "interrupted before all events were read; nothing was changed";
            return Err(PushError::Cancelled(text.to_owned()));
        }
        all.count = count.load(Relaxed);
        Ok(all)
    }
}
