//! The progress of a build, for a thread that watches it, and a way to cancel the build.
//!
//! It holds only counters. The watcher, which has a clock, computes rates and the remaining time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::error::BuildError;

static BEFORE_SORTING: OnceLock<fn()> = OnceLock::new();

/// Sets the function that every build of this process calls when it has read its input, before it takes memory to sort: an
/// allocator may then return what reading has freed. Only the first call counts.
pub fn call_before_sorting(function: fn()) {
    _ = BEFORE_SORTING.set(function);
}

/// The phase of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Before reading.
    Preparing,
    /// Reading the input.
    Reading,
    /// Of a graph: giving each name of a vertex its id.
    Naming,
    /// Of a graph: finding the ids of both ends of each edge.
    Joining,
    /// Of a graph: making the set of neighbours of each vertex.
    Grouping,
    /// Sorting and writing the version.
    Writing,
    /// Waiting for the disk.
    Finishing,
    /// Done.
    Done,
}

/// The counters of one build, shared between the build and its watchers.
#[derive(Debug, Default)]
pub struct Progress {
    phase: AtomicU8,
    pub(crate) bytes_total: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) rows_read: AtomicU64,
    pub(crate) rows_bad: AtomicU64,
    pub(crate) records_total: AtomicU64,
    pub(crate) records_written: AtomicU64,
    cancelled: AtomicBool,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// The current phase.
    pub phase: Phase,
    /// The size of all input files, in bytes.
    pub bytes_total: u64,
    /// How many of these bytes were read.
    pub bytes_read: u64,
    /// The number of rows read.
    pub rows_read: u64,
    /// How many of the rows were bad.
    pub rows_bad: u64,
    /// The number of records to sort in this phase; 0 until all rows are read.
    pub records_total: u64,
    /// How many of the records are sorted.
    pub records_written: u64,
}

impl Progress {
    /// The counters of a build that has not started.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current counters.
    pub fn snapshot(&self) -> ProgressSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressSnapshot {
            phase: match self.phase.load(Ordering::Relaxed) {
                0 => Phase::Preparing,
                1 => Phase::Reading,
                2 => Phase::Naming,
                3 => Phase::Joining,
                4 => Phase::Grouping,
                5 => Phase::Writing,
                6 => Phase::Finishing,
                _ => Phase::Done,
            },
            bytes_total: get(&self.bytes_total),
            bytes_read: get(&self.bytes_read),
            rows_read: get(&self.rows_read),
            rows_bad: get(&self.rows_bad),
            records_total: get(&self.records_total),
            records_written: get(&self.records_written),
        }
    }

    /// Cancels the build. It deletes its files and ends with [`BuildError::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.cancelled.load(Ordering::Relaxed) {
            Err(BuildError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Enters a phase that sorts this many records.
    pub(crate) fn enter_sorting(&self, phase: Phase, records: u64) {
        self.records_written.store(0, Ordering::Relaxed);
        self.records_total.store(records, Ordering::Relaxed);
        self.enter(phase);
        if let Some(function) = BEFORE_SORTING.get() {
            function();
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}

impl ProgressSnapshot {
    /// The completed fraction of the current phase, from 0 to 1.
    pub fn phase_fraction(&self) -> f64 {
        let (done, total) = match self.phase {
            Phase::Preparing => (0, 1),
            Phase::Reading => (self.bytes_read, self.bytes_total),
            Phase::Naming | Phase::Joining | Phase::Grouping | Phase::Writing => {
                (self.records_written, self.records_total)
            }
            Phase::Finishing | Phase::Done => (1, 1),
        };
        if total == 0 {
            0.0
        } else {
            (done as f64 / total as f64).min(1.0)
        }
    }
}
