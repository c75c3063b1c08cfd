//! Uploads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A version that is being uploaded to a node, or was uploaded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UploadResource {
    /// Its id: the checksum in the version's manifest, which identifies the version.
    #[schema(example = "0123456789abcdef")]
    pub id: String,
    /// The source to push it from at this node, once it is complete.
    #[schema(example = "upload://1/0123456789abcdef")]
    pub source: String,
    /// Whether all files have arrived completely.
    pub complete: bool,
    /// The size of all files in bytes, without the manifest.
    pub bytes_total: u64,
    /// How many of them have arrived.
    pub bytes_arrived: u64,
    /// The files.
    pub files: Vec<UploadFileResource>,
}

/// A file of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadFileResource {
    /// Its name in the manifest.
    #[schema(example = "p00000-c0000-0123456789abcdef.data")]
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// How many bytes of it have arrived: the upload continues from there.
    pub bytes_arrived: u64,
    /// Whether all of it has arrived and matches the manifest.
    pub complete: bool,
}
