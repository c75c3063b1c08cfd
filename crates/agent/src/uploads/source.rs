//! An upload as the source of a push, and the remedy if the source of a push cannot be read.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fondaco_fetch::{FetchError, FetchSource, LocationSource, PageCache, SourceError};
use fondaco_format::Checksum;
use fondaco_model::{NodeId, StoreName};
use fondaco_storage::Location;

use crate::error::AgentError;

const SCHEME: &str = "upload://";

/// The source in a push's record: an upload, and the number of the node that has it. The node's address may change when
/// the node restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadSource {
    /// The node that has it.
    pub node: NodeId,
    /// Its id.
    pub id: Checksum,
}

impl UploadSource {
    /// Parses a source; `None` if it is not an upload.
    pub fn of(source: &str) -> Option<Self> {
        let (node, id) = source.strip_prefix(SCHEME)?.split_once('/')?;
        Some(Self {
            node: node.parse().ok()?,
            id: id.parse().ok()?,
        })
    }
}

impl fmt::Display for UploadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.node, self.id)
    }
}

/// The files of an upload, here or on another node.
pub(crate) struct UploadFiles {
    name: String,
    /// `None` if the node that has them is not known any more.
    files: Option<Box<dyn FetchSource>>,
}

impl UploadFiles {
    /// The files of an upload on another node.
    pub fn new(source: UploadSource, files: Option<Box<dyn FetchSource>>) -> Self {
        Self {
            name: source.to_string(),
            files,
        }
    }

    /// The files of an upload in a directory here.
    pub(super) fn local(source: UploadSource, dir: PathBuf) -> Self {
        Self::new(source, Some(Box::new(LocationSource::new(Location::local(dir)))))
    }

    fn files(&self) -> Result<&dyn FetchSource, SourceError> {
        self.files.as_deref().ok_or(SourceError::Missing)
    }
}

impl FetchSource for UploadFiles {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn local_dir(&self) -> Option<&Path> {
        self.files.as_ref()?.local_dir()
    }

    fn read_whole(&self, file: &str, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
        self.files()?.read_whole(file, bytes_max)
    }

    fn open(&self, file: &str, offset: u64, cache: PageCache) -> Result<Box<dyn Read + Send>, SourceError> {
        self.files()?.open(file, offset, cache)
    }

    fn read_range(&self, file: &str, range: Range<u64>, time_max: Duration) -> Result<Vec<u8>, SourceError> {
        self.files()?.read_range(file, range, time_max)
    }
}

/// The remedy, to be appended to the error, if a node cannot get the files of a version from its source.
pub fn remedy(store: &StoreName, source: &str, error: &AgentError) -> Option<String> {
    let AgentError::Fetch(FetchError::Source { .. } | FetchError::Manifest { .. } | FetchError::NoSource) = error
    else {
        return None;
    };
    if let Some(UploadSource { node, .. }) = UploadSource::of(source) {
        return Some(format!(
            "; it was uploaded to node {node}, which must stay until others have it: start that node, or push again: \
             fondaco push {store} … --upload, or fondaco deploy {store} DIRECTORY --upload if the build was kept"
        ));
    }
    let is_directory = source.starts_with("file://") || !source.contains("://");
    is_directory.then(|| {
        format!(
            "; nodes must be able to read the directory: if it is on another machine, upload it: \
             fondaco deploy {store} DIRECTORY --upload"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_with_node_and_checksum_are_uploads() {
        let source = UploadSource {
            node: NodeId::new(7).unwrap(),
            id: Checksum::of(b"x"),
        };
        assert_eq!(UploadSource::of(&source.to_string()), Some(source));
        for other in [
            "upload://7",
            "upload://7/..",
            "upload://x/0123456789abcdef",
            "file:///7/0123456789abcdef",
            "7",
        ] {
            assert_eq!(UploadSource::of(other), None, "{other}");
        }
    }
}
