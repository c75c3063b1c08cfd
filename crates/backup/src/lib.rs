//! Backups of versioned stores: all records of a store, to a directory or a URL and back, while it serves.
//!
//! - `manifest`: the files of a backup, and when it is complete;
//! - `records`: the files that contain records;
//! - `digests`: the digests of an earlier backup's records;
//! - `partition`: the files of a partition, being written;
//! - `chain`: an incremental backup, and the earlier ones that it needs;
//! - `cluster`: the nodes of each partition, the requests to them, and the failures that are retried;
//! - `sources`: the choice of nodes to read;
//! - `pages`, `replicas`: the records of one node, and the merged records of several;
//! - `pace`: the rate limit;
//! - [`back_up`] and [`restore`]: the two jobs.
//!
//! A backup contains every write that was acknowledged before it began. Of each partition, enough replicas are read
//! that any such write is in at least one of them. Their records are merged. Writes made during the backup may or may
//! not be in it. Every record keeps its vector clock, so a restore is a merge: newer records stay, and restoring
//! twice, or restoring half of a backup, does no harm.

mod back_up;
mod chain;
mod cluster;
mod digests;
mod manifest;
mod pace;
mod pages;
mod partition;
mod records;
mod replicas;
mod restore;
mod sources;

pub use back_up::{BackedUp, back_up};
pub use restore::{Restored, restore, verify};

use fondaco_admin::Endpoint;

/// The inputs of a job.
pub struct Job<'a> {
    /// The cluster.
    pub endpoint: &'a Endpoint,
    /// Limit of bytes read or restored per second; 0 is no limit.
    pub bytes_per_second: u64,
    /// Whether the job should stop.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Called with the progress of the job.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// The progress of a job.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The current phase.
    pub phase: &'static str,
    /// The fraction of the phase that is done, from 0 to 1.
    pub fraction: f64,
    /// How many records were read or restored.
    pub records: u64,
}
