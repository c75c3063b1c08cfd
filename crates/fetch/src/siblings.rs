//! Files that other versions of the store have on this disk.
//!
//! Files are named by their content, so a chunk that did not change since another version has the same names there. Such a
//! file is linked and verified, instead of fetched. A name proves nothing: the checksum of the bytes does. No file of a
//! version is ever written to, so several versions may share one.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fondaco_format::{FileEntry, is_named_by_content};

/// Where files of this version are found that other versions have, by their names.
pub(crate) struct Siblings(HashMap<String, PathBuf>);

impl Siblings {
    /// Looks for these files in the directories of other versions, as far as they are on a file system with this device. A
    /// directory that cannot be read has none: its files are fetched.
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
            // Not through symbolic links.
            let is_it = |file: fs::Metadata| file.is_file() && file.len() == bytes && file.dev() == device;
            if entry.metadata().is_ok_and(is_it) {
                missing.remove(&*name);
                found.insert(name, entry.path());
            }
        }
        Self(found)
    }

    /// Where another version has a file of this name and length.
    pub(crate) fn of(&self, file: &FileEntry) -> Option<&Path> {
        self.0.get(&file.name).map(PathBuf::as_path)
    }
}
