//! Fetching: pulls files of one version to the node's own disk.
//!
//! It knows nothing of stores' life cycles. The caller gives sources, target directory, partitions and expected
//! checksum. In the end either the partitions are there, durable and verified, or an error says why not. It waits for
//! disks and networks, so it runs on threads of its own, never on an event loop.
//!
//! The order of steps makes every crash harmless. A new version grows in a separate directory: data files first, then
//! the dictionary, then indexes, and the manifest last. So indexes are the most recent in the page cache. One rename
//! makes it the version's directory. Later partitions are added to that directory in the same order, so that each is
//! held once its last index has its name. Files of an earlier attempt are verified and used.
//!
//! A version can be opened while it is fetched: see [`OnDemand`].

mod batch;
mod copy;
mod discard;
mod error;
mod file;
mod https;
mod on_demand;
mod pace;
mod pacer;
mod partial;
mod peer;
mod pending_syncs;
mod plan;
mod rebuild;
mod report;
mod share;
mod siblings;
mod source;
mod sources;
mod space;

use std::path::{Path, PathBuf};

use fondaco_format::Checksum;
use fondaco_model::{HistogramSnapshot, PartitionCount, PartitionSet, StoreName};

pub use discard::{discard_leftovers, move_partitions};
pub use error::FetchError;
pub use file::part_name;
pub use https::agent_trusting;
pub use on_demand::OnDemand;
pub use pace::{Clock, FetchControl, FetchProgress, SystemClock};
pub use pacer::Pacer;
pub use partial::OnDemandCounts;
pub use peer::{PeerClient, PeerPort, PeerSource};
pub use plan::FetchPlan;
pub use report::{CorruptFile, FetchReport};
pub use source::{FetchSource, LocationSource, PageCache, SourceError};
pub use sources::Sources;
pub use space::{Reservation, reserve_space};

/// Values that change while a fetch runs, or other work that has a [`Pacer`].
pub trait FetchTuning: Sync {
    /// The operator's limit in bytes a second; `None` for none.
    fn rate_limit_bytes_per_second(&self) -> Option<u64>;

    /// The slowest rate that the fetch chooses for the sake of reads, in bytes a second.
    fn rate_floor_bytes_per_second(&self) -> u64;

    /// The latencies of all reads so far.
    fn reads(&self) -> HistogramSnapshot;
}

/// The requirements of a fetch for a version, the partitions that it fetches, and their target.
#[derive(Debug, Clone, Copy)]
pub struct FetchTarget<'a> {
    /// The store that it must have been built for.
    pub store: &'a StoreName,
    /// The number of partitions that it must have.
    pub partitions: PartitionCount,
    /// The wanted partitions; `None` for all. Best without those that the directory holds: they would be read again.
    pub wanted: Option<&'a PartitionSet>,
    /// The required checksum of its manifest, the whole file; `None` for any.
    pub manifest_checksum: Option<Checksum>,
    /// The directory in which files grow, if the version has no directory yet.
    pub fetching_dir: &'a Path,
    /// The directory of the version, to whose files the new ones are added. On the same file system.
    pub version_dir: &'a Path,
    /// The directories of other versions of the store on this disk. If one of them has a file of the same name, and the
    /// name is derived from the content, the file is linked. Chunks with patches are made from theirs.
    pub siblings: &'a [PathBuf],
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
}
