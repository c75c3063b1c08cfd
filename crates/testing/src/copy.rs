//! Copies of directories: a snapshot of a disk, or a restored one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// How often a directory is listed while its entries are renamed.
const LISTED_MAX: usize = 10_000;

/// Copies a directory with everything in it. A file that changes meanwhile may be copied before or after the change.
///
/// # Panics
/// If it cannot be read or written.
pub fn copy_dir(from: &Path, to: &Path) {
    copy(from, to).unwrap_or_else(|error| panic!("cannot copy {from:?} to {to:?}: {error}"));
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(from)?;
    fs::create_dir_all(to)?;
    let mut copied = BTreeSet::new();
    for _ in 0..LISTED_MAX {
        let mut is_complete = true;
        for entry in entries {
            let entry = entry?;
            if copied.contains(&entry.file_name()) {
                continue;
            }
            let target = to.join(entry.file_name());
            let result = entry.file_type().and_then(|kind| match kind.is_dir() {
                true => copy(&entry.path(), &target),
                false => fs::copy(entry.path(), &target).map(drop),
            });
            match result {
                Ok(()) => drop(copied.insert(entry.file_name())),
                Err(error) if error.kind() == ErrorKind::NotFound => is_complete = false,
                Err(error) => return Err(error),
            }
        }
        if is_complete {
            return Ok(());
        }
        // A file that was renamed before it was copied is listed by its new name.
        entries = fs::read_dir(from)?;
    }
    Err(io::Error::other("entries are renamed again and again"))
}

/// Replaces a directory by a copy of it.
///
/// # Panics
/// If it cannot be read or written.
pub fn put_back_dir(copy: &Path, dir: &Path) {
    fs::remove_dir_all(dir).expect("the directory can be deleted");
    copy_dir(copy, dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_renamed_meanwhile_is_copied() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (old, new) = (from.path().join("old"), from.path().join("new"));
        fs::create_dir(from.path().join("below")).unwrap();
        fs::write(from.path().join("below/kept"), "1").unwrap();
        fs::write(&old, "2").unwrap();
        std::thread::scope(|scope| {
            let renaming = scope.spawn(|| {
                for _ in 0..5000 {
                    fs::rename(&old, &new).unwrap();
                    fs::rename(&new, &old).unwrap();
                }
            });
            while !renaming.is_finished() {
                let to = to.path().join("copy");
                copy_dir(from.path(), &to);
                assert_eq!(fs::read_to_string(to.join("below/kept")).unwrap(), "1");
                let renamed = ["old", "new"].map(|name| fs::read_to_string(to.join(name)).ok());
                assert!(renamed.contains(&Some("2".to_owned())), "{renamed:?}");
                fs::remove_dir_all(to).unwrap();
            }
        });
        assert!(
            std::panic::catch_unwind(|| copy_dir(&new, to.path())).is_err(),
            "it is missing"
        );
    }
}
