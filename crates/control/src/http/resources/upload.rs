//! Uploads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::uploads::UploadedFile;

/// A version that is being sent to a node, or has been.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UploadResource {
    /// Its name: what identifies the version, which is the checksum that stands in its manifest.
    #[schema(example = "0123456789abcdef")]
    pub id: String,
    /// The source to push it from, once it is complete, at this node.
    #[schema(example = "upload://1/0123456789abcdef")]
    pub source: String,
    /// Whether all files have arrived whole.
    pub complete: bool,
    /// The bytes of all files, without the manifest.
    pub bytes_total: u64,
    /// How many of them have arrived.
    pub bytes_arrived: u64,
    /// The files.
    pub files: Vec<UploadFileResource>,
}

/// A file of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadFileResource {
    /// Its name, by the manifest.
    #[schema(example = "p00000-c0000-0123456789abcdef.data")]
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// How much of it has arrived: it goes on from there.
    pub bytes_arrived: u64,
    /// Whether all of it has arrived and is what the manifest says.
    pub complete: bool,
}

impl From<UploadedFile> for UploadFileResource {
    fn from(file: UploadedFile) -> Self {
        Self {
            name: file.name,
            bytes: file.bytes,
            bytes_arrived: file.arrived,
            complete: file.is_complete,
        }
    }
}
