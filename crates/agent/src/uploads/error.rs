//! Why uploaded files are refused.

use std::fmt::Display;

use fondaco_format::Checksum;
use fondaco_model::{NodeId, StoreName};

/// Why an upload, or a part of it, is refused.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// There is no such upload.
    #[error(
        "this node has no upload {id} for store {store:?}: it was never begun here, or is deleted, as it is after its \
         push; begin it with fondaco deploy {store} DIRECTORY --upload"
    )]
    NotFound {
        /// The store.
        store: StoreName,
        /// The upload.
        id: Checksum,
    },
    /// The manifest does not name the file.
    #[error("the manifest of upload {id} has no file {file:?}")]
    NoSuchFile {
        /// The upload.
        id: Checksum,
        /// The file, as it was named.
        file: String,
    },
    /// The bytes do not follow those that have arrived.
    #[error("{arrived} bytes of {file:?} have arrived: send the rest from there, and not from {offset}")]
    WrongOffset {
        /// The file.
        file: String,
        /// How much of it has arrived.
        arrived: u64,
        /// The offset of the bytes.
        offset: u64,
    },
    /// Another request sends the same file.
    #[error("another request is sending {file:?}: when that has ended, ask how much has arrived")]
    Busy {
        /// The file.
        file: String,
    },
    /// The file would become longer than the manifest says.
    #[error("{file:?} has {bytes} bytes in the manifest, and more were sent")]
    TooLong {
        /// The file.
        file: String,
        /// Its length.
        bytes: u64,
    },
    /// The body ended before its end.
    #[error("the body ended early; {arrived} bytes of {file:?} have arrived: continue from there")]
    CutShort {
        /// The file.
        file: String,
        /// How much of it has arrived.
        arrived: u64,
    },
    /// The received file does not match the manifest. It is deleted.
    #[error(
        "{file:?} arrived with checksum {found}, but the manifest says {expected}: it is deleted; send the file \
         again, and if that does not help, build the version again"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// The checksum in the manifest.
        expected: Checksum,
        /// The checksum of the received file.
        found: Checksum,
    },
    /// The upload cannot be pushed yet.
    #[error("{missing} of {files} files of upload {id} have not arrived completely: send them first")]
    Incomplete {
        /// The upload.
        id: Checksum,
        /// How many files are missing.
        missing: usize,
        /// How many files it has.
        files: usize,
    },
    /// There are too many uploads.
    #[error("this node has {max} uploads already: push or delete one of them, or use another node")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The upload is on another node.
    #[error("this version was uploaded to node {node}: push it there")]
    Elsewhere {
        /// The node.
        node: NodeId,
    },
    /// This process has no disk for it.
    #[error("this process has no storage: upload to a node{}", list(.nodes))]
    NoStorage {
        /// The HTTP addresses of the nodes.
        nodes: Vec<String>,
    },
    /// The upload is the source of a push under way.
    #[error("upload {id} is being pushed to store {store:?}: cancel that first, fondaco cancel {store}")]
    Pushing {
        /// The store.
        store: StoreName,
        /// The upload.
        id: Checksum,
    },
    /// The source of a push cannot be read, and an upload would help.
    #[error("{0}")]
    Unreadable(String),
}

impl UploadError {
    /// The source cannot be read, with the remedy.
    pub fn unreadable(error: &impl Display, remedy: &str) -> Self {
        Self::Unreadable(format!("{error}{remedy}"))
    }
}

fn list(nodes: &[String]) -> String {
    match nodes {
        [] => String::new(),
        nodes => format!(", --http {}", nodes.join(" or ")),
    }
}
