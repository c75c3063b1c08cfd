//! What a fetch has to say when it is done.

use parking_lot::Mutex;

/// How many corrupt files are remembered by name.
const CORRUPT_MAX: usize = 100;

/// What became of a fetch that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchReport {
    /// How many bytes each source gave, in the order in which they are asked. A link counts none.
    pub bytes_from: Vec<(String, u64)>,
    /// Files that a source has, and that are not what the manifest says. They came from another one. The
    /// first hundred.
    pub corrupt: Vec<CorruptFile>,
}

/// A file that is not what its manifest says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorruptFile {
    /// The source that gave it.
    pub location: String,
    /// Its name there.
    pub file: String,
}

/// Corrupt files, as they are found.
#[derive(Default)]
pub(crate) struct Findings(Mutex<Vec<CorruptFile>>);

impl Findings {
    pub(crate) fn corrupt(&self, location: String, file: &str) {
        tracing::error!(%location, file, "a source has a corrupt file");
        let mut found = self.0.lock();
        if found.len() < CORRUPT_MAX {
            found.push(CorruptFile {
                location,
                file: file.to_owned(),
            });
        }
    }

    pub(crate) fn take(&self) -> Vec<CorruptFile> {
        let mut found = std::mem::take(&mut *self.0.lock());
        found.sort();
        found
    }
}
