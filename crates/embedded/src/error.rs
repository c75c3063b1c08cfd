//! The errors of an embedded reader, each with its remedy.

use std::path::PathBuf;

use fondaco_format::FormatError;
use fondaco_model::StoreName;

/// A reader cannot be opened, or a key cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A file of the version is damaged, missing or unreadable, or the key's partition is not there.
    #[error(transparent)]
    Format(#[from] FormatError),

    /// The store has had no version yet.
    #[error("no version is here yet: wait for the first one")]
    NoVersion,

    /// The values are parts of a graph, which single look-ups do not explain.
    #[error(
        "{path:?} is a version of the graph {store:?}: an embedded reader has no queries; push it to a cluster and ask \
         there: fondaco graph query {store} 'MATCH …'"
    )]
    Graph {
        /// The directory.
        path: PathBuf,
        /// The store.
        store: StoreName,
    },
}
