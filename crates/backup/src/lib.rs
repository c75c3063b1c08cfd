//! Backups of versioned stores: all records of a store, to a directory or a URL and back, while it serves.
//!
//! - `manifest`: what a backup consists of, and when it is one;
//! - `records`: the files in which records are;
//! - `cluster`: which nodes hold what, how they are asked, and what of their failures is waited for;
//! - `sources`: which of them have to be read;
//! - `pages`, `replicas`: what a node, and what several of them together, hold;
//! - `pace`: how fast it goes;
//! - [`back_up`] and [`restore`]: the two jobs;
//! - [`Port`]: the control ports that they speak to.
//!
//! What a backup promises: every write that was acknowledged before it began is in it. Of each partition so many
//! replicas are read that one of them at least has any such write, and what they hold is joined. Of what is
//! written meanwhile, some is in it. Every record keeps its clock, so that to restore is to join: what is newer
//! stays, and doing it again, or half of it, does no harm.

mod back_up;
mod cluster;
mod manifest;
mod pace;
mod pages;
mod port;
mod records;
mod replicas;
mod restore;
mod sources;

pub use back_up::{BackedUp, back_up};
pub use port::{Port, Ports, Refused, is_refused};
pub use restore::{Restored, restore, verify};

/// What a job goes by.
pub struct Job<'a> {
    /// The cluster.
    pub ports: &'a dyn Ports,
    /// No more than this is read or restored a second; 0 is no limit.
    pub bytes_per_second: u64,
    /// Whether the job is to stop.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Told how far it is.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// How far a job is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// How much of it is done, from 0 to 1.
    pub fraction: f64,
    /// How many records were read or restored.
    pub records: u64,
}
