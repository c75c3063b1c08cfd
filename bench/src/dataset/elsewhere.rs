//! A copy of a version on another file system, from which files cannot be linked, only copied: like a copy on another
//! machine, without the network.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};

use crate::machine::disk;

/// The directory of the copies: in memory.
pub const OTHER_FILE_SYSTEM: &str = "/dev/shm";

/// A copy, deleted on drop.
pub struct Elsewhere(PathBuf);

impl Elsewhere {
    /// Copies all files of a directory.
    pub fn copy(dir: &Path) -> Result<Self> {
        let here = fs::metadata(dir)?.dev();
        let there = fs::metadata(OTHER_FILE_SYSTEM).with_context(|| format!("there is no {OTHER_FILE_SYSTEM}"))?;
        ensure!(here != there.dev(), "{OTHER_FILE_SYSTEM} is not a separate file system");
        static COPIES: AtomicU64 = AtomicU64::new(0);
        let name = format!("fondaco-bench-{}-{}", std::process::id(), COPIES.fetch_add(1, Relaxed));
        let copy = Self(PathBuf::from(OTHER_FILE_SYSTEM).join(name));
        fs::create_dir(&copy.0).with_context(|| format!("could not create {:?}", copy.0))?;
        disk::copy_files(dir, &copy.0)?;
        Ok(copy)
    }

    /// The directory of the files.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The total size of the files, in bytes.
    pub fn bytes(&self) -> Result<u64> {
        let lengths = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.metadata()?.len()));
        lengths.sum()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
