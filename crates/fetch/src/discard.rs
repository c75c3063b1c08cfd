//! Removes unwanted files from a version's directory: leftovers of fetches, and partitions.

use std::fs;
use std::io;
use std::path::Path;

use fondaco_format::{MANIFEST_FILE, Manifest};
use fondaco_model::PartitionId;

use crate::error::FetchError;
use crate::file::{link_name, part_name, remove};
use crate::plan::sync_dir;

/// Deletes the leftovers of an interrupted fetch in the directory of a version. No fetch may be running there.
///
/// # Errors
/// An error of the operating system.
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

/// Moves the files of some partitions from the directory of a version to another directory on the same file system.
/// That directory is created if there is a file to move, and gets a copy of the manifest. A version that is opened
/// afterwards does not hold those partitions; a reader that has it open can still read them. Returns whether a file
/// was moved.
///
/// # Errors
/// No readable manifest, or an error of the operating system: some files may then be moved, but none is lost.
pub fn move_partitions(version_dir: &Path, to: &Path, goes: impl Fn(PartitionId) -> bool) -> Result<bool, FetchError> {
    let manifest = Manifest::read(version_dir).map_err(|source| FetchError::Manifest {
        location: version_dir.display().to_string(),
        source,
    })?;
    let chunks = manifest.chunks.iter().filter(|chunk| goes(chunk.partition));
    // A partition is not held any more once the first of its indexes is gone.
    let names = chunks.flat_map(|chunk| [&chunk.index].into_iter().chain(chunk.files_but_index()));
    let names = names.map(|file| &file.name);
    let names: Vec<&String> = names
        .filter(|name| version_dir.join(name).exists() && !to.join(name).exists())
        .collect();
    if names.is_empty() {
        return Ok(false);
    }
    if !to.join(MANIFEST_FILE).exists() {
        fondaco_durable::create_directory(to).map_err(FetchError::io("create", to))?;
        let manifest = version_dir.join(MANIFEST_FILE);
        fs::copy(&manifest, to.join(MANIFEST_FILE)).map_err(FetchError::io("copy", &manifest))?;
    }
    for name in names {
        let from = version_dir.join(name);
        fs::rename(&from, to.join(name)).map_err(FetchError::io("move", &from))?;
    }
    // The new names first: after a power failure, each file is in one of the directories.
    sync_dir(to)?;
    sync_dir(version_dir)?;
    Ok(true)
}
