//! The caller's side of a job: its progress goes out, and the wish to stop comes in.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use fondaco_api::{AbsentNode, PushResource};
use fondaco_builder::ProgressSnapshot;
use fondaco_model::StoreName;
use fondaco_stream::Sent;

use crate::build::BuildResult;
use crate::error::PushError;
use crate::rollout::ClusterOutcome;
use crate::upload::UploadResult;

/// The time between two looks at the state of a job.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The wish to stop a job. All copies of a token are one.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the job to stop: it cleans up, and fails with [`PushError::is_cancelled`]. A push that has begun is cancelled in the
    /// cluster. Returns whether that was asked for before.
    pub fn cancel(&self) -> bool {
        self.0.swap(true, Relaxed)
    }

    /// Whether the job shall stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The caller's side of a job.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Hears of the progress.
    pub observer: &'a dyn Observer,
    /// Stops the job.
    pub cancel: &'a CancelToken,
}

/// Hears of the progress of a job, in the thread that called it.
pub trait Observer {
    /// The state of the step under way: every [`INTERVAL`], about.
    fn progress(&self, progress: Progress<'_>);

    /// The step under way has ended: its progress is not news any more.
    fn step_ended(&self);

    /// Something that people may want to know has happened.
    fn note(&self, note: Note<'_>);
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn progress(&self, _: Progress<'_>) {}
    fn step_ended(&self) {}
    fn note(&self, _: Note<'_>) {}
}

/// The state of the step under way. Sizes are in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// Rows become a version.
    Building(&'a ProgressSnapshot),
    /// The version that is changed, or exported, is fetched.
    FetchingBase {
        /// The bytes that are here.
        bytes_done: u64,
        /// The bytes of all files.
        bytes_total: u64,
    },
    /// Records are exported.
    Exporting {
        /// The number of records so far.
        records: u64,
        /// The number of all records, if it is known.
        records_total: Option<u64>,
    },
    /// The events on top of a version are read.
    ReadingEvents {
        /// The number of keys that have changed, so far.
        keys: u64,
    },
    /// The version is sent through a topic.
    Sending {
        /// The bytes sent.
        bytes_sent: u64,
        /// The bytes of all files.
        bytes_total: u64,
        /// The time since it began.
        elapsed: Duration,
    },
    /// The version is uploaded to a node.
    Uploading {
        /// The bytes that the node has.
        bytes_arrived: u64,
        /// The bytes of all files.
        bytes_total: u64,
        /// The bytes that this job sent.
        bytes_sent: u64,
        /// The time since it began.
        elapsed: Duration,
    },
    /// Nodes fetch the version, and swap it in.
    Fetching(&'a PushResource),
}

/// An event of a job.
#[derive(Debug, Clone, Copy)]
pub enum Note<'a> {
    /// A bad row was skipped, as the options allow.
    RowSkipped(&'a str),
    /// The version is built.
    Built(&'a BuildResult),
    /// The current version of a store is fetched, because a push changes it, or because it is exported.
    FetchingBase {
        /// The store.
        store: &'a StoreName,
        /// The version.
        version: u64,
    },
    /// The store was created.
    StoreCreated(&'a StoreName),
    /// The store was to be created, and another client has done so.
    StoreExists(&'a StoreName),
    /// An upload begins; it can be resumed from this directory.
    UploadBegins {
        /// The store.
        store: &'a StoreName,
        /// The directory of the version.
        dir: &'a Path,
    },
    /// A file arrived with a wrong checksum, and is sent again.
    UploadCorrupt(&'a PushError),
    /// The node does not answer; the upload tries again.
    UploadRetried(&'a PushError),
    /// The version is uploaded.
    Uploaded(&'a UploadResult),
    /// The version was sent through a topic.
    Sent(&'a Sent),
    /// A cluster knows the run already: its push is watched, and nothing else is begun.
    RunKnown {
        /// The id of the run.
        run: &'a str,
        /// The version that it makes.
        version: u64,
    },
    /// Another push of the store is under way, which is waited for.
    OtherPush(&'a PushError),
    /// No controller leads: the push waits for one.
    NoLeader,
    /// The push waits for a node that is absent.
    WaitingForNode(&'a AbsentNode),
    /// The store serves the version, and this node does not have it yet.
    LateNode(u32),
    /// A cluster cannot be reached or has failed, and is left out.
    ClusterLeftOut(&'a PushError),
    /// A cluster does not answer, and is asked again.
    ClusterAway(&'a PushError),
    /// One of several clusters has ended its push.
    ClusterEnded {
        /// The store.
        store: &'a StoreName,
        /// The end of the push.
        outcome: &'a ClusterOutcome,
    },
    /// The next cluster swaps the version in after this time.
    Pausing(Duration),
    /// A node cannot return the results of the events yet: it is asked again.
    EventsRetried(&'a PushError),
    /// The events of a hybrid store were read.
    EventsRead {
        /// The store.
        store: &'a StoreName,
        /// The number of keys that they have changed.
        keys: u64,
        /// The time up to which they count, in milliseconds since 1970.
        until_unix_ms: u64,
    },
}

/// A step of a job. The observer hears of its end when this is dropped.
pub(crate) struct Step<'a>(Job<'a>);

impl<'a> Job<'a> {
    /// Begins a step.
    pub(crate) fn step(self) -> Step<'a> {
        Step(self)
    }

    pub(crate) fn note(self, note: Note<'_>) {
        self.observer.note(note);
    }

    pub(crate) fn is_cancelled(self) -> bool {
        self.cancel.is_cancelled()
    }
}

impl Step<'_> {
    pub(crate) fn show(&self, progress: Progress<'_>) {
        self.0.observer.progress(progress);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.observer.step_ended();
    }
}
