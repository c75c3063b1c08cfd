//! Whether a version fits on the disk, and whether its files can be linked.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::FetchTarget;
use super::error::FetchError;
use super::source::FetchSource;

/// Whether the source is on the file system of the directory, so that links may work.
pub(super) fn can_link(source: &dyn FetchSource, dir: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let here = existing_ancestor(dir).and_then(device);
    here.is_some() && here == source.local_dir().and_then(device)
}

/// Checks that this many bytes fit besides the reserve, counting what an earlier try left as room.
pub(super) fn check(target: &FetchTarget<'_>, needed_bytes: u64) -> Result<(), FetchError> {
    let dir = existing_ancestor(target.fetching_dir).unwrap_or(Path::new("."));
    let found = rustix::fs::statvfs(dir)
        .map_err(io::Error::from)
        .map_err(FetchError::io("find the free space of", dir))?;
    let available_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let already_bytes = allocated_bytes(target.fetching_dir);
    let room = available_bytes
        .saturating_add(already_bytes)
        .saturating_sub(target.reserve_bytes);
    if needed_bytes > room {
        return Err(FetchError::NoSpace {
            path: dir.to_owned(),
            needed_bytes: needed_bytes.saturating_sub(already_bytes),
            available_bytes,
            reserve_bytes: target.reserve_bytes,
        });
    }
    Ok(())
}

/// What the files of a directory take on the disk; links belong to someone else.
fn allocated_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .filter(|found| found.is_file() && found.nlink() == 1)
        .map(|found| found.blocks() * 512)
        .sum()
}

fn existing_ancestor(path: &Path) -> Option<&Path> {
    path.ancestors().find(|ancestor| ancestor.exists())
}
