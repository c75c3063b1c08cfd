//! Deleting from a version's directory what is not wanted there: leftovers of fetches, and partitions.

use std::fs;
use std::io;
use std::path::Path;

use fondaco_format::Manifest;
use fondaco_model::{PartitionId, PartitionSet};

use super::error::FetchError;
use super::file::{link_name, part_name, remove};
use super::plan::sync_dir;

/// Deletes what an interrupted fetch has left in the directory of a version. None may be running there.
///
/// # Errors
/// What the operating system says.
pub fn discard_leftovers(version_dir: &Path) -> Result<(), FetchError> {
    let entries = match fs::read_dir(version_dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(FetchError::io("list", version_dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(FetchError::io("list", version_dir))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if [part_name(""), link_name("")]
            .iter()
            .any(|suffix| name.ends_with(suffix))
        {
            remove(&entry.path())?;
        }
    }
    sync_dir(version_dir)
}

/// Deletes the files of all partitions but these from the directory of a version, durably: whoever opens it
/// next does not hold the others. Who has it open may go on.
///
/// # Errors
/// No readable manifest, or what the operating system says; some may then be deleted.
pub fn keep_only(version_dir: &Path, partitions: &PartitionSet) -> Result<(), FetchError> {
    discard(version_dir, |partition| !partitions.contains(partition))
}

/// Deletes the files of these partitions, and no others, as [`keep_only`] does.
///
/// # Errors
/// As for [`keep_only`].
pub fn discard_partitions(version_dir: &Path, partitions: &PartitionSet) -> Result<(), FetchError> {
    discard(version_dir, |partition| partitions.contains(partition))
}

fn discard(version_dir: &Path, goes: impl Fn(PartitionId) -> bool) -> Result<(), FetchError> {
    let manifest = Manifest::read(version_dir).map_err(|source| FetchError::Manifest {
        location: version_dir.display().to_string(),
        source,
    })?;
    for chunk in manifest.chunks.iter().filter(|chunk| goes(chunk.partition)) {
        remove(&version_dir.join(&chunk.index.name))?;
        remove(&version_dir.join(&chunk.data.name))?;
    }
    sync_dir(version_dir)
}
