//! Whether a version fits on the disk, and whether its files need no copies.
//!
//! Several fetches may run at a time, and each needs the space that the others have not used yet. So the space that a
//! fetch still needs is reserved while it runs. Reservations are global to the process: they count for all fetches on
//! the same file system, of any store.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fondaco_format::FileEntry;
use parking_lot::Mutex;

use crate::error::FetchError;
use crate::file::part_name;
use crate::share;
use crate::sources::Sources;

/// The space that running fetches need.
static RESERVED: Mutex<Vec<Arc<Need>>> = Mutex::new(Vec::new());

/// The files that a fetch puts into a directory.
pub(crate) struct Need {
    device: u64,
    dir: PathBuf,
    files: Vec<(String, u64)>,
}

impl Need {
    /// The need of these files in a directory, which may be missing.
    pub(crate) fn new<'f>(dir: &Path, files: impl IntoIterator<Item = &'f FileEntry>) -> Result<Self, FetchError> {
        Ok(Self {
            device: device_of(dir)?,
            dir: dir.to_owned(),
            files: files.into_iter().map(|file| (file.name.clone(), file.bytes)).collect(),
        })
    }

    /// The bytes that these files do not use yet. A file that is being copied has all its space allocated from the
    /// beginning.
    pub(crate) fn outstanding_bytes(&self) -> u64 {
        let each = self.files.iter().map(|(name, bytes)| {
            let taken = allocated_bytes(&self.dir.join(name)) + allocated_bytes(&self.dir.join(part_name(name)));
            bytes.saturating_sub(taken)
        });
        each.sum()
    }
}

/// Space on a disk that no other fetch may use. Released when it is dropped.
pub struct Reservation(Arc<Need>);

impl Drop for Reservation {
    fn drop(&mut self) {
        RESERVED.lock().retain(|need| !Arc::ptr_eq(need, &self.0));
    }
}

/// Reserves the space that files still need in a directory, where they grow like those of a fetch (see
/// [`part_name`](crate::part_name)), if there is enough besides the reserve.
///
/// # Errors
/// [`FetchError::NoSpace`], or the free space cannot be read.
pub fn reserve_space<'f>(
    dir: &Path,
    files: impl IntoIterator<Item = &'f FileEntry>,
    reserve_bytes: u64,
) -> Result<Reservation, FetchError> {
    reserve(Need::new(dir, files)?, reserve_bytes)
}

/// Reserves space, if there is enough besides the reserve.
pub(crate) fn reserve(need: Need, reserve_bytes: u64) -> Result<Reservation, FetchError> {
    let mut reserved = RESERVED.lock();
    check_against(&reserved, &need, reserve_bytes)?;
    let need = Arc::new(need);
    reserved.push(Arc::clone(&need));
    Ok(Reservation(need))
}

/// Checks whether it could be reserved now.
pub(crate) fn check(need: &Need, reserve_bytes: u64) -> Result<(), FetchError> {
    check_against(&RESERVED.lock(), need, reserve_bytes)
}

fn check_against(reserved: &[Arc<Need>], need: &Need, reserve_bytes: u64) -> Result<(), FetchError> {
    let dir = existing_ancestor(&need.dir);
    let found = rustix::fs::statvfs(dir)
        .map_err(io::Error::from)
        .map_err(FetchError::io("find the free space of", dir))?;
    let available_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let needed_bytes = need.outstanding_bytes();
    // A reservation of an earlier attempt of the same fetch is not another's.
    let others = reserved
        .iter()
        .filter(|other| other.device == need.device && other.dir != need.dir);
    let reserved_bytes = others.map(|other| other.outstanding_bytes()).sum();
    let room = available_bytes
        .saturating_sub(reserve_bytes)
        .saturating_sub(reserved_bytes);
    if needed_bytes > room {
        return Err(FetchError::NoSpace {
            path: dir.to_owned(),
            needed_bytes,
            available_bytes,
            reserve_bytes,
            reserved_bytes,
        });
    }
    Ok(())
}

/// The number of a source whose files need no copies: see [`share`](crate::share).
pub(crate) fn shareable(sources: &Sources, dir: &Path) -> Option<usize> {
    let here = existing_ancestor(dir);
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let device_here = device(here)?;
    sources.iter().position(|source| {
        source
            .local_dir()
            .is_some_and(|from| device(from) == Some(device_here) && share::is_possible(from, here))
    })
}

/// The device number of the file system of a directory, which may be missing.
pub(crate) fn device_of(dir: &Path) -> Result<u64, FetchError> {
    let existing = existing_ancestor(dir);
    let found = fs::metadata(existing).map_err(FetchError::io("look at", existing))?;
    Ok(found.dev())
}

/// The space that a file uses on the disk, if it exists; a link belongs to another directory.
fn allocated_bytes(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.nlink() == 1 => found.blocks() * 512,
        _ => 0,
    }
}

fn existing_ancestor(path: &Path) -> &Path {
    let above = path.ancestors().filter(|above| !above.as_os_str().is_empty());
    above.into_iter().find(|above| above.exists()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use fondaco_format::Checksum;

    use super::*;

    fn need(dir: &Path, bytes: u64) -> Need {
        let file = FileEntry {
            name: "a.data".into(),
            bytes,
            checksum: Checksum::of(b""),
        };
        Need::new(dir, [&file]).unwrap()
    }

    fn free_bytes(dir: &Path) -> u64 {
        let found = rustix::fs::statvfs(dir).unwrap();
        found.f_bavail * found.f_frsize
    }

    #[test]
    fn two_fetches_never_use_the_same_space() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let most = free_bytes(dir.path()) / 10 * 6;
        let first = reserve(need(&one, most), 0).unwrap();
        let error = reserve(need(&other, most), 0).err().unwrap();
        let FetchError::NoSpace { reserved_bytes, .. } = error else {
            panic!("{error}");
        };
        assert!(reserved_bytes >= most);
        assert!(check(&need(&other, most / 10), 0).is_ok());
        assert!(check(&need(&one, most), 0).is_ok(), "another try of the same fetch");
        drop(first);
        assert!(reserve(need(&other, most), 0).is_ok());
    }

    #[test]
    fn files_on_the_disk_need_no_more_space() {
        let dir = tempfile::tempdir().unwrap();
        let need = need(dir.path(), 100_000);
        assert_eq!(need.outstanding_bytes(), 100_000);
        fs::write(dir.path().join(part_name("a.data")), vec![7; 60_000]).unwrap();
        assert!(need.outstanding_bytes() <= 40_000);
        fs::write(dir.path().join("a.data"), vec![7; 100_000]).unwrap();
        assert_eq!(need.outstanding_bytes(), 0);
    }
}
