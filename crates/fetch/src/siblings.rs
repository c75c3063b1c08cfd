//! Files of other versions of the store on this disk.
//!
//! Files are named by their content, so an unchanged chunk has the same names in both versions. Such a file is linked
//! and verified, instead of fetched. The name proves nothing; the checksum of the bytes does. Files of a version are
//! never written to, so several versions may share one.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fondaco_format::{FileEntry, is_named_by_content};

/// The paths of files of other versions that this version can use, by their names.
pub(crate) struct Siblings(HashMap<String, PathBuf>);

impl Siblings {
    /// Looks for these files in the directories of other versions, as far as they are on the file system with this
    /// device number. A directory that cannot be read counts as empty: its files are fetched.
    pub(crate) fn find<'f>(dirs: &[PathBuf], files: impl Iterator<Item = &'f FileEntry>, device: u64) -> Self {
        let named = files.filter(|file| is_named_by_content(&file.name));
        let mut missing: HashMap<&str, u64> = match dirs {
            [] => HashMap::new(),
            _ => named.map(|file| (&*file.name, file.bytes)).collect(),
        };
        let mut found = HashMap::new();
        for entry in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let Some(&bytes) = missing.get(&*name) else { continue };
            // Symbolic links are not followed.
            let is_it = |file: fs::Metadata| file.is_file() && file.len() == bytes && file.dev() == device;
            if entry.metadata().is_ok_and(is_it) {
                missing.remove(&*name);
                found.insert(name, entry.path());
            }
        }
        Self(found)
    }

    /// Whether another version has a file of this name, with the right length.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The path of a file with this name and length in another version.
    pub(crate) fn of(&self, file: &FileEntry) -> Option<&Path> {
        self.0.get(&file.name).map(PathBuf::as_path)
    }
}
