//! Brings a version onto the disk, and opens it, as a node does: verified, continued where an earlier attempt stopped,
//! with equal files linked from the versions that are there.

use std::path::PathBuf;
use std::sync::Arc;

use fondaco_fetch::{FetchControl, FetchError, FetchPlan, FetchTarget, FetchTuning, PageCache, Sources};
use fondaco_format::FormatError;
use fondaco_model::{HistogramSnapshot, PartitionSet, StoreName};

use super::cluster::Target;
use crate::error::EmbeddedError;
use crate::events::Streams;
use crate::snapshot::{Open, open_version};

/// A version to bring.
pub(super) struct Job {
    pub(super) store: StoreName,
    pub(super) target: Target,
    pub(super) version_dir: PathBuf,
    pub(super) fetching_dir: PathBuf,
    /// The directories of other versions here.
    pub(super) siblings: Vec<PathBuf>,
    /// The partitions to hold; `None` for all.
    pub(super) wanted: Option<PartitionSet>,
    /// Partitions whose files are damaged.
    pub(super) damaged: PartitionSet,
    pub(super) rate_limit_bytes_per_second: Option<u64>,
    pub(super) reserve_bytes: u64,
    pub(super) streams: Arc<Streams>,
}

/// The files that a version lacks.
enum Lacking {
    All,
    Partitions(PartitionSet),
}

impl Job {
    /// Opens the version, after fetching what is missing or damaged, with the events on top of it.
    pub(super) fn run(&self, sources: &Sources, control: &FetchControl) -> Result<Open, EmbeddedError> {
        let open = self.fetched(sources, control)?;
        let created_unix_ms = self.target.store_created_unix_ms;
        open.with_events(&self.streams, self.target.stream.as_ref(), created_unix_ms)
    }

    fn fetched(&self, sources: &Sources, control: &FetchControl) -> Result<Open, EmbeddedError> {
        let lacking = match self.version_dir.is_dir() {
            true => match self.open()? {
                Ok(open) if self.damaged.is_empty() => return Ok(open),
                Ok(_) => Lacking::Partitions(self.damaged.clone()),
                Err((Lacking::Partitions(found), _)) => Lacking::Partitions(found.with(&self.damaged)),
                Err((Lacking::All, _)) => Lacking::All,
            },
            false => Lacking::All,
        };
        let wanted = match &lacking {
            Lacking::All => self.wanted.as_ref(),
            Lacking::Partitions(partitions) => Some(partitions),
        };
        self.fetch(wanted, sources, control)?;
        self.open()?.map_err(|(_, error)| error.into())
    }

    /// Opens the version with its indexes in memory, or returns the files that it lacks.
    fn open(&self) -> Result<Result<Open, (Lacking, FormatError)>, EmbeddedError> {
        let mut version = match open_version(&self.version_dir) {
            Ok(version) => version,
            Err(error) if is_damage(&error) => return Ok(Err((Lacking::All, error))),
            Err(error) => return Err(error.into()),
        };
        let not_held: PartitionSet = version.not_held().collect();
        let missing = match &self.wanted {
            Some(wanted) => wanted.without(&wanted.without(&not_held)),
            None => not_held,
        };
        let first = missing.iter().next();
        if let Some(partition) = first {
            return Ok(Err((Lacking::Partitions(missing), FormatError::NotHeld { partition })));
        }
        match version.warm_and_close() {
            Ok(()) => Ok(Ok(Open::new(version, Some(self.target.id.number))?)),
            Err(error) if is_damage(&error) => {
                let damaged = version.damaged().into_keys().collect();
                Ok(Err((Lacking::Partitions(damaged), error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn fetch(
        &self,
        wanted: Option<&PartitionSet>,
        sources: &Sources,
        control: &FetchControl,
    ) -> Result<(), FetchError> {
        let target = FetchTarget {
            store: &self.store,
            partitions: self.target.partitions,
            wanted,
            manifest_checksum: Some(self.target.id.checksum),
            fetching_dir: &self.fetching_dir,
            version_dir: &self.version_dir,
            siblings: &self.siblings,
            reserve_bytes: self.reserve_bytes,
        };
        let plan = FetchPlan::new(sources, &target)?;
        let report = plan.run(sources, &target, self.page_cache(plan.files_bytes()), control, self)?;
        report.log(&self.store, self.target.id.number);
        Ok(())
    }

    /// The new version will be read at once, so its pages stay if there is room for it and for the version before.
    fn page_cache(&self, bytes: u64) -> PageCache {
        let memory_bytes = fondaco_os::process::memory_bytes().unwrap_or_default();
        match bytes <= memory_bytes / 4 {
            true => PageCache::Keep,
            false => PageCache::DropBehind,
        }
    }
}

impl FetchTuning for Job {
    fn rate_limit_bytes_per_second(&self) -> Option<u64> {
        self.rate_limit_bytes_per_second
    }

    fn rate_floor_bytes_per_second(&self) -> u64 {
        self.rate_limit_bytes_per_second.unwrap_or(u64::MAX)
    }

    /// The latencies of reads within this process are not measured: only the limit slows a fetch down.
    fn reads(&self) -> HistogramSnapshot {
        HistogramSnapshot::default()
    }
}

/// Whether fetching the files again may help.
fn is_damage(error: &FormatError) -> bool {
    let is_missing = matches!(error, FormatError::NoManifest { .. } | FormatError::MissingFile { .. });
    error.is_corruption() || is_missing
}
