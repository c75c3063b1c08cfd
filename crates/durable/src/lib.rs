//! Changes to directories that survive a loss of power.
//!
//! A file system may lose a new name, a rename or a deletion until the directory is synced, even if the file itself is
//! durable. Each function here makes one change, and syncs the changed directories before it returns. The content of a
//! file is synced by its writer; only [`replace_file`] writes one.
//!
//! A missing file or directory is an error only where the documentation says so.
//!
//! [`DirectoryLock`] keeps a directory to one process; [`delete_tree`] deletes one without stopping other threads.

mod delete;
mod lock;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

pub use delete::delete_tree;
pub use lock::{DirectoryLock, LockError};

/// Syncs the entries of a directory: the names of its files.
///
/// # Errors
/// An error of the operating system.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::note(dir);
    File::open(dir)?.sync_all()
}

/// Syncs the directory that contains a file or directory.
///
/// # Errors
/// An error of the operating system.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    sync_directory(parent(path))
}

/// Creates a directory and its missing parents. Does nothing if the directory exists.
///
/// # Errors
/// An error of the operating system.
pub fn create_directory(dir: &Path) -> io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing = dir.ancestors().take_while(is_missing).count();
    fs::create_dir_all(dir)?;
    dir.ancestors().take(missing).try_for_each(sync_parent)
}

/// Renames a file or directory; replaces a file that already has the new name.
///
/// # Errors
/// An error of the operating system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)?;
    match parent(from) == parent(to) {
        true => Ok(()),
        false => sync_parent(from),
    }
}

/// Deletes a file. Returns whether it existed.
///
/// # Errors
/// An error of the operating system.
pub fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the content of a file, or creates it: after a loss of power the file has either all of the old or all of
/// the new bytes. The new bytes are first written to `new`, which must be in the same directory.
///
/// # Errors
/// An error of the operating system. The file then has the old or the new bytes.
pub fn replace_file(path: &Path, new: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = || {
        let mut file = File::create(new)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = write().and_then(|()| rename(new, path));
    if written.is_err() {
        // A leftover file does no harm, and the first error says more than a second one.
        let _ = fs::remove_file(new);
    }
    written
}

/// The directory that contains a path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use super::*;

    thread_local! {
        /// The directories that were synced.
        static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(dir: &Path) {
        SYNCED.with_borrow_mut(|synced| synced.push(dir.to_owned()));
    }

    /// The directories below `dir` that were synced since the last call.
    fn synced_below(dir: &Path) -> Vec<String> {
        let synced = SYNCED.take();
        let relative = synced
            .iter()
            .map(|path| path.strip_prefix(dir).unwrap().display().to_string());
        relative.collect()
    }

    #[test]
    fn the_parent_of_each_new_directory_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b/c");
        create_directory(&new).unwrap();
        assert!(new.is_dir());
        assert_eq!(synced_below(dir.path()), ["a/b", "a", ""]);
        create_directory(&new).unwrap();
        assert!(synced_below(dir.path()).is_empty());
    }

    #[test]
    fn a_directory_without_a_parent_is_in_the_current_one() {
        assert_eq!(parent(Path::new("a")), Path::new("."));
        assert_eq!(parent(Path::new("a/b")), Path::new("a"));
        assert_eq!(parent(Path::new("/")), Path::new("."));
    }

    #[test]
    fn a_rename_syncs_the_new_directory_then_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        for dir in [&a, &b] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(a.join("file"), "x").unwrap();
        rename(&a.join("file"), &b.join("file")).unwrap();
        assert_eq!(synced_below(dir.path()), ["b", "a"]);
        rename(&b.join("file"), &b.join("other")).unwrap();
        assert_eq!(synced_below(dir.path()), ["b"]);
        assert_eq!(fs::read(b.join("other")).unwrap(), b"x");
    }

    #[test]
    fn the_directory_of_a_deleted_file_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        assert!(remove_file(&dir.path().join("file")).unwrap());
        assert_eq!(synced_below(dir.path()), [""]);
        assert!(!remove_file(&dir.path().join("file")).unwrap());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let [path, new] = ["file", "file.new"].map(|name| dir.path().join(name));
        for bytes in [&b"one"[..], b"two"] {
            replace_file(&path, &new, bytes).unwrap();
            assert_eq!(synced_below(dir.path()), [""]);
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert!(!new.exists());
        }
        fs::create_dir(&new).unwrap();
        replace_file(&path, &new, b"three").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
