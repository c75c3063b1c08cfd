//! Copies of directories: a snapshot of a disk, or a restored one.

use std::fs;
use std::path::Path;

/// Copies a directory with everything in it. What changes meanwhile may be copied before or after.
///
/// # Panics
/// If it cannot be read or written.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory can be made");
    for entry in fs::read_dir(from).expect("the directory can be read") {
        let entry = entry.expect("the directory can be read");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("the file is there").is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("the file can be copied")),
        }
    }
}

/// Replaces a directory by a copy of it.
///
/// # Panics
/// If it cannot be read or written.
pub fn put_back_dir(copy: &Path, dir: &Path) {
    fs::remove_dir_all(dir).expect("the directory can be deleted");
    copy_dir(copy, dir);
}
