//! Changes of directories that survive a loss of power.
//!
//! A file system may forget a new name, a rename or a deletion until the directory that it is in was synced, however
//! durable the file itself is. Each function here makes one change and syncs the directories whose entries it changed,
//! before it returns. What is in a file is synced by its writer; only [`replace_file`] writes one.
//!
//! A missing file or directory is an error only where that is said.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Puts the entries of a directory on the disk: which files there are in it, and what they are called.
///
/// # Errors
/// What the operating system says.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    #[cfg(test)]
    tests::note(dir);
    File::open(dir)?.sync_all()
}

/// The same for the directory that a file or directory is in.
///
/// # Errors
/// What the operating system says.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    sync_directory(parent(path))
}

/// Makes a directory and those above it, as far as they are missing. One that is there is left as it is.
///
/// # Errors
/// What the operating system says.
pub fn create_directory(dir: &Path) -> io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing = dir.ancestors().take_while(is_missing).count();
    fs::create_dir_all(dir)?;
    dir.ancestors().take(missing).try_for_each(sync_parent)
}

/// Gives a file or directory another name, and puts it in the place of a file that has that name.
///
/// # Errors
/// What the operating system says.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)?;
    match parent(from) == parent(to) {
        true => Ok(()),
        false => sync_parent(from),
    }
}

/// Deletes a file. Whether there was one.
///
/// # Errors
/// What the operating system says.
pub fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces what a file has, or makes it: after a loss of power it has all of the old or all of the new bytes. The new
/// ones are written to `new` first, which must be in the same directory.
///
/// # Errors
/// What the operating system says. The file has the old or the new bytes then.
pub fn replace_file(path: &Path, new: &Path, bytes: &[u8]) -> io::Result<()> {
    let write = || {
        let mut file = File::create(new)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = write().and_then(|()| rename(new, path));
    if written.is_err() {
        // It is in no way, and the first error says more than a second one would.
        let _ = fs::remove_file(new);
    }
    written
}

/// The directory that a path is in.
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

    /// What was synced since this was asked last, below a directory.
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
    fn both_directories_of_a_rename_are_synced_the_new_one_first() {
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
