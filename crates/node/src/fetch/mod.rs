//! Fetching: pulling files of one version onto the node's own disk.
//!
//! It knows nothing of stores' life cycles: it is told where from, where to, which partitions and what to
//! expect, and either they are there in the end, durable and verified, or an error says why not.
//! It waits for disks and networks, and so runs on threads of its own, never on an event loop.
//!
//! The order keeps every crash harmless. A new version grows in a directory that is not the version's: data
//! files first, then the dictionary, then indexes, so that those are what is freshest in memory; the
//! manifest last; and one rename makes it the version's directory. Partitions that come later are added to
//! that directory, in the same order, so that each is held once its last index has its name. What an
//! earlier try left is verified and used.

mod batch;
mod copy;
mod discard;
mod error;
mod file;
mod pace;
mod peer;
mod plan;
mod report;
mod share;
mod source;
mod sources;
mod space;

use std::path::Path;
use std::time::Duration;

use fondaco_format::Checksum;
use fondaco_model::{AdaptiveRate, FetchWindow, PartitionCount, PartitionSet, StoreName};

pub use discard::{discard_leftovers, discard_partitions, keep_only};
pub use error::FetchError;
pub use pace::{Clock, FetchControl, FetchProgress, SystemClock};
pub use peer::{PeerClient, PeerSource};
pub use plan::FetchPlan;
pub use report::{CorruptFile, FetchReport};
pub use source::{FetchSource, LocationSource, PageCache, SourceError};
pub use sources::Sources;

/// How often the rate is decided anew.
const WINDOW: Duration = Duration::from_millis(250);

/// What changes while a fetch runs.
pub trait FetchTuning: Sync {
    /// The operator's limit in bytes a second; `None` for none.
    fn rate_limit_bytes_per_second(&self) -> Option<u64>;

    /// The 99th percentile of the latency of reads since the last call; `None` if nobody read.
    fn read_p99(&self) -> Option<Duration>;
}

/// What a version must be to be fetched, how much of it is wanted, and where it goes.
#[derive(Debug, Clone, Copy)]
pub struct FetchTarget<'a> {
    /// The store that it must have been built for.
    pub store: &'a StoreName,
    /// The number of partitions that it must have.
    pub partitions: PartitionCount,
    /// The partitions that are wanted; `None` for all. Best without those that the directory holds: they
    /// would be read once more.
    pub wanted: Option<&'a PartitionSet>,
    /// The checksum that its manifest, the whole file, must have; `None` for any.
    pub manifest_checksum: Option<Checksum>,
    /// Where files grow, if the version has no directory yet.
    pub fetching_dir: &'a Path,
    /// The directory of the version. What is in it is added to. On the same file system.
    pub version_dir: &'a Path,
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
}

/// Decides the rate, window by window.
struct Pacer<'a> {
    control: &'a FetchControl,
    tuning: &'a dyn FetchTuning,
    adaptive: AdaptiveRate,
    window_start: Duration,
    bytes_before: u64,
}

impl<'a> Pacer<'a> {
    fn new(control: &'a FetchControl, tuning: &'a dyn FetchTuning) -> Self {
        let adaptive = AdaptiveRate::new(tuning.rate_limit_bytes_per_second(), tuning.read_p99());
        control.set_rate_limit(adaptive.rate_bytes_per_second());
        Self {
            control,
            tuning,
            adaptive,
            window_start: control.now(),
            bytes_before: control.progress().bytes_done,
        }
    }

    fn until_next_window(&self) -> Duration {
        (self.window_start + WINDOW).saturating_sub(self.control.now())
    }

    fn turn(&mut self) {
        let now = self.control.now();
        let elapsed = now.saturating_sub(self.window_start);
        if elapsed < WINDOW {
            return;
        }
        let bytes = self.control.progress().bytes_done;
        let fetched = bytes.saturating_sub(self.bytes_before) as f64 / elapsed.as_secs_f64();
        let fetched_bytes_per_second = fetched as u64;
        self.adaptive.set_limit(self.tuning.rate_limit_bytes_per_second());
        let rate = self.adaptive.observe(FetchWindow {
            read_p99: self.tuning.read_p99(),
            fetched_bytes_per_second,
        });
        self.control.set_rate_limit(rate);
        self.control.report_rate(fetched_bytes_per_second);
        (self.window_start, self.bytes_before) = (now, bytes);
    }
}
