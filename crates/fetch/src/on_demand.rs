//! A version that can be opened while it is fetched: look-ups read the pieces that they need from the sources, ahead of the
//! fetch, which takes over what they have read.
//!
//! The records and index blocks of each piece are verified before they are used; the checksums of the whole files when the
//! fetch is done, as always.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use fondaco_format::{Checksum, FileEntry, FilePlace, FormatError, Manifest, Version};

use crate::partial::PartialCopy;

/// A version that is being fetched.
pub struct OnDemand {
    pub(crate) dir: PathBuf,
    pub(crate) manifest: Manifest,
    pub(crate) identity: Checksum,
    /// The files whose own names in the directory they do not have.
    pub(crate) places: HashMap<String, FilePlace>,
    /// One of the files that are not whole here, if no index is among them, which opening reads.
    pub(crate) unread: Option<Arc<PartialCopy>>,
    /// The dictionary, unless the directory has it.
    pub(crate) dictionary: Option<Arc<PartialCopy>>,
}

impl OnDemand {
    /// Opens the version, with the headers of all its indexes.
    ///
    /// # Errors
    /// As [`Version::open_partial`]; also that no source can be read now: such a version would seem to be served.
    pub fn open(&self) -> Result<Version, FormatError> {
        if let Some(unread) = &self.unread {
            unread.try_source()?;
        }
        let dictionary = self.manifest.dictionary.as_ref().map(|entry| self.dictionary(entry));
        let place = |file: &FileEntry| {
            let place = self.places.get(&file.name).cloned();
            place.unwrap_or_else(|| FilePlace::Whole(self.dir.join(&file.name)))
        };
        let identified = (self.manifest.clone(), self.identity);
        Version::open_partial(&self.dir, identified, dictionary.transpose()?.as_deref(), &place)
    }

    fn dictionary(&self, entry: &FileEntry) -> Result<Vec<u8>, FormatError> {
        let whole = 0..entry.bytes;
        let path = self.dir.join(&entry.name);
        let read = match &self.dictionary {
            None => std::fs::read(&path),
            Some(partial) => {
                use fondaco_format::PartialFile;
                let is_intact = |bytes: &[u8]| Checksum::of(bytes) == entry.checksum;
                let brought = partial.bring(whole.clone(), whole.clone(), &is_intact);
                brought.and_then(|()| partial.read(&whole))
            }
        };
        let bytes = read.map_err(|source| FormatError::Io {
            action: "read",
            path: path.clone(),
            source,
        })?;
        match Checksum::of(&bytes) == entry.checksum {
            true => Ok(bytes),
            false => Err(FormatError::Corrupt {
                path,
                reason: "its checksum does not match".to_owned(),
            }),
        }
    }
}
