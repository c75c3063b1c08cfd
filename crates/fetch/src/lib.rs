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
mod https;
mod pace;
mod pacer;
mod peer;
mod plan;
mod priority;
mod report;
mod settling;
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
pub use pace::{Clock, FetchControl, FetchProgress, SystemClock};
pub use peer::{PeerClient, PeerSource};
pub use plan::FetchPlan;
pub use report::{CorruptFile, FetchReport};
pub use source::{FetchSource, LocationSource, PageCache, SourceError};
pub use sources::Sources;
pub use space::{Reservation, reserve_space};

/// What changes while a fetch runs.
pub trait FetchTuning: Sync {
    /// The operator's limit in bytes a second; `None` for none.
    fn rate_limit_bytes_per_second(&self) -> Option<u64>;

    /// The slowest that the fetch makes itself for the sake of reads, in bytes a second.
    fn rate_floor_bytes_per_second(&self) -> u64;

    /// How long all reads took so far.
    fn reads(&self) -> HistogramSnapshot;
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
    /// The directories of other versions of the store on this disk. A file that one of them has under the same name is
    /// linked, if the name is made of its content.
    pub siblings: &'a [PathBuf],
    /// How much of the disk must stay free, in bytes.
    pub reserve_bytes: u64,
}
