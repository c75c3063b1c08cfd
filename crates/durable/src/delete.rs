//! Deletes directories with large files.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Deletes a directory with everything in it, if it exists. Nothing is synced: after a loss of power, some of it may be
/// there again.
///
/// # Errors
/// An error of the operating system; some of it may be deleted.
pub fn delete_tree(dir: &Path) -> io::Result<()> {
    // Deleting a file of gigabytes at once is one long system call, and many kernels let no other thread run on that
    // processor until it ends. So its pages are dropped first, piece by piece.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            drop_pages(&entry.path());
        }
    }
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Drops the pages of a file from the page cache.
fn drop_pages(path: &Path) {
    const STEP_BYTES: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();
    let Ok(file) = File::open(path) else { return };
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    for offset in (0..bytes).step_by(STEP_BYTES.get() as usize) {
        // Advice is a hint: if it is ignored, the pages go with the file.
        let _ = fadvise(file.as_fd(), offset, Some(STEP_BYTES), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_deleted_with_its_files_and_a_missing_one_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("inner")).unwrap();
        for file in ["file", "inner/file"] {
            fs::write(tree.join(file), "x").unwrap();
        }
        delete_tree(&tree).unwrap();
        assert!(!tree.exists());
        delete_tree(&tree).unwrap();
    }
}
